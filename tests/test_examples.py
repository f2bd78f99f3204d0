"""Each example runs as its docstring says, and the SQL there does what is written beside it.

DuckDBClient stands in for DuckDB, so that no extension is needed; statements are those of the
docstrings, in their order.
"""

import ast
import datetime
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from adbc_driver_flightsql import dbapi
from adbc_driver_manager import ProgrammingError

import sparkport as sp
from sparkport.testing import DuckDBClient, ServerError

ROOT = Path(__file__).parent.parent
EXAMPLES = {path.stem: path for path in sorted((ROOT / "examples").glob("*.py"))}
LOCATION = "grpc://127.0.0.1:50051"
"""What all docstrings say."""
ON_A_FREE_PORT = """
import runpy, sys
from sparkport.server import listen
class Server(listen.Server):
    def __init__(self, catalogs, location, settings):
        print("asked for", location, flush=True)
        super().__init__(catalogs, "grpc://127.0.0.1:0", settings)
listen.Server = Server
runpy.run_path(sys.argv[1], run_name="__main__")
"""
"""Runs a program as `python program.py` does, but for the port: that which it asks for is printed
and not taken.
"""
SECONDS = 40.0

TESTED: set[str] = set()


def example(name: str) -> Any:
    """Gives a test the location where this example is being served."""
    TESTED.add(name)
    return pytest.mark.parametrize("location", [name], indirect=True)


