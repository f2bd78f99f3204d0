"""Types that DuckDB's client cannot read are refused with column and remedy (airport §13.2)."""

from __future__ import annotations

import pyarrow as pa
import pytest
from tests.wire.arrow_values import BIGNUM, BIT, HUGEINT, TIME_TZ, UHUGEINT

from sparkport.engine.types import publishable_schema, refuse_unsupported, type_name
from sparkport.errors import BadRequest, Unsupported

UNION = [pa.field("a", pa.int32())]
ENUM = pa.dictionary(pa.uint8(), pa.string())


@pytest.mark.parametrize(
    "data_type",
    [
        *(
            pa.bool_(),
            pa.int8(),
            pa.int64(),
            pa.uint8(),
            pa.uint64(),
            pa.float32(),
            pa.float64(),
            pa.null(),
        ),
        *(pa.decimal32(9, 2), pa.decimal64(18, 0), pa.decimal128(38, 38)),
        *(
            pa.string(),
            pa.large_string(),
            pa.string_view(),
            pa.binary(),
            pa.large_binary(),
            pa.binary_view(),
        ),
        *(
            pa.binary(5),
            pa.date32(),
            pa.date64(),
            pa.time32("s"),
            pa.time64("ns"),
            pa.timestamp("ms", "UTC"),
        ),
        *(pa.duration("us"), pa.month_day_nano_interval(), pa.uuid(), pa.bool8(), pa.json_(), ENUM),
        *(HUGEINT, UHUGEINT, TIME_TZ, BIT, BIGNUM, pa.opaque(pa.binary(), "varint", "DuckDB")),
        *(pa.list_(pa.uuid()), pa.large_list(BIT), pa.list_view(pa.int8()), pa.list_(pa.int8(), 3)),
        *(
            pa.struct([("a", HUGEINT)]),
            pa.map_(pa.string(), pa.list_(pa.int8())),
            pa.sparse_union(UNION),
        ),
        pa.run_end_encoded(pa.int32(), pa.string()),
    ],
    ids=str,
)
def test_every_type_of_the_table_is_taken(data_type) -> None:
    refuse_unsupported(pa.schema([("v", data_type)]), "table t")


@pytest.mark.parametrize(
    ("data_type", "remedy"),
    [
        (pa.float16(), "use float or double"),
        (pa.decimal256(50, 2), "use decimal128"),
        (pa.decimal256(5, 2), "use decimal128"),
        (pa.dense_union(UNION), "use a sparse union"),
        (pa.struct([]), "a struct needs at least one field"),
        (pa.sparse_union([]), "a union needs at least one member"),
        (pa.list_(pa.int8(), 0), "at least one element"),
        (pa.decimal128(5, -2), "the scale must be between 0 and the precision"),
        (pa.opaque(pa.string(), "hugeint", "DuckDB"), "the storage of hugeint must be 16 bytes"),
        (pa.opaque(pa.binary(4), "time_tz", "DuckDB"), "the storage of time_tz must be 8 bytes"),
        (pa.opaque(pa.string(), "bit", "DuckDB"), "the storage of bit must be binary"),
    ],
    ids=str,
)
def test_a_type_that_is_not_taken_is_named_with_the_remedy_wherever_it_stands(
    data_type, remedy
) -> None:
    nestings = {
        "v": data_type,
        "v[]": pa.list_(data_type),
        "v.f": pa.struct([("ok", pa.int8()), ("f", data_type)]),
        "v.value": pa.map_(pa.string(), data_type),
        "v[].f[]": pa.large_list(pa.struct([("f", pa.list_view(data_type))])),
        "v.m": pa.sparse_union([pa.field("ok", pa.int8()), pa.field("m", data_type)]),
    }
    for path, nested in nestings.items():
        with pytest.raises(Unsupported) as refusal:
            refuse_unsupported(pa.schema([("id", pa.int64()), ("v", nested)]), "table t")
        assert refusal.value.message.startswith(
            f"table t: DuckDB cannot take the column {path} of type "
        )
        assert remedy in refusal.value.message


def test_a_dictionary_is_taken_as_a_column_but_not_inside_one() -> None:
    with pytest.raises(Unsupported, match="use the plain values"):
        refuse_unsupported(pa.schema([("v", pa.list_(ENUM))]), "table t")


