"""Checking received Arrow data to the last value, since Arrow itself trusts what it reads."""

from __future__ import annotations

import pyarrow as pa
from pyarrow import lib

from sparkport.engine.types import fields_of, with_fields

__all__ = ["validate"]


def validate(data: pa.RecordBatch | pa.Array) -> None:
    """Check that offsets and indices stay inside the buffers, and that values fit their types.

    Raises: pa.ArrowInvalid, pa.ArrowIndexError.
    """
    try:
        data.validate(full=True)
    except pa.ArrowInvalid:
        # Arrow refuses some of DuckDB's values, though they do no harm: 24:00:00 as a TIME, and
        # HUGEINTs of 39 digits, which are sent as decimals of 38. So such columns are checked as
        # plain bytes.
        for column in data.columns if isinstance(data, pa.RecordBatch) else (data,):
            _as_plain(column).validate(full=True)


def _as_plain(array: pa.Array) -> pa.Array:
    """View an array's buffers under types whose values Arrow does not check."""
    if isinstance(array.type, pa.BaseExtensionType):
        return _as_plain(array.storage)
    plain = _plain(array.type)
    return array if plain is array.type else array.view(plain)


def _plain(data_type: pa.DataType) -> pa.DataType:
    """A type without checked values; the identical type object where nothing is replaced."""
    if isinstance(data_type, pa.BaseExtensionType):
        return _plain(data_type.storage_type)
    if data_type.id in _PLAIN:
        return _PLAIN[data_type.id]
    fields = fields_of(data_type) if data_type.id in _VIEWED else []
    plain = [field.with_type(_plain(field.type)) for field in fields]
    if all(new.type is old.type for new, old in zip(plain, fields, strict=True)):
        return data_type
    return with_fields(data_type, plain)


_PLAIN = {
    lib.Type_TIME32: pa.int32(),
    lib.Type_TIME64: pa.int64(),
    lib.Type_DECIMAL128: pa.binary(16),
}
_VIEWED = frozenset(
    {lib.Type_STRUCT, lib.Type_MAP, lib.Type_LIST, lib.Type_LARGE_LIST, lib.Type_FIXED_SIZE_LIST}
)
"""Nested types whose buffers Arrow can view under another type."""