@contextmanager
def process(*command: str) -> Iterator[subprocess.Popen[str]]:
    """A server, stopped at the end as by an operator, which must succeed. It cannot outlive its
    time.
    """
    server = subprocess.Popen(
        [sys.executable, *command], stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    watchdog = threading.Timer(SECONDS, server.kill)
    watchdog.start()
    try:
        yield server
        server.send_signal(signal.SIGTERM)
        assert server.wait(SECONDS) == 0
    finally:
        watchdog.cancel()
        server.kill()
        server.communicate(timeout=SECONDS)
        watchdog.join()


def printed_location(server: subprocess.Popen[str]) -> str:
    assert server.stdout is not None
    for line in server.stdout:
        found = re.search(r" on (grpc://[\d.]+:\d+) ", line)
        if found is not None:
            return found[1]
    raise AssertionError("the server ended before it was ready")


@pytest.fixture
def location(request: pytest.FixtureRequest) -> Iterator[str]:
    with process("-c", ON_A_FREE_PORT, str(EXAMPLES[request.param])) as server:
        yield printed_location(server)


def tuples(rows: pa.Table | None) -> list[tuple[Any, ...]]:
    assert rows is not None
    return [tuple(row.values()) for row in rows.to_pylist()]


# ------------------------------------------------------------------------------------ the examples


@example("hello_table")
def test_a_table_is_read_and_written_and_another_made_up(location):
    with DuckDBClient(location, "hello") as client:
        assert tuples(client.scan("sales", "orders")) == [(1, 9.5), (2, 12.0)]
        assert client.insert("sales", "orders", {"id": [3], "amount": [1.5]}).total == 1
        assert client.scan("sales", "orders").column("amount").to_pylist() == [9.5, 12.0, 1.5]
        assert client.scan("sales", "numbers", where="n < 1000").column("n").to_pylist() == list(
            range(1000)
        )
        assert client.count("sales", "numbers") == 1_000_000


@example("parquet_folder")
def test_parquet_files_are_read_by_the_server_or_by_duckdb(location):
    with DuckDBClient(location, "files") as client:
        for table in ("served", "referenced"):
            amounts = client.scan("sales", table).column("amount").to_pylist()
            assert (len(amounts), sum(amounts)) == (300, 44850.0)
        later = client.scan("sales", "served", ["id"], where="day >= '2026-02-01'")
        assert min(later.column("id").to_pylist()) == 100
        called = client.scan("sales", "called").sort_by("id").to_pylist()
        files = {Path(row["file"]).name: row["id"] for row in reversed(called)}
        assert files == {"2026-01.parquet": 0, "2026-02.parquet": 100, "2026-03.parquet": 200}


@example("functions")
def test_functions_are_called_for_rows_and_in_from(location):
    with DuckDBClient(location, "tools") as client:
        assert client.call("maths", "gross", {"net": [100]}).to_pylist() == [120.0]
        assert client.call("maths", "gross", {"net": [100], "rate": [0.5]}).to_pylist() == [150.0]
        assert client.call("maths", "gross", {"net": [1, None]}).to_pylist() == [1.2, None]
        assert client.call("maths", "joined", {"1": ["a"], "2": ["b"], "3": ["c"]}).to_pylist() == [
            "a-b-c"
        ]
        assert client.call("maths", "ticket", [], rows=3).to_pylist() == [1, 2, 3]
        assert client.table_function("maths", "countdown", 3).column("n").to_pylist() == [3, 2, 1]
        stepped = client.table_function("maths", "countdown", 10, named={"step": 5})
        assert stepped.column("n").to_pylist() == [10, 5]
        with pytest.raises(ServerError, match="the step must be at least 1, not 0") as raised:
            client.table_function("maths", "countdown", 3, named={"step": 0})
        assert raised.value.duckdb_exception == "InvalidInputException"


@example("in_out")
def test_rows_of_a_subquery_are_answered_with_rows(location):
    with DuckDBClient(location, "rows") as client:
        words = ["to", "be", "or", "not", "to", "be"]
        for lines in [" ".join(words)], ["to be", "or not to be"]:
            assert (
                client.in_out("work", "words", rows=pa.table({"line": lines}))
                .column("word")
                .to_pylist()
                == words
            )
        numbers = pa.table({"i": range(5000), "odd": [i % 2 or None for i in range(5000)]})
        assert tuples(client.in_out("work", "filled", rows=numbers)) == [("i", 5000), ("odd", 2500)]
        numbered = client.in_out("work", "numbered", 10, rows=pa.table({"letter": ["a", "b"]}))
        assert numbered.to_pylist() == [
            {"letter": "a", "number": 10},
            {"letter": "b", "number": 11},
        ]
        assert client.in_out("work", "numbered", 0, rows=numbers).column(
            "number"
        ).to_pylist() == list(range(5000))


@example("ddl_and_dml")
def test_schemas_tables_columns_and_rows_are_changed(location):
    with DuckDBClient(location, "shop") as client:
        items = {"id": [1, 2], "name": ["tea", "cup"], "quantity": [5, 3]}
        inserted = client.insert("stock", "items", items, returning=True).rows
        assert inserted is not None
        assert inserted.to_pydict() == items
        with pytest.raises(
            ServerError, match='Duplicate key "id: 2" violates primary key'
        ) as raised:
            client.insert("stock", "items", {"id": [2], "name": ["mug"], "quantity": [1]})
        assert raised.value.duckdb_exception == "ConstraintException"
        with pytest.raises(ServerError, match="CHECK constraint failed on table items") as raised:
            client.update("stock", "items", {"quantity": "-1"})
        assert raised.value.duckdb_exception == "ConstraintException"
        updated = client.update(
            "stock", "items", {"quantity": "quantity * 2"}, where="id = 1", returning=True
        )
        assert tuples(updated.rows) == [(1, "tea", 10)]

        client.create_schema("reports")
        assert client.create_table_as("reports", "totals", pa.table({"total": [13]})).total == 1
        client.add_column("reports", "totals", "note", "VARCHAR")
        assert client.update("reports", "totals", {"note": "'counted'"}).total == 1
        assert tuples(client.scan("reports", "totals")) == [(13, "counted")]

        assert client.delete("stock", "items", where="name = 'cup'").total == 1
        client.drop_table("reports", "totals")
        client.drop_schema("reports")
        client.detach()
        assert list(client.schemas()) == ["stock"]


@example("time_travel")
def test_the_past_is_read(location):
    with DuckDBClient(location, "past") as client:
        client.insert("shop", "notes", {"id": [1], "text": ["hello"]})
        client.update("shop", "notes", {"text": "'goodbye'"})
        client.add_column("shop", "notes", "author", "VARCHAR")
        assert tuples(client.scan("shop", "notes")) == [(1, "goodbye", None)]
        assert tuples(client.scan("shop", "notes", at=("VERSION", "1"))) == [(1, "hello")]
        now = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(time.time() + 1))
        assert tuples(client.scan("shop", "notes", at=("TIMESTAMP", now))) == [(1, "goodbye", None)]

        assert tuples(client.scan("shop", "prices")) == [("tea", 3.5), ("cup", 8.0)]
        assert tuples(client.scan("shop", "prices", at=("TIMESTAMP", "2025-06-30 12:00:00"))) == [
            ("tea", 3.0)
        ]
        assert tuples(client.scan("shop", "prices", at=("TIMESTAMP", "2024-12-31 12:00:00"))) == []
        with pytest.raises(ServerError, match="prices have no versions"):
            client.scan("shop", "prices", at=("VERSION", "1"))


