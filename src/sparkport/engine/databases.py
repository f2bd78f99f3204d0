"""Every DuckDB of this process: opened and locked down here, and interrupted when need be.

The databases are in memory. None of them loads an extension, sees a variable of Python or can have
its settings changed. None but `files_below` opens a file. What else they may do depends on whose
SQL they run:

| database      | runs                                          | memory, threads | spills |
|---------------|-----------------------------------------------|-----------------|--------|
| `EXPRESSIONS` | CHECK, DEFAULT, USING, masks and row filters  | 1 GB, one       | no     |
| `FILTERS`     | the filters that clients push                 | 1 GB, one       | no     |
| `ROWS`        | our own SQL: compares keys and hashes of rows | DuckDB's own    | yes    |
| `files_below` | our own SQL: reads files of one folder, with  | 2 GB, as asked  | no     |
|               | comparisons of columns and constants          |                 |        |

With one thread a query runs in the thread that asks for it; the server's threads are the
parallelism. The limit of memory is DuckDB's, which does not count intermediate values of an
expression: the review of expressions bounds those (`constraints/review.py`). DuckDB notices an
interruption after each vector of at most 2048 rows. A query is interrupted when its result is no
longer waited for.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeAlias

from sparkport.engine.cache import Cache
from sparkport.errors import LimitExceeded

if TYPE_CHECKING:
    import duckdb

__all__ = ["EXPRESSIONS", "FILTERS", "ROWS", "TIME_LIMIT", "Check", "Database", "files_below"]

Check: TypeAlias = Callable[[], None]
"""Raises, as `Context.check` does, when the result is no longer waited for.

It is called from another thread.
"""

TIME_LIMIT = 60.0
"""Seconds for one evaluation of a user's expression on one batch; milliseconds are usual."""

_POLL_SECONDS = 0.1
_LINGER_SECONDS = 2.0

_SHUT: Mapping[str, str] = {
    "enable_external_access": "false",
    "autoload_known_extensions": "false",
    "autoinstall_known_extensions": "false",
    "allow_community_extensions": "false",
    "allow_persistent_secrets": "false",
    "python_enable_replacements": "false",
}
_SMALL = {
    "memory_limit": "1GB",
    "threads": "1",
    "temp_directory": "",
    "max_temp_directory_size": "0MB",
}

_FOR_FILES = {
    "enable_external_access": "true",  # until the folder is set; then it is turned off
    "memory_limit": "2GB",
    "temp_directory": "",
    "max_temp_directory_size": "0MB",
}

_LOSSLESS = "SET GLOBAL arrow_lossless_conversion = true"
_NO_PUSHDOWN = "SET GLOBAL disabled_optimizers = 'filter_pushdown,join_filter_pushdown'"
"""DuckDB 1.5 hands conditions on Arrow tables to pyarrow, which knows them only for some types."""
_FOR_MASKS = frozenset({"common_subexpressions", "expression_rewriter", "in_clause", "regex_range"})
"""The optimisers for filters.

A mask is one projection, in which the other optimisers find nothing; for a small batch, planning is
the main cost.
"""


class Database:
    """One DuckDB in memory for the process, opened at its first use.

    Thread-safe; a forked worker opens its own.
    """

    def __init__(
        self,
        settings: Mapping[str, str],
        *statements: str,
        optimisers: frozenset[str] | None = None,
    ) -> None:
        self._settings = {**_SHUT, **settings}
        self._statements = ("SET GLOBAL TimeZone = 'UTC'", *statements)
        self._optimisers = optimisers
        self._lock = threading.Lock()
        self._connection: duckdb.DuckDBPyConnection | None = None
        self._inherited: list[duckdb.DuckDBPyConnection | None] = []
        _opened.add(self)

    def cursor(self) -> duckdb.DuckDBPyConnection:
        """A new connection, for one thread at a time; the caller closes it."""
        with self._lock:
            if self._connection is None:
                self._connection = self._connect()
            return self._connection.cursor()

    @contextmanager
    def session(
        self, check: Check | None = None, limit: float | None = None
    ) -> Iterator[duckdb.DuckDBPyConnection]:
        """A cursor that is interrupted when `check` raises or the seconds are over.

        It is closed at the end of the `with` statement. Raises: what `check` raises; LimitExceeded.
        """
        cursor = self.cursor()
        try:
            with self.watched(cursor, check, limit):
                yield cursor
        finally:
            cursor.close()

    @contextmanager
    def watched(
        self,
        cursor: duckdb.DuckDBPyConnection,
        check: Check | None = None,
        limit: float | None = None,
    ) -> Iterator[None]:
        """Interrupt a cursor when `check` raises or the seconds are over; the cursor stays open.

        Raises: what `check` raises; LimitExceeded.
        """
        import duckdb

        evaluation = _Evaluation(cursor.interrupt, check, limit)
        if check is not None or limit is not None:
            _watch.add(evaluation)
        try:
            yield
        except Exception as error:
            if isinstance(error, duckdb.FatalException | duckdb.InternalException):
                self.forget()
            if evaluation.reason is not None:
                raise evaluation.reason from error
            raise
        finally:
            _watch.remove(evaluation)

    def forget(self) -> None:
        """Open a new database at the next use: after an internal error DuckDB refuses all work."""
        with self._lock:
            self._connection = None

    def _connect(self) -> duckdb.DuckDBPyConnection:
        import duckdb

        connection = duckdb.connect(":memory:", config=dict(self._settings))
        for statement in self._statements:
            connection.execute(statement)
        if self._optimisers is not None:
            names = {
                name
                for (name,) in connection.execute("SELECT name FROM duckdb_optimizers()").fetchall()
            }
            superfluous = ",".join(sorted(names - self._optimisers))
            connection.execute(f"SET GLOBAL disabled_optimizers = '{superfluous}'")
        connection.execute("SET GLOBAL lock_configuration = true")
        return connection

    def start_after_fork(self) -> None:
        """Leave the parent's database alone in a forked worker.

        The worker has its parent's memory but not its threads, so it may neither use nor close that
        database.
        """
        self._lock = threading.Lock()
        self._inherited.append(self._connection)
        self._connection = None


