"""The executor: a thread for each task at once, and none that stay."""

from __future__ import annotations

import gc
import threading
import time
import weakref

import pytest

from sparkport.server.threads import ElasticExecutor

SOON = 30.0


def eventually(condition, timeout: float = SOON) -> bool:
    """Whether a condition becomes true in time; it is polled."""
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def test_tasks_that_wait_for_each_other_all_run():
    executor = ElasticExecutor(idle_seconds=0.1)
    barrier = threading.Barrier(200)

    futures = [executor.submit(barrier.wait, SOON) for _ in range(200)]

    assert sorted(future.result(SOON) for future in futures) == list(range(200))
    assert eventually(lambda: len(executor.threads) == 0)


def test_an_idle_thread_is_used_again():
    executor = ElasticExecutor(idle_seconds=SOON)
    used = set()
    for _ in range(50):
        used.add(executor.submit(threading.current_thread).result(SOON).name)
        assert eventually(lambda: executor._idle == 1)

    assert len(used) == 1
    executor.shutdown()
    assert len(executor.threads) == 0


def test_a_task_that_meets_a_thread_about_to_end_is_not_lost():
    executor = ElasticExecutor(idle_seconds=0.001)

    for _ in range(500):
        assert executor.submit(lambda: 42).result(SOON) == 42

    assert eventually(lambda: len(executor.threads) == 0)


def test_an_error_belongs_to_whoever_waits_for_the_result():
    executor = ElasticExecutor(idle_seconds=0.1)

    for error in (ValueError, SystemExit):
        with pytest.raises(error):
            executor.submit(_raise, error).result(SOON)
    assert executor.submit(lambda: 42).result(SOON) == 42


def _raise(error):
    raise error


def test_an_idle_thread_holds_nothing_of_its_last_task():
    class Payload:
        pass

    executor = ElasticExecutor(idle_seconds=SOON)
    payload = Payload()
    gone = weakref.ref(payload)

    executor.submit(lambda _: None, payload).result(SOON)
    del payload

    assert eventually(lambda: gc.collect() >= 0 and gone() is None)
    executor.shutdown()


def test_a_closed_executor_takes_no_tasks():
    executor = ElasticExecutor()
    executor.shutdown()

    with pytest.raises(RuntimeError, match="shut down"):
        executor.submit(print)