@example("auth")
def test_only_those_with_a_token_are_served_and_known_by_their_name(location):
    with DuckDBClient(location, "office", token="ada-token") as ada:
        assert ada.call("desk", "who", [], rows=1).to_pylist() == ["ada"]
        assert tuples(ada.scan("desk", "letters")) == [("ada", "Dear Ada")]
        assert tuples(ada.table_function("desk", "salaries")) == [("ada", 100), ("grace", 120)]
    with DuckDBClient(location, "office", token="grace-token") as grace:
        assert tuples(grace.scan("desk", "letters")) == [("grace", "Dear Grace")]
        with pytest.raises(ServerError, match="grace may not see salaries") as raised:
            grace.table_function("desk", "salaries")
        assert raised.value.duckdb_exception == "PermissionException"
    # DuckDB does not send the token of ATTACH along with everything; what it was handed out stands
    # for it.
    with DuckDBClient(location, "office", attach_token="ada-token") as ada:
        assert tuples(ada.scan("desk", "letters")) == [("ada", "Dear Ada")]
    for token in (None, "someone-else"):
        with DuckDBClient(location, "office", token=token) as stranger:
            with pytest.raises(ServerError, match="token") as raised:
                stranger.scan("desk", "letters")
            assert raised.value.code == "UNAUTHENTICATED"


@example("several_catalogs")
def test_one_server_serves_several_catalogs(location):
    with DuckDBClient(location, "sales") as sales, DuckDBClient(location, "people") as people:
        assert tuples(sales.take_flight(["__databases"])) == [("sales", None), ("people", None)]
        orders = sales.scan("shop", "orders")
        assert tuples(orders) == [(1, 9.5), (2, 12.0), (1, 1.5)]
        assert tuples(people.scan("directory", "customers")) == [(1, "Ada"), (2, "Grace")]
        people.create_table_as(
            "directory", "best", sales.scan("shop", "orders", ["customer"], where="amount > 9")
        )
        assert people.scan("directory", "best").column("customer").to_pylist() == [1, 2]


@example("own_sql")
def test_a_catalog_runs_sql_by_itself(location):
    with DuckDBClient(location, "books") as client:
        assert tuples(client.scan("library", "loans")) == [("ada", 3), ("grace", 5), ("ada", 2)]
    limits = {f"adbc.flight.sql.rpc.timeout_seconds.{each}": "30" for each in ("query", "fetch")}
    with (
        dbapi.connect(location, db_kwargs=limits, autocommit=True) as connection,
        connection.cursor() as cursor,
    ):
        cursor.execute("SELECT who, count(*) AS n FROM loans GROUP BY who ORDER BY who")
        assert cursor.fetchall() == [("ada", 2), ("grace", 1)]
        cursor.execute("SELECT days FROM loans WHERE who = ?", ("grace",))
        assert cursor.fetchall() == [(5,)]
        for refused in (
            "DELETE FROM loans",
            "SELECT 1; SELECT 2",
            "SELECT nothing FROM loans",
            "FROM read_csv('/etc/passwd')",
            "SET threads = 1",
        ):
            with pytest.raises(ProgrammingError, match="INVALID_ARGUMENT"):
                cursor.execute(refused)


