"""The server object: where it listens, how it starts and stops."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import FrameType, TracebackType
from typing import TypeAlias
from urllib.parse import urlsplit

import grpc

from sparkport.builder import CatalogBuilder
from sparkport.catalog import Catalog
from sparkport.errors import BadRequest
from sparkport.server.allocator import keep_freed_memory
from sparkport.server.boundary import flight_handlers
from sparkport.server.threads import ElasticExecutor
from sparkport.service.registry import CatalogRegistry
from sparkport.service.service import Service, ServiceSettings

__all__ = ["Server", "ServerSettings", "serve"]

_log = logging.getLogger("sparkport.server")

Catalogs: TypeAlias = (
    Catalog | CatalogBuilder | Iterable[Catalog | CatalogBuilder] | Mapping[str, Catalog | CatalogBuilder]
)
"""One catalog, several, or several by the name they are served under."""

DEFAULT_LOCATION = "grpc://127.0.0.1:50051"
_HEADER_LIMIT = 1024 * 1024
"""Bytes of one request's headers. The client copies descriptors into one (airport §2.1), and percent-encoded names of
500 emoji exceed gRPC's own limit of 8 KiB."""


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """What an operator may decide about the server."""

    service: ServiceSettings = field(default_factory=ServiceSettings)
    tls_certificate: bytes | None = None
    """PEM chain; needed for `grpc+tls://` locations, together with the key."""
    tls_key: bytes | None = None
    max_concurrent_calls: int = 2000
    """Further calls are refused with RESOURCE_EXHAUSTED. Each takes a thread while it is under way."""
    idle_thread_seconds: float = 10.0
    """A thread that has had no call to serve for so long ends."""
    keepalive_seconds: float = 30.0
    """A connection on which nothing is heard for so long is asked for a sign of life, and closed if there is none."""


