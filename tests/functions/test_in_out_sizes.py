"""In/out functions of all sizes: the right rows, no endless waiting, no growing memory."""

# mypy: disable-error-code="valid-type"

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.functions.catalogs import (
    FORMS,
    NUMBERS,
    SOON,
    add_good,
    begin_in_out,
    catalog,
    eventually,
    exchange,
    in_out,
    nothing_left_behind,
    numbers,
    table,
)

import sparkport as sp
from sparkport.testing import DuckDBClient

VECTOR = 2048
ROOT = Path(__file__).parents[2]


def called(client: DuckDBClient, rows: pa.Table) -> list[int]:
    return client.in_out("s", "f", rows=rows).column("n").to_pylist()


# ------------------------------------------------------------------------------------------- sizes


@pytest.fixture(scope="module")
def sized():
    """`f(times, rows)` answers a batch with `times` rows: its number, its size, theirs."""
    builder, schema = catalog()
    returns = pa.schema([("batch", pa.int64()), ("rows", pa.int64()), ("n", pa.int64())])

    def answer(number: int, rows: int, times: int) -> pa.RecordBatch:
        columns = [
            pa.array([number] * times),
            pa.array([rows] * times),
            pa.array(range(times), pa.int64()),
        ]
        return pa.RecordBatch.from_arrays(
            [column.cast(pa.int64()) for column in columns], schema=returns
        )

    @schema.table_function(returns=returns, name="rows")
    def _rows(times: pa.int64(), rows: pa.Table):
        total = 0
        for number, batch in enumerate(rows):
            total += batch.num_rows
            yield answer(number, batch.num_rows, times)
        yield answer(-1, total, times)

    @schema.table_function(returns=returns, name="batch")
    def _batch(times: pa.int64(), rows: pa.RecordBatch):
        number = rows.column(0)[0].as_py() // VECTOR
        yield answer(number, rows.num_rows, times)

    with (
        sp.Server(builder, "grpc://127.0.0.1:0") as server,
        DuckDBClient(server.location, "c") as client,
    ):
        yield client


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("times", [0, 1, VECTOR - 1, VECTOR, VECTOR + 1, 2 * VECTOR])
@pytest.mark.parametrize("rows", [0, 1, VECTOR - 1, VECTOR, VECTOR + 1, 3 * VECTOR])
def test_every_size_of_input_and_output_gives_the_right_rows(sized, rows, times, form):
    """A last answer of a multiple of 2048 rows would have both sides wait for ever (T18)."""
    answered = sized.in_out("s", form, times, rows=table(rows))

    sizes = [min(VECTOR, rows - start) for start in range(0, rows, VECTOR)]
    parts = [(number, size) for number, size in enumerate(sizes)] + (
        [(-1, rows)] if form == "rows" else []
    )
    expected = [(number, size, n) for number, size in parts for n in range(times)]
    assert list(zip(*answered.to_pydict().values(), strict=True)) == expected


@pytest.mark.parametrize("form", FORMS)
def test_answers_of_changing_sizes_come_in_order(serve, form):
    sizes = [
        VECTOR,
        VECTOR,
        0,
        VECTOR,
        1,
        2 * VECTOR,
        VECTOR - 1,
        VECTOR,
        0,
        0,
        3 * VECTOR,
        5,
        VECTOR,
    ]

    def of_batch(rows: pa.RecordBatch):
        position = rows.column(0)[0].as_py() // VECTOR
        yield numbers(sizes[position], sum(sizes[:position]))

    def of_rows(rows: pa.Table):
        for batch in rows:
            yield from of_batch(batch)

    client = serve(in_out(of_rows if form == "rows" else of_batch))

    assert called(client, table(len(sizes) * VECTOR)) == list(range(sum(sizes)))


@pytest.mark.parametrize("form", FORMS)
def test_one_answer_may_be_many_batches_some_of_them_empty(serve, form):
    def of_batch(rows: pa.RecordBatch):
        for start in (0, 10, 20, VECTOR + 20):
            yield numbers(0)
            yield numbers(10 if start < 20 else VECTOR, start)
        yield numbers(0)

    def of_rows(rows: pa.Table):
        for batch in rows:
            yield from of_batch(batch)

    client = serve(in_out(of_rows if form == "rows" else of_batch))

    assert called(client, table(VECTOR + 1)) == [*range(2 * VECTOR + 20)] * 2


