"""The DuckDB that evaluates filters: one per process, in memory, with every door shut."""

from __future__ import annotations

import atexit
import functools
import os
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import duckdb

MEMORY_LIMIT = "1GB"
"""For all filters of the process together. A filter that needs more is given up, and its rows are sent."""

_LOCKED_DOWN: dict[str, str | bool | int | float | list[str]] = {
    "enable_external_access": "false",
    "autoload_known_extensions": "false",
    "autoinstall_known_extensions": "false",
    "allow_community_extensions": "false",
    "python_enable_replacements": "false",
    "temp_directory": "",
    "memory_limit": MEMORY_LIMIT,
    # A query runs on the thread that asks for it; the server's threads are the parallelism.
    "threads": "1",
}

_USEFUL_OPTIMISERS = {"expression_rewriter", "common_subexpressions", "regex_range", "in_clause"}


def open_cursor() -> duckdb.DuckDBPyConnection:
    """A connection of its own to the shared database; for one thread at a time."""
    return _database.cursor()


def forget_database() -> None:
    """Start afresh next time: after an internal error DuckDB refuses all further work."""
    _database.forget()


def can_reopen_streams() -> bool:
    """Whether a relation over an Arrow source reads it anew every time; 1.4 takes the stream when it binds."""
    import duckdb

    major, minor = duckdb.__version__.split(".")[:2]
    return (int(major), int(minor)) >= (1, 5)


@functools.cache
def consistent_functions() -> frozenset[str]:
    """The scalar functions of which DuckDB says that every overload always gives the same value for its arguments."""
    cursor = open_cursor()
    try:
        rows = cursor.execute(
            "SELECT function_name FROM duckdb_functions() WHERE function_type = 'scalar' GROUP BY function_name"
            " HAVING bool_and(stability IS NOT DISTINCT FROM 'CONSISTENT' AND database_name = 'system')"
        ).fetchall()
    finally:
        cursor.close()
    return frozenset(name for (name,) in rows)


class _Database:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._connection: duckdb.DuckDBPyConnection | None = None
        self._inherited: list[duckdb.DuckDBPyConnection | None] = []

    def cursor(self) -> duckdb.DuckDBPyConnection:
        with self._lock:
            if self._connection is None:
                self._connection = _connect()
            return self._connection.cursor()

    def forget(self) -> None:
        with self._lock:
            self._connection = None

    def start_after_fork(self) -> None:
        """A forked worker has its parent's memory but not its threads: it may neither use nor close that database."""
        self._lock = threading.Lock()
        self._inherited.append(self._connection)
        self._connection = None


def _connect() -> duckdb.DuckDBPyConnection:
    import duckdb

    connection = duckdb.connect(":memory:", config=_LOCKED_DOWN)
    connection.execute("SET GLOBAL TimeZone = 'UTC'")
    # A mask is one projection: the other optimisers find nothing in it, and planning is the cost of a small batch.
    optimisers = {name for (name,) in connection.execute("SELECT name FROM duckdb_optimizers()").fetchall()}
    superfluous = ",".join(sorted(optimisers - _USEFUL_OPTIMISERS))
    connection.execute(f"SET GLOBAL disabled_optimizers = '{superfluous}'")
    connection.execute("SET lock_configuration = true")
    return connection


_database = _Database()
# While the interpreter still stands: DuckDB 2.0 reports what it finds alive after that as leaked.
atexit.register(_database.forget)
os.register_at_fork(after_in_child=_database.start_after_fork)
