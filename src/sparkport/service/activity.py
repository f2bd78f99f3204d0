"""What the server is doing: every call under way, those that have ended, errors, and how much has
gone in and out.

Strategy: a call notes what happens to it in an object of its own, without locks, since one thread
serves it. Whoever wants to know adds that up, a few times a second at most; nothing is added up
while rows are on their way.
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
"""Clients choose them, and hundreds of calls are remembered."""
_STREAMS = frozenset({"DoGet", "DoExchange", "DoPut"})
"""The calls whose messages hold rows, on their way to clients."""
_STREAMS_IN = frozenset({"DoExchange", "DoPut"})
"""The same for messages of clients."""

_monotonic = time.monotonic


class Work:
    """One call, and how far it is. Written by the thread that serves it, read by anybody."""

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
        self.code = "CANCELLED"  # unless it comes to another end
        self.message = ""
        self.cut_off = ""
        """Why the server has ended it, if it has."""
        self.messages_in = self.messages_out = 0
        self.bytes_in = self.bytes_out = 0
        self.rows_in = self.rows_out = 0
        self.waits_since = 0.0
        """Since when it waits for the client to take a message, or to send one; 0 while it works by
        itself.
        """
        self.excused_at = 0.0

    def concerns(self, *names: str | None) -> None:
        """Note the object that is asked for: catalog, schema, and table or function, as far as they
        are known.
        """
        self.object = ".".join(name[:_LONGEST_NAME] for name in names if name)

    def is_in(self, catalog: str) -> None:
        """Note the catalog that is meant by a request that names none."""
        if self.object != catalog and not self.object.startswith(f"{catalog}."):
            self.concerns(catalog, self.object)

    def asks(self, request: object) -> None:
        """Note the object that a decoded request names, where it does so by these fields."""
        names = [getattr(request, field, None) for field in ("catalog", "schema", "table", "name")]
        self.concerns(*(name for name in names if isinstance(name, str)))

    def gives(self, message: bytes) -> None:
        """A message is about to be sent; `goes_on` is called when the client has room for more."""
        self.messages_out += 1
        self.bytes_out += len(message)
        if self.rpc in _STREAMS:
            self.rows_out += count_rows(message)
        self.waits_since = _monotonic()

    def goes_on(self) -> None:
        self.waits_since = 0.0

    def waits(self) -> None:
        """The client's next message is waited for."""
        self.waits_since = _monotonic()

    def got(self, message: bytes) -> None:
        """A message of the client has come."""
        self.waits_since = 0.0
        self.messages_in += 1
        self.bytes_in += len(message)
        if self.rpc in _STREAMS_IN:
            self.rows_in += count_rows(message)

    def excuse(self) -> None:
        """That the client was quiet until now was not its fault."""
        self.excused_at = _monotonic()

    def ends(self) -> None:
        """Nothing more will be done."""
        if self.ended is None:
            self.ended = _monotonic()
        self.message = self.cut_off or self.message

    @property
    def waited_seconds(self) -> float:
        """How long it has been waiting for the client; 0 while the server is at work."""
        since = self.waits_since
        return 0.0 if not since else max(0.0, _monotonic() - since)

    @property
    def idle_seconds(self) -> float:
        """How much of that is the client's fault."""
        return min(self.waited_seconds, _monotonic() - self.excused_at)

    @property
    def seconds(self) -> float:
        """How long it takes, or took."""
        return (self.ended or _monotonic()) - self.started

    def cut(self, reason: str) -> None:
        """End it from outside, as if the client had gone away."""
        self.cut_off = self.cut_off or reason
        cancellation = self.cancellation  # which its end removes
        if cancellation is not None:
            cancellation.cancel()
        self.abandon()


@dataclass(frozen=True, slots=True)
class Failure:
    """An error as the client was told."""

    time: float
    code: str
    message: str
    work: Work


@dataclass(frozen=True, slots=True)
class Totals:
    """What has gone through, since the server was started or in some time."""

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
    """What has gone through in the seconds before a time."""

    time: float
    seconds: float
    totals: Totals


class Activity:
    """All calls of one server. Thread-safe."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._ids = count(1)
        self._running: dict[int, Work] = {}
        self._ended: deque[Work] = deque(maxlen=_MOST_ENDED)
        self._failures: deque[Failure] = deque(maxlen=_MOST_FAILURES)
        self._finished = Totals()
        self._samples: deque[Sample] = deque(maxlen=_SAMPLES)
        self._last = (_monotonic(), Totals())

    def begin(self, work: Work) -> None:
        """Count a call among those under way."""
        with self._changed:
            work.id = next(self._ids)
            self._running[work.id] = work

    def end(self, work: Work) -> None:
        """A call has ended, with the code that it bears; doing so again changes nothing."""
        with self._changed:
            if self._running.pop(work.id, None) is None:
                return
            work.ends()
            self._finished = self._finished.plus(work)
            self._ended.append(work)
            if work.cut_off or work.code not in ("OK", "CANCELLED"):
                self._failures.append(Failure(time.time(), work.code, work.message, work))
            # What is remembered of it must not keep the call itself alive.
            work.cancellation, work.abandon = None, _nothing
            self._changed.notify_all()

    def running(self) -> list[Work]:
        """The calls under way, oldest first."""
        with self._changed:
            return list(self._running.values())

    def ended(self) -> list[Work]:
        """The calls that ended last, newest first."""
        with self._changed:
            return list(reversed(self._ended))

    def failures(self) -> list[Failure]:
        """The last errors, newest first."""
        with self._changed:
            return list(reversed(self._failures))

    def find(self, number: int) -> Work | None:
        """A call under way."""
        with self._changed:
            return self._running.get(number)

    def totals(self) -> Totals:
        """What has gone through since the server was started."""
        with self._changed:
            totals = self._finished
            for work in self._running.values():
                totals = totals.plus(work)
            return totals

    def sample(self) -> None:
        """Note what has gone through since the last time; called every few seconds."""
        now, totals = _monotonic(), self.totals()
        with self._changed:
            before, known = self._last
            self._last = now, totals
            self._samples.append(Sample(time.time(), now - before, totals.minus(known)))

    def samples(self) -> list[Sample]:
        """What has gone through in the last hour, oldest first."""
        with self._changed:
            return list(self._samples)

    def wait_until_idle(
        self, seconds: float, stop_waiting: Callable[[], bool] = lambda: False
    ) -> bool:
        """Whether all calls have ended in so many seconds."""
        deadline = _monotonic() + seconds
        with self._changed:
            while self._running:
                left = deadline - _monotonic()
                if left <= 0 or stop_waiting():
                    return False
                self._changed.wait(min(left, 0.1))
            return True


def _nothing() -> None: ...
