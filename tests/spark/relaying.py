"""Threads that take the place of Spark's tasks, for the tests of the relay."""

import socket
import threading
import time
from dataclasses import replace
from typing import Any

from sparkport.spark.jvm.relay.relayed_scan import RelayedScan
from sparkport.spark.jvm.relay.sender import FRAME, HELLO, MAGIC, Outlet, Sender

SOON = 30.0


def never() -> None:
    """A check that never raises: the client stays, and the job does not fail."""


class Task(threading.Thread):
    """An attempt of a task that sends what it is given, and keeps the result."""

    def __init__(self, outlet: Outlet, index: int, messages: list[bytes], attempt: int = 1) -> None:
        super().__init__(daemon=True)
        self.error: Exception | None = None
        self._outlet, self._index, self._messages, self._attempt = outlet, index, messages, attempt
        self.start()

    def run(self) -> None:
        try:
            with Sender(self._outlet, self._index, self._attempt) as sender:
                if not sender.complete:
                    for message in self._messages:
                        sender.send([message[:1], memoryview(message[1:])], 10)
                    sender.end()
        except Exception as error:
            self.error = error

    def outcome(self) -> Exception | None:
        self.join(SOON)
        assert not self.is_alive()
        return self.error


def greet(outlet: Outlet, index: int = 0, attempt: int = 1, **changes: Any) -> socket.socket:
    """Open a connection that has said hello."""
    outlet = replace(outlet, **changes)
    connection = socket.create_connection((outlet.host, outlet.port), SOON)
    connection.sendall(HELLO.pack(MAGIC, outlet.scan, outlet.secret, index, attempt))
    return connection


def frame(message: bytes, rows: int = 10) -> bytes:
    return FRAME.pack(len(message), rows) + message


def is_closed(connection: socket.socket) -> bool:
    """Whether the server hangs up in the end."""
    with connection:
        connection.settimeout(SOON)
        try:
            return connection.recv(1) == b""
        except ConnectionResetError:
            return True


def arrived(scan: RelayedScan) -> None:
    """Wait until a connection has been accepted."""
    deadline = time.monotonic() + SOON
    while not scan._arrivals and time.monotonic() < deadline:
        time.sleep(0.01)
