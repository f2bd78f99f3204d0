"""Those who watch the server: what is noted of every call, who is told when it ends, and clients
that have gone quiet.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from pathlib import Path

from sparkport.server.doorstep import LONGEST_SECONDS, Doorstep
from sparkport.server.metrics import Metrics
from sparkport.service.activity import SAMPLE_SECONDS, Activity, Work
from sparkport.service.audit import AuditLog
from sparkport.service.service import Service

__all__ = ["Watching"]

_log = logging.getLogger("sparkport.server")

_ALLOWED_WHILE_DRAINING = frozenset({"DoGet", "DoAction"})
_SHORTEST_PAUSE = 0.05
_LATE_SECONDS = 1.0
"""A round that comes later than that shows that the whole process stood still."""


class Watching:
    """Keeps the books of one server, from its start to its end. Thread-safe.

    Its thread cuts off calls whose client has neither taken nor sent a message for too long, or has
    not said in time who it is, and notes every few seconds how much has gone through.
    """

    def __init__(
        self, service: Service, *, idle_seconds: float, audit_file: str | Path | None
    ) -> None:
        """Raises: BadRequest when the audit log cannot be written."""
        self.activity = Activity()
        self.started_at = time.time()
        self.draining = False
        self.audit = None if audit_file is None else AuditLog(audit_file)
        self.metrics = Metrics(service, self.activity, self.audit, lambda: self.draining)
        self.doorsteps: list[Doorstep] = []
        """Where callers wait who have not said who they are; set before the start."""
        self._idle_seconds = idle_seconds
        self._stopped = threading.Event()
        self._thread = threading.Thread(
            target=self._watch, name="watching (sparkport)", daemon=True
        )

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End the thread and close the audit log. Calls that have not ended by now leave no
        trace.
        """
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join()
        if self.audit is not None:
            self.audit.close()

    def begin(self, work: Work) -> None:
        self.activity.begin(work)

    def end(self, work: Work) -> None:
        """A call has ended. Does not raise: whoever serves it has an error of its own to report."""
        work.ends()
        try:
            self.metrics.ended(work)
            if self.audit is not None:
                self.audit.record(work)
        except Exception:  # noqa: BLE001 - see above
            _log.exception("trace %s: the end of the call could not be noted", work.trace_id)
        finally:
            self.activity.end(
                work
            )  # the last: whoever stops the server takes it that all is noted then

    def refuses(self, work: Work) -> bool:
        """Whether the server is stopping, and the call is a new one.

        It is not, when it helps one under way to its end: DuckDB opens the exchange of an UPDATE
        before it reads the rows that it changes (airport §1.2, T24), and reads the parts of a scan
        one after the other.
        """
        if not self.draining:
            return False
        if not work.session or work.rpc not in _ALLOWED_WHILE_DRAINING:
            return True
        streams = (
            each for each in self.activity.running() if each.rpc != "DoAction" and each is not work
        )
        return all(each.session != work.session for each in streams)

    def _watch(self) -> None:
        pause = min(SAMPLE_SECONDS, LONGEST_SECONDS / 10)
        if self._idle_seconds > 0:
            pause = max(_SHORTEST_PAUSE, min(pause, self._idle_seconds / 4))
        sampled = looked = time.monotonic()
        while not self._stopped.wait(pause):
            stood_still = time.monotonic() - looked > pause + _LATE_SECONDS
            looked = time.monotonic()
            try:
                for doorstep in self.doorsteps:
                    doorstep.cut_off_late(stood_still=stood_still)
                if self._idle_seconds > 0:
                    self._cut_off_idle(stood_still=stood_still)
                if time.monotonic() - sampled >= SAMPLE_SECONDS * 0.9:
                    sampled = time.monotonic()
                    self.activity.sample()
            except Exception:  # noqa: BLE001 - the next round must come
                _log.exception("watching the calls failed")

    def _cut_off_idle(self, *, stood_still: bool = False) -> None:
        """`stood_still`: all of this process did, so that nobody knows how long clients have really
        waited.
        """
        running = self.activity.running()
        lively = Counter(
            work.session for work in running if work.waited_seconds <= self._idle_seconds
        )
        for work in running:
            # INSERT … SELECT: the client has nothing to send while it waits for rows that we are
            # still looking for.
            others = lively[work.session] - (work.waited_seconds <= self._idle_seconds)
            if stood_still or (work.rpc == "DoExchange" and work.session and others > 0):
                work.excuse()
        for work in running:
            if work.idle_seconds > self._idle_seconds and not work.cut_off:
                reason = (
                    f"the client has neither taken nor sent a message for {self._idle_seconds:g} s"
                )
                _log.warning("trace %s: %s is cut off: %s", work.trace_id, work.rpc, reason)
                self.metrics.idle_cut_offs.inc()
                work.cut(reason)
