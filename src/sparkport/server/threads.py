"""A thread for each running call."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Executor, Future
from typing import Any, TypeVar

__all__ = ["ElasticExecutor", "join_all"]

_T = TypeVar("_T")


class ElasticExecutor(Executor):
    """Runs every task at once, in an idle thread or else in a new one.

    A thread ends when it has been idle for a while. A pool of fixed size would deadlock: DuckDB
    opens the exchange of an UPDATE first, and starts the scan that feeds it while that is open
    (airport §1.2, T24). So enough open exchanges would leave no thread for the scans that they wait
    for. The server limits the number of calls, and refuses a call instead of letting it wait.
    """

    def __init__(self, idle_seconds: float = 10.0, name: str = "sparkport") -> None:
        self._idle_seconds = idle_seconds
        self._name = name
        self._condition = threading.Condition()
        self._tasks: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        self._idle = 0
        self._started = 0
        self._threads: set[threading.Thread] = set()
        self._closed = False

    def submit(self, fn: Callable[..., _T], /, *args: Any, **kwargs: Any) -> Future[_T]:
        future: Future[_T] = Future()
        with self._condition:
            if self._closed:
                raise RuntimeError("the executor has been shut down")
            self._tasks.append((future, lambda: fn(*args, **kwargs)))
            if self._idle >= len(self._tasks):
                self._condition.notify()
            else:
                self._started += 1
                thread = threading.Thread(
                    target=self._work, name=f"{self._name}-{self._started}", daemon=True
                )
                self._threads.add(thread)
                thread.start()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        with self._condition:
            self._closed = True
            while cancel_futures and self._tasks:
                self._tasks.popleft()[0].cancel()
            self._condition.notify_all()
            threads = list(self._threads)
        for thread in threads if wait else ():
            thread.join()

    @property
    def threads(self) -> list[threading.Thread]:
        """The threads that are alive, including idle threads."""
        with self._condition:
            return list(self._threads)

    def _work(self) -> None:
        while True:
            with self._condition:
                self._idle += 1
                while not self._tasks and not self._closed:
                    if not self._condition.wait(self._idle_seconds):
                        break
                self._idle -= 1
                if not self._tasks:
                    self._threads.discard(threading.current_thread())
                    return
                future, task = self._tasks.popleft()
            _run(future, task)
            del future, task  # an idle thread must not keep the last call alive


def join_all(threads: Iterable[threading.Thread], seconds: float) -> None:
    """Wait for all threads but the current one to end, for at most so many seconds in all."""
    deadline = time.monotonic() + seconds
    for thread in threads:
        if thread is not threading.current_thread():
            thread.join(max(0.0, deadline - time.monotonic()))


def _run(future: Future[Any], task: Callable[[], Any]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = task()
    except BaseException as error:  # noqa: BLE001 - the future passes it on
        future.set_exception(error)
    else:
        future.set_result(result)
