"""The server's end of a relay: Spark's workers connect to it, and it forwards their messages.

Strategy: one thread accepts connections and admits those that know a scan's secret. From then on
the thread that serves the client reads the connections of its scan: the next message when the
client has taken the last. Nothing is queued but what the system buffers for a connection, so a slow
client slows its own tasks and nothing grows.

Forwarded messages are counted for each task. When Spark starts a task again, on whatever machine,
the count tells the new attempt where to go on; a message that was received in part is dropped.

A task that waits for its client holds a slot of Spark. When another scan finds none, the scan whose
client has been idle for longest rests, if its tasks can go on later: its job is stopped, and
started again when the client reads on.
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
"""Any free port by default; a firewall between executors and server needs a known one."""
_HELLO_SECONDS = 5.0
"""How long a new connection may take to say hello."""
_MOST_NEWCOMERS = 512
"""How many connections may be without a hello; beyond that the oldest is closed."""
_PULSE = 0.25
"""How long to wait for the rest of a message before checking for a lost client or task."""


class Relay:
    """The address to which the tasks of all scans of a Spark session connect. Thread-safe.

    The caller that made it closes it.
    """

    def __init__(self, host: str, port: int = 0, *, bind: str | None = None) -> None:
        """`host` is the name by which workers reach this machine; `bind`, where to listen.

        Without `bind` that is `host`. Raises: OSError.
        """
        found = socket.getaddrinfo(bind or host, port, type=socket.SOCK_STREAM)[0]
        self._listener = socket.create_server(
            found[4][:2], family=found[0], backlog=_MOST_NEWCOMERS
        )
        self._listener.setblocking(False)
        self._address = (host, self._listener.getsockname()[1])
        self._scans: dict[bytes, RelayedScan] = {}
        self._newcomers: dict[socket.socket, _Newcomer] = {}
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
        """The relay of a Spark session, made on first use. The caller releases it."""
        context = spark.sparkContext
        with _shared_lock:
            relay = _shared.get(context.applicationId)
            if relay is None:
                # Executors that reach the driver reach this address, too.
                host = context.getConf().get("spark.driver.host", "127.0.0.1")
                port = int(context.getConf().get(_PORT_SETTING, "0") or "0")
                relay = cls(
                    host, port, bind=context.getConf().get("spark.driver.bindAddress", host)
                )
                _shared[context.applicationId] = relay
            relay._users += 1
            return relay

    def release(self) -> None:
        """Give the relay back; the last user's release closes it."""
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
        """A scan whose tasks may connect from now on. The caller closes it.

        `title` names it in errors. `deterministic` says that a restarted task makes the same
        messages in the same order.
        """
        outlet = Outlet(*self._address, secrets.token_bytes(16), secrets.token_bytes(32))
        scan = RelayedScan(outlet, title, deterministic, lambda: self._scans.pop(outlet.scan, None))
        self._scans[outlet.scan] = scan
        return scan

    def make_room(self) -> None:
        """Free slots of Spark: have the scan rest whose client has been idle for longest."""
        idle = [
            (scan.idle_since, scan)
            for scan in list(self._scans.values())
            if scan.idle_since is not None
        ]
        for _, scan in sorted(idle, key=lambda each: each[0]):
            if scan.rest():
                return

    def close(self) -> None:
        """Accept no more connections. Running scans go on with the tasks they have."""
        if not self._closed:
            self._closed = True
            self._waker.wake()
            self._thread.join()

    def _serve(self) -> None:
        try:
            while not self._closed:
                # Decided before arrived data is read: if this process stalled, its peers were not
                # late.
                began = time.monotonic()
                overdue = [
                    each for each in self._newcomers.values() if each.since < began - _HELLO_SECONDS
                ]
                patience = 0.0 if overdue else _HELLO_SECONDS if self._newcomers else None
                ready = [key.fileobj for key, _ in self._selector.select(patience)]
                for each in ready:
                    if each is self._listener:
                        self._accept()
                    elif each in self._newcomers:
                        self._listen(self._newcomers[each])
                for newcomer in overdue:
                    if newcomer.connection in self._newcomers:
                        self._forget(newcomer).close()
        finally:
            for newcomer in list(self._newcomers.values()):
                self._forget(newcomer).close()
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
        if len(self._newcomers) >= _MOST_NEWCOMERS:
            self._forget(next(iter(self._newcomers.values()))).close()
        self._newcomers[connection] = _Newcomer(connection)
        self._selector.register(connection, selectors.EVENT_READ)

    def _listen(self, newcomer: _Newcomer) -> None:
        try:
            piece = newcomer.connection.recv(HELLO.size - len(newcomer.said))
        except BlockingIOError:
            return
        except OSError:
            piece = b""
        newcomer.said += piece
        if not piece or not newcomer.said.startswith(MAGIC[: len(newcomer.said)]):
            self._forget(newcomer).close()
        elif len(newcomer.said) == HELLO.size:
            self._admit(self._forget(newcomer), newcomer.said)

    def _forget(self, newcomer: _Newcomer) -> socket.socket:
        del self._newcomers[newcomer.connection]
        self._selector.unregister(newcomer.connection)
        return newcomer.connection

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


class _Newcomer:
    """A connection that has not said its whole hello yet."""

    __slots__ = ("connection", "said", "since")

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.said = b""
        self.since = time.monotonic()
