"""Random statements on a table with small limits, against a model of all its versions."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pyarrow as pa
import pytest
from tests.memory.memory_of import buffer_bytes, promised, values_of
from tests.memory.statements import CTX, delete, insert, rows_of, update

from sparkport.catalog import Context, ScanOptions
from sparkport.errors import Conflict, NotFound
from sparkport.memory import MemoryCatalog, MemorySettings, MemoryTable, holdings, merging, rows
from sparkport.memory import write as memory_write

WINDOW = 16
VERSIONS = 12
HISTORY_BYTES = 12_000

Rows = dict[int, tuple[int, int]]


@pytest.fixture(autouse=True)
def small_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a few hundred rows go through all that many thousands would."""
    for module in (merging, rows):
        monkeypatch.setattr(module, "WINDOW_ROWS", WINDOW)
    for module in (merging, memory_write):
        monkeypatch.setattr(module, "SEGMENT_ROWS", 128)
    monkeypatch.setattr(holdings, "_WASTED_BYTES", 0)


def seen(table: MemoryTable, ctx: Context, options: ScanOptions | None = None) -> Rows:
    return {
        row["rowid"]: (row["a"], row["b"])
        for batch in table.scan(ctx, options or ScanOptions())
        for row in batch.to_pylist()
    }


@dataclass
class Reader:
    """A transaction that has read, or has changed rows, and what it must see."""

    ctx: Context
    rows: Rows
    touched: set[int] = field(default_factory=set)
    """The rows that it has inserted, updated or removed."""


