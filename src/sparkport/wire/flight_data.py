"""FlightData messages: Arrow IPC framed by hand, so that the bytes of a batch are copied once.

Strategy: a stream writer of Arrow writes into a list instead of a file. It hands over the buffers
of a batch as they are, without copying them, and one `bytes.join` of the protobuf framing and those
buffers makes the message. In the other direction the messages' parts are handed to Arrow's own
stream reader, which thus handles dictionaries and their replacements.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.flight as flight

from sparkport.engine.types import refuse_unreadable
from sparkport.engine.validation import validate
from sparkport.errors import BadRequest, CatalogFault, LimitExceeded
from sparkport.wire.dictionaries import Dictionaries
from sparkport.wire.flight import decode_descriptor, protobuf_fields, short_varint, varint
from sparkport.wire.inflation import dictionary_of, inflated_size, refuse_inflated

__all__ = [
    "BatchReader",
    "BatchWriter",
    "FlightData",
    "decode_flight_data",
    "encode_metadata",
    "encode_schema",
    "frame_encoded",
    "has_dictionaries",
    "with_metadata",
]

_Part: TypeAlias = bytes | memoryview | pa.Buffer

_HEADER = b"\x12"  # field 2, length-delimited
_APP_METADATA = b"\x1a"  # field 3
_BODY = b"\xc2\x3e"  # field 1000
_CONTINUATION = b"\xff\xff\xff\xff"
_PREFIX = 8  # continuation marker and length
_SMALL_BATCH = 256 * 1024
"""Bytes below which copying a batch once more is quicker than collecting its buffers one by one."""
_MAX_ROWS = 16_777_216
"""Rows of a received message. Columns of type `null` take no bytes, so any number could be claimed.
"""


class FlightData(NamedTuple):
    """A received message. The views point into the bytes that were received."""

    descriptor: flight.FlightDescriptor | None
    header: memoryview
    app_metadata: bytes
    body: memoryview


def decode_flight_data(message: bytes) -> FlightData:
    """Decode a FlightData message. Raises: BadRequest."""
    view = memoryview(message)
    return _decode_batch(message, view) or _decode_any(view)


def _decode_batch(message: bytes, view: memoryview) -> FlightData | None:
    """Decode a message of just a header and a body, as nearly all are; None for any other."""
    if message[:1] != _HEADER:
        return None
    length, start = short_varint(message, 1)
    body = start + length
    if start and message[body : body + 2] == _BODY:
        length, first = short_varint(message, body + 2)
        if first and first + length == len(message):
            return FlightData(None, view[start:body], b"", view[first:])
    return None


def _decode_any(message: memoryview) -> FlightData:
    descriptor: flight.FlightDescriptor | None = None
    header = body = memoryview(b"")
    app_metadata = b""
    for number, value in protobuf_fields(message):
        if not isinstance(value, memoryview):
            continue
        if number == 1:
            descriptor = decode_descriptor(bytes(value))
        elif number == 2:
            header = value
        elif number == 3:
            app_metadata = bytes(value)
        elif number == 1000:
            body = value
    return FlightData(descriptor, header, app_metadata, body)


def encode_schema(arrow_schema: pa.Schema) -> bytes:
    """Encode the message that opens a stream."""
    header = arrow_schema.serialize()[_PREFIX:]
    return b"".join((_HEADER, varint(len(header)), header))


def encode_metadata(app_metadata: bytes) -> bytes:
    """Encode a message without data. It ends a DoGet stream for the client (airport §5.5)."""
    return b"".join((_APP_METADATA, varint(len(app_metadata)), app_metadata))


def with_metadata(message: bytes, app_metadata: bytes) -> bytes:
    """Add metadata to an encoded message; protobuf's fields may come in any order."""
    return b"".join((_APP_METADATA, varint(len(app_metadata)), app_metadata, message))


def frame_encoded(message: bytes | memoryview) -> list[_Part]:
    """Frame a batch that is already an Arrow IPC message; returns the message in parts.

    Raises: CatalogFault.
    """
    view = memoryview(message).cast("B")
    body = _PREFIX + int.from_bytes(view[4:_PREFIX], "little")
    if view[:4] != _CONTINUATION or not _PREFIX < body <= len(view):
        raise CatalogFault("a batch was to be passed on that is no Arrow IPC message")
    header = b"".join(
        (_HEADER, varint(body - _PREFIX), view[_PREFIX:body], _BODY, varint(len(view) - body))
    )
    return [header, view[body:]]


