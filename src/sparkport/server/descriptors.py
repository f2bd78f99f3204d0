"""What our gRPC services look like, as protobuf describes itself: FileDescriptorProtos, written by
hand.

Messages are tables of lines as in a .proto file. The encoder knows what they need and no more;
protobuf itself is not needed to serve (decision 0001).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from sparkport.wire.flight import varint

__all__ = ["FILES", "ProtoFile", "delimited", "number"]

_TYPES = {"double": 1, "int64": 3, "uint64": 4, "int32": 5, "bool": 8, "string": 9, "bytes": 12}
_MESSAGE, _ENUM = 11, 14
_OPTIONAL, _REPEATED = 1, 3


@dataclass(frozen=True, slots=True)
class ProtoFile:
    """A .proto file."""

    name: str
    package: str
    messages: Mapping[str, Iterable[str]]
    """By name, with a dot where one is inside another; fields as `repeated string path = 3`, after
    `oneof` in one.
    """
    services: Mapping[str, Mapping[str, tuple[str, str]]]
    """By name, their methods with request and answer, each perhaps a `stream`."""
    enums: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By name, inside of a message; their values count from 0."""

    def symbols(self) -> set[str]:
        """The full names of all that it declares."""
        methods = [
            f"{service}.{method}" for service, each in self.services.items() for method in each
        ]
        names = [*self.messages, *self.enums, *self.services, *methods]
        return {f"{self.package}.{name}" for name in names}

    def encode(self) -> bytes:
        """As a serialised FileDescriptorProto."""
        top = [name for name in self.messages if "." not in name]
        return b"".join(
            [
                _text(1, self.name),
                _text(2, self.package),
                *(delimited(4, self._message(name)) for name in top),
                *(
                    delimited(6, self._service(name, methods))
                    for name, methods in self.services.items()
                ),
                _text(12, "proto3"),
            ]
        )

    def _message(self, name: str) -> bytes:
        fields: list[bytes] = []
        oneofs: list[str] = []
        for line in self.messages[name]:
            declaration, _, position = line.partition(" = ")
            *words, kind, field_name = declaration.split()
            if words[:1] == ["oneof"]:
                if words[1] not in oneofs:
                    oneofs.append(words[1])
                oneof = number(9, oneofs.index(words[1]))
            else:
                oneof = b""
            label = number(4, _REPEATED if "repeated" in words else _OPTIONAL)
            known = number(3, int(position)) + label + self._type(kind)
            fields.append(delimited(2, _text(1, field_name) + known + oneof))
        nested = [each for each in self.messages if each.rpartition(".")[0] == name]
        enums = [each for each in self.enums if each.rpartition(".")[0] == name]
        return b"".join(
            [
                _text(1, name.rpartition(".")[2]),
                *fields,
                *(delimited(3, self._message(each)) for each in nested),
                *(delimited(4, self._enum(each)) for each in enums),
                *(delimited(8, _text(1, each)) for each in oneofs),
            ]
        )

    def _type(self, name: str) -> bytes:
        if name in _TYPES:
            return number(5, _TYPES[name])
        return number(5, _ENUM if name in self.enums else _MESSAGE) + _text(
            6, f".{self.package}.{name}"
        )

    def _enum(self, name: str) -> bytes:
        values = [
            _text(1, value) + number(2, index) for index, value in enumerate(self.enums[name])
        ]
        return _text(1, name.rpartition(".")[2]) + b"".join(delimited(2, value) for value in values)

    def _service(self, name: str, methods: Mapping[str, tuple[str, str]]) -> bytes:
        encoded = [_text(1, name)]
        for method, (request, answer) in methods.items():
            encoded.append(
                delimited(
                    2,
                    _text(1, method)
                    + _text(2, f".{self.package}.{request.removeprefix('stream ')}")
                    + _text(3, f".{self.package}.{answer.removeprefix('stream ')}")
                    + (number(5, 1) if request.startswith("stream ") else b"")
                    + (number(6, 1) if answer.startswith("stream ") else b""),
                )
            )
        return b"".join(encoded)


def delimited(position: int, value: bytes) -> bytes:
    """A field of protobuf with bytes, text or a message in it."""
    return varint(position << 3 | 2) + varint(len(value)) + value


def number(position: int, value: int) -> bytes:
    """A field of protobuf with an integer in it that is not negative."""
    return varint(position << 3) + varint(value)


def _text(position: int, value: str) -> bytes:
    return delimited(position, value.encode())


