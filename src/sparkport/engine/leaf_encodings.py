"""Conversions between the encodings of one value that is not nested (airport §13.1, §13.3)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import lib

from sparkport.engine.types import opaque_name

__all__ = ["LEAF_CONVERSIONS", "LeafConversion", "form"]

LeafConversion: TypeAlias = Callable[[pa.Array, pa.DataType], pa.Array]
"""From the storage of one type to the storage, of the given type, of another. Raises ValueError for
a value that the target cannot hold; nothing is rounded, cut or wrapped around."""


def form(data_type: pa.DataType) -> str:
    """What kind of values a type holds, whatever the width, unit or layout it holds them in."""
    if isinstance(data_type, pa.BaseExtensionType):
        name = opaque_name(data_type)
        if name in _OPAQUE_FORMS:
            return name
        return _EXTENSION_FORMS.get(data_type.extension_name) or form(data_type.storage_type)
    if data_type.id == lib.Type_TIMESTAMP and data_type.tz is not None:
        return "zoned timestamp"
    return _FORMS.get(data_type.id, str(data_type))


_OPAQUE_FORMS = frozenset({"hugeint", "uhugeint", "time_tz", "bit", "bignum"})
_EXTENSION_FORMS: Mapping[str, str] = {
    "arrow.uuid": "uuid",
    "arrow.bool8": "bool8",
    "arrow.json": "json",
}
_FORMS: Mapping[int, str] = {
    lib.Type_NA: "null",
    lib.Type_BOOL: "boolean",
    **dict.fromkeys((lib.Type_INT8, lib.Type_INT16, lib.Type_INT32, lib.Type_INT64), "integer"),
    **dict.fromkeys((lib.Type_UINT8, lib.Type_UINT16, lib.Type_UINT32, lib.Type_UINT64), "integer"),
    **dict.fromkeys((lib.Type_HALF_FLOAT, lib.Type_FLOAT, lib.Type_DOUBLE), "float"),
    **dict.fromkeys(
        (lib.Type_DECIMAL32, lib.Type_DECIMAL64, lib.Type_DECIMAL128, lib.Type_DECIMAL256),
        "decimal",
    ),
    **dict.fromkeys((lib.Type_STRING, lib.Type_LARGE_STRING, lib.Type_STRING_VIEW), "text"),
    **dict.fromkeys((lib.Type_BINARY, lib.Type_LARGE_BINARY, lib.Type_BINARY_VIEW), "binary"),
    lib.Type_FIXED_SIZE_BINARY: "binary",
    **dict.fromkeys((lib.Type_DATE32, lib.Type_DATE64), "date"),
    **dict.fromkeys((lib.Type_TIME32, lib.Type_TIME64), "time"),
    lib.Type_TIMESTAMP: "timestamp",
    lib.Type_DURATION: "duration",
    lib.Type_INTERVAL_MONTH_DAY_NANO: "interval",
    **dict.fromkeys((lib.Type_LIST, lib.Type_LARGE_LIST, lib.Type_FIXED_SIZE_LIST), "list"),
    **dict.fromkeys((lib.Type_LIST_VIEW, lib.Type_LARGE_LIST_VIEW), "list"),
    lib.Type_STRUCT: "struct",
    lib.Type_MAP: "map",
    lib.Type_SPARSE_UNION: "union",
    lib.Type_DICTIONARY: "dictionary",
    lib.Type_RUN_END_ENCODED: "run-end encoded",
}


def _cast(array: pa.Array, target: pa.DataType) -> pa.Array:
    return array.cast(target)


def _every(truths: pa.Array) -> bool:
    """Whether none is false; NULL does not count."""
    return bool(pc.all(truths, min_count=0).as_py())


# ------------------------------------------------------------------------------- booleans, numbers


def _boolean_from_bool8(array: pa.Array, target: pa.DataType) -> pa.Array:
    return pc.not_equal(array, 0).cast(target)


def _boolean_from_integer(array: pa.Array, target: pa.DataType) -> pa.Array:
    truth = array.cast(pa.bool_())
    if not _every(pc.equal(truth.cast(array.type), array)):
        raise ValueError("neither 0 nor 1")
    return truth.cast(target)


def _float(array: pa.Array, target: pa.DataType) -> pa.Array:
    converted = array.cast(target)
    same = pc.equal(converted.cast(pa.float64()), array.cast(pa.float64()))
    if not _every(pc.or_(same, pc.is_nan(array.cast(pa.float64())))):
        raise ValueError("not exactly representable")
    return converted


def _decimal_from_integer(array: pa.Array, target: pa.DataType) -> pa.Array:
    # By way of a type in which every integer has room: Arrow asks for precision by type, not by
    # value.
    return array.cast(pa.decimal256(76, target.scale)).cast(target)


_WHOLE = pa.decimal128(38, 0)
_ZERO, _HIGHEST, _LOWEST = (
    pa.scalar(Decimal(text), _WHOLE) for text in ("0", "9" * 38, "-" + "9" * 38)
)


def _hugeint_from_number(array: pa.Array, target: pa.DataType) -> pa.Array:
    """A decimal128 is, like a hugeint, a little-endian two's complement number of 128 bits."""
    return array.cast(_WHOLE).view(target)


