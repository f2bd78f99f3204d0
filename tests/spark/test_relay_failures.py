"""Tasks that are lost, started again, or fail: no row is lost or sent twice."""

import threading
from collections.abc import Iterator

import pytest
from tests.spark.relaying import SOON, Task, arrived, frame, greet, is_closed, never

from sparkport.errors import CatalogFault, Conflict, PreconditionFailed
from sparkport.spark.jvm.relay.relay import Relay
from sparkport.spark.jvm.relay.relayed_scan import RelayedScan
from sparkport.spark.jvm.relay.sender import COMPLETE, ERROR, FRAME, WELCOME, Sender


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


def test_a_new_attempt_goes_on_where_the_last_broke_off(scan):
    scan.expect(1)
    messages = [b"%d" % each * 100 for each in range(5)]
    with greet(scan.outlet) as lost:
        # Two messages, and a part of the third.
        lost.sendall(frame(messages[0]) + frame(messages[1]) + frame(messages[2])[:50])
        reading = scan.messages(never)
        received = [next(reading), next(reading)]

    task = Task(scan.outlet, 0, messages, attempt=2)
    received += reading

    assert received == messages
    assert task.outcome() is None
    assert scan.rows == 50


def test_a_new_attempt_takes_over_while_the_last_is_stuck_in_a_message(scan):
    """This happens when a machine is cut off: its connection lives on for a while."""
    scan.expect(1)
    messages = [b"%d" % each * 100 for each in range(3)]
    stuck = greet(scan.outlet)
    stuck.sendall(frame(messages[0]) + frame(messages[1])[:50])
    reading = scan.messages(never)
    received = [next(reading)]
    tasks: list[Task] = []
    timer = threading.Timer(0.5, lambda: tasks.append(Task(scan.outlet, 0, messages, attempt=2)))
    timer.start()

    received += reading
    timer.join()

    assert received == messages
    assert tasks[0].outcome() is None
    assert stuck.recv(WELCOME.size) == WELCOME.pack(0, 0)
    assert is_closed(stuck)


def test_an_older_attempt_is_refused(scan):
    scan.expect(1)
    with greet(scan.outlet, attempt=7) as newer:
        newer.sendall(frame(b"message"))
        reading = scan.messages(never)
        assert next(reading) == b"message"
        older = Task(scan.outlet, 0, [b"message"], attempt=6)

        def end() -> None:
            older.join(SOON)
            newer.sendall(FRAME.pack(0, 1))

        threading.Thread(target=end, daemon=True).start()

        assert list(reading) == []

    assert isinstance(older.outcome(), ConnectionError)


def test_an_attempt_after_all_was_received_has_nothing_to_do(scan):
    """This happens when the server's last message is lost on its way."""
    scan.expect(2)
    first = Task(scan.outlet, 0, [b"message"])
    reading = scan.messages(never)
    assert next(reading) == b"message"
    threading.Timer(0.2, Task, [scan.outlet, 1, [b"last"]]).start()
    assert next(reading) == b"last"

    with pytest.raises(StopIteration):
        next(reading)
    assert first.outcome() is None
    with greet(scan.outlet, attempt=2) as again:
        arrived(scan)
        scan._welcome_arrivals()
        assert WELCOME.unpack(again.recv(WELCOME.size)) == (COMPLETE, 0)


def test_a_task_is_not_done_until_everything_was_received(scan):
    scan.expect(1)
    task = Task(scan.outlet, 0, [b"message"])
    reading = scan.messages(never)
    next(reading)
    task.join(0.3)

    assert task.is_alive()  # its end has not been read yet
    assert list(reading) == []
    assert task.outcome() is None


def test_a_task_that_ends_without_saying_so_is_not_complete(scan):
    scan.expect(1)
    with greet(scan.outlet) as lost:
        lost.sendall(frame(b"message"))
    received, checked = False, 0

    def check() -> None:
        nonlocal checked
        checked += received
        if checked > 3:
            raise CatalogFault("the job failed")

    reading = scan.messages(check)
    assert next(reading) == b"message"
    received = True
    for _ in range(5):
        threading.Timer(0.1 * _, scan.wake).start()
    with pytest.raises(CatalogFault, match="the job failed"):
        next(reading)
    assert not scan.complete


def test_a_task_that_makes_other_messages_the_second_time_fails_the_query(scan):
    scan.expect(1)
    with greet(scan.outlet) as lost:
        lost.sendall(frame(b"1") + frame(b"2") + frame(b"3"))
        reading = scan.messages(never)
        assert [next(reading) for _ in range(3)] == [b"1", b"2", b"3"]

    Task(scan.outlet, 0, [b"1", b"2"], attempt=2)

    with pytest.raises(
        Conflict, match=r"table s\.t: a Spark task read other rows .* run the query again"
    ):
        next(reading)


def test_without_a_fixed_order_a_lost_task_fails_the_query(relay):
    scan = relay.open("view s.v", deterministic=False)
    scan.expect(1)
    with greet(scan.outlet) as lost:
        lost.sendall(frame(b"message"))
        reading = scan.messages(never)
        assert next(reading) == b"message"

    Task(scan.outlet, 0, [b"message"], attempt=2)

    with pytest.raises(
        Conflict, match=r"view s\.v: a Spark worker was lost .* run the query again"
    ):
        next(reading)
    scan.close()


def test_without_a_fixed_order_a_task_may_start_again_before_anything_was_sent(relay):
    scan = relay.open("view s.v", deterministic=False)
    scan.expect(1)
    greet(scan.outlet).close()
    Task(scan.outlet, 0, [b"message"], attempt=2)

    assert list(scan.messages(never)) == [b"message"]
    scan.close()


def test_an_error_for_the_user_fails_the_query_as_it_is(scan):
    scan.expect(1)

    def fail() -> None:
        with Sender(scan.outlet, 0, 1) as sender:
            sender.send([b"message"], 1)
            sender.fail(PreconditionFailed("table s.t: a file is missing"))

    threading.Thread(target=fail, daemon=True).start()
    reading = scan.messages(never)

    assert next(reading) == b"message"
    with pytest.raises(PreconditionFailed, match=r"^table s\.t: a file is missing$"):
        next(reading)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b'["json", "x"]',
        b'["annotations", "x"]',
        b"1",
        b"\xff",
        b'["BadRequest"]',
        b'[1, "x"]',
    ],
)
def test_an_error_that_cannot_be_read_is_an_error_still(scan, text):
    scan.expect(1)
    with greet(scan.outlet) as task:
        task.sendall(FRAME.pack(ERROR, len(text)) + text)

        with pytest.raises(CatalogFault, match=r"table s\.t: a Spark task failed"):
            next(scan.messages(never))


def test_a_message_beyond_all_measure_is_refused_before_it_is_received(scan):
    scan.expect(1)
    with greet(scan.outlet) as task:
        task.sendall(FRAME.pack(2**40, 1))

        with pytest.raises(CatalogFault, match="too large"):
            next(scan.messages(never))
