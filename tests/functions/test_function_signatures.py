"""Python signatures as SQL signatures: what annotations mean, what is injected, what is refused."""

# mypy: disable-error-code="valid-type"

import functools
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.functions.catalogs import NUMBERS, catalog, numbers

import sparkport as sp
from sparkport.builder import RowCount
from sparkport.catalog import ScanOptions, TableInOutFunction
from sparkport.testing import ServerError

CTX = sp.Context()
BIGINT = pa.int64()
NONE: Any = None


def signatures(builder: sp.CatalogBuilder) -> list[list[tuple[str, Any, str]]]:
    """Name, type and kind of the parameters of all functions, in the order offered."""
    schema = builder.build().schema(CTX, "s")
    assert schema is not None
    functions = [*schema.scalar_functions(CTX), *schema.table_functions(CTX)]
    return [
        [(each.name, each.type, each.kind.value) for each in function.signature.parameters]
        for function in functions
    ]


def table_function(function: Callable[..., Any], **options: Any) -> sp.CatalogBuilder:
    builder, schema = catalog()
    schema.table_function(**{"returns": NUMBERS, "name": "f", **options})(function)
    return builder


def scalar_function(function: Callable[..., Any], **options: Any) -> sp.CatalogBuilder:
    builder, schema = catalog()
    schema.scalar_function(function, **{"name": "f", **options})
    return builder


# ---------------------------------------------------------------------------------- what they mean


def test_optional_parameters_make_overloads_from_the_longest_to_the_shortest():
    def f(a: BIGINT, b: pa.string() = "x", c: Any = None): ...

    a, b, c = (
        ("a", BIGINT, "positional"),
        ("b", pa.string(), "positional"),
        ("c", None, "positional"),
    )

    assert signatures(table_function(f)) == [[a, b, c], [a, b], [a]]


def test_named_parameters_are_part_of_every_overload():
    def f(a: BIGINT = 1, *, b: BIGINT = 2): ...

    assert signatures(table_function(f)) == [
        [("a", BIGINT, "positional"), ("b", BIGINT, "named")],
        [("b", BIGINT, "named")],
    ]


def test_the_decorator_leaves_the_function_as_it_is():
    _, schema = catalog()

    @schema.scalar_function
    def plain(x: BIGINT) -> BIGINT:
        return pc.add(x, 1)

    @schema.scalar_function(nulls="propagate")
    def optioned(x: BIGINT) -> BIGINT:
        return pc.add(x, 1)

    @schema.table_function(returns=NUMBERS)
    def rows():
        return 5

    assert plain(pa.array([1])).to_pylist() == [2]
    assert optioned(pa.array([1])).to_pylist() == [2]
    assert rows() == 5


def test_annotations_may_be_written_as_text(serve):
    def f(x: "pa.int64()", ctx: "sp.Context") -> "pa.int64()":
        return pc.add(x, 1)

    assert serve(scalar_function(f)).call("s", "f", {"x": [1]}).to_pylist() == [2]


def test_methods_and_wrapped_functions_are_functions_too(serve):
    class Shop:
        def price(self, x: BIGINT) -> BIGINT:
            return pc.multiply(x, 3)

    def f(x: BIGINT) -> BIGINT:
        return pc.multiply(x, 5)

    @functools.wraps(f)
    def wrapped(*arguments: Any) -> Any:
        return f(*arguments)

    builder, schema = catalog()
    schema.scalar_function(Shop().price)
    schema.scalar_function(wrapped)
    client = serve(builder)

    assert client.call("s", "price", {"x": [1]}).to_pylist() == [3]
    assert client.call("s", "f", {"x": [1]}).to_pylist() == [5]


class Adding:
    """A function with a state."""

    def __init__(self, more: int) -> None:
        self.more = more

    def __call__(self, x: BIGINT) -> BIGINT:
        return pc.add(x, self.more)


