"""The lake by ADBC's driver: secure connections, types, prepared statements, errors."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import date, datetime, timezone
from decimal import Decimal
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight
import pytest
from adbc_driver_flightsql import dbapi
from adbc_driver_manager import AdbcStatusCode, Error
from tests.parts.wheels import installed
from tests.server.certificates import Authority
from tests.server.protobuf import command, message, unwrapped
from tests.server.raw_client import RawClient
from tests.spark import frames
from tests.spark.adbc_lake import (
    COLUMNS,
    SECONDS,
    connection,
    cursor,
    refused,
    server,
    table,
)
from tests.spark.lake_tables import create, find, sql_name, values
from tests.spark.running import run

import sparkport as sp
from sparkport.server import Server

__all__ = ["connection", "cursor", "run", "server", "table"]

_FRAMES = (
    {"pandas": "3.1.1", "polars": "2.1.0"} if sys.version_info >= (3, 11) else {"pandas": "2.3.3"}
)
"""The libraries of frames that are tried, with their versions."""

# --------------------------------------------------------------------------------------- connecting


def test_a_connection_has_a_token_and_tls(lake, table):
    authority = Authority()
    pair = authority.sign()
    settings = sp.ServerSettings(
        authenticate=sp.TokenAuthenticator({"secret": "ada"}),
        tls_certificate=pair.certificate,
        tls_key=pair.key,
    )
    trust = {"adbc.flight.sql.client_option.tls_root_certs": authority.certificate.decode()}

    def count(options: dict[str, str]) -> Any:
        with (
            dbapi.connect(location, db_kwargs=SECONDS | options, autocommit=True) as connection,
            connection.cursor() as cursor,
        ):
            cursor.execute(f"SELECT count(*) FROM {table}")
            return cursor.fetchone()

    def token(secret: str) -> dict[str, str]:
        return {"adbc.flight.sql.authorization_header": f"Bearer {secret}"}

    with Server(lake, "grpc+tls://127.0.0.1:0", settings) as server:
        location = server.location.replace("grpc+tls://0.0.0.0", "grpc+tls://127.0.0.1")
        assert count(trust | token("secret")) == (2,)
        for options in (trust | token("wrong"), trust):
            assert refused(partial(count, options)) is AdbcStatusCode.UNAUTHENTICATED
        assert refused(lambda: count(token("secret"))) is AdbcStatusCode.IO


# ------------------------------------------------------------------------------------------ results


@pytest.mark.parametrize("query", ["SELECT id, name FROM {}", "SELECT id, name FROM {} ORDER BY 1"])
def test_rows_come_as_arrow(cursor, table, query):
    cursor.execute(query.format(table))
    found = cursor.fetch_arrow_table()
    assert found.schema.types == [pa.int64(), pa.string()]
    assert sorted(found.to_pydict()["id"]) == [1, 2]


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_frames_are_ingested_and_read(server, lake, namespace, library):
    if library not in _FRAMES:
        pytest.skip("polars needs a newer Python")
    packages = installed(
        f"frames-{'-'.join(_FRAMES)}", [f"{each}=={_FRAMES[each]}" for each in _FRAMES]
    )
    run = subprocess.run(
        [sys.executable, frames.__file__, server.location, namespace, library],
        env={**os.environ, "PYTHONPATH": str(packages)},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert not run.returncode, run.stderr[-3000:]
    rows = [(1, "ann"), (2, None), (3, "cy")]
    assert json.loads(run.stdout) == [list(map(list, rows))] * 2
    assert sorted(values(find(lake, namespace, "t"), "id", "name")) == rows


# --------------------------------------------------------------------------------------- parameters

UTC = timezone.utc
PARAMETERS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "b": (pa.bool_(), [True, False]),
    "i8": (pa.int8(), [-128, 127]),
    "i32": (pa.int32(), [-(2**31), 2**31 - 1]),
    "i64": (pa.int64(), [-(2**63), 2**63 - 1]),
    "u32": (pa.uint32(), [0, 2**32 - 1]),
    "f32": (pa.float32(), [1.5, float("-inf")]),
    "f64": (pa.float64(), [1e300, -0.1]),
    "d": (pa.decimal128(20, 4), [Decimal("12.3400"), Decimal("-9999999999999999.9999")]),
    "day": (pa.date32(), [date(1900, 2, 28), date(2024, 2, 29)]),
    "ts": (pa.timestamp("us"), [datetime(2024, 2, 29, 1, 2, 3, 456789), datetime(1900, 1, 1)]),
    "tz": (
        pa.timestamp("us", "UTC"),
        [datetime(2024, 2, 29, 1, 2, 3, 456789, UTC), datetime(1969, 12, 31, 23, tzinfo=UTC)],
    ),
    "ns": (pa.timestamp("ns"), [datetime(2024, 2, 29, 1, 2, 3, 456789), datetime(1970, 1, 1)]),
    "bin": (pa.binary(), [b"\x00\xff", b""]),
    "s": (pa.string(), ["it's `ü` \\ 🦆", ""]),
    "ls": (pa.large_string(), ["x" * 1000, ""]),
    "list": (pa.list_(pa.int64()), [[1, 2], []]),
    "struct": (
        pa.struct([("a", pa.int32()), ("b", pa.string())]),
        [{"a": 1, "b": "x"}, {"a": None, "b": None}],
    ),
    "map": (pa.map_(pa.string(), pa.int64()), [[("k", 1)], []]),
}


def test_parameters_of_a_query_keep_their_values(cursor):
    markers = ", ".join(f"? AS {name}" for name in PARAMETERS)
    given = batch_of(PARAMETERS)
    for at in range(len(given)):
        cursor.execute(f"SELECT {markers}", given.slice(at, 1))
        assert cursor.fetch_arrow_table().to_pylist() == given.slice(at, 1).to_pylist()
    with pytest.raises(Error, match=r"CAST\(\? AS"):
        cursor.execute("SELECT ? AS x", pa.record_batch({"x": [1, 2**40]}))


def batch_of(columns: dict[str, tuple[pa.DataType, list[Any]]]) -> pa.RecordBatch:
    """Rows of all these values, and a row of NULLs."""
    arrays = [pa.array([*found, None], kind) for kind, found in columns.values()]
    return pa.record_batch(arrays, names=list(columns))


def test_parameters_are_stored_as_they_are(cursor, lake, namespace):
    names = ("b", "i32", "i64", "f64", "d", "day", "ts", "tz", "bin", "s", "list", "struct", "map")
    given = batch_of({name: PARAMETERS[name] for name in names})
    numbers = pa.array(range(len(given)), pa.int32())
    create(lake, namespace, "t", pa.schema([("n", pa.int32()), *given.schema]))
    rows = pa.record_batch([numbers, *given.columns], names=["n", *names])
    cursor.executemany(
        f"INSERT INTO {namespace}.t VALUES ({', '.join('?' for _ in rows.schema)})", rows
    )
    assert cursor.rowcount == len(rows)
    cursor.execute(f"SELECT * FROM {namespace}.t ORDER BY n")
    assert cursor.fetch_arrow_table().to_pylist() == rows.to_pylist()
    for name in ("b", "i64", "d", "day", "ts", "tz", "bin", "s"):
        condition = pa.record_batch([given[name][:1]], names=["x"])
        cursor.execute(f"SELECT n FROM {namespace}.t WHERE {name} = ?", condition)
        assert cursor.fetchall() == [(0,)], name


def test_many_rows_of_parameters_are_stored(cursor, lake, namespace):
    create(lake, namespace, "t", COLUMNS)
    ids = range(20_000)
    rows = pa.record_batch({"id": list(ids), "name": [f"n{each}" for each in ids]})
    cursor.executemany(f"INSERT INTO {namespace}.t (id, name) VALUES (?, ?)", rows)
    assert cursor.rowcount == len(rows)
    cursor.execute(f"SELECT count(*), sum(id), count(DISTINCT name) FROM {namespace}.t")
    assert cursor.fetchone() == (len(rows), sum(ids), len(rows))


# ----------------------------------------------------------------------------- prepared statements


def test_a_prepared_query_follows_its_table(lake, namespace, cursor, table):
    alter = f"ALTER TABLE {sql_name(lake, namespace, 't')}"
    plain, computed = f"SELECT * FROM {table}", f"SELECT *, 1 AS one FROM {table} WHERE id > ?"

    def columns() -> list[list[str]]:
        found = []
        for query, given in ((plain, None), (computed, (0,))):
            cursor.execute(query, given)
            found.append(cursor.fetch_arrow_table())
            assert found[-1].num_rows == 2
        return [[f"{each.name} {each.type}" for each in one.schema] for one in found]

    one = "one int32"
    assert columns() == [["id int64", "name string"], ["id int64", "name string", one]]
    lake.spark.sql(f"{alter} ADD COLUMN n INT")
    wide = ["id int64", "name string", "n int32"]
    assert columns() == [wide, [*wide, one]]
    lake.spark.sql(f"{alter} ALTER COLUMN n TYPE BIGINT")
    wide[-1] = "n int64"
    assert columns() == [wide, [*wide, one]]
    lake.spark.sql(f"{alter} DROP COLUMN name")
    assert columns() == [["id int64", "n int64"], ["id int64", "n int64", one]]
    lake.spark.sql(f"DROP TABLE {sql_name(lake, namespace, 't')}")
    for query, given in ((plain, None), (computed, (0,))):
        assert refused(partial(cursor.execute, query, given)) is AdbcStatusCode.NOT_FOUND


def test_a_prepared_handle_follows_its_table(lake, namespace, connection, table):
    """The same handle again, which `execute` of another text would replace."""
    alter = f"ALTER TABLE {sql_name(lake, namespace, 't')}"
    with connection.cursor() as cursor, connection.cursor() as changer:
        query = f"SELECT name FROM {table} WHERE id = ?"
        change = f"INSERT INTO {table} VALUES (?, ?)"
        cursor.execute(query, (1,))
        assert cursor.fetchall() == [("ann",)]
        changer.execute(change, (10, "x"))
        lake.spark.sql(f"{alter} ADD COLUMN n INT")
        cursor.execute(query, (10,))
        assert cursor.fetchall() == [("x",)]
        with pytest.raises(Error, match="column") as raised:
            changer.execute(change, (11, "y"))
        assert raised.value.status_code is AdbcStatusCode.INVALID_ARGUMENT
        lake.spark.sql(f"{alter} DROP COLUMN n")
        changer.execute(change, (11, "y"))
        lake.spark.sql(f"{alter} DROP COLUMN name")
        assert refused(lambda: cursor.execute(query, (1,))) is AdbcStatusCode.NOT_FOUND
        assert (
            refused(lambda: changer.execute(change, (12, "z"))) is AdbcStatusCode.INVALID_ARGUMENT
        )
        lake.spark.sql(f"{alter} ADD COLUMN name STRING")
        cursor.execute(query, (1,))
        assert cursor.fetchall() == [(None,)]
    assert sorted(values(find(lake, namespace, "t"), "id")) == [1, 2, 10, 11]


# ------------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("statement", "status", "message"),
    [
        ("SELECT * FORM {}", "INVALID_ARGUMENT", r"Syntax error.*line 1, position 1\d"),
        ("SELECT id,\n  (name FROM {}", "INVALID_ARGUMENT", r"Syntax error.*line 2, position \d"),
        ("SELECT nothing FROM {}", "NOT_FOUND", r"`nothing`.*line 1, position 8"),
        ("SELECT * FROM {}_nope", "NOT_FOUND", r"_nope` cannot be found"),
        ("SELECT id / 0 FROM {}", "INVALID_ARGUMENT", "Division by zero"),
        ("UPDATE {} SET id = id DIV 0", "INVALID_ARGUMENT", "Division by zero"),
        ("DROP TABLE {}", "INVALID_ARGUMENT", "a query, INSERT INTO.*MERGE.*a DROP statement"),
        ("ALTER TABLE {} ADD COLUMN n INT", "INVALID_ARGUMENT", "an ALTER statement"),
        ("CREATE TABLE {}_2 (a INT)", "INVALID_ARGUMENT", "CREATE TABLE AS.* a CREATE statement"),
        ("TRUNCATE TABLE {}", "INVALID_ARGUMENT", "a TRUNCATE statement"),
        ("SELECT 1; DELETE FROM {}", "INVALID_ARGUMENT", "Syntax error.*DELETE"),
        ("INSERT INTO {} VALUES (1, 'x')", "UNKNOWN", "Duplicate key"),
        ("INSERT INTO {} VALUES (NULL, 'x')", "UNKNOWN", "NOT NULL"),
        ("UPDATE {} SET id = 5000", "UNKNOWN", "CHECK|Duplicate key"),
        ("SELECT ? FROM {}", "INVALID_ARGUMENT", "1 parameters, and 0 values"),
        ("DELETE FROM {} WHERE id = ?", "INVALID_ARGUMENT", "1 parameters, and 0 values"),
    ],
)
def test_an_error_has_its_status_and_says_what_is_wrong(
    cursor, lake, namespace, table, statement, status, message
):
    """The driver has no status for FAILED_PRECONDITION, and INTEGRITY for no code of gRPC."""

    def run() -> None:
        cursor.execute(statement.format(table))
        cursor.fetchall()

    with pytest.raises(Error, match=message) as raised:
        run()
    assert raised.value.status_code is AdbcStatusCode[status]
    assert "org.apache" not in str(raised.value)
    assert sorted(values(find(lake, namespace, "t"), "id")) == [1, 2]


def test_a_conflict_of_transactions_ends_the_second(server, lake, namespace, table):
    with (
        dbapi.connect(server.location, db_kwargs=SECONDS) as first,
        dbapi.connect(server.location, db_kwargs=SECONDS) as second,
        first.cursor() as one,
        second.cursor() as other,
    ):
        one.execute(f"UPDATE {table} SET name = 'one' WHERE id = 1")
        other.execute(f"UPDATE {table} SET name = 'other' WHERE id = 1")
        first.commit()
        with pytest.raises(Error, match="changed") as raised:
            second.commit()
        assert raised.value.status_code is AdbcStatusCode.UNKNOWN  # of gRPC's ABORTED
    assert sorted(values(find(lake, namespace, "t"), "name")) == ["bob", "one"]


# ---------------------------------------------------------------------------------------- discovery


def test_the_lake_is_described(connection, namespace, table):
    (catalog,) = connection.adbc_get_objects(db_schema_filter=namespace).read_all().to_pylist()
    ((schema,), name) = catalog["catalog_db_schemas"], catalog["catalog_name"]
    (found,) = schema["db_schema_tables"]
    assert (schema["db_schema_name"], found["table_name"]) == (namespace, "t")
    columns = {each["column_name"]: each["xdbc_type_name"] for each in found["table_columns"]}
    assert columns == {"id": "BIGINT", "name": "VARCHAR"}
    arrow_schema = connection.adbc_get_table_schema("t", db_schema_filter=namespace)
    assert arrow_schema.names == ["id", "name"]
    assert connection.adbc_current_catalog == name
    info = connection.adbc_get_info()
    assert (info["vendor_name"], info["vendor_version"]) == ("Sparkport", sp.__version__)


# ------------------------------------------------------------------------------------- transactions


@pytest.mark.parametrize("kind", ["ended", "altered", "unknown"])
def test_a_transaction_that_is_not_active_changes_nothing(server, run, namespace, table, kind):
    with RawClient(server.location) as raw:
        (answer,) = raw.action("BeginTransaction", command("ActionBeginTransactionRequest"))
        transaction = bytes(unwrapped(answer, "ActionBeginTransactionResult")[1])
        ending = command("ActionEndTransactionRequest", (1, transaction), (2, 1))
        if kind == "ended":
            raw.action("EndTransaction", ending)
        else:
            transaction = transaction[:-1] + b"?" if kind == "altered" else b"nonsense"
            ending = command("ActionEndTransactionRequest", (1, transaction), (2, 1))
        before = run.left("t")

        def asked(name: str, text: str) -> bytes:
            packed = command(name, (1, text), (2, transaction))
            return flight.FlightDescriptor.for_command(packed).serialize()

        change = f"DELETE FROM {table}"
        failures = [
            raw.failure("GetFlightInfo", asked("CommandStatementQuery", f"SELECT * FROM {table}")),
            raw.failure("GetFlightInfo", asked("CommandStatementQuery", change)),
            raw.failure("DoPut", [message((1, asked("CommandStatementUpdate", change)))]),
        ]
        if kind != "ended":  # to commit again is no error
            failures.append(raw.action_failure("EndTransaction", ending))
        for failure in failures:
            assert failure.code in ("FAILED_PRECONDITION", "INVALID_ARGUMENT", "NOT_FOUND")
            assert "transaction" in failure.message.lower()
        assert run.left("t") == before
