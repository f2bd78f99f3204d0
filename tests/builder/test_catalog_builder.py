"""Catalogs described with the builder, and what it refuses."""

# Arrow types are made by calls, which mypy does not take as annotations.
# mypy: disable-error-code="valid-type"

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import sparkport as sp
from sparkport.catalog import Constraints, Stability, TableFunction, TableInOutFunction
from sparkport.testing import DuckDBClient

ROWS = pa.table({"id": [1, 2, 3], "name": ["a", "b", "c"]})
CTX = sp.Context()


def read(source, tmp_path=None, **options):
    """Serve one table and read it as DuckDB does."""
    builder = sp.CatalogBuilder("c")
    builder.schema("s").table("t", source, **options)
    with (
        sp.Server(builder, "grpc://127.0.0.1:0") as server,
        DuckDBClient(server.location, "c") as client,
    ):
        return client.scan("s", "t").sort_by("id")


@pytest.mark.parametrize(
    "source", [ROWS, ROWS.to_batches()[0], ds.dataset(ROWS)], ids=["table", "batch", "dataset"]
)
def test_arrow_data_is_a_table(source):
    assert read(source).equals(ROWS)


def test_a_parquet_file_is_a_table(tmp_path):
    pq.write_table(ROWS, tmp_path / "rows.parquet")
    assert read(tmp_path / "rows.parquet").equals(ROWS)


def test_a_folder_of_parquet_files_is_a_table_read_in_parallel_and_by_columns(tmp_path):
    for number in range(6):
        folder = tmp_path / f"day={number}"
        folder.mkdir()
        pq.write_table(ROWS, folder / "rows.parquet")
    builder = sp.CatalogBuilder("c")
    builder.schema("s").table("t", tmp_path)
    with (
        sp.Server(builder, "grpc://127.0.0.1:0") as server,
        DuckDBClient(server.location, "c") as client,
    ):
        assert client.count("s", "t") == 18
        found = client.scan("s", "t", columns=["id", "day"], where="day = 4", threads=4)
        assert sorted(found.to_pylist(), key=str) == [
            {"id": number, "day": 4} for number in (1, 2, 3)
        ]


def test_a_scan_function_is_a_table():
    def scan(ctx, options):
        yield from ROWS.to_batches(max_chunksize=1)

    assert read(scan, arrow_schema=ROWS.schema).equals(ROWS)


def test_an_arrow_schema_is_an_empty_table_that_can_be_filled():
    builder = sp.CatalogBuilder("c")
    builder.schema("s").table("t", ROWS.schema, constraints=Constraints(primary_key=("id",)))
    with (
        sp.Server(builder, "grpc://127.0.0.1:0") as server,
        DuckDBClient(server.location, "c") as client,
    ):
        assert client.insert("s", "t", ROWS).total == 3
        assert client.count("s", "t") == 3


def test_what_is_added_later_is_served_to_those_who_attach_then():
    builder = sp.CatalogBuilder("c")
    schema = builder.schema("s")
    with sp.Server(builder, "grpc://127.0.0.1:0") as server:
        schema.table("late", ROWS)
        with DuckDBClient(server.location, "c") as client:
            assert client.count("s", "late") == 3


@pytest.mark.parametrize(
    ("source", "options", "error", "says"),
    [
        (lambda ctx, options: [], {}, sp.BadRequest, "arrow_schema"),
        (42, {}, sp.BadRequest, "int cannot be served"),
        ("/nowhere/at/all", {}, sp.NotFound, "no Parquet file"),
        (
            ds.dataset(ROWS),
            {"constraints": Constraints(not_null=("id",))},
            sp.BadRequest,
            "read-only",
        ),
        (pa.table({"x": pa.array([1.0], pa.float16())}), {}, sp.Unsupported, "column x"),
        (pa.table({"rowid": [1]}), {}, sp.BadRequest, "rowid"),
        (ROWS, {"constraints": Constraints(checks=("id >",))}, sp.BadRequest, "id >"),
    ],
    ids=["no schema", "a number", "no file", "constraints", "type", "row id", "check"],
)
def test_what_cannot_be_served_is_refused_at_once(source, options, error, says):
    with pytest.raises(error, match=says):
        sp.CatalogBuilder("c").schema("s").table("t", source, **options)