class BatchWriter:
    """Encodes the batches of a stream. Not thread-safe: it remembers the dictionaries sent."""

    def __init__(self, arrow_schema: pa.Schema, has_dictionaries_: bool | None = None) -> None:
        """`has_dictionaries_` is what `has_dictionaries` returns, where that is known."""
        self.arrow_schema = arrow_schema
        self._parts = _Parts()
        self._has_dictionaries = (
            has_dictionaries(arrow_schema) if has_dictionaries_ is None else has_dictionaries_
        )
        self._writer: pa.RecordBatchStreamWriter | None = None  # small streams need none

    def messages(self, batch: pa.RecordBatch, app_metadata: bytes = b"") -> Iterable[bytes]:
        """Encode a batch: its new dictionaries, then the batch itself, which bears the metadata."""
        if not self._has_dictionaries and batch.get_total_buffer_size() < _SMALL_BATCH:
            return (_frame_small(batch, app_metadata),)
        return map(b"".join, self._messages(batch, app_metadata))

    def parts(self, batch: pa.RecordBatch) -> Iterable[list[_Part]]:
        """Encode a batch as `messages` does, but with each message in parts that point into it."""
        if not self._has_dictionaries and batch.get_total_buffer_size() < _SMALL_BATCH:
            return ([_frame_small(batch, b"")],)
        return self._messages(batch, b"")

    def _messages(self, batch: pa.RecordBatch, app_metadata: bytes) -> Iterator[list[_Part]]:
        # Arrow would refuse a batch that differs only in nullability.
        if not batch.schema.equals(self.arrow_schema):
            batch = pa.RecordBatch.from_arrays(batch.columns, schema=self.arrow_schema)
        opening = self._writer is None
        if self._writer is None:
            file = pa.PythonFile(self._parts, mode="w")
            self._writer = pa.ipc.new_stream(file, self.arrow_schema)
        self._writer.write_batch(batch)
        parts = self._parts.take()
        if opening:
            # Arrow writes the schema with the first batch; `encode_schema` has sent it already.
            parts = _after_first_message(parts)
        if self._has_dictionaries:
            yield from _split(parts, app_metadata)
        else:
            yield _frame(*_header_and_body(parts), app_metadata)


class BatchReader:
    """Decodes the messages of one incoming stream. Not thread-safe.

    Batches point into the messages they came in; only small ones are copied.
    """

    def __init__(self, schema_message: FlightData) -> None:
        """Begin with `schema_message`, the first message that has a header. Raises: BadRequest."""
        self._feed = _Feed()
        self._feed.add(schema_message)
        try:
            self._reader = pa.ipc.open_stream(pa.PythonFile(self._feed, mode="r"))
        except (pa.ArrowException, OSError, EOFError, ValueError) as error:
            raise BadRequest("the stream does not begin with a valid Arrow schema") from error
        self.arrow_schema: pa.Schema = self._reader.schema
        refuse_unreadable(self.arrow_schema, "the stream")
        self._has_dictionaries = has_dictionaries(self.arrow_schema)
        self.dictionaries = Dictionaries()

    def read(self, message: FlightData) -> pa.RecordBatch | None:
        """Return the batch of this message; None when it brings only a dictionary or metadata.

        Every value of the batch is checked, since Arrow trusts what it reads.

        Raises: BadRequest, LimitExceeded.
        """
        if not message.header:
            return None
        inflated = inflated_size(message.header, message.body)
        refuse_inflated(inflated)
        try:
            if not self._has_dictionaries and len(message.body) < _SMALL_BATCH:
                return self._checked(
                    pa.ipc.read_record_batch(
                        pa.py_buffer(_encapsulated(message)), self.arrow_schema
                    )
                )
            dictionary = dictionary_of(message.header) if self._has_dictionaries else None
            if dictionary is not None:
                self.dictionaries.add(
                    dictionary, len(message.header) + max(len(message.body), inflated)
                )
                self._feed.add(message)
                return None  # Arrow reads it together with the next batch
            self._feed.add(message)
            batch = self._reader.read_next_batch()
            self.dictionaries.batch_received()
            return self._checked(batch)
        except (pa.ArrowException, OSError, EOFError, ValueError, StopIteration) as error:
            raise BadRequest("the stream holds an invalid Arrow batch") from error

    @staticmethod
    def _checked(batch: pa.RecordBatch) -> pa.RecordBatch:
        if batch.num_rows > _MAX_ROWS:
            raise LimitExceeded(f"a batch has {batch.num_rows} rows; send at most {_MAX_ROWS}")
        try:
            validate(batch)
        except (pa.ArrowInvalid, pa.ArrowIndexError) as error:
            raise BadRequest(f"the stream holds an invalid Arrow batch: {error}") from error
        return batch


