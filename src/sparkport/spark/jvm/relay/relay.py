"""The server's end of a relay: Spark's workers connect to it, and their messages go on to the
client.

Strategy: one thread looks at who connects and lets in those who know a scan's secret. From then on
the thread that serves the client reads the connections of its scan, one message whenever the client
has taken the last. Nothing is queued but what the system buffers for a connection, so a slow client
slows its own tasks and nothing grows.

What was forwarded of each task is counted. When Spark starts a task again, on whatever machine, the
count tells the new attempt where to go on; a message that was received in part is dropped.

A task that waits for its client holds a place on Spark. When another scan finds none, the one whose
client has not read for longest rests, if its tasks can go on later: its job is stopped, and started
again when the client reads on.
"""

from __future__ import annotations

import hmac
import logging
import secrets
import selectors
import socket
import struct
import threading
import time
from typing import TYPE_CHECKING

from sparkport.spark.jvm.relay.relayed_scan import RelayedScan, Waker
from sparkport.spark.jvm.relay.sender import HELLO, MAGIC, Outlet, keep_alive

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Relay"]

_log = logging.getLogger(__name__)

_PORT_SETTING = "spark.sparkport.relayPort"
"""Any free one by default; behind a firewall between executors and server it must be known."""
_HELLO_SECONDS = 5.0
"""How long somebody who has connected may take to say who it is."""
_MOST_STRANGERS = 512
"""How many may be about to say so; beyond that the one that has taken longest goes."""
_PULSE = 0.25
"""How long a message that has begun may pause until we look around: the client may have gone, the
task may be lost.
"""


class Relay:
    """Where the tasks of all scans of a Spark session connect to. Thread-safe. Whoever has made it
    closes it.
    """

    def __init__(self, host: str, port: int = 0, *, bind: str | None = None) -> None:
        """`host` is the name by which workers reach this machine. `bind` is where to listen, when
        that is another.

        Raises: OSError.
        """
        found = socket.getaddrinfo(bind or host, port, type=socket.SOCK_STREAM)[0]
        self._listener = socket.create_server(
            found[4][:2], family=found[0], backlog=_MOST_STRANGERS
        )
        self._listener.setblocking(False)
        self._address = (host, self._listener.getsockname()[1])
        self._scans: dict[bytes, RelayedScan] = {}
        self._strangers: dict[socket.socket, _Stranger] = {}
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._waker = Waker()
        self._selector.register(self._waker, selectors.EVENT_READ)
        self._users = 0
        self._closed = False
        self._thread = threading.Thread(target=self._serve, name="sparkport-relay", daemon=True)
        self._thread.start()

    @classmethod
    def of(cls, spark: SparkSession) -> Relay:
        """The relay of a Spark session, made when it is first asked for. Whoever has asked for it
        releases it.
        """
        context = spark.sparkContext
        with _shared_lock:
            relay = _shared.get(context.applicationId)
            if relay is None:
                # Where executors reach the driver they reach us too.
                host = context.getConf().get("spark.driver.host", "127.0.0.1")
                port = int(context.getConf().get(_PORT_SETTING, "0") or "0")
                relay = cls(
                    host, port, bind=context.getConf().get("spark.driver.bindAddress", host)
                )
                _shared[context.applicationId] = relay
            relay._users += 1
            return relay

    def release(self) -> None:
        """Close it when nobody uses it any more."""
        with _shared_lock:
            self._users -= 1
            if self._users > 0:
                return
            for key in [key for key, each in _shared.items() if each is self]:
                del _shared[key]
        self.close()

    @property
    def address(self) -> tuple[str, int]:
        return self._address

    def open(self, title: str, *, deterministic: bool) -> RelayedScan:
        """A scan whose tasks may connect from now on. Whoever has opened it closes it. `title`
        names it in errors.

        `deterministic` says that a task which is started again makes the same messages in the same
        order.
        """
        outlet = Outlet(*self._address, secrets.token_bytes(16), secrets.token_bytes(32))
        scan = RelayedScan(outlet, title, deterministic, lambda: self._scans.pop(outlet.scan, None))
        self._scans[outlet.scan] = scan
        return scan

    def make_room(self) -> None:
        """For somebody who waits for Spark: have a scan rest whose client does not read, the one
        that has idled longest.
        """
        idle = [
            (scan.idle_since, scan)
            for scan in list(self._scans.values())
            if scan.idle_since is not None
        ]
        for _, scan in sorted(idle, key=lambda each: each[0]):
            if scan.rest():
                return

    def close(self) -> None:
        """Let nobody connect any more. Scans that are under way go on with the tasks they have."""
        if not self._closed:
            self._closed = True
            self._waker.wake()
            self._thread.join()

    def _serve(self) -> None:
        try:
            while not self._closed:
                # Told by the time before what has arrived is read: if this process stood still,
                # nobody else was late.
                began = time.monotonic()
                overdue = [
                    each for each in self._strangers.values() if each.since < began - _HELLO_SECONDS
                ]
                patience = 0.0 if overdue else _HELLO_SECONDS if self._strangers else None
                ready = [key.fileobj for key, _ in self._selector.select(patience)]
                for each in ready:
                    if each is self._listener:
                        self._accept()
                    elif each in self._strangers:
                        self._listen(self._strangers[each])
                for stranger in overdue:
                    if stranger.connection in self._strangers:
                        self._forget(stranger).close()
        finally:
            for stranger in list(self._strangers.values()):
                self._forget(stranger).close()
            self._listener.close()
            self._selector.close()
            self._waker.close()

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except BlockingIOError:
            return
        except OSError:  # out of file descriptors: let others end
            _log.warning("a connection could not be accepted", exc_info=True)
            time.sleep(0.1)
            return
        connection.setblocking(False)
        if len(self._strangers) >= _MOST_STRANGERS:
            self._forget(next(iter(self._strangers.values()))).close()
        self._strangers[connection] = _Stranger(connection)
        self._selector.register(connection, selectors.EVENT_READ)

    def _listen(self, stranger: _Stranger) -> None:
        try:
            piece = stranger.connection.recv(HELLO.size - len(stranger.said))
        except BlockingIOError:
            return
        except OSError:
            piece = b""
        stranger.said += piece
        if not piece or not stranger.said.startswith(MAGIC[: len(stranger.said)]):
            self._forget(stranger).close()
        elif len(stranger.said) == HELLO.size:
            self._admit(self._forget(stranger), stranger.said)

    def _forget(self, stranger: _Stranger) -> socket.socket:
        del self._strangers[stranger.connection]
        self._selector.unregister(stranger.connection)
        return stranger.connection

    def _admit(self, connection: socket.socket, hello: bytes) -> None:
        _, scan_id, secret, task, attempt = HELLO.unpack(hello)
        scan = self._scans.get(scan_id)
        if scan is None or not hmac.compare_digest(scan.outlet.secret, secret):
            connection.close()
            return
        try:
            connection.setblocking(True)
            connection.setsockopt(
                socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 0, int(_PULSE * 1e6))
            )
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            keep_alive(connection)
        except OSError:
            connection.close()
            return
        scan.admit(task, attempt, connection)


_shared: dict[str, Relay] = {}
_shared_lock = threading.Lock()


class _Stranger:
    """Somebody who has connected and not said everything yet."""

    __slots__ = ("connection", "said", "since")

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.said = b""
        self.since = time.monotonic()