def test_names_are_taken_once_whatever_their_case():
    builder = sp.CatalogBuilder("c")
    schema = builder.schema("s").table("t", ROWS)
    with pytest.raises(sp.AlreadyExists):
        schema.table("T", ROWS)
    with pytest.raises(sp.AlreadyExists):
        builder.schema("S")


# --------------------------------------------------------------------------------------- functions


def built(builder: sp.CatalogBuilder) -> sp.Schema:
    schema = builder.build().schema(CTX, "s")
    assert schema is not None
    return schema


def test_annotations_are_the_signature_of_a_scalar_function():
    builder = sp.CatalogBuilder("c")
    schema = builder.schema("s")

    @schema.scalar_function
    def with_tax(amount: pa.float64(), rate: pa.float64()) -> pa.float64():
        """Add the tax."""
        return pc.multiply(amount, pc.add(1.0, rate))

    (function,) = built(builder).scalar_functions(CTX)
    assert (function.name, function.comment, function.stability) == (
        "with_tax",
        "Add the tax.",
        Stability.VOLATILE,
    )
    assert [parameter.type for parameter in function.signature.parameters] == [
        pa.float64(),
        pa.float64(),
    ]
    assert function.signature.return_type == pa.float64()
    batch = pa.record_batch({"amount": [100.0, None], "rate": [0.5, 0.5]})
    assert function.execute(CTX, batch).to_pylist() == [150.0, None]


def test_a_table_function_takes_positional_named_and_any_arguments():
    builder = sp.CatalogBuilder("c")
    schema = builder.schema("s")

    @schema.table_function(returns=pa.schema([("n", pa.int64())]), name="numbers")
    def _numbers(upto: pa.int64(), anything: Any, *, start: pa.int64() = 0):
        yield pa.record_batch({"n": pa.array(range(start, upto), pa.int64())})

    (function,) = built(builder).table_functions(CTX)
    assert isinstance(function, TableFunction)
    kinds = [(each.name, each.type, each.kind.value) for each in function.signature.parameters]
    assert kinds == [
        ("upto", pa.int64(), "positional"),
        ("anything", None, "positional"),
        ("start", pa.int64(), "named"),
    ]
    rows = [batch.to_pydict() for batch in function.execute(CTX, [3, "x", None], sp.ScanOptions())]
    assert rows == [{"n": [0, 1, 2]}]
    assert function.schema_for_parameters(CTX, [3, "x", None]).names == ["n"]


def test_a_table_parameter_makes_an_in_out_function():
    builder = sp.CatalogBuilder("c")
    schema = builder.schema("s")

    @schema.table_function(returns=lambda times, arrow_schema: arrow_schema)
    def repeated(times: pa.int64(), rows: pa.Table):
        for batch in rows:
            for _ in range(times):
                yield batch

    (function,) = built(builder).table_functions(CTX)
    assert isinstance(function, TableInOutFunction)
    assert function.schema_for_input(CTX, [2], ROWS.schema) == ROWS.schema
    assert sum(batch.num_rows for batch in function.process(CTX, [2], ROWS.to_batches())) == 6


def test_functions_without_arrow_annotations_are_refused():
    schema = sp.CatalogBuilder("c").schema("s")
    with pytest.raises(sp.BadRequest, match="annotate parameter x"):
        schema.scalar_function(lambda x: x)
    with pytest.raises(sp.BadRequest, match="return annotation"):

        @schema.scalar_function
        def nothing(x: pa.int64()): ...

    with pytest.raises(sp.BadRequest, match="last"):

        @schema.table_function(returns=ROWS.schema)
        def wrong(rows: pa.Table, times: pa.int64()): ...
