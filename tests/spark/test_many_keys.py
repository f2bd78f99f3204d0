"""Keys of many rows: what is in memory at a time is bounded, whatever is compared."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from tests.spark.lake_tables import create, find, insert, rows

from sparkport.catalog import Constraints, Context, DMLOptions, Operation
from sparkport.engine.constraints.sandbox import comparison
from sparkport.engine.databases import Check
from sparkport.engine.gathered import BlockSize
from sparkport.errors import BadRequest, ConstraintViolation, LimitExceeded, PreconditionFailed
from sparkport.service.limits import LimitKeeper
from sparkport.service.settings import Limits
from sparkport.spark.functions import upsert
from sparkport.spark.lake.liveness import FILES
from sparkport.spark.write import key_groups, row_spool

_COLUMNS = pa.schema([("id", pa.int64()), ("name", pa.string())])
_COUNT = 150_000
_GROUP = 100_000
_BATCH = 65_536 * 8
"""Bytes of keys in a batch: a group can be larger by that much."""


class _Seen:
    """How much DuckDB was given to compare at a time, and which files there were meanwhile."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.most_bytes = 0
        self.files: set[str] = set()

    @contextmanager
    def comparison(
        self, check: Check | None = None, **relations: pa.Table
    ) -> Iterator[duckdb.DuckDBPyConnection]:
        self.most_bytes = max(self.most_bytes, *(each.nbytes for each in relations.values()), 0)
        self.files |= {path.name.partition("-")[0] for path in self._folder.rglob("*.arrow")}
        with comparison(check, **relations) as connection:
            yield connection


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch, staging: Path) -> _Seen:
    """Makes groups, and pieces on disk, small."""
    monkeypatch.setattr(key_groups, "GROUP_BYTES", _GROUP, raising=False)
    monkeypatch.setattr(row_spool, "GROUP_BYTES", _GROUP, raising=False)
    monkeypatch.setattr(row_spool, "_PIECE_BYTES", 200_000)
    found = _Seen(staging)
    for module in ("engine.constraints.enforce", "spark.write.key_groups", "spark.write.matching"):
        monkeypatch.setattr(sys.modules[f"sparkport.{module}"], "comparison", found.comparison)
    return found


@pytest.fixture
def called(lake, namespace) -> Callable[..., tuple[int, ...]]:
    create(lake, namespace, "t", _COLUMNS)
    schema: Any = lake.schema(Context(), namespace)

    def called(name: str, rows: pa.Table, ctx: Context | None = None) -> tuple[int, ...]:
        function = next(each for each in schema.table_functions(Context()) if each.name == name)
        (batch,) = function.process(
            ctx or Context(), ("t", "id"), iter(rows.to_batches(max_chunksize=2048))
        )
        return tuple(batch.to_pylist()[0].values())

    return called


def _given(ids: Any) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "name": [f"n{each}" for each in ids]})


def _staged(staging: Path) -> set[Path]:
    return {path for path in staging.rglob("*") if path.is_file() and path.name not in FILES}


def _values(lake: Any, namespace: str) -> dict[int, str]:
    return {row["id"]: row["name"] for row in rows(find(lake, namespace, "t"))}


def test_an_upsert_has_few_of_its_keys_in_memory(seen, called, lake, staging, namespace):
    before = _staged(staging)
    insert(lake, namespace, "t", "(1, 'a'), (149999, 'b'), (200000, 'c')")
    assert called("upsert", _given(range(_COUNT))) == (_COUNT - 2, 2)
    # The place of each key is beside it, where keys are compared.
    assert seen.most_bytes <= 2 * (_BATCH + _GROUP) < 2 * 8 * _COUNT
    assert seen.files == {"waiting", "keys"}
    assert called("upsert", _given(range(70_000, _COUNT + 1))) == (1, _COUNT - 70_000)
    values = _values(lake, namespace)
    assert values.pop(200_000) == "c"
    assert values == {each: f"n{each}" for each in range(_COUNT + 1)}
    assert _staged(staging) <= before


def test_large_rows_are_not_gathered_by_their_number(seen, called, lake, namespace, monkeypatch):
    monkeypatch.setattr(upsert, "_GATHERED", BlockSize(bytes=1_000_000))
    most = 0

    def watched(waits: row_spool.RowSpool, batch: pa.RecordBatch) -> None:
        nonlocal most
        most = max(most, batch.nbytes)
        add(waits, batch)

    add = row_spool.RowSpool.add
    monkeypatch.setattr(row_spool.RowSpool, "add", watched)
    given = pa.table({"id": pa.arange(0, 10_000), "name": ["x" * 500] * 10_000})
    assert called("upsert", given) == (10_000, 0)
    assert 1_000_000 <= most < 2_100_000 + 500 * 2048


def test_the_same_key_twice_is_found_however_far_apart(seen, called, lake, staging, namespace):
    before = _staged(staging)
    with pytest.raises(BadRequest, match='the key "id: 7" is in more than one row for upsert'):
        called("upsert", _given([*range(_COUNT), 7]))
    assert _values(lake, namespace) == {}
    insert(lake, namespace, "t", "(3, 'a'), (140000, 'b'), (140000, 'b')")
    with pytest.raises(
        PreconditionFailed, match=r'the key "id: 140000" is in table .* more than once'
    ):
        called("upsert", _given(range(_COUNT)))
    assert _values(lake, namespace) == {3: "a", 140_000: "b"}
    assert _staged(staging) <= before


