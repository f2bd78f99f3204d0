"""The tasks of one scan, as the thread that serves its client sees them."""

from __future__ import annotations

import json
import selectors
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress

from sparkport import errors
from sparkport.errors import CatalogFault, Conflict, SparkportError
from sparkport.spark.jvm.relay.sender import COMPLETE, END, ERROR, FRAME, RECEIVED, WELCOME, Outlet

__all__ = ["RelayedScan", "Waker"]

_LARGEST_MESSAGE = 2**31 - 1
"""The limit of gRPC and of protobuf."""
_LARGEST_ERROR = 64 * 1024
_LOOK_AROUND = 0.1
"""How often `messages` calls `check` while no task could send."""
_NOTHING = COMPLETE - 1
"""A welcome that says: do everything once more, but send nothing."""
_RETRY = 30.0
"""How long to wait for the result of such an attempt."""
_LOST = 10.0
"""How long the next task in order may be lost while later tasks hold the slots that it needs."""
_IDLE = 1.0
"""How long a client must be idle before its tasks may be stopped for others.

This is for the first time; each further time takes four times as long.
"""


class RelayedScan:
    """The tasks of one scan, as the thread that serves the client sees them.

    `expect`, `admit`, `wake` and `rest` may be called by any thread, all else only by the thread
    that iterates `messages`.
    """

    def __init__(
        self, outlet: Outlet, title: str, deterministic: bool, on_close: Callable[[], object]
    ) -> None:
        """`on_close` is called when the scan has been closed."""
        self.outlet = outlet
        self.title = title
        self.rows = 0
        """How many rows have been forwarded."""
        self.stop_tasks: Callable[[], object] = lambda: None
        """Stops the tasks; `rest` calls it."""
        self.properties: Callable[[], Mapping[str, str]] = dict
        """Properties that each task is given when it starts. They may expire."""
        self.idle_since: float | None = None
        """Since when the client has not asked for the next message; None while it is served."""
        self._idle_limit = _IDLE
        self._rests = False
        self._deterministic = deterministic
        self._on_close = on_close
        self._expected: int | None = None
        self._ordered = False
        self._tasks: dict[int, _Task] = {}
        self._done = 0
        self._lock = threading.Lock()
        self._arrivals: dict[int, tuple[int, socket.socket]] = {}
        self._closed = False
        self._selector = selectors.DefaultSelector()
        self._waker = Waker()
        self._selector.register(self._waker, selectors.EVENT_READ)

    @property
    def complete(self) -> bool:
        """Whether everything has been received."""
        return self._expected is not None and self._done >= self._expected

    @property
    def waits(self) -> bool:
        """Whether no task is connected that may send now."""
        return not any(task.listened for task in self._tasks.values())

    def expect(self, tasks: int, *, ordered: bool = False) -> None:
        """Say how many tasks there are; the scan is complete when all of them are.

        Where the order of rows matters, each task waits until those before it are done. Call this
        before tasks can connect.
        """
        self._ordered = ordered
        self._expected = tasks
        self.wake()

    def wake(self) -> None:
        """Have `messages` call `check`: the client may have gone, the job may have failed."""
        with self._lock:
            if not self._closed:
                self._waker.wake()

    def admit(self, task: int, attempt: int, connection: socket.socket) -> None:
        """Take over the connection of a task; only its latest attempt counts."""
        superseded: socket.socket | None = connection
        with self._lock:
            pending = self._arrivals.get(task)
            if not (self._closed or self._rests) and (pending is None or pending[0] < attempt):
                self._arrivals[task] = (attempt, connection)
                superseded = None if pending is None else pending[1]
                self._waker.wake()
        if superseded is not None:
            superseded.close()

    def messages(self, check: Callable[[], None]) -> Iterator[bytes]:
        """What the tasks send, until all of them have sent everything.

        `check` raises when there is no use in waiting; it is called after every `wake`.

        Raises: Conflict when a task was lost that cannot be started again; the errors of tasks;
        what `properties` raises.
        """
        while not self.complete:
            check()
            ready = [
                key
                for key, _ in self._selector.select(
                    _LOOK_AROUND if self.waits or self._stuck else None
                )
            ]
            if any(key.fileobj is self._waker for key in ready):
                self._waker.clear()
                self._welcome_arrivals()
            self._check_turn()
            if any(time.monotonic() - since > _RETRY for since in self._stuck):
                raise self._lost()
            for key in ready:
                task: _Task | None = key.data
                if task is not None and task.connection is key.fileobj:  # not replaced a moment ago
                    message = self._next_message(task, check)
                    if message is not None:
                        self.idle_since = time.monotonic()
                        yield message
                        with self._lock:  # not during a `rest`
                            self.idle_since = None

    def rest(self) -> bool:
        """Stop the tasks, so that others can use Spark, if the client is idle.

        Only tasks that can go on later are stopped. Returns whether they were.
        """
        with self._lock:
            idle = self.idle_since
            if self._closed or self._rests or not self._deterministic or idle is None:
                return False
            if time.monotonic() - idle < self._idle_limit:
                return False
            self._rests = True
            self._idle_limit *= 4  # going on costs what the tasks have read so far
            arrivals, self._arrivals = self._arrivals, {}
            for task in self._tasks.values():
                self._drop(task)
            stop_tasks = self.stop_tasks
        for _, connection in arrivals.values():
            connection.close()
        stop_tasks()
        return True

    def go_on(self) -> bool:
        """End a rest. Returns whether there was one: then the tasks have to be started again."""
        with self._lock:
            rested, self._rests = self._rests, False
        return rested

    def close(self) -> None:
        """Close the connections of the tasks: those that are not complete fail."""
        with self._lock:
            self._closed = True
            arrivals, self._arrivals = self._arrivals, {}
        self._on_close()
        for _, connection in arrivals.values():
            connection.close()
        for task in self._tasks.values():
            if task.connection is not None:
                task.connection.close()
        self._selector.close()
        self._waker.close()

    def _welcome_arrivals(self) -> None:
        with self._lock:
            arrivals, self._arrivals = self._arrivals, {}
        for index, (attempt, connection) in arrivals.items():
            task = self._tasks.setdefault(index, _Task())
            if attempt < task.attempt:
                connection.close()
                continue
            self._drop(task)
            task.attempt, task.connection = attempt, connection
            welcome = COMPLETE if task.done else task.forwarded
            if task.forwarded and not task.done and not self._deterministic:
                # If the query failed, and no worker was lost, this attempt fails too, and Spark
                # says why.
                welcome = _NOTHING
            properties = None if task.done else dict(self.properties())
            given = json.dumps(properties).encode() if properties else b""
            try:
                connection.sendall(WELCOME.pack(welcome, len(given)) + given)
            except OSError:
                self._drop(task)
                continue
            if task.done:
                self._drop(task)
            elif not self._ordered or index == self._done:
                self._listen(task)

    @property
    def _stuck(self) -> list[float]:
        """Since when tasks have been lost that cannot go on where they stopped."""
        return [task.stuck_since for task in self._tasks.values() if task.stuck_since is not None]

    def _lost(self) -> Conflict:
        return Conflict(
            f"{self.title}: a Spark worker was lost before it had sent all rows; run the query "
            "again"
        )

    def _check_turn(self) -> None:
        """Fail if later tasks hold all of Spark, so that the next in order never starts again."""
        task = self._tasks.get(self._done) if self._ordered else None
        if task is None or task.connection is not None or time.monotonic() - task.lost_at < _LOST:
            return
        if any(each.connection is not None for each in self._tasks.values()):
            raise self._lost()

    def _listen(self, task: _Task) -> None:
        if task.connection is not None and not task.listened:
            self._selector.register(task.connection, selectors.EVENT_READ, task)
            task.listened = True

    def _drop(self, task: _Task) -> None:
        if task.connection is not None:
            if task.listened:
                self._selector.unregister(task.connection)
                task.listened = False
            task.connection.close()
            task.connection = None
            task.lost_at = time.monotonic()
            if task.forwarded and not (task.done or self._deterministic):
                task.stuck_since = task.stuck_since or task.lost_at

    def _next_message(self, task: _Task, check: Callable[[], None]) -> bytes | None:
        """The next message of a task that has begun to send.

        None where there is none, or the connection broke off.
        """
        frame = self._receive(task, FRAME.size, check)
        if frame is None:
            self._drop(task)
            return None
        length, rows = FRAME.unpack(frame)
        if length == END:
            self._finish(task, rows)
            return None
        if length == ERROR:
            raise self._error(self._receive(task, min(rows, _LARGEST_ERROR), check))
        if length > _LARGEST_MESSAGE:
            raise CatalogFault(
                f"{self.title}: a row is too large to be sent; leave out its largest columns"
            )
        message = self._receive(task, length, check)
        if message is None:
            self._drop(task)
            return None
        task.forwarded += 1
        self.rows += rows
        return message

    def _finish(self, task: _Task, messages: int) -> None:
        if task.stuck_since is not None:
            raise self._lost()
        if messages != task.forwarded:
            raise Conflict(
                f"{self.title}: a Spark task read other rows when it was started again; run the "
                "query again"
            )
        task.done = True
        self._done += 1
        assert task.connection is not None
        with suppress(
            OSError
        ):  # Spark starts the task again, which then learns that it is complete
            task.connection.sendall(RECEIVED)
        self._drop(task)
        if self._ordered and self._done in self._tasks:
            self._listen(self._tasks[self._done])

    def _error(self, text: bytes | None) -> SparkportError:
        """The error that a task reports to the user."""
        try:
            name, message = json.loads(text or b"")
        except (ValueError, TypeError):
            name = message = None
        if name not in errors.__all__:
            return CatalogFault(f"{self.title}: a Spark task failed")
        kind: type[SparkportError] = getattr(errors, name)
        return kind(str(message))

    def _receive(self, task: _Task, size: int, check: Callable[[], None]) -> bytes | None:
        """Receive exactly `size` bytes.

        None when the connection breaks off, or a new attempt has taken over.
        """
        assert task.connection is not None
        pieces: list[bytes] = []
        while size:
            try:
                piece = task.connection.recv(size, socket.MSG_WAITALL)
                if not piece:
                    return None
                pieces.append(piece)
                size -= len(piece)
            except BlockingIOError:  # nothing came for a while; see `Relay`
                pass
            except OSError:
                return None
            if size:
                check()
                if any(self._tasks.get(index) is task for index in list(self._arrivals)):
                    return None
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)


class _Task:
    """The server's knowledge of a task."""

    __slots__ = ("attempt", "connection", "done", "forwarded", "listened", "lost_at", "stuck_since")

    def __init__(self) -> None:
        self.attempt = 0
        self.connection: socket.socket | None = None
        self.listened = False
        self.forwarded = 0
        self.done = False
        self.lost_at = 0.0
        self.stuck_since: float | None = None


class Waker:
    """Ends another thread's wait in a selector."""

    def __init__(self) -> None:
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._writer.setblocking(False)

    def fileno(self) -> int:
        return self._reader.fileno()

    def wake(self) -> None:
        with suppress(BlockingIOError):  # it has been woken often enough
            self._writer.send(b"\0")

    def clear(self) -> None:
        with suppress(BlockingIOError):
            while self._reader.recv(4096):
                pass

    def close(self) -> None:
        self._reader.close()
        self._writer.close()
