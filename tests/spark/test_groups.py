"""Those who wait for the same thing: whoever is first deals with all that wait."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from sparkport.catalog import Context
from sparkport.errors import Cancelled
from sparkport.spark.lake.groups import Group, Take

_SECONDS = 30


class _Hall:
    """A group whose leaders deal with items only when they are let in."""

    def __init__(self) -> None:
        self.group: Group[str] = Group()
        self.turns: list[Sequence[str]] = []
        self.entered = threading.Semaphore(0)
        self.may_take = threading.Semaphore(0)
        self.has_taken = threading.Semaphore(0)
        self.may_end = threading.Semaphore(0)
        self.error: BaseException | None = None

    def lead(self, take: Take[str]) -> None:
        self.entered.release()
        assert self.may_take.acquire(timeout=_SECONDS)
        self.turns.append(take())
        self.has_taken.release()
        assert self.may_end.acquire(timeout=_SECONDS)
        if self.error is not None:
            error, self.error = self.error, None
            raise error

    def join(self, item: str, ctx: Context | None = None) -> None:
        self.group.join(item, ctx or Context(), self.lead)

    def let_in(self, count: int = 1) -> None:
        self.may_take.release(count)
        self.may_end.release(count)

    def expect_waiting(self, count: int) -> None:
        _until(lambda: len(self.group._waiting) == count)


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _SECONDS
    while not condition():
        assert time.monotonic() < deadline, "it does not happen"
        time.sleep(0.001)


@pytest.fixture
def hall() -> _Hall:
    return _Hall()


def _joining(
    hall: _Hall, threads: ThreadPoolExecutor, *items: str, ctx: Context | None = None
) -> list[Future[None]]:
    """Threads that bring items, in this order."""
    started = []
    for item in items:
        waiting = len(hall.group._waiting)
        started.append(threads.submit(hall.join, item, ctx))
        hall.expect_waiting(waiting + 1)
    return started


def test_a_thread_alone_deals_with_its_own_item(hall: _Hall) -> None:
    hall.let_in(2)
    hall.join("a")
    hall.join("b")
    assert hall.turns == [["a"], ["b"]]


def test_what_comes_while_another_leads_is_dealt_with_together(hall: _Hall) -> None:
    with ThreadPoolExecutor(4) as threads:
        (first,) = _joining(hall, threads, "a")
        hall.may_take.release()
        assert hall.has_taken.acquire(timeout=_SECONDS)
        others = _joining(hall, threads, "b", "c", "d")
        hall.may_end.release()
        first.result(_SECONDS)
        assert not any(each.done() for each in others)
        hall.let_in()
        for each in others:
            each.result(_SECONDS)
    assert hall.turns == [["a"], ["b", "c", "d"]]


def test_what_comes_before_the_leader_takes_is_taken_too(hall: _Hall) -> None:
    with ThreadPoolExecutor(3) as threads:
        all_of_them = _joining(hall, threads, "a", "b", "c")
        hall.let_in()
        for each in all_of_them:
            each.result(_SECONDS)
    assert hall.turns == [["a", "b", "c"]]


def test_an_item_that_is_cancelled_before_it_is_taken_never_is(hall: _Hall) -> None:
    ctx = Context()
    with ThreadPoolExecutor(3) as threads:
        (first,) = _joining(hall, threads, "a")
        (gone,) = _joining(hall, threads, "b", ctx=ctx)
        (last,) = _joining(hall, threads, "c")
        ctx.cancellation.cancel()
        with pytest.raises(Cancelled):
            gone.result(_SECONDS)
        hall.let_in()
        first.result(_SECONDS)
        last.result(_SECONDS)
    assert hall.turns == [["a", "c"]]


def test_an_item_that_is_cancelled_after_it_was_taken_waits_for_its_end(hall: _Hall) -> None:
    ctx = Context()
    with ThreadPoolExecutor(2) as threads:
        (first,) = _joining(hall, threads, "a")
        (taken,) = _joining(hall, threads, "b", ctx=ctx)
        hall.may_take.release()
        assert hall.has_taken.acquire(timeout=_SECONDS)
        ctx.cancellation.cancel()
        with pytest.raises(TimeoutError):
            taken.result(0.05)
        hall.may_end.release()
        first.result(_SECONDS)
        taken.result(_SECONDS)


def test_a_cancelled_leader_still_leads(hall: _Hall) -> None:
    ctx = Context()
    with ThreadPoolExecutor(2) as threads:
        (first,) = _joining(hall, threads, "a", ctx=ctx)
        (other,) = _joining(hall, threads, "b")
        ctx.cancellation.cancel()
        hall.let_in()
        first.result(_SECONDS)
        other.result(_SECONDS)
    assert hall.turns == [["a", "b"]]


def test_a_leader_that_fails_leaves_nobody_waiting(hall: _Hall) -> None:
    hall.error = SystemExit()
    with ThreadPoolExecutor(3) as threads:
        first, other = _joining(hall, threads, "a", "b")
        hall.may_take.release()
        assert hall.has_taken.acquire(timeout=_SECONDS)
        (next_one,) = _joining(hall, threads, "c")
        hall.may_end.release()
        with pytest.raises(SystemExit):
            first.result(_SECONDS)
        other.result(_SECONDS)
        hall.let_in()
        next_one.result(_SECONDS)
    assert hall.turns == [["a", "b"], ["c"]]


def test_a_leader_that_fails_before_it_takes_leaves_the_others_a_leader() -> None:
    group: Group[str] = Group()
    taken: list[Sequence[str]] = []
    entered, may_fail = threading.Event(), threading.Event()

    def failing(take: Take[str]) -> None:
        entered.set()
        assert may_fail.wait(_SECONDS)
        raise RuntimeError("no lock")

    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(group.join, "a", Context(), failing)
        assert entered.wait(_SECONDS)
        other = threads.submit(group.join, "b", Context(), lambda take: taken.append(take()))
        _until(lambda: len(group._waiting) == 2)
        may_fail.set()
        with pytest.raises(RuntimeError):
            first.result(_SECONDS)
        other.result(_SECONDS)
    assert taken == [["b"]]
