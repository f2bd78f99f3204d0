"""Statements that change the table they scan: the exchange opens before the scan (trap T24)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.flight as flight
import pytest

from sparkport.memory import MemoryCatalog, MemorySettings, MemoryTable
from sparkport.server import Server
from sparkport.testing import Changed, DuckDBClient, ServerError
from sparkport.testing.headers import HeaderList, new_trace
from sparkport.testing.replies import Fields, as_bytes, unpack
from sparkport.testing.requests import ROWID, endpoints, no_filter

CATALOG = "shop"
NAME = ("s", "t")
PARTS = 100
ROWS_OF_A_PART = 50
ROWS = PARTS * ROWS_OF_A_PART


@pytest.fixture
def server() -> Iterator[Server]:
    """Serve a table: `part` 0 … 99, fifty rows each; `n` counts the changes of a row."""
    rows = pa.table(
        {
            "id": pa.array(range(ROWS), pa.int64()),
            "part": pa.array([i % PARTS for i in range(ROWS)], pa.int32()),
            "n": pa.array([0] * ROWS, pa.int32()),
        }
    )
    catalog = MemoryCatalog(CATALOG)
    catalog.add_schema("s").add_table(MemoryTable("t", rows))
    with Server(catalog, "grpc://127.0.0.1:0") as server:
        yield server


Statement = Callable[[DuckDBClient, int, threading.Barrier], Any]


def at_once(server: Server, statement: Statement, count: int = PARTS) -> list[Any]:
    """Run the statement in as many clients, each in a thread; they wait for each other halfway."""
    barrier = threading.Barrier(count, timeout=100)

    def run(number: int) -> Any:
        with DuckDBClient(server.location, CATALOG, timeout=100) as client:
            client.attach()
            try:
                return statement(client, number, barrier)
            except ServerError as error:
                return error

    with ThreadPoolExecutor(count) as pool:
        return [
            future.result(timeout=110)
            for future in [pool.submit(run, number) for number in range(count)]
        ]


def contents(server: Server) -> pa.Table:
    with DuckDBClient(server.location, CATALOG, timeout=20) as client:
        return client.scan(*NAME)


def update_part(client: DuckDBClient, number: int, barrier: threading.Barrier) -> Changed:
    def incremented(rows: pa.Table) -> pa.Array:
        barrier.wait()  # all exchanges are open, and all scans are done while they are
        return pc.add(rows.column("n"), 1)

    return client.update(*NAME, {"n": incremented}, where=f"part = {number}")


def delete_part(client: DuckDBClient, number: int, barrier: threading.Barrier) -> Changed:
    def chosen(rows: pa.Table) -> pa.Array:
        barrier.wait()
        return pc.equal(rows.column("part"), number).combine_chunks()

    return client.delete(*NAME, where=chosen)


def copy_part(client: DuckDBClient, number: int, barrier: threading.Barrier) -> Changed:
    client.begin()

    def rows() -> Iterator[pa.Table]:
        copied = client.scan(*NAME, where=f"part = {number}")
        barrier.wait()
        yield copied.set_column(2, "n", pc.add(copied.column("n"), 1000))

    try:
        return client.insert(*NAME, rows())
    finally:
        client.commit()


def test_a_hundred_updates_of_the_scanned_table_at_once_change_each_row_once(server):
    results = at_once(server, update_part)
    assert [changed.total for changed in results] == [ROWS_OF_A_PART] * PARTS
    rows = contents(server)
    assert rows.num_rows == ROWS
    assert set(rows.column("n").to_pylist()) == {1}


def test_a_hundred_updates_deletes_and_inserts_of_the_scanned_table_at_once_change_each_row_once(
    server,
):
    statements = (update_part, delete_part, copy_part)

    def mixed(client: DuckDBClient, number: int, barrier: threading.Barrier) -> Changed:
        return statements[number % 3](client, number, barrier)

    results = at_once(server, mixed)
    assert [changed.total for changed in results] == [ROWS_OF_A_PART] * PARTS
    rows = contents(server).to_pylist()
    for number in range(PARTS):
        values = sorted(row["n"] for row in rows if row["part"] == number)
        due = ([1] * ROWS_OF_A_PART, [], [0] * ROWS_OF_A_PART + [1000] * ROWS_OF_A_PART)[number % 3]
        assert values == due, number


def test_of_updates_of_the_same_rows_at_once_one_wins_and_the_others_change_nothing(server):
    def update_all(client: DuckDBClient, number: int, barrier: threading.Barrier) -> Changed:
        def incremented(rows: pa.Table) -> pa.Array:
            barrier.wait()
            return pc.add(rows.column("n"), 1)

        return client.update(*NAME, {"n": incremented})

    results = at_once(server, update_all, count=20)
    won = [result for result in results if isinstance(result, Changed)]
    lost = [result for result in results if not isinstance(result, Changed)]
    assert [changed.total for changed in won] == [ROWS]
    assert {error.code for error in lost} == {"ABORTED"}
    assert set(contents(server).column("n").to_pylist()) == {1}


# --------------------------------------------------------------------------- the Halloween problem


LARGE = 300_000


@pytest.fixture
def large() -> Iterator[Server]:
    """Serve a table whose scan has several parts, still being read while its changes arrive."""
    rows = pa.table(
        {"id": pa.array(range(LARGE), pa.int64()), "n": pa.array([0] * LARGE, pa.int32())}
    )
    catalog = MemoryCatalog(CATALOG, settings=MemorySettings(partitions=16, partition_rows=4096))
    catalog.add_schema("s").add_table(MemoryTable("t", rows))
    with Server(catalog, "grpc://127.0.0.1:0") as server:
        yield server


class Interleaved:
    """Reads a batch of the scan, sends it, reads the next, as only the real client does.

    The exchange, the planning of the scan and its streams are calls of plain Flight.
    """

    def __init__(self, client: DuckDBClient, operation: str, returning: bool) -> None:
        self._session = client._session
        self._session.begin()
        self.table = client._bound(*NAME)
        self._transaction = self._session.transaction()
        self._operation = operation
        self._returning = returning
        self._trace = new_trace()
        self._body = endpoints(
            self.table.descriptor.serialize(), no_filter([]), [0, 1, ROWID], ("", "")
        )

    def _headers(self, action: str | None = None) -> HeaderList:
        return self._session.headers.of_table(
            self._trace, self.table.descriptor, self._transaction, action
        )

    def run(
        self, sent: pa.Schema, change: Callable[[pa.RecordBatch], pa.RecordBatch]
    ) -> tuple[int, int]:
        """How many rows were sent, and how many the server says it has changed."""
        connection = self._session.connection
        headers = [
            *self._headers(),
            (b"airport-operation", self._operation.encode()),
            (b"return-chunks", b"1" if self._returning else b"0"),
        ]
        exchange = connection.exchange(self.table.descriptor, headers)
        exchange.begin(sent)
        exchange.schema()
        answer = unpack(
            self._session.answer("endpoints", self._body, self._headers("endpoints")), "endpoints"
        )
        rows = 0
        for endpoint in [
            flight.FlightEndpoint.deserialize(as_bytes(each, "endpoints")) for each in answer
        ]:
            stream = connection.get(endpoint.ticket, self._headers(), self.table.descriptor, "T24")
            while (chunk := stream.read()) is not None:
                for start in range(0, chunk.data.num_rows, 2048):
                    part = chunk.data.slice(start, 2048)
                    exchange.write(change(part))
                    rows += part.num_rows
                    if self._returning:
                        returned = exchange.read("T16")
                        assert returned is not None
                        assert returned.data.num_rows == part.num_rows
        exchange.half_close()
        last = exchange.read("§7.1")
        assert last is not None
        assert exchange.read("T21") is None
        exchange.close()
        return rows, Fields.unpack(last.app_metadata.to_pybytes(), "last message").unsigned(
            "total_changed"
        )


@pytest.mark.parametrize("returning", [False, True], ids=["", "returning"])
def test_an_update_fed_by_the_scan_of_its_table_sees_none_of_its_own_changes(large, returning):
    with DuckDBClient(large.location, CATALOG, timeout=40) as client:
        sent = pa.schema([("n", pa.int32()), ("id", pa.int64()), ("rowid", pa.int64())])
        names = sent.names if returning else ["n", "rowid"]
        sent = pa.schema([sent.field(name) for name in names])

        def change(part: pa.RecordBatch) -> pa.RecordBatch:
            assert set(part.column("n").to_pylist()) == {0}
            arrays = {
                "n": pc.add(part.column("n"), pa.scalar(1, pa.int32())),
                "id": part.column("id"),
            }
            return pa.RecordBatch.from_arrays(
                [arrays.get(name, part.column(2)) for name in names], schema=sent
            )

        assert Interleaved(client, "update", returning).run(sent, change) == (LARGE, LARGE)
    rows = contents(large)
    assert rows.num_rows == LARGE
    assert pc.all(pc.equal(rows.column("n"), 1)).as_py()


@pytest.mark.parametrize("returning", [False, True], ids=["", "returning"])
def test_a_delete_fed_by_the_scan_of_its_table_deletes_each_row_once(large, returning):
    with DuckDBClient(large.location, CATALOG, timeout=40) as client:
        sent = pa.schema([("rowid", pa.int64())])
        run = Interleaved(client, "delete", returning).run(
            sent, lambda part: part.select([2]).cast(sent)
        )
        assert run == (LARGE, LARGE)
    assert contents(large).num_rows == 0


@pytest.mark.parametrize("returning", [False, True], ids=["", "returning"])
def test_an_insert_fed_by_the_scan_of_its_table_does_not_read_what_it_inserts(large, returning):
    with DuckDBClient(large.location, CATALOG, timeout=40) as client:
        sent = pa.schema([("id", pa.int64()), ("n", pa.int32())])

        def change(part: pa.RecordBatch) -> pa.RecordBatch:
            return pa.RecordBatch.from_arrays(
                [part.column(0), pa.array([7] * part.num_rows, pa.int32())], schema=sent
            )

        assert Interleaved(client, "insert", returning).run(sent, change) == (LARGE, LARGE)
    rows = contents(large)
    assert rows.num_rows == 2 * LARGE
    assert pc.sum(pc.equal(rows.column("n"), 7)).as_py() == LARGE
