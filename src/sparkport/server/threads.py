"""A thread for each running call."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Executor, Future
from contextlib import suppress
from queue import Empty, SimpleQueue
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
        self._lock = threading.Lock()
        self._tasks: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        """Each task is for a thread that waits, or that is about to; None ends a thread."""
        self._idle = 0
        """Threads that wait, less the tasks that some of them are about to take."""
        self._started = 0
        self._threads: set[threading.Thread] = set()
        self._closed = False

    def submit(self, fn: Callable[..., _T], /, *args: Any, **kwargs: Any) -> Future[_T]:
        future: Future[_T] = Future()
        with self._lock:
            if self._closed:
                raise RuntimeError("the executor has been shut down")
            self._tasks.put((future, lambda: fn(*args, **kwargs)))
            if self._idle:
                self._idle -= 1
            else:
                self._started += 1
                thread = threading.Thread(
                    target=self._work, name=f"{self._name}-{self._started}", daemon=True
                )
                self._threads.add(thread)
                thread.start()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        with self._lock:
            self._closed = True
            with suppress(Empty):
                while cancel_futures:
                    task = self._tasks.get_nowait()
                    if task is not None:
                        task[0].cancel()
            threads = list(self._threads)
            for _ in threads:
                self._tasks.put(None)  # after the tasks that are still to be done
        for thread in threads if wait else ():
            thread.join()

    @property
    def threads(self) -> list[threading.Thread]:
        """The threads that are alive, including idle threads."""
        with self._lock:
            return list(self._threads)

    def _work(self) -> None:
        while (task := self._next_task()) is not None:
            _run(*task)
            del task  # an idle thread must not keep the last call alive
            with self._lock:
                self._idle += 1

    def _next_task(self) -> tuple[Future[Any], Callable[[], Any]] | None:
        """Wait for a task; None when this thread is to end."""
        try:
            task = self._tasks.get(timeout=self._idle_seconds)
        except Empty:
            with self._lock:
                if self._idle:
                    self._idle -= 1
                    self._threads.discard(threading.current_thread())
                    return None
            task = self._tasks.get()  # which has been put there for this thread meanwhile
        if task is None:
            with self._lock:
                self._threads.discard(threading.current_thread())
        return task


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
