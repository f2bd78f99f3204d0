"""Every Arrow type that DuckDB can take: stored, changed, removed and compared."""

from __future__ import annotations

import datetime
import decimal

import duckdb
import pyarrow as pa
import pytest
from tests.memory.statements import CTX, delete, rows_of, staged

from sparkport.catalog import Constraints, Operation, ScanOptions
from sparkport.errors import ConstraintViolation
from sparkport.memory import MemoryTable

UUIDS = [b"0" * 16, b"1" * 16, b"2" * 16]
TIMES = [datetime.datetime(2024, 1, day, 3, 4, 5) for day in (1, 2, 3)]


def _opaque(name: str, storage: pa.DataType, values: list[bytes]) -> pa.Array:
    return pa.ExtensionArray.from_storage(
        pa.opaque(storage, name, "DuckDB"), pa.array(values, storage)
    )


VALUES: dict[str, pa.Array] = {
    "bool": pa.array([True, False, None]),
    "int8": pa.array([1, 2, 3], pa.int8()),
    "uint64": pa.array([1, 2, 2**64 - 1], pa.uint64()),
    "float": pa.array([1.5, float("nan"), 3], pa.float32()),
    "double": pa.array([1.5, 2.5, -0.0]),
    "decimal": pa.array([decimal.Decimal(n) for n in ("1.1", "2.2", "3.3")], pa.decimal128(38, 4)),
    "decimal32": pa.array([decimal.Decimal(n) for n in ("1.1", "2.2", "3.3")], pa.decimal32(5, 1)),
    "string": pa.array(["a", "b", "c" * 100]),
    "large_string": pa.array(["a", "b", "c"], pa.large_string()),
    "string_view": pa.array(["a", "b", "c" * 100], pa.string_view()),
    "binary": pa.array([b"a", b"b", b"c"]),
    "binary_view": pa.array([b"a", b"b", b"c"], pa.binary_view()),
    "fixed_size_binary": pa.array([b"aa", b"bb", b"cc"], pa.binary(2)),
    "date32": pa.array([datetime.date(2024, 1, day) for day in (1, 2, 3)]),
    "time64": pa.array([datetime.time(hour) for hour in (1, 2, 3)], pa.time64("us")),
    "timestamp_s": pa.array(TIMES, pa.timestamp("s")),
    "timestamp_ns": pa.array(TIMES, pa.timestamp("ns")),
    "timestamptz": pa.array(TIMES, pa.timestamp("us", "America/New_York")),
    "interval": pa.array([(1, 2, 3), (2, 0, 0), (3, 0, 0)], pa.month_day_nano_interval()),
    "duration": pa.array([1, 2, 3], pa.duration("us")),
    "uuid": pa.array(UUIDS, pa.uuid()),
    "json": pa.array(["1", "[2]", '{"a":3}'], pa.json_()),
    "bool8": pa.ExtensionArray.from_storage(pa.bool8(), pa.array([1, 0, None], pa.int8())),
    "hugeint": _opaque("hugeint", pa.binary(16), UUIDS),
    "bit": _opaque("bit", pa.binary(), [b"\x04\xf5", b"\x04\xf1", b"\x04\xf3"]),
    "time_tz": _opaque("time_tz", pa.binary(8), [b"\x00" * 8, b"\x01" * 8, b"\x02" * 8]),
    "list": pa.array([[1, None], [2], []]),
    "large_list": pa.array([[1], [2], [3]], pa.large_list(pa.int32())),
    "list_view": pa.array([[1], [2], [3]], pa.list_view(pa.int32())),
    "fixed_size_list": pa.array([[1, 2], [3, 4], [5, 6]], pa.list_(pa.int32(), 2)),
    "struct": pa.array([{"a": 1, "b": "x"}, {"a": 2, "b": None}, {"a": 3, "b": "z"}]),
    "struct_of_views": pa.array(
        [{"a": "x"}, {"a": "y"}, {"a": "z"}], pa.struct([("a", pa.string_view())])
    ),
    "map": pa.array([[("a", 1)], [("b", 2)], []], pa.map_(pa.string(), pa.int32())),
    "union": pa.UnionArray.from_sparse(
        pa.array([0, 1, 0], pa.int8()), [pa.array([1, 2, 3]), pa.array(["a", "b", "c"])], ["i", "s"]
    ),
    "dictionary": pa.array(["a", "b", "c"]).dictionary_encode(),
    "run_end_encoded": pa.RunEndEncodedArray.from_arrays(
        pa.array([1, 2, 3], pa.int32()), pa.array(["x", "y", "z"])
    ),
}


def _table(values: pa.Array, constraints: Constraints | None = None) -> MemoryTable:
    data = pa.table({"n": pa.array([0, 1, 2]), "v": values})
    return MemoryTable("t", data, constraints=constraints)


@pytest.mark.parametrize("name", VALUES)
def test_rows_can_be_inserted_updated_and_deleted(name: str) -> None:
    values = VALUES[name]
    table = _table(values)
    write = staged(table, Operation.INSERT)
    write.apply(pa.record_batch([pa.array([3, 4, 5]), values], names=["n", "v"]))
    assert write.commit() == 3

    write = staged(table, Operation.UPDATE, returning=True)
    answer = write.apply(pa.record_batch([values.slice(2, 1), pa.array([4])], names=["v", "rowid"]))
    assert answer is not None
    assert answer.column("v").equals(values.slice(2, 1)) or name == "float"
    assert write.commit() == 1
    assert delete(table, [0, 5]) == 2

    shown = values.to_pylist()
    assert [row["n"] for row in rows_of(table)] == [1, 2, 3, 4]
    expected = [shown[1], shown[2], shown[0], shown[2]]
    assert repr([row["v"] for row in rows_of(table)]) == repr(expected)
    for batch in table.scan(CTX, ScanOptions()):
        batch.validate(full=True)
        assert batch.schema.field("v").type == values.type


@pytest.mark.parametrize("name", VALUES)
def test_equal_values_violate_a_unique_constraint(name: str) -> None:
    if name == "union" and duckdb.__version__.startswith("1."):
        pytest.skip("DuckDB 1 finds no two unions equal")
    values = VALUES[name]
    table = _table(values, Constraints(unique=(("v",),)))
    write = staged(table, Operation.INSERT)
    write.apply(pa.record_batch([pa.array([7]), values.slice(1, 1)], names=["n", "v"]))
    with pytest.raises(
        ConstraintViolation, match=r'Duplicate key "v: .*" violates unique constraint'
    ):
        write.commit()
    assert len(rows_of(table)) == 3