def _uhugeint_from_number(array: pa.Array, target: pa.DataType) -> pa.Array:
    return _not_negative(array.cast(_WHOLE)).view(target)


def _number_from_hugeint(array: pa.Array, target: pa.DataType) -> pa.Array:
    numbers = array.view(_WHOLE)
    # A hugeint has room for more than 38 digits; Arrow's own check overlooks the lowest number of
    # all.
    if pc.any(pc.or_(pc.less(numbers, _LOWEST), pc.greater(numbers, _HIGHEST))).as_py():
        raise ValueError("more than 38 digits")
    return numbers.cast(target)


def _number_from_uhugeint(array: pa.Array, target: pa.DataType) -> pa.Array:
    _not_negative(array.view(_WHOLE))
    return _number_from_hugeint(array, target)


def _same_sign(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Between hugeint and uhugeint, where the numbers that both have look alike."""
    _not_negative(array.view(_WHOLE))
    return array


def _not_negative(numbers: pa.Array) -> pa.Array:
    if pc.any(pc.less(numbers, _ZERO)).as_py():
        raise ValueError("the sign bit is set")
    return numbers


# -------------------------------------------------------------------------------------------- UUID

_HEX_DIGITS = 32
_UUID = pa.binary(16)


def _uuid_from_text(array: pa.Array, target: pa.DataType) -> pa.Array:
    """All values at once: their hexadecimal digits stand side by side in the data buffer."""
    if len(array) == array.null_count:
        return pa.nulls(len(array), target)
    text = array.cast(pa.large_string()).fill_null("0" * _HEX_DIGITS)
    digits = pc.replace_substring(text, "-", "")
    if not _every(pc.equal(pc.binary_length(digits), _HEX_DIGITS)):
        raise ValueError("not a UUID")
    values = bytes.fromhex(
        digits.buffers()[2].slice(0, len(digits) * _HEX_DIGITS).to_pybytes().decode("ascii")
    )
    if len(values) != len(digits) * 16:  # `fromhex` skips blanks
        raise ValueError("not a UUID")
    uuids = pa.Array.from_buffers(_UUID, len(digits), [None, pa.py_buffer(values)])
    return (
        pc.if_else(array.is_valid(), uuids, pa.scalar(None, _UUID)) if array.null_count else uuids
    )


def _text_from_uuid(array: pa.Array, target: pa.DataType) -> pa.Array:
    texts = [
        None
        if value is None
        else f"{value[:4].hex()}-{value[4:6].hex()}-{value[6:8].hex()}-{value[8:10].hex()}-{value[10:].hex()}"
        for value in array.to_pylist()
    ]
    return pa.array(texts, target)


# ------------------------------------------------------------------------------ time and intervals

_OFFSET_BITS = 24
_NO_OFFSET = 57599
_MICROSECONDS = pa.time64("us")


def _time_tz_from_time(array: pa.Array, target: pa.DataType) -> pa.Array:
    """A time of day without zone is taken as UTC."""
    microseconds = array.cast(_MICROSECONDS).view(pa.int64())
    return pc.bit_wise_or(pc.shift_left(microseconds, _OFFSET_BITS), _NO_OFFSET).view(target)


def _time_from_time_tz(array: pa.Array, target: pa.DataType) -> pa.Array:
    packed = array.view(pa.int64())
    offset = pc.bit_wise_and(packed, (1 << _OFFSET_BITS) - 1)
    if not _every(pc.equal(offset, _NO_OFFSET)):
        raise ValueError("it has an offset from UTC, which a time without zone cannot hold")
    return pc.shift_right(packed, _OFFSET_BITS).cast(_MICROSECONDS).cast(target)


_DAY = 24 * 60 * 60 * 10**9


def _duration_from_interval(array: pa.Array, target: pa.DataType) -> pa.Array:
    """The client knows one type for both, so it sends a column of durations as intervals; a day is
    24 hours.
    """
    nanoseconds: list[int | None] = []
    for interval in array.to_pylist():
        if interval is not None and interval.months:
            raise ValueError("a month has no fixed duration")
        nanoseconds.append(
            None if interval is None else interval.days * _DAY + interval.nanoseconds
        )
    try:
        return pa.array(nanoseconds, pa.duration("ns")).cast(target)
    except OverflowError as error:
        raise ValueError("too long") from error


# ---------------------------------------------------------------------------------- BIT and BIGNUM


def _bit(array: pa.Array, target: pa.DataType) -> pa.Array:
    """DuckDB reads these bytes back without looking at them, so what cannot be a BIT must not get
    that far.
    """
    for value in array.to_pylist():
        if value is not None and (len(value) < 2 or value[0] > 7):
            raise ValueError(
                "not the bytes of a BIT: first the number of padding bits, then the bits"
            )
    return array.cast(target)


def _bignum(array: pa.Array, target: pa.DataType) -> pa.Array:
    for value in array.to_pylist():
        if value is not None:
            header = int.from_bytes(value[:3], "big")
            size = (
                header if header >> 23 else ~header
            ) & 0x7FFFFF  # the header of a negative number is complemented
            if len(value) < 4 or size != len(value) - 3:
                raise ValueError(
                    "not the bytes of a BIGNUM: a header of three bytes, then the magnitude"
                )
    return array.cast(target)


# --------------------------------------------------------------------------------------- the table

LEAF_CONVERSIONS: Mapping[tuple[str, str], LeafConversion] = {
    ("boolean", "integer"): _cast,
    ("boolean", "bool8"): _cast,
    ("bool8", "boolean"): _boolean_from_bool8,
    ("bool8", "integer"): _boolean_from_bool8,
    ("integer", "boolean"): _boolean_from_integer,
    ("integer", "bool8"): _boolean_from_integer,
    ("integer", "integer"): _cast,
    ("integer", "float"): _cast,
    ("integer", "decimal"): _decimal_from_integer,
    ("integer", "hugeint"): _hugeint_from_number,
    ("integer", "uhugeint"): _uhugeint_from_number,
    ("float", "float"): _float,
    ("decimal", "decimal"): _cast,
    ("decimal", "integer"): _cast,
    ("decimal", "hugeint"): _hugeint_from_number,
    ("decimal", "uhugeint"): _uhugeint_from_number,
    ("hugeint", "integer"): _number_from_hugeint,
    ("hugeint", "decimal"): _number_from_hugeint,
    ("hugeint", "uhugeint"): _same_sign,
    ("hugeint", "binary"): _cast,
    ("uhugeint", "integer"): _number_from_uhugeint,
    ("uhugeint", "decimal"): _number_from_uhugeint,
    ("uhugeint", "hugeint"): _same_sign,
    ("uhugeint", "binary"): _cast,
    ("text", "text"): _cast,
    ("text", "json"): _cast,
    ("text", "uuid"): _uuid_from_text,
    ("json", "text"): _cast,
    ("json", "json"): _cast,
    ("uuid", "text"): _text_from_uuid,
    ("uuid", "binary"): _cast,
    ("binary", "binary"): _cast,
    ("binary", "uuid"): _cast,
    ("binary", "hugeint"): _cast,
    ("binary", "uhugeint"): _cast,
    ("binary", "time_tz"): _cast,
    ("binary", "bit"): _bit,
    ("binary", "bignum"): _bignum,
    ("bit", "bit"): _cast,
    ("bit", "binary"): _cast,
    ("bignum", "bignum"): _cast,
    ("bignum", "binary"): _cast,
    ("date", "date"): _cast,
    ("time", "time"): _cast,
    ("time", "time_tz"): _time_tz_from_time,
    ("time_tz", "time"): _time_from_time_tz,
    ("time_tz", "binary"): _cast,
    ("timestamp", "timestamp"): _cast,
    # The zone is only a name: values are UTC whatever it says, so casting between zones changes
    # none.
    ("zoned timestamp", "zoned timestamp"): _cast,
    ("duration", "duration"): _cast,
    ("interval", "duration"): _duration_from_interval,
}
"""By the forms of source and target; a pair that is missing cannot be converted."""