_opened: weakref.WeakSet[Database] = weakref.WeakSet()


def _forget_all() -> None:
    for database in list(_opened):
        database.forget()


def _start_all_after_fork() -> None:
    for database in list(_opened):
        database.start_after_fork()


# While the interpreter still runs: DuckDB 2.0 reports what lives longer as leaked.
atexit.register(_forget_all)
os.register_at_fork(after_in_child=_start_all_after_fork)


class _Evaluation:
    """An evaluation under way, and what may interrupt it."""

    def __init__(
        self, interrupt: Callable[[], None], check: Check | None, limit: float | None
    ) -> None:
        self._interrupt = interrupt
        self._check = check
        self._limit = limit
        self._began = time.monotonic()
        self.reason: Exception | None = None
        """Why the evaluation was interrupted."""

    def look(self) -> None:
        if self.reason is None:
            self.reason = self._why_not()
        if self.reason is not None:
            self._interrupt()  # repeated, because an interruption between two queries is lost

    def _why_not(self) -> Exception | None:
        if self._limit is not None and time.monotonic() - self._began > self._limit:
            return LimitExceeded(
                f"the expression took longer than {self._limit:g} seconds and was stopped"
            )
        try:
            if self._check is not None:
                self._check()
        except Exception as error:  # noqa: BLE001 - whatever it is, it is for who evaluates
            return error
        return None


class _InterruptThread:
    """One thread that watches all evaluations; it ends after a while without any."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._evaluations: set[_Evaluation] = set()
        self._running = False

    def add(self, evaluation: _Evaluation) -> None:
        with self._lock:
            self._evaluations.add(evaluation)
            if not self._running:
                self._running = True
                threading.Thread(
                    target=self._work, name="watching expressions", daemon=True
                ).start()

    def remove(self, evaluation: _Evaluation) -> None:
        with self._lock:  # after this there is no more interruption
            self._evaluations.discard(evaluation)

    def start_after_fork(self) -> None:
        self.__init__()  # type: ignore[misc]  # the parent's thread is not here, and may have held the lock

    def _work(self) -> None:
        last = time.monotonic()
        while self._looked() or time.monotonic() - last < _LINGER_SECONDS or not self._ended():
            last = time.monotonic() if self._evaluations else last
            time.sleep(_POLL_SECONDS)

    def _looked(self) -> bool:
        with self._lock:
            for evaluation in self._evaluations:
                evaluation.look()
            return bool(self._evaluations)

    def _ended(self) -> bool:
        with self._lock:
            self._running = bool(self._evaluations)
            return not self._running


_watch = _InterruptThread()
os.register_at_fork(after_in_child=_watch.start_after_fork)

EXPRESSIONS = Database(_SMALL, _LOSSLESS, _NO_PUSHDOWN)
FILTERS = Database(_SMALL, optimisers=_FOR_MASKS)
ROWS = Database({}, _LOSSLESS, _NO_PUSHDOWN)


def files_below(folder: str, threads: int) -> Database:
    """The database that reads files in a local folder and in those inside it, and no others.

    It is for SQL of our own. It has so many threads for all who use it. Some are kept open.
    """
    known = _of_folders.find((folder, threads), None)
    if known is not None:
        return known
    place = folder.rstrip("/").replace("'", "''")
    opened = Database(
        {**_FOR_FILES, "threads": str(threads)},
        f"SET GLOBAL allowed_directories = ['{place}/']",
        "SET GLOBAL enable_external_access = false",
    )
    return _of_folders.add((folder, threads), opened)


_of_folders: Cache[tuple[str, int], Database] = Cache(8)