@dataclass
class Model:
    """A table, and what each version of it and each open transaction must show."""

    random: random.Random
    catalog: MemoryCatalog = field(init=False)
    table: MemoryTable = field(init=False)
    versions: list[Rows] = field(default_factory=list)
    readers: list[Reader] = field(default_factory=list)
    plans: list[tuple[list[bytes], Rows]] = field(default_factory=list)
    value: int = 0

    def __post_init__(self) -> None:
        settings = MemorySettings(
            max_versions=VERSIONS, max_history_bytes=HISTORY_BYTES, max_pins=5, partition_rows=50
        )
        self.catalog = MemoryCatalog("c", settings=settings)
        data = pa.table({"a": pa.arange(0, 300), "b": pa.arange(0, 300)})
        self.table = MemoryTable("t", data)
        self.catalog.add_schema("s").add_table(self.table)
        self.versions.append({n: (n, n) for n in range(300)})

    def step(self) -> None:
        kind = self.random.choices(
            ["insert", "update", "delete", "begin", "write", "end", "plan", "bulk"],
            [8, 8, 6, 2, 4, 3, 1, 1],
        )[0]
        getattr(self, f"_{kind}")()

    def _insert(self) -> None:
        self._commit(self._inserted(CTX, self.random.choice([1, 1, 1, 5, 40])))

    def _update(self) -> None:
        self._commit(self._updated(CTX, self.versions[-1], self.random.choice([1, 1, 3, 30])))

    def _delete(self) -> None:
        self._commit(self._deleted(CTX, self.versions[-1], self.random.choice([1, 1, 3, 30])))

    def _bulk(self) -> None:
        ids = sorted(self.versions[-1])
        start = self.random.randrange(len(ids) + 1)
        gone = ids[start : start + self.random.choice([len(ids) // 2, 120])]
        if gone:
            delete(self.table, gone)
            self._commit({k: v for k, v in self.versions[-1].items() if k not in set(gone)})

    def _begin(self) -> None:
        ctx = Context(transaction_id=self.catalog.begin_transaction(CTX))
        self.readers.append(Reader(ctx, dict(self.versions[-1])))
        assert rows_of(self.table, ctx) is not None

    def _write(self) -> None:
        if not self.readers:
            return
        reader = self.random.choice(self.readers)
        before = reader.rows
        if self.random.random() < 0.5:
            reader.rows = {**before, **self._new(reader.ctx, 2)}
        else:
            change = self.random.choice([self._updated, self._deleted])
            reader.rows = change(reader.ctx, before, 1)
        reader.touched |= {row_id for row_id, _ in before.items() ^ reader.rows.items()}

    def _end(self) -> None:
        if not self.readers:
            return
        reader = self.readers.pop(self.random.randrange(len(self.readers)))
        transaction_id = reader.ctx.transaction_id or ""
        if not reader.touched or self.random.random() < 0.2:
            self.catalog.rollback_transaction(CTX, transaction_id)
            return
        number = self.table.current.number
        try:
            self.catalog.commit_transaction(reader.ctx, transaction_id)
        except Conflict:
            assert self.table.current.number == number
            return
        others = {k: v for k, v in self.versions[-1].items() if k not in reader.touched}
        own = {k: v for k, v in reader.rows.items() if k in reader.touched}
        self.versions.append(dict(sorted({**others, **own}.items())))

    def _plan(self) -> None:
        parts = list(self.table.partitions(CTX, ScanOptions()))
        self.plans = [*self.plans, (parts, self.versions[-1])][-5:]

    def _commit(self, after: Rows) -> None:
        if self.table.current.number == len(self.versions):
            self.versions.append(after)

    def _inserted(self, ctx: Context, count: int) -> Rows:
        return {**self.versions[-1], **self._new(ctx, count)}

    def _new(self, ctx: Context, count: int) -> Rows:
        self.value += 1
        first = self.table._next_row_id
        insert(self.table, [{"a": self.value, "b": -1}] * count, ctx)
        return {first + n: (self.value, -1) for n in range(count)}

    def _updated(self, ctx: Context, before: Rows, count: int) -> Rows:
        self.value += 1
        ids = self._some(before, count)
        column = self.random.choice(["a", "a", "b"])
        update(self.table, [{column: self.value, "rowid": row_id} for row_id in ids], ctx)
        new = {
            row_id: (self.value, before[row_id][1])
            if column == "a"
            else (before[row_id][0], self.value)
            for row_id in ids
        }
        return {**before, **new}

    def _deleted(self, ctx: Context, before: Rows, count: int) -> Rows:
        ids = set(self._some(before, count))
        delete(self.table, sorted(ids), ctx)
        return {row_id: row for row_id, row in before.items() if row_id not in ids}

    def _some(self, of: Rows, count: int) -> list[int]:
        return self.random.sample(sorted(of), min(count, len(of)))

    def expect_rows(self) -> None:
        """Compare everything that can be read."""
        newest = self.table.current.number
        assert newest == len(self.versions) - 1
        oldest = promised(self.table)[0].number
        for number in range(oldest, newest + 1):
            expected = [{"a": a, "b": b} for _, (a, b) in sorted(self.versions[number].items())]
            assert rows_of(self.table, version=number) == expected
        assert sorted(seen(self.table, CTX)) == sorted(self.versions[-1]), "row ids stay"
        if oldest:
            with pytest.raises(NotFound, match=f"no longer kept: the oldest is {oldest}"):
                rows_of(self.table, version=oldest - 1)
        for reader in self.readers:
            assert seen(self.table, reader.ctx) == reader.rows
        for parts, expected_rows in self.plans:
            read = [seen(self.table, CTX, ScanOptions(partition=part)) for part in parts]
            assert {k: v for part in read for k, v in part.items()} == expected_rows

    def expect_bounds(self) -> None:
        """Compare what is held with what may be."""
        kept = promised(self.table)
        current, retired = kept[-1], kept[-1].retired - kept[0].retired
        assert len(kept) <= VERSIONS
        assert retired <= HISTORY_BYTES
        live = values_of([current])
        assert current.nbytes == 8 * len(live) == 16 * current.rows
        assert retired == 8 * len(values_of(kept) - live)
        assert len(current.segments) <= 2 * current.rows / WINDOW + 8
        padding = 64 * len({id(c) for v in kept for s in v.segments for c in s.columns})
        assert buffer_bytes(kept) <= 4 * (current.nbytes + retired) + padding
        if not self.readers:
            assert len(self.table.history._versions) <= VERSIONS + VERSIONS // 2 + 20


@pytest.mark.parametrize("seed", range(4))
def test_promised_versions_keep_their_rows_and_all_others_are_let_go(seed: int) -> None:
    model = Model(random.Random(seed))
    for number in range(150):
        model.step()
        model.expect_bounds()
        if number % 5 == 0:
            model.expect_rows()
    model.expect_rows()