class Server:
    """Serves catalogs to Flight clients, DuckDB's airport extension above all.

        with Server(catalog, "grpc://127.0.0.1:0") as server:
            print(server.location)

    Port 0 picks a free one. Catalogs can be added and removed while it runs. All methods may be called from any thread.
    """

    def __init__(
        self,
        catalogs: Catalogs,
        location: str = DEFAULT_LOCATION,
        settings: ServerSettings | None = None,
    ) -> None:
        """Raises: BadRequest for a location or a catalog name that cannot be served."""
        self._settings = settings or ServerSettings()
        self._scheme, self._host, self._port = _parse(location)
        if self._scheme == "grpc+tls" and not (self._settings.tls_certificate and self._settings.tls_key):
            raise BadRequest(f"the location {location!r} needs a TLS certificate and its key")
        self._service = Service(CatalogRegistry(_named(catalogs)), self._settings.service)
        self._executor: ElasticExecutor | None = None
        self._grpc: grpc.Server | None = None

    @property
    def location(self) -> str:
        """Where clients find it; once started, with the port that was picked."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{self._scheme}://{host}:{self._port}"

    @property
    def greeting(self) -> str:
        """One line for the person who has started it; it ends with the SQL to paste."""
        names = [registered.name for registered in self._service.registry.all()]
        attach = [f"ATTACH '{name}' (TYPE airport, LOCATION '{self.location}');" for name in names]
        sql = " ".join(["INSTALL airport FROM community; LOAD airport;", *attach])
        return f"Sparkport serves {', '.join(names)} on {self.location} until Ctrl-C. In DuckDB: {sql}"

    def add_catalog(self, catalog: Catalog | CatalogBuilder, name: str | None = None) -> None:
        """Serve one more catalog, at once. Raises: AlreadyExists, BadRequest."""
        self._service.registry.add(_built(catalog), name)

    def remove_catalog(self, name: str) -> None:
        """Stop serving a catalog; calls under way go on. Raises: NotFound."""
        registered = self._service.registry.remove(name)
        self._service.listing.forget(registered)

    def start(self) -> Server:
        """Begin to listen; returns at once. Raises: OSError when the port cannot be had."""
        if self._grpc is not None:
            raise RuntimeError("the server has been started already")
        self._executor = ElasticExecutor(self._settings.idle_thread_seconds)
        server = grpc.server(
            self._executor,  # type: ignore[arg-type]  # any Executor will do; the stubs name one
            options=_options(self._settings),
            maximum_concurrent_rpcs=self._settings.max_concurrent_calls,
        )
        server.add_generic_rpc_handlers((flight_handlers(self._service),))
        address = f"[{self._host}]:{self._port}" if ":" in self._host else f"{self._host}:{self._port}"
        try:
            key, certificate = self._settings.tls_key, self._settings.tls_certificate
            if self._scheme == "grpc+tls" and key is not None and certificate is not None:
                port = server.add_secure_port(address, grpc.ssl_server_credentials([(key, certificate)]))
            else:
                port = server.add_insecure_port(address)
        except RuntimeError as error:
            tls = ", or the TLS certificate and key are no pair in PEM form" if self._scheme == "grpc+tls" else ""
            raise OSError(
                f"cannot listen on {address}: the port is in use or not allowed, or the host is not this one{tls}"
            ) from error
        self._port = port
        server.start()
        self._grpc = server
        _log.info("serving on %s", self.location)
        return self

    def stop(self, grace: float = 5.0) -> None:
        """Take no more calls, let those under way finish for up to `grace` seconds, then cancel them."""
        server, executor = self._grpc, self._executor
        if server is None or executor is None:
            return
        server.stop(grace).wait()
        executor.shutdown(wait=False, cancel_futures=True)
        self._grpc = self._executor = None

    def wait(self) -> None:
        """Block until the server has stopped."""
        if self._grpc is not None:
            self._grpc.wait_for_termination()

    def run_until_signal(self, announce: Callable[[], None] | None = None) -> None:
        """Start, call `announce`, block until Ctrl-C or SIGTERM, then stop gracefully. Only for the main thread.

        The process is taken to be a server and nothing else, and its memory is managed accordingly.

        Raises: OSError when the port cannot be had.
        """
        keep_freed_memory()
        stopping = threading.Event()

        def stop(_number: int, _frame: FrameType | None) -> None:
            stopping.set()

        # First of all: whoever sees that the server is up may stop it at once.
        previous = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            self.start()
            if announce is not None:
                announce()
            stopping.wait()
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)
            self.stop()

    def __enter__(self) -> Server:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()


def serve(
    catalogs: Catalogs,
    location: str = DEFAULT_LOCATION,
    settings: ServerSettings | None = None,
) -> None:
    """Serve until interrupted (Ctrl-C or SIGTERM), then stop gracefully. Call it from the main thread.

    When the server is ready it prints where it listens, and the SQL to paste into DuckDB.

    Raises: OSError when the port cannot be had; BadRequest for a location or name that cannot be served.
    """
    server = Server(catalogs, location, settings)
    server.run_until_signal(lambda: print(server.greeting, flush=True))  # noqa: T201 - this is a program's main function


def _named(catalogs: Catalogs) -> Iterable[tuple[str, Catalog]]:
    if isinstance(catalogs, Mapping):
        return [(name, _built(each)) for name, each in catalogs.items()]
    several = [catalogs] if isinstance(catalogs, Catalog | CatalogBuilder) else catalogs
    return [(each.name, _built(each)) for each in several]


def _built(catalog: Catalog | CatalogBuilder) -> Catalog:
    return catalog.build() if isinstance(catalog, CatalogBuilder) else catalog


def _parse(location: str) -> tuple[str, str, int]:
    problem = BadRequest(f"the location {location!r} must be of the form grpc://host:port or grpc+tls://host:port")
    try:
        parts = urlsplit(location)
        scheme, host, port = parts.scheme.replace("grpc+tcp", "grpc"), parts.hostname, parts.port
    except ValueError:
        raise problem from None
    if scheme not in ("grpc", "grpc+tls") or not host or port is None or parts.path.strip("/"):
        raise problem
    return scheme, host, port


def _options(settings: ServerSettings) -> list[tuple[str, int]]:
    keepalive = int(settings.keepalive_seconds * 1000)
    return [
        # The protocol has no limit on the size of messages (airport §1.2).
        ("grpc.max_receive_message_length", -1),
        ("grpc.max_send_message_length", -1),
        ("grpc.max_metadata_size", _HEADER_LIMIT),
        ("grpc.absolute_max_metadata_size", _HEADER_LIMIT),
        # A second server on a busy port must fail, not share it.
        ("grpc.so_reuseport", 0),
        ("grpc.keepalive_time_ms", keepalive),
        ("grpc.keepalive_timeout_ms", max(keepalive // 3, 1000)),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.min_ping_interval_without_data_ms", 5000),
        ("grpc.http2.max_ping_strikes", 0),
    ]
