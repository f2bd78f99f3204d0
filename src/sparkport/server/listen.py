"""The server object: where it listens, how it starts and stops."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType

import grpc

from sparkport.builder import CatalogBuilder
from sparkport.catalog import Catalog
from sparkport.errors import BadRequest
from sparkport.server.allocator import keep_freed_memory
from sparkport.server.door import Door
from sparkport.server.flight import flight_methods
from sparkport.server.health import Health
from sparkport.server.http import StatusServer, parse_address
from sparkport.server.observability import Watching
from sparkport.server.options import (
    Catalogs,
    built_catalog,
    grpc_options,
    named_catalogs,
    parse_location,
)
from sparkport.server.settings import ServerSettings
from sparkport.server.threads import ElasticExecutor, join_all
from sparkport.server.tls import Certificates, server_credentials
from sparkport.service.registry import CatalogRegistry
from sparkport.service.service import Service

__all__ = ["Server", "serve"]

_log = logging.getLogger("sparkport.server")

_LAST_WORDS_SECONDS = 0.5
"""For the last messages of ended calls to reach their clients."""
_ROLL_BACK_SECONDS = 5.0
_LAST_THREADS_SECONDS = 5.0
_LOOK_FOR_SIGNALS_SECONDS = 0.5

DEFAULT_LOCATION = "grpc://127.0.0.1:50051"


class Server:
    """Serves catalogs to Flight clients, above all to DuckDB's airport extension.

        with Server(catalog, "grpc://127.0.0.1:0") as server:
            print(server.location)

    Port 0 picks a free port. Catalogs can be added and removed while it runs. All methods may be
    called from any thread.
    """

    def __init__(
        self,
        catalogs: Catalogs,
        location: str = DEFAULT_LOCATION,
        settings: ServerSettings | None = None,
    ) -> None:
        """Check the location and the catalogs; `start` begins to listen.

        Raises: BadRequest for an address or a catalog name that cannot be served.
        """
        self._settings = settings or ServerSettings()
        self._scheme, self._host, self._port = parse_location(location)
        if self._settings.http is not None:
            parse_address(self._settings.http)
        if self._scheme == "grpc+tls" and not (
            self._settings.tls_certificate and self._settings.tls_key
        ):
            raise BadRequest(f"the location {location!r} needs a TLS certificate and its key")
        self._service = Service(CatalogRegistry(named_catalogs(catalogs)), self._settings)
        self._executor: ElasticExecutor | None = None
        self._grpc: grpc.Server | None = None
        self._watching: Watching | None = None
        self._health: Health | None = None
        self._door: Door | None = None
        self._http: StatusServer | None = None
        self._polling: list[threading.Thread] = []
        self._starting_or_stopping = threading.Lock()

    @property
    def location(self) -> str:
        """The URI for clients; once started, with the port that was picked."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{self._scheme}://{host}:{self._port}"

    @property
    def greeting(self) -> str:
        """A line for the person who has started the server, with the SQL to paste."""
        names = [registered.name for registered in self._service.registry.all()]
        token = "" if self._settings.authenticate is None else ", auth_token '<your token>'"
        attach = [
            f"ATTACH '{name}' (TYPE airport, LOCATION '{self.location}'{token});" for name in names
        ]
        sql = " ".join(["INSTALL airport FROM community; LOAD airport;", *attach])
        return (
            f"Sparkport serves {', '.join(names)} on {self.location} until Ctrl-C. In DuckDB: {sql}"
        )

    @property
    def status_page(self) -> str | None:
        """The address of the status page; None without one, or before the start."""
        http = self._http
        return None if http is None else http.address

    def add_catalog(self, catalog: Catalog | CatalogBuilder, name: str | None = None) -> None:
        """Serve another catalog at once. Raises: AlreadyExists, BadRequest."""
        self._service.registry.add(built_catalog(catalog), name)

    def remove_catalog(self, name: str) -> None:
        """Stop serving a catalog; running calls go on. Raises: NotFound."""
        registered = self._service.registry.remove(name)
        self._service.listing.forget(registered)

    def start(self) -> Server:
        """Begin to listen; returns at once.

        Raises: OSError when a port cannot be had; BadRequest when the audit log cannot be written.
        """
        with self._starting_or_stopping:
            if self._grpc is not None:
                raise RuntimeError("the server has been started already")
            self._start()
        _log.info("serving on %s", self.location)
        return self

    def _start(self) -> None:
        settings = self._settings
        watching = Watching(
            self._service, idle_seconds=settings.idle_seconds, audit_file=settings.audit_file
        )
        health, executor = Health(), ElasticExecutor(settings.idle_thread_seconds)
        server = grpc.server(
            executor,  # type: ignore[arg-type]  # any Executor will do; the stubs name one
            options=grpc_options(settings.keepalive_seconds, settings.max_message_bytes),
        )
        methods = flight_methods(self._service)
        door = Door(self._service, watching, methods, settings.max_calls)
        watching.doorsteps += [door.doorstep, health.doorstep]
        server.add_generic_rpc_handlers((door, health.handlers()))
        asked_for = self._port
        try:
            self._port = self._listen(server)
            if settings.http is not None:
                self._http = StatusServer(settings.http, self._service, watching, self.location)
        except BaseException:
            watching.draining = True
            server.start()  # a server that was never started would keep its port
            server.stop(None).wait()
            watching.stop()
            door.close()
            executor.shutdown(wait=False)
            self._port = asked_for
            raise
        watching.start()
        self._polling = _threads_of(server.start)
        self._grpc, self._executor, self._watching, self._health = (
            server,
            executor,
            watching,
            health,
        )
        self._door = door

    def _listen(self, server: grpc.Server) -> int:
        """Bind the port and return it. Raises: OSError."""
        settings = self._settings
        address = (
            f"[{self._host}]:{self._port}" if ":" in self._host else f"{self._host}:{self._port}"
        )
        key, certificate = settings.tls_key, settings.tls_certificate
        try:
            if self._scheme == "grpc+tls" and key is not None and certificate is not None:
                credentials = server_credentials(
                    Certificates(certificate, key, settings.tls_client_ca)
                )
                return server.add_secure_port(address, credentials)
            return server.add_insecure_port(address)
        except RuntimeError as error:
            tls = (
                ", or the TLS certificate and key are no pair in PEM form"
                if self._scheme == "grpc+tls"
                else ""
            )
            raise OSError(
                f"cannot listen on {address}: the port is in use or not allowed, or the host is "
                f"not this one{tls}"
            ) from error

    def stop(self, grace: float = 5.0, hurry: Callable[[], bool] = lambda: False) -> None:
        """Take no more calls; cancel running calls after `grace` seconds.

        From the beginning health is NOT_SERVING, and new calls are answered UNAVAILABLE. When
        `hurry` returns True, running calls are cancelled at once.
        """
        with self._starting_or_stopping:
            server, executor, watching, health = (
                self._grpc,
                self._executor,
                self._watching,
                self._health,
            )
            door = self._door
            if (
                server is None
                or executor is None
                or watching is None
                or health is None
                or door is None
            ):
                return
            watching.draining = True
            health.stop_serving()
            if not watching.activity.wait_until_idle(grace, hurry):
                for work in watching.activity.running():
                    _log.info(
                        "trace %s: %s is cancelled: the server stops", work.trace_id, work.rpc
                    )
                    work.cut("the server was stopped")
            health.close()
            server.stop(_LAST_WORDS_SECONDS).wait()
            # Cancelled calls roll back what they have staged, before the catalogs are closed.
            if not watching.activity.wait_until_idle(_ROLL_BACK_SECONDS):
                _log.warning(
                    "%d calls do not end although they were cancelled",
                    len(watching.activity.running()),
                )
            if self._http is not None:
                self._http.close()
            watching.stop()
            door.close()
            threads = [*self._polling, *executor.threads]
            executor.shutdown(wait=False, cancel_futures=True)
            # Threads that outlive Python make C++ abort the process.
            join_all(threads, _LAST_THREADS_SECONDS)
            self._grpc = self._executor = self._watching = self._health = self._door = (
                self._http
            ) = None

    def wait(self) -> None:
        """Block until the server has stopped."""
        server = self._grpc
        if server is not None:
            server.wait_for_termination()

    def run_until_signal(self, announce: Callable[[], None] | None = None) -> None:
        """Start, call `announce`, wait for Ctrl-C or SIGTERM, and stop gracefully.

        Only for the main thread of a process that does nothing but serve: its memory is managed
        accordingly.

        Raises: OSError when the port cannot be had.
        """
        keep_freed_memory()
        stopping, hurry = threading.Event(), threading.Event()

        def stop(_number: int, _frame: FrameType | None) -> None:
            (hurry if stopping.is_set() else stopping).set()

        # First of all: a signal may come as soon as the server is up.
        previous = {
            number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)
        }
        try:
            self.start()
            if announce is not None:
                announce()
            # A signal that comes just before a wait is noticed only after it, so the wait is short.
            while not stopping.wait(_LOOK_FOR_SIGNALS_SECONDS):
                pass
            _log.info("stopping; calls under way may finish for %g s", self._settings.stop_seconds)
        finally:
            try:
                self.stop(self._settings.stop_seconds, hurry.is_set)
            finally:
                for number, handler in previous.items():
                    signal.signal(number, handler)

    def __enter__(self) -> Server:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()


def _threads_of(start: Callable[[], None]) -> list[threading.Thread]:
    """Return the threads in which gRPC waits for events: gRPC itself does not expose them."""
    before = set(threading.enumerate())
    start()
    return [
        thread
        for thread in threading.enumerate()
        if thread not in before and thread.name.endswith("(_serve)")
    ]


def serve(
    catalogs: Catalogs,
    location: str = DEFAULT_LOCATION,
    settings: ServerSettings | None = None,
) -> None:
    """Serve until Ctrl-C or SIGTERM, then stop gracefully. Call it from the main thread.

    When the server is ready, it prints its location and the SQL to paste into DuckDB.

    Raises: OSError when the port cannot be had; BadRequest for a location or name that cannot be
    served.
    """
    server = Server(catalogs, location, settings)
    server.run_until_signal(lambda: print(server.greeting, flush=True))  # noqa: T201 - this is a program's main function
