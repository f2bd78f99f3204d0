"""Memory that a caller with write access can make the server keep is counted and limited."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight
import pytest
from tests.server.catalogs import catalog_of
from tests.server.mutations import aimed, flight_data
from tests.server.raw_client import RawClient, path
from tests.server.test_limits import NOTHING, in_use
from tests.server.test_threads import eventually

import sparkport as sp
from sparkport.catalog import (
    DMLOptions,
    DMLResult,
    InsertableTable,
    Operation,
    StagedTable,
    StagedWrite,
)
from sparkport.memory import MemoryTable
from sparkport.server import Server, ServerSettings
from sparkport.wire import dictionaries

SIZES = pa.schema([("size", pa.dictionary(pa.int32(), pa.string()))])
NOTES = pa.schema([("id", pa.int64()), ("text", pa.string())])
PUT = b'{"operation": "insert", "schema_name": "s", "table_name": "%s", "returning": %s}'


def test_what_is_staged_and_held_has_a_limit_unless_somebody_takes_it_away():
    limits = ServerSettings()
    assert 0 < limits.max_held_bytes_per_principal < limits.max_held_bytes
    assert 0 < limits.max_staged_bytes_per_principal < limits.max_staged_bytes


# -- dictionaries


@pytest.fixture
def server(start) -> Server:
    served: Server = start(catalog_of(MemoryTable("sizes", SIZES), MemoryTable("notes", NOTES)))
    return served


def only_dictionaries(descriptor: flight.FlightDescriptor, count: int) -> list[bytes]:
    """Begin a stream, then repeat a dictionary without sending any rows."""
    opening, schema, dictionary, _ = flight_data(SIZES, [{"size": "x" * 1000}])
    return [*aimed([opening], descriptor, "insert").messages, schema, *[dictionary] * count]


@pytest.mark.parametrize("method", ["DoExchange", "DoPut"])
def test_dictionaries_without_rows_are_refused(server, connect, monkeypatch, method):
    monkeypatch.setattr(dictionaries, "MOST_BYTES", 1_000_000)
    descriptor = (
        path("s", "sizes")
        if method == "DoExchange"
        else flight.FlightDescriptor.for_command(PUT % (b"sizes", b"false"))
    )
    headers = {"airport-operation": "insert"} if method == "DoExchange" else {}

    failure = connect(server).failure(method, only_dictionaries(descriptor, 2000), headers)

    assert failure.code == "RESOURCE_EXHAUSTED"
    assert failure.message.startswith("the dictionaries of this stream would take more than 1 MB")
    assert eventually(lambda: in_use(server) == NOTHING)


# -- rows in memory


class Watched(StagedTable):
    """Its statements note how much of the server's memory is counted, and keep nothing, or only
    what they say.
    """

    def __init__(self, watch: Callable[[], None], held: int | None) -> None:
        self._watch = watch
        self._held = held

    @property
    def name(self) -> str:
        return "t"

    @property
    def arrow_schema(self) -> pa.Schema:
        return NOTES

    def scan(self, ctx: sp.Context, options: sp.ScanOptions) -> Iterator[pa.RecordBatch]:
        return iter(())

    def stage(self, ctx: sp.Context, operation: Operation, options: DMLOptions) -> StagedWrite:
        return _Write(self._watch, self._held)


class _Write(StagedWrite):
    def __init__(self, watch: Callable[[], None], held: int | None) -> None:
        self._watch = watch
        self._held = held
        self._rows = 0

    def held_bytes(self, batch: pa.RecordBatch) -> int:
        return super().held_bytes(batch) if self._held is None else self._held

    def apply(self, batch: pa.RecordBatch) -> None:
        self._watch()
        self._rows += batch.num_rows

    def commit(self) -> int:
        return self._rows

    def abort(self) -> None: ...


def rows(count: int) -> pa.Table:
    return pa.table({"id": range(count), "text": ["x" * 100] * count}, NOTES)


def sent(count: int, times: int) -> list[bytes]:
    """`times` batches of so many rows."""
    first, schema, batch = flight_data(NOTES, rows(count).to_pylist())
    return [*aimed([first], path("s", "t"), "insert").messages, schema, *[batch] * times]


@pytest.mark.parametrize(
    ("held", "is_refused"), [(None, True), (0, False), (100_000, True)], ids=["all", "none", "some"]
)
def test_rows_that_stay_in_memory_have_a_limit_of_their_own(start, connect, held, is_refused):
    counted: list[int] = []
    served: Server = start(
        catalog_of(Watched(lambda: counted.append(in_use(served)["held_bytes"]), held)),
        ServerSettings(max_held_bytes=1_000_000),
    )
    headers = {"airport-operation": "insert"}
    if is_refused:
        failure = connect(served).failure("DoExchange", sent(1000, 50), headers)
        assert failure.code == "RESOURCE_EXHAUSTED"
        assert "of rows in memory, of statements that have not ended" in failure.message
        assert "(max_held_bytes): change fewer rows in one statement" in failure.message
        assert 100_000 <= max(counted) <= 1_000_000
    else:
        connect(served).call("DoExchange", sent(1000, 50), headers)
        assert max(counted) == 0
    assert eventually(lambda: in_use(served) == NOTHING)


def test_batches_without_bytes_count_as_well(start, connect):
    """Columns of type `null` cost nothing on the wire, but the batches are kept."""
    counted: list[int] = []
    served: Server = start(
        catalog_of(Watched(lambda: counted.append(in_use(served)["held_bytes"]), None))
    )
    nulls = pa.schema([("id", pa.null()), ("text", pa.null())])
    first, schema, batch = flight_data(nulls, [{"id": None, "text": None}])
    messages = [*aimed([first], path("s", "t"), "insert").messages, schema, *[batch] * 10]
    connect(served).call("DoExchange", messages, {"airport-operation": "insert"})
    assert counted[-1] >= 10 * 1000


def test_returning_rows_by_put_counts_what_is_gathered_for_the_answer(start, connect):
    server = start(
        catalog_of(MemoryTable("notes", NOTES)), ServerSettings(max_held_bytes=1_000_000)
    )
    descriptor = flight.FlightDescriptor.for_command(PUT % (b"notes", b"true"))
    first, schema, batch = flight_data(NOTES, rows(1000).to_pylist())
    messages = [*aimed([first], descriptor, "insert").messages, schema, *[batch] * 50]
    failure = connect(server).failure("DoPut", messages)
    assert failure.code == "RESOURCE_EXHAUSTED"
    assert "(max_held_bytes)" in failure.message


class Kept(InsertableTable):
    """Takes its rows in the contracts' form, so that the service keeps them until all are there."""

    def __init__(self, watch: Callable[[], None]) -> None:
        self._watch = watch

    @property
    def name(self) -> str:
        return "t"

    @property
    def arrow_schema(self) -> pa.Schema:
        return NOTES

    def scan(self, ctx: sp.Context, options: sp.ScanOptions) -> Iterator[pa.RecordBatch]:
        return iter(())

    def insert(self, ctx: sp.Context, rows: Any, options: DMLOptions) -> DMLResult:
        self._watch()
        return DMLResult(sum(batch.num_rows for batch in rows))


