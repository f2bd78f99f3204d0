"""What the benchmarks ask of a server, as a Flight client."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import msgpack
import pyarrow as pa
import pyarrow.flight as flight

__all__ = [
    "exchange",
    "exchange_in_lockstep",
    "function_descriptor",
    "plan",
    "read",
    "read_in_parallel",
    "replace_table",
]

_TIMEOUT = flight.FlightCallOptions(timeout=300)


def plan(client: flight.FlightClient, table: str, columns: int = 7) -> list[bytes]:
    """The tickets of a scan, as DuckDB asks for them."""
    descriptor = flight.FlightDescriptor.for_path("s", table).serialize()
    parameters = {
        "json_filters": "",
        "column_ids": list(range(columns)),
        "at_unit": "",
        "at_value": "",
    }
    body = msgpack.packb({"descriptor": descriptor, "parameters": parameters})
    result = next(iter(client.do_action(flight.Action("endpoints", body), _TIMEOUT)))
    endpoints = msgpack.unpackb(result.body.to_pybytes())
    return [flight.FlightEndpoint.deserialize(endpoint).ticket.ticket for endpoint in endpoints]


def read(location: str, tickets: list[bytes]) -> int:
    """Read streams one after the other; how many bytes of Arrow data they held."""
    with flight.connect(location) as client:
        return sum(_read(client, ticket) for ticket in tickets)


def read_in_parallel(location: str, tickets: list[bytes]) -> int:
    """Read all streams at once, each by a thread, on one connection as DuckDB does (airport
    §1.2).
    """
    with flight.connect(location) as client, ThreadPoolExecutor(len(tickets)) as threads:
        return sum(threads.map(lambda ticket: _read(client, ticket), tickets))


def _read(client: flight.FlightClient, ticket: bytes) -> int:
    return sum(int(chunk.data.nbytes) for chunk in client.do_get(flight.Ticket(ticket), _TIMEOUT))


def replace_table(location: str, name: str, arrow_schema: pa.Schema) -> None:
    """Make a table anew, without rows."""
    request = {
        "catalog_name": "bench",
        "schema_name": "s",
        "table_name": name,
        "on_conflict": "replace",
    }
    body = msgpack.packb({**request, "arrow_schema": arrow_schema.serialize().to_pybytes()})
    with flight.connect(location) as client:
        list(client.do_action(flight.Action("create_table", body), _TIMEOUT))


def exchange(
    location: str,
    descriptor: flight.FlightDescriptor,
    batches: list[pa.RecordBatch],
    *,
    operation: str,
    lockstep: bool,
) -> int:
    """One statement as DuckDB sends it; how many messages came back."""
    headers = [
        (b"airport-operation", operation.encode()),
        (b"return-chunks", b"1" if lockstep else b"0"),
    ]
    options = flight.FlightCallOptions(timeout=300, headers=headers)
    answers = 0
    with flight.connect(location) as client:
        writer, reader = client.do_exchange(descriptor, options)
        with writer:
            writer.begin(batches[0].schema)
            assert reader.schema is not None
            for batch in batches:
                writer.write_batch(batch)
                if lockstep:
                    answers += reader.read_chunk().data.num_rows
            writer.done_writing()
            while True:
                try:
                    chunk = reader.read_chunk()
                except StopIteration:
                    break
                answers += 0 if chunk.app_metadata is None else 1
    return answers


def function_descriptor(location: str, name: str) -> flight.FlightDescriptor:
    """The handle of a function of the benchmarked catalog."""
    with flight.connect(location) as client:
        for info in client.list_flights():
            if msgpack.unpackb(info.app_metadata)["name"] == name:
                return info.descriptor
    raise RuntimeError(f"there is no function {name}")


def exchange_in_lockstep(
    location: str,
    descriptor: flight.FlightDescriptor,
    batch: pa.RecordBatch,
    count: int,
    operation: str = "",
    arguments: bytes = b"",
) -> float:
    """Send a batch again and again, each time reading the whole answer to it; how many rows came
    back.

    Of an in/out function that is all up to a batch that is not marked as going on (airport §9.3).
    """
    headers = [(b"airport-operation", operation.encode())] if operation else []
    options = flight.FlightCallOptions(timeout=300, headers=headers)
    rows = 0
    with flight.connect(location) as client:
        writer, reader = client.do_exchange(descriptor, options)
        with writer:
            if arguments:
                writer.write_metadata(arguments)
            writer.begin(batch.schema)
            assert reader.schema is not None
            for _ in range(count):
                writer.write_batch(batch)
                going_on = True
                while going_on:
                    chunk = reader.read_chunk()
                    rows += chunk.data.num_rows
                    going_on = (
                        chunk.app_metadata is not None
                        and chunk.app_metadata.to_pybytes() == b"chunk_continues"
                    )
            writer.done_writing()
            for chunk in reader:
                rows += 0 if chunk.data is None else chunk.data.num_rows
    if rows != count * batch.num_rows:
        raise RuntimeError(f"{rows} rows came back for {count * batch.num_rows}")
    return float(rows)
