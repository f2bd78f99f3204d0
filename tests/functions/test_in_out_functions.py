"""Table in/out functions: reading, yielding, arguments, columns, concurrency (airport §9.3)."""

# mypy: disable-error-code="valid-type"

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.functions.catalogs import FORMS, catalog, in_out, numbers, table

import sparkport as sp
from sparkport.testing import DuckDBClient, ServerError

VECTOR = 2048


def called(client: DuckDBClient, *arguments: Any, rows: Any) -> list[int]:
    return client.in_out("s", "f", *arguments, rows=rows).column("n").to_pylist()


# ------------------------------------------------------------------------------------------- forms


def test_rows_after_the_end_of_the_input_close_the_result(serve):
    def total(rows: pa.Table):
        result = 0
        for batch in rows:
            result += pc.sum(batch.column(0)).as_py()
        yield pa.record_batch({"n": [result]})
        yield pa.record_batch({"n": [-1]})

    client = serve(in_out(total))

    assert called(client, rows=table(5000)) == [sum(range(5000)), -1]
    assert called(client, rows=table(0)) == [0, -1]


def test_a_function_may_stop_reading_before_its_input_ends(serve):
    def first(rows: pa.Table):
        yield next(iter(rows)).slice(0, 1)

    assert called(serve(in_out(first)), rows=table(10_000)) == [0]


def test_a_function_may_return_at_once_and_read_nothing(serve):
    def nothing(rows: pa.Table):
        return None

    client = serve(in_out(nothing))

    assert called(client, rows=table(10_000)) == []
    assert called(client, rows=table(0)) == []


def test_a_function_may_yield_before_it_reads(serve):
    def header_first(rows: pa.Table):
        yield numbers(VECTOR)
        yield numbers(1)
        for batch in rows:
            yield batch.slice(0, 1)

    client = serve(in_out(header_first))

    assert called(client, rows=table(VECTOR + 1)) == [*range(VECTOR), 0, 0, VECTOR]
    assert called(client, rows=table(0)) == [*range(VECTOR), 0]


def test_a_function_may_yield_without_ever_reading(serve):
    def deaf(rows: pa.Table):
        for start in range(0, 10 * VECTOR, VECTOR):
            yield numbers(VECTOR, start)

    client = serve(in_out(deaf))

    assert called(client, rows=table(3 * VECTOR)) == list(range(10 * VECTOR))
    assert called(client, rows=table(0)) == list(range(10 * VECTOR))


def test_a_function_may_read_all_before_it_yields(serve):
    def backwards(rows: pa.Table):
        for batch in reversed(list(rows)):
            yield batch.take(pa.array(range(batch.num_rows - 1, -1, -1)))

    assert called(serve(in_out(backwards)), rows=table(10_000)) == list(range(9999, -1, -1))


def test_a_function_may_read_two_batches_for_one_answer(serve):
    def pairs(rows: pa.Table):
        remaining = iter(rows)
        for batch in remaining:
            other = next(remaining, numbers(0))
            yield pa.record_batch({"n": [batch.num_rows + other.num_rows]})

    assert called(serve(in_out(pairs)), rows=table(5 * VECTOR)) == [2 * VECTOR, 2 * VECTOR, VECTOR]


@pytest.mark.parametrize(
    "result", [table(3), numbers(3), [numbers(3)]], ids=["table", "batch", "list"]
)
@pytest.mark.parametrize("form", FORMS)
def test_an_answer_may_be_given_in_any_form(serve, form, result):
    def of_rows(rows: pa.Table):
        return result

    def of_batch(rows: pa.RecordBatch):
        return result

    times = 1 if form == "rows" else 2

    assert (
        called(serve(in_out(of_rows if form == "rows" else of_batch)), rows=table(VECTOR + 1))
        == [0, 1, 2] * times
    )


def test_a_function_over_rows_keeps_what_it_remembers_to_one_call(serve):
    def running(rows: pa.Table):
        total = 0
        for batch in rows:
            total += batch.num_rows
            yield pa.record_batch({"n": [total]})

    client = serve(in_out(running))

    for _ in range(3):
        assert called(client, rows=table(5000)) == [2048, 4096, 5000]


# ------------------------------------------------------------------ arguments, columns, conditions


def test_arguments_come_before_the_subquery(serve):
    def scaled(ctx: sp.Context, factor: pa.int64(), label: Any, rows: pa.Table):
        for batch in rows:
            yield pa.record_batch(
                {
                    "n": pc.multiply(batch.column(0), factor),
                    "label": pa.array([f"{label!r}"] * batch.num_rows),
                }
            )

    client = serve(in_out(scaled, pa.schema([("n", pa.int64()), ("label", pa.string())])))

    assert client.in_out("s", "f", 3, "x", rows=table(2)).to_pylist() == [
        {"n": 0, "label": "'x'"},
        {"n": 3, "label": "'x'"},
    ]
    assert client.in_out("s", "f", 3, 1.5, rows=table(1)).column("label").to_pylist() == ["1.5"]


