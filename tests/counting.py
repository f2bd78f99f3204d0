"""How much Python something runs: what a test can say of speed on a machine that is shared."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def lines_run(function: Callable[[], object]) -> int:
    """The lines of Python that a call runs in this thread; a loop counts each turn."""
    lines = 0

    def trace(_frame: FrameType, event: str, _argument: Any) -> Any:
        nonlocal lines
        lines += event == "line"
        return trace

    before, collecting = sys.gettrace(), gc.isenabled()
    gc.disable()  # a collection would run the callbacks of what others have left behind
    sys.settrace(trace)
    try:
        function()
    finally:
        sys.settrace(before)
        if collecting:
            gc.enable()
    return lines
