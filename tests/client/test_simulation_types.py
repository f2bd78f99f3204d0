"""The simulation sends and reads DuckDB's types as the real client does.

`recorded_types.json` holds, for each SQL type, the field that the real client sent in CREATE TABLE
under both values of `arrow_lossless_conversion`, and the type of the column that it made of the
same field coming back.
"""

import json
import re
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from sparkport.testing.local import LocalDuckDB
from sparkport.testing.types import difference, duckdb_type

RECORDED = json.loads(Path(__file__).with_name("recorded_types.json").read_text())
CASES = [
    pytest.param(kind == "lossless_true", case, id=f"{case['duckdb_type']}, {kind}")
    for kind, cases in RECORDED.items()
    for case in cases
]

# DuckDB 2.0, which evaluates and encodes for the simulation, differs from the recorded 1.5 here.
NESTED_DICTIONARY = "ENUM('red','green','blue')[]"


@pytest.mark.parametrize(("lossless", "case"), CASES)
def test_a_type_is_sent_and_read_as_recorded(lossless, case):
    if case["duckdb_type"] == '"NULL"' and duckdb.__version__.startswith("1."):
        pytest.skip(
            "DuckDB 1 makes an INTEGER of a column that is only NULL when it is asked for its "
            "schema"
        )
    field = LocalDuckDB.shared(lossless).arrow_schema({"v": case["duckdb_type"]}).field("v")
    unwrapped, metadata = _unwrapped(field)

    assert _plain(str(unwrapped)) == case["type"]
    assert {**metadata} == {key: _compact(value) for key, value in case["metadata"].items()}
    if case["duckdb_type"] != NESTED_DICTIONARY:
        assert duckdb_type(field, "main", "here") == case["afterwards"]


def _plain(text: str) -> str:
    """Normalise a type as in the recording: storage for nested extension types, another zone."""
    text = re.sub(r"extension<arrow\.opaque\[storage_type=([^,]+), [^>]*\]>", r"\1", text)
    for name, storage in {
        "uuid": "fixed_size_binary[16]",
        "bool8": "int8",
        "json": "string",
    }.items():
        text = text.replace(f"extension<arrow.{name}>", storage)
    return text.replace("Etc/UTC", "UTC")


def _unwrapped(field: pa.Field) -> tuple[pa.DataType, dict[str, str]]:
    """Storage type and extension metadata, as they are on the wire."""
    if not isinstance(field.type, pa.BaseExtensionType):
        found = {key.decode(): value.decode() for key, value in (field.metadata or {}).items()}
        return field.type, {key: _compact(value) for key, value in found.items()}
    kind = field.type
    described = (
        {"type_name": kind.type_name, "vendor_name": kind.vendor_name}
        if hasattr(kind, "vendor_name")
        else ""
    )
    text = json.dumps(described, separators=(",", ":")) if described else ""
    return kind.storage_type, {
        "ARROW:extension:name": kind.extension_name,
        "ARROW:extension:metadata": text,
    }


def _compact(text: str) -> str:
    return (
        json.dumps(json.loads(text), separators=(",", ":"), sort_keys=True)
        if text.startswith("{")
        else text
    )


SAME = [
    (pa.list_(pa.field("item", pa.int32())), pa.list_(pa.field("l", pa.int32(), nullable=False))),
    (pa.timestamp("us", "UTC"), pa.timestamp("us", "Etc/UTC")),
    (pa.struct([("a", pa.int8())]), pa.struct([("b", pa.int8())])),
    (pa.uuid(), pa.uuid()),
]
DIFFERENT = [
    (pa.string(), pa.large_string()),
    (pa.timestamp("us"), pa.timestamp("us", "UTC")),
    (pa.timestamp("ms"), pa.timestamp("us")),
    (pa.binary(16), pa.uuid()),
    (pa.list_(pa.int32()), pa.large_list(pa.int32())),
    (pa.list_(pa.int32()), pa.list_(pa.int64())),
    (pa.list_(pa.int32(), 2), pa.list_(pa.int32(), 3)),
    (
        pa.struct([("a", pa.int8()), ("b", pa.int8())]),
        pa.struct([("b", pa.int8()), ("a", pa.int8())]),
    ),
    (pa.struct([("a", pa.int8())]), pa.struct([("a", pa.int8()), ("b", pa.int8())])),
    (pa.map_(pa.string(), pa.int8()), pa.map_(pa.string(), pa.int16())),
    (pa.dictionary(pa.int8(), pa.string()), pa.dictionary(pa.int32(), pa.string())),
    (pa.dictionary(pa.int8(), pa.string()), pa.string()),
    (pa.decimal128(10, 2), pa.decimal128(10, 3)),
    (pa.null(), pa.int8()),
]


@pytest.mark.parametrize(("left", "right"), SAME, ids=str)
def test_types_that_a_blind_reader_cannot_tell_apart_are_the_same(left, right):
    assert difference(pa.field("a", left), pa.field("a", right)) is None


@pytest.mark.parametrize(("left", "right"), DIFFERENT, ids=str)
def test_types_of_another_layout_differ(left, right):
    assert difference(pa.field("a", left), pa.field("a", right)) is not None
    assert difference(pa.field("a", right), pa.field("a", left)) is not None


def test_nanoseconds_of_a_day_are_read_by_the_line():
    field = pa.field("t", pa.time64("ns"))

    assert duckdb_type(field, "main", "here") == "TIME_NS"
    assert duckdb_type(field, "v1.4", "here") == "TIME"
