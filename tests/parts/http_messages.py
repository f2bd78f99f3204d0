"""HTTP/1.1 as a proxy needs it: heads are read, bodies passed on as they come."""

from __future__ import annotations

import socket

__all__ = ["Cut", "Head", "MessageReader"]

_CHUNK = 256 * 1024


class Cut(Exception):
    """The connection ends here."""


class Head:
    """The first line and the headers of a request or an answer."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.line, *rest = content.decode("latin-1").rstrip("\r\n").split("\r\n")
        pairs = (line.partition(":") for line in rest)
        self._headers = {name.strip().lower(): value.strip() for name, _, value in pairs}

    def get(self, name: str) -> str:
        return self._headers.get(name, "")

    @property
    def status(self) -> int:
        return int(self.line.split(" ", 2)[1])

    @property
    def is_chunked(self) -> bool:
        return "chunked" in self.get("transfer-encoding").lower()

    @property
    def has_body(self) -> bool:
        return self.is_chunked or int(self.get("content-length") or 0) > 0

    def is_bodiless(self, method: str) -> bool:
        return method == "HEAD" or self.status in (204, 304)

    def is_delimited(self, method: str) -> bool:
        """Whether the end of an answer is known without closing."""
        return self.is_bodiless(method) or self.is_chunked or bool(self.get("content-length"))

    def without_close(self, method: str) -> bytes:
        """The same for a client whose connection stays open, though the server's is closed."""
        if not self.is_delimited(method) or self.get("connection").lower() != "close":
            return self.content
        lines = self.content.split(b"\r\n")
        kept = (line for line in lines if not line.lower().startswith(b"connection:"))
        return b"\r\n".join(kept)


class MessageReader:
    """Reads messages from a connection."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._left = b""

    def head(self) -> Head | None:
        """The next message's head; None at the end."""
        while (end := self._left.find(b"\r\n\r\n")) < 0:
            more = self._connection.recv(_CHUNK)
            if not more:
                return None
            self._left += more
        content, self._left = self._left[: end + 4], self._left[end + 4 :]
        return Head(content)

    def pass_body(
        self, head: Head, to: socket.socket | None, cut: int = -1, is_answer: bool = False
    ) -> int:
        """Pass a body on, or drop it; its bytes. Raises: Cut after `cut` bytes of it."""
        if head.is_chunked:
            return self._pass_chunks(to, cut)
        length = head.get("content-length")
        if length or not is_answer:
            return self._pass(int(length or 0), to, cut)
        return self._pass(1 << 62, to, cut)  # until the server closes

    def _pass(self, length: int, to: socket.socket | None, cut: int) -> int:
        left = length
        while left > 0:
            piece = self._left or self._connection.recv(min(_CHUNK, left))
            if not piece:
                if length == 1 << 62:
                    return length - left
                raise Cut
            piece, self._left = piece[:left], piece[left:]
            if 0 <= cut <= length - left + len(piece):
                piece = piece[: cut - (length - left)]
                if to is not None:
                    to.sendall(piece)
                raise Cut
            if to is not None:
                to.sendall(piece)
            left -= len(piece)
        return length

    def _pass_chunks(self, to: socket.socket | None, cut: int) -> int:
        """The end goes together with what is before it: some servers close without waiting."""
        total, waiting = 0, bytearray()
        while True:
            line = self._line()
            size = int(line.split(b";")[0], 16)
            waiting += line
            while (have := min(len(self._left), size)) < size:
                more = self._connection.recv(_CHUNK)
                if not more:
                    raise Cut
                self._left += more
            if 0 <= cut <= total + size:
                if to is not None:
                    to.sendall(waiting + self._left[: cut - total])
                raise Cut
            waiting += self._left[:have]
            self._left = self._left[have:]
            total += size
            while True:  # the end of a chunk; after the last, trailers until an empty line
                line = self._line()
                waiting += line
                if size or line == b"\r\n":
                    break
            if to is not None and (not size or len(waiting) > _CHUNK):
                to.sendall(waiting)
                waiting = bytearray()
            if not size:
                return total

    def _line(self) -> bytes:
        while (end := self._left.find(b"\r\n")) < 0:
            more = self._connection.recv(_CHUNK)
            if not more:
                raise Cut
            self._left += more
        line, self._left = self._left[: end + 2], self._left[end + 2 :]
        return line
