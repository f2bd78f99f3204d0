"""For every encoding of a client, the table gets its own type and equal values (airport §13.3)."""

from __future__ import annotations

import datetime
import uuid
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.wire.arrow_values import (
    BIGNUM,
    BIT,
    HUGEINT,
    TIME_TZ,
    UHUGEINT,
    array_of,
    converted,
    in_python,
    parse_type,
)
from tests.wire.recordings import types

from sparkport.engine.encodings import Converter, convert_array, convert_batch
from sparkport.errors import BadRequest

ID = uuid.UUID("123e4567-e89b-12d3-a456-426614174000")
UNHURRIED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


# --------------------------------------------------------------------------- what the client sends


def month_day_nano(months: int, days: int, nanoseconds: int) -> pa.MonthDayNano:
    return pa.MonthDayNano([months, days, nanoseconds])


def recorded_values(entry: dict[str, Any]) -> pa.Array:
    names = {
        "datetime": datetime,
        "Decimal": Decimal,
        "UUID": uuid.UUID,
        "MonthDayNano": month_day_nano,
    }
    values = [eval(text, names) for text in entry["insert_values_python"]]
    return array_of(values, parse_type(entry["insert_array_type"]))


TYPES = types()
LOSSLESS = {(entry["duckdb_type"], entry["value_sql"]): entry for entry in TYPES["lossless_true"]}
FOREIGN = (
    "bit",
    "bitstring",
    "timetz",
    "STRUCT(u UUID, h HUGEINT, t TIMETZ, n STRUCT(b BOOLEAN, bi BIT))",
)
"""Types that the client did not send by default: it had made a table with BLOB and TIME instead."""
OTHERS = [
    pytest.param(entry, LOSSLESS[key], id=f"{setting}: {entry['duckdb_type']}")
    for setting, entries in TYPES.items()
    if setting != "lossless_true"
    for entry in entries
    if (key := (entry["duckdb_type"], entry["value_sql"])) in LOSSLESS
    and not (setting == "lossless_false" and entry["duckdb_type"] in FOREIGN)
]


@pytest.mark.parametrize("entry", [*LOSSLESS.values()], ids=lambda entry: entry["duckdb_type"])
def test_a_column_that_arrives_in_the_tables_type_is_passed_on_as_it_is(entry) -> None:
    array = recorded_values(entry)
    # The others are looked at, and kept.
    nested_booleans = "bool8" in str(array.type) and array.type != pa.bool8()
    assert (convert_array(array, array.type, "v") is array) is not nested_booleans
    assert convert_array(array, array.type, "v", from_duckdb=False) is array


@pytest.mark.parametrize(("sent", "lossless"), OTHERS)
def test_every_recorded_encoding_becomes_the_lossless_one_and_back(sent, lossless) -> None:
    other, faithful = recorded_values(sent), recorded_values(lossless)
    assert converted(other, faithful.type, from_duckdb=False) == in_python(faithful)
    assert converted(faithful, other.type, from_duckdb=False) == in_python(other)


def test_the_recordings_cover_the_types() -> None:
    assert len(LOSSLESS) > 90
    assert len(OTHERS) > 120


# ---------------------------------------------------------------------------- booleans and numbers


def test_booleans_in_all_their_encodings() -> None:
    for source in (pa.array([True, None, False]), array_of([True, None, False], pa.bool8())):
        for target in (pa.bool_(), pa.bool8()):
            assert converted(source, target) == [True, None, False]
        assert converted(source, pa.int8()) == [1, None, 0]
    assert converted(pa.array([1, None, 0], pa.int8()), pa.bool_()) == [True, None, False]


def test_every_byte_but_zero_is_true_in_bool8_and_none_but_one_in_a_plain_integer() -> None:
    byte = pa.array([5, -1, 0], pa.int8())
    boolean = pa.ExtensionArray.from_storage(pa.bool8(), byte)
    assert converted(boolean, pa.bool_(), from_duckdb=False) == [True, True, False]
    with pytest.raises(BadRequest, match="column v is bool, which cannot hold the value 5"):
        convert_array(byte, pa.bool_(), "v")


