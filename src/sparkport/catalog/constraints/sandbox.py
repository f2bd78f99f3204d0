"""A DuckDB that can compute and do nothing else: the evaluator of SQL expressions that users have written."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import duckdb
import pyarrow as pa

__all__ = ["quoted", "sandbox"]

_SETTINGS = {
    "enable_external_access": "false",
    "autoload_known_extensions": "false",
    "autoinstall_known_extensions": "false",
    "python_enable_replacements": "false",  # an expression must not see Python's variables
    "arrow_lossless_conversion": "true",
    "TimeZone": "'UTC'",
    # DuckDB 1.5 hands conditions on Arrow tables to pyarrow, which knows them only for some types.
    "disabled_optimizers": "'filter_pushdown,join_filter_pushdown'",
    "lock_configuration": "true",  # last: it locks the others
}

_lock = threading.Lock()
_database: duckdb.DuckDBPyConnection | None = None


@contextmanager
def sandbox(**relations: pa.Table | pa.RecordBatch) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection of one's own, without access to files, network, extensions or settings.

    `relations` are registered under their names, and seen by nobody else.
    """
    connection = _connect().cursor()
    try:
        for name, rows in relations.items():
            table = pa.Table.from_batches([rows]) if isinstance(rows, pa.RecordBatch) else rows
            connection.register(name, table)
        yield connection
    finally:
        connection.close()


def _connect() -> duckdb.DuckDBPyConnection:
    global _database  # noqa: PLW0603 - one for the process: opening it takes longer than a query
    with _lock:
        if _database is None:
            database = duckdb.connect(":memory:")
            for name, value in _SETTINGS.items():
                database.execute(f"SET {name} = {value}")
            _database = database
        return _database


def quoted(name: str) -> str:
    """The name as an identifier of SQL."""
    return '"' + name.replace('"', '""') + '"'
