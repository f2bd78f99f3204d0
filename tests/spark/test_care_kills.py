"""Servers that are killed while they take care of a table lose nothing, and leave nothing."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.spark.care_lake import care_process
from tests.spark.care_load import care_of_all, strays
from tests.spark.hastened_care import hasten
from tests.spark.leftovers import staged_files
from tests.spark.places import Place
from tests.spark.remembering_writers import Writer, create_shared, expect_what_was_told

from sparkport.server import Server
from sparkport.spark import LakeCatalog, LakeSettings
from sparkport.spark.jvm.session.source import LakeSource
from sparkport.testing import DuckDBClient

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(900)]

_WRITERS = 8
_SECONDS = 240
_SETTINGS: Mapping[str, Any] = {
    "care": True,
    "care_seconds": 0.1,
    "care_keep_days": 0.0,
    "care_keep_versions": 5,
    "care_most_versions": 10,
    "care_file_seconds": 0.0,
}
_SMALL_FILES = {"joining": 4, "forgetting": 1_000, "removing": 30}
"""How many make it worth to join them. The step in question is to be reached soon."""
_POINTS = {
    "joining": ["after:joined:3", "after:put:3", "during:join_swap:2", "after:join_swap:2"],
    "forgetting": [
        *("after:noted", "before:expiry_swap", "during:expiry_swap", "after:expiry_swap"),
    ],
    "removing": ["before:remove", "during:remove:2", "after:remove:2"],
}
_POINTS_FOR_CI = {
    "joining": ["during:join_swap:2"],
    "forgetting": ["during:expiry_swap"],
    "removing": ["during:remove:2"],
}
"""Each takes two servers. SPARKPORT_TEST_EVERYTHING=1 runs all of the above."""
_EVERYTHING = bool(os.environ.get("SPARKPORT_TEST_EVERYTHING"))


@pytest.mark.parametrize("step", _POINTS)
def test_what_was_acknowledged_is_there_and_no_file_is_left(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    name = f"care_{step}"
    source = place.source(name)
    settings = {**_SETTINGS, "care_small_files": _SMALL_FILES[step]}
    writers = [Writer(number + 1) for number in range(_WRITERS)]
    for turn, point in enumerate(_POINTS[step] if _EVERYTHING else _POINTS_FOR_CI[step]):
        _killed_at(point, turn, source, tmp_path, settings, writers)
    hasten(monkeypatch.setattr)
    with (
        LakeCatalog(source=source, name="lake", settings=LakeSettings(**settings)) as lake,
        Server(lake, "grpc://127.0.0.1:0") as server,
        DuckDBClient(server.location, "lake", timeout=120) as client,
    ):
        expect_what_was_told(writers, client.attach().scan("s", "t", ["k", "v"]))
        care_of_all(lake)
        expect_what_was_told(writers, client.scan("s", "t", ["k", "v"]))
        assert strays(lake) == set()
    assert staged_files(place, name, tmp_path) == []


def _killed_at(
    point: str,
    turn: int,
    source: LakeSource,
    temporary: Path,
    settings: Mapping[str, Any],
    writers: list[Writer],
) -> None:
    """Have two servers, of which the first one leads, and is killed; the other one goes on."""
    ended = threading.Event()
    with ExitStack() as stack:
        victim, first = stack.enter_context(care_process(source, temporary, settings, point))
        if not turn:
            create_shared(first)
        other, second = stack.enter_context(care_process(source, temporary, settings))
        threads = [
            threading.Thread(
                target=each.run,
                args=((first, second)[each.number % 2], random.Random(turn * 100 + each.number)),
                kwargs={"ended": ended},
            )
            for each in writers
        ]
        for thread in threads:
            thread.start()
        try:
            assert victim.wait(_SECONDS) == -9, f"it was not killed {point}"
        finally:
            ended.set()
        for thread in threads:
            thread.join(_SECONDS)
            assert not thread.is_alive(), f"a writer hangs after a kill {point}"
        assert [error for each in writers for error in each.unexpected] == [], point
        with DuckDBClient(second, "lake", timeout=120) as client:
            expect_what_was_told(writers, client.attach().scan("s", "t", ["k", "v"]))
        other.terminate()
        assert other.wait(60) == 0
