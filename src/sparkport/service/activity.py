"""What the server is doing: calls under way, calls that have ended, errors, rows and bytes.

Strategy: each call notes its own progress in an object of its own, without locks, because one
thread serves it. A reader adds these notes up, a few times a second at most. Nothing is added up
while rows are being sent.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count

from sparkport.catalog import Cancellation
from sparkport.catalog.context import Progress
from sparkport.wire.row_counts import count_rows

__all__ = ["Activity", "Failure", "Sample", "Totals", "Work"]

_MOST_ENDED = 200
_MOST_FAILURES = 100
_SAMPLES = 720  # an hour
SAMPLE_SECONDS = 5.0
_LONGEST_NAME = 200
"""Longest name kept: clients choose names, and hundreds of calls are remembered."""
_STREAMS = frozenset({"DoGet", "DoExchange", "DoPut"})
"""The calls whose messages to the client hold rows."""
_STREAMS_IN = frozenset({"DoExchange", "DoPut"})
"""The calls whose messages from the client hold rows."""

_monotonic = time.monotonic


class Work:
    """One call and its progress. The thread that serves it writes here; any thread may read."""

    __slots__ = (
        "abandon",
        "bytes_in",
        "bytes_out",
        "cancellation",
        "code",
        "cut_off",
        "ended",
        "excused_at",
        "id",
        "message",
        "messages_in",
        "messages_out",
        "object",
        "operation",
        "principal",
        "progress",
        "rows_in",
        "rows_out",
        "rpc",
        "session",
        "started",
        "started_at",
        "trace_id",
        "waits_since",
    )

    def __init__(
        self,
        rpc: str = "",
        *,
        trace_id: str = "",
        session: str = "",
        operation: str = "",
        cancellation: Cancellation | None = None,
        abandon: Callable[[], object] = lambda: None,
    ) -> None:
        self.id = 0
        self.rpc = rpc
        self.operation = operation[:_LONGEST_NAME]
        self.object = ""
        self.principal: str | None = None
        self.trace_id = trace_id
        self.session = session[:_LONGEST_NAME]
        self.progress = Progress()
        self.cancellation = cancellation
        self.abandon = abandon
        self.started = _monotonic()
        self.started_at = time.time()
        self.ended: float | None = None
        self.code = "CANCELLED"  # until the call ends otherwise
        self.message = ""
        self.cut_off = ""
        """Why the server has ended the call; empty if it has not."""
        self.messages_in = self.messages_out = 0
        self.bytes_in = self.bytes_out = 0
        self.rows_in = self.rows_out = 0
        self.waits_since = 0.0
        """Since when the call has waited for the client to take or send a message, or 0."""
        self.excused_at = 0.0

    def note_object(self, *names: str | None) -> None:
        """Note the object that the call is about: catalog, schema, table or function, if known."""
        self.object = ".".join([name[:_LONGEST_NAME] for name in names if name])

    def note_catalog(self, catalog: str) -> None:
        """Note the catalog of a request that names none."""
        if self.object != catalog and not self.object.startswith(f"{catalog}."):
            self.note_object(catalog, self.object)

    def note_request(self, request: object) -> None:
        """Note the object that a decoded request names in its fields."""
        names = [getattr(request, field, None) for field in ("catalog", "schema", "table", "name")]
        self.note_object(*[name for name in names if isinstance(name, str)])

    def note_sending(self, message: bytes) -> None:
        """Note a message that is about to be sent.

        `stop_waiting` is called when the client has room for more.
        """
        self.messages_out += 1
        self.bytes_out += len(message)
        if self.rpc in _STREAMS:
            self.rows_out += count_rows(message)
        self.waits_since = _monotonic()

    def stop_waiting(self) -> None:
        self.waits_since = 0.0

    def start_waiting(self) -> None:
        """Note that the call now waits for the client's next message."""
        self.waits_since = _monotonic()

    def note_received(self, message: bytes) -> None:
        """Note a message that has come from the client."""
        self.waits_since = 0.0
        self.messages_in += 1
        self.bytes_in += len(message)
        if self.rpc in _STREAMS_IN:
            self.rows_in += count_rows(message)

    def excuse_client(self) -> None:
        """Note that the client's silence until now was not its fault."""
        self.excused_at = _monotonic()

    def end(self) -> None:
        """Note that the call has ended."""
        if self.ended is None:
            self.ended = _monotonic()
        self.message = self.cut_off or self.message

    @property
    def waited_seconds(self) -> float:
        """How long the call has been waiting for the client; 0 while the server works."""
        since = self.waits_since
        return 0.0 if not since else max(0.0, _monotonic() - since)

    @property
    def idle_seconds(self) -> float:
        """How long the call has been waiting through the client's own fault."""
        return min(self.waited_seconds, _monotonic() - self.excused_at)

    @property
    def seconds(self) -> float:
        """How long the call has been running, or ran."""
        return (self.ended or _monotonic()) - self.started

    def cut(self, reason: str) -> None:
        """End the call from another thread, as if the client had gone away."""
        self.cut_off = self.cut_off or reason
        cancellation = self.cancellation  # the end of the call removes it
        if cancellation is not None:
            cancellation.cancel()
        self.abandon()


