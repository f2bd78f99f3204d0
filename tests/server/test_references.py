"""Tables that DuckDB reads by itself: the server only says where (airport §5.8)."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pc_csv
import pyarrow.flight as flight
import pyarrow.parquet as pq
import pytest
from tests.server.test_threads import eventually

import sparkport as sp
from sparkport.catalog import (
    FileReference,
    FunctionCall,
    RecordReader,
    Reference,
    TableRef,
    rowid_field,
)
from sparkport.errors import CatalogFault
from sparkport.testing import DuckDBClient, ServerError

ROWS = pa.table({"id": pa.array([1, 2, 3], pa.int64()), "name": pa.array(["a", None, "ä"])})
OPTIONS = flight.FlightCallOptions(timeout=15)
REUSE = "arrow-flight-reuse-connection://?"


@pytest.fixture
def serve(request):
    """Start a server with a table `s.t`, and attach a client to it."""

    def serve(source: Any, arrow_schema: pa.Schema | None = ROWS.schema) -> DuckDBClient:
        builder = sp.CatalogBuilder("c")
        builder.schema("s").table("t", source, arrow_schema=arrow_schema)
        server = sp.Server(builder, "grpc://127.0.0.1:0").start()
        request.addfinalizer(lambda: server.stop(0))
        client = DuckDBClient(server.location, "c", timeout=15)
        request.addfinalizer(client.close)
        client.location = server.location  # type: ignore[attr-defined]
        return client

    return serve


def through_arrow(client: Any, name: str = "t") -> pa.Table:
    """The table as a Flight client reads it that is not DuckDB."""
    with flight.connect(client.location) as connection:
        info = connection.get_flight_info(flight.FlightDescriptor.for_path("c", "s", name), OPTIONS)
        parts = [
            connection.do_get(endpoint.ticket, OPTIONS).read_all() for endpoint in info.endpoints
        ]
        return pa.concat_tables(parts) if parts else info.schema.empty_table()


def written(folder: Path, kind: str, rows: pa.Table = ROWS, name: str = "rows") -> FileReference:
    """The rows in a file of that format."""
    path = folder / f"{name}.{kind}"
    if kind == "parquet":
        pq.write_table(rows, path)
        return FileReference("parquet", str(path))
    make = pa.ipc.new_file if kind == "ipc-file" else pa.ipc.new_stream
    with make(path, rows.schema) as writer:
        writer.write_table(rows, max_chunksize=2)
    return FileReference("ipc-file" if kind == "ipc-file" else "ipc-stream", path.as_uri())


FORMATS = ("parquet", "ipc-file", "ipc-stream")


# --------------------------------------------------------------------------------------- by DuckDB


@pytest.mark.parametrize("kind", FORMATS)
def test_duckdb_reads_a_file_by_itself(serve, tmp_path, kind):
    client = serve(written(tmp_path, kind))

    assert client.scan("s", "t").equals(ROWS)
    assert client.scan("s", "t", ["name"], where="id > 2").to_pylist() == [{"name": "ä"}]
    assert client.count("s", "t") == 3


def test_the_rows_do_not_pass_through_the_server(serve, tmp_path):
    reference = written(tmp_path, "parquet")

    class Table(TableRef):
        name = "t"
        arrow_schema = ROWS.schema

        def references(self, ctx: sp.Context, options: sp.ScanOptions) -> list[Reference]:
            return [reference]

        def scan(self, ctx: sp.Context, options: sp.ScanOptions) -> RecordReader:
            raise AssertionError("read by the server")

    assert serve(Table()).scan("s", "t").equals(ROWS)


def test_duckdb_reads_several_files_as_one_table(serve, tmp_path):
    parts = [
        written(tmp_path, "parquet", ROWS.slice(number, 1), str(number)) for number in range(3)
    ]

    client = serve(parts)

    assert client.scan("s", "t", threads=3).equals(ROWS)
    assert client.scan("s", "t", threads=1).equals(ROWS)


def test_files_of_several_formats_may_be_one_table(serve, tmp_path):
    client = serve([written(tmp_path, kind) for kind in FORMATS])

    assert client.scan("s", "t").equals(pa.concat_tables([ROWS] * 3))


def test_no_files_are_no_rows(serve):
    client = serve([])

    assert client.scan("s", "t").equals(ROWS.schema.empty_table())
    assert client.count("s", "t") == 0
    assert through_arrow(client).equals(ROWS.schema.empty_table())


def test_a_column_that_a_file_lacks_reads_as_null(serve, tmp_path):
    schema = ROWS.schema.append(pa.field("more", pa.float64()))
    expected = [{**row, "more": None} for row in ROWS.to_pylist()]

    client = serve(written(tmp_path, "parquet"), schema)

    assert client.scan("s", "t").to_pylist() == expected
    assert through_arrow(client).to_pylist() == expected


def test_columns_may_stand_in_another_order_in_the_file_and_others_beside_them(serve, tmp_path):
    rows = ROWS.select(["name", "id"]).append_column("more", pa.array([1.5] * 3))

    client = serve(written(tmp_path, "parquet", rows))

    assert client.scan("s", "t").equals(ROWS)
    assert through_arrow(client).equals(ROWS)


def test_names_of_files_may_hold_anything(serve, tmp_path):
    folder = tmp_path / "ä b%20'c"
    folder.mkdir()
    for kind in FORMATS:
        client = serve(written(folder, kind))
        assert client.scan("s", "t").equals(ROWS)
        assert through_arrow(client).equals(ROWS)


# ---------------------------------------------------------------------------------- function calls


def test_duckdb_calls_a_function_of_its_own(serve, tmp_path):
    pc_csv.write_csv(pa.table({"id": [1, 2], "name": ["x", "y"]}), tmp_path / "rows.csv")
    reference = FunctionCall(
        "read_csv", (str(tmp_path / "rows.csv"),), {"header": True, "all_varchar": False}
    )

    client = serve(reference)

    assert client.scan("s", "t").to_pylist() == [{"id": 1, "name": "x"}, {"id": 2, "name": "y"}]


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (FunctionCall("range", (3,)), [0, 1, 2]),
        (FunctionCall("range", (1, 10, 4)), [1, 5, 9]),
        (FunctionCall("range", (pa.scalar(1, pa.int8()), pa.scalar(3, pa.int64()))), [1, 2]),
    ],
    ids=["one argument", "three arguments", "arrow scalars"],
)
def test_arguments_come_in_their_order(serve, call, expected):
    client = serve(call, pa.schema([("range", pa.int64())]))

    assert client.scan("s", "t").column("range").to_pylist() == expected


def test_a_function_may_be_called_with_many_arguments_and_lists(serve, tmp_path):
    paths = []
    for number in range(12):
        pq.write_table(ROWS.slice(0, 1), tmp_path / f"{number}.parquet")
        paths.append(str(tmp_path / f"{number}.parquet"))

    client = serve(
        FunctionCall("read_parquet", (paths,), {"filename": False, "union_by_name": True})
    )

    assert client.count("s", "t") == 12


def test_a_function_may_be_called_without_arguments(serve):
    client = serve(
        FunctionCall("pragma_database_size"), pa.schema([("database_name", pa.string())])
    )

    assert client.scan("s", "t").to_pylist() == [{"database_name": "memory"}]


def test_a_function_and_files_may_be_one_table(serve, tmp_path):
    pq.write_table(pa.table({"range": [7]}), tmp_path / "rows.parquet")
    references = [
        FileReference("parquet", str(tmp_path / "rows.parquet")),
        FunctionCall("range", (2,)),
    ]

    client = serve(references, pa.schema([("range", pa.int64())]))

    assert client.scan("s", "t", threads=1).column("range").to_pylist() == [7, 0, 1]


def test_names_of_arguments_that_would_be_taken_for_positions_are_refused():
    with pytest.raises(CatalogFault, match="arg_"):
        FunctionCall("range", (), {"arg_0": 3})


def test_an_argument_that_arrow_cannot_hold_is_a_fault(serve):
    client = serve(FunctionCall("range", (object(),)))

    with pytest.raises(ServerError, match="an argument of range") as caught:
        client.scan("s", "t")

    assert (caught.value.code, caught.value.stalls) == ("UNKNOWN", False)


# ----------------------------------------------------------------------------------- other clients


@pytest.mark.parametrize("kind", FORMATS)
def test_another_client_is_sent_the_rows_of_the_files(serve, tmp_path, kind):
    client = serve([written(tmp_path, kind), written(tmp_path, kind, name="more")])

    assert through_arrow(client).equals(pa.concat_tables([ROWS] * 2))


def test_a_uri_with_a_scheme_is_read_by_all(serve, tmp_path):
    written(tmp_path, "parquet")
    client = serve(FileReference("parquet", (tmp_path / "rows.parquet").as_uri()))

    assert client.scan("s", "t").equals(ROWS)
    assert through_arrow(client).equals(ROWS)


def test_another_client_is_told_that_only_duckdb_can_call_the_function(serve):
    client = serve(FunctionCall("range", (3,)), pa.schema([("range", pa.int64())]))

    with pytest.raises(
        NotImplementedError, match="table t can be read only by DuckDB, which calls range"
    ):
        through_arrow(client)


@pytest.mark.parametrize("kind", FORMATS)
def test_a_file_that_is_not_there_is_a_fault_that_does_not_tell_where_it_should_be(
    serve, tmp_path, kind
):
    reference = written(tmp_path, kind)
    client = serve(reference)
    next(tmp_path.iterdir()).unlink()

    with pytest.raises(flight.FlightError, match="cannot be read by the server") as caught:
        through_arrow(client)

    assert str(tmp_path) not in str(caught.value)


@pytest.mark.parametrize("kind", FORMATS)
def test_a_file_that_is_broken_is_a_fault(serve, tmp_path, kind):
    client = serve(written(tmp_path, kind))
    path = next(tmp_path.iterdir())
    path.write_bytes(path.read_bytes()[:40])

    with pytest.raises(flight.FlightError, match="cannot be read by the server"):
        through_arrow(client)


def test_reading_files_for_others_leaves_none_open(serve, tmp_path):
    client = serve([written(tmp_path, kind) for kind in FORMATS])

    def held() -> int:
        return sum(
            str(tmp_path) in str(link.resolve())
            for link in Path("/proc/self/fd").iterdir()
            if link.exists()
        )

    for _ in range(3):
        through_arrow(client)

    assert eventually(lambda: held() == 0)


# ---------------------------------------------------------------------------- what is not possible


def test_a_row_id_is_refused_and_the_other_tables_stay(tmp_path, caplog):
    """With a row id, count(*) would make the DuckDB instance unusable (T40)."""
    builder = sp.CatalogBuilder("c")
    schema = builder.schema("s").table("good", ROWS)
    reference = written(tmp_path, "parquet")
    schema.table("t", reference, arrow_schema=ROWS.schema.append(rowid_field()))
    with (
        caplog.at_level(logging.WARNING),
        sp.Server(builder, "grpc://127.0.0.1:0") as server,
        DuckDBClient(server.location, "c", timeout=15) as client,
    ):
        assert set(client.tables("s")) == {"good"}
    assert "row id" in caplog.text


def test_the_columns_must_be_told(tmp_path):
    schema = sp.CatalogBuilder("c").schema("s")

    with pytest.raises(sp.BadRequest, match="arrow_schema"):
        schema.table("t", written(tmp_path, "parquet"))


def test_such_a_table_cannot_be_written_to(serve, tmp_path):
    client = serve(written(tmp_path, "parquet"))

    with pytest.raises(ServerError, match="INSERT") as caught:
        client.insert("s", "t", ROWS)

    assert caught.value.code == "FAILED_PRECONDITION"
    assert client.scan("s", "t").equals(ROWS)


def test_what_is_referred_to_may_depend_on_what_is_asked_for(serve, tmp_path):
    seen: list[sp.ScanOptions] = []
    reference = written(tmp_path, "parquet")

    class Table(TableRef):
        name = "t"
        arrow_schema = ROWS.schema

        def references(self, ctx: sp.Context, options: sp.ScanOptions) -> list[Reference]:
            seen.append(options)
            return [reference]

    serve(Table()).scan("s", "t", ["name"], where="id = 1")

    assert seen[0].columns is not None
    assert set(seen[0].columns) == {"id", "name"}
    assert seen[0].filter is not None
