"""The context of a request: its caller, its transaction, and whether the caller still waits."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from sparkport.catalog.access import Access
from sparkport.catalog.identity import Identity
from sparkport.catalog.quotas import Quotas
from sparkport.errors import Cancelled

if TYPE_CHECKING:
    from sparkport.catalog.interfaces import Catalog

__all__ = ["Cancellation", "Context", "Progress"]

_log = logging.getLogger(__name__)
_LONGEST_QUERY = 10_000
"""Characters of a query that are logged."""


class Cancellation:
    """A switch that the service flips, for good, when the caller goes away. Thread-safe."""

    __slots__ = ("_callbacks", "_lock", "cancelled")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._callbacks: list[Callable[[], None]] = []
        self.cancelled = False

    def cancel(self) -> None:
        """Flip the switch and run the callbacks, once."""
        with self._lock:
            self.cancelled = True
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            try:
                callback()
            except Exception:  # noqa: BLE001 - the others must still be told
                _log.exception("a callback of a cancelled request failed")

    def wait(self, timeout: float | None = None) -> bool:
        """Block until cancelled or timed out; returns whether it is cancelled."""
        told = threading.Event()
        self.add_callback(told.set)
        try:
            return told.wait(timeout)
        finally:
            with self._lock, suppress(ValueError):
                self._callbacks.remove(told.set)

    def add_callback(self, callback: Callable[[], None]) -> None:
        with self._lock:
            if not self.cancelled:
                self._callbacks.append(callback)
                return
        callback()


class Progress:
    """What a catalog reports about a request. All contexts of a request share it."""

    __slots__ = ("fraction", "query", "route", "tables", "writes")

    def __init__(self) -> None:
        self.fraction: float | None = None
        """How much of a scan is done, as reported by its table. DuckDB's progress bar shows it."""
        self.route = ""
        """The route of a scan."""
        self.writes: list[tuple[str, str, int | None]] = []
        """The changes that were made: kind, object, number of rows."""
        self.query = ""
        """A query of the caller in the language of another engine."""
        self.tables: tuple[str, ...] = ()
        """The tables that this query reads."""


_EVERYTHING = Access()
_UNLIMITED = Quotas()


@dataclass(frozen=True, slots=True)
class Context:
    """What a catalog may know about the request that it serves.

    The service makes one for each request. Catalogs read it and pass it on. Safe to use from any
    thread.
    """

    catalog_name: str = ""
    """The catalog's name as the caller spelled it."""
    transaction_id: str | None = None
    """The id that the TransactionManager gave the transaction of this operation."""
    parent_transaction_id: str | None = None
    """For a write that commits by itself: the DuckDB transaction around it (airport §10).

    Later scans in that transaction should see this write.
    """
    principal: str | None = None
    """The caller's name, if the caller is authenticated."""
    identity: Identity | None = None
    """The caller's name, groups and attributes, if the caller is authenticated."""
    access: Access = field(default=_EVERYTHING, compare=False, repr=False)
    """What the caller may do in this catalog.

    The service checks every object that it finds by name. A catalog checks objects that only it
    knows about, such as a table that a function's argument names.
    """
    served: Callable[[], Sequence[tuple[Catalog, Access]]] = field(
        default=tuple, compare=False, repr=False
    )
    """Returns all catalogs of this server with the caller's access to each.

    For a catalog whose queries read other catalogs.
    """
    quotas: Quotas = field(default=_UNLIMITED, compare=False, repr=False)
    """How much the caller may use at once."""
    trace_id: str = ""
    """Shared by all calls of a scan or write; for logs and audit."""
    session_id: str = ""
    """An id of the caller's process, as the caller gives it: not a credential."""
    from_duckdb: bool = False
    """Whether the caller introduced itself as DuckDB's airport client."""
    narrow_decimals: bool = False
    """Whether the caller reads decimals of up to 18 digits as `decimal32` and `decimal64`.

    The service sends them so. A table need not care.
    """
    cancellation: Cancellation = field(default_factory=Cancellation, compare=False, repr=False)
    progress: Progress = field(default_factory=Progress, compare=False, repr=False)

    @property
    def cancelled(self) -> bool:
        """Whether the caller has gone away. Long work must check it, or use `on_cancel`."""
        return self.cancellation.cancelled

    def check(self) -> None:
        """Raise `Cancelled` once the caller has gone away."""
        if self.cancellation.cancelled:
            raise Cancelled("the request was cancelled")

    def on_cancel(self, callback: Callable[[], None]) -> None:
        """Call `callback` once, from any thread, when the caller goes away or if it already has.

        It must be quick: the thread that calls it serves other requests too.
        """
        self.cancellation.add_callback(callback)

    def wait(self, seconds: float) -> None:
        """Sleep until the time is over or the caller goes away. Raises: Cancelled."""
        if self.cancellation.wait(seconds):
            raise Cancelled("the request was cancelled")

    def report_progress(self, fraction: float) -> None:
        """Report how much of this scan, or of this partition, has been read, from 0 to 1."""
        if not math.isnan(fraction):  # 0 of 0 rows
            self.progress.fraction = min(max(float(fraction), 0.0), 1.0)

    def report_route(self, route: str) -> None:
        """Report the route of a scan, one of a few fixed words by which metrics count scans."""
        self.progress.route = route

    def report_write(self, kind: str, name: str, rows: int | None = None) -> None:
        """Report a change for the audit log: its kind, such as `upsert`, the object, how many rows.

        The service itself reports statements and DDL. Report names only, never values of rows.
        """
        self.progress.writes.append((kind, name, rows))

    def report_query(self, text: str, tables: Sequence[str] = ()) -> None:
        """Report a query in the caller's own words, and the tables it reads, for the audit log."""
        # It is kept for a while after the request has ended.
        self.progress.query, self.progress.tables = text[:_LONGEST_QUERY], tuple(tables)

    def with_transaction(self, transaction_id: str | None) -> Context:
        """Return a context in another transaction; the present transaction is its parent."""
        return replace(
            self, transaction_id=transaction_id, parent_transaction_id=self.transaction_id
        )
