"""Who asks, in which transaction, and whether they are still waiting."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Sequence
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
"""Characters of a query that are written down."""


class Cancellation:
    """A one-way switch that the service flips when the caller goes away. Thread-safe."""

    __slots__ = ("_callbacks", "_event", "_lock")

    def __init__(self) -> None:
        self._event = threading.Event()
        self._lock = threading.Lock()
        self._callbacks: list[Callable[[], None]] = []

    @property
    def cancelled(self) -> bool:
        return self._event.is_set()

    def cancel(self) -> None:
        """Flip the switch and run the callbacks, once."""
        with self._lock:
            self._event.set()
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            try:
                callback()
            except Exception:  # noqa: BLE001 - the others must still be told
                _log.exception("a callback of a cancelled request failed")

    def wait(self, timeout: float | None = None) -> bool:
        """Block until cancelled; True if it was."""
        return self._event.wait(timeout)

    def add_callback(self, callback: Callable[[], None]) -> None:
        with self._lock:
            if not self._event.is_set():
                self._callbacks.append(callback)
                return
        callback()


class Progress:
    """What a catalog tells about a request while it serves it; there is one for all contexts of a
    request.
    """

    __slots__ = ("fraction", "query", "route", "tables", "writes")

    def __init__(self) -> None:
        self.fraction: float | None = None
        """How much of a scan is done, as its table says; shown by DuckDB's progress bar."""
        self.route = ""
        """Which way a scan has gone."""
        self.writes: list[tuple[str, str, int | None]] = []
        """What has been changed: the kind of change, the object, how many rows."""
        self.query = ""
        """What the caller has asked another engine in its own words."""
        self.tables: tuple[str, ...] = ()
        """The tables that this query reads."""


_EVERYTHING = Access()
_UNLIMITED = Quotas()


@dataclass(frozen=True, slots=True)
class Context:
    """What a catalog may know about the request it is serving.

    Made by the service, one for each request; catalogs read it and pass it on. Safe to use from any
    thread.
    """

    catalog_name: str = ""
    """The catalog's name as the caller spelled it."""
    transaction_id: str | None = None
    """The TransactionManager's id of the transaction this operation belongs to."""
    parent_transaction_id: str | None = None
    """For a write that commits by itself inside a DuckDB transaction (airport §10): that
    transaction's id, whose later scans should see this write."""
    principal: str | None = None
    """Who asks, once authentication has said so."""
    identity: Identity | None = None
    """The same with groups and attributes."""
    access: Access = field(default=_EVERYTHING, compare=False, repr=False)
    """What the caller may do in this catalog. The service asks it about all that it finds by name;
    a catalog asks about what only it knows, such as a table that a function's argument names."""
    served: Callable[[], Sequence[tuple[Catalog, Access]]] = field(
        default=tuple, compare=False, repr=False
    )
    """All catalogs of this server, with what the caller may do in each: for a catalog whose queries
    reach into others.
    """
    quotas: Quotas = field(default=_UNLIMITED, compare=False, repr=False)
    """How much the caller may use at once."""
    trace_id: str = ""
    """One value for all calls of one scan or write; for logs and audit."""
    session_id: str = ""
    """The caller's process, as it says itself: not a credential."""
    from_duckdb: bool = False
    """True when the caller introduced itself as DuckDB's airport client."""
    cancellation: Cancellation = field(default_factory=Cancellation, compare=False, repr=False)
    progress: Progress = field(default_factory=Progress, compare=False, repr=False)

    @property
    def cancelled(self) -> bool:
        """True once the caller has gone away. Long work must look at it, or use `on_cancel`."""
        return self.cancellation.cancelled

    def check(self) -> None:
        """Raise `Cancelled` once the caller has gone away."""
        if self.cancellation.cancelled:
            raise Cancelled("the request was cancelled")

    def on_cancel(self, callback: Callable[[], None]) -> None:
        """Have `callback` called, once and from any thread, when the caller goes away; at once if
        it has already.

        It must be quick: the thread that calls it serves other requests too.
        """
        self.cancellation.add_callback(callback)

    def wait(self, seconds: float) -> None:
        """Sleep, but no longer than the caller waits. Raises: Cancelled."""
        if self.cancellation.wait(seconds):
            raise Cancelled("the request was cancelled")

    def report_progress(self, fraction: float) -> None:
        """Say how much of this scan, or of this partition of it, has been read: 0 is nothing, 1 all
        of it.
        """
        if not math.isnan(fraction):  # 0 of 0 rows
            self.progress.fraction = min(max(float(fraction), 0.0), 1.0)

    def report_route(self, route: str) -> None:
        """Say which way a scan goes, where there are several: one of a few fixed words, by which
        metrics count scans.
        """
        self.progress.route = route

    def report_write(self, kind: str, name: str, rows: int | None = None) -> None:
        """Say that something has been changed, for the audit log: by what, such as `upsert`, which
        object, how many rows.

        The service says so of statements and DDL itself. Names only: values of rows do not belong
        there.
        """
        self.progress.writes.append((kind, name, rows))

    def report_query(self, text: str, tables: Sequence[str] = ()) -> None:
        """Say what the caller asks in words of its own, and which tables that reads once it is
        known, for the audit log.
        """
        # What has ended is remembered for a while, with this.
        self.progress.query, self.progress.tables = text[:_LONGEST_QUERY], tuple(tables)

    def with_transaction(self, transaction_id: str | None) -> Context:
        """The same request inside another transaction; the present one becomes its parent."""
        return replace(
            self, transaction_id=transaction_id, parent_transaction_id=self.transaction_id
        )
