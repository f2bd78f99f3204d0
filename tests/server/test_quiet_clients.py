"""Calls that the server cuts off because their client is silent, by a clock that tests move."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

import sparkport as sp
from sparkport.server.observability import Watching
from sparkport.service import activity
from sparkport.service.activity import Work

LIMIT = 60.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    clock = SimpleNamespace(now=1000.0)
    monkeypatch.setattr(activity, "_monotonic", lambda: clock.now)
    return clock


@pytest.fixture
def watching() -> Watching:
    """A `Watching` whose thread does not run."""
    return Watching(sp.Server(sp.MemoryCatalog("m"))._service, idle_seconds=LIMIT, audit_file=None)


def begun(watching: Watching, rpc: str, session: str = "s") -> Work:
    work = Work(rpc, session=session)
    watching.begin(work)
    return work


def cut_off(watching: Watching, *, stood_still: bool = False) -> list[Work]:
    watching._cut_off_idle(stood_still=stood_still)
    return [work for work in watching.activity.running() if work.cut_off]


def test_an_exchange_has_its_full_time_after_the_scan_that_its_client_was_waiting_for(
    clock, watching
):
    exchange, scan = begun(watching, "DoExchange"), begun(watching, "DoGet")
    exchange.start_waiting()
    clock.now += 2 * LIMIT
    assert cut_off(watching) == []

    watching.end(scan)
    clock.now += LIMIT - 1
    assert cut_off(watching) == []
    clock.now += 2
    assert cut_off(watching) == [exchange]


def test_a_scan_that_takes_less_than_the_limit_costs_the_exchange_nothing_either(clock, watching):
    exchange, scan = begun(watching, "DoExchange"), begun(watching, "DoGet")
    exchange.start_waiting()
    clock.now += LIMIT - 1
    assert cut_off(watching) == []
    watching.end(scan)
    clock.now += 2
    assert cut_off(watching) == []


def test_calls_of_others_are_no_excuse(clock, watching):
    exchange = begun(watching, "DoExchange")
    begun(watching, "DoGet", session="another")
    begun(watching, "DoGet", session="")
    exchange.start_waiting()
    clock.now += LIMIT + 1
    assert cut_off(watching) == [exchange]


def test_two_that_are_quiet_do_not_excuse_each_other(clock, watching):
    both = [begun(watching, "DoExchange"), begun(watching, "DoExchange")]
    both[0].start_waiting()
    clock.now += LIMIT / 2
    both[1].start_waiting()
    for _ in range(10):
        clock.now += LIMIT / 4
        cut_off(watching)
    assert cut_off(watching) == both


def test_nobody_is_cut_off_for_time_in_which_the_server_itself_stood_still(clock, watching):
    scan = begun(watching, "DoGet")
    scan.note_sending(b"")
    clock.now += 2 * LIMIT
    assert cut_off(watching, stood_still=True) == []
    clock.now += LIMIT + 1
    assert cut_off(watching) == [scan]