_FLIGHT = ProtoFile(
    "sparkport/Flight.proto",  # not Arrow's: without what we neither send nor look at
    "arrow.flight.protocol",
    {
        "HandshakeRequest": ["uint64 protocol_version = 1", "bytes payload = 2"],
        "HandshakeResponse": ["uint64 protocol_version = 1", "bytes payload = 2"],
        "Empty": [],
        "ActionType": ["string type = 1", "string description = 2"],
        "Criteria": ["bytes expression = 1"],
        "Action": ["string type = 1", "bytes body = 2"],
        "Result": ["bytes body = 1"],
        "SchemaResult": ["bytes schema = 1"],
        "FlightDescriptor": [
            "FlightDescriptor.DescriptorType type = 1",
            "bytes cmd = 2",
            "repeated string path = 3",
        ],
        "FlightInfo": [
            "bytes schema = 1",
            "FlightDescriptor flight_descriptor = 2",
            "repeated FlightEndpoint endpoint = 3",
            "int64 total_records = 4",
            "int64 total_bytes = 5",
            "bool ordered = 6",
            "bytes app_metadata = 7",
        ],
        "FlightEndpoint": [
            "Ticket ticket = 1",
            "repeated Location location = 2",
            "bytes app_metadata = 4",
        ],
        "Location": ["string uri = 1"],
        "Ticket": ["bytes ticket = 1"],
        "FlightData": [
            "FlightDescriptor flight_descriptor = 1",
            "bytes data_header = 2",
            "bytes app_metadata = 3",
            "bytes data_body = 1000",
        ],
        "PutResult": ["bytes app_metadata = 1"],
    },
    {
        "FlightService": {
            "Handshake": ("stream HandshakeRequest", "stream HandshakeResponse"),
            "ListFlights": ("Criteria", "stream FlightInfo"),
            "GetFlightInfo": ("FlightDescriptor", "FlightInfo"),
            "GetSchema": ("FlightDescriptor", "SchemaResult"),
            "DoGet": ("Ticket", "stream FlightData"),
            "DoPut": ("stream FlightData", "stream PutResult"),
            "DoExchange": ("stream FlightData", "stream FlightData"),
            "DoAction": ("Action", "stream Result"),
            "ListActions": ("Empty", "stream ActionType"),
        }
    },
    {"FlightDescriptor.DescriptorType": ("UNKNOWN", "PATH", "CMD")},
)

_HEALTH = ProtoFile(
    "grpc/health/v1/health.proto",
    "grpc.health.v1",
    {
        "HealthCheckRequest": ["string service = 1"],
        "HealthCheckResponse": ["HealthCheckResponse.ServingStatus status = 1"],
    },
    {
        "Health": {
            "Check": ("HealthCheckRequest", "HealthCheckResponse"),
            "Watch": ("HealthCheckRequest", "stream HealthCheckResponse"),
        }
    },
    {"HealthCheckResponse.ServingStatus": ("UNKNOWN", "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN")},
)


def _reflection(version: str) -> ProtoFile:
    return ProtoFile(
        f"grpc/reflection/{version}/reflection.proto",
        f"grpc.reflection.{version}",
        {
            "ServerReflectionRequest": [
                "string host = 1",
                "oneof message_request string file_by_filename = 3",
                "oneof message_request string file_containing_symbol = 4",
                "oneof message_request ExtensionRequest file_containing_extension = 5",
                "oneof message_request string all_extension_numbers_of_type = 6",
                "oneof message_request string list_services = 7",
            ],
            "ExtensionRequest": ["string containing_type = 1", "int32 extension_number = 2"],
            "ServerReflectionResponse": [
                "string valid_host = 1",
                "ServerReflectionRequest original_request = 2",
                "oneof message_response FileDescriptorResponse file_descriptor_response = 4",
                "oneof message_response ExtensionNumberResponse all_extension_numbers_response = 5",
                "oneof message_response ListServiceResponse list_services_response = 6",
                "oneof message_response ErrorResponse error_response = 7",
            ],
            "FileDescriptorResponse": ["repeated bytes file_descriptor_proto = 1"],
            "ExtensionNumberResponse": [
                "string base_type_name = 1",
                "repeated int32 extension_number = 2",
            ],
            "ListServiceResponse": ["repeated ServiceResponse service = 1"],
            "ServiceResponse": ["string name = 1"],
            "ErrorResponse": ["int32 error_code = 1", "string error_message = 2"],
        },
        {
            "ServerReflection": {
                "ServerReflectionInfo": (
                    "stream ServerReflectionRequest",
                    "stream ServerReflectionResponse",
                )
            }
        },
    )


FILES = (_FLIGHT, _HEALTH, _reflection("v1"), _reflection("v1alpha"))
"""All that the server offers."""
