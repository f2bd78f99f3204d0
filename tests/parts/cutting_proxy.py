"""A proxy in front of any server that cuts connections at a chosen moment."""

from __future__ import annotations

import select
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum, auto

__all__ = ["Cut", "CuttingProxy", "cutting_proxy"]

_SECONDS = 0.05
_BYTES = 65_536


class Cut(Enum):
    """What happens when the client says the word."""

    BEFORE = auto()
    """The server does not hear it."""
    AFTER = auto()
    """The server hears it and answers, and the client does not hear the answer."""
    NEVER = auto()
    """The server does not hear it. Both keep their connection, and hear nothing more."""


class CuttingProxy:
    """Passes on what both sides say, until the client says a word. Use `cutting_proxy`."""

    def __init__(self, target: tuple[str, int]) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._is_closed = threading.Event()
        self._lock = threading.Lock()
        self._rule: tuple[bytes, Cut, int] | None = None
        self.connections = 0
        """How many were made so far."""
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def cut(self, word: bytes, how: Cut, *, skip: int = 0) -> None:
        """Cut a connection once, when the client has said a word `skip` + 1 times."""
        with self._lock:
            self._rule = (word, how, skip)

    @property
    def was_cut(self) -> bool:
        """Whether it has happened."""
        return self._rule is None

    def close(self) -> None:
        self._is_closed.set()
        for thread in self._threads:
            thread.join(10)
        self._listener.close()

    def _accept(self) -> None:
        self._listener.settimeout(_SECONDS)
        while not self._is_closed.is_set():
            try:
                client, _ = self._listener.accept()
            except TimeoutError:
                continue
            self.connections += 1
            thread = threading.Thread(target=self._pass_on, args=(client,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _pass_on(self, client: socket.socket) -> None:
        with client:
            try:
                with socket.create_connection(self._target, timeout=10) as server:
                    self._talk(client, server)
            except OSError:
                return  # the client notices

    def _talk(self, client: socket.socket, server: socket.socket) -> None:
        how: Cut | None = None
        while not self._is_closed.is_set():
            readable, _, _ = select.select([client, server], [], [], _SECONDS)
            for source in readable:
                data = source.recv(_BYTES)
                if not data or (source is server and how is Cut.AFTER):
                    return
                if source is client:
                    how = how or self._heard(data)
                if how is Cut.NEVER:
                    self._is_closed.wait()
                if how in (Cut.BEFORE, Cut.NEVER):
                    return
                (server if source is client else client).sendall(data)

    def _heard(self, data: bytes) -> Cut | None:
        with self._lock:
            if self._rule is None or self._rule[0] not in data:
                return None
            word, how, skip = self._rule
            self._rule = (word, how, skip - 1) if skip else None
            return None if skip else how


@contextmanager
def cutting_proxy(target: tuple[str, int]) -> Iterator[CuttingProxy]:
    """A proxy in front of a server, for a `with` statement."""
    proxy = CuttingProxy(target)
    try:
        yield proxy
    finally:
        proxy.close()