@pytest.mark.parametrize("form", FORMS)
def test_wide_rows_are_sent_in_pieces(serve, form):
    text = "x" * 1000

    def of_batch(rows: pa.RecordBatch):
        yield pa.record_batch(
            {"n": pa.array(range(10_000), pa.int64()), "text": pa.array([text] * 10_000)}
        )

    def of_rows(rows: pa.Table):
        for batch in rows:
            yield from of_batch(batch)

    returns = pa.schema([("n", pa.int64()), ("text", pa.string())])
    client = serve(in_out(of_rows if form == "rows" else of_batch, returns))
    batches = list(client.in_out_batches("s", "f", rows=table(1)))

    assert len([batch for batch in batches if batch.num_rows]) > 3
    assert max(batch.nbytes for batch in batches) < 4_000_000
    assert [n for batch in batches for n in batch.column(0).to_pylist()] == list(range(10_000))
    assert all(
        pc.all(pc.equal(batch.column(1), text)).as_py() for batch in batches if batch.num_rows
    )


def test_wide_input_arrives_whole(serve):
    def lengths(rows: pa.Table):
        for batch in rows:
            yield pa.record_batch({"n": pc.binary_length(batch.column("text")).cast(pa.int64())})

    text = pa.table({"text": ["x" * size for size in range(5000)]})

    assert called(serve(in_out(lengths)), rows=text) == list(range(5000))


# ----------------------------------------------------------------------------- lockstep and memory


def test_a_function_does_not_run_far_ahead_of_a_client_that_does_not_read(start):
    builder, schema = catalog()
    made: list[int] = []
    ended = threading.Event()

    @schema.table_function(returns=NUMBERS)
    def f(rows: pa.Table) -> Iterator[pa.RecordBatch]:
        try:
            while True:
                made.append(1)
                yield numbers(50_000)
        finally:
            ended.set()

    add_good(schema)
    location = start(builder)
    with DuckDBClient(location, "c", timeout=SOON) as client, nothing_left_behind(client):
        with exchange(client, location, "f", "table_function_in_out") as (writer, reader):
            begin_in_out(writer, reader)
            writer.write_batch(numbers(1))
            reader.read_chunk()
            quiet = eventually(lambda: made_no_more(made))
            reader.cancel()
        assert quiet
        assert len(made) < 500  # 200 MB; gRPC itself holds a few messages
        assert ended.wait(SOON)


def made_no_more(made: list[int]) -> bool:
    before = len(made)
    threading.Event().wait(0.3)
    return len(made) == before


@pytest.mark.long
@pytest.mark.timeout(90)
@pytest.mark.parametrize("form", FORMS)
def test_three_million_rows_pass_without_memory_growing(form):
    rows = 3_000_000
    code = "from tests.functions.catalogs import serve_echoing; serve_echoing()"
    with subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            with DuckDBClient(process.stdout.readline().strip(), "c", timeout=80) as client:
                assert (
                    counted(client, form, 200_000)[0] == 200_000
                )  # what the first rows need is not growth
                before = resident(process.pid)
                count, total, most = counted(client, form, rows, lambda: resident(process.pid))
        finally:
            process.stdin.close()
            process.wait(SOON)

    assert count == rows
    assert total == 3 * (rows * (rows - 1) // 2)
    assert most - before < 20_000_000  # the input alone has 24 MB, the output three times as much


def counted(
    client: DuckDBClient, form: str, rows: int, measure: Any = lambda: 0
) -> tuple[int, int, int]:
    """How many rows come back, the sum of their values, and the largest measure on the way."""
    size = 50 * VECTOR
    source = (numbers(min(size, rows - start), start) for start in range(0, rows, size))
    count = total = most = 0
    for batch in client.in_out_batches("s", form, rows=source):
        count += batch.num_rows
        total += sum(pc.sum(column).as_py() or 0 for column in batch.columns)
        if count // size % 5 == 0:
            most = max(most, measure())
    return count, total, most


def resident(pid: int) -> int:
    """Bytes of a process that are in memory."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096