INTEGERS = [
    pa.int8(),
    pa.int16(),
    pa.int32(),
    pa.int64(),
    pa.uint8(),
    pa.uint16(),
    pa.uint32(),
    pa.uint64(),
]
LIMITS = {
    **{
        data_type: (-(1 << data_type.bit_width - 1), (1 << data_type.bit_width - 1) - 1)
        for data_type in INTEGERS[:4]
    },
    **{data_type: (0, (1 << data_type.bit_width) - 1) for data_type in INTEGERS[4:]},
}


@UNHURRIED
@given(data=st.data())
def test_an_integer_fits_or_is_refused_by_name(data) -> None:
    source, target = data.draw(st.sampled_from(INTEGERS)), data.draw(st.sampled_from(INTEGERS))
    values = data.draw(st.lists(st.none() | st.integers(*LIMITS[source]), max_size=5))
    low, high = LIMITS[target]
    misfits = [value for value in values if value is not None and not low <= value <= high]
    array = pa.array(values, source)
    if misfits:
        with pytest.raises(
            BadRequest, match=f"column v is {target}, which cannot hold the value {misfits[0]}$"
        ):
            convert_array(array, target, "v")
    else:
        assert converted(array, target) == values


NUMBERS = {HUGEINT: (-(2**127), 2**127 - 1), UHUGEINT: (0, 2**128 - 1)}
DECIMAL_LIMIT = 10**38


def huge(values: list[int | None], data_type: pa.DataType) -> pa.Array:
    signed = data_type == HUGEINT
    octets = [
        None if value is None else value.to_bytes(16, "little", signed=signed) for value in values
    ]
    return array_of(octets, data_type)


def as_numbers(array: pa.Array) -> list[int | None]:
    if array.type in NUMBERS:
        signed = array.type == HUGEINT
        return [
            None if v is None else int.from_bytes(v, "little", signed=signed)
            for v in array.storage.to_pylist()
        ]
    return [None if value is None else int(value) for value in array.to_pylist()]


@UNHURRIED
@given(data=st.data())
def test_huge_integers_travel_between_all_their_encodings(data) -> None:
    kinds: dict[pa.DataType, tuple[int, int]] = {
        **NUMBERS,
        pa.decimal128(38, 0): (1 - DECIMAL_LIMIT, DECIMAL_LIMIT - 1),
        pa.int64(): LIMITS[pa.int64()],
        pa.uint64(): LIMITS[pa.uint64()],
    }
    source, target = data.draw(st.sampled_from([*kinds])), data.draw(st.sampled_from([*kinds]))
    numbers = data.draw(st.lists(st.none() | st.integers(*kinds[source]), max_size=5))
    array = huge(numbers, source) if source in NUMBERS else pa.array(numbers, source)
    low, high = kinds[target]
    misfits = [n for n in numbers if n is not None and not low <= n <= high]
    if misfits:
        with pytest.raises(BadRequest, match=f"cannot hold the value {misfits[0]}$"):
            convert_array(array, target, "v", from_duckdb=False)
    else:
        result = convert_array(array, target, "v", from_duckdb=False)
        assert result.type == target
        assert as_numbers(result) == numbers


def test_what_duckdb_labels_as_a_decimal_may_be_the_upper_half_of_an_unsigned_number() -> None:
    numbers = [0, 1, 2**127 - 1, 2**127, 2**128 - 1, None]
    labelled = huge(numbers, UHUGEINT).storage.view(pa.decimal128(38, 0))
    assert as_numbers(convert_array(labelled, UHUGEINT, "v")) == numbers


def test_the_bytes_of_a_huge_integer_are_little_endian() -> None:
    five = convert_array(pa.array([Decimal(5), Decimal(-5)], pa.decimal128(38, 0)), HUGEINT, "v")
    assert five.storage.to_pylist() == [b"\x05" + b"\0" * 15, b"\xfb" + b"\xff" * 15]


def test_sixteen_plain_bytes_serve_as_huge_integer_and_uuid() -> None:
    octets = pa.array([ID.bytes, None])
    assert converted(octets, pa.uuid()) == [ID, None]
    assert converted(octets.cast(pa.binary(16)), HUGEINT) == [ID.bytes, None]
    with pytest.raises(BadRequest, match="cannot hold the value b'short'"):
        convert_array(pa.array([b"short"]), pa.uuid(), "v")


