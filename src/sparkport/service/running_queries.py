"""The statements of SQL that are under way, so that other calls can cancel or wait for them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from sparkport.service.calls import Call

__all__ = ["RunningQueries"]


class RunningQueries:
    """The calls that send a query's rows, by the query's trace id; and those that make a change in
    a transaction, by the transaction's id. Thread-safe.

    A call is known only while it runs. The tickets of queries hold all else.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls: dict[str, list[Call]] = {}

    def is_running(self, own_id: str) -> bool:
        """Whether there is any call of that id."""
        with self._lock:
            return own_id in self._calls

    @contextmanager
    def running(self, own_id: str, call: Call) -> Iterator[None]:
        """Let the call be cancelled during the block."""
        with self._lock:
            self._calls.setdefault(own_id, []).append(call)
        try:
            yield
        finally:
            with self._lock:
                left = [each for each in self._calls[own_id] if each is not call]
                if left:
                    self._calls[own_id] = left
                else:
                    del self._calls[own_id]

    def cancel(self, trace_id: str) -> bool:
        """Cancel the calls of a query; returns whether there was any."""
        with self._lock:
            calls = list(self._calls.get(trace_id, ()))
        for call in calls:
            call.cancellation.cancel()
            call.abandon()
        return bool(calls)
