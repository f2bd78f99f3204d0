"""A hostile client that speaks just enough HTTP/2 to open calls and send what it likes."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from types import TracebackType

from typing_extensions import Self

FLIGHT = "/arrow.flight.protocol.FlightService/"
HEALTH = "/grpc.health.v1.Health/"
SOON = 60.0

_DATA, _HEADERS, _RESET, _SETTINGS, _PING, _GOAWAY = 0, 1, 3, 4, 6, 7
_END_STREAM, _ACK, _END_HEADERS = 1, 1, 4
_LARGEST_FRAME = 16_384


class Stranger:
    """A connection. Its calls go on until the server ends them, or the connection is closed."""

    def __init__(self, location: str) -> None:
        host, port = location.split("://", 1)[1].rsplit(":", 1)
        self._socket = socket.create_connection((host, int(port)), timeout=SOON)
        self._lock = threading.Lock()
        self._changed = threading.Condition()
        self._opened: set[int] = set()
        self._ended: set[int] = set()
        self._closed = False
        self._socket.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _frame(_SETTINGS, 0, 0))
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def open(self, method: str, headers: Mapping[str, str] | None = None) -> int:
        """Begin a call, without a message."""
        number = 2 * len(self._opened) + 1
        self._opened.add(number)
        fields = {":method": "POST", ":scheme": "http", ":path": method, ":authority": "stranger"}
        fields |= {"te": "trailers", "content-type": "application/grpc", **(headers or {})}
        block = b"".join(b"\0" + _text(name) + _text(value) for name, value in fields.items())
        self._send(_frame(_HEADERS, _END_HEADERS, number, block))
        return number

    def send(self, number: int, data: bytes) -> None:
        """Bytes of a message, which begins with `announced`."""
        for start in range(0, len(data), _LARGEST_FRAME):
            self._send(_frame(_DATA, 0, number, data[start : start + _LARGEST_FRAME]))

    @property
    def open_calls(self) -> set[int]:
        with self._changed:
            return self._opened - self._ended

    def wait_until_open_calls(self, most: int) -> None:
        """Until the server has ended all calls but so many."""
        deadline = time.monotonic() + SOON
        with self._changed:
            while len(self._opened - self._ended) > most:
                left = deadline - time.monotonic()
                assert left > 0, f"{len(self._opened - self._ended)} calls are still open"
                assert not self._closed, "the server has closed the connection"
                self._changed.wait(left)

    def close(self) -> None:
        self._socket.close()
        self._thread.join(SOON)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with suppress(OSError):  # the server may have closed it
            self._socket.shutdown(socket.SHUT_RDWR)
        self.close()

    def _send(self, data: bytes) -> None:
        with self._lock:
            self._socket.sendall(data)

    def _read(self) -> None:
        try:
            with self._socket.makefile("rb") as stream:
                while len(head := stream.read(9)) == 9:
                    length, kind, flags, number = (
                        int.from_bytes(head[:3], "big"),
                        head[3],
                        head[4],
                        head[5:],
                    )
                    self._take(kind, flags, int.from_bytes(number, "big"), stream.read(length))
        except OSError:
            pass
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _take(self, kind: int, flags: int, number: int, payload: bytes) -> None:
        if kind == _SETTINGS and not flags & _ACK:
            self._send(_frame(_SETTINGS, _ACK, 0))
        elif kind == _PING and not flags & _ACK:
            self._send(_frame(_PING, _ACK, 0, payload))
        elif kind == _RESET or (kind in (_HEADERS, _DATA) and flags & _END_STREAM):
            with self._changed:
                self._ended.add(number)
                self._changed.notify_all()


def announced(length: int) -> bytes:
    """Return the beginning of a gRPC message of that length."""
    return b"\0" + struct.pack(">I", length)


def _frame(kind: int, flags: int, number: int, payload: bytes = b"") -> bytes:
    return (
        len(payload).to_bytes(3, "big") + bytes([kind, flags]) + number.to_bytes(4, "big") + payload
    )


def _text(text: str) -> bytes:
    """HPACK, without compression; shorter than 16 KiB."""
    data = text.encode()
    if len(data) < 127:
        return bytes([len(data)]) + data
    rest = len(data) - 127
    return (
        bytes([127, rest % 128 + 128, rest // 128]) + data
        if rest >= 128
        else bytes([127, rest]) + data
    )
