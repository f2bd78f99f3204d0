"""Scalar functions as SQL calls them: overloads, NULLs, stability, results, concurrency."""

# mypy: disable-error-code="valid-type"

import random
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.functions.catalogs import catalog

import sparkport as sp
from sparkport.catalog import NullHandling, Stability
from sparkport.testing import ClientSideError, DuckDBClient, ServerError

LISTS = pa.list_(pa.int64())
STRUCTS = pa.struct([("a", pa.int64()), ("b", pa.string())])
HUGEINT = pa.opaque(pa.binary(16), "hugeint", "DuckDB")


def one(function: Any, **options: Any) -> sp.CatalogBuilder:
    """A catalog with the function as `f`."""
    builder, schema = catalog()
    schema.scalar_function(function, name="f", **options)
    return builder


# ----------------------------------------------------------------------------------------- calling


@pytest.mark.parametrize("rows", [0, 1, 2047, 2048, 2049, 10_000])
def test_every_row_has_its_result_in_order(serve, rows):
    def twice(x: pa.int64()) -> pa.int64():
        return pc.multiply(x, 2)

    called = serve(one(twice)).call("s", "f", [pa.array(range(rows), pa.int64())])

    assert called.type == pa.int64()
    assert called.to_pylist() == [2 * number for number in range(rows)]


def test_arguments_come_in_the_order_of_the_parameters(serve):
    def joined(a: pa.string(), b: pa.int64(), c: pa.string()) -> pa.string():
        return pc.binary_join_element_wise(a, b.cast(pa.string()), c, "-")

    assert serve(one(joined)).call("s", "f", {"x": ["a"], "y": [1], "z": ["c"]}).to_pylist() == [
        "a-1-c"
    ]


def test_a_function_sees_whole_batches_and_not_single_rows(serve):
    seen: list[int] = []

    def noted(x: pa.int64()) -> pa.int64():
        seen.append(len(x))
        return x

    serve(one(noted)).call("s", "f", {"x": range(5000)})

    assert seen == [2048, 2048, 904]


def test_a_function_without_parameters_is_told_how_many_values_are_wanted(serve):
    def rolled(count: sp.RowCount) -> pa.int64():
        return pa.array(range(count), pa.int64())

    client = serve(one(rolled))

    assert client.call("s", "f", [], rows=3000).to_pylist() == [*range(2048), *range(952)]
    assert client.call("s", "f", [], rows=0).to_pylist() == []


def test_types_choose_between_overloads(serve):
    builder, schema = catalog()

    @schema.scalar_function(name="kind")
    def _whole(x: pa.int64()) -> pa.string():
        return pa.scalar("whole")

    @schema.scalar_function(name="KIND")
    def _text(x: pa.string()) -> pa.string():
        return pa.scalar("text")

    @schema.scalar_function(name="kind")
    def _two(x: pa.int64(), y: pa.int64()) -> pa.int64():
        return pc.add(x, y)

    client = serve(builder)

    assert client.call("s", "kind", {"x": [1]}).to_pylist() == ["whole"]
    assert client.call("s", "Kind", {"x": ["1"]}).to_pylist() == ["text"]
    assert client.call("s", "kind", {"x": [1], "y": [2]}).to_pylist() == [3]
    with pytest.raises(ClientSideError, match="No function matches"):
        client.call("s", "kind", [pa.array([[1]])])


def test_optional_parameters_are_overloads(serve):
    def power(
        x: pa.int64(),
        exponent: pa.int64() = pa.scalar(2),  # noqa: B008
        times: pa.int64() = pa.scalar(1),  # noqa: B008
    ) -> pa.int64():
        return pc.multiply(pc.power(x, exponent), times)

    client = serve(one(power))

    assert client.call("s", "f", {"x": [3]}).to_pylist() == [9]
    assert client.call("s", "f", {"x": [3], "y": [3]}).to_pylist() == [27]
    assert client.call("s", "f", {"x": [3], "y": [3], "z": [2]}).to_pylist() == [54]


def test_a_variadic_function_takes_one_to_eight_values(serve):
    def total(start: pa.int64(), *rest: pa.int64()) -> pa.int64():
        for each in rest:
            start = pc.add(start, each)
        return start

    client = serve(one(total))

    for count in range(1, 9):
        arguments = {str(number): [number, 10 * number] for number in range(count + 1)}
        expected = sum(range(count + 1))
        assert client.call("s", "f", arguments).to_pylist() == [expected, 10 * expected]
    with pytest.raises(ClientSideError, match="No function matches"):
        client.call("s", "f", {"x": [1]})


