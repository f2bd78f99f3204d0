"""Handles of prepared statements: signed, and complete. The server keeps nothing (decision 0002).

The client sends the handle with every call that runs the statement. When the client binds
parameters, it is given another handle that holds them too.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgpack
import pyarrow as pa

from sparkport.catalog import Identity
from sparkport.errors import BadRequest
from sparkport.wire.bearers import bearer_fields, bearer_of_fields
from sparkport.wire.signing import SIGNATURE_LENGTH, Signer

__all__ = [
    "PreparedStatement",
    "decode_handle",
    "decode_parameters",
    "encode_handle",
    "encode_parameters",
]

_PURPOSE = "prepared statement"
_FORM = 1
"""The version of the fields: a handle of another version of Sparkport is recognised."""


@dataclass(frozen=True, slots=True)
class PreparedStatement:
    """A statement of SQL, and what it needs to be run."""

    catalog: str
    text: str
    transaction: str | None = None
    """The transaction's id, as the client knows it."""
    parameters: bytes | None = None
    """The values of its markers, as an Arrow IPC stream; None if there are none yet."""
    bearer: Identity | None = None
    """The identity that the handle was made for, where callers authenticate."""


def encode_handle(statement: PreparedStatement, signer: Signer) -> bytes:
    """Encode and sign a handle."""
    payload: bytes = msgpack.packb(
        [
            _FORM,
            statement.catalog,
            statement.text,
            statement.transaction,
            statement.parameters,
            bearer_fields(statement.bearer),
        ]
    )
    return signer.signature(_PURPOSE, payload) + payload


def decode_handle(data: bytes, signer: Signer) -> PreparedStatement:
    """Decode a handle and verify its signature.

    Raises: BadRequest for a handle that this server did not make.
    """
    signature, payload = data[:SIGNATURE_LENGTH], data[SIGNATURE_LENGTH:]
    if not signer.verify(signature, _PURPOSE, payload):
        raise BadRequest(
            "this prepared statement was not made by the running server, or was altered: prepare "
            "the statement again"
        )
    form, *content = msgpack.unpackb(payload, use_list=False)
    if form != _FORM:
        raise BadRequest(
            "this prepared statement is of another version of the server: prepare it again"
        )
    catalog, text, transaction, parameters, bearer = content
    return PreparedStatement(catalog, text, transaction, parameters, bearer_of_fields(bearer))


def encode_parameters(parameters: pa.RecordBatch) -> bytes:
    """Encode the values of a statement's markers."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, parameters.schema) as writer:
        writer.write_batch(parameters)
    stream: bytes = sink.getvalue().to_pybytes()
    return stream


def decode_parameters(stream: bytes) -> pa.RecordBatch:
    """Decode `encode_parameters`. A signature has shown that this server wrote them."""
    with pa.ipc.open_stream(pa.py_buffer(stream)) as reader:
        return reader.read_next_batch()