@pytest.mark.parametrize(
    "function", [Adding(7), functools.partial(Adding(7).__call__)], ids=["object", "partial"]
)
def test_anything_that_can_be_called_is_a_function(serve, function):
    assert serve(scalar_function(function)).call("s", "f", {"x": [1]}).to_pylist() == [8]


def test_a_variadic_parameter_stands_for_one_or_more_values(serve):
    def f(first: pa.string(), *rest: BIGINT):
        yield pa.record_batch({"n": pa.array([len(first), *rest], BIGINT)})

    client = serve(table_function(f))

    for count in range(1, 9):
        answered = client.table_function("s", "f", "abc", *range(count)).column("n").to_pylist()
        assert answered == [3, *range(count)]


def test_variadic_values_of_any_type_keep_their_types(serve):
    def f(*values: pa.Scalar):
        yield pa.record_batch({"n": pa.array([value.type.bit_width for value in values], BIGINT)})

    client = serve(table_function(f))
    given = [pa.scalar(1, pa.int8()), pa.scalar(1, pa.int64()), pa.scalar(1.0, pa.float32())]

    assert client.table_function("s", "f", *given).column("n").to_pylist() == [8, 64, 32]


def test_what_tells_the_columns_gets_the_arguments_that_it_names():
    def f(a: BIGINT, b: BIGINT, rows: pa.Table): ...

    told: list[Any] = []

    def by_name(b: int, rows: pa.Schema) -> pa.Schema:
        told.append((b, rows))
        return NUMBERS

    def all_in_order(*values: Any) -> pa.Schema:
        told.append(values)
        return NUMBERS

    def all_by_name(**values: Any) -> pa.Schema:
        told.append(values)
        return NUMBERS

    for returns in (by_name, all_in_order, all_by_name, lambda: NUMBERS):
        schema = table_function(f, returns=returns).build().schema(CTX, "s")
        assert schema is not None
        (function,) = schema.table_functions(CTX)
        assert isinstance(function, TableInOutFunction)
        assert function.schema_for_input(CTX, [1, 2], NUMBERS) == NUMBERS

    assert told[0] == (2, NUMBERS)
    assert told[2] == {"a": 1, "b": 2, "rows": NUMBERS}


# -------------------------------------------------------------------------------- what is injected


@pytest.mark.parametrize("place", ["first", "between", "last", "by name"])
def test_a_scalar_function_is_told_its_context_and_how_many_rows(serve, place):
    seen: list[tuple[str, int]] = []

    def told(ctx: Any, count: Any, x: Any, y: Any) -> Any:
        seen.append((ctx.catalog_name, count))
        return pc.subtract(x, y)

    def first(ctx: sp.Context, count: RowCount, x: BIGINT, y: BIGINT) -> BIGINT:
        return told(ctx, count, x, y)

    def between(x: BIGINT, ctx: sp.Context, y: BIGINT, count: RowCount) -> BIGINT:
        return told(ctx, count, x, y)

    def last(x: BIGINT, y: BIGINT, count: RowCount, ctx: sp.Context) -> BIGINT:
        return told(ctx, count, x, y)

    def by_name(x: BIGINT, y: BIGINT, *, ctx: sp.Context, count: RowCount) -> BIGINT:
        return told(ctx, count, x, y)

    functions: dict[str, Callable[..., Any]] = {
        "first": first,
        "between": between,
        "last": last,
        "by name": by_name,
    }
    builder = scalar_function(functions[place])
    client = serve(builder)

    assert client.call("s", "f", {"x": [5, 7], "y": [1, 2]}).to_pylist() == [4, 5]
    assert seen == [("c", 2)]
    assert signatures(builder) == [[("x", BIGINT, "positional"), ("y", BIGINT, "positional")]]


