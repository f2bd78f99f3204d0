"""What stands in front of a REST catalog in production: tokens, vended credentials, and trouble.

Iceberg's servlet has none of them. The door asks for a bearer token, adds credentials to tables,
counts requests, and fails when told. Commits pass it one at a time: the servlet changes several
tables one after the other.
"""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

__all__ = ["CREDENTIALS", "RestDoor", "rest_door"]

CREDENTIALS = "GET /v1/{prefix}/namespaces/{namespace}/tables/{table}/credentials"
_SECONDS = 60


@dataclass(slots=True)
class _Fault:
    method: str
    part: str
    status: int
    """0 cuts the connection."""
    is_late: bool
    """Whether the server has got the request by then."""
    times: int
    headers: Mapping[str, str]


@dataclass
class RestDoor:
    """How the door behaves; anything may be set at any time."""

    server: str
    uri: str = ""
    credential: str | None = None
    """`ID:SECRET` of the only client; None lets everybody in."""
    token_seconds: int | None = 3600
    """What is said of a token's life."""
    vended: Mapping[str, str] | None = None
    """Credentials that are added to each table."""
    vended_for: str = "file:"
    """The beginning of the locations that they are for."""
    vended_seconds: float = 3600.0
    defaults: dict[str, str] = field(default_factory=dict)
    """For `/v1/config`, as are the next three."""
    overrides: dict[str, str] = field(default_factory=dict)
    hidden: set[str] = field(default_factory=set)
    offered: set[str] = field(default_factory=set)
    seen: list[tuple[str, str]] = field(default_factory=list)
    """Methods and paths of all requests."""
    forms: list[dict[str, str]] = field(default_factory=list)
    """What was asked of `/v1/oauth/tokens`."""
    headers: list[dict[str, str]] = field(default_factory=list)
    vendings: int = 0
    """How often credentials were given out."""
    _faults: list[_Fault] = field(default_factory=list)
    _tokens: set[str] = field(default_factory=set)
    _revoked: set[str] = field(default_factory=set)
    _numbers: Iterator[int] = field(default_factory=itertools.count)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _commits: threading.Lock = field(default_factory=threading.Lock)

    def fail(
        self,
        method: str,
        part: str,
        status: int = 0,
        *,
        is_late: bool = False,
        times: int = 1,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Have the next requests fail; `part` is of the path, with `$` at its end.

        Status 0 cuts the connection.
        """
        with self._lock:
            self._faults.append(_Fault(method, part, status, is_late, times, headers or {}))

    def heal(self) -> None:
        """No trouble from now on."""
        with self._lock:
            self._faults.clear()

    def reset(self) -> None:
        """Be as in the beginning, and count anew.

        The JVM's client is that of all tests, and does not ask for another token by itself.
        """
        self.heal()
        self.forget()
        with self._lock:
            self._tokens |= self._revoked
        self.vended = None
        self.token_seconds = 3600
        for each in (self.defaults, self.overrides, self.hidden, self.offered):
            each.clear()

    def revoke(self) -> None:
        """Accept no token that was given out so far."""
        with self._lock:
            self._revoked |= self._tokens
            self._tokens.clear()

    def forget(self) -> None:
        """Count anew."""
        with self._lock:
            self.seen.clear()

    def count(self, method: str, part: str) -> int:
        with self._lock:
            return sum(each == method and part in f"{path}$" for each, path in self.seen)

    # ------------------------------------------------------------------------------------ answering

    def fault_of(self, method: str, path: str) -> _Fault | None:
        with self._lock:
            for fault in self._faults:
                if fault.times > 0 and fault.method == method and fault.part in f"{path}$":
                    fault.times -= 1
                    return fault
        return None

    def token(self, form: Mapping[str, str]) -> tuple[int, Any]:
        given = f"{form.get('client_id', '')}:{form.get('client_secret', '')}"
        with self._lock:
            self.forms.append(dict(form))
            if given != self.credential:
                return 401, {"error": "invalid_client", "error_description": "not known"}
            token = f"token-{next(self._numbers)}"
            self._tokens.add(token)
        answer: dict[str, Any] = {"access_token": token, "token_type": "bearer"}
        if self.token_seconds is not None:
            answer["expires_in"] = self.token_seconds
        return 200, answer

    def lets_in(self, authorization: str | None) -> bool:
        with self._lock:
            return self.credential is None or (authorization or "")[7:] in self._tokens

    def commits(self, method: str, path: str) -> Any:
        is_commit = method == "POST" and ("/tables/" in path or "/transactions/" in path)
        return self._commits if is_commit else nullcontext()

    def credentials(self) -> list[dict[str, Any]]:
        assert self.vended is not None
        self.vendings += 1
        end = str(int((time.time() + self.vended_seconds) * 1000))
        own = {**self.vended, "s3.session-token-expires-at-ms": end}
        others = {"s3.access-key-id": "of others", "s3.secret-access-key": "of others"}
        return [
            {"prefix": self.vended_for[:4], "config": others},
            {"prefix": self.vended_for, "config": own},
            {"prefix": f"{self.vended_for}/elsewhere", "config": others},
        ]

    def changed(self, method: str, path: str, body: Any) -> Any:
        """What the client gets instead of the server's answer."""
        if path.endswith("/v1/config"):
            body["defaults"] |= self.defaults
            body["overrides"] |= self.overrides
            kept = set(body["endpoints"]) - self.hidden
            body["endpoints"] = sorted(kept | self.offered)
        elif self.vended is not None and "metadata" in body and "/views" not in path:
            body["storage-credentials"] = self.credentials()
            body["config"] = {"client.region": "somewhere"}
        return body


@contextmanager
def rest_door(server: str) -> Iterator[RestDoor]:
    """A door in front of the server at that address, for a `with` statement."""
    door = RestDoor(server)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = _SECONDS
        disable_nagle_algorithm = True
        wbufsize = -1

        def do_GET(self) -> None:
            _answer(door, self)

        def do_POST(self) -> None:
            _answer(door, self)

        def do_DELETE(self) -> None:
            _answer(door, self)

        def do_HEAD(self) -> None:
            _answer(door, self)

        def log_message(self, format: str, *args: object) -> None:
            """Keep quiet."""

    listener = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    listener.daemon_threads = True
    door.uri = f"http://127.0.0.1:{listener.server_port}"
    thread = threading.Thread(target=listener.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield door
    finally:
        listener.shutdown()
        listener.server_close()
        thread.join(_SECONDS)


def _answer(door: RestDoor, request: BaseHTTPRequestHandler) -> None:
    method, path = request.command, urlsplit(request.path).path
    body = request.rfile.read(int(request.headers.get("Content-Length") or 0))
    with door._lock:
        door.seen.append((method, path))
        door.headers.append(dict(request.headers))
    fault = door.fault_of(method, path)
    if fault is not None and not fault.is_late:
        _fail(request, fault)
        return
    if path.endswith("/oauth/tokens"):
        form = {key: each[0] for key, each in parse_qs(body.decode()).items()}
        _send(request, *door.token(form))
    elif not door.lets_in(request.headers.get("Authorization")):
        _send(request, 401, {"error": {"message": "no", "type": "NotAuthorized", "code": 401}})
    elif path.endswith("/credentials"):
        _send(request, 200, {"storage-credentials": door.credentials()})
    else:
        with door.commits(method, path):
            status, headers, content = _forwarded(door, request, body)
        if fault is not None:
            _fail(request, fault)
            return
        said = json.loads(content) if content else None
        _send(request, status, said and door.changed(method, path, said), headers)


def _forwarded(
    door: RestDoor, request: BaseHTTPRequestHandler, body: bytes
) -> tuple[int, Mapping[str, str], bytes]:
    connection = HTTPConnection(door.server.rpartition("//")[2], timeout=_SECONDS)
    dropped = ("host", "connection", "authorization", "accept-encoding")
    headers = {key: each for key, each in request.headers.items() if key.lower() not in dropped}
    path = request.path
    if "prefix" in door.overrides:  # the servlet has none
        path = path.replace(f"/v1/{door.overrides['prefix']}/", "/v1/", 1)
    try:
        connection.request(request.command, path, body, headers)
        answer = connection.getresponse()
        tag = answer.headers.get("ETag")
        return answer.status, {"ETag": tag} if tag else {}, answer.read()
    finally:
        connection.close()


def _fail(request: BaseHTTPRequestHandler, fault: _Fault) -> None:
    if fault.status:
        error = {"message": "by the tests", "type": "Test", "code": fault.status}
        _send(request, fault.status, {"error": error}, fault.headers)
    else:
        request.close_connection = True
        with suppress(OSError):
            request.connection.shutdown(2)


def _send(
    request: BaseHTTPRequestHandler,
    status: int,
    body: object,
    headers: Mapping[str, str] | None = None,
) -> None:
    content = b"" if body is None else json.dumps(body).encode()
    request.send_response(status)
    for key, each in (headers or {}).items():
        request.send_header(key, each)
    if status not in (204, 304):
        request.send_header("Content-Type", "application/json")
        request.send_header("Content-Length", str(len(content)))
    request.end_headers()
    if request.command != "HEAD":
        request.wfile.write(content)
