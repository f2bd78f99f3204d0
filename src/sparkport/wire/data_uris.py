"""Locations that tell DuckDB what to read by itself (airport §5.8)."""

from __future__ import annotations

import base64

import pyarrow as pa

from sparkport.catalog.references import FileReference, FunctionCall, Reference
from sparkport.errors import CatalogFault
from sparkport.wire.ipc import ONE_ROW, encode_arguments
from sparkport.wire.packing import pack

__all__ = ["encode_data_uri"]


def encode_data_uri(reference: Reference) -> str:
    """Encode what DuckDB shall read as a data URI.

    Raises: CatalogFault for an argument that Arrow cannot hold.
    """
    if isinstance(reference, FileReference):
        content = pack({"format": reference.format, "uri": reference.uri})
        return "data:application/msgpack;base64," + base64.b64encode(content).decode()
    content = pack(
        {"function_name": reference.function, "data": encode_arguments(_arguments(reference))}
    )
    return (
        "data:application/x-msgpack-duckdb-function-call;base64,"
        + base64.b64encode(content).decode()
    )


def _arguments(call: FunctionCall) -> pa.RecordBatch:
    values = {f"arg_{index}": value for index, value in enumerate(call.arguments)} | dict(
        call.named_arguments
    )
    try:
        # DuckDB's process crashes on arguments without a row.
        return (
            pa.record_batch({name: _array(value) for name, value in values.items()})
            if values
            else ONE_ROW
        )
    except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
        raise CatalogFault(
            f"an argument of {call.function} is of a kind that Arrow cannot hold"
        ) from error


def _array(value: object) -> pa.Array:
    return (
        pa.array([value.as_py()], value.type) if isinstance(value, pa.Scalar) else pa.array([value])
    )
