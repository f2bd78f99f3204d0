"""Real requests and ways to spoil them: the stream, the message, the bytes inside it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import msgpack
import pyarrow as pa
import pyarrow.flight as flight
from tests.server.raw_client import RawClient, action_message, endpoints_body, path, ticket_message
from tests.wire.recordings import SCENARIOS, calls

from sparkport.service.actions import ACTIONS

_LONGEST = 20_000
_ROWS: list[dict[str, Any]] = [
    {
        "id": 1,
        "name": "one",
        "amount": None,
        "tags": ["a", None],
        "addr": {"street": "x", "zip": 1},
    },
    {"id": None, "name": "ü" * 300, "amount": None, "tags": [], "addr": None},
]


@dataclass(frozen=True)
class Request:
    method: str
    messages: tuple[bytes, ...]
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def sent(self) -> bytes | tuple[bytes, ...]:
        return self.messages if self.method in STREAMS else b"".join(self.messages[:1])


STREAMS = ("DoExchange", "DoPut", "Handshake")


def requests(client: RawClient, columns: pa.Schema) -> dict[str, list[Request]]:
    """Return requests by method: recorded from DuckDB, and valid for this server."""
    found: list[Request] = []
    for scenario in SCENARIOS:
        for call in calls(scenario):
            messages = tuple(message.data for message in call.messages)
            if sum(map(len, messages)) > _LONGEST:
                continue
            if call.method == "DoExchange":
                found += [aimed(messages, path("cat", "s1", "t"), each) for each in _OPERATIONS]
            else:
                found.append(Request(call.method, messages))
    found += _valid(client, columns)
    unique = {(each.method, each.messages, tuple(each.headers.items())): each for each in found}
    by_method: dict[str, list[Request]] = {}
    for each in unique.values():
        by_method.setdefault(each.method, []).append(each)
    return by_method


_OPERATIONS = ("insert", "update", "delete", "scalar_function", "table_function_in_out", "nonsense")


def _valid(client: RawClient, columns: pa.Schema) -> list[Request]:
    plain = path("s1", "t")
    signed = client.list_schemas("cat")["s1"]["t"].descriptor
    steady = client.list_schemas("steady")["s"]["t"].descriptor
    descriptors = [plain, signed, steady, path("cat", "s1", "t"), path("__databases")]
    made = [
        Request(method, (each.serialize(),))
        for method in ("GetFlightInfo", "GetSchema")
        for each in descriptors
    ]
    for each in descriptors:
        for column_ids in (None, [0, 1], [2**64 - 1]):
            made.append(
                _action(
                    "endpoints", endpoints_body(each, column_ids, json_filters='{"filters":[]}')
                )
            )
        made.append(
            _action(
                "flight_info",
                {"descriptor": each.serialize(), "at_unit": "VERSION", "at_value": "1"},
            )
        )
        made += [
            Request("DoGet", (ticket_message(found.ticket.ticket),))
            for found in client.endpoints(each)
        ]
    made.append(
        _action(
            "endpoints",
            {"schema": "s1", "table": "t", "time_point": {"unit": "version", "value": "1"}},
        )
    )
    transaction = msgpack.unpackb(client.action("create_transaction", {"catalog_name": "cat"})[0])[
        "identifier"
    ]
    for name in ("get_transaction_status", "commit_transaction", "rollback_transaction"):
        made.append(_action(name, {"transaction_id": transaction, "catalog_name": "cat"}))
    made.append(_action("create_transaction", b'{"catalog_name": "cat"}'))
    made.append(
        _action(
            "delete",
            b'{"schema_name": "s1", "table_name": "t", "row_ids": [1, 2], "returning": true}',
        )
    )
    empty = {"catalog": "cat", "schema": "s1", "name": "t", "ignore_not_found": False}
    made += [_action(name, empty) for name in ACTIONS]
    filters = {
        "airport-list-flights-filter-catalog": "cat",
        "airport-list-flights-filter-schema": "s1",
    }
    made += [Request("ListFlights", (b"",)), Request("ListFlights", (b"\x0a\x03abc",), filters)]
    made += [Request("ListActions", (b"",)), Request("Handshake", (b"\x12\x03abc",))]
    rowid = pa.schema([("rowid", pa.int64())])
    for operation, schema in (
        ("insert", columns),
        ("update", pa.schema([*columns, *rowid])),
        ("delete", rowid),
    ):
        stream = flight_data(schema, [{**row, "rowid": 0} for row in _ROWS])
        made += [
            aimed(stream, each, operation, returning)
            for each in (plain, signed)
            for returning in "01"
        ]
    for command in (
        b'{"operation": "insert", "schema_name": "s1", "table_name": "t", "returning": true}',
        b'{"operation": "update", "schema_name": "s1", "table_name": "t", "row_ids": [0, 1]}',
    ):
        stream = flight_data(columns, _ROWS)
        request = aimed(stream, flight.FlightDescriptor.for_command(command), "insert")
        made.append(replace(request, method="DoPut", headers={}))
    return made


def _action(name: str, body: Any) -> Request:
    return Request("DoAction", (action_message(name, body),))


def aimed(
    messages: Sequence[bytes],
    descriptor: flight.FlightDescriptor,
    operation: str,
    returning: str = "0",
) -> Request:
    """Return an exchange whose first message names this object."""
    first = (
        {**dict(split(messages[0])), 1: descriptor.serialize()}
        if messages
        else {1: descriptor.serialize()}
    )
    headers = {"airport-operation": operation, "return-chunks": returning}
    return Request("DoExchange", (join(list(first.items())), *messages[1:]), headers)


def flight_data(arrow_schema: pa.Schema, rows: list[dict[str, Any]]) -> list[bytes]:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, arrow_schema) as writer:
        writer.write_table(pa.Table.from_pylist(rows, arrow_schema))
    messages = [b""]  # the first has only the descriptor
    for message in pa.ipc.MessageReader.open_stream(sink.getvalue()):
        parts = [
            (2, message.metadata.to_pybytes()),
            (1000, message.body.to_pybytes() if message.body else b""),
        ]
        messages.append(join(parts))
    return messages


# -- protobuf, as far as it is needed to get inside messages


def split(message: bytes) -> list[tuple[int, bytes]]:
    """The length-delimited fields of a well-formed message."""
    fields, position = [], 0
    while position < len(message):
        tag, position = _varint(message, position)
        length, position = _varint(message, position)
        if tag & 7 == 0:
            continue
        fields.append((tag >> 3, message[position : position + length]))
        position += length
    return fields


def join(fields: Sequence[tuple[int, bytes]]) -> bytes:
    return b"".join(
        _encoded(number << 3 | 2) + _encoded(len(value)) + value for number, value in fields
    )


def _varint(message: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[position]
        value |= (byte & 0x7F) << shift
        position, shift = position + 1, shift + 7
        if byte < 0x80:
            return value, position


def _encoded(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*encoded, value])


# -- mutations


@dataclass(frozen=True)
class Mutation:
    """A change of some bytes; positions are fractions, so that they fit any length."""

    kind: str
    place: float
    length: float
    noise: bytes

    def __call__(self, data: bytes, other: bytes) -> bytes:
        start = int(self.place * len(data))
        end = start + int(self.length * (len(data) - start))
        return KINDS[self.kind](data, other, start, end, self.noise)


_Kind: TypeAlias = Callable[[bytes, bytes, int, int, bytes], bytes]


def _flip(data: bytes, _other: bytes, start: int, end: int, noise: bytes) -> bytes:
    changed = bytearray(data)
    for offset, byte in enumerate(noise[:4] or b"\x01"):
        if start + offset < len(changed):
            changed[start + offset] ^= byte or 0x80
    return bytes(changed)


KINDS: Mapping[str, _Kind] = {
    "flip": _flip,
    "overwrite": lambda data, other, start, end, noise: (
        data[:start] + noise + data[start + len(noise) :]
    ),
    "extremes": lambda data, other, start, end, noise: (
        data[:start] + b"\xff" * min(8, end - start) + data[start + 8 :]
    ),
    "truncate": lambda data, other, start, end, noise: data[:start],
    "cut the start": lambda data, other, start, end, noise: data[start:],
    "insert": lambda data, other, start, end, noise: data[:start] + noise + data[start:],
    "delete": lambda data, other, start, end, noise: data[:start] + data[end:],
    "duplicate": lambda data, other, start, end, noise: data[:end] + data[start:],
    "splice": lambda data, other, start, end, noise: data[:start] + other[start:],
    "transplant": lambda data, other, start, end, noise: data[:start] + other[:end] + data[end:],
    "replace": lambda data, other, start, end, noise: other,
    "random": lambda data, other, start, end, noise: noise,
    "repeat": lambda data, other, start, end, noise: (data or noise) * 20,
}


def spoil_message(
    request: Request, index: int, other: Request, mutations: Sequence[Mutation]
) -> Request:
    """Spoil the bytes of a message."""
    return _with_message(request, index, lambda data: _apply(data, _pick(other, index), mutations))


def spoil_field(
    request: Request, index: int, other: Request, mutations: Sequence[Mutation]
) -> Request:
    """Spoil a field of a message that stays well-formed: a body, a ticket, Arrow's header."""

    def spoil(data: bytes) -> bytes:
        fields = split(data)
        if not fields:
            return _apply(data, _pick(other, index), mutations)
        chosen = index % len(fields)
        number, value = fields[chosen]
        strange = dict(split(_pick(other, index))).get(number, b"")
        fields[chosen] = (number, _apply(value, strange, mutations))
        return join(fields)

    return _with_message(request, index, spoil)