@dataclass(frozen=True, slots=True)
class Failure:
    """An error, as the client was told of it."""

    time: float
    code: str
    message: str
    work: Work


@dataclass(frozen=True, slots=True)
class Totals:
    """How much has gone through the server since its start, or in some span of time."""

    rows_out: int = 0
    bytes_out: int = 0
    rows_in: int = 0
    bytes_in: int = 0

    def plus(self, work: Work) -> Totals:
        return Totals(
            self.rows_out + work.rows_out,
            self.bytes_out + work.bytes_out,
            self.rows_in + work.rows_in,
            self.bytes_in + work.bytes_in,
        )

    def minus(self, other: Totals) -> Totals:
        return Totals(
            self.rows_out - other.rows_out,
            self.bytes_out - other.bytes_out,
            self.rows_in - other.rows_in,
            self.bytes_in - other.bytes_in,
        )


@dataclass(frozen=True, slots=True)
class Sample:
    """How much went through the server in the seconds before a given time."""

    time: float
    seconds: float
    totals: Totals


class Activity:
    """All calls of one server. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle = threading.Condition(self._lock)
        self._awaited = False
        """Whether a thread waits for all calls to end."""
        self._ids = count(1)
        self._running: dict[int, Work] = {}
        self._ended: deque[Work] = deque(maxlen=_MOST_ENDED)
        self._failures: deque[Failure] = deque(maxlen=_MOST_FAILURES)
        self._finished = Totals()
        self._samples: deque[Sample] = deque(maxlen=_SAMPLES)
        self._last = (_monotonic(), Totals())

    def begin(self, work: Work) -> None:
        """Count a call among those under way."""
        with self._lock:
            work.id = next(self._ids)
            self._running[work.id] = work

    def end(self, work: Work) -> None:
        """Note that a call has ended, with the code that it holds. May be called again."""
        with self._lock:
            if self._running.pop(work.id, None) is None:
                return
            work.end()
            self._finished = self._finished.plus(work)
            self._ended.append(work)
            if work.cut_off or work.code not in ("OK", "CANCELLED"):
                self._failures.append(Failure(time.time(), work.code, work.message, work))
            # The memory of an ended call must not keep the call itself alive.
            work.cancellation, work.abandon = None, _nothing
            if self._awaited:
                self._idle.notify_all()

    def running(self) -> list[Work]:
        """The calls under way, oldest first."""
        with self._lock:
            return list(self._running.values())

    def ended(self) -> list[Work]:
        """The calls that ended last, newest first."""
        with self._lock:
            return list(reversed(self._ended))

    def failures(self) -> list[Failure]:
        """The last errors, newest first."""
        with self._lock:
            return list(reversed(self._failures))

    def find(self, number: int) -> Work | None:
        """Return a call under way by its id."""
        with self._lock:
            return self._running.get(number)

    def totals(self) -> Totals:
        """How much has gone through since the server was started."""
        with self._lock:
            totals = self._finished
            for work in self._running.values():
                totals = totals.plus(work)
            return totals

    def sample(self) -> None:
        """Note what has gone through since the last sample. Called every few seconds."""
        now, totals = _monotonic(), self.totals()
        with self._lock:
            before, known = self._last
            self._last = now, totals
            self._samples.append(Sample(time.time(), now - before, totals.minus(known)))

    def samples(self) -> list[Sample]:
        """The samples of the last hour, oldest first."""
        with self._lock:
            return list(self._samples)

    def wait_until_idle(
        self, seconds: float, stop_waiting: Callable[[], bool] = lambda: False
    ) -> bool:
        """Wait at most this many seconds; return whether all calls have ended."""
        deadline = _monotonic() + seconds
        with self._lock:
            while self._running:
                left = deadline - _monotonic()
                if left <= 0 or stop_waiting():
                    return False
                self._awaited = True
                self._idle.wait(min(left, 0.1))
            return True


def _nothing() -> None: ...
