"""What holds for the whole run; fixtures live beside the tests that use them."""

import faulthandler
import threading
import time
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session", autouse=True)
def _no_thread_outlives_the_run() -> Iterator[None]:
    """Fails the run when a server or pool was not stopped: Python would wait for its threads for ever."""
    yield
    deadline = time.monotonic() + 5
    while (leaked := _waited_for_at_exit()) and time.monotonic() < deadline:
        time.sleep(0.05)
    if leaked:
        pytest.fail(f"threads still run after the last test: {', '.join(sorted(leaked))}")


def pytest_unconfigure() -> None:
    if _waited_for_at_exit():
        faulthandler.dump_traceback_later(10, exit=True)


def _waited_for_at_exit() -> list[str]:
    return [
        thread.name for thread in threading.enumerate() if thread is not threading.main_thread() and not thread.daemon
    ]
