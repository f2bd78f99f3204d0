"""Find the rows of a table that have given keys.

Strategy: the table's keys stream past the given keys, so that memory depends only on what is looked
for and found. Files and row groups outside of the keys' range are not read. DuckDB compares, so
that keys are equal here when they are equal in UNIQUE constraints.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from sparkport.catalog import Context
from sparkport.catalog.rowid import ROWID_NAME
from sparkport.engine.constraints.parsing import DatabaseError
from sparkport.engine.constraints.sandbox import comparison
from sparkport.errors import Unsupported
from sparkport.spark.iceberg.plan import ScanPlan, plan_scan
from sparkport.spark.iceberg.read import read_parts, read_request
from sparkport.spark.iceberg.table_state import TableState
from sparkport.spark.lake.changes import NO_ROWS
from sparkport.spark.lake.lake import Lake
from sparkport.spark.write.keys import Stream, key_range

__all__ = ["Matches", "find_matches", "first_repeated", "rows_with", "shown_key"]

_SHOWN = 80
_BATCH_ROWS = 122_880


@dataclass(frozen=True, slots=True, eq=False)
class Matches:
    """Pairs of a key and a row that has it, in the order of the keys."""

    places: pa.Array
    """Positions of keys among the given keys; a key is repeated for each row that has it."""
    row_ids: pa.Array


def find_matches(lake: Lake, ctx: Context, state: TableState, keys: pa.Table) -> Matches:
    """The rows of a state that have one of the keys.

    The columns of `keys` are named as the table's. NULL equals nothing. Raises: Unsupported where
    only Spark can read the table's files; PreconditionFailed when a file is damaged; Cancelled.
    """
    listed, equal = _listed(keys), " AND ".join(f"f.{name} = w.{name}" for name in _stand_ins(keys))
    # With IN, DuckDB builds its hash table from the given keys. For a join it would take the other
    # side: it does not know the size of a stream, and takes it for small.
    query = (
        "WITH found AS MATERIALIZED"
        f" (SELECT * FROM existing WHERE ({listed}) IN (SELECT {listed} FROM wanted))"
        f" SELECT w.place, f.row FROM found AS f JOIN wanted AS w ON {equal} ORDER BY ALL"
    )
    pairs = [batch for batch in _compared(lake, ctx, state, keys, query) if batch.num_rows]
    if not pairs:
        return Matches(NO_ROWS, NO_ROWS)
    return Matches(
        *(pa.concat_arrays([batch.column(place) for batch in pairs]) for place in (0, 1))
    )


def rows_with(
    lake: Lake, ctx: Context, state: TableState, keys: pa.Table
) -> Generator[pa.Array, None, None]:
    """The ids of the rows of a state that have one of the keys, each once, in any order.

    Raises: Unsupported where only Spark can read the table's files; PreconditionFailed when a file
    is damaged; Cancelled.
    """
    listed = _listed(keys)
    query = f"SELECT row FROM existing WHERE ({listed}) IN (SELECT {listed} FROM wanted)"
    for batch in _compared(lake, ctx, state, keys, query):
        yield batch.column(0)


def _compared(
    lake: Lake, ctx: Context, state: TableState, keys: pa.Table, query: str
) -> Iterator[pa.RecordBatch]:
    """Run a query on the given keys, as `wanted`, and the table's, as `existing`."""
    if not keys.num_rows or state.snapshot is None:
        return
    row_filter = key_range(keys)
    columns = [*keys.schema.names, ROWID_NAME]
    plan = plan_scan(state, columns, row_filter)
    if not plan.readable:
        raise Unsupported(
            f"rows of table {state.identifier} cannot be found by a key: only Spark can read its "
            "files"
        )
    names = _stand_ins(keys)
    request = read_request(state, columns, row_filter, properties=state.file_properties)
    batches = read_parts(request, plan.parts, ctx.check, use_threads=_is_large(plan))
    existing = Stream(batch.select(columns).rename_columns([*names, "row"]) for batch in batches)
    fields = [state.definition.columns.field(name).remove_metadata() for name in keys.schema.names]
    arrow_schema = pa.schema(
        [*(field.with_name(name) for field, name in zip(fields, names, strict=True)), _ROW]
    )
    with comparison(ctx.check, wanted=_numbered(keys, names)) as connection:
        connection.register(
            "existing", pa.RecordBatchReader.from_batches(arrow_schema, iter(existing))
        )
        try:
            yield from connection.sql(query).to_arrow_reader(_BATCH_ROWS)
        # Errors of DuckDB while it streams come through Arrow.
        except (DatabaseError, pa.ArrowException, OSError):
            if existing.failure is not None:
                raise existing.failure from None
            raise


_ROW = pa.field("row", pa.int64())


def first_repeated(keys: pa.Table) -> int | None:
    """The place of a key that occurs more than once; None if all differ.

    Keys with a NULL differ.
    """
    names = _stand_ins(keys)
    present = " AND ".join(f"{name} IS NOT NULL" for name in names)
    with comparison(wanted=_numbered(keys, names)) as connection:
        row = connection.execute(
            f"SELECT min(place) FROM wanted WHERE {present} GROUP BY {', '.join(names)} HAVING "
            "count(*) > 1 LIMIT 1"
        ).fetchone()
    return None if row is None else int(row[0])


def shown_key(keys: pa.Table, place: int) -> str:
    """A key as messages show it, with the names of its columns."""
    names = _stand_ins(keys)
    texts = ", ".join(f"CAST({name} AS VARCHAR)" for name in names)
    with comparison(wanted=_numbered(keys.slice(place, 1), names)) as connection:
        values = connection.execute(f"SELECT {texts} FROM wanted").fetchone() or ()
    return ", ".join(
        f"{name}: {_shortened(value)}"
        for name, value in zip(keys.schema.names, values, strict=True)
    )


def _shortened(value: str | None) -> str:
    text = "NULL" if value is None else value
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"


def _stand_ins(keys: pa.Table) -> list[str]:
    """Column names that need no quotes and are not used here otherwise."""
    return [f"k{number}" for number in range(keys.num_columns)]


def _listed(keys: pa.Table) -> str:
    return ", ".join(_stand_ins(keys))


def _numbered(keys: pa.Table, names: Sequence[str]) -> pa.Table:
    return keys.rename_columns(list(names)).append_column("place", pa.arange(0, keys.num_rows))


def _is_large(plan: ScanPlan) -> bool:
    return plan.rows >= 1_000_000
