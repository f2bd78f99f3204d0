"""Old versions are forgotten, but not those that are still being read."""

from __future__ import annotations

import pyarrow as pa
import pytest
from tests.memory.statements import CTX, insert, rows_of

from sparkport.catalog import Context
from sparkport.memory import MemoryCatalog, MemorySettings, MemoryTable


def table_of(settings: MemorySettings | None = None) -> tuple[MemoryCatalog, MemoryTable]:
    catalog = MemoryCatalog("c", settings=settings)
    table = MemoryTable("t", pa.table({"v": [0]}))
    catalog.add_schema("s").add_table(table)
    return catalog, table


def test_history_is_bounded_unless_told_otherwise() -> None:
    assert MemorySettings().max_versions == 1_000
    _, table = table_of()
    for number in range(2_000):
        insert(table, [{"v": number}])
    assert rows_of(table, version=1_001)[-1] == {"v": 1_000}
    assert len(table.history._versions) <= 1_517
    assert len(rows_of(table)) == 2_001


def test_a_snapshot_that_is_still_read_does_not_make_every_commit_look_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    catalog, table = table_of(MemorySettings(max_versions=10))
    ctx = Context(transaction_id=catalog.begin_transaction(CTX))
    assert rows_of(table, ctx) == [{"v": 0}]
    asked: list[int] = []
    oldest_pin = table.ledger.oldest_pin

    def counting() -> int:
        asked.append(1)
        return oldest_pin()

    monkeypatch.setattr(table.ledger, "oldest_pin", counting)
    for number in range(420):
        insert(table, [{"v": number}])
    assert len(asked) <= 20
    assert rows_of(table, ctx) == [{"v": 0}]
    catalog.rollback_transaction(CTX, ctx.transaction_id or "")
    for number in range(22):
        insert(table, [{"v": number}])
    assert len(table.history._versions) < 40
