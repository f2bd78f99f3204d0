"""What happens to a function that does not end, by a clock that need not be waited for."""

from __future__ import annotations

import logging
import threading
import time
from types import SimpleNamespace

import pytest

from sparkport.catalog import Context
from sparkport.errors import Cancelled, LimitExceeded
from sparkport.service import function_guard
from sparkport.service.function_guard import FunctionGuard, FunctionWatch


def test_a_call_is_let_go_once_however_long_its_function_stays(
    caplog: pytest.LogCaptureFixture,
) -> None:
    ctx, let_go = Context(trace_id="t"), []
    guard = FunctionGuard(
        ctx, "function s.f", None, False, lambda: let_go.append(1), time.monotonic
    )

    def stuck() -> None:
        ctx.cancellation.cancel()
        now = time.monotonic()
        for seconds in (0.0, 1.0, 6.0, 7.0, 60.0):
            guard.look(now + seconds)

    with caplog.at_level(logging.ERROR, "sparkport.service.function_guard"):
        guard.call(stuck)

    assert let_go == [1]
    assert [each.name for each in caplog.records].count("sparkport.service.function_guard") == 1


def test_a_function_that_ends_in_time_is_left_alone() -> None:
    guard = FunctionGuard(Context(), "function s.f", 10.0, True, lambda: None, time.monotonic)

    def quick() -> int:
        guard.look(time.monotonic() + 9.0)
        return 5

    assert guard.call(quick) == 5


def test_one_that_takes_too_long_is_interrupted_between_two_bytecodes() -> None:
    ctx = Context()
    guard = FunctionGuard(ctx, "function s.f", 10.0, True, lambda: None, time.monotonic)

    def slow() -> None:
        now = time.monotonic()
        guard.look(now + 11.0)
        assert ctx.cancelled
        guard.look(now + 13.0)
        while True:
            pass

    with pytest.raises(
        Exception, match=r"function s\.f took longer than 10 seconds and was stopped"
    ) as caught:
        guard.call(slow)
    assert not isinstance(caught.value, Cancelled)


def test_what_ends_too_late_by_itself_has_taken_too_long_all_the_same() -> None:
    ctx = Context()
    guard = FunctionGuard(ctx, "function s.f", 10.0, True, lambda: None, time.monotonic)

    def slow() -> int:
        guard.look(time.monotonic() + 10.5)
        return 5

    with pytest.raises(
        LimitExceeded, match=r"function s\.f took longer than 10 seconds and was stopped"
    ):
        guard.call(slow)


def test_nobody_is_blamed_for_time_in_which_the_process_stood_still(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As when the machine is suspended or busy: a round of the watching thread takes a minute."""
    looked, stood = threading.Event(), threading.Event()
    jump = 0.0
    clock = time.monotonic

    def sleep(seconds: float) -> None:
        nonlocal jump
        looked.set()
        time.sleep(seconds)
        if not stood.is_set():
            jump = 60.0
            stood.set()

    monkeypatch.setattr(
        function_guard, "time", SimpleNamespace(monotonic=lambda: clock() + jump, sleep=sleep)
    )
    with FunctionWatch().guard(Context(), "function s.f", 30.0) as guard:

        def slow() -> int:
            assert looked.wait(30)
            assert stood.wait(30)
            looked.clear()
            assert looked.wait(30), "the watch has looked again"
            return 5

        assert guard.call(slow) == 5
