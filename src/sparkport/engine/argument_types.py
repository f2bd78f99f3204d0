"""Arguments of functions: their Arrow types and Python values (airport §9, §13.1)."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyarrow import lib

from sparkport.engine.type_table import ENCODED_FORMS, form, row_of
from sparkport.engine.types import fields_of, publishable_schema, with_fields

__all__ = ["canonical_schema", "python_value", "sent_type"]


def sent_type(data_type: pa.DataType) -> pa.DataType | None:
    """The Arrow type in which DuckDB sends a scalar function's argument; None if not certain.

    The client labels its own buffers with the declared type, without converting them (T32), so a
    parameter must be declared with the type they really have. Where that depends on the client's
    settings it has to be declared as ANY, which makes the client say what it sends.
    """
    row = row_of(data_type)
    if row is not None and row.arrow and row.sent is None:
        return None
    if isinstance(data_type, pa.BaseExtensionType):
        storage = sent_type(data_type.storage_type)
        return data_type if storage == data_type.storage_type else storage
    if form(data_type) in ENCODED_FORMS:
        return sent_type(data_type.value_type)
    if row is None or row.sent is None:
        return _sent_nested(data_type)
    return _with_parameters(row.sent, data_type)


def _with_parameters(sent: pa.DataType, data_type: pa.DataType) -> pa.DataType:
    if pa.types.is_decimal(sent) and pa.types.is_decimal(data_type):
        return pa.decimal128(data_type.precision, data_type.scale)
    return pa.timestamp(sent.unit, data_type.tz) if pa.types.is_timestamp(sent) else sent


def _sent_nested(data_type: pa.DataType) -> pa.DataType | None:
    fields = fields_of(data_type)
    types = [sent_type(field.type) for field in fields]
    if any(each is None for each in types):
        return None
    sent = [field.with_type(each) for field, each in zip(fields, types, strict=True)]
    if form(data_type) == "list" and data_type.id != lib.Type_FIXED_SIZE_LIST:
        return pa.list_(sent[0])  # views and large types only under further settings
    return with_fields(data_type, sent)


def canonical_schema(arrow_schema: pa.Schema) -> pa.Schema:
    """The columns that functions see where types are not declared: plain values, BOOLEAN as `bool`.

    The client's own encoding of BOOLEAN inside nested types cannot be trusted (T31); converting to
    `bool` mends it.
    """
    plain = publishable_schema(arrow_schema)
    return pa.schema([field.with_type(_with_bool(field.type)) for field in plain])


def _with_bool(data_type: pa.DataType) -> pa.DataType:
    if form(data_type) == "bool8":
        return pa.bool_()
    return with_fields(
        data_type, [field.with_type(_with_bool(field.type)) for field in fields_of(data_type)]
    )


def python_value(scalar: pa.Scalar) -> Any:
    """An argument as the Python value that fits best; the Arrow scalar where Python has none."""
    try:
        return _python(scalar)
    except (
        ValueError,
        OverflowError,
    ):  # nanoseconds, and times that Python's clock and calendar do not have
        return scalar


def _python(scalar: pa.Scalar) -> Any:
    if not scalar.is_valid:
        return None
    row = row_of(scalar.type)
    if row is not None and row.python is not None:
        return row.python.read(scalar.value.as_py())
    match form(scalar.type):
        case "list":
            return [_python(each) for each in scalar]
        case "struct":
            return {name: _python(each) for name, each in scalar.items()}
        case "map":
            entries = [_python(each) for each in scalar.values]
            return [tuple(entry.values()) for entry in entries]
        case "union":
            return _python(scalar.value)
        case _:
            return _in_microseconds(scalar).as_py()


def _in_microseconds(scalar: pa.Scalar) -> pa.Scalar:
    """The scalar in microseconds. Raises: ValueError.

    What pyarrow makes of nanoseconds depends on whether pandas is installed, and may lose them.
    """
    kind = scalar.type
    if (
        not (pa.types.is_timestamp(kind) or pa.types.is_time64(kind) or pa.types.is_duration(kind))
        or kind.unit != "ns"
    ):
        return scalar
    if pa.types.is_timestamp(kind):
        return scalar.cast(pa.timestamp("us", kind.tz))
    return scalar.cast(pa.time64("us") if pa.types.is_time64(kind) else pa.duration("us"))