def test_the_columns_may_depend_on_arguments_and_on_the_columns_of_the_subquery(serve):
    def with_label(label: pa.string(), rows: pa.Table):
        for batch in rows:
            yield batch.append_column(label, pa.array([label] * batch.num_rows))

    def columns_of(label: str, rows: pa.Schema) -> pa.Schema:
        return rows.append(pa.field(label, pa.string()))

    client = serve(in_out(with_label, columns_of))
    answered = client.in_out("s", "f", "more", rows=pa.table({"a": [1], "b": ["x"]}))

    assert answered.to_pylist() == [{"a": 1, "b": "x", "more": "more"}]


def test_columns_of_the_subquery_may_share_a_name(serve):
    def widths(rows: pa.RecordBatch):
        yield pa.record_batch({"n": pc.add(rows.column(0), rows.column(1))})

    twice = pa.table([pa.array([1, 2]), pa.array([10, 20])], names=["a", "a"])

    assert called(serve(in_out(widths)), rows=twice) == [11, 22]


def test_a_condition_on_the_result_is_applied(serve):
    def same(rows: pa.Table):
        yield from rows

    client = serve(in_out(same))

    assert client.in_out("s", "f", rows=table(5000), where="n % 1000 = 1").column(
        "n"
    ).to_pylist() == [
        1,
        1001,
        2001,
        3001,
        4001,
    ]


def test_what_the_columns_cannot_be_is_said_when_the_call_is_bound(serve):
    def columns_of(rows: pa.Schema) -> pa.Schema:
        if "key" not in rows.names:
            raise sp.BadRequest("f: the subquery needs a column called key")
        return rows

    def same(rows: pa.Table):
        yield from rows

    client = serve(in_out(same, columns_of))

    with pytest.raises(ServerError) as caught:
        client.in_out("s", "f", rows=table(1))
    assert (caught.value.code, caught.value.message) == (
        "INVALID_ARGUMENT",
        "f: the subquery needs a column called key",
    )
    assert not caught.value.stalls


def test_dictionaries_come_and_go_as_plain_values(serve):
    def encoded(rows: pa.Table):
        for batch in rows:
            assert batch.schema.types == [pa.string()]
            yield pa.record_batch({"w": batch.column(0).dictionary_encode()})

    client = serve(in_out(encoded, pa.schema([("w", pa.dictionary(pa.int32(), pa.string()))])))
    answered = client.in_out(
        "s", "f", rows=pa.table({"w": pa.array(["a", None, "b"]).dictionary_encode()})
    )

    assert answered.schema.types == [pa.string()]
    assert answered.column("w").to_pylist() == ["a", None, "b"]


# ------------------------------------------------------------------------------------ many at once


@pytest.mark.parametrize("form", FORMS)
def test_exchanges_open_at_the_same_time_do_not_disturb_each_other(start, form):
    builder, schema = catalog()
    returns = pa.schema([("n", pa.int64()), ("total", pa.int64())])

    @schema.table_function(returns=returns, name="rows")
    def _rows(mark: pa.int64(), rows: pa.Table):
        total = 0
        for batch in rows:
            total += batch.num_rows
            yield pa.record_batch(
                [pc.add(batch.column(0), mark), pa.array([total] * batch.num_rows)], schema=returns
            )

    @schema.table_function(returns=returns, name="batch")
    def _batch(mark: pa.int64(), rows: pa.RecordBatch):
        counts = pa.array([rows.num_rows] * rows.num_rows)
        yield pa.record_batch([pc.add(rows.column(0), mark), counts], schema=returns)

    location = start(builder)

    def work(mark: int) -> pa.Table:
        with DuckDBClient(location, "c", timeout=80) as client:
            return client.in_out("s", form, mark, rows=table(5 * VECTOR))

    with ThreadPoolExecutor(16) as pool:
        results = list(pool.map(work, range(0, 16_000_000, 1_000_000), timeout=90))

    totals = [
        VECTOR * (number + 1 if form == "rows" else 1) for number in range(5) for _ in range(VECTOR)
    ]
    for position, result in enumerate(results):
        assert result.column("n").to_pylist() == [
            position * 1_000_000 + number for number in range(5 * VECTOR)
        ]
        assert result.column("total").to_pylist() == totals
