"""Arrow IPC inside requests: schemas, and argument lists of one row (airport §1.4)."""

from __future__ import annotations

import pyarrow as pa

from sparkport.engine.types import refuse_unreadable
from sparkport.engine.validation import validate
from sparkport.errors import BadRequest
from sparkport.wire.inflation import inflated_size, refuse_inflated

__all__ = ["ONE_ROW", "decode_arguments", "decode_arrow_schema", "encode_arguments"]


_MOST_INFLATED = 64 * 1024 * 1024
"""Bytes of unpacked arguments. They are unpacked before the caller is authenticated."""

ONE_ROW = pa.record_batch({"": [None]}).select([])
"""A single row without columns: the arguments of a function without parameters."""


def decode_arrow_schema(message: bytes, what: str) -> pa.Schema:
    """Decode an encapsulated schema message, whose names must all be readable text.

    `what` names it in errors, for instance "create_table: arrow_schema". Raises: BadRequest.
    """
    try:
        arrow_schema = pa.ipc.read_schema(pa.py_buffer(message))
        refuse_unreadable(arrow_schema, what)
    except (pa.ArrowException, OSError, ValueError, RecursionError) as error:
        raise BadRequest(f"{what} is not a readable Arrow schema") from error
    return arrow_schema


def decode_arguments(stream: bytes, what: str) -> pa.RecordBatch:
    """Decode the arguments of a function: a row with a column for each. Raises: BadRequest."""
    try:
        messages = pa.ipc.MessageReader.open_stream(pa.py_buffer(stream))
        sizes = (
            inflated_size(memoryview(each.metadata), memoryview(each.body or b""))
            for each in messages
        )
        refuse_inflated(sum(sizes), _MOST_INFLATED)
        with pa.ipc.open_stream(pa.py_buffer(stream)) as reader:
            batches = list(reader)
        if len(batches) != 1 or batches[0].num_rows != 1:
            raise BadRequest(f"{what} must hold exactly one row")
        validate(batches[0])
        refuse_unreadable(batches[0].schema, what)
    except (pa.ArrowException, OSError, ValueError, RecursionError) as error:
        raise BadRequest(f"{what} is not a readable Arrow IPC stream") from error
    return batches[0]


def encode_arguments(arguments: pa.RecordBatch) -> bytes:
    """Encode the arguments of a function as an Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, arguments.schema) as writer:
        writer.write_batch(arguments)
    stream: bytes = sink.getvalue().to_pybytes()
    return stream