def geometry(metadata: str, data_type: pa.DataType | None = None) -> pa.Field:
    keys = {"ARROW:extension:name": "geoarrow.wkb", "ARROW:extension:metadata": metadata}
    return pa.field("g", data_type or pa.binary(), metadata=keys)


@pytest.mark.parametrize(
    "metadata",
    [
        "",
        "{}",
        '{"crs": "EPSG:4326", "crs_type": "authority_code"}',
        '{"crs": {"type": "GeographicCRS"}}',
        '{"edges": "planar"}',
    ],
)
def test_geometries_on_a_plane_are_taken(metadata) -> None:
    for storage in (pa.binary(), pa.large_binary(), pa.binary_view()):
        refuse_unsupported(pa.schema([geometry(metadata, storage)]), "table t")


@pytest.mark.parametrize(
    ("field", "problem"),
    [
        (geometry('{"edges": "spherical"}'), "must be planar"),
        (geometry("not JSON"), "must be JSON"),
        (geometry("[]"), "must be a JSON object"),
        (geometry('{"crs": 4326}'), "must be text or a PROJJSON object"),
        (geometry("{}", pa.string()), "must be stored as binary"),
    ],
)
def test_other_geometries_are_refused(field, problem) -> None:
    for nested in (field, pa.field("v", pa.list_(field))):
        with pytest.raises(Unsupported, match=problem):
            refuse_unsupported(pa.schema([nested]), "table t")


def with_raw_name(name: bytes) -> pa.Schema:
    """Make a schema whose names are not text, as only a file or a network can bring it."""
    message = pa.schema([("N" * len(name), pa.int8())]).serialize().to_pybytes()
    return pa.ipc.read_schema(pa.py_buffer(message.replace(b"N" * len(name), name)))


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        (pa.schema([("a", pa.int8()), ("", pa.int8())]), "column number 2 of table t has no name"),
        (
            pa.schema([("a\0b", pa.int8())]),
            "the name of column number 1 of table t contains a NUL character",
        ),
        (
            pa.schema([("s", pa.struct([("a\0b", pa.int8())]))]),
            "a field inside the column s of table t contains a NUL",
        ),
        (
            with_raw_name(b"\xed\xa0\x80"),
            "the name of column number 1 of table t is not text in UTF-8",
        ),
        (with_raw_name(b"\xff\xfe\xff"), "is not text in UTF-8"),
    ],
)
def test_names_that_cannot_be_columns_are_refused(schema, problem) -> None:
    with pytest.raises(BadRequest) as refusal:
        refuse_unsupported(schema, "table t")
    assert problem in refusal.value.message


def test_a_publishable_schema_has_plain_values() -> None:
    runs = pa.run_end_encoded(pa.int32(), pa.int64())
    encoded = pa.schema(
        [
            pa.field("e", ENUM, nullable=False, metadata={"k": "v"}),
            ("l", pa.list_(pa.field("l", ENUM))),
            ("f", pa.list_(ENUM, 2)),
            ("s", pa.struct([pa.field("a", runs, nullable=False)])),
            ("m", pa.map_(pa.string(), pa.large_list(ENUM))),
            ("u", pa.sparse_union([pa.field("x", pa.list_view(ENUM))])),
            ("id", pa.uuid()),
        ],
        {"k": "v"},
    )
    plain = pa.schema(
        [
            pa.field("e", pa.string(), nullable=False, metadata={"k": "v"}),
            ("l", pa.list_(pa.field("l", pa.string()))),
            ("f", pa.list_(pa.string(), 2)),
            ("s", pa.struct([pa.field("a", pa.int64(), nullable=False)])),
            ("m", pa.map_(pa.string(), pa.large_list(pa.string()))),
            ("u", pa.sparse_union([pa.field("x", pa.list_view(pa.string()))])),
            ("id", pa.uuid()),
        ],
        {"k": "v"},
    )
    assert publishable_schema(encoded).equals(plain, check_metadata=True)
    refuse_unsupported(publishable_schema(encoded), "table t")


def test_messages_call_types_by_the_names_that_users_know() -> None:
    assert [
        type_name(data_type) for data_type in (pa.uuid(), pa.bool8(), HUGEINT, TIME_TZ, pa.int64())
    ] == [*("UUID", "BOOLEAN", "HUGEINT", "TIME_TZ", "int64")]