def test_rows_that_are_spooled_do_not_count_as_held(start, connect):
    counted: list[dict[str, int]] = []
    served: Server = start(
        catalog_of(Kept(lambda: counted.append(in_use(served)))),
        ServerSettings(max_held_bytes=100_000),
    )
    connect(served).call("DoExchange", sent(1000, 50), {"airport-operation": "insert"})
    assert counted[0]["held_bytes"] == 0
    assert counted[0]["staged_bytes"] > 5_000_000


def test_a_statement_that_has_failed_keeps_nothing_while_its_client_sends_on(server):
    """Without RETURNING the error waits until the client has sent everything (airport §7.6)."""
    good = flight_data(NOTES, rows(1000).to_pylist())
    bad = flight_data(NOTES, [{"id": 1, "text": "x"}])[2][:-200]
    seen: list[int] = []

    def messages() -> Iterator[bytes]:
        yield from aimed(good[:1], path("s", "notes"), "insert").messages
        yield from [good[1], *[good[2]] * 5]
        assert eventually(lambda: in_use(server)["held_bytes"] > 500_000)
        yield bad
        assert eventually(lambda: in_use(server)["held_bytes"] == 0)
        seen.append(in_use(server)["exchanges"])
        yield good[2]

    with RawClient(server.location) as client:
        failure = client.failure("DoExchange", messages(), {"airport-operation": "insert"})
    assert failure.code == "INVALID_ARGUMENT"
    assert seen == [1], "the call itself goes on"