@pytest.mark.parametrize("place", ["first", "between", "last", "by name"])
def test_a_table_function_is_told_its_context_and_what_is_wanted(serve, place):
    seen: list[Any] = []

    def told(ctx: Any, options: Any, a: int, b: int) -> pa.RecordBatch:
        seen.append((ctx.catalog_name, options.columns))
        return numbers(a, b)

    def first(ctx: sp.Context, options: ScanOptions, a: BIGINT, b: BIGINT = 3):
        return told(ctx, options, a, b)

    def between(a: BIGINT, ctx: sp.Context, b: BIGINT = 3, options: ScanOptions = NONE):
        return told(ctx, options, a, b)

    def last(a: BIGINT, b: BIGINT = 3, options: ScanOptions = NONE, ctx: sp.Context = NONE):
        return told(ctx, options, a, b)

    def by_name(a: BIGINT, b: BIGINT = 3, *, options: ScanOptions, ctx: sp.Context):
        return told(ctx, options, a, b)

    functions: dict[str, Callable[..., Any]] = {
        "first": first,
        "between": between,
        "last": last,
        "by name": by_name,
    }
    client = serve(table_function(functions[place]))

    assert client.table_function("s", "f", 2).column("n").to_pylist() == [3, 4]
    assert client.table_function("s", "f", 2, 0).column("n").to_pylist() == [0, 1]
    assert seen == [("c", ("n",))] * 2


@pytest.mark.parametrize("place", ["first", "between", "last", "by name"])
@pytest.mark.parametrize("subquery", [pa.Table, pa.RecordBatch], ids=["rows", "batch"])
def test_an_in_out_function_is_told_its_context(serve, place, subquery):
    def told(ctx: Any, factor: Any, rows: Any):
        assert ctx.catalog_name == "c"
        for batch in [rows] if subquery is pa.RecordBatch else rows:
            yield pa.record_batch({"n": pc.multiply(batch.column(0), factor)})

    def first(ctx: sp.Context, factor: BIGINT, rows: subquery):
        return told(ctx, factor, rows)

    def between(factor: BIGINT, ctx: sp.Context, rows: subquery):
        return told(ctx, factor, rows)

    def last(factor: BIGINT, rows: subquery, ctx: sp.Context):
        return told(ctx, factor, rows)

    def by_name(factor: BIGINT, rows: subquery, *, ctx: sp.Context):
        return told(ctx, factor, rows)

    functions: dict[str, Callable[..., Any]] = {
        "first": first,
        "between": between,
        "last": last,
        "by name": by_name,
    }
    client = serve(table_function(functions[place]))

    answered = client.in_out("s", "f", 3, rows=pa.table({"n": [1, 2]}))
    assert answered.column("n").to_pylist() == [3, 6]


def test_a_named_argument_without_a_default_that_is_left_out_is_named_in_the_error(serve):
    def f(*, needed: BIGINT): ...

    with pytest.raises(ServerError, match="needed") as caught:
        serve(table_function(f)).table_function("s", "f")

    assert caught.value.code == "INVALID_ARGUMENT"


def test_an_optional_parameter_before_a_subquery_may_be_left_out(serve):
    def f(factor: BIGINT = 3, *, rows: pa.Table):
        for batch in rows:
            yield pa.record_batch({"n": pc.multiply(batch.column(0), factor)})

    client = serve(table_function(f))

    assert client.in_out("s", "f", 2, rows=pa.table({"n": [1]})).column("n").to_pylist() == [2]
    assert client.in_out("s", "f", rows=pa.table({"n": [1]})).column("n").to_pylist() == [3]


# --------------------------------------------------------------------------------- what is refused


