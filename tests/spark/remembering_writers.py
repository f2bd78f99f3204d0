"""Writers with overlapping keys and rows, which remember what they were told.

What a writer was told nothing of may have happened, or not.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count

import pyarrow as pa

from sparkport.testing import DuckDBClient, ProtocolViolation, ServerError

__all__ = ["COLUMNS", "Writer", "create_shared", "expect_what_was_told"]

_SHARED = 8
"""Rows that all writers update."""
_CONTESTED = 100_000
"""The first of the keys that several writers insert."""
_OWN = 1_000_000
COLUMNS = pa.schema([("k", pa.int64()), ("v", pa.int64())])
_REFUSED = ("ABORTED", "FAILED_PRECONDITION")
_NEVER = threading.Event()


@dataclass
class Writer:
    number: int
    numbers: count[int] = field(default_factory=count)
    """Of keys that nobody else inserts."""
    acknowledged: set[int] = field(default_factory=set)
    refused: set[int] = field(default_factory=set)
    unknown: set[int] = field(default_factory=set)
    """Inserted keys, by what is known of them."""
    deleted: set[int] = field(default_factory=set)
    perhaps_deleted: set[int] = field(default_factory=set)
    """Those of its own rows that this writer has deleted."""
    added: Counter[int] = field(default_factory=Counter)
    perhaps_added: Counter[int] = field(default_factory=Counter)
    """How often this writer has raised the value of a shared row by 1."""
    unexpected: list[Exception] = field(default_factory=list)

    def run(
        self, location: str, chosen: random.Random, ended: threading.Event | None = None
    ) -> None:
        """Run statements until the server is dead, or `ended` is set."""
        ended = ended or _NEVER
        try:
            with DuckDBClient(location, "lake", timeout=60) as client:
                client.attach()
                while not ended.is_set() and self._statement(client, chosen):
                    pass
        except ConnectionError:
            pass
        except ServerError as error:
            if error.code not in ("UNAVAILABLE", "UNKNOWN", "CANCELLED"):
                self.unexpected.append(error)
        except Exception as error:
            self.unexpected.append(error)

    def _statement(self, client: DuckDBClient, chosen: random.Random) -> bool:
        kind = chosen.choice(("own", "own", "own", "contested", "shared", "shared", "delete"))
        mine = sorted(each for each in self.acknowledged - self.deleted if each >= _OWN)
        if kind == "shared":
            return self._add(client, chosen.randrange(_SHARED))
        if kind == "delete" and mine:
            return self._delete(client, chosen.choice(mine))
        key = (
            _CONTESTED + chosen.randrange(2_000)
            if kind == "contested"
            else self.number * _OWN + next(self.numbers)
        )
        return self._insert(client, key)

    def _insert(self, client: DuckDBClient, key: int) -> bool:
        row = pa.table({"k": [key], "v": [self.number]}, schema=COLUMNS)
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

    def _delete(self, client: DuckDBClient, key: int) -> bool:
        try:
            client.delete("s", "t", f"k = {key}")
        except ServerError as error:
            if error.code in _REFUSED:
                return True
            self.perhaps_deleted.add(key)
            return False
        except ConnectionError:
            self.perhaps_deleted.add(key)
            return False
        except ProtocolViolation as violation:
            self.deleted.add(_acknowledged(violation, key))
            return False
        self.deleted.add(key)
        return True


def _acknowledged(violation: ProtocolViolation, key: int) -> int:
    """The key, if the server has died between its answer and the end of the call.

    DuckDB then takes the statement for done (airport §16, T21). Raises: the violation otherwise.
    """
    if not str(violation).startswith("T21") or "UNAVAILABLE" not in str(violation):
        raise violation
    return key


def create_shared(location: str) -> None:
    """Make the table with the rows that all writers update."""
    shared = {"k": list(range(_SHARED)), "v": [0] * _SHARED}
    with DuckDBClient(location, "lake", timeout=120) as client:
        client.attach()
        client.create_schema("s")
        client.create_table("s", "t", COLUMNS, primary_key=["k"])
        client.insert("s", "t", pa.table(shared, schema=COLUMNS))


def expect_what_was_told(writers: Sequence[Writer], found: pa.Table) -> None:
    """Expect what was acknowledged to be there once, and what was refused not to be there."""
    rows = dict(zip(*(found[each].to_pylist() for each in "kv"), strict=True))
    assert len(rows) == found.num_rows, "a key is there twice"
    for key in range(_SHARED):
        least = sum(each.added[key] for each in writers)
        most = least + sum(each.perhaps_added[key] for each in writers)
        assert least <= rows.pop(key) <= most, "an update was lost, or made twice"
    told = [key for each in writers for key in each.acknowledged]
    assert len(set(told)) == len(told), "two writers were told that they have inserted a key"
    for each in writers:
        for key in each.acknowledged - each.deleted - each.perhaps_deleted:
            assert rows.get(key) == each.number, "an acknowledged row is lost"
        for key in each.deleted:
            assert key not in rows, "a deleted row is there"
        for key in each.refused - each.acknowledged - each.unknown:
            assert rows.get(key) != each.number, "a refused row is there"
    known = {key for each in writers for key in (*each.acknowledged, *each.unknown)}
    assert rows.keys() <= known
    assert len(told) > len(writers)
