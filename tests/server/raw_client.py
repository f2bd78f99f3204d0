"""A Flight client on plain grpc, which shows codes, trailers and bytes as they are.

Every call has a deadline.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import grpc
import msgpack
import pyarrow as pa
import pyarrow.flight as flight
import zstandard
from typing_extensions import Self

SERVICE = "/arrow.flight.protocol.FlightService/"
UNARY = ("GetFlightInfo", "GetSchema")
SERVER_STREAMS = ("DoAction", "DoGet", "ListFlights", "ListActions")
BOTH_STREAMS = ("DoExchange", "DoPut", "Handshake")
TIMEOUT = 60.0
ROWID = 2**64 - 1
REUSE = "arrow-flight-reuse-connection://?"

Headers = Mapping[str, str]


@dataclass(frozen=True)
class Failure:
    """How a call ended that did not succeed."""

    code: str
    message: str
    trailers: Mapping[str, str | bytes]


@dataclass(frozen=True)
class Stream:
    """The result of a DoGet: the schema it declared, and its batches."""

    arrow_schema: pa.Schema
    batches: list[pa.RecordBatch]

    @property
    def table(self) -> pa.Table:
        return pa.Table.from_batches(self.batches, self.arrow_schema)

    def rows(self) -> list[dict[str, Any]]:
        return self.table.to_pylist()


class RawClient:
    """A client with a channel of its own to a server."""

    def __init__(self, location: str, credentials: grpc.ChannelCredentials | None = None) -> None:
        options = [
            ("grpc.max_receive_message_length", -1),
            ("grpc.max_send_message_length", -1),
            # Without it, two clients of a process share a connection.
            ("grpc.use_local_subchannel_pool", 1),
        ]
        target = location.split("://", 1)[1]
        if credentials is None:
            # The stubs want serializers; bytes need none.
            self.channel: Any = grpc.insecure_channel(target, options)
        else:
            self.channel = grpc.secure_channel(target, credentials, options)

    def close(self) -> None:
        self.channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    # -- calls as bytes

    def open(
        self,
        method: str,
        messages: bytes | Iterable[bytes],
        headers: Headers | None = None,
        timeout: float = TIMEOUT,
    ) -> Any:
        """The running call of a streaming method: an iterator of messages that can be cancelled."""
        metadata = tuple((headers or {}).items())
        if method in BOTH_STREAMS:
            stream = [messages] if isinstance(messages, bytes) else messages
            return self.channel.stream_stream(SERVICE + method)(
                iter(stream), timeout=timeout, metadata=metadata
            )
        return self.channel.unary_stream(SERVICE + method)(
            messages, timeout=timeout, metadata=metadata
        )

    def call(
        self, method: str, messages: bytes | Iterable[bytes], headers: Headers | None = None
    ) -> list[bytes]:
        """All messages of the answer. Raises: grpc.RpcError."""
        if method in UNARY:
            metadata = tuple((headers or {}).items())
            return [
                self.channel.unary_unary(SERVICE + method)(
                    messages, timeout=TIMEOUT, metadata=metadata
                )
            ]
        return list(self.open(method, messages, headers))

    def failure(
        self, method: str, messages: bytes | Iterable[bytes], headers: Headers | None = None
    ) -> Failure:
        """The status of a call that must fail."""
        try:
            answer = self.call(method, messages, headers)
        except grpc.RpcError as error:
            return failure_of(error)
        raise AssertionError(f"{method} succeeded: {answer!r:.200}")

    # -- actions

    def action(self, name: str, body: Any, headers: Headers | None = None) -> list[bytes]:
        """Return the bodies of an action's results; `body` is packed unless it is bytes."""
        answers = self.call("DoAction", action_message(name, body), headers)
        return [flight.Result.deserialize(answer).body.to_pybytes() for answer in answers]

    def action_failure(self, name: str, body: Any, headers: Headers | None = None) -> Failure:
        return self.failure("DoAction", action_message(name, body), headers)

    def list_schemas(
        self, catalog: str = "", headers: Headers | None = None
    ) -> dict[str, dict[str, flight.FlightInfo]]:
        """The tables of each schema, in the order in which they are listed."""
        listed = {}
        for entry in self.schema_entries(catalog, headers):
            objects = msgpack.unpackb(decompress(entry["contents"]["serialized"]))
            infos = [flight.FlightInfo.deserialize(each) for each in objects]
            listed[entry["name"]] = {metadata(info)["name"]: info for info in infos}
        return listed

    def schema_entries(
        self, catalog: str = "", headers: Headers | None = None
    ) -> list[dict[str, Any]]:
        (answer,) = self.action("list_schemas", {"catalog_name": catalog}, headers)
        entries: list[dict[str, Any]] = msgpack.unpackb(decompress(answer))["schemas"]
        return entries

    def endpoints(
        self,
        descriptor: flight.FlightDescriptor,
        column_ids: Sequence[int] | None = None,
        headers: Headers | None = None,
        **parameters: Any,
    ) -> list[flight.FlightEndpoint]:
        (answer,) = self.action(
            "endpoints", endpoints_body(descriptor, column_ids, **parameters), headers
        )
        return [flight.FlightEndpoint.deserialize(each) for each in msgpack.unpackb(answer)]

    # -- reading

    def get(self, ticket: bytes, headers: Headers | None = None) -> Stream:
        return decode_stream(self.call("DoGet", ticket_message(ticket), headers))

    def scan(
        self,
        descriptor: flight.FlightDescriptor,
        column_ids: Sequence[int] | None = None,
        headers: Headers | None = None,
        **parameters: Any,
    ) -> Stream:
        """Read all endpoints of a scan, one after the other."""
        streams = [
            self.get(endpoint.ticket.ticket, headers)
            for endpoint in self.endpoints(descriptor, column_ids, headers, **parameters)
        ]
        return Stream(
            streams[0].arrow_schema, [batch for stream in streams for batch in stream.batches]
        )

    def scan_failure(
        self, descriptor: flight.FlightDescriptor, column_ids: Sequence[int] | None = None
    ) -> Failure:
        """The status of a DoGet that must fail; planning must not."""
        (endpoint,) = self.endpoints(descriptor, column_ids)
        return self.failure("DoGet", ticket_message(endpoint.ticket.ticket))


