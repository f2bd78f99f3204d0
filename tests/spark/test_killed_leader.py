"""Many writers with overlapping keys and rows, on servers that are killed while one of them leads.

A writer remembers what it was told. What it was told nothing of may have happened, or not.
"""

from __future__ import annotations

import random
import threading

import pytest
from tests.spark.lake_processes import lake_process
from tests.spark.leftovers import expect_nothing_left
from tests.spark.remembering_writers import Writer, create_shared, expect_what_was_told

from sparkport.testing import DuckDBClient

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(600)]

_WRITERS = 32
_POINTS = ("after:vectors", "after:rows", "before:swap", "during:swap", "after:swap")


def test_what_was_acknowledged_is_there_once_and_what_was_refused_never(place, tmp_path):
    chosen = random.Random()
    source, name = place.source("leader"), "leader"
    writers = [Writer(number + 1) for number in range(_WRITERS)]
    for turn in range(2):
        point = f"{chosen.choice(_POINTS)}:{chosen.randrange(5, 20)}"
        with lake_process(source, tmp_path, point) as (process, location):
            if not turn:
                create_shared(location)
            threads = [
                threading.Thread(
                    target=each.run, args=(location, random.Random(turn * 100 + each.number))
                )
                for each in writers
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(240)
                assert not thread.is_alive(), f"a writer hangs after a kill {point}"
            assert process.wait(60) == -9, point
        assert [error for writer in writers for error in writer.unexpected] == [], point
    with (
        lake_process(source, tmp_path) as (process, location),
        DuckDBClient(location, "lake", timeout=120) as client,
    ):
        client.attach()
        found = client.scan("s", "t", ["k", "v"])
        expect_nothing_left(place, name, tmp_path)
    expect_what_was_told(writers, found)
