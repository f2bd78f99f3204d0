"""The worker's end of a relay: one task's connection to the server that forwards its messages.

The conversation, in little-endian numbers: the task says hello (`HELLO`). The server answers how
many messages of this task it has forwarded already (`WELCOME`), and hands over what the task needs
beside its plan: the properties of the storage as they are now, with their secrets. The task sends
the other messages, each behind a `FRAME`. After the last message it says how many there were, and
waits until the server has said `RECEIVED`: a task that succeeds has delivered everything. Spark
starts a task again that breaks off.
"""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType

from sparkport.catalog.scan import MessagePart
from sparkport.errors import SparkportError

__all__ = [
    "COMPLETE",
    "END",
    "ERROR",
    "FRAME",
    "HELLO",
    "MAGIC",
    "RECEIVED",
    "WELCOME",
    "Outlet",
    "Sender",
    "keep_alive",
]

MAGIC = b"sparkp01"
HELLO = struct.Struct("<8s16s32sIQ")
"""Magic, scan, secret, number of the task, its attempt."""
WELCOME = struct.Struct("<QI")
"""The number of messages; the length of the properties that follow as JSON, 0 without any."""
COMPLETE = 2**64 - 1
"""A welcome that says: all of this task has been received from an earlier attempt."""
FRAME = struct.Struct("<QQ")
"""The length of the message that follows, and its rows."""
END = 0
"""A frame's length at the end; in the place of rows is the number of messages."""
ERROR = 2**64 - 1
"""A frame's length before an error for the user; in the place of rows is its length."""
RECEIVED = b"\x06"

_CONNECT_SECONDS = 20.0
_MOST_PARTS = 512
"""The limit of one `sendmsg`; systems take 1,024."""


@dataclass(frozen=True, slots=True)
class Outlet:
    """The address and the secret for the tasks of one scan."""

    host: str
    port: int
    scan: bytes
    secret: bytes = field(repr=False)


class Sender:
    """The connection of one attempt of one task. Not thread-safe.

    Raises: OSError wherever the connection breaks off, so that Spark starts the task again.
    """

    def __init__(self, outlet: Outlet, task: int, attempt: int) -> None:
        """`attempt` grows with every attempt of the task."""
        self._socket = socket.create_connection((outlet.host, outlet.port), _CONNECT_SECONDS)
        try:
            # A slow client may keep a task waiting without limit; only a lost machine ends it.
            self._socket.settimeout(None)
            keep_alive(self._socket)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket.sendall(HELLO.pack(MAGIC, outlet.scan, outlet.secret, task, attempt))
            self._skip, length = WELCOME.unpack(self._receive(WELCOME.size))
            given = self._receive(length) if length else b"{}"
            self.properties: Mapping[str, str] = json.loads(given)
        except BaseException:
            self._socket.close()
            raise
        self._count = 0

    @property
    def complete(self) -> bool:
        """Whether nothing is left to send, because an earlier attempt has sent everything."""
        return bool(self._skip == COMPLETE)

    def send(self, parts: Sequence[MessagePart], rows: int) -> None:
        """Send a message, unless it has been forwarded already; the parts are not copied."""
        self._count += 1
        if self._count <= self._skip:
            return
        views = [memoryview(part) for part in parts]
        self._send([memoryview(FRAME.pack(sum(view.nbytes for view in views), rows)), *views])

    def end(self) -> None:
        """Say that this was all, and wait until it has been received."""
        self._socket.sendall(FRAME.pack(END, self._count))
        self._receive(len(RECEIVED))

    def fail(self, error: SparkportError) -> None:
        """Have the query fail with this error: no other attempt would fare better."""
        text = json.dumps([type(error).__name__, error.message]).encode()
        self._socket.sendall(FRAME.pack(ERROR, len(text)) + text)

    def check(self) -> None:
        """Call this during long work between messages.

        Raises: OSError once the server has let go of the task.
        """
        try:
            self._socket.recv(1, socket.MSG_DONTWAIT | socket.MSG_PEEK)
        except BlockingIOError:
            return
        # The server says nothing before the end, so this is the end of the connection.
        raise ConnectionResetError("the scan has ended")

    def _send(self, views: list[memoryview]) -> None:
        while views:
            sent = self._socket.sendmsg(views[:_MOST_PARTS])
            for index, view in enumerate(views):
                if sent < view.nbytes:
                    views = [view.cast("B")[sent:], *views[index + 1 :]]
                    break
                sent -= view.nbytes
            else:
                return

    def _receive(self, size: int) -> bytes:
        data = self._socket.recv(size, socket.MSG_WAITALL)
        if len(data) < size:
            raise ConnectionResetError("the scan has ended")
        return data

    def __enter__(self) -> Sender:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._socket.close()


def keep_alive(connection: socket.socket) -> None:
    """Have the connection break off a minute after the other machine has gone."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, name):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