def test_a_parameter_of_any_type_takes_every_argument_as_it_is(serve):
    def shown(x: Any) -> pa.string():
        return pa.array([f"{x.type}: {value}" for value in x.to_pylist()])

    client = serve(one(shown))

    for argument, expected in (
        (pa.array([1], pa.int16()), "int16: 1"),
        (pa.array([True]), "bool: True"),
        (pa.array(["x"]).dictionary_encode(), "string: x"),
        (pa.array([[True, None, False]]), "list<l: bool>: [True, None, False]"),
        (pa.array([{"a": True}]), "struct<a: bool>: {'a': True}"),
        (pa.array([Decimal("1.50")]), "decimal128(3, 2): 1.50"),
    ):
        assert client.call("s", "f", [argument]).to_pylist() == [expected]


def test_the_name_of_the_caller_is_told_to_the_function(serve):
    seen: list[tuple[str, bool]] = []

    def noted(x: pa.int64(), ctx: sp.Context) -> pa.int64():
        seen.append((ctx.catalog_name, ctx.from_duckdb))
        return x

    serve(one(noted)).call("s", "f", {"x": [1]})

    assert seen == [("c", True)]


@pytest.mark.parametrize("stability", Stability)
def test_the_catalog_tells_duckdb_how_stable_a_function_is(serve, stability):
    def same(x: pa.int64()) -> pa.int64():
        """What it is for."""
        return x

    (function,) = serve(one(same, stability=stability.value)).functions("s")

    assert function.stability == stability.value
    assert function.description == "What it is for."


def test_an_argument_that_a_parameter_cannot_hold_is_refused_by_name(serve):
    def identity(key: pa.uuid()) -> pa.uuid():
        return key

    client = serve(one(identity))

    assert client.call("s", "f", {"x": [str(uuid.UUID(int=5))]}).to_pylist() == [uuid.UUID(int=5)]
    with pytest.raises(ServerError, match="key") as caught:
        client.call("s", "f", {"x": ["no uuid"]})
    assert (caught.value.code, caught.value.duckdb_exception) == (
        "INVALID_ARGUMENT",
        "InvalidInputException",
    )


# ----------------------------------------------------------------------------------------- results


@pytest.mark.parametrize(
    ("value", "data_type"),
    [
        (7, pa.int64()),
        (True, pa.bool_()),
        ("x", pa.string()),
        ("x", pa.large_string()),
        ("x", pa.string_view()),
        (Decimal("1.25"), pa.decimal128(5, 2)),
        ([1, None], LISTS),
        ([1, 2], pa.list_(pa.int32(), 2)),
        ({"a": 1, "b": None}, STRUCTS),
        ([("k", 1)], pa.map_(pa.string(), pa.int64())),
        (uuid.UUID(int=5), pa.uuid()),
        ('{"a": 1}', pa.json_()),
        (None, pa.int64()),
        (None, STRUCTS),
        (None, pa.uuid()),
        (None, pa.null()),
    ],
    ids=str,
)
def test_one_arrow_scalar_stands_for_all_rows(serve, value, data_type):
    stored = value.bytes if isinstance(value, uuid.UUID) else value

    def constant(x: pa.int64()):
        return pa.scalar(stored, data_type)

    called = serve(one(constant, returns=data_type)).call("s", "f", {"x": range(3000)})

    assert called.type == data_type
    assert called.to_pylist() == [value] * 3000


@pytest.mark.parametrize(
    "make",
    [
        lambda array: array,
        lambda array: pa.chunked_array([array.slice(0, 1), array.slice(1)]),
        lambda array: pa.record_batch([array], names=["whatever"]),
        lambda array: pa.concat_arrays([pa.array([0]), array, pa.array([0])]).slice(1, len(array)),
    ],
    ids=["array", "chunked array", "batch of one column", "slice of a larger array"],
)
def test_a_result_may_have_any_shape_that_holds_a_column(serve, make):
    def shaped(x: pa.int64()) -> pa.int64():
        return make(x)

    assert serve(one(shaped)).call("s", "f", {"x": [1, None, 3]}).to_pylist() == [1, None, 3]


@pytest.mark.parametrize(
    "data_type",
    [pa.dictionary(pa.int8(), pa.string()), pa.run_end_encoded(pa.int32(), pa.string())],
)
def test_encoded_results_arrive_as_plain_values(serve, data_type):
    """The client would show the indices of a dictionary (T33)."""

    def encoded(x: pa.string()):
        return (
            x.dictionary_encode().cast(data_type)
            if pa.types.is_dictionary(data_type)
            else pc.run_end_encode(x)
        )

    client = serve(one(encoded, returns=data_type))
    called = client.call("s", "f", {"x": ["a", "a", None, "b"]})

    assert called.type == pa.string()
    assert called.to_pylist() == ["a", "a", None, "b"]
    (function,) = client.functions("s")
    assert function.arrow_schema == pa.schema([("result", pa.string())])


def test_a_dictionary_scalar_stands_for_all_rows(serve):
    def constant(x: pa.int64()) -> pa.dictionary(pa.int32(), pa.string()):
        return pa.array(["unused", "k"]).dictionary_encode()[1]

    assert serve(one(constant)).call("s", "f", {"x": [1, 2]}).to_pylist() == ["k", "k"]


