"""Table functions as SQL calls them: arguments, columns, filters, partitions, shapes of results."""

# mypy: disable-error-code="valid-type"

import datetime
import threading
import uuid
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any

import msgpack
import pyarrow as pa
import pytest
from tests.functions.catalogs import NUMBERS, SOON, catalog, numbers

import sparkport as sp
from sparkport.catalog import (
    Arguments,
    FunctionSignature,
    Parameter,
    RecordReader,
    TableFunction,
    rowid_field,
)
from sparkport.testing import ClientSideError, DuckDBClient, ServerError


def one(function: Any, returns: Any = NUMBERS, **options: Any) -> sp.CatalogBuilder:
    """A catalog with the function as `f`."""
    builder, schema = catalog()
    schema.table_function(returns=returns, name="f", **options)(function)
    return builder


# --------------------------------------------------------------------------------------- arguments


def test_positional_arguments_are_required_and_named_ones_optional(serve):
    def series(
        stop: pa.int64(),
        start: pa.int64() = 0,
        *,
        step: pa.int64() = 1,
        label: pa.string() = "none",
    ):
        values = range(start, stop, step)
        yield pa.record_batch(
            {"n": pa.array(values, pa.int64()), "label": pa.array([label] * len(values))}
        )

    returns = pa.schema([("n", pa.int64()), ("label", pa.string())])
    client = serve(one(series, returns))

    def called(*arguments: Any, **named: Any) -> list[tuple[Any, ...]]:
        return [
            tuple(row.values())
            for row in client.table_function("s", "f", *arguments, named=named).to_pylist()
        ]

    assert called(2) == [(0, "none"), (1, "none")]
    assert called(3, 2) == [(2, "none")]
    assert called(5, step=3) == [(0, "none"), (3, "none")]
    assert called(5, 1, label="x", STEP=2) == [(1, "x"), (3, "x")]
    with pytest.raises(ClientSideError, match="No function matches"):
        called()
    with pytest.raises(ClientSideError, match="named parameter"):
        called(1, nosuch=1)


def test_a_named_argument_that_is_null_is_taken_for_one_that_was_left_out(serve):
    def told(*, x: pa.int64() = 7):
        yield pa.record_batch({"n": pa.array([x], pa.int64())})

    client = serve(one(told))

    assert client.table_function("s", "f", named={"x": None}).to_pylist() == [{"n": 7}]


def test_a_positional_argument_may_be_null(serve):
    def told(x: pa.int64(), y: pa.int64() = 5):
        yield pa.record_batch({"n": pa.array([x, y], pa.int64())})

    client = serve(one(told))

    assert client.table_function("s", "f", pa.scalar(None, pa.int64())).column("n").to_pylist() == [
        None,
        5,
    ]
    assert client.table_function("s", "f", 1, pa.scalar(None, pa.int64())).column(
        "n"
    ).to_pylist() == [1, None]


def test_a_function_without_parameters_is_a_table(serve):
    client = serve(one(lambda: [numbers(2), numbers(0), numbers(1)]))

    assert client.table_function("s", "f").column("n").to_pylist() == [0, 1, 0]


def test_types_choose_between_overloads(serve):
    builder, schema = catalog()
    returns = pa.schema([("kind", pa.string())])

    @schema.table_function(returns=returns, name="f")
    def _whole(x: pa.int64()):
        return pa.table({"kind": ["whole"]})

    @schema.table_function(returns=returns, name="F")
    def _text(x: pa.string()):
        return pa.table({"kind": ["text"]})

    @schema.table_function(returns=returns, name="f")
    def _none():
        return pa.table({"kind": ["none"]})

    client = serve(builder)

    assert client.table_function("s", "f", 1).to_pylist() == [{"kind": "whole"}]
    assert client.table_function("s", "f", "1").to_pylist() == [{"kind": "text"}]
    assert client.table_function("s", "f").to_pylist() == [{"kind": "none"}]


@pytest.mark.parametrize("lossless", [True, False], ids=["lossless", "lossy"])
@pytest.mark.parametrize(
    ("value", "seen"),
    [
        (True, True),
        (5, 5),
        (1.5, 1.5),
        (Decimal("1.50"), Decimal("1.50")),
        ("ä", "ä"),
        (b"\0\xff", b"\0\xff"),
        (datetime.date(2024, 2, 29), datetime.date(2024, 2, 29)),
        (datetime.time(1, 2, 3, 4), datetime.time(1, 2, 3, 4)),
        (datetime.datetime(2024, 1, 2, 3, 4, 5, 6), datetime.datetime(2024, 1, 2, 3, 4, 5, 6)),
        ([1, None, 3], [1, None, 3]),
        ([True, False, True, True], [True, False, True, True]),
        ({"a": 1, "b": "x"}, {"a": 1, "b": "x"}),
        (datetime.timedelta(days=3, microseconds=7), pa.MonthDayNano([0, 3, 7000])),
    ],
    ids=repr,
)
def test_an_argument_of_any_type_arrives_as_the_python_value_that_fits_it(
    serve, value, seen, lossless
):
    arrived: list[Any] = []

    def noted(x: Any):
        arrived.append(x)
        yield numbers(1)

    serve(one(noted), arrow_lossless=lossless).table_function("s", "f", value)

    assert [(type(each), each) for each in arrived] == [(type(seen), seen)]


