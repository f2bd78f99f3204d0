"""The relay between workers and a client: who is let in, what arrives, and who waits for whom."""

import os
import pickle
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest
from tests.spark.relaying import SOON, Task, arrived, frame, greet, is_closed, never

from sparkport.catalog import Cancellation, Context
from sparkport.errors import Cancelled
from sparkport.spark.jvm.relay import relay as relay_module
from sparkport.spark.jvm.relay.relay import Relay
from sparkport.spark.jvm.relay.relayed_scan import RelayedScan
from sparkport.spark.jvm.relay.sender import FRAME, HELLO, MAGIC, Sender


@pytest.fixture
def relay() -> Iterator[Relay]:
    relay = Relay("127.0.0.1")
    yield relay
    relay.close()


@pytest.fixture
def scan(relay: Relay) -> Iterator[RelayedScan]:
    scan = relay.open("table s.t", deterministic=True)
    yield scan
    scan.close()


def test_all_messages_of_all_tasks_arrive_in_the_order_of_each(scan):
    sent = [[b"%d-%d" % (task, number) * 1000 for number in range(50)] for task in range(5)]
    scan.expect(5)
    tasks = [Task(scan.outlet, index, messages) for index, messages in enumerate(sent)]

    received = list(scan.messages(never))

    assert sorted(received) == sorted(message for messages in sent for message in messages)
    for index, messages in enumerate(sent):
        assert [each for each in received if each.startswith(b"%d-" % index)] == messages
    assert scan.rows == 2500
    assert scan.complete
    assert [task.outcome() for task in tasks] == [None] * 5


def test_a_scan_without_tasks_is_complete(scan):
    scan.expect(0)

    assert list(scan.messages(never)) == []


def test_a_task_may_have_nothing_to_send(scan):
    scan.expect(1)
    task = Task(scan.outlet, 0, [])

    assert list(scan.messages(never)) == []
    assert task.outcome() is None


def test_the_number_of_tasks_may_be_known_late(scan):
    task = Task(scan.outlet, 0, [b"message"])
    threading.Timer(0.2, scan.expect, [1]).start()

    assert list(scan.messages(never)) == [b"message"]
    assert task.outcome() is None


def test_where_order_matters_tasks_wait_for_their_turn(scan):
    sent = [[b"%d-%d" % (task, number) for number in range(5)] for task in range(4)]
    scan.expect(4, ordered=True)
    tasks = []
    for index in (3, 1, 2, 0):
        tasks.append(Task(scan.outlet, index, sent[index]))
        time.sleep(0.05)

    assert list(scan.messages(never)) == [message for messages in sent for message in messages]
    assert [task.outcome() for task in tasks] == [None] * 4


def test_a_message_in_thousands_of_parts_arrives_whole(scan):
    scan.expect(1)
    parts = [b"%5d" % each for each in range(5000)]

    def send() -> None:
        with Sender(scan.outlet, 0, 1) as sender:
            sender.send(parts, 1)
            sender.end()

    threading.Thread(target=send, daemon=True).start()

    assert list(scan.messages(never)) == [b"".join(parts)]


def test_each_attempt_gets_the_properties_of_its_time(scan):
    """Credentials may have expired that an earlier attempt was given."""
    scan.expect(1)
    vended = iter([{"s3.session-token": "first"}, {"s3.session-token": "second"}])
    scan.properties = lambda: next(vended)
    seen = []

    def attempt(number: int) -> None:
        with Sender(scan.outlet, 0, number) as sender:
            seen.append(sender.properties)
            sender.send([b"message"], 1)
            if number == 2:
                sender.end()

    def run() -> None:
        attempt(1)
        attempt(2)

    threading.Thread(target=run, daemon=True).start()

    assert list(scan.messages(never)) == [b"message"]
    assert seen == [{"s3.session-token": "first"}, {"s3.session-token": "second"}]


def test_large_messages_arrive_whole(scan):
    scan.expect(1)
    message = bytes(range(256)) * 80_000
    task = Task(scan.outlet, 0, [message] * 3)

    assert list(scan.messages(never)) == [message] * 3
    assert task.outcome() is None


@pytest.mark.parametrize(
    "changes", [{"secret": bytes(32)}, {"scan": bytes(16)}], ids=["secret", "scan"]
)
def test_who_does_not_know_the_secret_is_refused(scan, changes):
    scan.expect(1)

    assert is_closed(greet(scan.outlet, **changes))

    task = Task(scan.outlet, 0, [b"message"])
    assert list(scan.messages(never)) == [b"message"]
    assert task.outcome() is None


def test_the_secret_of_one_scan_opens_no_other(relay, scan):
    other = relay.open("table s.other", deterministic=True)

    assert is_closed(greet(scan.outlet, secret=other.outlet.secret))
    other.close()


@pytest.mark.parametrize(
    "hello", [b"GET / HTTP/1.1\r\n\r\n", MAGIC[:-1] + b"2" + bytes(60), b"\x16\x03\x01"]
)
def test_other_protocols_are_refused_at_once(scan, hello):
    with socket.create_connection((scan.outlet.host, scan.outlet.port)) as connection:
        connection.sendall(hello)

        assert is_closed(connection)