class _Parts:
    """A sink that keeps the parts that are written, without copying them."""

    closed = False

    def __init__(self) -> None:
        self._parts: list[_Part] = []

    def write(self, part: _Part) -> int:
        self._parts.append(part)
        return len(part)

    def take(self) -> list[_Part]:
        parts, self._parts = self._parts, []
        return parts

    def flush(self) -> None: ...

    def close(self) -> None: ...


class _Feed:
    """A source that holds whole messages; Arrow's reader asks for exactly their parts."""

    closed = False

    def __init__(self) -> None:
        self._parts: deque[memoryview] = deque()

    def add(self, message: FlightData) -> None:
        padding = -len(message.header) % 8
        prefix = _CONTINUATION + (len(message.header) + padding).to_bytes(4, "little")
        header = (
            message.header if not padding else memoryview(bytes(message.header) + bytes(padding))
        )
        self._parts.extend((memoryview(prefix), header))
        if message.body:
            self._parts.append(message.body)

    def read(self, size: int) -> memoryview | bytes:
        if not self._parts:
            return b""
        part = self._parts.popleft()
        if len(part) > size:
            self._parts.appendleft(part[size:])
        return part[:size]

    read_buffer = read  # Arrow calls this where it can keep the memory instead of copying it

    def readable(self) -> bool:
        return True

    def close(self) -> None: ...


def _encapsulated(message: FlightData) -> bytes:
    """Join a message as a file has it.

    For small batches this copy is quicker than feeding the parts to a reader.
    """
    padding = bytes(-len(message.header) % 8)
    length = (len(message.header) + len(padding)).to_bytes(4, "little")
    return b"".join((_CONTINUATION, length, message.header, padding, message.body))


def has_dictionaries(arrow_schema: pa.Schema) -> bool:
    """Whether any column has a dictionary, at any depth."""
    return any(_has_dictionary(field.type) for field in arrow_schema)


def _has_dictionary(data_type: pa.DataType) -> bool:
    if pa.types.is_dictionary(data_type):
        return True
    if isinstance(data_type, pa.BaseExtensionType):
        return _has_dictionary(data_type.storage_type)
    return any(_has_dictionary(data_type.field(i).type) for i in range(data_type.num_fields))


def _header_and_body(parts: list[_Part]) -> tuple[bytes, list[_Part]]:
    """Divide an encapsulated message: marker, length, metadata (perhaps in pieces), body."""
    length = int.from_bytes(parts[1], "little")
    header, index = b"", 2
    while len(header) < length:
        header += bytes(parts[index])
        index += 1
    return header, parts[index:]


def _after_first_message(parts: list[_Part]) -> list[_Part]:
    """Return the parts after the schema message, which has no body."""
    return _header_and_body(parts)[1]


def _split(parts: list[_Part], app_metadata: bytes) -> Iterator[list[_Part]]:
    """Split the messages of a batch with dictionaries; their metadata tells where each ends."""
    messages = list(pa.ipc.MessageReader.open_stream(pa.py_buffer(b"".join(parts))))
    for message in messages:
        metadata = app_metadata if message is messages[-1] else b""
        yield _frame(message.metadata, [message.body] if message.body is not None else [], metadata)


def _frame_small(batch: pa.RecordBatch, app_metadata: bytes) -> bytes:
    """Frame a batch as `_frame` does, but faster: an exchange has many small batches."""
    message = memoryview(batch.serialize())
    body = _PREFIX + int.from_bytes(message[4:_PREFIX], "little")
    header = varint(body - _PREFIX)
    length = varint(len(message) - body)
    if app_metadata:
        header_end = message[_PREFIX:body]
        return b"".join(
            (
                _HEADER,
                header,
                header_end,
                _APP_METADATA,
                varint(len(app_metadata)),
                app_metadata,
                _BODY,
                length,
                message[body:],
            )
        )
    return b"".join((_HEADER, header, message[_PREFIX:body], _BODY, length, message[body:]))


def _frame(header: _Part, body: list[_Part], app_metadata: bytes) -> list[_Part]:
    metadata = (_APP_METADATA, varint(len(app_metadata)), app_metadata) if app_metadata else ()
    length = sum(map(len, body))
    return [_HEADER, varint(len(header)), header, *metadata, _BODY, varint(length), *body]
