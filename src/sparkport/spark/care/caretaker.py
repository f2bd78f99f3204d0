"""Takes care of the tables of a lake in the background.

Strategy: one thread looks every few seconds at the tables that have changed since, and does what
they need (table_care.py). Of several servers, one does it (servers.py); if two believe that they
are it, they only do the same work twice, because every commit is a compare-and-swap. While clients
ask for something, it works only a small part of the time, and pauses between two batches of rows.
The more there is to do, the larger that part is, so that it cannot fall behind for good.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sparkport.catalog import Cancellation, Context
from sparkport.errors import Cancelled, NotFound, SparkportError
from sparkport.spark.care.reports import CareLog, CareRun
from sparkport.spark.care.servers import Servers
from sparkport.spark.care.table_care import TableCare
from sparkport.spark.lake.directory import Kind
from sparkport.spark.lake.lake import Lake

if TYPE_CHECKING:
    from sparkport.spark.iceberg.identifiers import Identifier
    from sparkport.spark.lake.directory import CatalogEntry

__all__ = ["Caretaker"]

_log = logging.getLogger(__name__)

_BUSY_SECONDS = 0.5
"""How long after a request the machine counts as wanted."""
_SHARE, _LARGEST_SHARE = 0.08, 0.5
"""The part of a core that care may take while clients ask for something, and if much is to do."""
_LONGEST_PAUSE = 2.0
_STOP_SECONDS = 60.0
_MINUTE = 60.0
_HOUR = 60 * _MINUTE
_DAY = 24 * _HOUR
_FIRST_ORPHANS = 600.0
"""Seconds after the start before files are looked for that nothing leads to."""
_MOST_ROUNDS = 50


@dataclass(slots=True)
class _Known:
    """What the caretaker remembers of a table."""

    location: str = ""
    """Of the metadata that it has seen last."""
    again: float = 0.0
    """When to look again although nothing has changed: versions grow old, notes wait."""
    orphans: float = 0.0
    """When files were looked for that nothing leads to."""
    problems: int = 0
    """How often it has failed in a row."""


class Caretaker:
    """The thread that takes care of a lake's tables. Its methods may be called by any thread."""

    def __init__(self, lake: Lake, log: CareLog) -> None:
        self._lake = lake
        self._care_log = log
        self._servers = Servers.of(lake)
        self._cancellation = Cancellation()
        self._ctx = Context(trace_id="care", cancellation=self._cancellation)
        self._stopping = threading.Event()
        self._turn = threading.Lock()
        """Held by whoever takes care: the thread, or `run_now`."""
        self._known: dict[Identifier, _Known] = {}
        self._asked = 0.0
        self._worked_until = 0.0
        """What the thread had used of a core before its last pause, in seconds."""
        self._share = _SHARE
        self._began = time.monotonic()
        self._thread = threading.Thread(target=self._run, name="sparkport-care", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._servers.start()
        self._thread.start()

    def notice(self) -> None:
        """A client has asked for something: let it have the machine."""
        self._asked = time.monotonic()

    def stop(self) -> None:
        """End it at the next pause, which is waited for. Never raises."""
        self._stopping.set()
        self._cancellation.cancel()
        if self._thread.is_alive():
            self._thread.join(_STOP_SECONDS)
        self._servers.close()

    def run_now(self) -> list[CareRun]:
        """Take care of all tables now, in this thread, until nothing is needed.

        Returns the steps, the oldest first. Nothing is waited for but a step that runs already.
        """
        with self._turn:
            before = time.time()
            for _ in range(_MOST_ROUNDS):
                cares = [
                    TableCare(
                        self._lake,
                        self._care_log,
                        self._servers,
                        entry.identifier,
                        self._ctx.check,
                        self._ctx,
                        at_once=True,
                        with_orphans=True,
                    )
                    for entry in self._tables()
                ]
                done = [_is_done(each) for each in cares]
                if not any(done):
                    break
            return [each for each in reversed(self._care_log.runs()) if each.began >= before]

    def _run(self) -> None:
        while not self._stopping.wait(self._lake.settings.care_seconds):
            try:
                with self._turn:
                    if self._servers.leads():
                        self._round()
            except Cancelled:
                return
            except SparkportError as error:
                _log.warning("the lake cannot be taken care of now: %s", error.message)
            except Exception:  # noqa: BLE001 - it is tried again
                _log.warning("the lake cannot be taken care of now", exc_info=True)

    def _round(self) -> None:
        """Look at all tables once. Raises: Cancelled; what keeps the catalog from answering."""
        self._worked_until = time.thread_time()
        seen = set()
        for entry in self._tables():
            seen.add(entry.identifier)
            self._pause()
            self._look_at(entry)
        self._known = {table: each for table, each in self._known.items() if table in seen}

    def _tables(self) -> Iterator[CatalogEntry]:
        for namespace in list(self._lake.catalog.listing().namespaces.values()):
            for entry in list(namespace.entries.values()):
                if entry.kind is Kind.ICEBERG:
                    yield entry

    def _look_at(self, entry: CatalogEntry) -> None:
        known = self._known.setdefault(entry.identifier, _Known())
        now = time.monotonic()
        is_same = entry.location == known.location or known.problems > 0
        if is_same and now < known.again:
            return
        is_time = now - (known.orphans or self._began - _DAY + _FIRST_ORPHANS) > _DAY
        care = TableCare(
            self._lake,
            self._care_log,
            self._servers,
            entry.identifier,
            self._pause,
            self._ctx,
            with_orphans=is_time,
            tell_backlog=self._hurry,
        )
        is_done = _is_done(care)
        now = time.monotonic()
        known.location = entry.location
        known.problems = min(known.problems + 1, 20) if care.problems else 0
        if care.problems:
            known.again = now + min(_HOUR, self._lake.settings.care_seconds * 2**known.problems)
        else:
            known.again = now + (0.0 if is_done else _MINUTE if care.waiting else _HOUR)
        if is_time:
            known.orphans = now

    def _pause(self) -> None:
        """Wait while clients want the machine, as long as what was done asks for.

        Raises: Cancelled.
        """
        worked = time.thread_time() - self._worked_until
        if time.monotonic() - self._asked < _BUSY_SECONDS:
            self._stopping.wait(min(worked * (1 / self._share - 1), _LONGEST_PAUSE))
        self._ctx.check()
        self._worked_until = time.thread_time()

    def _hurry(self, backlog: float) -> None:
        """Take a larger share the more there is to do, so that it cannot grow for ever."""
        self._share = min(max(_SHARE, _SHARE * backlog**2), _LARGEST_SHARE)


def _is_done(care: TableCare) -> bool:
    """Take care of a table; whether anything was done. Raises: Cancelled."""
    try:
        return care.run()
    except NotFound:
        return False  # it was dropped or renamed meanwhile
    except Cancelled:
        raise
    except SparkportError as error:
        care.problems += 1
        _log.warning("table %s cannot be taken care of now: %s", care.identifier, error.message)
    except Exception:  # noqa: BLE001 - one of many; the others do not depend on it
        care.problems += 1
        _log.warning("table %s cannot be taken care of now", care.identifier, exc_info=True)
    return False
