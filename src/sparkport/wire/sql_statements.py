"""Flight SQL's commands and actions that run something, and their answers (FlightSql.proto)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import pyarrow as pa

from sparkport.errors import BadRequest
from sparkport.wire.flight_sql import unpack_command
from sparkport.wire.protobuf import encode_field, fields, integer, text, view

__all__ = [
    "EndTransaction",
    "IfExists",
    "IngestRequest",
    "PreparedRequest",
    "StatementRequest",
    "UpdateRequest",
    "decode_begin_transaction",
    "decode_cancel_query",
    "decode_close_prepared",
    "decode_create_prepared",
    "decode_end_transaction",
    "decode_ingest",
    "decode_prepared",
    "decode_prepared_update",
    "decode_statement",
    "decode_update",
    "encode_cancel_query_result",
    "encode_prepared",
    "encode_prepared_handle",
    "encode_transaction",
    "encode_update_result",
]

_TYPE_URL = "type.googleapis.com/arrow.flight.protocol.sql."


@dataclass(frozen=True, slots=True)
class StatementRequest:
    """SQL as text, and the transaction to run it in, if any."""

    text: str
    transaction: str | None = None


@dataclass(frozen=True, slots=True)
class PreparedRequest:
    """A statement that was prepared before, by its handle."""

    handle: bytes


@dataclass(frozen=True, slots=True)
class UpdateRequest:
    """A statement, prepared or not, whose result is the number of changed rows."""

    statement: StatementRequest | PreparedRequest


class IfExists(int, Enum):
    """What an ingest does to a table that exists. The numbers are the protocol's."""

    FAIL = 1
    APPEND = 2
    REPLACE = 3


@dataclass(frozen=True, slots=True)
class IngestRequest:
    """Rows for a table, which the ingest may have to create."""

    table: str
    schema: str | None
    catalog: str | None
    creates: bool
    """Whether a missing table is created; otherwise it is an error."""
    if_exists: IfExists
    temporary: bool = False
    transaction: str | None = None


@dataclass(frozen=True, slots=True)
class EndTransaction:
    """COMMIT or ROLLBACK of a transaction."""

    transaction: str
    commits: bool


def decode_statement(message: memoryview) -> StatementRequest:
    """Decode CommandStatementQuery. Raises: BadRequest."""
    query, transaction = "", None
    for number, value in fields(message):
        if number == 1:
            query = text(value)
        elif number == 2:
            transaction = _transaction(value)
    if not query.strip():
        raise BadRequest("the statement is empty: send the SQL to run")
    return StatementRequest(query, transaction)


def decode_prepared(message: memoryview) -> PreparedRequest:
    """Decode CommandPreparedStatementQuery. Raises: BadRequest."""
    return PreparedRequest(_bytes(message, 1))


def decode_update(message: memoryview) -> UpdateRequest:
    """Decode CommandStatementUpdate. Raises: BadRequest."""
    return UpdateRequest(decode_statement(message))


def decode_prepared_update(message: memoryview) -> UpdateRequest:
    """Decode CommandPreparedStatementUpdate. Raises: BadRequest."""
    return UpdateRequest(decode_prepared(message))


def decode_ingest(message: memoryview) -> IngestRequest:
    """Decode CommandStatementIngest. Raises: BadRequest."""
    names: dict[int, str] = {}
    transaction, temporary = None, False
    options = {1: 0, 2: 0}
    for number, value in fields(message):
        if number == 1:
            options |= {
                each: integer(choice) for each, choice in fields(view(value)) if each in (1, 2)
            }
        elif number in (2, 3, 4):
            names[number] = text(value)
        elif number == 5:
            temporary = bool(integer(value))
        elif number == 6:
            transaction = _transaction(value)
    if not names.get(2):
        raise BadRequest("the ingest names no table")
    if options[1] not in (1, 2) or options[2] not in tuple(IfExists):
        raise BadRequest(
            "the ingest does not say what to do with a table that exists, or does not: choose one "
            "of create, append, replace and create_append"
        )
    return IngestRequest(
        names[2],
        names.get(3),
        names.get(4),
        creates=options[1] == 1,
        if_exists=IfExists(options[2]),
        temporary=temporary,
        transaction=transaction,
    )


