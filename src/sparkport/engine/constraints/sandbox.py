"""Running SQL over given rows, in a DuckDB that can compute and do nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyarrow as pa

from sparkport.engine.constraints.review import Effort
from sparkport.engine.databases import EXPRESSIONS, ROWS, TIME_LIMIT, Check, Database

if TYPE_CHECKING:
    import duckdb

__all__ = ["comparison", "in_small_chunks", "quoted", "sandbox"]

_VECTOR = 2048
_BYTES_AT_ONCE = 256 * 1024 * 1024


@contextmanager
def sandbox(
    check: Check | None = None, **relations: pa.Table | pa.RecordBatch
) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open a connection for a reviewed expression, without access to files, network or settings.

    `relations` are registered under their names, and visible to this connection only.

    Raises: what `check` raises, which is called now and then from another thread; LimitExceeded.
    """
    with _opened(EXPRESSIONS, check, TIME_LIMIT, relations) as connection:
        yield connection


@contextmanager
def comparison(
    check: Check | None = None, **relations: pa.Table | pa.RecordBatch
) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open a connection for our own SQL over any number of rows, without time limit. It may spill.

    `relations` are registered under their names, and visible to this connection only. Raises: what
    `check` raises.
    """
    with _opened(ROWS, check, None, relations) as connection:
        yield connection


@contextmanager
def _opened(
    database: Database,
    check: Check | None,
    limit: float | None,
    relations: dict[str, pa.Table | pa.RecordBatch],
) -> Iterator[duckdb.DuckDBPyConnection]:
    with database.session(check, limit) as connection:
        for name, rows in relations.items():
            table = pa.Table.from_batches([rows]) if isinstance(rows, pa.RecordBatch) else rows
            connection.register(name, table)
        yield connection


def in_small_chunks(rows: pa.Table, effort: Effort) -> pa.Table:
    """Cut rows into chunks that are small enough for an expression of this effort.

    DuckDB computes a chunk, of at most 2048 rows, without looking at its limits of memory.
    """
    if not rows.num_rows:
        return rows
    most = _BYTES_AT_ONCE // (effort.times * (rows.nbytes // rows.num_rows + 1) + effort.fixed + 1)
    if most >= _VECTOR:
        return rows
    return pa.Table.from_batches(rows.to_batches(max_chunksize=max(1, most)), rows.schema)


def quoted(name: str) -> str:
    """Quote a name as an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'
