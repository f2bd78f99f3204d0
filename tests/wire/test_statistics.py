"""The question for statistics, and answers that DuckDB's client can neither misread nor fail on."""

from __future__ import annotations

import datetime
import math
import uuid
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkport.catalog.statistics import ColumnStatistics
from sparkport.engine.statistics import shortened_maximum, shortened_minimum, takes_statistics
from sparkport.errors import BadRequest, CatalogFault
from sparkport.wire.packing import pack
from sparkport.wire.statistics import (
    ColumnStatisticsRequest,
    decode_column_statistics,
    encode_column_statistics,
)

DESCRIPTOR = flight.FlightDescriptor.for_path("s", "t")
HUGEINT = pa.opaque(pa.binary(16), "hugeint", "DuckDB")
UHUGEINT = pa.opaque(pa.binary(16), "uhugeint", "DuckDB")
TIMETZ = pa.opaque(pa.binary(8), "time_tz", "DuckDB")
NAN = float("nan")
TEXTS = [pa.string(), pa.large_string(), pa.string_view(), pa.json_()]


def answered(statistics: ColumnStatistics, data_type: pa.DataType) -> pa.RecordBatch:
    with pa.ipc.open_stream(encode_column_statistics(statistics, data_type)) as reader:
        [batch] = list(reader)
    assert batch.num_rows == 1
    batch.validate(full=True)
    return batch


def bounds(minimum: Any, maximum: Any, data_type: pa.DataType) -> tuple[Any, Any]:
    batch = answered(ColumnStatistics(minimum, maximum), data_type)
    assert (batch.schema.field("min").type, batch.schema.field("max").type) == (
        data_type,
        data_type,
    )
    return batch["min"][0].as_py(), batch["max"][0].as_py()


def test_a_question_for_statistics() -> None:
    body = {
        "flight_descriptor": DESCRIPTOR.serialize(),
        "column_name": "id",
        "type": "DECIMAL(10,2)",
    }
    assert decode_column_statistics(pack(body)) == ColumnStatisticsRequest(
        DESCRIPTOR, "id", "DECIMAL(10,2)"
    )
    for key in body:
        with pytest.raises(BadRequest, match=f"column_statistics: the field '{key}' is missing"):
            decode_column_statistics(
                pack({name: value for name, value in body.items() if name != key})
            )


VALUES: list[tuple[pa.DataType, Any, Any]] = [
    (pa.bool_(), False, True),
    (pa.int32(), -5, 9),
    (pa.uint64(), 0, 2**64 - 1),
    (pa.float32(), -1.5, float("inf")),
    (pa.float64(), float("-inf"), 0.0),
    (pa.decimal128(38, 2), Decimal("-1.50"), Decimal("2.25")),
    (pa.decimal32(5, 1), Decimal("-1.5"), Decimal("2.2")),
    (pa.string(), "", "\U0010ffff"),
    (pa.string_view(), "a", "é"),
    (pa.json_(), "1", "[2]"),
    (pa.date32(), datetime.date(2024, 1, 1), datetime.date(2024, 2, 29)),
    (pa.date64(), datetime.date(1969, 12, 31), datetime.date(2024, 2, 29)),
    (pa.time32("ms"), datetime.time(0), datetime.time(23, 59)),
    (pa.time64("us"), datetime.time(0), datetime.time(23, 59)),
    (pa.timestamp("us"), datetime.datetime(2024, 1, 1), datetime.datetime(2024, 2, 29, 1)),
    (pa.timestamp("s"), datetime.datetime(1024, 1, 1), datetime.datetime(2024, 2, 29, 1)),
    (pa.uuid(), uuid.UUID(int=1), uuid.UUID(int=2**128 - 1)),
    (HUGEINT, (-5).to_bytes(16, "little", signed=True), (2**100).to_bytes(16, "little")),
    (UHUGEINT, b"\0" * 16, b"\xff" * 16),
    (pa.int64(), None, None),
    (pa.int64(), None, 5),
]


