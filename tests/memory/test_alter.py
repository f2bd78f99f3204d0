"""ALTER TABLE in memory: versions, history, Arrow's types.

What it shares with the lake is in `sparkport.testing.contract`.
"""

from __future__ import annotations

import pyarrow as pa
import pytest
from tests.memory.statements import CTX, ids_of, rows_of, staged

from sparkport.catalog import (
    AddColumnOptions,
    DropTableOptions,
    Operation,
    RemoveColumnOptions,
    ScanOptions,
)
from sparkport.errors import (
    NotFound,
)
from sparkport.memory import MemorySchema, MemoryTable

DATA = pa.table({"id": [1, 2, 3], "v": ["a", "b", None], "n": [10, 20, 30]})


@pytest.fixture
def table() -> MemoryTable:
    table = MemoryTable("t", DATA)
    MemorySchema("s").add_table(table)
    return table


def _column(table: MemoryTable, name: str) -> list[object]:
    return [row[name] for row in rows_of(table)]


def _one(name: str, data_type: pa.DataType, **options: object) -> pa.Schema:
    return pa.schema([pa.field(name, data_type, **options)])


def test_an_added_column_has_plain_values_where_its_type_is_a_dictionary(
    table: MemoryTable,
) -> None:
    table.add_column(CTX, _one("enum", pa.dictionary(pa.uint8(), pa.string())), AddColumnOptions())
    assert table.arrow_schema.field("enum").type == pa.string()


def test_what_changes_nothing_makes_no_version(table: MemoryTable) -> None:
    table.add_constraint(CTX, "PRIMARY KEY (id)")
    before = table.current
    table.add_column(CTX, _one("ID", pa.int32()), AddColumnOptions(if_column_not_exists=True))
    table.remove_column(CTX, "x", RemoveColumnOptions(if_column_exists=True))
    table.set_not_null(CTX, "id")
    table.drop_not_null(CTX, "n")
    table.change_column_type(CTX, _one("n", pa.int64()), "CAST(n AS BIGINT)")
    assert table.current is before


def test_a_removed_column_is_gone_and_history_still_has_it(table: MemoryTable) -> None:
    table.remove_column(CTX, "V", RemoveColumnOptions())
    assert rows_of(table)[0] == {"id": 1, "n": 10}
    assert rows_of(table, version=0)[0] == {"id": 1, "v": "a", "n": 10}


@pytest.mark.parametrize(
    ("name", "data_type", "expression", "expected"),
    [
        ("n", pa.string(), "CAST(n AS VARCHAR)", ["10", "20", "30"]),
        ("n", pa.int64(), "n + id", [11, 22, 33]),
        ("n", pa.large_string(), "n", ["10", "20", "30"]),
        ("n", pa.timestamp("us", "UTC"), "to_timestamp(t.n)", None),
        ("n", pa.bool8(), "n > 10", [0, 1, 1]),
        ("v", pa.binary(), "encode(v)", [b"a", b"b", None]),
        ("v", pa.uuid(), "uuid()", None),
        ("n", pa.float32(), "", [10, 20, 30]),
        (
            "n",
            pa.list_(pa.bool_()),
            "list_transform([1, 20], lambda x: x >= n)",
            [[False, True]] * 2 + [[False] * 2],
        ),
    ],
)
def test_a_column_gets_another_type(
    table: MemoryTable,
    name: str,
    data_type: pa.DataType,
    expression: str,
    expected: list[object] | None,
) -> None:
    table.change_column_type(CTX, _one(name, data_type), expression)
    field = table.arrow_schema.field(name.lower())
    assert field.type == data_type
    if expected is not None:
        values = [
            value
            for batch in table.scan(CTX, ScanOptions())
            for value in _storage(batch.column(field.name)).to_pylist()
        ]
        assert values == expected
    assert ids_of(table) == [0, 1, 2]
    assert rows_of(table, version=0)[0] == {"id": 1, "v": "a", "n": 10}


def _storage(column: pa.Array) -> pa.Array:
    return column.storage if isinstance(column, pa.ExtensionArray) else column


def test_a_type_of_many_segments_is_changed_row_by_row() -> None:
    rows = 400_000
    table = MemoryTable("t", pa.table({"n": pa.arange(0, rows)}))
    write = staged(table, Operation.DELETE)
    write.apply(pa.record_batch({"rowid": pa.arange(1000, 2000)}))
    write.commit()
    table.change_column_type(CTX, _one("n", pa.string()), "CAST(n AS VARCHAR)")
    assert _column(table, "n") == [str(n) for n in range(rows) if not 1000 <= n < 2000]


def test_a_dropped_table_cannot_be_altered() -> None:
    schema = MemorySchema("s")
    table = MemoryTable("t", DATA)
    schema.add_table(table)
    schema.drop_table(CTX, "t", DropTableOptions())
    with pytest.raises(NotFound, match=r"table s\.t does not exist"):
        table.rename_column(CTX, "id", "x")
