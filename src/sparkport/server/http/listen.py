"""The pages of the status page, and who may see which.

Open to everybody are the page itself, which holds no data, `/metrics` and `/healthz`. Where the
server asks for tokens, the rest needs one too. Nothing is remembered between two requests, so there
are no cookies to steal. Requests that change something need a header that pages of other sites
cannot send.
"""

from __future__ import annotations

import json
import logging
import socket
import socketserver
import threading
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from typing import Any, cast
from urllib.parse import urlsplit

from sparkport.auth.loopback import is_loopback
from sparkport.errors import BadRequest, Unauthenticated
from sparkport.server.http.status import Viewer, status
from sparkport.server.metrics import CONTENT_TYPE
from sparkport.server.observability import Watching
from sparkport.service.activity import Work
from sparkport.service.calls import Call
from sparkport.service.service import Service
from sparkport.wire.headers import RequestHeaders

__all__ = ["StatusServer", "parse_address"]

_log = logging.getLogger("sparkport.server.http")

_FILES = {
    "/": ("page.html", "text/html; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
}
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        "img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_CANCEL_HEADER = "X-Sparkport-Request"
_MOST_CONNECTIONS = 64
_TIMEOUT_SECONDS = 10.0


class StatusServer:
    """Answers HTTP in threads of its own, until it is closed."""

    def __init__(self, address: str, service: Service, watching: Watching, location: str) -> None:
        """Listen on `address`, `HOST:PORT`; port 0 picks a free port.

        Raises: BadRequest; OSError when the port cannot be had.
        """
        host, port = parse_address(address)
        self._host = host
        try:
            self._server = _Listener(
                host, port, _Site(service, watching, location, is_loopback(host))
            )
        except OSError as error:
            raise OSError(
                f"cannot listen on {address} for the status page: {error.strerror or error}"
            ) from error
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.1,), name="http (sparkport)", daemon=True
        )
        self._thread.start()
        _log.info("status page on %s", self.address)

    @property
    def address(self) -> str:
        """The address, with the port that was picked."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{self._server.server_port}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._server.hang_up()
        self._thread.join()


@dataclass(frozen=True, slots=True)
class _Site:
    """The server that the pages are about."""

    service: Service
    watching: Watching
    location: str
    loopback_only: bool

    def viewer(self, authorization: str | None) -> Viewer:
        """Identify the viewer. Raises: Unauthenticated."""
        call = self.service.admit(Call(RequestHeaders(authorization=authorization)))
        if self.service.settings.authenticate is None:
            return Viewer(call, signed_in=False, sees_everything=True)
        policy = self.service.policy
        admin = policy is not None and policy.is_admin(call.identity)
        return Viewer(call, signed_in=True, sees_everything=admin)

    def denied(self, what: str, code: str, reason: str, viewer: Viewer | None = None) -> None:
        """Log that a viewer was refused."""
        work = Work("http", operation=what)
        work.code, work.message = code, reason
        self._record(work, viewer)
        if code == "UNAUTHENTICATED":
            self.watching.metrics.logins_refused.inc()

    def cancel(self, number: int, viewer: Viewer) -> bool:
        """End a call; False when there is no such call that the viewer may end."""
        work = self.watching.activity.find(number)
        if work is None:
            return False
        if not viewer.sees(work):
            self.denied("cancel", "PERMISSION_DENIED", "it is somebody else's", viewer)
            return False  # as if it did not exist
        by = viewer.call.principal or "somebody at the status page"
        _log.info("trace %s: %s is cancelled by %s", work.trace_id, work.rpc, by)
        noted = Work("http", operation="cancel", trace_id=work.trace_id)
        noted.code = "OK"
        noted.progress.writes.append(("cancel", work.object or work.rpc, None))
        self._record(noted, viewer)
        work.cut(f"it was cancelled by {by}")
        return True

    def _record(self, work: Work, viewer: Viewer | None) -> None:
        work.principal = None if viewer is None else viewer.call.principal
        if self.watching.audit is not None:
            self.watching.audit.record(work)


class _Listener(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, host: str, port: int, site: _Site) -> None:
        self.site = site
        self._room = threading.BoundedSemaphore(_MOST_CONNECTIONS)
        self._open: set[socket.socket] = set()
        if ":" in host:
            self.address_family = socket.AF_INET6
        super().__init__((host, port), _Request)

    def server_bind(self) -> None:
        # Not http.server's own method, which asks DNS for the host's name.
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = self.server_address[:2]  # type: ignore[assignment]

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._room.acquire(blocking=False):
            self.shutdown_request(request)
            return
        self._open.add(request)
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._open.discard(request)
            self._room.release()

    def hang_up(self) -> None:
        """Close the connections that browsers keep: a closed server must not answer on them."""
        for connection in tuple(self._open):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        _log.debug("a connection of the status page broke off", exc_info=True)


class _Request(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "sparkport"
    sys_version = ""
    timeout = _TIMEOUT_SECONDS

    @property
    def _site(self) -> _Site:
        return cast(_Listener, self.server).site

    def do_GET(self) -> None:
        path = urlsplit(self.path).path
        if not self._host_is_ours():
            self._answer_text(HTTPStatus.MISDIRECTED_REQUEST, "this page is for localhost only")
        elif path in _FILES:
            name, kind = _FILES[path]
            self._send(
                HTTPStatus.OK, resources.files(__package__).joinpath(name).read_bytes(), kind
            )
        elif path == "/healthz":
            draining = self._site.watching.draining
            self._answer_text(
                HTTPStatus.SERVICE_UNAVAILABLE if draining else HTTPStatus.OK,
                "stopping" if draining else "ok",
            )
        elif path == "/metrics":
            self._send(HTTPStatus.OK, self._site.watching.metrics.exposition(), CONTENT_TYPE)
        elif path == "/status.json":
            viewer = self._viewer("status")
            if viewer is not None:
                site = self._site
                shown = status(site.service, site.watching, viewer, site.location)
                self._send(HTTPStatus.OK, json.dumps(shown).encode(), "application/json")
        else:
            self._answer_text(HTTPStatus.NOT_FOUND, "there is no such page")

    do_HEAD = do_GET  # noqa: N815 - the name that http.server looks for

    def do_POST(self) -> None:
        self.close_connection = True  # a body, if there is one, is not read
        path = urlsplit(self.path).path
        number = path.removeprefix("/cancel/")
        if not self._host_is_ours():
            self._answer_text(HTTPStatus.MISDIRECTED_REQUEST, "this page is for localhost only")
        elif number == path or not (number.isascii() and number.isdigit() and len(number) < 20):
            self._answer_text(HTTPStatus.NOT_FOUND, "there is no such page")
        elif self.headers.get(_CANCEL_HEADER) != "cancel":
            self._answer_text(
                HTTPStatus.FORBIDDEN, f"cancelling needs the header {_CANCEL_HEADER}: cancel"
            )
        else:
            viewer = self._viewer("cancel")
            if viewer is not None and self._site.cancel(int(number), viewer):
                self._answer_text(HTTPStatus.OK, "cancelled")
            elif viewer is not None:
                self._answer_text(HTTPStatus.NOT_FOUND, "no call of that number is under way")

    def _viewer(self, what: str) -> Viewer | None:
        """Return the viewer; None after the answer that a token is needed."""
        authorization = self.headers.get("Authorization")
        try:
            return self._site.viewer(authorization)
        except Unauthenticated as error:
            if authorization is not None:
                self._site.denied(what, "UNAUTHENTICATED", error.message)
            message = (
                "this token is not known here, or no longer valid"
                if authorization
                else "sign in with a token"
            )
            self._answer_text(HTTPStatus.UNAUTHORIZED, message, {"WWW-Authenticate": "Bearer"})
        except Exception:  # noqa: BLE001 - an authenticator that fails admits no caller
            _log.exception("the status page could not tell who asks")
            self._answer_text(
                HTTPStatus.INTERNAL_SERVER_ERROR,
                "it cannot be told who asks; the log has the details",
            )
        return None

    def _host_is_ours(self) -> bool:
        """Whether the browser asked for this host; if not, another site's name points here.

        That is DNS rebinding.
        """
        if not self._site.loopback_only:
            return True
        try:
            host = urlsplit(f"//{self.headers.get('Host', '')}").hostname or ""
        except ValueError:
            return False
        return is_loopback(host)

    def _answer_text(
        self, code: HTTPStatus, message: str, headers: dict[str, str] | None = None
    ) -> None:
        self._send(code, message.encode() + b"\n", "text/plain; charset=utf-8", headers)

    def _send(
        self, code: HTTPStatus, body: bytes, kind: str, headers: dict[str, str] | None = None
    ) -> None:
        self.send_response(code)
        sent = {
            "Content-Type": kind,
            "Content-Length": str(len(body)),
            **_HEADERS,
            **(headers or {}),
        }
        if self.close_connection:
            sent["Connection"] = "close"
        for name, value in sent.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer a request that http.server refuses; its own page would lack our headers."""
        self.close_connection = True
        self._answer_text(HTTPStatus(code), "the request cannot be answered")

    def log_message(self, format: str, *args: Any) -> None:
        _log.debug("%s: %s", self.address_string(), format % args)


def parse_address(address: str) -> tuple[str, int]:
    """Return host and port. Raises: BadRequest."""
    problem = BadRequest(f"the address of the status page must be HOST:PORT, not {address!r}")
    try:
        parts = urlsplit(f"//{address.removeprefix('http://')}")
        host, port = parts.hostname, parts.port
    except ValueError:
        raise problem from None
    if not host or port is None or parts.path.strip("/") or parts.username is not None:
        raise problem
    return host, port
