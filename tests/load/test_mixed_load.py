"""The mixed load of `tests.load.mixed`, in short."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from tests.load.expected import Expected
from tests.load.mixed import Load, growth
from tests.load.serving import Ground, Watch
from tests.spark.processes import wait_until_ended

from sparkport.spark.lake.liveness import FILES


@pytest.mark.long
@pytest.mark.timeout(300)
def test_32_clients_find_in_memory_what_was_acknowledged(tmp_path):
    load = Load(Ground(tmp_path, lake=False), clients=32, big_rows=10_000)

    def enough() -> bool:
        return (
            load.figures.total > 100
            and load.figures.errors["break a constraint", "FAILED_PRECONDITION"] > 0
        )

    with load.ground.serving() as served:
        load.prepare(served)
        with Watch(served, 0.25) as watch:
            load.run(served, 8, enough=enough)
        load.expect_nothing_wrong()
        load.verify(served)
        text, problems = growth(watch, clients=32)
        assert not problems, text
        assert enough(), load.figures.table()
        assert served.terminate(60) == 0
    load.expect_nothing_wrong()


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.timeout(600)
def test_what_a_lake_has_acknowledged_survives_kill_and_sigterm_under_load(tmp_path):
    environment = {"JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
    ground = Ground(tmp_path, lake=True, flags=["--stop-seconds", "10"], environment=environment)
    load = Load(ground, clients=8, big_rows=5_000)
    with ground.serving() as served:
        load.prepare(served)
        load.run(served, 6, served.kill)
        load.expect_nothing_wrong()
    (java,) = served.java
    wait_until_ended(java)

    with ground.serving() as served:
        load.verify(served)
        codes: list[int] = []
        load.run(
            served,
            4,
            lambda: codes.append(served.terminate(90)),
            enough=lambda: load.figures.total > 40,
        )
        assert codes == [0]
        load.expect_nothing_wrong()
        assert not Path(f"/proc/{served.java[0]}").exists()
    _expect_nothing_staged(tmp_path / "lake")

    with ground.serving() as served:
        load.verify(served)
        assert served.terminate(90) == 0
    load.expect_nothing_wrong()
    assert load.figures.total > 40


def _expect_nothing_staged(warehouse: Path) -> None:
    staging = warehouse / ".staging"
    assert (
        not staging.exists()
        or [each for each in staging.rglob("*") if each.is_file() and each.name not in FILES] == []
    )


def test_the_load_would_notice_rows_that_are_lost_or_strange_or_only_half_of_a_statement():
    assert Expected({1: 0, 2: 5}).compare({1: 0, 2: 5}) is None
    assert "not there: [1]" in (Expected({1: 0, 2: 5}).compare({2: 5}) or "")
    assert "not known: [3]" in (Expected({1: 0}).compare({1: 0, 3: 0}) or "")
    assert "other: [(1, 0, 1)]" in (Expected({1: 0}).compare({1: 1}) or "")
    assert Expected({1: 0}, after={1: 0, 2: 0, 3: 0}).compare({1: 0}) is None
    assert Expected({1: 0}, after={1: 0, 2: 0, 3: 0}).compare({1: 0, 2: 0, 3: 0}) is None
    assert Expected({1: 0}, after={1: 0, 2: 0, 3: 0}).compare({1: 0, 2: 0}) is not None
    cancelled = Expected({1: 0}, perhaps=[(time.monotonic(), {2: 0, 3: 0})])
    assert "half of a statement" in (cancelled.compare({1: 0, 2: 0}) or "")
    assert cancelled.compare({1: 0}) is None
    assert cancelled.compare({1: 0, 2: 0, 3: 0}) is None
    assert cancelled.rows == {1: 0, 2: 0, 3: 0}
    assert cancelled.compare({1: 0}) is not None