@pytest.mark.parametrize(("data_type", "minimum", "maximum"), VALUES, ids=str)
def test_bounds_have_the_type_of_the_column(
    data_type: pa.DataType, minimum: Any, maximum: Any
) -> None:
    assert bounds(minimum, maximum, data_type) == (minimum, maximum)


def test_the_columns_of_an_answer() -> None:
    batch = answered(ColumnStatistics(1, 2, False, True, 7), pa.int32())
    assert batch.schema.names == ["min", "max", "has_not_null", "has_null", "distinct_count"]
    assert batch.schema.field("distinct_count").type == pa.uint64()
    assert batch.to_pylist() == [
        {"min": 1, "max": 2, "has_not_null": True, "has_null": False, "distinct_count": 7}
    ]


@pytest.mark.parametrize(("data_type", "minimum", "maximum"), VALUES, ids=str)
def test_scalars_of_arrow_serve_as_bounds(
    data_type: pa.DataType, minimum: Any, maximum: Any
) -> None:
    storage = data_type.storage_type if isinstance(data_type, pa.BaseExtensionType) else data_type
    plain = [value.bytes if isinstance(value, uuid.UUID) else value for value in (minimum, maximum)]
    low, high = (pa.array([value], storage)[0] for value in plain)
    assert bounds(low, high, data_type) == (minimum, maximum)
    if storage is not data_type:
        low, high = (pa.ExtensionScalar.from_storage(data_type, scalar) for scalar in (low, high))
        assert bounds(low, high, data_type) == (minimum, maximum)


def test_scalars_of_what_python_cannot_hold() -> None:
    for unit, data_type in (
        ("ns", pa.timestamp("ns")),
        ("ns", pa.time64("ns")),
        ("us", pa.timestamp("us")),
    ):
        low, high = (
            pa.array([value], pa.int64()).view(data_type)[0] for value in (1, 86_399_999_999_999)
        )
        batch = answered(ColumnStatistics(low, high), data_type)
        assert (batch["min"][0].value, batch["max"][0].value) == (1, 86_399_999_999_999), unit
    infinity = pa.array([2**31 - 1], pa.int32()).view(pa.date32())[0]
    assert answered(ColumnStatistics(None, infinity), pa.date32())["max"][0].value == 2**31 - 1


def test_what_python_has_a_type_for() -> None:
    assert bounds(-(2**127), 2**127 - 1, HUGEINT) == (b"\0" * 15 + b"\x80", b"\xff" * 15 + b"\x7f")
    assert bounds(0, 2**128 - 1, UHUGEINT) == (b"\0" * 16, b"\xff" * 16)
    assert bounds(False, True, pa.bool8()) == (False, True)
    assert bounds(pa.scalar(1, pa.int16()), pa.scalar(2, pa.int8()), pa.int64()) == (1, 2)
    assert bounds(pa.scalar("a", pa.large_string()), pa.scalar("b"), pa.string_view()) == ("a", "b")


@pytest.mark.parametrize(
    ("statistics", "data_type"),
    [
        (ColumnStatistics("a", "z"), pa.int32()),
        (ColumnStatistics(0, 2**40), pa.int32()),
        (ColumnStatistics(0, 1), pa.string()),
        (ColumnStatistics(True, True), pa.int32()),
        (ColumnStatistics(0, 1), pa.bool_()),
        (ColumnStatistics(1, 2), pa.bool8()),
        (ColumnStatistics(b"1", b"2"), pa.uuid()),
        (ColumnStatistics(-1, 5), UHUGEINT),
        (ColumnStatistics(0, 2**127), HUGEINT),
        (ColumnStatistics(pa.scalar("1"), pa.scalar("2")), pa.int64()),
        (ColumnStatistics(pa.scalar(1.0), pa.scalar(2.0)), pa.int64()),
        (ColumnStatistics(pa.scalar(2**40), None), pa.int32()),
        pytest.param(ColumnStatistics(object(), None), pa.int64(), id="an object-int64"),
        (ColumnStatistics("\ud800", None), pa.string()),
        (ColumnStatistics(has_null=None), pa.int64()),  # type: ignore[arg-type]
        (ColumnStatistics(has_not_null=1), pa.int64()),  # type: ignore[arg-type]
        (ColumnStatistics(distinct_count=-1), pa.int64()),
        (ColumnStatistics(distinct_count=None), pa.int64()),  # type: ignore[arg-type]
        (ColumnStatistics(max_string_length=1.5), pa.string()),  # type: ignore[arg-type]
    ],
    ids=str,
)
def test_statistics_of_another_type_are_the_catalogs_fault(
    statistics: ColumnStatistics, data_type: pa.DataType
) -> None:
    with pytest.raises(CatalogFault, match="the statistics of a column of type"):
        encode_column_statistics(statistics, data_type)


