"""A LIMIT over an in/out function: the client ignores the rest, but reads the stream to its end."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import pyarrow as pa
import pytest

import sparkport as sp
from sparkport.testing import DuckDBClient

ROWS = pa.table({"n": pa.array(range(5000), pa.int64())})


@pytest.fixture
def client() -> Iterator[DuckDBClient]:
    builder = sp.CatalogBuilder("lab")
    schema = builder.schema("f")

    @schema.table_function(returns=lambda rows: rows)
    def endless(rows: pa.Table) -> Iterator[pa.RecordBatch]:
        for batch in rows:
            while True:
                yield batch

    @schema.table_function(returns=lambda batch: batch)
    def endless_by_batch(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        while True:
            yield batch

    @schema.table_function(returns=lambda times, rows: rows)
    def repeated(times: pa.int64(), rows: pa.Table) -> Iterator[pa.RecordBatch]:  # type: ignore[valid-type]
        for batch in rows:
            for _ in range(times):
                yield batch

    with (
        sp.Server(builder, "grpc://127.0.0.1:0") as server,
        DuckDBClient(server.location, "lab", timeout=20) as client,
    ):
        yield client


@pytest.mark.parametrize("function", ["endless", "endless_by_batch"])
def test_a_function_that_never_ends_does_not_keep_a_limit_waiting(
    client: DuckDBClient, function: str
) -> None:
    batches: Any = client.in_out_batches("f", function, rows=ROWS)
    assert all(batch.num_rows for batch in islice(batches, 2))
    batches.close()  # ends the input, and reads to the end of the stream
    assert client.in_out("f", "repeated", 1, rows=ROWS).equals(ROWS)


@pytest.mark.parametrize("times", [1, 3, 4, 5, 6, 20])
def test_long_answers_to_a_client_that_wants_them_are_complete(
    client: DuckDBClient, times: int
) -> None:
    found = client.in_out("f", "repeated", times, rows=ROWS)
    assert found.column("n").to_pylist() == [
        number
        for start in range(0, 5000, 2048)
        for _ in range(times)
        for number in range(start, min(start + 2048, 5000))
    ]
