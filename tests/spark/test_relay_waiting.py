"""Scans that wait: for their turn, a task's next attempt, a client's reading, executors."""

import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from tests.spark.relaying import SOON, Task, frame, greet, is_closed, never

from sparkport.errors import CatalogFault, Conflict
from sparkport.spark.jvm.relay import executors, relayed_scan
from sparkport.spark.jvm.relay.executors import ExecutorWatch
from sparkport.spark.jvm.relay.relay import Relay
from sparkport.spark.jvm.relay.relayed_scan import RelayedScan
from sparkport.spark.jvm.relay.sender import WELCOME

MESSAGES = [b"%d" % each * 100 for each in range(5)]


@pytest.fixture
def relay(_short: None) -> Iterator[Relay]:
    relay = Relay("127.0.0.1")
    yield relay
    relay.close()


@pytest.fixture
def scan(relay: Relay) -> Iterator[RelayedScan]:
    scan = relay.open("table s.t", deterministic=True)
    yield scan
    scan.close()


@pytest.fixture(autouse=True)
def _short(monkeypatch) -> None:
    """Shortens what takes seconds otherwise; for idle clients the tests move the clock."""
    monkeypatch.setattr(relayed_scan, "_LOST", 0.3)
    monkeypatch.setattr(relayed_scan, "_IDLE", 20.0)


@pytest.mark.parametrize("forwarded", [0, 1])
def test_a_lost_task_for_which_others_wait_in_its_place_fails_the_query(relay, forwarded):
    """The others would hold the worker's place until it is done, which it never is without it."""
    scan = relay.open("view s.v", deterministic=False)
    scan.expect(2, ordered=True)
    reading = scan.messages(never)
    later = Task(scan.outlet, 1, MESSAGES)
    with greet(scan.outlet, 0) as first:
        for message in MESSAGES[:forwarded]:
            first.sendall(frame(message))
            assert next(reading) == message

    with pytest.raises(
        Conflict, match=r"view s\.v: a Spark worker was lost .* run the query again"
    ):
        list(reading)
    scan.close()
    assert later.outcome() is not None


def test_a_task_that_comes_back_in_time_has_its_turn(relay, monkeypatch):
    monkeypatch.setattr(relayed_scan, "_LOST", 600.0)
    scan = relay.open("view s.v", deterministic=False)
    scan.expect(2, ordered=True)
    reading = scan.messages(never)
    Task(scan.outlet, 1, [b"later"])
    greet(scan.outlet, 0).close()
    threading.Timer(1.0, Task, (scan.outlet, 0, [b"first"], 2)).start()

    assert list(reading) == [b"first", b"later"]
    scan.close()


def test_what_cannot_go_on_is_tried_again_for_a_while_to_see_why(relay, monkeypatch):
    """The query may have failed, which Spark only knows when all attempts have."""
    monkeypatch.setattr(relayed_scan, "_RETRY", 0.3)
    scan = relay.open("view s.v", deterministic=False)
    scan.expect(1)
    with greet(scan.outlet) as lost:
        lost.sendall(frame(MESSAGES[0]))
        reading = scan.messages(never)
        assert next(reading) == MESSAGES[0]

    with greet(scan.outlet, attempt=2), pytest.raises(Conflict, match="a Spark worker was lost"):
        list(reading)
    scan.close()


def test_rows_that_will_be_of_no_use_are_not_sent_for_long(relay, monkeypatch):
    """The lost task gets no worker until the other is done, which takes for ever."""
    monkeypatch.setattr(relayed_scan, "_RETRY", 0.3)
    scan = relay.open("view s.v", deterministic=False)
    scan.expect(2)
    reading = scan.messages(never)
    with greet(scan.outlet, 0) as lost:
        lost.sendall(frame(MESSAGES[0]))
        assert next(reading) == MESSAGES[0]

    with greet(scan.outlet, 1) as other, pytest.raises(Conflict, match="a Spark worker was lost"):
        endlessly(reading, other)
    scan.close()


def idle_for(seconds: float, *scans: RelayedScan) -> None:
    for scan in scans:
        assert scan.idle_since is not None
        scan.idle_since -= seconds


def endlessly(reading: Iterator[bytes], other: socket.socket) -> None:
    deadline = time.monotonic() + SOON
    while time.monotonic() < deadline:
        other.sendall(frame(MESSAGES[1]))
        assert next(reading) == MESSAGES[1]


def test_an_idle_scan_makes_room_and_goes_on_where_it_stopped(relay, scan):
    stopped = threading.Event()
    scan.stop_tasks = stopped.set
    scan.expect(1)
    connection = greet(scan.outlet)
    connection.sendall(frame(MESSAGES[0]) + frame(MESSAGES[1]))
    reading = scan.messages(never)
    received = [next(reading)]
    idle_for(30, scan)

    relay.make_room()

    assert stopped.is_set()
    connection.recv(WELCOME.size)
    assert is_closed(connection)
    late = greet(scan.outlet, attempt=2)  # it had been about to connect
    assert is_closed(late)
    restarted: list[Task] = []

    def check() -> None:
        if scan.go_on():
            restarted.append(Task(scan.outlet, 0, MESSAGES, attempt=3))

    reading.close()
    received += scan.messages(check)
    assert received == MESSAGES
    assert restarted[0].outcome() is None


def test_only_scans_that_idle_and_can_go_on_make_room(relay, scan):
    unrepeatable = relay.open("view s.v", deterministic=False)
    for each in (scan, unrepeatable):
        each.expect(1)
        Task(each.outlet, 0, MESSAGES)
        assert next(each.messages(never)) == MESSAGES[0]
    assert not scan.rest()  # it has read a moment ago
    idle_for(30, scan, unrepeatable)

    assert not unrepeatable.rest()
    assert scan.rest()
    assert not scan.rest()
    unrepeatable.close()


def test_a_scan_that_has_rested_is_left_alone_for_longer(scan):
    scan.expect(1)
    reading = scan.messages(never)
    for attempt, rests in ((1, True), (2, False)):
        Task(scan.outlet, 0, MESSAGES, attempt)
        next(reading)
        idle_for(30, scan)
        assert scan.rest() is rests
        scan.go_on()


class Cluster:
    """A SparkContext with a number of executors."""

    def __init__(self, executors: int, *, local: bool = False) -> None:
        self.executors = executors
        self._local = local
        self._jsc = self

    def sc(self):
        return self

    def isLocal(self):
        return self._local

    def getExecutorMemoryStatus(self):
        return self

    def size(self):
        return self.executors + 1

    def getConf(self):
        return {"spark.sparkport.executorSeconds": "0.2"}


@pytest.fixture
def often(monkeypatch) -> None:
    monkeypatch.setattr(executors, "_INTERVAL", 0.0)


def test_a_cluster_without_executors_is_told_about_after_a_while(often):
    cluster: Any = Cluster(0)
    watch = ExecutorWatch(cluster, "table s.t")
    watch.check()
    cluster.executors = 1
    watch.check()
    cluster.executors = 0
    began = time.monotonic()

    with pytest.raises(CatalogFault, match=r"table s\.t: Spark has no executor"):
        check_for(watch, SOON)
    assert time.monotonic() - began > 0.2


@pytest.mark.parametrize("cluster", [Cluster(0, local=True), Cluster(1)])
def test_a_spark_that_has_executors_may_take_its_time(often, cluster):
    check_for(ExecutorWatch(cluster, "table s.t"), 0.5)


def check_for(watch: ExecutorWatch, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        watch.check()
        time.sleep(0.01)
