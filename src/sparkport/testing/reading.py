"""Endpoints and DoGet: the rows of a scan (airport §5)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.flight as flight

from sparkport.engine.validation import validate
from sparkport.testing.data_uri import is_data_uri, read_data_uri
from sparkport.testing.failures import ProtocolViolation
from sparkport.testing.headers import HeaderList
from sparkport.testing.replies import Fields, as_bytes, unpack
from sparkport.testing.session import Session
from sparkport.testing.transport import Connection, Stream, described
from sparkport.testing.types import as_given_out, difference, given_out

__all__ = ["Reading", "read"]

REUSE_CONNECTION = "arrow-flight-reuse-connection://?"


@dataclass(frozen=True, slots=True)
class Reading:
    """A scan of a flight, planned."""

    session: Session
    descriptor: flight.FlightDescriptor
    bound: pa.Schema
    """The schema by whose positions columns are read (airport §5.4)."""
    wanted: tuple[int, ...]
    """Positions of the columns that are wanted, without repetition."""
    body: bytes
    """The body of the action `endpoints`."""
    headers: Callable[[str | None], HeaderList]
    """Makes the headers of an action of this name, or, for None, of DoGet."""
    rowid: int | None = None
    hang: str = "§1.2"
    """The trap to report when nothing arrives."""


def read(reading: Reading, threads: int, limit: int | None = None) -> pa.Table:
    """Fetch the endpoints, read them on up to `threads` threads, and return the columns `wanted`.

    With a limit, streams are dropped as soon as there are enough rows.
    """
    endpoints = _endpoints(reading)
    enough = _RowLimit(limit)
    remaining = iter(list(enumerate(endpoints)))
    lock = threading.Lock()
    parts: dict[int, list[pa.RecordBatch]] = {}

    def work() -> None:
        while not enough.reached:
            with lock:
                index, endpoint = next(remaining, (-1, None))
            if endpoint is None:
                return
            try:
                parts[index] = list(_rows(reading, endpoint, enough))
            except BaseException:
                enough.stop()
                raise

    workers = max(1, min(threads, len(endpoints)))
    if workers == 1:
        work()
    else:
        with ThreadPoolExecutor(workers, thread_name_prefix="duckdb-scan") as pool:
            for future in [pool.submit(work) for _ in range(workers)]:
                future.result()
    batches = [batch for index in sorted(parts) for batch in parts[index]]
    schema = _result_schema(reading)
    table = pa.Table.from_batches(batches, schema=schema)
    return table if limit is None else table.slice(0, limit)


class _RowLimit:
    """Whether a scan may stop. Thread-safe."""

    def __init__(self, limit: int | None) -> None:
        self._left = limit
        self._lock = threading.Lock()
        self.reached = False

    def took(self, rows: int) -> None:
        with self._lock:
            if self._left is not None:
                self._left -= rows
                self.reached = self.reached or self._left <= 0

    def stop(self) -> None:
        self.reached = True


def _endpoints(reading: Reading) -> list[flight.FlightEndpoint]:
    session = reading.session
    answer = session.answer(
        "endpoints", reading.body, reading.headers("endpoints"), hang=reading.hang
    )
    array = unpack(answer, "endpoints")
    if not isinstance(array, list):
        raise ProtocolViolation("§5.3", "endpoints: the result is not an array")
    return [_endpoint(as_bytes(element, "endpoints")) for element in array]


def _endpoint(body: bytes) -> flight.FlightEndpoint:
    try:
        endpoint = flight.FlightEndpoint.deserialize(body)
    except (pa.ArrowException, OSError) as error:
        raise ProtocolViolation(
            "§5.3", f"endpoints: not a serialised FlightEndpoint: {error}"
        ) from error
    if not endpoint.locations:
        raise ProtocolViolation("T48", "endpoints: an endpoint has no location: the query fails")
    uri = _uri(endpoint)
    if (
        uri != REUSE_CONNECTION
        and not uri.startswith(("grpc://", "grpc+tls://"))
        and not is_data_uri(uri)
    ):
        raise ProtocolViolation("§5.3", f"endpoints: the client cannot use the location {uri!r}")
    return endpoint


def _uri(endpoint: flight.FlightEndpoint) -> str:
    """Return the first location: the client uses no other."""
    uri: bytes = endpoint.locations[0].uri
    return uri.decode("utf-8", "replace")


def _rows(
    reading: Reading, endpoint: flight.FlightEndpoint, enough: _RowLimit
) -> Iterator[pa.RecordBatch]:
    uri = _uri(endpoint)
    if is_data_uri(uri):
        if reading.rowid in reading.wanted:
            raise ProtocolViolation(
                "T40", "the row id is wanted of a data URI: DuckDB ends in an internal error"
            )
        result = _result_schema(reading)
        for batch in read_data_uri(uri, reading.bound, reading.wanted, reading.session.local):
            yield pa.RecordBatch.from_arrays(list(map(as_given_out, batch.columns)), schema=result)
            enough.took(batch.num_rows)
        return
    connection: Connection = reading.session.connection
    if uri != REUSE_CONNECTION:
        connection = reading.session.connection_to(uri)
    stream = connection.get(
        endpoint.ticket, reading.headers(None), reading.descriptor, reading.hang
    )
    try:
        yield from _checked(reading, stream, enough)
    except BaseException:
        stream.cancel()
        raise


def _checked(reading: Reading, stream: Stream, enough: _RowLimit) -> Iterator[pa.RecordBatch]:
    _check_stream_schema(reading, stream.schema)
    result = _result_schema(reading)
    while (chunk := stream.read()) is not None:
        if chunk.data is None:
            raise ProtocolViolation(
                "T19", "DoGet: a message with metadata alone ends the stream for the client"
            )
        if chunk.app_metadata is not None:
            _check_progress(chunk.app_metadata.to_pybytes())
        columns = [_checked_column(reading, chunk.data, position) for position in reading.wanted]
        yield pa.RecordBatch.from_arrays(columns, schema=result)
        enough.took(chunk.data.num_rows)
        if enough.reached:
            stream.cancel()
            return


def _check_stream_schema(reading: Reading, actual: pa.Schema) -> None:
    where = f"DoGet of {described(reading.descriptor)}"
    bound = reading.bound
    if len(actual) < len(bound):
        raise ProtocolViolation(
            "T4",
            f"{where}: {len(actual)} columns instead of {len(bound)}: the DuckDB process would "
            "crash",
        )
    names = actual.names
    for position, expected in enumerate(bound):
        field = actual.field(position)
        if field.equals(expected, check_metadata=True):
            continue
        if (
            field.name != expected.name
            and expected.name in names
            and bound.names.count(expected.name) == 1
        ):
            raise ProtocolViolation(
                "T5",
                f"{where}: column {expected.name!r} is not at position {position}: values are "
                "misread",
            )
        problem = difference(field, expected)
        if problem is None or (position not in reading.wanted and pa.types.is_null(field.type)):
            continue
        raise ProtocolViolation(
            "T5", f"{where}: column {expected.name!r} is {problem}: values are misread"
        )


def _check_progress(metadata: bytes) -> None:
    progress = Fields.unpack(metadata, "app_metadata of DoGet", trap="T20").number("progress")
    if not 0 <= progress <= 1:
        raise ProtocolViolation(
            "T20", f"app_metadata of DoGet: the progress is {progress}, not in [0, 1]"
        )


def _checked_column(reading: Reading, batch: pa.RecordBatch, position: int) -> pa.Array:
    column, expected = batch.column(position), reading.bound.field(position)
    if len(column) != batch.num_rows:
        raise ProtocolViolation(
            "§5.4", f"column {expected.name!r} has not as many values as the batch rows"
        )
    try:
        validate(column)
    except (pa.ArrowInvalid, pa.ArrowIndexError) as error:
        raise ProtocolViolation(
            "§5.4", f"column {expected.name!r}: the array is not valid: {error}"
        ) from error
    if position == reading.rowid and column.null_count:
        raise ProtocolViolation(
            "§7.2", "the row id of a row is NULL: it cannot be updated or deleted"
        )
    return as_given_out(column if column.type == expected.type else column.cast(expected.type))


def _result_schema(reading: Reading) -> pa.Schema:
    fields = (reading.bound.field(position) for position in reading.wanted)
    return pa.schema([pa.field(field.name, given_out(field.type)) for field in fields])


def check_statistics_hold(
    column: pa.ChunkedArray, low: object, high: object, nulls: bool
) -> str | None:
    """Describe how values contradict their column's statistics (trap T28); None if they agree.

    DuckDB trusts the statistics.
    """
    if not nulls and column.null_count:
        return "there are NULLs, but has_null is false"
    try:
        bounds = pc.min_max(column)
        least, greatest = bounds["min"], bounds["max"]
        for value, bound, wrong in ((least, low, pc.less), (greatest, high, pc.greater)):
            if (
                value.is_valid
                and isinstance(bound, pa.Scalar)
                and bound.is_valid
                and wrong(value, bound).as_py()
            ):
                return f"the value {value} lies outside {low} … {high}"
    except (pa.ArrowNotImplementedError, pa.ArrowTypeError):
        return None
    return None
