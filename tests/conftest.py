"""What holds for the whole run; fixtures live beside the tests that use them."""

from __future__ import annotations

import faulthandler
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings
from tests.rerun import AFTER_THE_LAST_TEST
from xdist.scheduler import LoadFileScheduling

if TYPE_CHECKING:
    from tests.parts.postgres import PostgresServer

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


def pytest_configure() -> None:
    """Have Spark start with the jars of all lakes: a process has one JVM for all its tests."""
    from sparkport.spark.jvm.session.embedded import need_jars
    from sparkport.spark.jvm.session.jars import AWS, POSTGRES, SQLITE

    need_jars((SQLITE, POSTGRES, AWS))


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A real PostgreSQL, which the tests of this process share: each makes its own database."""
    from tests.parts.postgres import postgres_server

    with postgres_server() as server:
        yield server


def pytest_unconfigure() -> None:
    if _waited_for_at_exit():
        faulthandler.dump_traceback_later(30, exit=True)


def _waited_for_at_exit() -> list[str]:
    return [
        thread.name
        for thread in threading.enumerate()
        if thread is not threading.main_thread() and not thread.daemon
    ]


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Begin with the files whose tests may take longest, by their time limits, when several
    processes share the files: those that come last are short, and all processes end together.
    """
    if hasattr(config, "workerinput"):
        limits: dict[Path, float] = {}
        for item in items:
            own = [mark.args[0] for mark in item.iter_markers("timeout")]
            limits[item.path] = max(limits.get(item.path, 0), *own, 0)
        items.sort(key=lambda item: -limits[item.path])


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadFileScheduling:
    """Give each process that is free the next file. Spark starts once in each process, with the
    first test that asks for a lake.
    """
    config.option.loadscopereorder = False  # keep the order of the collection
    return LoadFileScheduling(config, log)