def test_an_argument_can_be_had_as_an_arrow_scalar(serve):
    arrived: list[pa.Scalar] = []

    def noted(x: pa.Scalar, *more: pa.Scalar):
        arrived.extend((x, *more))
        yield numbers(1)

    serve(one(noted)).table_function("s", "f", pa.scalar(5, pa.int16()), "text", uuid.UUID(int=5))

    assert [scalar.type for scalar in arrived] == [pa.int16(), pa.string(), pa.uuid()]
    assert [scalar.as_py() for scalar in arrived] == [5, "text", uuid.UUID(int=5)]


@pytest.mark.parametrize(
    "moment",
    [
        pa.scalar(1, pa.timestamp("ns")),
        pa.scalar(2**62, pa.timestamp("us")),
        pa.scalar(-(2**30), pa.date32()),
        pa.scalar(1, pa.time64("ns")),
    ],
    ids=lambda moment: str(moment.type),
)
def test_what_python_cannot_hold_stays_an_arrow_scalar(serve, moment):
    arrived: list[Any] = []

    def noted(x: Any):
        arrived.append(x)
        yield numbers(1)

    serve(one(noted)).table_function("s", "f", moment)

    assert arrived == [moment]


def test_a_time_zone_that_python_does_not_know_is_no_error(start):
    """DuckDB's session may be in a zone that only ICU knows, such as AET."""
    arrived: list[Any] = []
    row = pa.record_batch({"x": pa.array([0], pa.timestamp("us", "AET"))})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, row.schema) as writer:
        writer.write_batch(row)

    def noted(x: Any):
        yield numbers(1)

    def columns_of(x: Any) -> pa.Schema:
        arrived.append(x)
        return NUMBERS

    with DuckDBClient(start(one(noted, columns_of)), "c", timeout=SOON) as client:
        (function,) = client.functions("s")
        body = {
            "descriptor": function.descriptor.serialize(),
            "parameters": sink.getvalue().to_pybytes(),
        }
        body |= {"table_input_schema": "", "at_unit": "", "at_value": ""}
        client.action("table_function_flight_info", msgpack.packb(body))

    assert arrived == [pa.scalar(0, pa.timestamp("us", "AET"))]


# ----------------------------------------------------------------------------------------- results


def test_the_columns_may_depend_on_the_arguments(serve):
    def wide(columns: pa.int64(), prefix: pa.string()):
        return pa.table({f"{prefix}{number}": [number] for number in range(columns)})

    def columns_of(prefix: str, columns: int) -> pa.Schema:
        return pa.schema([(f"{prefix}{number}", pa.int64()) for number in range(columns)])

    client = serve(one(wide, columns_of))

    assert client.table_function("s", "f", 3, "c").to_pylist() == [{"c0": 0, "c1": 1, "c2": 2}]
    assert client.table_function("s", "f", 1, "d").to_pylist() == [{"d0": 0}]


@pytest.mark.parametrize(
    "make",
    [
        lambda: numbers(3),
        lambda: pa.Table.from_batches([numbers(2), numbers(1, 2)]),
        lambda: [numbers(3)],
        lambda: pa.RecordBatchReader.from_batches(NUMBERS, [numbers(3)]),
        lambda: (each for each in (numbers(0), numbers(3), numbers(0))),
    ],
    ids=["batch", "table", "list", "reader", "generator"],
)
def test_rows_may_be_given_in_any_form(serve, make):
    assert serve(one(make)).table_function("s", "f").column("n").to_pylist() == [0, 1, 2]


@pytest.mark.parametrize(
    "make", [lambda: None, lambda: [numbers(0)], lambda: numbers(0), lambda: iter(())]
)
def test_no_rows_are_an_empty_result(serve, make):
    called = serve(one(make)).table_function("s", "f")

    assert called.schema == NUMBERS
    assert called.num_rows == 0


def test_columns_may_come_in_another_order_and_with_others_beside_them(serve):
    returns = pa.schema([("a", pa.int64()), ("b", pa.string())])
    given = pa.record_batch({"c": [0.5], "b": ["x"], "a": [1]})

    assert serve(one(lambda: given, returns)).table_function("s", "f").to_pylist() == [
        {"a": 1, "b": "x"}
    ]


def test_dictionaries_in_a_result_are_plain_values(serve):
    """The client would show the indices (T33)."""
    words = pa.array(["a", None, "b"]).dictionary_encode()
    client = serve(one(lambda: pa.table({"w": words}), pa.schema([("w", words.type)])))

    called = client.table_function("s", "f")

    assert called.schema.types == [pa.string()]
    assert called.column("w").to_pylist() == ["a", None, "b"]


