"""Declared types in Iceberg, and back: every type of DuckDB, nested, sliced, renamed.

Other engines may change them in between.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.schema import Schema, assign_fresh_schema_ids
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    GeographyType,
    GeometryType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    PrimitiveType,
    StringType,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UnknownType,
    UUIDType,
)
from tests.types.encoded import bits, meant
from tests.types.matrix import LINES, Line, Setting
from tests.wire.arrow_values import BIGNUM, BIT, HUGEINT, TIME_TZ, UHUGEINT

from sparkport.engine.encodings import convert_array
from sparkport.errors import BadRequest, PreconditionFailed, Unsupported
from sparkport.spark.iceberg.file_io import StorageIO
from sparkport.spark.iceberg.table_state import metadata_text
from sparkport.spark.iceberg.types.declared import (
    TYPES_PROPERTY,
    declared_fields,
    decode,
    encode,
    natural_type,
    needs_decoding,
    order_preserving,
    spark_type,
    stored_field,
    stored_schema,
    type_tags_in,
    written_type_tags,
)

_LINES = pytest.mark.parametrize("line", LINES, ids=lambda line: line.name)
_INTERVAL = pa.month_day_nano_interval()


def _kept(field: pa.Field) -> tuple[NestedField, pa.Field]:
    """The column in Iceberg, and as it is seen again."""
    schema, type_tags = stored_schema(pa.schema([field]))
    (declared,) = declared_fields(schema, {TYPES_PROPERTY: written_type_tags(type_tags)})
    return schema.fields[0], declared


def _there_and_back(array: pa.Array, field: pa.Field) -> pa.Array:
    stored, declared = _kept(field)
    values = (
        array
        if array.type == declared.type
        else convert_array(array, declared.type, "v", from_duckdb=False)
    )
    encoded = encode(values, declared, stored.field_type)
    encoded.validate(full=True)
    assert encoded.type.equals(natural_type(stored.field_type))
    decoded = decode(encoded, stored.field_type, declared)
    decoded.validate()  # not in full: 24:00 is a time in DuckDB, and not in Arrow
    assert decoded.type.equals(declared.type)
    return decoded


# ---------------------------------------------------------------------------------- there and back


def _nestings(array: pa.Array) -> Iterator[tuple[str, pa.Array]]:
    """The values inside every nested type, with NULLs and gaps, and as slices of longer arrays."""
    count = len(array)
    padded = pa.concat_arrays([array, array, array])
    yield "itself", array
    yield "a slice", padded.slice(count + 1, count - 1)
    yield "nothing", array.slice(0, 0)
    offsets = pa.array([0, 0, count, count, 2 * count, 3 * count], pa.int32())
    lists = pa.ListArray.from_arrays(
        offsets, padded, mask=pa.array([False, False, True, False, False])
    )
    yield "lists", lists
    yield "a slice of lists", lists.slice(1, 3)
    yield (
        "lists of lists",
        pa.ListArray.from_arrays(pa.array([0, 2, 2, 4], pa.int32()), lists.slice(1)),
    )
    fixed = pa.FixedSizeListArray.from_arrays(padded.slice(0, 2 * (count // 2)), 2)
    yield "arrays", fixed
    yield "a slice of arrays", fixed.slice(len(fixed) // 2)
    absent = pa.array([index % 3 == 1 for index in range(count)])
    structs = pa.StructArray.from_arrays(
        [array, pa.array(range(count))], names=["v", "n"], mask=absent
    )
    yield "structs", structs
    yield "a slice of structs", structs.slice(1)
    keys = pa.array([f"k{index}" for index in range(3 * count)])
    maps = pa.MapArray.from_arrays(
        offsets, keys, padded, mask=pa.array([False, True, False, False, False])
    )
    yield "maps", maps
    yield "a slice of maps", maps.slice(1, 3)
    if not array.null_count and not pa.types.is_null(array.type):
        yield (
            "keys of maps",
            pa.MapArray.from_arrays(pa.array([0, 0, count], pa.int32()), array, array),
        )
    tags = pa.array([index % 2 for index in range(count)], pa.int8())
    unions = pa.UnionArray.from_sparse(tags, [pa.array(["x"] * count), array], ["tag", "v"])
    yield "unions", unions
    yield "a slice of unions", unions.slice(1)
    yield "structs of unions", pa.StructArray.from_arrays([unions], names=["u"], mask=absent)


@_LINES
def test_every_type_comes_back_with_all_its_values_wherever_it_is_nested(line: Line) -> None:
    _, declared = _kept(line.sent_as(Setting.LOSSLESS))
    array = convert_array(meant(line, Setting.LOSSLESS), declared.type, "v", from_duckdb=False)
    for where, values in _nestings(array):
        back = _there_and_back(values, pa.field("v", values.type, metadata=line.metadata or None))
        assert bits(back) == bits(values), where


@pytest.mark.parametrize("setting", Setting)
@_LINES
def test_whatever_the_settings_of_the_session_the_column_keeps_its_type(
    line: Line, setting: Setting
) -> None:
    _, declared = _kept(line.sent_as(setting))
    shown = _duckdb_type(declared)
    expected = (
        line.by_default or line.name if setting is Setting.DEFAULT else line.reported or line.name
    )
    assert shown == expected


def _duckdb_type(field: pa.Field) -> str:
    """The type that the client makes of a column (airport §13.2)."""
    empty = pa.Table.from_arrays([pa.nulls(0, field.type)], schema=pa.schema([field]))
    with duckdb.connect(":memory:") as connection:
        return str(connection.from_arrow(empty).types[0])


def test_a_column_that_needs_no_conversion_is_passed_on_as_the_same_object() -> None:
    array = pa.array([{"a": [1, None]}, None], pa.struct([("a", pa.list_(pa.int32()))]))
    stored, declared = _kept(pa.field("v", array.type))
    assert not needs_decoding(stored.field_type, declared)
    assert decode(array, stored.field_type, declared) is array
    assert encode(array, declared, stored.field_type) is array


def test_what_stands_below_a_null_is_never_refused() -> None:
    beyond = pa.array([2**62, 1], pa.timestamp("s"))  # no timestamp of Spark
    structs = pa.StructArray.from_arrays([beyond], names=["t"], mask=pa.array([True, False]))
    lists = pa.ListArray.from_arrays(
        pa.array([0, 1, 2], pa.int32()), beyond, mask=pa.array([True, False])
    )
    fixed = pa.FixedSizeListArray.from_arrays(beyond, 1, mask=pa.array([True, False]))
    unions = pa.UnionArray.from_sparse(
        pa.array([0, 1], pa.int8()), [pa.array([7, 8]), beyond], ["n", "t"]
    )
    for array in (structs, lists, fixed, unions):
        assert bits(_there_and_back(array, pa.field("v", array.type))) == bits(array)


def test_dictionaries_and_runs_are_kept_as_plain_values() -> None:
    _, enum = _kept(pa.field("v", pa.dictionary(pa.uint8(), pa.string())))
    _, runs = _kept(pa.field("v", pa.run_end_encoded(pa.int32(), pa.uint8())))
    assert (enum.type, runs.type) == (pa.string(), pa.uint8())


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        (pa.large_string(), pa.string()),
        (pa.string_view(), pa.string()),
        (pa.large_binary(), pa.binary()),
        (pa.binary_view(), pa.binary()),
        (pa.binary(7), pa.binary()),
        (pa.large_list(pa.large_string()), pa.list_(pa.string())),
        (pa.list_view(pa.int8()), pa.list_(pa.int8())),
        (pa.large_list_view(pa.int32()), pa.list_(pa.int32())),
        (pa.decimal32(5, 2), pa.decimal128(5, 2)),
        (pa.decimal64(15, 2), pa.decimal128(15, 2)),
        (pa.date64(), pa.date32()),
        (pa.bool8(), pa.bool_()),
        (pa.json_(pa.large_string()), pa.json_()),
        (pa.opaque(pa.large_binary(), "bit", "DuckDB"), BIT),
        (pa.opaque(pa.binary(), "varint", "DuckDB"), pa.binary()),
        (pa.opaque(pa.string(), "anything", "somebody"), pa.string()),
        (pa.timestamp("us", "America/New_York"), pa.timestamp("us", "America/New_York")),
        (pa.timestamp("ns", "+05:30"), pa.timestamp("ns", "+05:30")),
        (pa.timestamp("s", "UTC"), pa.timestamp("s", "UTC")),
        (pa.duration("ms"), pa.duration("ms")),
        (pa.time32("s"), pa.time32("s")),
        (pa.time32("ms"), pa.time32("ms")),
    ],
    ids=str,
)
def test_types_of_other_clients_are_kept_as_what_duckdb_shows_of_them(
    sent: pa.DataType, kept: pa.DataType
) -> None:
    assert _kept(pa.field("v", sent))[1].type == kept


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@given(data=st.data())
@settings(max_examples=30, deadline=None)
def test_moments_spans_and_times_come_back_in_every_unit(unit: str, data: st.DataObject) -> None:
    per_second = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    limit = min(2**63 - 1, (2**63 - 1) * per_second // 10**6)
    ends = st.sampled_from([2**63 - 1, -(2**63 - 1)])
    moments = data.draw(st.lists(st.none() | ends | st.integers(-limit, limit)))
    times = data.draw(st.lists(st.none() | st.integers(0, 86400 * per_second)))
    clock = pa.time32(unit) if unit in ("s", "ms") else pa.time64(unit)
    for kind in (pa.timestamp(unit), pa.timestamp(unit, "Asia/Tokyo"), pa.duration(unit)):
        array = pa.array(moments, pa.int64()).view(kind)
        assert _there_and_back(array, pa.field("v", kind)).equals(array)
    plain = pa.array(times, pa.int32() if unit in ("s", "ms") else pa.int64()).view(clock)
    assert _there_and_back(plain, pa.field("v", clock)).equals(plain)


# -------------------------------------------------------------------------------------- in Iceberg


@pytest.mark.parametrize(
    ("declared", "stored"),
    [
        (pa.int8(), IntegerType()),
        (pa.uint8(), IntegerType()),
        (pa.uint16(), IntegerType()),
        (pa.uint32(), LongType()),
        (pa.uint64(), DecimalType(20, 0)),
        (HUGEINT, StringType()),
        (UHUGEINT, StringType()),
        (pa.time64("us"), LongType()),
        (TIME_TZ, LongType()),
        (pa.timestamp("us"), TimestampType()),
        (pa.timestamp("us", "UTC"), TimestamptzType()),
        (pa.timestamp("s"), TimestampType()),
        (pa.timestamp("ms", "UTC"), TimestamptzType()),
        (pa.timestamp("ns"), LongType()),
        (pa.timestamp("ns", "UTC"), LongType()),
        (pa.uuid(), StringType()),
        (pa.json_(), StringType()),
        (BIT, BinaryType()),
        (BIGNUM, BinaryType()),
        (pa.null(), BooleanType()),
        (pa.duration("us"), LongType()),
        (pa.decimal128(38, 10), DecimalType(38, 10)),
    ],
    ids=str,
)
def test_each_type_has_its_place_in_iceberg(declared: pa.DataType, stored: IcebergType) -> None:
    assert _kept(pa.field("v", declared))[0].field_type == stored


def test_not_null_is_icebergs_own() -> None:
    stored, declared = _kept(pa.field("v", pa.uint8(), nullable=False))
    assert stored.required
    assert not declared.nullable


def test_ids_are_those_that_iceberg_gives() -> None:
    point = pa.struct(
        [("x", pa.list_(pa.map_(pa.uuid(), pa.struct([("i", _INTERVAL)])))), ("y", pa.uint8())]
    )
    members = pa.sparse_union([pa.field("a", pa.list_(pa.int8())), pa.field("b", point)])
    columns = pa.schema(
        [("p", point), ("u", members), ("n", pa.int32()), ("m", pa.map_(point, members))]
    )
    schema, type_tags = stored_schema(columns)
    assert schema.as_struct() == assign_fresh_schema_ids(schema).as_struct()
    assert max(schema._lazy_id_to_name) >= max(type_tags)


def test_a_further_column_begins_at_the_next_id() -> None:
    field, type_tags = stored_field(pa.field("v", pa.list_(pa.uint8(), 3)), 17)
    assert (field.field_id, field.field_type) == (
        17,
        ListType(18, IntegerType(), element_required=False),
    )
    assert type_tags == {17: "array[3]", 18: "uint8"}


def test_tokens_are_only_where_iceberg_does_not_tell() -> None:
    columns = pa.schema(
        [("a", pa.int32()), ("b", pa.string()), ("c", pa.timestamp("us", "UTC")), ("d", pa.uint8())]
    )
    assert stored_schema(columns)[1] == {4: "uint8"}


@pytest.mark.parametrize(
    "text", ["", "no JSON", "[]", "3", '{"x": "uint8", "-1": "uint8", "1": 7, "²": "uint8"}']
)
def test_a_property_that_cannot_be_read_counts_for_nothing(text: str) -> None:
    assert type_tags_in({TYPES_PROPERTY: text}) == {}
    schema = Schema(NestedField(1, "v", IntegerType(), required=False))
    assert declared_fields(schema, {TYPES_PROPERTY: text}) == [pa.field("v", pa.int32())]


# ----------------------------------------------------------------------- what other engines change


def _declared_as(type_tag: str, stored: IcebergType) -> pa.DataType:
    schema = Schema(NestedField(1, "v", stored, required=False))
    (field,) = declared_fields(schema, {TYPES_PROPERTY: json.dumps({"1": type_tag})})
    return field.type


def test_renamed_columns_and_fields_keep_their_declared_types() -> None:
    members = pa.sparse_union([pa.field("a", pa.uint8()), pa.field("b", pa.uuid())])
    columns = pa.schema([("h", HUGEINT), ("s", pa.struct([("u", members), ("j", pa.json_())]))])
    schema, type_tags = stored_schema(columns)
    renamed = Schema(*(_renamed(field) for field in schema.fields))
    found = declared_fields(renamed, {TYPES_PROPERTY: written_type_tags(type_tags)})
    members = pa.sparse_union([pa.field("new a", pa.uint8()), pa.field("new b", pa.uuid())])
    assert found == [
        pa.field("new h", HUGEINT),
        pa.field("new s", pa.struct([("new u", members), ("new j", pa.json_())])),
    ]


def _renamed(field: NestedField) -> NestedField:
    kind = field.field_type
    if isinstance(kind, StructType):
        kind = StructType(*map(_renamed, kind.fields))
    return NestedField(field.field_id, f"new {field.name}", kind, required=field.required)


def _struct(schema: Schema) -> StructType:
    kind = schema.fields[0].field_type
    assert isinstance(kind, StructType)
    return kind


def test_a_union_whose_struct_was_put_in_another_order_is_still_the_same() -> None:
    array = pa.UnionArray.from_sparse(
        pa.array([0, 1, 1], pa.int8()),
        [pa.array([1, 2, 3], pa.uint8()), pa.array(["x", "y", None])],
        ["a", "b"],
    )
    schema, type_tags = stored_schema(pa.schema([("v", array.type)]))
    tag, a, b = _struct(schema).fields
    moved = Schema(NestedField(1, "v", StructType(b, tag, a), required=False))
    (declared,) = declared_fields(moved, {TYPES_PROPERTY: written_type_tags(type_tags)})
    assert declared.type == array.type
    stored = encode(array, declared, moved.fields[0].field_type)
    assert stored.to_pylist() == [
        {"b": None, "tag": 0, "a": 1},
        {"b": "y", "tag": 1, "a": None},
        {"b": None, "tag": 1, "a": None},
    ]
    assert bits(decode(stored, moved.fields[0].field_type, declared)) == bits(array)


@pytest.mark.parametrize("change", ["drop a member", "add a member", "change the tag"])
def test_a_struct_that_is_no_union_any_more_is_shown_as_a_struct(change: str) -> None:
    schema, type_tags = stored_schema(
        pa.schema([("v", pa.sparse_union([pa.field("a", pa.int32())]))])
    )
    tag, a = _struct(schema).fields
    fields = {
        "drop a member": [tag],
        "add a member": [tag, a, NestedField(9, "b", StringType(), required=False)],
        "change the tag": [NestedField(tag.field_id, "tag", LongType(), required=False), a],
    }[change]
    changed = Schema(NestedField(1, "v", StructType(*fields), required=False))
    (declared,) = declared_fields(changed, {TYPES_PROPERTY: written_type_tags(type_tags)})
    assert declared.type == natural_type(StructType(*fields))


@pytest.mark.parametrize(
    ("type_tag", "stored"),
    [
        ("uint8", LongType()),  # promoted
        ("uint64", DecimalType(25, 0)),
        ("uuid", BinaryType()),
        ("timestamp[s]", TimestamptzType()),
        ("interval", StructType(NestedField(2, "months", LongType(), required=False))),
        ("union[2,3]", StructType(NestedField(2, "a", LongType(), required=False))),
        ("array[3]", StringType()),
        ("array[0]", ListType(2, StringType(), element_required=False)),
        ("array[99999999999]", ListType(2, StringType(), element_required=False)),
        ("geometry {}", StringType()),
        ("no such type", IntegerType()),
        ("", IntegerType()),
        ("timestamp[us, tz=UTC]", LongType()),
    ],
)
def test_a_token_that_does_not_fit_the_column_counts_for_nothing(
    type_tag: str, stored: IcebergType
) -> None:
    assert _declared_as(type_tag, stored) == natural_type(stored)


def test_tokens_of_columns_that_are_gone_count_for_nothing() -> None:
    schema = Schema(NestedField(2, "w", IntegerType(), required=False))
    assert declared_fields(schema, {TYPES_PROPERTY: '{"1": "uint8"}'}) == [
        pa.field("w", pa.int32())
    ]


NATURAL: list[tuple[IcebergType, pa.DataType, str | None]] = [
    (BooleanType(), pa.bool_(), "boolean"),
    (IntegerType(), pa.int32(), "int"),
    (LongType(), pa.int64(), "bigint"),
    (FloatType(), pa.float32(), "float"),
    (DoubleType(), pa.float64(), "double"),
    (DecimalType(9, 2), pa.decimal128(9, 2), "decimal(9,2)"),
    (DateType(), pa.date32(), "date"),
    (TimeType(), pa.time64("us"), None),
    (TimestampType(), pa.timestamp("us"), "timestamp_ntz"),
    (TimestamptzType(), pa.timestamp("us", "UTC"), "timestamp"),
    (TimestampNanoType(), pa.timestamp("ns"), None),
    (TimestamptzNanoType(), pa.timestamp("ns", "UTC"), None),
    (StringType(), pa.string(), "string"),
    (UUIDType(), pa.uuid(), "string"),
    (FixedType(5), pa.binary(5), "binary"),
    (BinaryType(), pa.binary(), "binary"),
    (UnknownType(), pa.null(), "void"),
    (GeometryType(), pa.binary(), None),
    (GeographyType(), pa.binary(), None),
]


@pytest.mark.parametrize(("stored", "arrow", "spark"), NATURAL, ids=str)
def test_tables_of_other_engines_show_natural_types(
    stored: IcebergType, arrow: pa.DataType, spark: str | None
) -> None:
    nested = StructType(
        NestedField(1, "a`b", ListType(2, stored, element_required=True), required=True),
        NestedField(
            3, "m", MapType(4, StringType(), 5, stored, value_required=True), required=False
        ),
    )
    assert natural_type(nested) == pa.struct(
        [("a`b", pa.list_(arrow)), ("m", pa.map_(pa.string(), arrow))]
    )
    assert declared_fields(Schema(NestedField(1, "v", stored, required=True)), {})[0].type == arrow
    if spark is not None:
        assert spark_type(nested) == f"struct<`a``b`: array<{spark}>, `m`: map<string, {spark}>>"
    else:
        with pytest.raises(Unsupported, match=str(stored).split("(", maxsplit=1)[0]):
            spark_type(nested)


def test_a_type_that_is_not_known_is_refused_with_its_name_and_the_columns() -> None:
    class FutureType(PrimitiveType):
        root: str = "variant"

    schema = Schema(NestedField(1, "doc", FutureType(), required=False))
    with pytest.raises(Unsupported, match=r"column doc: .* variant cannot be shown"):
        declared_fields(schema, {})


def test_a_geometry_of_another_engine_is_one_for_duckdb() -> None:
    schema = Schema(NestedField(1, "g", GeometryType("EPSG:4326"), required=False))
    (field,) = declared_fields(schema, {})
    assert field.type == pa.binary()
    assert field.metadata[b"ARROW:extension:name"] == b"geoarrow.wkb"
    assert json.loads(field.metadata[b"ARROW:extension:metadata"]) == {"crs": "EPSG:4326"}


def test_spark_sends_other_encodings_of_the_same_values() -> None:
    (field,) = declared_fields(Schema(NestedField(1, "u", UUIDType(), required=False)), {})
    text = pa.array(["123e4567-e89b-12d3-a456-426614174000", None])
    assert (
        decode(text, UUIDType(), field).storage.to_pylist()[0].hex()
        == "123e4567e89b12d3a456426614174000"
    )
    moments = pa.array([0, None], pa.timestamp("us", "Europe/Berlin"))
    assert (
        decode(moments, TimestamptzType(), pa.field("t", pa.timestamp("us", "UTC"))).type.tz
        == "UTC"
    )
    required = pa.array([[1], None], pa.list_(pa.field("element", pa.int32(), nullable=False)))
    stored, declared = _kept(pa.field("v", pa.list_(pa.uint8())))
    assert decode(required, stored.field_type, declared).to_pylist() == [[1], None]


@pytest.mark.parametrize(
    "text", ["123E4567-E89B-12D3-A456-426614174000", "123e4567e89b12d3a456426614174000"]
)
def test_uuids_may_be_spelled_otherwise(text: str) -> None:
    (back,) = decode(pa.array([text]), StringType(), pa.field("u", pa.uuid())).storage.to_pylist()
    assert back.hex() == "123e4567e89b12d3a456426614174000"


@pytest.mark.parametrize(
    ("declared", "stored", "value"),
    [
        (pa.uint8(), pa.int32(), 300),
        (pa.uint8(), pa.int32(), -1),
        (pa.int8(), pa.int32(), 128),
        (pa.uint64(), pa.decimal128(20, 0), Decimal(2**64)),
        (HUGEINT, pa.string(), str(2**127)),
        (HUGEINT, pa.string(), "1.5"),
        (HUGEINT, pa.string(), "many"),
        (UHUGEINT, pa.string(), "-1"),
        (pa.time64("us"), pa.int64(), -1),
        (pa.time32("s"), pa.int64(), 86401),
        (pa.time32("s"), pa.int64(), 2**40),
        (TIME_TZ, pa.int64(), -1),
        (TIME_TZ, pa.int64(), 2**62 + 2**61),
        (pa.timestamp("s"), pa.timestamp("us"), datetime.datetime(2024, 1, 1, microsecond=1)),
        (pa.uuid(), pa.string(), "nobody"),
        (BIT, pa.binary(), b"\x09\xff"),
        (BIT, pa.binary(), b""),
        (BIGNUM, pa.binary(), b"\x80\x00\x02\x01"),
        (BIGNUM, pa.binary(), b"\x80"),
        (pa.null(), pa.bool_(), True),
        (pa.list_(pa.int32(), 2), pa.list_(pa.int32()), [1, 2, 3]),
        (
            pa.sparse_union([pa.field("a", pa.int32())]),
            pa.struct([("tag", pa.int32()), ("a", pa.int32())]),
            {"tag": 1},
        ),
    ],
    ids=str,
)
def test_a_value_of_another_engine_that_does_not_fit_is_refused(
    declared: pa.DataType, stored: pa.DataType, value: Any
) -> None:
    column, field = _kept(pa.field("col", declared))
    array = pa.array([None, value, None], stored)
    with pytest.raises(PreconditionFailed, match=r"column col is .* another engine has stored"):
        decode(array, column.field_type, field)
    nested, field = _kept(pa.field("col", pa.list_(pa.struct([("x", declared)]))))
    rows = pa.array([[{"x": value}]], pa.list_(pa.struct([("x", stored)])))
    with pytest.raises(PreconditionFailed, match=r"column col\[\]\.x is"):
        decode(rows, nested.field_type, field)


@pytest.mark.parametrize(
    ("declared", "array"),
    [
        (pa.timestamp("s"), pa.array([0, 2**62], pa.timestamp("s"))),
        (pa.timestamp("ms", "UTC"), pa.array([-(2**62)], pa.timestamp("ms", "UTC"))),
        (pa.time64("us"), pa.array([86400 * 10**6 + 1], pa.time64("us"))),
        (pa.uint8(), pa.array([1, 300], pa.int64())),
        (pa.decimal128(4, 1), pa.array([Decimal("12345.6")])),
        (pa.uuid(), pa.array(["no UUID"])),
    ],
    ids=str,
)
def test_a_value_that_cannot_be_stored_is_refused_with_its_column(
    declared: pa.DataType, array: pa.Array
) -> None:
    column, field = _kept(pa.field("col", declared))
    with pytest.raises(BadRequest, match="column col is"):
        encode(array, field, column.field_type)


def test_the_first_value_that_does_not_fit_is_named() -> None:
    array = pa.array([*range(200), 300, 301, *range(200)], pa.int32())
    with pytest.raises(PreconditionFailed, match="the value 300 "):
        decode(array, IntegerType(), pa.field("v", pa.uint8()))


# ------------------------------------------------------------------------------------------- order


def _sorted_by_duckdb(array: pa.Array) -> list[int]:
    table = pa.table({"n": pa.array(range(len(array))), "v": array})
    with duckdb.connect(":memory:") as connection:
        connection.register("t", table)
        return [
            n
            for (n,) in connection.execute(
                "SELECT n FROM t WHERE v IS NOT NULL ORDER BY v, n"
            ).fetchall()
        ]


@_LINES
def test_where_order_is_promised_stored_values_are_ordered_as_duckdb_orders_the_declared_ones(
    line: Line,
) -> None:
    stored, declared = _kept(line.sent_as(Setting.LOSSLESS))
    if not order_preserving(stored.field_type, declared):
        return
    values = convert_array(meant(line, Setting.LOSSLESS), declared.type, "v", from_duckdb=False)
    kept = encode(values, declared, stored.field_type)
    assert _sorted_by_duckdb(kept) == _sorted_by_duckdb(values)


@given(
    st.lists(
        st.tuples(st.integers(0, 86400 * 10**6), st.integers(-57599, 57599)),
        min_size=1,
        max_size=20,
    )
)
@settings(max_examples=50, deadline=None)
def test_times_with_offsets_are_kept_in_the_order_of_duckdb(times: list[tuple[int, int]]) -> None:
    packed = pa.array([(micros << 24) | (57599 - offset) for micros, offset in times], pa.int64())
    array = pa.ExtensionArray.from_storage(TIME_TZ, packed.view(pa.binary(8)))
    kept = encode(array, pa.field("v", TIME_TZ), LongType())
    assert _sorted_by_duckdb(kept) == _sorted_by_duckdb(array)
    assert bits(decode(kept, LongType(), pa.field("v", TIME_TZ))) == bits(array)


def test_order_is_promised_of_these_types_and_no_others() -> None:
    def promised(declared: pa.DataType) -> bool:
        column, field = _kept(pa.field("v", declared))
        return order_preserving(column.field_type, field)

    ordered = [
        pa.bool_(),
        pa.int8(),
        pa.uint64(),
        pa.float64(),
        pa.decimal128(9, 2),
        pa.string(),
        pa.json_(),
        BIGNUM,
    ]
    ordered += [
        pa.date32(),
        pa.time64("ns"),
        TIME_TZ,
        pa.timestamp("s"),
        pa.timestamp("ns", "UTC"),
        pa.duration("us"),
    ]
    others = [
        HUGEINT,
        UHUGEINT,
        pa.uuid(),
        BIT,
        _INTERVAL,
        pa.null(),
        pa.list_(pa.int8()),
        pa.struct([("a", pa.int8())]),
    ]
    assert all(map(promised, ordered))
    assert not any(map(promised, others))
    assert not order_preserving(UUIDType(), pa.field("v", pa.uuid()))


# ------------------------------------------------------------------------------------------- Spark


def _arrow_of(line: Line) -> tuple[pa.Field, pa.Array]:
    _, declared = _kept(line.sent_as(Setting.LOSSLESS).with_name("v"))
    return declared, convert_array(
        meant(line, Setting.LOSSLESS), declared.type, "v", from_duckdb=False
    )


def _metadata(spark: Any, table: str) -> TableMetadata:
    loaded = spark._jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(
        spark._jsparkSession, table
    )
    location = loaded.operations().current().metadataFileLocation()
    return TableMetadataUtil.parse_raw(metadata_text(StorageIO(dict), location))


@pytest.mark.spark
def test_spark_makes_reads_and_writes_every_type(lake: Any, namespace: str, tmp_path: Path) -> None:
    """A table has a column of each type.

    Its values go in and out by Spark SQL, which gives the ids that we expect.
    """
    spark, table = lake.spark, f"{lake.spark_catalog}.{namespace}.everything"
    lines = [(f"c{number}", *_arrow_of(line)) for number, line in enumerate(LINES)]
    columns = pa.schema([declared.with_name(name) for name, declared, _ in lines])
    schema, type_tags = stored_schema(columns)
    ddl = ", ".join(f"{field.name} {spark_type(field.field_type)}" for field in schema.fields)
    spark.sql(f"CREATE TABLE {table} ({ddl}) USING iceberg TBLPROPERTIES ('format-version'='3')")
    spark.sql(
        f"ALTER TABLE {table} SET TBLPROPERTIES "
        f"('{TYPES_PROPERTY}'='{written_type_tags(type_tags)}')"
    )

    rows = max(len(array) for _, _, array in lines)
    arrays = [
        array.take(pa.array([*range(len(array)), *[None] * (rows - len(array))]))
        for _, _, array in lines
    ]
    stored = [
        encode(array, column, field.field_type)
        for array, column, field in zip(arrays, columns, schema.fields, strict=True)
    ]
    pq.write_table(
        pa.table([pa.array(range(rows)), *stored], names=["n", *columns.names]),
        tmp_path / "staged.parquet",
    )
    spark.read.parquet(str(tmp_path)).createOrReplaceTempView("staged")
    spark.sql(f"INSERT INTO {table} SELECT {', '.join(columns.names)} FROM staged ORDER BY n")
    spark.catalog.dropTempView("staged")

    metadata = _metadata(spark, table)
    assert metadata.schema().as_struct() == schema.as_struct()
    shown = declared_fields(metadata.schema(), metadata.properties)
    assert shown == list(columns)

    by_spark = spark.table(table).toArrow()
    (path,) = (row[0] for row in spark.sql(f"SELECT file_path FROM {table}.files").collect())
    in_file = pq.read_table(path.removeprefix("file:"), memory_map=False)
    for array, field, kept in zip(arrays, shown, schema.fields, strict=True):
        for source in (by_spark, in_file):
            decoded = decode(source.column(field.name).combine_chunks(), kept.field_type, field)
            assert bits(_one_nan(decoded)) == bits(_one_nan(array)), field


def _one_nan(array: pa.Array) -> pa.Array:
    """Replace every NaN by the same NaN: Spark knows only one."""
    if not pa.types.is_floating(array.type):
        return array
    return pc.if_else(pc.is_nan(array), pa.scalar(float("nan"), array.type), array)


@pytest.mark.spark
def test_a_column_that_spark_renames_keeps_its_declared_type(lake: Any, namespace: str) -> None:
    spark, table = lake.spark, f"{lake.spark_catalog}.{namespace}.renamed"
    schema, type_tags = stored_schema(
        pa.schema([("a", pa.uint8()), ("s", pa.struct([("u", pa.uuid())]))])
    )
    ddl = ", ".join(f"{field.name} {spark_type(field.field_type)}" for field in schema.fields)
    properties = f"'format-version'='3', '{TYPES_PROPERTY}'='{written_type_tags(type_tags)}'"
    spark.sql(f"CREATE TABLE {table} ({ddl}) USING iceberg TBLPROPERTIES ({properties})")
    spark.sql(f"ALTER TABLE {table} RENAME COLUMN a TO b")
    spark.sql(f"ALTER TABLE {table} RENAME COLUMN s.u TO v")
    spark.sql(f"ALTER TABLE {table} ADD COLUMN a INT FIRST")
    metadata = _metadata(spark, table)
    assert declared_fields(metadata.schema(), metadata.properties) == [
        pa.field("a", pa.int32()),
        pa.field("b", pa.uint8()),
        pa.field("s", pa.struct([("v", pa.uuid())])),
    ]
