"""The first messages of a client's stream: a descriptor, perhaps metadata, and a schema."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

import pyarrow.flight as flight

from sparkport.errors import BadRequest
from sparkport.wire.flight_data import FlightData, decode_flight_data

__all__ = ["Opening", "first_schema", "named_descriptor", "with_first_descriptor"]


@dataclass(frozen=True, slots=True)
class Opening:
    """What the client sent before the first batch."""

    schema_message: FlightData
    descriptor: flight.FlightDescriptor | None
    app_metadata: bytes
    """From the messages before the schema; only in/out functions send any (airport §9.3)."""

    @property
    def named(self) -> flight.FlightDescriptor:
        """The descriptor. Raises: BadRequest when there is none."""
        return _named(self.descriptor)


def named_descriptor(message: bytes) -> flight.FlightDescriptor:
    """The descriptor of the first message. Raises: BadRequest when there is none."""
    return _named(decode_flight_data(message).descriptor)


def _named(descriptor: flight.FlightDescriptor | None) -> flight.FlightDescriptor:
    if descriptor is None:
        raise BadRequest(
            "the exchange does not say what it is about: its first message needs a descriptor"
        )
    return descriptor


def with_first_descriptor(
    messages: Iterator[bytes],
) -> tuple[flight.FlightDescriptor | None, Iterator[bytes]]:
    """Read up to the first descriptor or schema; return the descriptor, and all the messages.

    Raises: BadRequest.
    """
    read: list[bytes] = []
    for message in messages:
        read.append(message)
        data = decode_flight_data(message)
        if data.descriptor is not None or data.header:
            return data.descriptor, chain(read, messages)
    return None, iter(read)


def first_schema(messages: Iterator[bytes]) -> Opening:
    """Read up to the schema; the client's first message has only a descriptor (airport §7.1).

    Raises: BadRequest.
    """
    descriptor: flight.FlightDescriptor | None = None
    app_metadata = b""
    for message in messages:
        data = decode_flight_data(message)
        if descriptor is None and data.descriptor is not None:
            descriptor = data.descriptor
        if data.header:
            return Opening(data, descriptor, app_metadata)
        app_metadata = app_metadata or data.app_metadata
    raise BadRequest("the stream ended before its schema")
