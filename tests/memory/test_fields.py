"""ALTER TABLE on fields of structs in memory: arrays that are composed anew."""

from __future__ import annotations

from typing import Any

import duckdb
import pyarrow as pa
import pytest
from tests.memory.statements import CTX, delete, rows_of

from sparkport.catalog import AddFieldOptions, Constraints, RemoveFieldOptions, ScanOptions
from sparkport.errors import (
    PreconditionFailed,
)
from sparkport.memory import MemoryTable

INNER = pa.struct([("x", pa.int64()), ("y", pa.string())])
TYPES: dict[str, pa.DataType] = {
    "st": pa.struct([("a", pa.int64()), ("b", INNER)]),
    "li": pa.list_(INNER),
    "la": pa.large_list(INNER),
    "fi": pa.list_(INNER, 2),
    "ma": pa.map_(pa.string(), INNER),
    "de": pa.struct([("l", pa.list_(pa.struct([("s", INNER)])))]),
}


def _inner(n: int) -> dict[str, Any]:
    return {"x": n, "y": str(n)}


ROWS: list[dict[str, Any]] = [
    {
        "st": {"a": n, "b": _inner(n)},
        "li": [_inner(n), None, _inner(n + 1)],
        "la": [_inner(n)],
        "fi": [_inner(n), None],
        "ma": [("k", _inner(n))],
        "de": {"l": [{"s": _inner(n)}]},
    }
    for n in range(3)
]
ROWS.insert(1, dict.fromkeys(TYPES))


@pytest.fixture
def table() -> MemoryTable:
    """A table of slices: the first row is deleted."""
    columns = pa.schema(list(TYPES.items()))
    table = MemoryTable("t", pa.Table.from_pylist([ROWS[-1], *ROWS], schema=columns).slice(0))
    delete(table, [0])
    return table


def _field(name: str, data_type: pa.DataType | None = None) -> pa.Schema:
    return pa.schema([(name, data_type or pa.int32())])


def _without_nulls(table: MemoryTable, column: str) -> list[Any]:
    return [row[column] for row in rows_of(table) if row[column] is not None]


@pytest.mark.parametrize(
    ("path", "select"),
    [
        (["st", "b"], lambda row: row["st"]["b"]),
        (["li", "element"], lambda row: row["li"][0]),
        (["la", "element"], lambda row: row["la"][0]),
        (["fi", "element"], lambda row: row["fi"][0]),
        (["ma", "value"], lambda row: row["ma"][0][1]),
        (["de", "l", "element", "s"], lambda row: row["de"]["l"][0]["s"]),
    ],
    ids=lambda value: ".".join(value) if isinstance(value, list) else "",
)
def test_fields_are_changed_at_any_depth(table: MemoryTable, path: list[str], select: Any) -> None:
    def values() -> list[Any]:
        return [select(row) for row in rows_of(table) if row[path[0]] is not None]

    nulls = [row[path[0]] is None for row in rows_of(table)]
    table.add_field(CTX, path, _field("new"), AddFieldOptions())
    assert values() == [{**_inner(n), "new": None} for n in range(3)]
    table.rename_field(CTX, [*path, "x"], "ex")
    assert values() == [{"ex": n, "y": str(n), "new": None} for n in range(3)]
    table.remove_field(CTX, [*path, "Y"], RemoveFieldOptions())
    assert values() == [{"ex": n, "new": None} for n in range(3)]
    assert [row[path[0]] is None for row in rows_of(table)] == nulls
    for batch in table.scan(CTX, ScanOptions()):
        batch.validate(full=True)


def test_nulls_inside_lists_stay_null(table: MemoryTable) -> None:
    table.add_field(CTX, ["li", "element"], _field("new"), AddFieldOptions())
    assert rows_of(table)[0]["li"] == [{**_inner(0), "new": None}, None, {**_inner(1), "new": None}]


@pytest.mark.skipif(
    duckdb.__version__.startswith("1."), reason="DuckDB 1 knows no CHECK of a struct's field"
)
def test_constraints_on_the_struct_still_hold() -> None:
    struct = pa.struct([("a", pa.int64()), ("b", pa.int64())])
    data = pa.table({"st": pa.array([{"a": 1, "b": 1}, {"a": 1, "b": 2}], struct)})
    unique = MemoryTable("t", data, constraints=Constraints(unique=(("st",),)))
    with pytest.raises(PreconditionFailed, match=r"is in a key \(st\), so it keeps all its fields"):
        unique.remove_field(CTX, ["st", "b"], RemoveFieldOptions())
    table = MemoryTable("t", data, constraints=Constraints(checks=("st.a > 0",)))
    for change in (
        lambda: table.remove_field(CTX, ["st", "a"], RemoveFieldOptions()),
        lambda: table.rename_field(CTX, ["st", "a"], "z"),
    ):
        with pytest.raises(PreconditionFailed, match="CHECK"):
            change()
    table.rename_field(CTX, ["st", "b"], "z")
    assert rows_of(table) == [{"st": {"a": 1, "z": 1}}, {"st": {"a": 1, "z": 2}}]