@pytest.mark.parametrize(
    "source", [pa.decimal32(9, 2), pa.decimal64(18, 2), pa.decimal128(38, 2)], ids=str
)
@pytest.mark.parametrize(
    "target",
    [pa.decimal32(9, 2), pa.decimal64(18, 2), pa.decimal128(10, 2), pa.decimal128(38, 4)],
    ids=str,
)
def test_decimals_of_any_width(source, target) -> None:
    values = [Decimal("-1234.56"), None, Decimal("0.01")]
    assert converted(pa.array(values, source), target) == values


@pytest.mark.parametrize(
    ("value", "source", "target"),
    [
        (Decimal("1.25"), pa.decimal128(10, 2), pa.decimal128(10, 1)),
        (Decimal("100.5"), pa.decimal128(10, 1), pa.decimal128(3, 1)),
        (Decimal("1.5"), pa.decimal128(10, 1), pa.int32()),
        (Decimal("1.5"), pa.decimal128(10, 1), HUGEINT),
        (1000, pa.int64(), pa.decimal128(5, 2)),
        (0.1, pa.float64(), pa.float32()),
        (1e300, pa.float64(), pa.float32()),
        (2**53 + 1, pa.int64(), pa.float64()),
        (1500, pa.timestamp("us"), pa.timestamp("ms")),
        (2**62, pa.timestamp("s"), pa.timestamp("us")),
        (1, pa.time64("ns"), pa.time64("us")),
        ("green", pa.string(), pa.uuid()),
        ("123e4567-e89b-12d3-a456-42661417400\t", pa.string(), pa.uuid()),
        (str(ID)[:-1] + "é", pa.string(), pa.uuid()),
        (b"0101101", pa.binary(), BIT),
        (b"", pa.binary(), BIT),
        (b"123", pa.binary(), BIGNUM),
        (b"\x80\x00\x02\x05", pa.binary(), BIGNUM),
        (b"abc", pa.binary(), pa.binary(4)),
    ],
    ids=str,
)
def test_a_value_that_would_not_survive_is_refused_and_named(value, source, target) -> None:
    array = pa.array([None, value], source)
    with pytest.raises(BadRequest, match=r"^column v is .*, which cannot hold the value .+"):
        convert_array(array, target, "v")


def test_numbers_that_fit_are_exact_in_another_form() -> None:
    assert converted(pa.array([1.5, None, -0.0, float("inf")]), pa.float32()) == [
        1.5,
        None,
        0.0,
        float("inf"),
    ]
    assert converted(pa.array([1.5, None], pa.float32()), pa.float64()) == [1.5, None]
    assert pc.is_nan(convert_array(pa.array([float("nan")]), pa.float32(), "v")).to_pylist() == [
        True
    ]
    assert converted(pa.array([2**53, None]), pa.float64()) == [2.0**53, None]
    assert converted(pa.array([999, None]), pa.decimal128(5, 2)) == [Decimal("999.00"), None]
    assert converted(pa.array([Decimal("7.00"), None], pa.decimal128(5, 2)), pa.int8()) == [7, None]


# -------------------------------------------------------------------- text, bytes, UUID, JSON, BIT


TEXTS = [
    pa.string(),
    pa.large_string(),
    pa.string_view(),
    pa.dictionary(pa.uint8(), pa.string()),
    pa.json_(),
]


@pytest.mark.parametrize("source", TEXTS, ids=str)
@pytest.mark.parametrize("target", [*TEXTS, pa.run_end_encoded(pa.int32(), pa.string())], ids=str)
def test_text_in_all_its_layouts(source, target) -> None:
    values = ["a", None, "", "ü" * 20, "a"]
    assert converted(array_of(values, source), target) == values


BLOBS = [pa.binary(), pa.large_binary(), pa.binary_view()]


@pytest.mark.parametrize("source", [*BLOBS, pa.binary(3)], ids=str)
@pytest.mark.parametrize("target", [*BLOBS, pa.binary(3)], ids=str)
def test_blobs_in_all_their_layouts(source, target) -> None:
    assert converted(pa.array([b"\xaa\x00\xff", None], source), target) == [b"\xaa\x00\xff", None]


