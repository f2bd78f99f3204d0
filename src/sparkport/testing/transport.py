"""The calls, over Arrow's Flight client as in the real client: each ends, each error is named."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.flight as flight

from sparkport.testing.failures import ClientHang, ProtocolViolation
from sparkport.testing.headers import HeaderList
from sparkport.testing.status import Step, grpc_code, server_error

__all__ = ["Connection", "Exchange", "Stream"]

T = TypeVar("T")

_ARROW_ERRORS = (pa.ArrowException, OSError)
"""pyarrow turns every status into one of these."""
_GRACE = 0.25
"""A server's own DEADLINE_EXCEEDED comes earlier than ours by more than this many seconds."""


class Connection:
    """A gRPC channel. Thread-safe; each call has a deadline of `timeout` seconds."""

    def __init__(
        self,
        location: str,
        timeout: float,
        tls_root_certs: bytes | None = None,
        encoded: Callable[[pa.RecordBatch], pa.RecordBatch] = lambda batch: batch,
    ) -> None:
        """`encoded` changes each batch on its way into an exchange."""
        self.location = location
        self.timeout = timeout
        self._encoded = encoded
        self._calls = _Calls()
        self._client = flight.FlightClient(
            location, middleware=[self._calls], tls_root_certs=tls_root_certs
        )

    def close(self) -> None:
        self._client.close()

    def action(
        self, name: str, body: bytes, headers: HeaderList, hang: str = "§1.2"
    ) -> list[bytes]:
        """Return all results of an action; the client drains all but the first (airport §4.1)."""
        with self._calls.watch(self.timeout) as call:
            at = f"Airport @ {self.location}/: {name}: reading result"
            return call.run(
                lambda: [
                    result.body.to_pybytes()
                    for result in self._client.do_action(
                        flight.Action(name, body), self._options(headers)
                    )
                ],
                Step.ACTION,
                at,
                hang,
            )

    def flights(self, criteria: bytes, headers: HeaderList) -> list[flight.FlightInfo]:
        with self._calls.watch(self.timeout) as call:
            at = f"Airport @ {self.location}/: ListFlights"
            return call.run(
                lambda: list(self._client.list_flights(criteria, self._options(headers))),
                Step.READ,
                at,
                "§1.2",
            )

    def flight_info(
        self, descriptor: flight.FlightDescriptor, headers: HeaderList
    ) -> flight.FlightInfo:
        with self._calls.watch(self.timeout) as call:
            at = f"Airport @ {self.location}/{described(descriptor)}: GetFlightInfo"
            return call.run(
                lambda: self._client.get_flight_info(descriptor, self._options(headers)),
                Step.READ,
                at,
                "§1.2",
            )

    def get(
        self,
        ticket: flight.Ticket,
        headers: HeaderList,
        descriptor: flight.FlightDescriptor,
        hang: str,
    ) -> Stream:
        """Start a DoGet; returns when the schema has arrived."""
        with self._calls.watch(self.timeout) as call:
            at = f"Airport @ {self.location}/{described(descriptor)}:"
            reader = call.run(
                lambda: self._client.do_get(ticket, self._options(headers)), Step.READ, at, hang
            )
            return Stream(reader, call, at, hang)

    def exchange(self, descriptor: flight.FlightDescriptor, headers: HeaderList) -> Exchange:
        """Start a DoExchange; Arrow sends the descriptor in a message of its own (airport §7.1)."""
        with self._calls.watch(self.timeout) as call:
            at = f"Airport @ {self.location}/{described(descriptor)}:"
            writer, reader = call.run(
                lambda: self._client.do_exchange(descriptor, self._options(headers)),
                Step.WRITE,
                at,
                "§1.2",
            )
            return Exchange(writer, reader, call, at, self._encoded)

    def _options(self, headers: HeaderList) -> flight.FlightCallOptions:
        return flight.FlightCallOptions(timeout=self.timeout, headers=headers)


class Stream:
    """The answer of a DoGet."""

    def __init__(self, reader: flight.FlightStreamReader, call: _Call, at: str, hang: str) -> None:
        self._reader = reader
        self._call = call
        self._at = at
        self._hang = hang
        self.schema: pa.Schema = call.run(lambda: reader.schema, Step.READ, at, hang)

    def read(self) -> flight.FlightStreamChunk | None:
        """Return the next message; None at the end of the stream."""
        return self._call.run(
            lambda: _next_chunk(self._reader),
            Step.READ,
            f"{self._at} FlightReader::Next",
            self._hang,
        )

    def cancel(self) -> None:
        """Drop the stream, as for LIMIT: the server sees a cancelled call."""
        self._reader.cancel()


