"""A proxy in front of an HTTP server that counts requests, and makes trouble when told.

It runs in a process of its own: pyarrow closes files while it holds the lock of the interpreter,
and a proxy in the same one could not answer then.

It keeps the clients' connections open and passes bodies on as they come, so that it costs little by
itself. The server gets a new connection for each request, as a server that restarts wants it.
"""

from __future__ import annotations

import itertools
import os
import random
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from multiprocessing import get_context, parent_process
from multiprocessing.managers import BaseManager
from typing import cast
from urllib.parse import parse_qs, unquote, urlsplit

from tests.parts.http_messages import Cut, Head, MessageReader

__all__ = ["FaultProxy", "Request", "fault_proxy"]

_CODES = {500: "InternalError", 503: "SlowDown"}
_REASONS = {400: "Bad Request", 403: "Forbidden", 500: "Internal Error", 503: "Slow Down"}


@dataclass(frozen=True, slots=True)
class Request:
    """A request that the proxy has seen."""

    method: str
    path: str
    """With the bucket, decoded: `/lake/a b`."""
    query: str
    range: str = ""
    """As the client asked for it: `bytes=0-9`."""
    status: int = 0
    """What the client got; 0 when the connection was cut."""
    body: int = 0
    """Bytes that went to the server, or to the client, whichever is more.

    These are all only when the client has read them, and so is the time.
    """
    seconds: float = 0
    """What the server took, without the proxy's delay."""

    @property
    def operation(self) -> str:
        """S3's name for it."""
        names = set(parse_qs(self.query, keep_blank_values=True))
        in_bucket = self.path.strip("/").count("/") == 0
        match self.method:
            case "HEAD":
                return "HeadBucket" if in_bucket else "HeadObject"
            case "GET":
                return "ListObjects" if in_bucket else "GetObject"
            case "PUT" if "partNumber" in names:
                return "UploadPart"
            case "PUT":
                return "CreateBucket" if in_bucket else "PutObject"
            case "POST" if "delete" in names:
                return "DeleteObjects"
            case "POST":
                return "CreateUpload" if "uploads" in names else "CompleteUpload"
            case "DELETE":
                return "AbortUpload" if "uploadId" in names else "DeleteObject"
        return self.method


@dataclass(slots=True)
class _Fault:
    """What happens to the requests that it is for, as often as it says."""

    operation: str
    path: str
    times: float
    status: int = 0
    code: str = ""
    cut_after: int = -1

    def is_for(self, request: Request) -> bool:
        return self.operation in ("", request.operation) and self.path in request.path