@pytest.mark.parametrize(
    ("data_type", "low", "high"),
    [
        (pa.int64(), 1, 2),
        (pa.float64(), 1.0, NAN),
        (pa.float64(), -0.5, float("inf")),
        (pa.string(), "z", "é"),
        (pa.string(), "\uffff", "\U00010000"),
        (pa.uuid(), uuid.UUID(int=2**127 - 1), uuid.UUID(int=2**127)),
        (HUGEINT, -1, 0),
        (HUGEINT, 255, 256),
        (UHUGEINT, 2**127 - 1, 2**127),
        (pa.decimal128(5, 1), Decimal("9.5"), Decimal("10.5")),
        (pa.date32(), datetime.date(1960, 1, 1), datetime.date(1980, 1, 1)),
        (pa.bool8(), False, True),
    ],
    ids=str,
)
def test_bounds_in_the_wrong_order_are_the_catalogs_fault(
    data_type: pa.DataType, low: Any, high: Any
) -> None:
    answered(ColumnStatistics(low, high), data_type)
    if low is not NAN:
        answered(ColumnStatistics(low, low), data_type)
    with pytest.raises(CatalogFault, match="greater than the maximum"):
        encode_column_statistics(ColumnStatistics(high, low), data_type)


def test_nan_is_an_upper_bound_only() -> None:
    low, high = bounds(1.0, NAN, pa.float32())
    assert low == 1.0
    assert math.isnan(high)
    with pytest.raises(CatalogFault, match="NaN"):
        encode_column_statistics(ColumnStatistics(NAN, NAN), pa.float64())


@pytest.mark.parametrize("data_type", TEXTS, ids=str)
def test_text_never_has_null_as_bounds(data_type: pa.DataType) -> None:
    row = answered(ColumnStatistics(), data_type).to_pylist()[0]
    assert row["min"] == ""
    # DuckDB compares the first eight bytes; no text has higher bytes.
    assert row["max"].encode()[:8] == b"\xf4\x8f\xbf\xbf" * 2
    assert row["contains_unicode"] is True
    assert "max_string_length" not in row


def test_text_says_whether_it_is_more_than_ascii_and_how_long_it_gets() -> None:
    row = answered(
        ColumnStatistics("a", "z", contains_unicode=False, max_string_length=12), pa.string()
    ).to_pylist()[0]
    assert (row["min"], row["max"], row["contains_unicode"], row["max_string_length"]) == (
        "a",
        "z",
        False,
        12,
    )


def test_numbers_that_the_client_cannot_hold() -> None:
    huge = ColumnStatistics("a", "z", distinct_count=2**64, max_string_length=2**32)
    row = answered(huge, pa.string()).to_pylist()[0]
    assert row["distinct_count"] == 2**63 - 1
    assert "max_string_length" not in row
    longest = ColumnStatistics(max_string_length=2**32 - 1)
    assert answered(longest, pa.string()).to_pylist()[0]["max_string_length"] == 2**32 - 1


def test_long_text_is_shortened() -> None:
    low, high = bounds("b" * 10_000_000, "c" * 10_000_000, pa.string())
    assert low == "b" * 64
    assert high == "c" * 63 + "d"