class Exchange:
    """Both directions of a DoExchange."""

    def __init__(
        self,
        writer: flight.FlightStreamWriter,
        reader: flight.FlightStreamReader,
        call: _Call,
        at: str,
        encoded: Callable[[pa.RecordBatch], pa.RecordBatch],
    ) -> None:
        self._writer = writer
        self._reader = reader
        self._call = call
        self._at = at
        self._encoded = encoded

    def begin(self, schema: pa.Schema) -> None:
        self._call.run(lambda: self._writer.begin(schema), Step.WRITE, self._at, "§7.1")

    def write_metadata(self, metadata: bytes) -> None:
        """Send a message without a batch; an in/out exchange begins with one (airport §9.3)."""
        self._call.run(
            lambda: self._writer.write_metadata(pa.py_buffer(metadata)),
            Step.WRITE,
            self._at,
            "§9.3",
        )

    def schema(self) -> pa.Schema:
        """Return the server's schema, for which the client waits before it sends anything else."""
        return self._call.run(lambda: self._reader.schema, Step.READ, self._at, "T15")

    def write(self, batch: pa.RecordBatch) -> None:
        self._call.run(
            lambda: self._writer.write_batch(self._encoded(batch)), Step.WRITE, self._at, "§7.1"
        )

    def read(self, hang: str) -> flight.FlightStreamChunk | None:
        return self._call.run(
            lambda: _next_chunk(self._reader), Step.READ, f"{self._at} FlightReader::Next", hang
        )

    def half_close(self) -> None:
        self._call.run(self._writer.done_writing, Step.WRITE, self._at, "§7.1")

    def cancel(self) -> None:
        self._reader.cancel()

    def close(self) -> None:
        """Free the call; its outcome is known by now."""
        with suppress(*_ARROW_ERRORS):
            self._writer.close()


def described(descriptor: flight.FlightDescriptor) -> str:
    """Write a descriptor as the client does: path with slashes, command in quotes (§3.7)."""
    if descriptor.descriptor_type == flight.DescriptorType.PATH:
        return "/".join(element.decode("utf-8", "replace") for element in descriptor.path)
    return f"'{descriptor.command.decode('utf-8', 'replace')}'"


def _next_chunk(reader: flight.FlightStreamReader) -> flight.FlightStreamChunk | None:
    try:
        return reader.read_chunk()
    except StopIteration:
        return None


class _Calls(flight.ClientMiddlewareFactory):  # type: ignore[misc]
    """Gives every call a record of its status and trailers."""

    def __init__(self) -> None:
        self._started = threading.local()

    @contextmanager
    def watch(self, timeout: float) -> Iterator[_Call]:
        """Record the call that this thread starts inside the block."""
        call = _Call(timeout)
        self._started.call = call
        try:
            yield call
        finally:
            self._started.call = None

    def start_call(self, info: Any) -> flight.ClientMiddleware:
        return _Observer(getattr(self._started, "call", None) or _Call(0))


class _Observer(flight.ClientMiddleware):  # type: ignore[misc]
    def __init__(self, call: _Call) -> None:
        self._call = call

    def received_headers(self, headers: dict[str, list[str | bytes]]) -> None:
        self._call.trailers.update({name: values[0] for name, values in headers.items() if values})

    def call_completed(self, exception: Exception | None) -> None:
        # Made from the gRPC status alone, before Arrow looks at the trailers: only here is the code
        # still known.
        self._call.bare = None if exception is None else str(exception)


class _Call:
    """The record of a call."""

    def __init__(self, timeout: float) -> None:
        self.trailers: dict[str, str | bytes] = {}
        self.bare: str | None = None
        self._timeout = timeout
        self._started = time.monotonic()

    def run(self, step: Callable[[], T], kind: Step, at: str, hang: str) -> T:
        """Run a step of the call.

        Raises: ServerError; ClientHang; ProtocolViolation when Arrow cannot read the reply.
        """
        try:
            return step()
        except _ARROW_ERRORS as error:
            raise self._failure(error, kind, at, hang) from error

    def _failure(self, error: Exception, kind: Step, at: str, hang: str) -> Exception:
        if self.bare is None:
            return ProtocolViolation("§1.4", f"{at} Arrow cannot read the reply: {error}")
        waited = time.monotonic() - self._started
        if grpc_code(self.bare) == "DEADLINE_EXCEEDED" and waited > self._timeout - _GRACE:
            return ClientHang(
                hang,
                f"{at} no reply for {waited:.1f} s; the real client sets no deadline and waits for "
                "ever",
            )
        return server_error(self.bare, self.trailers, kind, at)
