"""What happens to a function that does not end: by the clock of the one who watches, without waiting for it."""

from __future__ import annotations

import logging
import time

import pytest

from sparkport.catalog import Context
from sparkport.errors import Cancelled
from sparkport.service.watch import Guard


def test_a_call_is_let_go_once_however_long_its_function_stays(caplog: pytest.LogCaptureFixture) -> None:
    ctx, let_go = Context(trace_id="t"), []
    guard = Guard(ctx, "function s.f", None, False, lambda: let_go.append(1))

    def stuck() -> None:
        ctx.cancellation.cancel()
        now = time.monotonic()
        for seconds in (0.0, 1.0, 6.0, 7.0, 60.0):
            guard.look(now + seconds)

    with caplog.at_level(logging.ERROR, "sparkport.service.watch"):
        guard.call(stuck)

    assert let_go == [1]
    assert len(caplog.records) == 1


def test_a_function_that_ends_in_time_is_left_alone() -> None:
    guard = Guard(Context(), "function s.f", 10.0, True, lambda: None)

    def quick() -> int:
        guard.look(time.monotonic() + 9.0)
        return 5

    assert guard.call(quick) == 5


def test_one_that_takes_too_long_is_interrupted_between_two_bytecodes() -> None:
    ctx = Context()
    guard = Guard(ctx, "function s.f", 10.0, True, lambda: None)

    def slow() -> None:
        now = time.monotonic()
        guard.look(now + 11.0)
        assert ctx.cancelled
        guard.look(now + 13.0)
        while True:
            pass

    with pytest.raises(Exception, match=r"function s\.f took longer than 10 seconds and was stopped") as caught:
        guard.call(slow)
    assert not isinstance(caught.value, Cancelled)