@given(
    st.text(max_size=80),
    st.text(max_size=80),
    st.sampled_from(["", "\U0010ffff" * 70, "\ud7ff" * 70, "x" * 70]),
)
def test_shortened_text_is_still_a_bound(first: str, second: str, middle: str) -> None:
    text = first + middle + second
    assert shortened_minimum(text).encode() <= text.encode() <= shortened_maximum(text).encode()
    assert len(shortened_maximum(text)) <= 64 or text.startswith("\U0010ffff" * 64)


@pytest.mark.parametrize(
    ("data_type", "value", "fits"),
    [
        (pa.timestamp("s", "UTC"), 2**63 // 1_000_000, True),
        (pa.timestamp("s", "UTC"), 2**63 // 1_000_000 + 1, False),
        (pa.timestamp("ms", "UTC"), -(2**62), False),
        (pa.timestamp("us", "UTC"), 2**63 - 1, True),
        (pa.timestamp("ns", "UTC"), -(2**63) + 1, True),
        (pa.timestamp("s"), 2**63 - 1, True),
        (pa.time64("us"), 86_399_999_999, True),
        (pa.time64("us"), 86_400_000_000, False),
        (pa.time64("ns"), -1, False),
        (pa.date64(), 2**62, False),
        (pa.date64(), 86_400_000 * 2**30, True),
        (pa.date64(), 86_400_001, False),
    ],
    ids=str,
)
def test_bounds_that_the_client_could_not_convert_are_left_out(
    data_type: pa.DataType, value: int, fits: bool
) -> None:
    scalar = pa.array([value], pa.int64()).view(data_type)[0]
    assert answered(ColumnStatistics(scalar, scalar), data_type)["max"].null_count == (not fits)


def test_times_with_offset_have_no_bounds() -> None:
    low, high = (
        pa.ExtensionScalar.from_storage(TIMETZ, pa.scalar(bytes([n] * 8), pa.binary(8)))
        for n in (2, 1)
    )
    assert bounds(low, high, TIMETZ) == (None, None)
    assert answered(ColumnStatistics(has_null=False), TIMETZ).to_pylist()[0]["has_null"] is False


@pytest.mark.parametrize(
    "data_type",
    [
        pa.list_(pa.int64()),
        pa.struct([("a", pa.duration("s"))]),
        pa.map_(pa.string(), pa.binary()),
        pa.list_(pa.int8(), 3),
    ],
    ids=str,
)
def test_nested_types_get_an_answer_that_is_ignored(data_type: pa.DataType) -> None:
    row = answered(ColumnStatistics([1], [2]), data_type).to_pylist()[0]
    assert row == {
        "min": None,
        "max": None,
        "has_not_null": True,
        "has_null": True,
        "distinct_count": 0,
    }


def test_which_types_the_client_has_statistics_of() -> None:
    taken = [data_type for data_type, _, _ in VALUES] + [
        TIMETZ,
        *TEXTS,
        pa.list_(pa.binary()),
        pa.bool8(),
    ]
    taken += [
        pa.struct([("a", pa.duration("s"))]),
        pa.map_(pa.string(), pa.null()),
        pa.list_(pa.int8(), 3),
    ]
    refused = [
        pa.null(),
        pa.binary(),
        pa.large_binary(),
        pa.binary_view(),
        pa.binary(16),
        pa.duration("s"),
    ]
    refused += [pa.month_day_nano_interval(), pa.sparse_union([pa.field("a", pa.int64())])]
    refused += [pa.opaque(pa.binary(), name, "DuckDB") for name in ("bit", "bignum")]
    refused += [pa.opaque(pa.binary(16), "hugeint", "somebody else")]
    assert [kind for kind in taken if not takes_statistics(pa.field("v", kind))] == []
    assert [kind for kind in refused if takes_statistics(pa.field("v", kind))] == []
    geometry = pa.field("v", pa.binary(), metadata={"ARROW:extension:name": "geoarrow.wkb"})
    hidden = pa.field("v", pa.int8(), metadata={"ARROW:extension:name": "arrow.bool8"})
    assert not takes_statistics(geometry)
    assert not takes_statistics(hidden)
