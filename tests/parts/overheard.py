"""Listens to what a server and its clients say to each other, byte by byte."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

__all__ = ["Overheard", "overheard"]


class Overheard:
    """Passes on what both sides say, and keeps it. Use `overheard`."""

    def __init__(self, server: tuple[str, int]) -> None:
        self._server = server
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self._lock = threading.Lock()
        self._said: dict[int, bytearray] = {}
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def said(self) -> bytes:
        """All that was said so far, in either direction, one connection after the other."""
        with self._lock:
            return b"\n".join(map(bytes, self._said.values()))

    def close(self) -> None:
        for each in (self._listener, *self._open):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._server)
                self._open += [client, server]
                for ends in ((client, server), (server, client)):
                    threading.Thread(target=self._pass, args=ends, daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket) -> None:
        with self._lock:
            kept = self._said.setdefault(len(self._said), bytearray())
        with suppress(OSError):
            while piece := source.recv(65_536):
                with self._lock:
                    kept += piece
                target.sendall(piece)
        with suppress(OSError):
            target.shutdown(socket.SHUT_WR)


@contextmanager
def overheard(server: tuple[str, int]) -> Iterator[Overheard]:
    """Stand between a server and its clients, for a `with` statement."""
    between = Overheard(server)
    try:
        yield between
    finally:
        between.close()
