"""The state that all statements of a client share.

It is the connection, its headers, the transaction, and the catalog's version.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sparkport.testing.failures import ClientSideError, ProtocolViolation
from sparkport.testing.headers import HeaderList, Headers, printable_ascii
from sparkport.testing.local import LocalDuckDB
from sparkport.testing.replies import Fields
from sparkport.testing.requests import pack
from sparkport.testing.transport import Connection

__all__ = ["Session"]

_NO_ANSWER_CRASHES = frozenset(
    {
        "catalog_version",
        "create_transaction",
        "endpoints",
        "table_function_flight_info",
        "column_statistics",
    }
)


class Session:
    """The state of a DuckDB connection with an attached catalog. For one statement at a time."""

    def __init__(self, connection: Connection, headers: Headers, lossless: bool) -> None:
        self.connection = connection
        self.headers = headers
        self.local = LocalDuckDB.shared(lossless)
        self._others: dict[str, Connection] = {}
        self._version: tuple[int, bool] | None = None
        self._in_block = False
        self._transaction: str | None = None
        self._has_transaction = False

    @property
    def catalog(self) -> str:
        return self.headers.catalog

    def connection_to(self, location: str) -> Connection:
        """Return the connection for an endpoint at another location; it is kept (airport §1.2)."""
        if location not in self._others:
            self._others[location] = Connection(location, self.connection.timeout)
        return self._others[location]

    def close(self) -> None:
        for connection in (self.connection, *self._others.values()):
            connection.close()

    # -------------------------------------------------------------------------- transactions (§10)

    @contextmanager
    def statement(self) -> Iterator[None]:
        """Run an SQL statement: outside BEGIN … COMMIT it is a transaction of its own."""
        try:
            yield
        finally:
            if not self._in_block:
                self._forget_transaction()

    def begin(self) -> None:
        if self._in_block:
            raise ClientSideError(
                "TransactionContext Error: cannot start a transaction within a transaction"
            )
        self._in_block = True
        self._forget_transaction()

    def end(self) -> None:
        """COMMIT or ROLLBACK: nothing is sent (trap T23)."""
        if not self._in_block:
            raise ClientSideError("TransactionContext Error: no transaction is active")
        self._in_block = False
        self._forget_transaction()

    def transaction(self) -> str | None:
        """Return the id of the transaction; the first use sends `create_transaction`."""
        if not self._has_transaction:
            body = self._ask("create_transaction")
            identifier = Fields.unpack(body, "create_transaction").optional_text("identifier")
            if identifier is not None and not printable_ascii(identifier):
                raise ProtocolViolation(
                    "T3",
                    f"the transaction identifier {identifier!r} is no legal header: DuckDB aborts",
                )
            self._transaction, self._has_transaction = identifier or None, True
        return self._transaction

    def _forget_transaction(self) -> None:
        self._transaction, self._has_transaction = None, False

    # ----------------------------------------------------------------------------- versions (§3.8)

    @property
    def version(self) -> tuple[int, bool] | None:
        """The last known catalog version, and whether it is fixed."""
        return self._version

    def check_version(self) -> None:
        """Ask for the catalog version, unless it is known to be fixed."""
        if self._version is None or not self._version[1]:
            body = self._ask("catalog_version")
            self.learn_version(Fields.unpack(body, "catalog_version"))

    def learn_version(self, fields: Fields) -> None:
        self._version = fields.unsigned("catalog_version"), fields.boolean("is_fixed")

    def _ask(self, action: str) -> bytes:
        return self.answer(
            action, pack({"catalog_name": self.catalog}), self.headers.of_catalog(action)
        )

    # ------------------------------------------------------------------------------ actions (§4.1)

    def answer(
        self,
        action: str,
        body: bytes,
        headers: HeaderList,
        crashes: bool | None = None,
        hang: str = "§1.2",
    ) -> bytes:
        """Return the first result of an action that must have one."""
        results = self.connection.action(action, body, headers, hang)
        if not results:
            if crashes if crashes is not None else action in _NO_ANSWER_CRASHES:
                raise ProtocolViolation(
                    "T2", f"{action} gave no result: the DuckDB process would crash"
                )
            raise ProtocolViolation("§4.1", f"{action} gave no result: the statement fails")
        return results[0]
