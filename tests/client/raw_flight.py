"""A Flight server on bare gRPC, for status codes and messages that pyarrow's cannot send."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import grpc
import pyarrow as pa
import pyarrow.flight as flight

Handler = Callable[[Any, grpc.ServicerContext], Iterable[bytes]]


@contextmanager
def raw_flight(**handlers: Handler) -> Iterator[str]:
    """Serve the named methods and yield the location.

    Each method gets the request, or an iterator of requests, as bytes.
    """
    methods: dict[str, grpc.RpcMethodHandler[Any, Any]] = {}
    for name, handler in handlers.items():
        exchange = name == "DoExchange"
        kind = (
            grpc.stream_stream_rpc_method_handler
            if exchange
            else grpc.unary_stream_rpc_method_handler
        )
        methods[name] = kind(handler)
    service = grpc.method_handlers_generic_handler("arrow.flight.protocol.FlightService", methods)
    with ThreadPoolExecutor(8) as pool:
        server = grpc.server(pool, handlers=[service])
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        try:
            yield f"grpc://127.0.0.1:{port}"
        finally:
            server.stop(0).wait(5)


def message(number: int, content: bytes) -> bytes:
    """Encode a length-delimited protobuf field."""
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def action_of(request: bytes) -> str:
    """The type of an Action."""
    length = request[1]
    return request[2 : 2 + length].decode()


def flight_data(header: bytes = b"", body: bytes = b"", app_metadata: bytes = b"") -> bytes:
    parts = [
        message(2, header) if header else b"",
        message(3, app_metadata) if app_metadata else b"",
    ]
    return b"".join([*parts, message(1000, body)])


def schema_message(schema: pa.Schema) -> bytes:
    return flight_data(schema.serialize().to_pybytes()[8:])


def batch_message(batch: pa.RecordBatch, app_metadata: bytes = b"") -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    read = pa.ipc.MessageReader.open_stream(sink.getvalue())
    read.read_next_message()
    found = read.read_next_message()
    return flight_data(found.metadata.to_pybytes(), found.body.to_pybytes(), app_metadata)


def result(body: bytes) -> bytes:
    return message(1, body)


def endpoint(ticket: bytes = b"t") -> bytes:
    serialized: bytes = flight.FlightEndpoint(
        ticket, ["arrow-flight-reuse-connection://?"]
    ).serialize()
    return serialized


def _varint(value: int) -> bytes:
    out = b""
    while value > 127:
        out, value = out + bytes([value & 127 | 128]), value >> 7
    return out + bytes([value])
