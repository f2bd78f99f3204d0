"""What is recorded of every call, where it is reported at its end, and clients that went silent."""

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
"""A round that comes later shows that the whole process stood still."""


class Watching:
    """Records the calls of a server, from its start to its end. Thread-safe.

    Its thread cuts off calls whose client has neither taken nor sent a message for too long, or has
    not identified itself in time. Every few seconds it records the throughput.
    """

    def __init__(
        self, service: Service, *, idle_seconds: float, audit_file: str | Path | None
    ) -> None:
        """Open the audit log. Raises: BadRequest when it cannot be written."""
        self.activity = Activity()
        self.started_at = time.time()
        self.draining = False
        self.audit = None if audit_file is None else AuditLog(audit_file)
        self.metrics = Metrics(service, self.activity, self.audit, lambda: self.draining)
        self.doorsteps: list[Doorstep] = []
        """Where callers wait who have not identified themselves; set before the start."""
        self._idle_seconds = idle_seconds
        self._stopped = threading.Event()
        self._thread = threading.Thread(
            target=self._watch, name="watching (sparkport)", daemon=True
        )

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End the thread and close the audit log. Calls that end later are not recorded."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join()
        if self.audit is not None:
            self.audit.close()

    def begin(self, work: Work) -> None:
        self.activity.begin(work)

    def end(self, work: Work) -> None:
        """Record the end of a call. Does not raise: the call has an error of its own to report."""
        work.end()
        try:
            self.metrics.ended(work)
            if self.audit is not None:
                self.audit.record(work)
        except Exception:  # noqa: BLE001 - see above
            _log.exception("trace %s: the end of the call could not be noted", work.trace_id)
        finally:
            # The last step: `stop` relies on everything being recorded by then.
            self.activity.end(work)

    def refuses(self, work: Work) -> bool:
        """Whether the server is stopping, and the call is a new one.

        A call that helps another to its end is not new. DuckDB opens the exchange of an UPDATE
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
        """Cut off idle calls. If the process `stood_still`, their idle time begins anew."""
        running = self.activity.running()
        lively = Counter(
            work.session for work in running if work.waited_seconds <= self._idle_seconds
        )
        for work in running:
            # INSERT … SELECT: the client has nothing to send while it waits for rows of this
            # server.
            others = lively[work.session] - (work.waited_seconds <= self._idle_seconds)
            if stood_still or (work.rpc == "DoExchange" and work.session and others > 0):
                work.excuse_client()
        for work in running:
            if work.idle_seconds > self._idle_seconds and not work.cut_off:
                reason = (
                    f"the client has neither taken nor sent a message for {self._idle_seconds:g} s"
                )
                _log.warning("trace %s: %s is cut off: %s", work.trace_id, work.rpc, reason)
                self.metrics.idle_cut_offs.inc()
                work.cut(reason)
