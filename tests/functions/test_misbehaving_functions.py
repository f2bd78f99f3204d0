"""Functions that fail or break their contract: a clear error, no thread left, others go on."""

# mypy: disable-error-code="valid-type"

import logging
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight
import pytest
from tests.functions.catalogs import (
    FORMS,
    KINDS,
    NUMBERS,
    SOON,
    add_good,
    catalog,
    doing,
    exchange,
    failure,
    nothing_left_behind,
    numbers,
    run,
)

import sparkport as sp
from sparkport.testing import DuckDBClient, ServerError


def returning(kind: str, made: Any) -> sp.CatalogBuilder:
    """A catalog with a function that returns just this value, and a well-behaved function."""
    builder, schema = catalog()
    add_good(schema)
    if kind == "scalar":

        @schema.scalar_function(name="f")
        def _scalar(x: pa.int64()) -> pa.int64():
            return made

    elif kind == "table":
        schema.table_function(returns=NUMBERS, name="f")(lambda: made)
    elif kind == "rows":

        @schema.table_function(returns=NUMBERS, name="f")
        def _rows(rows: pa.Table):
            return made

    else:

        @schema.table_function(returns=NUMBERS, name="f")
        def _batch(rows: pa.RecordBatch):
            return made

    return builder


# ----------------------------------------------------------------------------------------- raising


