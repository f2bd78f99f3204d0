"""What holds for the whole run; fixtures live beside the tests that use them."""

from __future__ import annotations

import faulthandler
import threading
import time
from bisect import bisect
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import settings
from tests.rerun import AFTER_THE_LAST_TEST
from xdist.scheduler import LoadScopeScheduling

# The same examples in every run, and all the time they take: a machine that is shared has its
# pauses.
settings.load_profile("ci")


@pytest.fixture(scope="session", autouse=True)
def _no_thread_outlives_the_run() -> Iterator[None]:
    """Fails the run when a server or pool was not stopped: Python would wait for its threads for
    ever.
    """
    yield
    deadline = time.monotonic() + 30
    while (leaked := _waited_for_at_exit()) and time.monotonic() < deadline:
        time.sleep(0.05)
    if leaked:
        pytest.fail(f"{AFTER_THE_LAST_TEST} threads still run: {', '.join(sorted(leaked))}")


def pytest_unconfigure() -> None:
    if _waited_for_at_exit():
        faulthandler.dump_traceback_later(30, exit=True)


def _waited_for_at_exit() -> list[str]:
    return [
        thread.name
        for thread in threading.enumerate()
        if thread is not threading.main_thread() and not thread.daemon
    ]


class _TogetherByFile(LoadScopeScheduling):
    """Keeps the tests of a file in one process, and those that share the Spark of a process, in
    three parts.
    """

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        folder, _, name = file.rpartition("/")
        if folder != "tests/spark" or name in _SPARKS_OF_THEIR_OWN:
            return file
        return f"{folder} {bisect(_PARTS, name)}"


_SPARKS_OF_THEIR_OWN = (
    "test_cluster.py",
    "test_killed_server.py",
    "test_many_writers.py",
    "test_serve.py",
)
_PARTS = ("test_dml_statements.py", "test_retype.py")
"""A third and two thirds of the time have passed when the tests of Spark come to these files."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling:
    return _TogetherByFile(config, log)
