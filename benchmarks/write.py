"""Writing, as DuckDB does it: batches of 2048 rows over one exchange."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
import pyarrow.flight as flight

from benchmarks.client import exchange, replace_table
from benchmarks.data import rows
from benchmarks.measure import Line, compare
from benchmarks.servers import start

__all__ = ["run"]

_INSERTED = 1_000_000
_UPDATED = 100_000


@dataclass(frozen=True)
class _Statement:
    """One statement, and what a server without tables is asked to do with the same batches."""

    what: str
    table: str
    peer: str
    operation: str
    lockstep: bool
    batches: list[pa.RecordBatch]

    def run(self, location: str, *path: str) -> float:
        """Send it; how many rows there were."""
        descriptor = flight.FlightDescriptor.for_path(*path)
        exchange(
            location, descriptor, self.batches, operation=self.operation, lockstep=self.lockstep
        )
        return float(sum(batch.num_rows for batch in self.batches))


def run(_rows: int) -> Iterator[Line]:
    """All benchmarks of writing."""
    print("writing: starting servers …", file=sys.stderr)
    inserted = rows(_INSERTED).combine_chunks().to_batches(max_chunksize=2048)
    updated = _with_row_ids(rows(_UPDATED).combine_chunks().to_batches(max_chunksize=2048))
    filled = _Statement(
        "", "target", "", "insert", False, [batch.drop_columns(["rowid"]) for batch in updated]
    )
    statements = (
        _Statement(
            "INSERT of 1 M rows × 7 columns in 2048-row batches, against an exchange that only "
            "counts",
            *("sink", "count", "insert", False, inserted),
        ),
        _Statement(
            "UPDATE RETURNING of 100,000 rows in lockstep, against an echo of the same batches",
            *("target", "echo", "update", True, updated),
        ),
    )
    with start("plain", 1) as plain, start("sparkport", 1) as ours:

        def make_tables() -> None:
            # Old rows are let go of, so that the server has memory it has used before. What comes
            # fresh from the system is slow on a virtual machine, and a table that keeps growing,
            # which is the common case, must have it.
            replace_table(ours.location, "sink", inserted[0].schema)
            replace_table(ours.location, "target", inserted[0].schema)
            filled.run(ours.location, "s", filled.table)

        make_tables()
        for each in statements:
            for case, before in (
                ("tables that keep growing", _nothing),
                ("tables made anew every time", make_tables),
            ):
                compared = compare(
                    [
                        partial(each.run, plain.location, each.peer),
                        partial(each.run, ours.location, "s", each.table),
                    ],
                    before=before,
                )
                ratio = compared.ratio(1, 0)
                rates = f"{compared.rate(1) / 1e6:.2f} : {compared.rate(0) / 1e6:.2f} M rows/s"
                yield Line(f"{each.what}; {case}", f"{ratio:.2f} ({rates})", "≥ 0.5", ratio >= 0.5)


def _nothing() -> None:
    pass


def _with_row_ids(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    numbered, first = [], 0
    for batch in batches:
        ids = pa.array(range(first, first + batch.num_rows), pa.int64())
        numbered.append(batch.append_column("rowid", ids))
        first += batch.num_rows
    return numbered