def test_a_result_larger_than_any_usual_message_arrives(serve):
    def long(x: pa.int64()) -> pa.string():
        return pa.array(["x" * 20_000] * len(x))

    assert [
        len(text) for text in serve(one(long)).call("s", "f", {"x": range(2048)}).to_pylist()
    ] == [20_000] * 2048


# ------------------------------------------------------------------------------------------- NULLs


def test_nulls_are_passed_to_a_function_that_does_not_say_otherwise(serve):
    def known(x: pa.int64()) -> pa.bool_():
        return pc.is_valid(x)

    assert serve(one(known)).call("s", "f", {"x": [1, None]}).to_pylist() == [True, False]


def test_a_function_that_propagates_nulls_sees_none(serve):
    seen: list[tuple[list[Any], list[Any]]] = []

    def added(x: pa.int64(), y: pa.int64()) -> pa.int64():
        seen.append((x.to_pylist(), y.to_pylist()))
        return pc.add(x, y)

    client = serve(one(added, nulls="propagate"))
    called = client.call("s", "f", {"x": [1, None, 3, None, 5], "y": [10, 20, None, None, 50]})

    assert called.to_pylist() == [11, None, None, None, 55]
    assert seen == [([1, 5], [10, 50])]


def test_a_function_that_propagates_nulls_is_not_called_where_all_are_null(serve):
    def never(x: pa.int64()) -> pa.int64():
        raise AssertionError("called")

    client = serve(one(never, nulls="propagate"))

    assert client.call("s", "f", [pa.nulls(3000, pa.int64())]).to_pylist() == [None] * 3000


def test_values_of_a_function_that_propagates_nulls_are_put_back_in_their_places(serve):
    drawn = random.Random(5)
    given = [drawn.choice([None, number]) for number in range(5000)]

    def twice(x: pa.int64()) -> pa.int64():
        return pc.multiply(x, 2)

    called = serve(one(twice, nulls="propagate")).call("s", "f", {"x": given})

    assert called.to_pylist() == [None if value is None else 2 * value for value in given]


def test_a_scalar_result_is_null_where_an_argument_is(serve):
    def constant(x: pa.int64()) -> pa.string():
        return pa.scalar("k")

    assert serve(one(constant, nulls="propagate")).call("s", "f", {"x": [1, None]}).to_pylist() == [
        "k",
        None,
    ]


@pytest.mark.parametrize("nulls", NullHandling)
@pytest.mark.parametrize(
    "values",
    [
        pa.array([[1, None], None, []], LISTS),
        pa.array([{"a": 1, "b": None}, None, {"a": None, "b": None}], STRUCTS),
        pa.array([[("k", 1)], None, []], pa.map_(pa.string(), pa.int64())),
        pa.array([[1, 2], None, [3, None]], pa.list_(pa.int32(), 2)),
        pa.array([uuid.UUID(int=5), None, uuid.UUID(int=6)], pa.uuid()),
        pa.array(['{"a": 1}', None, "null"], pa.json_()),
        pa.ExtensionArray.from_storage(
            HUGEINT, pa.array([b"\5" + bytes(15), None, bytes(16)], pa.binary(16))
        ),
        pa.array([True, None, False]),
        pa.array(["a", None, "b"]).dictionary_encode(),
        pa.array(["a", None, "b"], pa.string_view()),
        pa.array(["a", None, "b" * 20], pa.large_string()),
        pa.nulls(3, LISTS),
    ],
    ids=lambda values: str(values.type)[:40],
)
def test_nulls_of_every_kind_of_type_come_back_where_they_were(serve, values, nulls):
    declared = values.type

    def same(x: declared):
        return x

    called = serve(one(same, returns=declared, nulls=nulls)).call("s", "f", [values])

    assert called.to_pylist() == values.to_pylist()


# ------------------------------------------------------------------------------------ many at once


def test_exchanges_open_at_the_same_time_do_not_disturb_each_other(start):
    together = threading.Barrier(16)

    def marked(x: pa.int64(), mark: pa.int64()) -> pa.int64():
        if x[0].as_py() == 0:
            together.wait(60)  # no exchange is answered before all are open
        return pc.add(pc.multiply(x, 100), mark)

    location = start(one(marked))

    def work(mark: int) -> list[int]:
        with DuckDBClient(location, "c", timeout=80) as client:
            return client.call("s", "f", {"x": range(5000), "mark": [mark] * 5000}).to_pylist()

    with ThreadPoolExecutor(16) as pool:
        results = list(pool.map(work, range(16), timeout=90))

    assert results == [[100 * number + mark for number in range(5000)] for mark in range(16)]


def test_threads_of_one_query_share_its_rows(serve):
    def twice(x: pa.int64()) -> pa.int64():
        return pc.multiply(x, 2)

    called = serve(one(twice)).call("s", "f", {"x": range(50_000)}, threads=16)

    assert called.to_pylist() == [2 * number for number in range(50_000)]
