"""Care that does not wait: neither for those who may still be planning, nor for dead servers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sparkport.spark.care import expired_files, expiry, servers, table_care

__all__ = ["hasten"]


def hasten(patch: Callable[[Any, str, Any], None] = setattr) -> None:
    """Have care do at once what it otherwise does after some seconds."""
    for function in (expiry.expiry_need, expired_files.remove_forgotten):
        defaults = function.__kwdefaults__ or {}
        patch(function, "__kwdefaults__", {**defaults, "planning_seconds": 0.0})
    for module in (servers, table_care):
        patch(module, "IDLE_SECONDS", 0.0)
    patch(servers, "_SILENT_SECONDS", 1.5)
    patch(servers, "_SECONDS_BETWEEN_BEATS", 0.3)
    patch(servers, "_SECONDS_BETWEEN_CHANGES", 0.1)
    patch(servers, "_LATEST_SECONDS", 0.1)