def test_a_deletion_by_keys_has_few_of_them_in_memory(seen, called, lake, staging, namespace):
    before = _staged(staging)
    insert(lake, namespace, "t", "(1, 'a'), (1, 'b'), (149999, 'c'), (200000, 'd')")
    ids = [*range(_COUNT), 1, 1, None, *range(_COUNT)]
    assert called("merge_delete", pa.table({"id": pa.array(ids, pa.int64())})) == (3,)
    assert seen.most_bytes <= 2 * (_BATCH + _GROUP)
    assert seen.files == {"waiting"}
    assert _values(lake, namespace) == {200_000: "d"}
    assert _staged(staging) <= before


def test_unique_keys_of_an_insert_are_compared_a_few_at_a_time(seen, lake, staging, namespace):
    before = _staged(staging)
    create(lake, namespace, "t", _COLUMNS, constraints=Constraints(unique=(("id",),)))
    insert(lake, namespace, "t", "(200000, 'a')")

    def inserted(ids: Any) -> int:
        write = find(lake, namespace, "t").stage(Context(), Operation.INSERT, DMLOptions())
        for batch in _given(ids).to_batches(max_chunksize=2048):
            write.apply(batch)
        return int(write.commit())

    with pytest.raises(ConstraintViolation, match='Duplicate key "id: 7"'):
        inserted([*range(_COUNT), 7])
    with pytest.raises(ConstraintViolation, match='Duplicate key "id: 200000"'):
        inserted([*range(_COUNT), 200_000])
    assert inserted(range(_COUNT)) == _COUNT
    assert seen.most_bytes < 8 * _COUNT
    assert "keys" in seen.files
    assert _staged(staging) <= before


@pytest.mark.parametrize("name", ["upsert", "merge_delete"])
def test_what_is_merged_counts_as_staged(called, lake, namespace, name):
    keeper = LimitKeeper(Limits(max_staged_bytes=500_000))
    ctx = Context(quotas=keeper.quotas("ada"))
    with pytest.raises(LimitExceeded, match="max_staged_bytes"):
        called(name, _given(range(_COUNT)), ctx)
    assert keeper.snapshot()["staged_bytes"] == 0
    assert _values(lake, namespace) == {}


def test_the_ids_of_rows_that_one_key_deletes_count_as_held(called, lake, namespace):
    insert(lake, namespace, "t", ", ".join(["(1, 'a')"] * 2000))
    keeper = LimitKeeper(Limits(max_held_bytes=10_000))
    ctx = Context(quotas=keeper.quotas("ada"))
    with pytest.raises(LimitExceeded, match="max_held_bytes"):
        called("merge_delete", _given([1]), ctx)
    assert keeper.snapshot()["held_bytes"] == 0
    assert len(rows(find(lake, namespace, "t"))) == 2000
    assert called("merge_delete", _given([1])) == (2000,)


def test_the_ids_of_rows_that_are_updated_count_as_held(called, lake, namespace):
    assert called("upsert", _given(range(2000))) == (2000, 0)
    keeper = LimitKeeper(Limits(max_held_bytes=10_000))
    ctx = Context(quotas=keeper.quotas("ada"))
    with pytest.raises(LimitExceeded, match="max_held_bytes"):
        called("upsert", pa.table({"id": range(2000), "name": ["x"] * 2000}), ctx)
    assert keeper.snapshot()["held_bytes"] == 0
    assert set(_values(lake, namespace).values()) == {f"n{each}" for each in range(2000)}


@pytest.mark.parametrize("count", [0, 10, 300_000])
def test_equal_keys_are_put_together_and_none_is_lost(monkeypatch, lake, namespace, count):
    """0.0 and -0.0 are equal, and so is every NaN; a dictionary is different in every batch."""
    monkeypatch.setattr(key_groups, "GROUP_BYTES", 1_000_000)
    monkeypatch.setattr(key_groups, "_PARTS", 4)
    texts = pa.array(["a", "b"]).dictionary_encode()
    batches = [
        pa.record_batch(
            {
                "x": pa.array([0.0, -0.0, float("nan"), float(number)]),
                "t": texts.take(pa.array([0, 0, 1, number % 2])),
            }
        )
        for number in range(count // 1000)
    ]
    batches = [pa.concat_batches([each] * 250) for each in batches]
    create(lake, namespace, "t", _COLUMNS)
    table = find(lake, namespace, "t")
    groups = list(key_groups.equal_together(iter(batches), table._lake.staging, table.identifier))
    assert sum(group.num_rows for group in groups) == 1000 * len(batches)
    assert len(groups) == {0: 0, 10: 0, 300_000: 4}[count]
    homes: dict[str, set[int]] = {}
    for number, group in enumerate(groups):
        for key in set(zip(*(column.to_pylist() for column in group.columns), strict=True)):
            homes.setdefault(str(key).replace("-0.0", "0.0"), set()).add(number)
    assert all(len(where) == 1 for where in homes.values())


def test_a_file_of_keys_is_not_left_behind_when_nobody_takes_them_all(
    monkeypatch, lake, staging, namespace
):
    monkeypatch.setattr(key_groups, "GROUP_BYTES", 1000)
    create(lake, namespace, "t", _COLUMNS)
    before = _staged(staging)
    table = find(lake, namespace, "t")
    keys = (
        pa.record_batch({"k": pa.arange(start, start + 1000)}) for start in range(0, 10_000, 1000)
    )
    with closing(key_groups.equal_together(keys, table._lake.staging, table.identifier)) as groups:
        next(groups)
        assert len(_staged(staging)) == len(before) + 1
    assert _staged(staging) == before
