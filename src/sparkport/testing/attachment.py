"""A client with an attached catalog: its state, and what all statements need."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import TypeVar

from sparkport.testing import scan
from sparkport.testing.catalogs import AttachedSchema, CatalogCache
from sparkport.testing.failures import ClientSideError
from sparkport.testing.headers import PROCESS_SESSION, Headers
from sparkport.testing.null_booleans import as_duckdb_1_5_0_sends
from sparkport.testing.objects import AttachedFunction, AttachedTable
from sparkport.testing.session import Session
from sparkport.testing.transport import Connection
from sparkport.testing.types import Line

__all__ = ["Attachment"]

A = TypeVar("A", bound="Attachment")


class Attachment:
    """The attached catalog as DuckDB caches it, and the transaction."""

    def __init__(
        self,
        location: str,
        catalog: str = "",
        *,
        line: Line = "main",
        token: str | None = None,
        attach_token: str | None = None,
        arrow_lossless: bool = True,
        user_headers: Mapping[str, str] | None = None,
        session_id: str = PROCESS_SESSION,
        timeout: float = 30.0,
        tls_root_certs: bytes | None = None,
        garbled_null_booleans: bool = False,
    ) -> None:
        headers = Headers(
            location, catalog, line, session_id, token, attach_token, dict(user_headers or {})
        )
        garbled = {"encoded": as_duckdb_1_5_0_sends} if garbled_null_booleans else {}
        self._session = Session(
            Connection(location, timeout, tls_root_certs, **garbled), headers, arrow_lossless
        )
        self._cache = CatalogCache(self._session)
        self._attached = False

    def __enter__(self: A) -> A:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections, as when the DuckDB process ends: nothing is sent."""
        self._session.close()

    def attach(self: A) -> A:
        """ATTACH: v1.4 loads the catalog at once, main at the first use (airport §2.4)."""
        if self._attached:
            raise ClientSideError("Binder Error: database is already attached")
        self._attached = True
        if self._session.headers.line == "v1.4":
            self._cache.load()
        return self

    def detach(self) -> None:
        """DETACH: forget the cached catalog, so that the next ATTACH sees the changes of others."""
        self._attached = False
        self._cache.forget()

    def schemas(self) -> dict[str, AttachedSchema]:
        """`duckdb_schemas()`: all schemas by name, with everything in them loaded and checked."""
        return self._catalog().schemas()

    def tables(self, schema: str) -> dict[str, AttachedTable]:
        """The tables of a schema by name."""
        return {table.name: table for table in self._catalog().schema(schema).tables.values()}

    def table(self, schema: str, name: str) -> AttachedTable:
        """DESCRIBE: return a table by its name, ignoring case."""
        return self._catalog().table(schema, name)

    def functions(self, schema: str) -> list[AttachedFunction]:
        """The functions of a schema; overloads share a name."""
        return list(self._catalog().schema(schema).functions)

    @property
    def catalog_version(self) -> tuple[int, bool] | None:
        """The version that the server reported last, and whether it is fixed; None before that."""
        return self._session.version

    def begin(self) -> None:
        """BEGIN: sends nothing. `create_transaction` follows at the first use (airport §10)."""
        self._session.begin()

    def commit(self) -> None:
        """COMMIT: sends nothing. The server never learns of it (trap T23)."""
        self._session.end()

    def rollback(self) -> None:
        """ROLLBACK: sends nothing, and undoes nothing (trap T23)."""
        self._session.end()

    def _catalog(self) -> CatalogCache:
        if not self._attached:
            self.attach()
        return self._cache

    def _bound(self, schema: str, name: str, at: tuple[str, str] | None = None) -> AttachedTable:
        """Bind a table in FROM: its transaction, catalog, version (airport §3.2) and time."""
        self._session.transaction()
        table = self._catalog().table(schema, name)
        if at is not None:
            return scan.bind_at(self._session, self._cache, table, at)
        self._session.check_version()
        return table

    def _modified(self, schema: str, name: str) -> AttachedTable:
        """Bind the table of an UPDATE or DELETE, which asks for the version twice (airport §3.8).

        DuckDB asks once for the scan and once for the change.
        """
        table = self._bound(schema, name)
        self._session.check_version()
        return table
