"""Recorded statements of the real client, decoded: requests, their order, and the outcome.

See README.md.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgpack
import pyarrow as pa
import pyarrow.flight as flight

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Omitted:
    """A batch of which only the size and the first rows were kept, or not even those."""

    rows: int
    first: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True)
class Call:
    """An RPC as the client made it. `status` is None when the client cancelled it."""

    method: str
    action: str | None
    headers: Mapping[str, str | list[str]]
    """The value is a list where a header was sent twice."""
    messages: list[bytes | Omitted]
    status: str | None

    @property
    def operation(self) -> str | None:
        operation = self.headers.get("airport-operation")
        assert not isinstance(operation, list)
        return operation

    @property
    def returning(self) -> bool:
        return self.headers.get("return-chunks") == "1"

    @property
    def body(self) -> bytes:
        """The body of an action."""
        assert self.action is not None
        return _fields(self._message(0)).get(2, b"")

    @property
    def parameters(self) -> dict[str, Any]:
        """The body of an action as a map, text as text."""
        return {key: _text(value) for key, value in _pairs(self.body)}

    @property
    def path(self) -> tuple[str, str, str, str]:
        """Catalog, schema, kind and name in the recorded descriptor."""
        catalog, schema, kind, name = self.descriptor.path[0].decode().split("/")
        return catalog, schema, kind, name

    @property
    def descriptor(self) -> flight.FlightDescriptor:
        """The recorded descriptor."""
        if self.method == "GetFlightInfo":
            return flight.FlightDescriptor.deserialize(self._message(0))
        if self.method == "DoExchange":
            return flight.FlightDescriptor.deserialize(_fields(self._message(0))[1])
        body = dict(_pairs(self.body))
        return flight.FlightDescriptor.deserialize(
            body.get("descriptor") or body["flight_descriptor"]
        )

    def body_with(self, descriptor: flight.FlightDescriptor) -> bytes:
        """Return the body with the recorded descriptor replaced, and nothing else changed."""
        replaced = dict.fromkeys(("descriptor", "flight_descriptor"), descriptor.serialize())
        return _packed(_Map((key, replaced.get(key, value)) for key, value in _pairs(self.body)))

    @property
    def sent_schema(self) -> pa.Schema:
        """The schema that was sent in an exchange."""
        return pa.ipc.read_schema(pa.py_buffer(_encapsulated(self._message(self._schema_at))))

    @property
    def opening(self) -> bytes:
        """The metadata with which the exchange of an in/out function begins."""
        return _fields(self._message(1))[3]

    @property
    def _schema_at(self) -> int:
        return 2 if self.operation == "table_function_in_out" else 1

    def batches(self) -> Iterator[pa.RecordBatch | Omitted]:
        """Yield the batches that were sent in an exchange."""
        for message in self.messages[self._schema_at + 1 :]:
            if isinstance(message, Omitted):
                yield message
            else:
                read = pa.ipc.read_message(pa.py_buffer(_encapsulated(message)))
                yield pa.ipc.read_record_batch(read, self.sent_schema)

    def _message(self, number: int) -> bytes:
        message = self.messages[number]
        assert isinstance(message, bytes)
        return message


@dataclass(frozen=True)
class Step:
    """An SQL statement. `rows` are the first 20 of its result, None when it failed."""

    sql: str
    calls: list[Call]
    rows: list[list[Any]] | None
    row_count: int
    error: str | None

    @property
    def refused_by_server(self) -> bool:
        return any(call.status not in ("OK", None) for call in self.calls)


@dataclass(frozen=True)
class Recording:
    setup: list[str]
    steps: list[Step]


def load(scenario: str) -> Recording:
    raw = json.loads((HERE / f"{scenario}.json").read_text("utf-8"))
    blobs = [
        zlib.decompress(base64.b64decode(b[1:])) if b[0] == "z" else base64.b64decode(b)
        for b in raw["blobs"]
    ]

    def messages_of(kept: list[dict[str, Any]]) -> Iterator[bytes | Omitted]:
        for message in kept:
            if "blob" in message:
                yield blobs[message["blob"]]
            elif "left_out" in message:
                yield from [Omitted(message["of_rows"])] * message["left_out"]
            else:
                yield Omitted(message["rows"], message["first"])

    def call(kept: dict[str, Any]) -> Call:
        messages = list(messages_of(kept["messages"]))
        headers = raw["headers"][kept["headers"]]
        return Call(kept["method"], kept.get("action"), headers, messages, kept["status"])

    steps = []
    for kept in raw["steps"]:
        result = kept.get("result") or {}
        calls = [call(each) for each in kept["calls"]]
        error = (kept.get("error") or {}).get("message")
        steps.append(
            Step(kept["sql"], calls, result.get("rows"), result.get("row_count", 0), error)
        )
    return Recording(raw["setup"], steps)


class _Map(list[tuple[Any, Any]]):
    """A MessagePack map with its keys in order, repeated keys included."""


def _pairs(body: bytes) -> list[tuple[str, Any]]:
    """The map that a body is; values as bytes."""
    unpacked = msgpack.unpackb(body, raw=True, strict_map_key=False, object_pairs_hook=_Map)
    return [(key.decode(), value) for key, value in unpacked]


def _packed(value: Any) -> bytes:
    """Pack as the client does: bytes and text alike as MessagePack str."""
    packer = msgpack.Packer(unicode_errors="surrogateescape")
    if isinstance(value, _Map):
        head = packer.pack_map_header(len(value))
        return head + b"".join(_packed(key) + _packed(element) for key, element in value)
    if isinstance(value, list):
        return packer.pack_array_header(len(value)) + b"".join(_packed(each) for each in value)
    return packer.pack(
        value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else value
    )


def _text(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode("utf-8", "surrogateescape")
    if isinstance(value, _Map):
        return {_text(key): _text(element) for key, element in value}
    return [_text(each) for each in value] if isinstance(value, list) else value


def _fields(message: bytes) -> dict[int, bytes]:
    """The length-delimited fields of a protobuf message by number."""
    fields: dict[int, bytes] = {}
    position = 0
    while position < len(message):
        key, position = _varint(message, position)
        value, position = _varint(message, position)
        if key & 7 == 2:
            fields[key >> 3] = message[position : position + value]
            position += value
    return fields


def _varint(message: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[position]
        value, shift, position = value | (byte & 127) << shift, shift + 7, position + 1
        if byte < 128:
            return value, position


def _encapsulated(flight_data: bytes) -> bytes:
    """The IPC message of a FlightData message (fields 2 and 1000), in the form that Arrow reads."""
    fields = _fields(flight_data)
    header = fields[2] + b"\0" * (-len(fields[2]) % 8)
    return b"\xff\xff\xff\xff" + len(header).to_bytes(4, "little") + header + fields.get(1000, b"")