class FaultProxy:
    """Stands in front of a server, at an address of its own. Thread-safe."""

    def __init__(self, server: tuple[str, int]) -> None:
        self._server = server
        self._lock = threading.Lock()
        self._seen: dict[int, Request] = {}
        self._numbers = itertools.count()
        self._faults: list[_Fault] = []
        self._open: set[socket.socket] = set()
        self._random = random.Random(0)
        self._share = 0.0
        self._statuses: tuple[int, ...] = ()
        self._delay = 0.0
        self._listener = self._listen(0)
        self._port: int = self._listener.getsockname()[1]

    def endpoint(self) -> str:
        """Its own address, as a URL."""
        return f"http://127.0.0.1:{self._port}"

    # ------------------------------------------------------------------------------------- counting

    def requests(self) -> list[Request]:
        """What has been asked so far, in the order in which the answers began."""
        with self._lock:
            return list(self._seen.values())

    def operations(self) -> list[str]:
        """S3's names of the requests so far."""
        return [request.operation for request in self.requests()]

    def forget(self) -> None:
        """Count from here on."""
        with self._lock:
            self._seen.clear()

    # -------------------------------------------------------------------------------------- trouble

    def delay(self, seconds: float) -> None:
        """Have each request wait from now on."""
        self._delay = seconds

    def fail(self, share: float, seed: int = 0, statuses: tuple[int, ...] = (500, 503)) -> None:
        """Answer this share of the requests by an error from now on; 0 ends it."""
        with self._lock:
            self._random = random.Random(seed)
            self._share, self._statuses = share, statuses

    def fail_next(
        self, status: int, code: str = "", operation: str = "", path: str = "", times: float = 1
    ) -> None:
        """Answer the next requests by an error, which has one of S3's codes.

        `operation` and `path` choose the requests: S3's name, and a piece of the path.
        """
        code = code or _CODES.get(status, "Error")
        with self._lock:
            self._faults.append(_Fault(operation, path, times, status, code))

    def cut_next(self, after: int, operation: str = "", path: str = "", times: float = 1) -> None:
        """Cut the connection after so many bytes of a body, on the next requests of a kind.

        It is the body of the request if there is one, else that of the answer.
        """
        with self._lock:
            self._faults.append(_Fault(operation, path, times, cut_after=after))

    def go_away(self) -> None:
        """Refuse connections, and cut those that are open, until `come_back`."""
        _end(self._listener)
        with self._lock:
            left = list(self._open)
        for connection in left:
            _end(connection)

    def come_back(self) -> None:
        """Answer again, at the same address."""
        self._listener = self._listen(self._port)

    def heal(self) -> None:
        """No trouble from now on. Does not come back from being away."""
        self.delay(0)
        self.fail(0)
        with self._lock:
            self._faults.clear()

    # ---------------------------------------------------------------------------------- connections

    def _listen(self, port: int) -> socket.socket:
        listener = socket.create_server(("127.0.0.1", port), backlog=256, reuse_port=False)
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()
        return listener

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client, listener), daemon=True).start()

    def _serve(self, client: socket.socket, listener: socket.socket) -> None:
        with self._lock:
            self._open.add(client)
        if listener.fileno() < 0:  # the proxy went away meanwhile
            _end(client)
        try:
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            asked = MessageReader(client)
            while (head := asked.head()) and self._exchange(head, client, asked):
                pass
        except (OSError, Cut, ValueError):
            pass
        finally:
            with self._lock:
                self._open.discard(client)
            _end(client)

    def _exchange(self, head: Head, client: socket.socket, asked: MessageReader) -> bool:
        """Pass on a request and its answer; whether the client's connection can be used again."""
        method, target, _ = head.line.split(" ", 2)
        parts = urlsplit(target)
        request = Request(method, unquote(parts.path), parts.query, head.get("range"))
        if self._delay:
            time.sleep(self._delay)
        fault = self._fault_of(request)
        waits = head.get("expect").lower() == "100-continue"
        if fault is not None and fault.status:
            if waits:
                client.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
            body = asked.pass_body(head, None)
            self._note(next(self._numbers), replace(request, status=fault.status, body=body))
            client.sendall(_error(fault.status, fault.code, method))
            return True
        cut = fault.cut_after if fault is not None else -1
        sends = head.has_body
        begun = time.monotonic()
        answer, number = None, next(self._numbers)
        try:
            with socket.create_connection(self._server, timeout=60) as server:
                server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                server.sendall(head.content)
                if waits:
                    client.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
                sent = asked.pass_body(head, server, cut if sends else -1)
                answered = MessageReader(server)
                while (answer := answered.head()) and answer.status == 100:
                    pass
                if answer is None:
                    raise Cut
                # Before the client can go on, and count.
                seen = replace(request, status=answer.status, body=sent)
                self._note(number, replace(seen, seconds=time.monotonic() - begun))
                client.sendall(answer.without_close(method))
                if not answer.is_bodiless(method):
                    got = answered.pass_body(answer, client, -1 if sends else cut, True)
                    seen = replace(seen, body=max(sent, got))
                    self._tell_more(number, replace(seen, seconds=time.monotonic() - begun))
        except (OSError, Cut):
            self._note(number, replace(request, seconds=time.monotonic() - begun))
            raise
        return answer.is_delimited(method)

    def _fault_of(self, request: Request) -> _Fault | None:
        with self._lock:
            for fault in self._faults:
                if fault.times > 0 and fault.is_for(request):
                    fault.times -= 1
                    return fault
            if self._share and self._random.random() < self._share:
                status = self._random.choice(self._statuses)
                return _Fault("", "", 1, status, _CODES[status])
        return None

    def _note(self, number: int, request: Request) -> None:
        with self._lock:
            self._seen[number] = request

    def _tell_more(self, number: int, request: Request) -> None:
        """Of a request that was noted, unless it was forgotten since."""
        with self._lock:
            if number in self._seen:
                self._seen[number] = request


class _Manager(BaseManager):
    """Runs a proxy in another process, and lets its methods be called from here."""


_Manager.register("proxy", FaultProxy)


@contextmanager
def fault_proxy(server: tuple[str, int]) -> Iterator[FaultProxy]:
    """A proxy for a `with` statement."""
    manager = _Manager(ctx=get_context("spawn"))
    manager.start(_end_with_the_parent)
    try:
        yield cast(FaultProxy, manager.proxy(server))  # type: ignore[attr-defined]
    finally:
        manager.shutdown()


def _end_with_the_parent() -> None:
    """Have this process end when the tests are killed."""
    parent = parent_process()
    assert parent is not None

    def wait() -> None:
        parent.join()
        os._exit(0)

    threading.Thread(target=wait, daemon=True).start()


def _error(status: int, code: str, method: str) -> bytes:
    body = (
        '<?xml version="1.0" encoding="UTF-8"?>'
        f"<Error><Code>{code}</Code><Message>{code}, by the tests</Message></Error>"
    ).encode()
    head = (
        f"HTTP/1.1 {status} {_REASONS.get(status, 'Error')}\r\n"
        f"Content-Type: application/xml\r\nContent-Length: {len(body)}\r\n\r\n"
    ).encode()
    return head if method == "HEAD" else head + body


def _end(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()