def failure_of(error: grpc.RpcError) -> Failure:
    call: Any = error  # every RpcError that a call raises is the call itself
    return Failure(call.code().name, call.details() or "", dict(call.trailing_metadata() or ()))


def path(*elements: str) -> flight.FlightDescriptor:
    return flight.FlightDescriptor.for_path(*elements)


def action_message(name: str, body: Any) -> bytes:
    packed = body if isinstance(body, bytes) else msgpack.packb(body)
    message: bytes = flight.Action(name, packed).serialize()
    return message


def ticket_message(ticket: bytes) -> bytes:
    message: bytes = flight.Ticket(ticket).serialize()
    return message


def endpoints_body(
    descriptor: flight.FlightDescriptor, column_ids: Sequence[int] | None = None, **parameters: Any
) -> dict[str, Any]:
    """The body of the action as DuckDB sends it; without column ids all columns are asked for."""
    sent = {"json_filters": "", "table_function_parameters": "", "table_function_input_schema": ""}
    sent |= {"at_unit": "", "at_value": "", **parameters}
    ids = {} if column_ids is None else {"column_ids": list(column_ids)}
    return {"descriptor": descriptor.serialize(), "parameters": {**ids, **sent}}


def metadata(info: flight.FlightInfo) -> dict[str, Any]:
    decoded: dict[str, Any] = msgpack.unpackb(info.app_metadata)
    return decoded


def decompress(pair: bytes) -> bytes:
    length, frame = msgpack.unpackb(pair)
    content = zstandard.ZstdDecompressor().decompress(frame, max_output_size=length)
    assert len(content) == length
    return content


def decode_stream(messages: Iterable[bytes]) -> Stream:
    """Decode FlightData messages as an IPC stream; none may have app_metadata (T20)."""
    parts = []
    for message in messages:
        fields = dict(_fields(message))
        assert 3 not in fields, "a message of DoGet bears app_metadata"
        header = fields[2]
        padding = -len(header) % 8
        parts += [
            b"\xff\xff\xff\xff",
            (len(header) + padding).to_bytes(4, "little"),
            header,
            b"\0" * padding,
        ]
        parts.append(fields.get(1000, b""))
    reader = pa.ipc.open_stream(b"".join(parts))
    return Stream(reader.schema, list(reader))


def _fields(message: bytes) -> Iterator[tuple[int, bytes]]:
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
        assert tag & 7 == 2, "FlightData has only length-delimited fields"
        length = varint()
        yield tag >> 3, message[position : position + length]
        position += length