def decode_create_prepared(body: bytes) -> StatementRequest:
    """Decode ActionCreatePreparedStatementRequest. Raises: BadRequest."""
    return decode_statement(_unpacked(body, "ActionCreatePreparedStatementRequest"))


def decode_close_prepared(body: bytes) -> PreparedRequest:
    """Decode ActionClosePreparedStatementRequest. Raises: BadRequest."""
    return decode_prepared(_unpacked(body, "ActionClosePreparedStatementRequest"))


def decode_begin_transaction(body: bytes) -> None:
    """Decode ActionBeginTransactionRequest, which has no fields. Raises: BadRequest."""
    for _ in fields(_unpacked(body, "ActionBeginTransactionRequest")):
        pass


def decode_end_transaction(body: bytes) -> EndTransaction:
    """Decode ActionEndTransactionRequest. Raises: BadRequest."""
    transaction, action = "", 0
    for number, value in fields(_unpacked(body, "ActionEndTransactionRequest")):
        if number == 1:
            transaction = text(value)
        elif number == 2:
            action = integer(value)
    if action not in (1, 2):
        raise BadRequest("a transaction ends with COMMIT or ROLLBACK: the request has neither")
    return EndTransaction(transaction, commits=action == 1)


def decode_cancel_query(body: bytes) -> bytes:
    """Decode ActionCancelQueryRequest: the FlightInfo of the query. Raises: BadRequest."""
    return _bytes(_unpacked(body, "ActionCancelQueryRequest"), 1)


def encode_prepared(handle: bytes, arrow_schema: pa.Schema | None, parameters: pa.Schema) -> bytes:
    """Encode ActionCreatePreparedStatementResult.

    A change has no columns of an answer. JDBC's driver tells changes from queries by that.
    """
    columns = b"" if arrow_schema is None else encode_field(2, _ipc(arrow_schema))
    message = encode_field(1, handle) + columns + encode_field(3, _ipc(parameters))
    return _packed("ActionCreatePreparedStatementResult", message)


def encode_prepared_handle(handle: bytes) -> bytes:
    """Encode DoPutPreparedStatementResult, by which a client learns a new handle."""
    return encode_field(1, handle)


def encode_update_result(changed: int) -> bytes:
    """Encode DoPutUpdateResult; -1 is an unknown number of rows."""
    return encode_field(1, changed)


def encode_transaction(transaction: str) -> bytes:
    """Encode ActionBeginTransactionResult."""
    return _packed("ActionBeginTransactionResult", encode_field(1, transaction))


def encode_cancel_query_result(status: int) -> bytes:
    """Encode ActionCancelQueryResult; its numbers are those of CancelFlightInfoResult."""
    return _packed("ActionCancelQueryResult", encode_field(1, status))


def _unpacked(body: bytes, name: str) -> memoryview:
    packed = unpack_command(body)
    if packed is None or packed.name != name:
        raise BadRequest(f"the body of the action is not an {name}")
    return packed.message


def _packed(name: str, message: bytes) -> bytes:
    return encode_field(1, _TYPE_URL + name) + encode_field(2, message)


def _bytes(message: memoryview, wanted: int) -> bytes:
    found = b""
    for number, value in fields(message):
        if number == wanted:
            found = bytes(view(value))
    return found


def _transaction(value: memoryview | int) -> str | None:
    """A transaction's id. Some clients send an empty one for none."""
    return text(value) or None


def _ipc(arrow_schema: pa.Schema) -> bytes:
    encoded: bytes = arrow_schema.serialize().to_pybytes()
    return encoded
