"""Conversions between the encodings of values that are not nested (airport §13.1, §13.3)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["LEAF_CONVERSIONS", "LeafConversion", "first_refused"]

LeafConversion: TypeAlias = Callable[[pa.Array, pa.DataType], pa.Array]
"""Converts the storage of one type to the given storage of another.

Raises ValueError for a value that the target cannot hold; nothing is rounded, cut or wrapped
around.
"""


def first_refused(convert: Callable[[pa.Array], pa.Array], array: pa.Array) -> pa.Scalar | None:
    """The first value that a conversion refuses by itself; None if there is none."""
    while len(array) > 1:
        half = array.slice(0, len(array) // 2)
        array = half if _refuses(convert, half) else array.slice(len(half))
    return array[0] if len(array) and _refuses(convert, array) else None


def _refuses(convert: Callable[[pa.Array], pa.Array], array: pa.Array) -> bool:
    try:
        convert(array)
    except (ValueError, pa.ArrowException):
        return True
    return False


def _cast(array: pa.Array, target: pa.DataType) -> pa.Array:
    return array.cast(target)


def _every(truths: pa.Array) -> bool:
    """Whether no value is FALSE; NULLs do not count."""
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
    if target.precision - target.scale >= _MOST_DIGITS:
        return array.cast(target)
    # Arrow refuses a type that lacks room for every integer, whatever the values are.
    return array.cast(pa.decimal256(76, target.scale)).cast(target)


_MOST_DIGITS = 20
"""The digits of an integer of 64 bits."""
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
    # A hugeint has room for more than 38 digits. Arrow's own check overlooks the lowest number of
    # all.
    if pc.any(pc.or_(pc.less(numbers, _LOWEST), pc.greater(numbers, _HIGHEST))).as_py():
        raise ValueError("more than 38 digits")
    return numbers.cast(target)


def _number_from_uhugeint(array: pa.Array, target: pa.DataType) -> pa.Array:
    _not_negative(array.view(_WHOLE))
    return _number_from_hugeint(array, target)


def _between_hugeints(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Between hugeint and uhugeint: numbers that both types have are the same bytes."""
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
    """All values at once: their hexadecimal digits are side by side in the data buffer."""
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


_GROUPS = ((0, 8), (8, 12), (12, 16), (16, 20), (20, 32))


def _text_from_uuid(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Text in lower case, with dashes."""
    if len(array) == array.null_count:
        return pa.nulls(len(array), target)
    whole = array.fill_null(b"\0" * 16)
    octets = whole.buffers()[1].slice(whole.offset * 16, len(whole) * 16).to_pybytes()
    digits = pa.Array.from_buffers(
        pa.binary(_HEX_DIGITS), len(whole), [None, pa.py_buffer(octets.hex().encode())]
    )
    groups = [pc.binary_slice(digits, *place).cast(pa.binary()) for place in _GROUPS]
    text = pc.binary_join_element_wise(*groups, pa.scalar(b"-", pa.binary())).cast(pa.string())
    if array.null_count:
        text = pc.if_else(array.is_valid(), text, pa.scalar(None, pa.string()))
    return text.cast(target)


# ------------------------------------------------------------------------------ time and intervals

_OFFSET_BITS = 24
_NO_OFFSET = 57599
_MICROSECONDS = pa.time64("us")


def _time_tz_from_time(array: pa.Array, target: pa.DataType) -> pa.Array:
    """A time of day without zone counts as UTC."""
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
    """Durations from intervals, as which the client sends them. A day is 24 hours."""
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
    """Check that bytes are a BIT: DuckDB reads them back without looking at them."""
    octets = array.cast(pa.large_binary())
    padding = pc.binary_slice(octets, 0, 1)
    if not _every(
        pc.and_(pc.greater_equal(pc.binary_length(octets), 2), pc.less_equal(padding, b"\x07"))
    ):
        raise ValueError("not the bytes of a BIT: first the number of padding bits, then the bits")
    return array.cast(target)


def _bignum(array: pa.Array, target: pa.DataType) -> pa.Array:
    octets = array.cast(pa.large_binary())
    lengths = pc.binary_length(octets)
    if not _every(pc.greater_equal(lengths, 4)) or not _every(
        pc.equal(_magnitude_size(octets), pc.subtract(lengths, 3))
    ):
        raise ValueError("not the bytes of a BIGNUM: a header of three bytes, then the magnitude")
    return array.cast(target)


def _magnitude_size(octets: pa.Array) -> pa.Array:
    """The number of bytes in the header, which is complemented for a negative number."""
    header = pc.binary_reverse(pc.binary_slice(octets, 0, 3)).cast(pa.binary())
    nothing, zero = pa.scalar(b"", pa.binary()), pa.scalar(b"\0", pa.binary())
    numbers = pc.binary_join_element_wise(header, zero, nothing).cast(pa.binary(4)).view(pa.int32())
    negative = pc.equal(pc.bit_wise_and(numbers, 0x800000), 0)
    return pc.bit_wise_and(pc.if_else(negative, pc.bit_wise_not(numbers), numbers), 0x7FFFFF).cast(
        pa.int64()
    )


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
    ("hugeint", "uhugeint"): _between_hugeints,
    ("hugeint", "binary"): _cast,
    ("uhugeint", "integer"): _number_from_uhugeint,
    ("uhugeint", "decimal"): _number_from_uhugeint,
    ("uhugeint", "hugeint"): _between_hugeints,
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
    # The zone is only a name: values are UTC, so a cast between zones changes none.
    ("zoned timestamp", "zoned timestamp"): _cast,
    ("duration", "duration"): _cast,
    ("interval", "duration"): _duration_from_interval,
}
"""Conversions by the forms of source and target. A missing pair cannot be converted."""
