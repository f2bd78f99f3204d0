"""Guarding functions that implementers wrote: none may hold a caller, or a thread, for ever.

A function that looks at its context needs no guard. For the others there are three steps, each
taken when the step before has not ended the function. First, the context is cancelled. Second, an
exception is raised in the function's thread; Python delivers it between two bytecodes. Third, if
the function is deep in foreign code, where Python cannot interrupt it, the call is ended without
it. Its thread is then lost until the foreign code returns.
"""

from __future__ import annotations

import ctypes
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, TypeVar

from sparkport.catalog import Context
from sparkport.errors import Cancelled, CatalogFault, LimitExceeded, SparkportError

__all__ = ["FunctionGuard", "FunctionWatch", "WatchedGuard"]

_log = logging.getLogger(__name__)
_T = TypeVar("_T")

_POLL_SECONDS = 0.25
_LINGER_SECONDS = 5.0
_GRACE_SECONDS = 1.0
"""How long a cancelled function has to notice it by itself."""
_ABANDON_SECONDS = 5.0
"""How long after that time began a function counts as one that cannot be interrupted."""
_LONGEST_ROUND_SECONDS = 1.0
"""The longest round of the watching thread, in seconds.

A longer round means that the whole process stood still, for which no function is to blame.
"""


class Interrupted(BaseException):
    """Raised in the thread of a function that must end.

    It is not an Exception, so that few functions catch it by mistake.
    """


class FunctionGuard:
    """Runs one function for one caller, in one thread at a time.

    `call` and `iterate` run a step of it. What the step raises becomes an error that may be shown.
    Time outside of a step (waiting for the client, say) does not count.
    """

    __slots__ = (
        "_abandon",
        "_abandoned",
        "_clock",
        "_ctx",
        "_entered",
        "_interruptible",
        "_limit",
        "_lock",
        "_overdue",
        "_since",
        "_thread",
        "title",
    )

    def __init__(
        self,
        ctx: Context,
        title: str,
        limit: float | None,
        interruptible: bool,
        abandon: Callable[[], object],
        clock: Callable[[], float],
    ) -> None:
        self.title = title
        self._clock = clock
        self._ctx = ctx
        self._limit = limit
        self._interruptible = interruptible
        self._abandon = abandon
        self._lock = threading.Lock()
        self._thread = 0
        self._entered: float | None = None
        self._since: float | None = None
        self._overdue = False
        self._abandoned = False

    def call(self, function: Callable[..., _T], *arguments: Any) -> _T:
        """Run one step.

        Raises: CatalogFault when the function fails unexpectedly; LimitExceeded when it takes too
        long.
        """
        try:
            self._enter()
            try:
                result = function(*arguments)
            finally:
                self._leave()
            if self._overdue:  # too late: the caller's request is cancelled
                raise Cancelled("the request was cancelled")
            return result
        except SparkportError as error:
            raise self._translated(error) from error
        except Interrupted:
            raise self._translated(Cancelled("the request was cancelled")) from None
        except GeneratorExit:
            raise
        except BaseException as error:  # SystemExit too: a function must not end the server
            if self._ctx.cancelled:
                raise self._translated(Cancelled("the request was cancelled")) from error
            _log.error("trace %s: %s failed", self._ctx.trace_id, self.title, exc_info=error)
            raise CatalogFault(
                f"{self.title} failed; the server's log has the details under trace id "
                f"{self._ctx.trace_id}"
            ) from error

    def iterate(self, steps: Iterator[_T]) -> Iterator[_T]:
        """Yield what an iterator yields, each step guarded."""
        nothing: Any = object()
        while (step := self.call(next, steps, nothing)) is not nothing:
            yield step

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Pause the guard, for work inside a step that is not the function's own."""
        self._leave()
        try:
            yield
        finally:
            self._enter()

    def _enter(self) -> None:
        self._thread = threading.get_ident()
        self._entered = self._clock()

    def _leave(self) -> None:
        self._entered = None
        if self._since is not None:  # always set a grace period before an interruption
            # An interruption that is under way takes the lock, so it has been raised by now. Python
            # delivers it at the latest when the loop jumps back.
            with self._lock:
                pass
            for _ in range(2):
                pass

    def look(self, now: float) -> None:
        """Do what is due. Called by the watching thread."""
        cancel = abandon = False
        with self._lock:
            entered = self._entered
            if entered is None:
                self._since = None
                return
            if self._limit is not None and not self._overdue and now - entered > self._limit:
                self._overdue = cancel = True
            if self._overdue or self._ctx.cancelled:
                self._since = now if self._since is None else self._since
                if self._interruptible and now - self._since >= _GRACE_SECONDS:
                    ctypes.pythonapi.PyThreadState_SetAsyncExc(
                        ctypes.c_ulong(self._thread), ctypes.py_object(Interrupted)
                    )
                abandon = not self._abandoned and now - self._since >= _ABANDON_SECONDS
                self._abandoned |= abandon
        if cancel:
            self._ctx.cancellation.cancel()
        if abandon:
            _log.error(
                "trace %s: %s cannot be interrupted; its caller is let go",
                self._ctx.trace_id,
                self.title,
            )
            self._abandon()

    def _translated(self, error: SparkportError) -> SparkportError:
        if self._overdue and isinstance(error, Cancelled):
            return LimitExceeded(
                f"{self.title} took longer than {self._limit:g} seconds and was stopped"
            )
        return error


class FunctionWatch:
    """One thread that watches the guards of all running functions.

    It ends when there have been none for a while.
    """

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._guards: set[FunctionGuard] = set()
        self._running = False
        self._stood_still = 0.0

    def clock(self) -> float:
        """Seconds in which this process could work."""
        return time.monotonic() - self._stood_still

    def guard(
        self,
        ctx: Context,
        title: str,
        limit: float | None,
        interruptible: bool = True,
        abandon: Callable[[], object] = lambda: None,
    ) -> WatchedGuard:
        """Make a guard that is watched while the `with` statement around it lasts."""
        return WatchedGuard(
            self, FunctionGuard(ctx, title, limit, interruptible, abandon, self.clock)
        )

    def add(self, guard: FunctionGuard) -> None:
        with self._condition:
            self._guards.add(guard)
            if not self._running:
                self._running = True
                threading.Thread(target=self._work, name="sparkport-watch", daemon=True).start()
            elif len(self._guards) == 1:
                self._condition.notify()

    def remove(self, guard: FunctionGuard) -> None:
        with self._condition:
            self._guards.discard(guard)

    def _work(self) -> None:
        while True:
            with self._condition:
                if (
                    not self._guards
                    and not self._condition.wait(_LINGER_SECONDS)
                    and not self._guards
                ):
                    self._running = False
                    return
                guards = list(self._guards)
            began = time.monotonic()
            for guard in guards:
                guard.look(self.clock())
            time.sleep(_POLL_SECONDS)
            self._stood_still += max(0.0, time.monotonic() - began - _LONGEST_ROUND_SECONDS)


class WatchedGuard:
    """Has a guard watched while a `with` statement lasts."""

    def __init__(self, watch: FunctionWatch, guard: FunctionGuard) -> None:
        self._watch = watch
        self._guard = guard

    def __enter__(self) -> FunctionGuard:
        self._watch.add(self._guard)
        return self._guard

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._watch.remove(self._guard)
