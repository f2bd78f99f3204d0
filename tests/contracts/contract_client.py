"""A Flight client that makes the contracts' own calls, on plain grpc: codes, trailers and bytes as
they are.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import grpc
import msgpack
import pyarrow as pa
import pyarrow.flight as flight
from tests.server.raw_client import Failure, RawClient, failure_of, metadata, path

DUCKDB = {"airport-user-agent": "airport/20250101"}
PutBody: TypeAlias = "pa.Table | tuple[pa.Schema, Sequence[pa.RecordBatch]]"


@dataclass(frozen=True)
class Exchanged:
    """What a DoExchange answered: the schema it declared, one list of rows for each batch, and the
    count.
    """

    arrow_schema: pa.Schema
    batches: list[list[dict[str, Any]]]
    total_changed: int


@dataclass(frozen=True)
class Response:
    """A DMLResponse."""

    packed: Mapping[str, Any]
    status: str = field(init=False)
    affected_rows: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "status", self.packed["status"])
        object.__setattr__(self, "affected_rows", self.packed["affected_rows"])

    @property
    def returned(self) -> list[dict[str, Any]]:
        """The rows of `returning_data`, which is an Arrow IPC stream."""
        data = self.packed["returning_data"]
        assert isinstance(data, bytes)
        return pa.ipc.open_stream(data).read_all().to_pylist()


class ContractClient(RawClient):
    """Every call has a deadline, by `RawClient`."""

    def __init__(self, location: str) -> None:
        super().__init__(location)
        self.location = location

    # -- changing rows

    def put(
        self, command: Any, rows: PutBody, headers: Mapping[str, str] | None = None
    ) -> Response:
        """DoPut; `command` is sent as JSON unless it is bytes."""
        (answer,) = self.call("DoPut", put_messages(command, rows), headers)
        fields = dict(protobuf_fields(answer))  # PutResult has one field, app_metadata
        return Response(msgpack.unpackb(fields[1]))

    def put_failure(
        self, command: Any, rows: PutBody, headers: Mapping[str, str] | None = None
    ) -> Failure:
        return self.failure("DoPut", put_messages(command, rows), headers)

    def insert(
        self,
        table: str,
        rows: PutBody,
        headers: Mapping[str, str] | None = None,
        *,
        returning: bool = False,
    ) -> Response:
        return self.put(insert_command(table, returning), rows, headers)

    def update(
        self,
        table: str,
        row_ids: Sequence[int],
        rows: PutBody,
        headers: Mapping[str, str] | None = None,
        *,
        returning: bool = False,
    ) -> Response:
        return self.put(update_command(table, row_ids, returning), rows, headers)

    def delete(
        self,
        table: str,
        row_ids: Sequence[int],
        headers: Mapping[str, str] | None = None,
        *,
        returning: bool = False,
    ) -> Response:
        (answer,) = self.action("delete", as_json(delete_body(table, row_ids, returning)), headers)
        return Response(msgpack.unpackb(answer))

    def delete_failure(
        self, table: str, row_ids: Sequence[int], headers: Mapping[str, str] | None = None
    ) -> Failure:
        return self.action_failure("delete", as_json(delete_body(table, row_ids)), headers)

    def exchange(
        self,
        operation: str,
        table: str,
        rows: PutBody,
        headers: Mapping[str, str] | None = None,
        *,
        returning: bool = False,
    ) -> Exchanged:
        """DoExchange as DuckDB makes it. Raises: grpc.RpcError."""
        sent = exchange_headers(operation, returning) | dict(headers or {})
        answer = self.call("DoExchange", flight_messages(path(*table.split(".")), rows), sent)
        *data, last = [dict(protobuf_fields(message)) for message in answer]
        assert set(last) == {3}, "the last message has only app_metadata"
        assert all(3 not in message for message in data), "only the last message has app_metadata"
        reader = pa.ipc.open_stream(b"".join(encapsulated(message) for message in data))
        batches = [batch.to_pylist() for batch in reader]
        count = msgpack.unpackb(last[3])
        assert set(count) == {"total_changed"}
        return Exchanged(reader.schema, batches, count["total_changed"])

    def exchange_failure(
        self,
        operation: str,
        table: str,
        rows: PutBody,
        headers: Mapping[str, str] | None = None,
        *,
        returning: bool = False,
    ) -> Failure:
        try:
            answer = self.exchange(operation, table, rows, headers, returning=returning)
        except grpc.RpcError as error:
            return failure_of(error)
        raise AssertionError(f"{operation} succeeded: {answer}")

    # -- looking

    def rows(self, table: str, headers: Mapping[str, str] | None = None) -> list[dict[str, Any]]:
        """The rows of a table without their ids, by GetFlightInfo and DoGet."""
        return [
            {k: v for k, v in row.items() if k != "rowid"}
            for row in self.rows_with_ids(table, headers)
        ]

    def rows_with_ids(
        self, table: str, headers: Mapping[str, str] | None = None
    ) -> list[dict[str, Any]]:
        return self.read(self.flight_info(table, headers), headers)

    def flight_info(
        self, table: str, headers: Mapping[str, str] | None = None
    ) -> flight.FlightInfo:
        (answer,) = self.call("GetFlightInfo", path(*table.split(".")).serialize(), headers)
        return flight.FlightInfo.deserialize(answer)

    def read(
        self, info: flight.FlightInfo, headers: Mapping[str, str] | None = None
    ) -> list[dict[str, Any]]:
        """All rows behind the endpoints of a FlightInfo."""
        streams = [self.get(endpoint.ticket.ticket, headers) for endpoint in info.endpoints]
        return [row for stream in streams for row in stream.rows()]

    def version(self) -> int:
        (answer,) = self.action("catalog_version", {"catalog_name": ""})
        number: int = msgpack.unpackb(answer)["catalog_version"]
        return number

    def state(self) -> dict[str, Any]:
        """Everything that can be seen of the default catalog."""
        entries = {
            entry["name"]: (entry["description"], entry["tags"], entry["is_default"])
            for entry in self.schema_entries()
        }
        tables = {
            f"{schema}.{name}": (
                info.schema.serialize().to_pybytes(),
                metadata(info),
                self.rows_with_ids(f"{schema}.{name}"),
            )
            for schema, infos in self.list_schemas().items()
            for name, info in infos.items()
        }
        return {"version": self.version(), "schemas": entries, "tables": tables}

    @contextmanager
    def unchanged(self) -> Iterator[None]:
        """What is done inside leaves no trace."""
        before = self.state()
        yield
        assert self.state() == before

    # -- transactions

    def begin(self, headers: Mapping[str, str] | None = None) -> str:
        (answer,) = self.action("create_transaction", b"", headers)
        identifier: str = msgpack.unpackb(answer)["identifier"]
        return identifier

    def transaction(
        self, action: str, transaction_id: str, headers: Mapping[str, str] | None = None
    ) -> Mapping[str, Any]:
        (answer,) = self.action(action, {"transaction_id": transaction_id}, headers)
        packed: Mapping[str, Any] = msgpack.unpackb(answer)
        return packed

    def commit(self, transaction_id: str) -> Mapping[str, Any]:
        return self.transaction("commit_transaction", transaction_id)

    def rollback(self, transaction_id: str) -> Mapping[str, Any]:
        return self.transaction("rollback_transaction", transaction_id)

    def status(self, transaction_id: str, headers: Mapping[str, str] | None = None) -> str | None:
        answer = self.transaction("get_transaction_status", transaction_id, headers)
        assert answer["exists"] == bool(answer["state"])
        return answer["state"] or None


# ---------------------------------------------------------------------------------------- requests


def insert_command(table: str, returning: bool = False) -> dict[str, Any]:
    schema_name, table_name = table.split(".")
    asked = {"returning": True} if returning else {}
    return {"operation": "insert", "schema_name": schema_name, "table_name": table_name, **asked}


def update_command(table: str, row_ids: Sequence[int], returning: bool = False) -> dict[str, Any]:
    return {**insert_command(table, returning), "operation": "update", "row_ids": list(row_ids)}


def delete_body(table: str, row_ids: Sequence[int], returning: bool = False) -> dict[str, Any]:
    command = update_command(table, row_ids, returning)
    del command["operation"]
    return command


def exchange_headers(operation: str, returning: bool = False) -> dict[str, str]:
    return {**DUCKDB, "airport-operation": operation, "return-chunks": "1" if returning else "0"}


def in_transaction(transaction_id: str, header: str = "airport-transaction-id") -> dict[str, str]:
    return {header: transaction_id}


def as_json(body: Mapping[str, Any]) -> bytes:
    return json.dumps(body).encode()


def put_messages(command: Any, rows: PutBody) -> list[bytes]:
    packed = command if isinstance(command, bytes) else as_json(command)
    return flight_messages(flight.FlightDescriptor.for_command(packed), rows)


def flight_messages(descriptor: flight.FlightDescriptor, rows: PutBody) -> list[bytes]:
    """FlightData messages as DuckDB sends them: the first has only the descriptor (airport
    §7.1).
    """
    arrow_schema, batches = (rows.schema, rows.to_batches()) if isinstance(rows, pa.Table) else rows
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, arrow_schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    parts = list(pa.ipc.MessageReader.open_stream(sink.getvalue()))
    described = _field(1, descriptor.serialize())
    return [
        described,
        *(_message(part, described if index == 0 else b"") for index, part in enumerate(parts)),
    ]


def _message(part: pa.Message, prefix: bytes) -> bytes:
    body = b"" if part.body is None else _field(1000, part.body.to_pybytes())
    return prefix + _field(2, part.metadata.to_pybytes()) + body


# ---------------------------------------------------------------------------------------- protobuf


def protobuf_fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """The fields of a message that has only length-delimited ones."""
    position = 0

    def varint() -> int:
        nonlocal position
        value = shift = 0
        while True:
            byte = message[position]
            position += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while position < len(message):
        tag = varint()
        assert tag & 7 == 2
        length = varint()
        yield tag >> 3, message[position : position + length]
        position += length


def encapsulated(message: Mapping[int, bytes]) -> bytes:
    header = message[2] + bytes(-len(message[2]) % 8)
    return b"\xff\xff\xff\xff" + len(header).to_bytes(4, "little") + header + message.get(1000, b"")


def _field(number: int, value: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(value)) + value


def _varint(number: int) -> bytes:
    parts = []
    while number > 0x7F:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*parts, number])


def batches_of(arrow_schema: pa.Schema, *batches: Iterable[Mapping[str, Any]]) -> PutBody:
    """Rows in as many batches as there are arguments; none is a stream with a schema and no
    batch.
    """
    return arrow_schema, [
        pa.RecordBatch.from_pylist(list(rows), schema=arrow_schema) for rows in batches
    ]
