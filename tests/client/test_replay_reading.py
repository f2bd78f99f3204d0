"""Every recorded statement of the real client that reads or calls, replayed on memory.

The requests are the recorded ones (`replay/README.md`); the replies are read as strictly as DuckDB
reads them, and DuckDB's result equals the recorded result. Where the recording server behaved
otherwise than a server should, or answered in a shape that was being tried out, the scenario says
so.
"""

from __future__ import annotations

import base64
import datetime
import re
import uuid
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from tests.client.replay.expected import AT
from tests.client.replay.reading import SCENARIOS, ReadingScenario, Rows, memory
from tests.client.replay.recording import Step, load
from tests.client.replay.replayer import Outcome, Replayer
from tests.client.replay.tables import SlowTable

from sparkport.server import Server
from sparkport.testing import DuckDBClient

BY_NAME = {scenario.name: scenario for scenario in SCENARIOS}


@pytest.mark.parametrize("name", BY_NAME)
def test_recorded_calls_get_right_answers(name: str, tmp_path: Path) -> None:
    scenario, recording = BY_NAME[name], load(name)
    catalogs = scenario.catalogs(tmp_path)
    attached = catalogs[0].name
    with (
        Server({catalog.name: catalog for catalog in catalogs}, "grpc://127.0.0.1:0") as server,
        DuckDBClient(server.location, attached, timeout=60) as other,
        closing(Replayer(server.location, attached, _omissions(scenario))) as replayer,
    ):
        scenario.prepare(other)
        seen: Counter[str] = Counter()
        for step in recording.steps:
            seen[step.sql] += 1
            label = step.sql if seen[step.sql] == 1 else f"{step.sql} #{seen[step.sql]}"
            _check(scenario, label, step, replayer.run(step))


def test_a_scan_that_the_recorded_client_dropped_is_stopped() -> None:
    for step in load("interrupt_scan").steps[:2]:
        slow = SlowTable("slow", pa.schema([("id", pa.int32()), ("name", pa.string())]))
        with (
            Server(memory({"slow": slow}), "grpc://127.0.0.1:0") as server,
            closing(
                Replayer(server.location, "cat", _omissions(BY_NAME["interrupt_scan"]))
            ) as replayer,
        ):
            assert replayer.run(step).error is None
            assert slow.stopped.wait(60), step.sql


def _omissions(
    scenario: ReadingScenario,
) -> Callable[[str, pa.Schema, Mapping[str, pa.Table]], pa.Table]:
    def made(sql: str, schema: pa.Schema, scanned: Mapping[str, pa.Table]) -> pa.Table:
        with duckdb.connect() as database:
            table = database.sql(scenario.sources[sql]).to_arrow_table()
        return table.rename_columns(schema.names).cast(schema)

    return made


def _check(scenario: ReadingScenario, label: str, step: Step, outcome: Outcome) -> None:
    error = outcome.error
    refusal = scenario.refused.get(label)
    assert (None if error is None else (error.code, error.duckdb_exception)) == refusal, (
        f"{label}: {error}"
    )
    if error is not None:
        return
    if step.refused_by_server:
        assert label in scenario.accepted, f"{label} was refused when it was recorded: {step.error}"
        return
    due = scenario.other_result.get(label)
    if due is None:
        due = None if step.rows is None else [[_plain(value) for value in row] for row in step.rows]
    if due is None or not (outcome.answered or outcome.computed or outcome.scanned):
        return  # DuckDB refused it, or made no call for it
    shown = _shown(scenario, label, step, outcome)
    assert not Counter(map(repr, due)) - Counter(map(repr, shown)), label
    assert len(shown) == (
        len(due) if label in scenario.other_result else step.row_count or len(due)
    ), label


def _shown(scenario: ReadingScenario, label: str, step: Step, outcome: Outcome) -> Rows:
    """Return DuckDB's result from the replies."""
    if outcome.answered:
        return [[body] for body in outcome.answered]
    with duckdb.connect(config={"autoload_known_extensions": False}) as database:
        for number, table in enumerate(outcome.computed):
            database.register(f"computed_{number}", table)
            database.register("computed", table)
        for name, table in outcome.scanned.items():
            database.register(name, table)
        sql = scenario.shown.get(label)
        if sql is None:
            sql = (
                "FROM computed"
                if outcome.computed
                else re.sub(r"\b(s1|static_data)\.", "", AT.sub("", step.sql))
            )
        return [list(row) for row in database.execute(sql).fetchall()]


def _plain(value: Any) -> Any:
    """Return a recorded value; what JSON cannot hold is a map with the name of its kind."""
    if isinstance(value, list):
        return [_plain(element) for element in value]
    if isinstance(value, dict) and len(value) == 1:
        ((kind, text),) = value.items()
        read: dict[str, Callable[[str], Any]] = {
            "decimal": Decimal,
            "datetime": datetime.datetime.fromisoformat,
            "date": datetime.date.fromisoformat,
            "uuid": uuid.UUID,
            "b64": base64.b64decode,
        }
        return read[kind](text) if kind in read else value
    return value
