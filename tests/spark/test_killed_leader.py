"""Many writers with overlapping keys and rows, on servers that are killed while one of them leads.

A writer remembers what it was told. What it was told nothing of may have happened, or not.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from dataclasses import dataclass, field
from itertools import count

import pyarrow as pa
import pytest
from tests.spark.lake_processes import lake_process
from tests.spark.leftovers import expect_nothing_left

from sparkport.testing import DuckDBClient, ProtocolViolation, ServerError

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(600)]

_WRITERS = 32
_SHARED = 8
"""Rows that all writers update."""
_CONTESTED = 100_000
"""The first of the keys that several writers insert."""
_OWN = 1_000_000
_COLUMNS = pa.schema([("k", pa.int64()), ("v", pa.int64())])
_POINTS = ("after:vectors", "after:rows", "before:swap", "during:swap", "after:swap")
_REFUSED = ("ABORTED", "FAILED_PRECONDITION")


@dataclass
class _Writer:
    number: int
    numbers: count[int]
    """Of keys that nobody else inserts."""
    acknowledged: set[int] = field(default_factory=set)
    refused: set[int] = field(default_factory=set)
    unknown: set[int] = field(default_factory=set)
    """Inserted keys, by what is known of them."""
    added: Counter[int] = field(default_factory=Counter)
    perhaps_added: Counter[int] = field(default_factory=Counter)
    """How often this writer has raised the value of a shared row by 1."""
    unexpected: list[Exception] = field(default_factory=list)

    def run(self, location: str, chosen: random.Random) -> None:
        """Run statements until the server is dead."""
        try:
            with DuckDBClient(location, "lake", timeout=60) as client:
                client.attach()
                while self._statement(client, chosen):
                    pass
        except ConnectionError:
            pass
        except ServerError as error:
            if error.code not in ("UNAVAILABLE", "UNKNOWN", "CANCELLED"):
                self.unexpected.append(error)
        except Exception as error:
            self.unexpected.append(error)

    def _statement(self, client: DuckDBClient, chosen: random.Random) -> bool:
        kind = chosen.choice(("own", "own", "contested", "shared"))
        if kind == "shared":
            return self._add(client, chosen.randrange(_SHARED))
        key = (
            _CONTESTED + chosen.randrange(2_000)
            if kind == "contested"
            else self.number * _OWN + next(self.numbers)
        )
        return self._insert(client, key)

    def _insert(self, client: DuckDBClient, key: int) -> bool:
        row = pa.table({"k": [key], "v": [self.number]}, schema=_COLUMNS)
        try:
            client.insert("s", "t", row)
        except ServerError as error:
            if error.code in _REFUSED:
                self.refused.add(key)
                return True
            self.unknown.add(key)
            return False
        except ConnectionError:
            self.unknown.add(key)
            return False
        except ProtocolViolation as violation:
            self.acknowledged.add(_acknowledged(violation, key))
            return False
        self.acknowledged.add(key)
        return True

    def _add(self, client: DuckDBClient, key: int) -> bool:
        try:
            client.update("s", "t", {"v": "v + 1"}, where=f"k = {key}")
        except ServerError as error:
            if error.code in _REFUSED:
                return True
            self.perhaps_added[key] += 1
            return False
        except ConnectionError:
            self.perhaps_added[key] += 1
            return False
        except ProtocolViolation as violation:
            self.added[_acknowledged(violation, key)] += 1
            return False
        self.added[key] += 1
        return True


def _acknowledged(violation: ProtocolViolation, key: int) -> int:
    """The key, if the server has died between its answer and the end of the call.

    DuckDB then takes the statement for done (airport §16, T21). Raises: the violation otherwise.
    """
    if not str(violation).startswith("T21") or "UNAVAILABLE" not in str(violation):
        raise violation
    return key


def test_what_was_acknowledged_is_there_once_and_what_was_refused_never(place, tmp_path):
    chosen = random.Random()
    source, name = place.source("leader"), "leader"
    writers = [_Writer(number + 1, count()) for number in range(_WRITERS)]
    for turn in range(2):
        point = f"{chosen.choice(_POINTS)}:{chosen.randrange(5, 20)}"
        with lake_process(source, tmp_path, point) as (process, location):
            if not turn:
                _create(location)
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
    _expect(writers, dict(zip(*(found[each].to_pylist() for each in "kv"), strict=True)), found)


def _create(location: str) -> None:
    shared = {"k": list(range(_SHARED)), "v": [0] * _SHARED}
    with DuckDBClient(location, "lake", timeout=120) as client:
        client.attach()
        client.create_schema("s")
        client.create_table("s", "t", _COLUMNS, primary_key=["k"])
        client.insert("s", "t", pa.table(shared, schema=_COLUMNS))


def _expect(writers: list[_Writer], rows: dict[int, int], found: pa.Table) -> None:
    assert len(rows) == found.num_rows, "a key is there twice"
    for key in range(_SHARED):
        least = sum(each.added[key] for each in writers)
        most = least + sum(each.perhaps_added[key] for each in writers)
        assert least <= rows.pop(key) <= most, "an update was lost, or made twice"
    told = [key for each in writers for key in each.acknowledged]
    assert len(set(told)) == len(told), "two writers were told that they have inserted a key"
    for each in writers:
        for key in each.acknowledged:
            assert rows.get(key) == each.number, "an acknowledged row is lost"
        for key in each.refused - each.acknowledged - each.unknown:
            assert rows.get(key) != each.number, "a refused row is there"
    known = {key for each in writers for key in (*each.acknowledged, *each.unknown)}
    assert rows.keys() <= known
    assert len(told) > _WRITERS