def test_strangers_that_say_nothing_are_dropped_and_keep_nobody_out(relay, scan, monkeypatch):
    monkeypatch.setattr(relay_module, "_HELLO_SECONDS", 600.0)
    monkeypatch.setattr(relay_module, "_MOST_NEWCOMERS", 5)
    scan.expect(1)
    idle = [socket.create_connection(relay.address) for _ in range(20)]
    idle[-1].sendall(MAGIC)

    task = Task(scan.outlet, 0, [b"message"])

    assert list(scan.messages(never)) == [b"message"]
    assert task.outcome() is None
    monkeypatch.setattr(relay_module, "_HELLO_SECONDS", 0.5)
    idle.append(socket.create_connection(relay.address))  # this makes the relay look at the clock
    assert all(is_closed(each) for each in idle)


def test_a_hello_may_come_in_pieces(relay, scan):
    scan.expect(1)
    outlet = scan.outlet
    hello = HELLO.pack(MAGIC, outlet.scan, outlet.secret, 0, 1)
    with socket.create_connection(relay.address) as connection:
        for index in range(len(hello)):
            connection.sendall(hello[index : index + 1])
        connection.sendall(frame(b"message") + FRAME.pack(0, 1))

        assert list(scan.messages(never)) == [b"message"]


def cancelled_soon(after: float) -> tuple[Callable[[], None], Callable[[RelayedScan], None]]:
    """The check of a client that goes away, and what starts the clock."""
    ctx = Context(cancellation=Cancellation())

    def start(scan: RelayedScan) -> None:
        ctx.on_cancel(scan.wake)
        threading.Timer(after, ctx.cancellation.cancel).start()

    return ctx.check, start


def test_cancelling_ends_the_wait_for_the_first_task(scan):
    check, start = cancelled_soon(0.2)
    scan.expect(1)
    start(scan)
    began = time.monotonic()

    with pytest.raises(Cancelled):
        next(scan.messages(check))

    assert time.monotonic() - began < SOON


def test_cancelling_ends_the_wait_for_the_rest_of_a_message(scan):
    check, start = cancelled_soon(0.2)
    scan.expect(1)
    with greet(scan.outlet) as task:
        task.sendall(frame(bytes(1000))[:500])
        start(scan)
        began = time.monotonic()

        with pytest.raises(Cancelled):
            next(scan.messages(check))

    assert time.monotonic() - began < SOON


def test_closing_the_scan_ends_its_tasks(relay):
    scan = relay.open("table s.t", deterministic=True)
    scan.expect(2)
    sending = Task(scan.outlet, 0, [bytes(1_000_000)] * 100)
    reading = scan.messages(never)
    next(reading)
    waiting = Task(scan.outlet, 1, [])
    arrived(scan)

    reading.close()
    scan.close()

    assert isinstance(sending.outcome(), OSError)
    assert isinstance(waiting.outcome(), OSError)
    late = Task(scan.outlet, 1, [], attempt=2)
    assert isinstance(late.outcome(), OSError)
    scan.wake()  # a task that learns late that the scan is over


def test_a_task_learns_between_messages_that_nobody_listens(relay):
    scan = relay.open("table s.t", deterministic=True)
    scan.expect(1)
    ready, ended = threading.Event(), threading.Event()

    def work() -> None:
        with Sender(scan.outlet, 0, 1) as sender:
            sender.send([b"message"], 1)
            sender.check()
            ready.set()
            with suppress(ConnectionError):
                while True:
                    sender.check()
                    time.sleep(0.01)
            ended.set()

    threading.Thread(target=work, daemon=True).start()
    next(scan.messages(never))
    assert ready.wait(SOON)
    scan.close()

    assert ended.wait(SOON)


def test_a_client_that_stalls_stalls_its_tasks(scan):
    """What is under way is in the system's buffers; the relay collects nothing."""
    scan.expect(2)
    progress = [0, 0]

    def send(index: int) -> None:
        with suppress(OSError), Sender(scan.outlet, index, 1) as sender:
            for _ in range(1000):
                sender.send([bytes(1_000_000)], 1)
                progress[index] += 1

    for index in range(2):
        threading.Thread(target=send, args=[index], daemon=True).start()
    next(scan.messages(never))
    deadline, stalled = time.monotonic() + SOON, False
    while not stalled and time.monotonic() < deadline:
        before = list(progress)
        time.sleep(0.5)
        stalled = progress == before

    assert stalled
    assert max(progress) < 100


def test_the_address_and_the_secret_are_all_that_is_pickled(scan):
    assert pickle.loads(pickle.dumps(scan.outlet)) == scan.outlet
    assert len(pickle.dumps(scan.outlet)) < 400
    assert repr(scan.outlet.secret) not in repr(scan.outlet)


def test_scans_leave_nothing_behind(relay):
    descriptors = _open_files()
    for _ in range(50):
        scan = relay.open("table s.t", deterministic=True)
        scan.expect(1)
        task = Task(scan.outlet, 0, [b"message"])
        assert list(scan.messages(never)) == [b"message"]
        scan.close()
        assert task.outcome() is None

    assert relay._scans == {}
    assert _open_files() <= descriptors + 2


def _open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_a_closed_relay_accepts_nobody():
    relay = Relay("127.0.0.1")
    idle = socket.create_connection(relay.address)
    relay.close()
    relay.close()

    assert is_closed(idle)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(relay.address, 1)