def test_run_ends_are_decoded() -> None:
    assert converted(pc.run_end_encode(pa.array(["a", "a", None])), pa.large_string()) == [
        "a",
        "a",
        None,
    ]


@UNHURRIED
@given(ids=st.lists(st.none() | st.uuids(), max_size=6), layout=st.sampled_from(TEXTS[:3]))
def test_uuids_are_read_from_text_and_written_as_text(ids, layout) -> None:
    texts = [None if id is None else str(id) for id in ids]
    assert converted(pa.array(texts, layout), pa.uuid()) == ids
    assert converted(array_of(ids, pa.uuid()), layout) == texts


def test_uuids_may_be_spelled_in_other_ways() -> None:
    spellings = [str(ID).upper(), ID.hex, str(ID)]
    assert converted(pa.array(spellings), pa.uuid()) == [ID] * 3


def test_bit_and_bignum_are_bytes() -> None:
    bits, numbers = (
        [b"\x01\xad", None, b"\x04\xf5"],
        [b"\x80\x00\x01\x05", None, b"\x7f\xff\xfe\xfa"],
    )
    for layout in BLOBS:
        assert converted(pa.array(bits, layout), BIT) == bits
        assert converted(pa.array(numbers, layout), BIGNUM) == numbers
    assert converted(array_of(bits, BIT), pa.large_binary()) == bits
    assert converted(array_of(numbers, BIGNUM), pa.binary()) == numbers
    large = pa.opaque(pa.large_binary(), "bit", "DuckDB")
    assert converted(array_of(bits, BIT), large) == bits


def test_an_extension_that_nobody_knows_is_its_storage() -> None:
    other = pa.opaque(pa.binary(), "varint", "DuckDB")
    assert converted(pa.array([b"x", None]), other) == [b"x", None]
    assert converted(array_of([b"x", None], other), pa.large_binary()) == [b"x", None]


# -------------------------------------------------------------------------------------------- time


def test_a_time_without_zone_becomes_utc() -> None:
    noon = datetime.time(12, 34, 56, 789012)
    packed = convert_array(pa.array([noon, None]), TIME_TZ, "v")
    microseconds = ((12 * 60 + 34) * 60 + 56) * 10**6 + 789012
    assert packed.storage.to_pylist() == [
        ((microseconds << 24) | 57599).to_bytes(8, "little"),
        None,
    ]
    assert converted(packed, pa.time64("us")) == [noon, None]
    assert converted(array_of([b"\xff\xe0\x00\x00\x00\x00\x00\x00"], TIME_TZ), pa.time64("us")) == [
        datetime.time(0)
    ]


def test_a_time_with_an_offset_does_not_lose_it_silently() -> None:
    two_hours_east = array_of([b"\xdf\xc4\x00\x14&\xe6\x8b\n"], TIME_TZ)
    assert convert_array(two_hours_east, TIME_TZ, "v") is two_hours_east
    with pytest.raises(BadRequest, match=r"column v is time64\[us\], which cannot hold"):
        convert_array(two_hours_east, pa.time64("us"), "v")


@pytest.mark.parametrize("zone", ["UTC", "Etc/UTC", "America/New_York", "+02:00"])
def test_the_name_of_the_zone_does_not_change_the_instant(zone) -> None:
    array = pa.array([1709210096789012, None, -(2**63) + 1, 2**63 - 1], pa.timestamp("us", zone))
    result = convert_array(array, pa.timestamp("us", "UTC"), "v")
    assert result.type == pa.timestamp("us", "UTC")
    assert result.view(pa.int64()).to_pylist() == array.view(pa.int64()).to_pylist()


def test_units_of_time_convert_where_nothing_is_lost() -> None:
    moment = datetime.datetime(2024, 2, 29, 12, 34, 56)
    for source in ("s", "ms", "us", "ns"):
        for target in ("s", "ms", "us", "ns"):
            expected = in_python(pa.array([moment, None], pa.timestamp(target)))
            assert (
                converted(pa.array([moment, None], pa.timestamp(source)), pa.timestamp(target))
                == expected
            )
    noon = datetime.time(12, 34, 56)
    assert converted(pa.array([noon, None], pa.time64("us")), pa.time32("s")) == [noon, None]
    day = datetime.date(2024, 2, 29)
    assert converted(pa.array([day, None], pa.date32()), pa.date64()) == [day, None]


