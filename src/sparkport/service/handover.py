"""Handing messages over between the thread of a call and another thread."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator

from sparkport.errors import Cancelled

__all__ = ["NextMessage", "Handover"]


class NextMessage:
    """Waits for the next message in a thread of its own, which ends with the call at the latest."""

    def __init__(self, messages: Iterator[bytes]) -> None:
        self._messages = messages
        self._done = threading.Event()
        self._message: bytes | None = None
        self._failure: BaseException | None = None
        threading.Thread(target=self._wait, name="sparkport-ahead", daemon=True).start()

    @property
    def has_ended(self) -> bool:
        return self._done.is_set() and self._message is None

    def take(self) -> bytes | None:
        """Return the message; None at the end. Raises: Cancelled."""
        self._done.wait()
        if self._failure is not None:
            raise self._failure
        return self._message

    def _wait(self) -> None:
        try:
            self._message = next(self._messages, None)
        except BaseException as error:  # noqa: BLE001 - it is raised again where the message is taken
            self._failure = error
        self._done.set()


class Handover:
    """A short queue between two threads, which either of them can close."""

    _LENGTH = 4

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._messages: deque[bytes] = deque()
        self._ended = False
        self._closed = False
        self._failure: BaseException | None = None

    def put(self, message: bytes) -> None:
        """Add a message, when there is room. Raises: Cancelled when the queue has been closed."""
        with self._condition:
            while len(self._messages) >= self._LENGTH and not self._closed:
                self._condition.wait()
            if self._closed:
                raise Cancelled("the request was cancelled")
            self._messages.append(message)
            self._condition.notify()

    def end(self) -> None:
        with self._condition:
            self._ended = True
            self._condition.notify()

    def fail(self, error: BaseException) -> None:
        with self._condition:
            self._failure = error
            self._condition.notify()

    def close(self) -> None:
        with self._condition:
            self._closed = True
            self._condition.notify()

    def take_all(self) -> Iterator[bytes]:
        """Yield all messages until the end. Raises: the error that was passed to `fail`."""
        while True:
            with self._condition:
                while not self._messages and not self._ended and self._failure is None:
                    self._condition.wait()
                if self._failure is not None:
                    raise self._failure
                if not self._messages:
                    return
                message = self._messages.popleft()
                self._condition.notify()
            yield message
