"""Connections to PostgreSQL that threads share."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus

from sparkport.spark.lake.postgres_address import PostgresAddress

__all__ = ["ConnectionPool", "PostgresConnection"]

_MOST = 8
"""Connections at a time. An answer takes a millisecond, so few are enough for many threads."""
_IDLE_SECONDS = 60.0
"""After so long a connection is not used again: firewalls drop those that are silent."""


class PostgresConnection(psycopg.Connection[tuple[Any, ...]]):
    """A connection that does not wait for ever for an answer."""

    statement_seconds: float = 0.0

    def wait(self, gen: Any, interval: float = 0.1, timeout: float | None = None) -> Any:
        """Raises: psycopg.OperationalError when the answer takes too long."""
        limit = timeout if timeout is not None else self.statement_seconds or None
        return super().wait(gen, interval, limit)

    def ask(
        self, statement: str, parameters: Sequence[Any] = ()
    ) -> psycopg.Cursor[tuple[Any, ...]]:
        """Execute a statement that has a question mark for each parameter."""
        query = statement.replace("?", "%s").encode()
        return self.execute(query, parameters or None)


class ConnectionPool:
    """Connections that are made when they are needed. Thread-safe."""

    def __init__(self, address: PostgresAddress) -> None:
        self._address = address
        self._lock = threading.Lock()
        self._idle: list[tuple[float, PostgresConnection]] = []
        self._places = threading.BoundedSemaphore(_MOST)

    @contextmanager
    def asked(
        self, statement: str, parameters: Sequence[Any] = ()
    ) -> Iterator[tuple[PostgresConnection, psycopg.Cursor[tuple[Any, ...]]]]:
        """A connection for a `with` statement, with the answer to a first statement.

        The first statement also shows whether the connection still works. If a connection was
        lost while it was idle, the statement is asked again on a new one, so it must change
        nothing by itself. Raises: psycopg.Error.
        """
        if not self._places.acquire(timeout=self._address.statement_seconds):
            raise psycopg.OperationalError("too many connections of this server are in use")
        try:
            connection, answer = self._first(statement, parameters)
            try:
                yield connection, answer
            finally:
                self._give_back(connection)
        finally:
            self._places.release()

    def close(self) -> None:
        """Close what is idle. Connections in use are closed by the next call."""
        with self._lock:
            idle, self._idle = self._idle, []
        for _, connection in idle:
            _close(connection)

    def _first(
        self, statement: str, parameters: Sequence[Any]
    ) -> tuple[PostgresConnection, psycopg.Cursor[tuple[Any, ...]]]:
        connection = self._taken()
        if connection is not None:
            try:
                return connection, connection.ask(statement, parameters)
            except BaseException as error:
                if not _is_lost(connection, error):
                    self._give_back(connection)
                    raise
                _close(connection)
                self.close()  # whatever has ended this one has ended the others
        connection = self._connect()
        try:
            return connection, connection.ask(statement, parameters)
        except BaseException:
            _close(connection)
            raise

    def _taken(self) -> PostgresConnection | None:
        oldest = time.monotonic() - _IDLE_SECONDS
        with self._lock:
            late = [each for since, each in self._idle if since < oldest]
            self._idle = [(since, each) for since, each in self._idle if since >= oldest]
            taken = self._idle.pop()[1] if self._idle else None
        for connection in late:
            _close(connection)
        return taken

    def _connect(self) -> PostgresConnection:
        parameters: dict[str, Any] = dict(self._address.parameters)
        # No prepared statements: balancers between us and the server may not know them.
        connection = PostgresConnection.connect(
            **parameters, autocommit=True, prepare_threshold=None
        )
        connection.statement_seconds = self._address.statement_seconds
        return connection

    def _give_back(self, connection: PostgresConnection) -> None:
        if connection.info.transaction_status is not TransactionStatus.IDLE:
            _close(connection)
            return
        with self._lock:
            self._idle.append((time.monotonic(), connection))


def _is_lost(connection: PostgresConnection, error: BaseException) -> bool:
    """Whether an error means that a connection cannot be used any more."""
    return isinstance(error, psycopg.Error) and (
        connection.closed
        or connection.info.transaction_status
        in (TransactionStatus.ACTIVE, TransactionStatus.UNKNOWN)
    )


def _close(connection: PostgresConnection) -> None:
    with suppress(psycopg.Error):
        connection.close()