def test_local_time_and_instants_are_not_mixed_up() -> None:
    for source, target in ((None, "UTC"), ("UTC", None)):
        with pytest.raises(BadRequest, match=r"^schema mismatch: column v is timestamp"):
            convert_array(
                pa.array([0], pa.timestamp("us", source)), pa.timestamp("us", target), "v"
            )


def test_a_column_of_durations_is_sent_as_intervals() -> None:
    intervals = pa.array([pa.MonthDayNano([0, 1, 5_000]), None, pa.MonthDayNano([0, 0, -7_000])])
    expected = [
        datetime.timedelta(days=1, microseconds=5),
        None,
        datetime.timedelta(microseconds=-7),
    ]
    assert converted(intervals, pa.duration("us")) == expected
    for misfit in ([1, 0, 0], [0, 0, 1], [0, 2**31 - 1, 0]):
        with pytest.raises(BadRequest, match="cannot hold the value MonthDayNano"):
            convert_array(pa.array([pa.MonthDayNano(misfit)]), pa.duration("us"), "v")


# ----------------------------------------------------------------------------------- whole batches


def test_a_batch_that_fits_is_the_same_object() -> None:
    schema = pa.schema(
        [
            pa.field("a", pa.int64(), nullable=False, metadata={"k": "v"}),
            ("b", pa.list_(pa.string())),
        ]
    )
    batch = pa.record_batch([[1], [["x"]]], schema=schema)
    converter = Converter(schema, schema)
    assert converter.keeps_columns
    assert converter.convert(batch) is batch


def test_columns_are_matched_by_name_and_keep_their_buffers() -> None:
    batch = pa.record_batch({"B": pa.array([True, None]), "a": pa.array([1, 2])})
    target = pa.schema([pa.field("a", pa.int64(), metadata={"k": "v"}), ("b", pa.bool8())])
    result = convert_batch(batch, target)
    assert result.schema.equals(target, check_metadata=True)
    assert result.to_pylist() == [{"a": 1, "b": True}, {"a": 2, "b": None}]
    assert result.column("a").buffers()[1].address == batch.column("a").buffers()[1].address


def test_one_converter_serves_many_batches() -> None:
    converter = Converter(pa.schema([("u", pa.string())]), pa.schema([("u", pa.uuid())]))
    for count in (0, 1, 2048):
        assert (
            converter.convert(
                pa.record_batch({"u": pa.array([str(ID)] * count, pa.string())})
            ).num_rows
            == count
        )


@pytest.mark.parametrize(
    ("names", "problem"),
    [
        (["a"], "schema mismatch: the table has a column b, which was not sent"),
        (["a", "b", "c"], "schema mismatch: the table has no column c"),
        (["a", "b", "a"], "schema mismatch: a column was sent twice"),
    ],
)
def test_other_columns_are_a_mismatch(names, problem) -> None:
    source = pa.schema([(name, pa.int64()) for name in names])
    with pytest.raises(BadRequest) as refusal:
        Converter(source, pa.schema([("a", pa.int64()), ("b", pa.int64())]))
    assert refusal.value.message == problem


@pytest.mark.parametrize(
    ("source", "target"),
    [
        (pa.string(), pa.int64()),
        (pa.string(), pa.binary()),
        (pa.binary(), pa.string()),
        (pa.int64(), pa.string()),
        (pa.float64(), pa.int64()),
        (pa.list_(pa.int64()), pa.int64()),
        (pa.struct([("a", pa.int64())]), pa.map_(pa.string(), pa.int64())),
        (pa.date32(), pa.timestamp("us")),
        (pa.uuid(), HUGEINT),
        (pa.list_(pa.string()), pa.list_(pa.int64())),
    ],
    ids=str,
)
def test_types_of_another_kind_are_a_mismatch_before_any_row_comes(source, target) -> None:
    with pytest.raises(
        BadRequest, match=r"^schema mismatch: column v(\[\])? is .* cannot be converted to it$"
    ):
        Converter(pa.schema([("v", source)]), pa.schema([("v", target)]))