def fail(error: BaseException) -> Any:
    def body(_ctx: sp.Context) -> None:
        raise error

    return body


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "error",
    [
        ValueError("secret password"),
        OSError(2, "secret password", "/etc/passwd"),
        StopIteration("secret password"),
        SystemExit("secret password"),
        KeyboardInterrupt("secret password"),
        MemoryError("secret password"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_unforeseen_error_is_a_trace_id_and_an_entry_in_the_log(serve, caplog, kind, error):
    client = serve(doing(kind, fail(error)))

    with caplog.at_level(logging.ERROR, "sparkport"):
        failed = failure(client, kind)

    (record,) = [each for each in caplog.records if each.levelno >= logging.ERROR]
    trace_id = failed.message.rpartition(" ")[2]
    assert (
        failed.message
        == f"function s.f failed; the server's log has the details under trace id {trace_id}"
    )
    assert trace_id in record.getMessage()
    assert record.exc_info is not None
    assert "secret" not in failed.shown
    assert failed.duckdb_exception == "InvalidInputException"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("error", "code", "exception"),
    [
        (sp.BadRequest("f: 5 is too many; ask for 4"), "INVALID_ARGUMENT", "InvalidInputException"),
        (sp.PermissionDenied("f: not for you"), "PERMISSION_DENIED", "PermissionException"),
        (sp.ConstraintViolation("f: broken"), "FAILED_PRECONDITION", "ConstraintException"),
        (sp.Conflict("f: again"), "ABORTED", None),
    ],
    ids=["BadRequest", "PermissionDenied", "ConstraintViolation", "Conflict"],
)
def test_an_error_of_ours_reaches_the_user_as_it_is(serve, caplog, kind, error, code, exception):
    client = serve(doing(kind, fail(error)))

    failed = failure(client, kind)

    assert (failed.code, failed.message, failed.duckdb_exception) == (
        code,
        error.message,
        exception,
    )
    assert not [each for each in caplog.records if each.levelno >= logging.ERROR]


@pytest.mark.parametrize("kind", ["table", "rows"])
def test_an_error_when_the_columns_are_asked_for_is_one_of_the_call(serve, kind):
    def columns_of(*_: Any) -> pa.Schema:
        raise ValueError("secret password")

    builder, schema = catalog()
    schema.scalar_function(lambda: pa.scalar(2), name="two", returns=pa.int64())
    if kind == "table":
        schema.table_function(returns=columns_of, name="f")(lambda: None)
    else:

        @schema.table_function(returns=columns_of, name="f")
        def _rows(rows: pa.Table): ...

    with pytest.raises(ServerError, match=r"function s\.f failed.*trace id") as caught:
        run(serve(builder), kind)

    assert "secret" not in caught.value.shown
    assert not caught.value.stalls  # because it is an action


def test_an_error_after_the_last_row_of_the_input_is_seen(serve):
    def ending(rows: pa.Table):
        yield from rows
        raise sp.BadRequest("f: that was too little")

    builder, schema = catalog()
    schema.table_function(returns=NUMBERS, name="f")(ending)

    for rows in (0, 1, 2048, 5000):
        with pytest.raises(ServerError) as caught:
            run(serve(builder), "rows", rows=rows)
        assert caught.value.message == "f: that was too little"


# ----------------------------------------------------------------------------------- wrong results


@pytest.mark.parametrize(
    ("made", "says"),
    [
        (pa.array([1, 2], pa.int32()), "function s.f returned int32, but declares int64"),
        (pa.array(["a", "b"]), "function s.f returned string, but declares int64"),
        (pa.array([1]), "function s.f returned 1 values for 2 rows"),
        (pa.array([1, 2, 3]), "function s.f returned 3 values for 2 rows"),
        (pa.array([], pa.int64()), "function s.f returned 0 values for 2 rows"),
        (pa.scalar("a"), "function s.f returned string, but declares int64"),
        (pa.nulls(2), "function s.f returned null, but declares int64"),
        (
            pa.record_batch({"a": [1, 2], "b": [1, 2]}),
            "function s.f returned RecordBatch, not an Arrow array",
        ),
        (pa.table({"a": [1, 2]}), "function s.f returned Table, not an Arrow array"),
        ([1, 2], "function s.f returned list, not an Arrow array"),
        (1, "function s.f returned int, not an Arrow array"),
        (None, "function s.f returned NoneType, not an Arrow array"),
        ((each for each in (1, 2)), "function s.f returned generator, not an Arrow array"),
    ],
    ids=[
        "narrower",
        "text",
        "too few",
        "too many",
        "none",
        "scalar",
        "nulls",
        "columns",
        "table",
        "list",
        "int",
        "None",
        "generator",
    ],
)
def test_a_scalar_function_that_returns_something_else_is_at_fault(serve, made, says):
    failed = failure(serve(returning("scalar", made)), "scalar", rows=2)

    assert (failed.code, failed.duckdb_exception, failed.message) == (
        "UNKNOWN",
        "InvalidInputException",
        says,
    )


OTHERS = {
    "other column": (pa.record_batch({"m": [1]}), "no column 'n'"),
    "other type": (pa.record_batch({"n": pa.array([1], pa.int32())}), "'n' as int32"),
    "twice": (
        pa.RecordBatch.from_arrays([pa.array([1])] * 2, ["n", "n"]),
        "more than one column 'n'",
    ),
    "table": (pa.table({"n": [1]}), "Table"),
    "array": (pa.array([1]), "Array"),
    "dict": ({"n": [1]}, "dict"),
    "None": (None, "NoneType"),
    "int": (1, "int"),
}


@pytest.mark.parametrize("kind", ["table", *FORMS])
@pytest.mark.parametrize("name", OTHERS)
def test_a_function_that_yields_something_else_is_at_fault(serve, kind, name):
    made, says = OTHERS[name]

    failed = failure(serve(returning(kind, [numbers(1), made])), kind)

    assert (failed.code, failed.duckdb_exception) == ("UNKNOWN", "InvalidInputException")
    assert "s.f" in failed.message
    assert says in failed.message


@pytest.mark.parametrize("kind", ["table", *FORMS])
@pytest.mark.parametrize("made", [42, 1.5, object()], ids=["int", "float", "object"])
def test_a_function_that_yields_nothing_at_all_is_at_fault(serve, kind, made):
    failed = failure(serve(returning(kind, made)), kind)

    assert (failed.code, failed.duckdb_exception) == ("UNKNOWN", "InvalidInputException")
    assert f"returned {type(made).__name__}, which yields no batches" in failed.message


@pytest.mark.parametrize("told", [None, ["n"], pa.int64()], ids=["None", "list", "type"])
def test_columns_that_are_no_arrow_schema_are_a_fault(serve, told):
    builder, schema = catalog()
    schema.table_function(returns=lambda: told, name="f")(lambda: None)

    with pytest.raises(
        ServerError, match=r"function s\.f told .* as its columns, not an Arrow schema"
    ):
        run(serve(builder), "table")


@pytest.mark.parametrize("kind", KINDS)
def test_many_failing_calls_leave_nothing_behind(start, kind):
    location = start(doing(kind, fail(ValueError("no"))))
    with DuckDBClient(location, "c", timeout=SOON) as client, nothing_left_behind(client):
        for _ in range(10):
            with pytest.raises(ServerError):
                run(client, kind)


def test_garbage_in_an_exchange_is_refused(start):
    location = start(doing("scalar", lambda _ctx: None))
    with (
        DuckDBClient(location, "c", timeout=SOON) as client,
        nothing_left_behind(client),
        exchange(client, location, "f", "scalar_function") as (writer, reader),
    ):
        writer.begin(pa.schema([("x", pa.int64()), ("y", pa.int64())]))
        with pytest.raises((pa.ArrowInvalid, flight.FlightError), match="takes 1 arguments, not 2"):
            reader.read_chunk()