# ------------------------------------------------------------------------------- what they promise


def test_every_example_has_a_test():
    assert set(EXAMPLES) == TESTED


def docstring(name: str) -> str:
    return ast.get_docstring(ast.parse(EXAMPLES[name].read_text(encoding="utf-8"))) or ""


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_docstring_says_how_to_run_and_attach_it_in_sql_that_duckdb_can_read(name):
    text = docstring(name)
    sql = "\n".join(
        line for line in text.partition("in Python:")[0].splitlines() if line.startswith("    ")
    )

    assert f"`python examples/{name}.py`" in text
    assert f"examples/{name}.py:" in text
    assert {found[0] for found in re.finditer(r"grpc://[^']*", sql)} == {LOCATION}
    assert len(duckdb.extract_statements(sql)) >= 6


def test_the_readme_names_every_example_and_its_code_can_be_read():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```(\w+)\n(.*?)```", readme, re.DOTALL)

    assert set(re.findall(r"\(examples/(\w+)\.py\)", readme)) == set(EXAMPLES)
    for language, code in blocks:
        if language == "python":
            ast.parse(code)
        elif language == "sql":
            assert duckdb.extract_statements(code)


def test_the_command_line_serves_what_the_docstrings_name():
    documented = "\n".join(docstring(name) for name in EXAMPLES)
    targets = re.findall(r"examples/\w+\.py:\w+", documented)
    catalogs = set(re.findall(r"ATTACH '(\w+)'", documented))

    with process(
        "-m", "sparkport", "serve", *targets, "--location", "grpc://127.0.0.1:0"
    ) as server:
        location = printed_location(server)
        for catalog in catalogs:
            with DuckDBClient(location, catalog) as client:
                assert client.schemas(), catalog
    assert len(catalogs) == len(targets) == len(EXAMPLES) + 1  # one of them has two


def test_a_program_serves_where_its_docstring_says():
    with process("-c", ON_A_FREE_PORT, str(EXAMPLES["hello_table"])) as server:
        assert server.stdout is not None
        assert server.stdout.readline() == f"asked for {LOCATION}\n"
        with DuckDBClient(printed_location(server), "hello") as client:
            assert tuples(client.scan("sales", "orders")) == [(1, 9.5), (2, 12.0)]


def test_the_demo_catalog_can_be_read():
    from sparkport.builder.demo import demo_catalog

    with (
        sp.Server(demo_catalog(), "grpc://127.0.0.1:0") as server,
        DuckDBClient(server.location, "demo") as client,
    ):
        assert client.count("shop", "orders") == 100_000
        assert client.scan("shop", "customers", where="country = 'NL'").column(
            "name"
        ).to_pylist() == ["Edsger"]
        assert client.call("shop", "gross", {"net": [100.0, None]}).to_pylist() == [120.0, None]
        assert client.call("shop", "gross", {"net": [100.0], "rate": [0.5]}).to_pylist() == [150.0]
        first = datetime.date(2026, 2, 27)
        found = (
            client.table_function("shop", "days", first, 2, named={"step": 7})
            .column("day")
            .to_pylist()
        )
        assert found == [first, datetime.date(2026, 3, 6)]
        with pytest.raises(ServerError, match="days wants a first day, and a count"):
            client.table_function("shop", "days", pa.scalar(None, pa.date32()), 2)
        counted = client.in_out("shop", "counted", rows=pa.table({"n": range(5000)}))
        assert counted.to_pylist() == [{"rows": 5000, "batches": 3}]
        assert client.action("ping", "hello") == [b"hello"]