def bare(x): ...
def python_type(x: int) -> BIGINT: ...
def unknown(x: "nosuch") -> BIGINT: ...  # type: ignore[name-defined]  # noqa: F821
def keywords(**values: BIGINT): ...
def half(x: pa.float16()) -> BIGINT: ...
def large_decimal(x: pa.decimal256(50, 2)): ...
def same_name(x: BIGINT, X: BIGINT): ...
def named_any(*, x: Any = None): ...
def named_scalar(*, x: pa.Scalar = None): ...
def variadic_and_named(*values: BIGINT, scale: BIGINT = 1): ...
def variadic_and_subquery(*values: BIGINT, rows: pa.Table): ...
def two_subqueries(a: pa.Table, b: pa.Table): ...
def subquery_first(rows: pa.Table, times: BIGINT): ...
def named_beside_subquery(rows: pa.Table, *, times: BIGINT = 1): ...
def counting(count: RowCount): ...
def optioned_rows(options: ScanOptions, rows: pa.Table): ...


REFUSED_TABLE_FUNCTIONS = {
    bare: "annotate parameter x",
    python_type: "annotate parameter x",
    unknown: "nosuch",
    keywords: r"\*\*values",
    half: "halffloat",
    large_decimal: "decimal256",
    same_name: "same name",
    named_any: "x",
    named_scalar: "x",
    variadic_and_named: "variadic",
    variadic_and_subquery: "variadic|last",
    two_subqueries: "last",
    subquery_first: "last",
    named_beside_subquery: "named",
    counting: "RowCount|count",
    optioned_rows: "ScanOptions|options",
}


@pytest.mark.parametrize(
    "function", REFUSED_TABLE_FUNCTIONS, ids=lambda function: function.__name__
)
def test_a_table_function_that_duckdb_could_never_call_is_refused_at_once(function):
    """Otherwise only the log would tell that it is not listed, or fails at every call."""
    with pytest.raises((sp.BadRequest, sp.Unsupported), match=REFUSED_TABLE_FUNCTIONS[function]):
        table_function(function)


def no_return(x: BIGINT): ...
def python_return(x: BIGINT) -> int:
    return 1


def half_return(x: BIGINT) -> pa.float16(): ...
def named(x: BIGINT, *, y: BIGINT = 1) -> BIGINT: ...
def subquery(rows: pa.Table) -> BIGINT: ...
def optioned(x: BIGINT, options: ScanOptions) -> BIGINT: ...


REFUSED_SCALAR_FUNCTIONS = {
    no_return: "return annotation",
    python_return: "return annotation",
    half_return: "halffloat",
    named: "positional",
    subquery: "positional",
    optioned: "ScanOptions|options",
    half: "halffloat",
    unknown: "nosuch",
}


@pytest.mark.parametrize(
    "function", REFUSED_SCALAR_FUNCTIONS, ids=lambda function: function.__name__
)
def test_a_scalar_function_that_duckdb_could_never_call_is_refused_at_once(function):
    with pytest.raises((sp.BadRequest, sp.Unsupported), match=REFUSED_SCALAR_FUNCTIONS[function]):
        scalar_function(function)


@pytest.mark.parametrize("options", [{"stability": "sometimes"}, {"nulls": "maybe"}], ids=str)
def test_options_that_do_not_exist_are_refused_at_once(options):
    def f(x: BIGINT) -> BIGINT:
        return x

    with pytest.raises(sp.BadRequest, match=next(iter(options.values()))):
        scalar_function(f, **options)


@pytest.mark.parametrize("returns", [None, BIGINT, ["n"]], ids=["None", "type", "list"])
def test_columns_that_are_neither_an_arrow_schema_nor_a_function_are_refused_at_once(returns):
    with pytest.raises(sp.BadRequest, match="returns"):
        table_function(lambda: None, returns=returns)


def test_a_second_function_of_the_same_name_and_arguments_is_refused_at_once():
    _, schema = catalog()

    def f(x: BIGINT) -> BIGINT:
        return x

    schema.scalar_function(f)
    with pytest.raises(sp.AlreadyExists, match="f"):
        schema.scalar_function(f)


def test_a_function_with_a_subquery_cannot_be_partitioned():
    def f(rows: pa.Table): ...

    with pytest.raises(sp.BadRequest, match="partitioned"):
        table_function(f, partitions=lambda: [b"a"])
