"""Eight writers on one table, through two servers that know nothing of each other."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pytest
from tests.spark.lake_processes import lake_process

from sparkport.spark.jvm.session.source import LakeSource
from sparkport.testing import ClientSideError, DuckDBClient, ServerError

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(600)]

_SECONDS = 60
_WRITERS = 8
_OWN = 1_000_000
"""The first of a writer's own keys; all writers share those below."""
_COLUMNS = pa.schema([("k", pa.int64()), ("v", pa.int64())])


@contextmanager
def _server(source: LakeSource, temporary: Path) -> Iterator[str]:
    with lake_process(source, temporary) as (process, location):
        yield location
        process.terminate()
        assert process.wait(60) == 0


@dataclass
class _Writer:
    """Runs random statements, and remembers what it was told has happened."""

    number: int
    location: str
    rows: dict[int, int] = field(default_factory=dict)
    won: list[int] = field(default_factory=list)
    """Shared keys that this writer inserted."""
    acknowledged: int = 0
    refused: int = 0
    unexpected: list[Exception] = field(default_factory=list)

    def run(self, until: float) -> None:
        chosen = random.Random(self.number)
        try:
            with DuckDBClient(self.location, "lake", timeout=120) as client:
                client.attach()
                while time.monotonic() < until or not self.acknowledged:
                    self._statement(client, chosen)
        except Exception as error:
            self.unexpected.append(error)

    def _statement(self, client: DuckDBClient, chosen: random.Random) -> None:
        action = chosen.choice(
            (self._insert, self._insert, self._contest, self._update, self._delete)
        )
        try:
            action(client, chosen)
            self.acknowledged += 1
        except ServerError as error:
            if error.code not in ("ABORTED", "FAILED_PRECONDITION"):
                raise
            self.refused += 1

    def _insert(self, client: DuckDBClient, chosen: random.Random) -> None:
        first = self.number * _OWN + chosen.randrange(_OWN - 100)
        new = {key: chosen.randrange(1000) for key in range(first, first + chosen.randrange(1, 20))}
        client.insert("s", "t", _table(new))
        self.rows.update(new)

    def _contest(self, client: DuckDBClient, chosen: random.Random) -> None:
        key = chosen.randrange(100_000)
        client.insert("s", "t", _table({key: self.number}))
        self.won.append(key)

    def _update(self, client: DuckDBClient, chosen: random.Random) -> None:
        keys = self._some(chosen)
        client.update("s", "t", {"v": "v + 1"}, where=f"k IN ({', '.join(map(str, keys))})")
        self.rows.update({key: self.rows[key] + 1 for key in keys if key in self.rows})

    def _delete(self, client: DuckDBClient, chosen: random.Random) -> None:
        keys = self._some(chosen)
        client.delete("s", "t", f"k IN ({', '.join(map(str, keys))})")
        for key in keys:
            self.rows.pop(key, None)

    def _some(self, chosen: random.Random) -> list[int]:
        return chosen.sample(sorted(self.rows), min(len(self.rows), 5)) or [-1]


def _table(rows: dict[int, int]) -> pa.Table:
    return pa.table({"k": list(rows), "v": list(rows.values())}, schema=_COLUMNS)


def _wait_until_seen(location: str) -> None:
    """Wait until another server lists the table: some catalogs do not tell what others change."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with DuckDBClient(location, "lake", timeout=120) as client:
            client.attach()
            with suppress(ClientSideError):
                client.scan("s", "t", ["k"])
                return
        time.sleep(0.1)
    pytest.fail("the other server does not list the table")


def test_what_was_acknowledged_is_there_once_and_what_was_refused_is_not(place, tmp_path):
    with ExitStack() as stack:
        locations = [
            stack.enter_context(_server(place.source("written"), tmp_path)) for _ in range(2)
        ]
        with DuckDBClient(locations[0], "lake", timeout=120) as client:
            client.attach()
            client.create_schema("s")
            client.create_table("s", "t", _COLUMNS, primary_key=["k"])
            _wait_until_seen(locations[1])
            writers = [_Writer(number + 1, locations[number % 2]) for number in range(_WRITERS)]
            until = time.monotonic() + _SECONDS
            threads = [threading.Thread(target=writer.run, args=(until,)) for writer in writers]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(_SECONDS + 240)
                assert not thread.is_alive(), "a writer hangs"
            assert [error for writer in writers for error in writer.unexpected] == []
            found = client.scan("s", "t", ["k", "v"])
    rows = dict(zip(found["k"].to_pylist(), found["v"].to_pylist(), strict=True))
    assert len(rows) == found.num_rows, "a key is there twice"
    won = [key for writer in writers for key in writer.won]
    assert len(set(won)) == len(won), "two writers were told that they have inserted the same key"
    expected = {key: value for writer in writers for key, value in writer.rows.items()}
    expected |= {key: writer.number for writer in writers for key in writer.won}
    assert rows == expected
    assert sum(writer.acknowledged for writer in writers) >= _WRITERS