def spoil_value(
    request: Request, index: int, other: Request, mutations: Sequence[Mutation]
) -> Request:
    """Spoil a value inside the MessagePack body of an action, which stays MessagePack."""
    if request.method != "DoAction":
        return spoil_field(request, index, other, mutations)

    def spoil(data: bytes) -> bytes:
        action = flight.Action.deserialize(data)
        try:
            body = msgpack.unpackb(action.body.to_pybytes(), raw=True, strict_map_key=False)
        except ValueError:
            return data
        places = list(_places(body))
        if not places:
            return data
        holder, key = places[index % len(places)]
        value, noise = holder[key], mutations[0].noise
        if isinstance(value, bytes) and mutations[0].kind != "replace":
            holder[key] = _apply(value, noise, mutations)
        else:
            strange = [
                None,
                True,
                -1,
                2**64 - 1,
                0.5,
                noise,
                "ü",
                [],
                {},
                [[]],
                {b"": None},
                msgpack.ExtType(1, noise),
            ]
            holder[key] = strange[len(noise) % len(strange)]
        return action_message(action.type, msgpack.packb(body, use_bin_type=bool(index % 2)))

    return _with_message(request, index, spoil)


def spoil_stream(
    request: Request, index: int, other: Request, mutations: Sequence[Mutation]
) -> Request:
    """Spoil the order of messages: drop some, repeat some, mix in those of another call."""
    messages = list(request.messages)
    for mutation in mutations:
        at = int(mutation.place * len(messages))
        match len(mutation.noise) % 5:
            case 0:
                messages = messages[:at]
            case 1:
                messages = messages[at:]
            case 2:
                messages = messages[: at + 1] + messages[at:]
            case 3:
                messages = messages[:at] + list(other.messages) + messages[at:]
            case _:
                messages = messages[::-1]
    return replace(
        request,
        messages=tuple(messages[:20]),
        headers=other.headers if index % 3 == 0 else request.headers,
    )


LEVELS = (spoil_message, spoil_field, spoil_value, spoil_stream)


def _with_message(request: Request, index: int, spoil: Callable[[bytes], bytes]) -> Request:
    messages = list(request.messages) or [b""]
    chosen = index % len(messages)
    messages[chosen] = spoil(messages[chosen])
    return replace(request, messages=tuple(messages))


def _pick(request: Request, index: int) -> bytes:
    return request.messages[index % len(request.messages)] if request.messages else b""


def _apply(data: bytes, other: bytes, mutations: Sequence[Mutation]) -> bytes:
    for mutation in mutations:
        data = mutation(data, other)
    return data[: 4 * _LONGEST]


def _places(value: Any) -> Any:
    """Every place in a nested value that can be assigned to."""
    pairs = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, item in pairs:
        yield value, key
        yield from _places(item)