def test_marks_of_a_row_id_mean_nothing_in_a_result(serve):
    """The client would hide the column."""
    returns = pa.schema([("a", pa.int64()), rowid_field("key"), rowid_field()])
    given = pa.table([pa.array([1]), pa.array([2]), pa.array([3])], schema=returns)

    called = serve(one(lambda: given, returns)).table_function("s", "f")

    assert called.to_pylist() == [{"a": 1, "key": 2, "rowid": 3}]


@pytest.mark.parametrize(
    ("returns", "says"),
    [
        (pa.schema([]), "no columns"),
        (pa.schema([("a", pa.int64()), ("a", pa.int64())]), "same name"),
        (pa.schema([("a", pa.float16())]), "halffloat"),
        (pa.schema([("", pa.int64())]), "has no name"),
    ],
    ids=["no columns", "columns of one name", "type that DuckDB cannot take", "no name"],
)
def test_columns_that_duckdb_could_not_take_are_an_error_that_says_so(serve, returns, says):
    client = serve(one(lambda: None, lambda: returns))

    with pytest.raises(ServerError, match=says) as caught:
        client.table_function("s", "f")

    assert "function s.f" in caught.value.message
    assert not caught.value.stalls


def test_filters_and_projections_work_as_on_tables(serve):
    seen: list[sp.ScanOptions] = []

    def squares(options: sp.ScanOptions, upto: pa.int64()):
        seen.append(options)
        values = range(upto)
        yield pa.record_batch(
            {"n": pa.array(values), "square": pa.array([each * each for each in values])}
        )

    client = serve(one(squares, pa.schema([("n", pa.int64()), ("square", pa.int64())])))
    called = client.table_function("s", "f", 100, columns=["square"], where="n > 97")

    assert called.to_pylist() == [{"square": 98 * 98}, {"square": 99 * 99}]
    assert seen[0].columns == ("n", "square")
    assert seen[0].filter is not None
    assert client.table_function("s", "f", 5, columns=["square"]).column("square").to_pylist() == [
        0,
        1,
        4,
        9,
        16,
    ]
    assert seen[1].columns == ("square",)


def test_a_limit_ends_an_endless_function(serve):
    closed = threading.Event()

    def endless() -> Iterator[pa.RecordBatch]:
        try:
            while True:
                yield numbers(1000)
        finally:
            closed.set()

    assert serve(one(endless)).table_function("s", "f", limit=1500).num_rows == 1500
    assert closed.wait(SOON)


# -------------------------------------------------------------------------------------- partitions


def test_work_that_is_divided_is_done_in_parallel(serve):
    together = threading.Barrier(4)

    def part(options: sp.ScanOptions, upto: pa.int64(), *, parts: pa.int64() = 2):
        together.wait(SOON)  # none is done before all have begun
        number = int(options.partition or b"-1")
        yield numbers(upto, number * upto)

    def divide(parts: int | None) -> list[bytes]:
        return [str(number).encode() for number in range(parts or 2)]

    client = serve(one(part, partitions=divide))
    called = client.table_function("s", "f", 10, named={"parts": 4}, threads=4)

    assert sorted(called.column("n").to_pylist()) == list(range(40))


def test_no_partitions_are_no_rows(serve):
    def part(options: sp.ScanOptions):
        raise AssertionError("called")

    assert serve(one(part, partitions=lambda: ())).table_function("s", "f").num_rows == 0


def test_parts_that_are_not_named_by_bytes_are_a_fault(serve):
    client = serve(one(lambda: None, partitions=lambda: [1, 2]))

    with pytest.raises(ServerError, match="not named by bytes") as caught:
        client.table_function("s", "f")

    assert "s.f" in caught.value.message


# ---------------------------------------------------------------------------- functions as classes


class Estimating(TableFunction):
    """A function as an implementer writes it without the builder."""

    name = "f"

    @property
    def signature(self) -> FunctionSignature:
        return FunctionSignature((Parameter("count", pa.int64()),))

    def schema_for_parameters(self, ctx: sp.Context, parameters: Sequence[Any]) -> pa.Schema:
        if parameters[0] < 0:
            raise sp.BadRequest("f: count must not be negative")
        return NUMBERS

    def execute(
        self, ctx: sp.Context, parameters: Sequence[Any], options: sp.ScanOptions
    ) -> RecordReader:
        assert isinstance(parameters, Arguments)
        assert parameters.arrow.column("count").to_pylist() == [parameters[0]]
        return [numbers(parameters[0])]

    def estimated_rows(self, ctx: sp.Context, parameters: Sequence[Any]) -> int | None:
        return int(parameters[0])


def test_a_function_may_be_a_class_and_tell_how_many_rows_to_expect(serve):
    catalog = sp.MemoryCatalog("c")
    catalog.add_schema("s").add_table_function(Estimating())
    client = serve(catalog)

    assert client.table_function("s", "f", 3).column("n").to_pylist() == [0, 1, 2]
    with pytest.raises(ServerError) as caught:
        client.table_function("s", "f", -1)
    assert (caught.value.code, caught.value.message) == (
        "INVALID_ARGUMENT",
        "f: count must not be negative",
    )
