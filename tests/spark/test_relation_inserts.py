"""INSERT into Spark tables of other formats: Parquet, ORC, CSV, with and without partitions."""

from __future__ import annotations

import datetime
import itertools
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sparkport.catalog import Context, DMLOptions, Operation, ScanOptions
from sparkport.errors import NotWritable, SparkportError, StaleDescriptor
from sparkport.server import Server
from sparkport.spark import LakeCatalog, LakeSettings
from sparkport.spark.lake.outcomes import OutcomeUnknown
from sparkport.spark.relation import RelationTable
from sparkport.spark.write import relation_inserts
from sparkport.testing import DuckDBClient, ServerError

CTX = Context()
_DATABASE = "relation_inserts"
_NAMES = (f"r{number}" for number in itertools.count(1))
_MOMENT = datetime.datetime(2026, 11, 16, 7, 8, 9, 123456)
_UTC = datetime.timezone.utc


@pytest.fixture(scope="module")
def session(lake, tmp_path_factory) -> Iterator[LakeCatalog]:
    """Spark's session catalog, which has tables of all formats."""
    staging = tmp_path_factory.mktemp("staging of 100%25")  # a name, not a part of a URL
    lake.spark.sql(f"CREATE DATABASE spark_catalog.{_DATABASE}")
    settings = LakeSettings(staging=str(staging))
    with LakeCatalog(
        spark=lake.spark, spark_catalog="spark_catalog", name="session", settings=settings
    ) as catalog:
        yield catalog
    assert not list(staging.rglob("*")), "nothing is left of any statement"
    lake.spark.sql(f"DROP DATABASE spark_catalog.{_DATABASE} CASCADE")


@pytest.fixture(scope="module")
def client(session) -> Iterator[DuckDBClient]:
    with (
        Server(session, "grpc://127.0.0.1:0") as server,
        DuckDBClient(server.location, session.name, timeout=60) as client,
    ):
        yield client


@pytest.fixture
def table(lake, session):
    """Makes a table from what follows its name in CREATE TABLE; without that, returns its rows."""
    name = next(_NAMES)
    sql = f"spark_catalog.{_DATABASE}.{name}"

    def made(definition: str = "") -> Any:
        if not definition:
            return sorted(
                (tuple(row) for row in lake.spark.sql(f"SELECT * FROM {sql}").collect()), key=repr
            )
        lake.spark.sql(f"CREATE TABLE {sql} {definition}")
        return _found(session, name)

    return made


def _found(session: LakeCatalog, name: str) -> Any:
    session._lake.changed()
    schema: Any = session.schema(CTX, _DATABASE)
    return schema.table(CTX, name)


def _columns(table: Any) -> pa.Schema:
    """The columns without the row id, which such a table only shows."""
    arrow_schema = table.arrow_schema
    assert arrow_schema.names[-1] == "rowid"
    return arrow_schema.remove(len(arrow_schema) - 1)


def _insert(table: Any, rows: pa.Table, **options: Any) -> int:
    write = table.stage(CTX, Operation.INSERT, DMLOptions(**options))
    for batch in rows.cast(_columns(table)).to_batches(max_chunksize=2048):
        write.apply(batch)
    return int(write.commit())


def _files(lake: LakeCatalog, table: Any) -> list[Path]:
    place = (
        lake.spark.sql(f"DESCRIBE FORMATTED {table.entry.identifier.sql}")
        .where("col_name = 'Location'")
        .collect()
    )
    folder = Path(place[0]["data_type"].removeprefix("file:"))
    return sorted(
        path
        for path in folder.rglob("*")
        if path.is_file() and not path.name.startswith((".", "_"))
    )


@pytest.mark.parametrize("format", ["PARQUET", "ORC", "CSV"])
def test_duckdb_inserts_into_tables_of_other_formats(client, session, table, format):
    made = table(f"(id BIGINT, name STRING, at DATE) USING {format}")
    day = datetime.date(2026, 11, 16)
    rows = pa.table({"id": pa.array([1, 2], pa.int64()), "name": ["ann", None], "at": [day, None]})
    client.detach()
    client.attach()
    assert client.insert(_DATABASE, made.name, rows).total == 2
    assert client.scan(_DATABASE, made.name).num_rows == 2, "what was added is seen at once"
    returned = client.insert(_DATABASE, made.name, rows.slice(1), returning=True)
    assert (returned.total, returned.rows.to_pylist()) == (1, [{"id": 2, "name": None, "at": None}])
    assert table() == [(1, "ann", day), (2, None, None), (2, None, None)]
    assert client.insert(_DATABASE, made.name, rows.slice(2)).total == 0


_EVERYTHING = (
    "a BOOLEAN, b TINYINT, c SMALLINT, d INT, e BIGINT, f FLOAT, g DOUBLE, h DECIMAL(20, 3), i "
    "STRING, j BINARY, k DATE, l TIMESTAMP, m TIMESTAMP_NTZ, n ARRAY<STRUCT<x: INT, y: STRING>>, o "
    "MAP<STRING, ARRAY<INT>>, p STRUCT<q: STRUCT<r: TIMESTAMP>>, s VARCHAR(5), t CHAR(3)"
)


@pytest.mark.parametrize("format", ["PARQUET", "ORC"])
def test_every_type_arrives_as_it_was_sent(session, table, format):
    made = table(f"({_EVERYTHING}) USING {format}")
    aware = _MOMENT.replace(tzinfo=_UTC)
    row = {
        "a": True,
        "b": -1,
        "c": 2,
        "d": 3,
        "e": 2**62,
        "f": 0.5,
        "g": 1e300,
        "h": Decimal("12345678901234567.125"),
        "i": "ä",
        "j": b"\0\xff",
        "k": datetime.date(1, 1, 1),
        "l": aware,
        "m": _MOMENT,
        "n": [{"x": 1, "y": None}, None],
        "o": [("k", [1, None])],
        "p": {"q": {"r": aware}},
        "s": "five5",
        "t": "abc",
    }
    nothing = dict.fromkeys(row)
    assert _insert(made, pa.Table.from_pylist([row, nothing], _columns(made))) == 2
    (found,) = [
        each
        for batch in made.scan(CTX, ScanOptions(columns=tuple(row)))
        for each in batch.to_pylist()
        if each["e"] is not None
    ]
    assert {
        **found,
        "l": found["l"].astimezone(_UTC),
        "p": {"q": {"r": found["p"]["q"]["r"].astimezone(_UTC)}},
    } == row
    assert len(table()) == 2


def test_intervals_of_days(session, table):
    made = table("(a INTERVAL DAY TO SECOND) USING PARQUET")
    value = datetime.timedelta(days=3, microseconds=7)
    assert (
        _insert(made, pa.table({"a": pa.array([value, None], made.arrow_schema.field("a").type)}))
        == 2
    )
    assert table() == [(None,), (value,)] or table() == [(value,), (None,)]


@pytest.mark.parametrize("format", ["PARQUET", "CSV"])
def test_rows_go_to_their_partitions(lake, session, table, format):
    made = table(f"(v INT, day DATE, `k e/y` STRING) USING {format} PARTITIONED BY (day, `k e/y`)")
    days = [datetime.date(2026, 11, day) for day in (16, 17)]
    rows = pa.table(
        {
            "v": pa.array(range(6), pa.int32()),
            "day": [*days, *days, *days],
            "k e/y": ["x", "x", "y=", "y=", "x", None],
        }
    )
    assert _insert(made, rows) == 6
    assert _insert(made, rows.slice(0, 1)) == 1
    expected = [tuple(row.values()) for row in [*rows.to_pylist(), rows.slice(0, 1).to_pylist()[0]]]
    assert table() == sorted(expected, key=repr)
    assert {path.parent.parent.name for path in _files(lake, made)} == {
        f"day={day}" for day in days
    }


def test_what_spark_refuses_leaves_the_table_as_it_was(lake, session, table):
    made = table("(a VARCHAR(3)) USING PARQUET")
    assert _insert(made, pa.table({"a": ["abc"]})) == 1
    files = _files(lake, made)
    with pytest.raises(SparkportError, match=r"(?i)exceeds char/varchar type length"):
        _insert(made, pa.table({"a": ["ok", "too long"]}))
    assert _files(lake, made) == files
    assert table() == [("abc",)]


def test_an_insert_that_fits_is_one_file(lake, session, table):
    made = table("(a INT) USING PARQUET")
    count = 300_000
    assert _insert(made, pa.table({"a": pa.array(range(count), pa.int32())})) == count
    assert len(_files(lake, made)) == 1
    assert sum(batch.num_rows for batch in made.scan(CTX, ScanOptions())) == count


def test_a_statement_that_is_aborted_or_cancelled_adds_nothing(session, table):
    made = table("(a INT) USING PARQUET")
    (batch,) = pa.table({"a": pa.array([1], pa.int32())}).to_batches()
    write = made.stage(CTX, Operation.INSERT, DMLOptions())
    write.apply(batch)
    write.abort()
    ctx = Context()
    write = made.stage(ctx, Operation.INSERT, DMLOptions())
    write.apply(batch)
    ctx.cancellation.cancel()
    with pytest.raises(SparkportError, match="cancelled"):
        write.commit()
    assert table() == []


@pytest.fixture
def cancelled_late(monkeypatch) -> Context:
    """The context of a caller who goes away just after Spark has added the rows.

    What Spark does then is cancelled.
    """
    ctx, real = Context(), relation_inserts._RelationInsert._insert

    def insert(write: Any) -> None:
        real(write)
        ctx.cancellation.cancel()
        write._lake.spark.range(10).collect()

    monkeypatch.setattr(relation_inserts._RelationInsert, "_insert", insert)
    return ctx


def _begun(made: Any, ctx: Context, values: list[int]) -> Any:
    write = made.stage(ctx, Operation.INSERT, DMLOptions())
    write.apply(pa.record_batch({"a": pa.array(values, pa.int32())}))
    return write


@pytest.mark.parametrize("format", ["PARQUET", "ORC", "CSV", "JSON"])
def test_rows_that_were_added_before_spark_was_cancelled_are_said_to_be_there(
    session, table, format, cancelled_late
):
    made = table(f"(a INT) USING {format}")
    assert _begun(made, cancelled_late, [1, 2]).commit() == 2
    assert cancelled_late.cancellation.cancelled
    assert table() == [(1,), (2,)]


def test_rows_of_which_nobody_knows_are_said_to_be_so(session, table, cancelled_late, monkeypatch):
    made = table("(a INT) USING PARQUET")
    write = _begun(made, cancelled_late, [1])
    monkeypatch.setattr(write, "_added", lambda: None)  # as formats do that cannot tell
    with pytest.raises(
        OutcomeUnknown,
        match=r"stopped while it added 1 rows .* nobody knows whether they are there",
    ):
        write.commit()


def test_rows_that_were_added_in_part_are_counted(
    lake, session, table, cancelled_late, monkeypatch
):
    made = table("(v INT, a INT) USING PARQUET PARTITIONED BY (a)")
    real = relation_inserts._RelationInsert._added

    def added(write: Any) -> int | None:
        """Pretends that Spark was stopped before it had moved all of its files."""
        _files(lake, made)[0].unlink()
        return real(write)

    monkeypatch.setattr(relation_inserts._RelationInsert, "_added", added)
    write = made.stage(cancelled_late, Operation.INSERT, DMLOptions())
    write.apply(
        pa.record_batch(
            {"v": pa.array([1, 2, 3], pa.int32()), "a": pa.array([1, 2, 2], pa.int32())}
        )
    )
    with pytest.raises(
        OutcomeUnknown, match=r"added 3 rows to table .*, and only 2 of them are there: look at"
    ):
        write.commit()
    assert len(table()) == 2


def test_a_table_that_has_other_columns_by_now_is_refused(lake, session, table):
    made = table("(a INT) USING PARQUET")
    assert _columns(made).names == ["a"]
    lake.spark.sql(f"ALTER TABLE {made.entry.identifier.sql} ADD COLUMN b INT")
    with pytest.raises(StaleDescriptor, match="attach the catalog again"):
        made.stage(CTX, Operation.INSERT, DMLOptions())


def test_statements_that_other_formats_cannot_do_are_refused_with_the_reason(client, table):
    name = table("(a INT, s STRUCT<b: INT>) USING ORC").name
    client.detach()
    client.attach()
    of_table = (_DATABASE, name)
    its_format = "its format is orc, and not Iceberg"
    no_ids = f"{its_format}, so they have no row ids; use Spark, or keep them in an Iceberg table"
    fixed = f"does not support DDL operations: {its_format}; alter it with Spark"
    for why, statement in (
        (no_ids, lambda: client.update(*of_table, {"a": "2"}, where="a = 1")),
        (no_ids, lambda: client.delete(*of_table, "a = 1")),
        (fixed, lambda: client.add_column(*of_table, "n", pa.int32())),
        (fixed, lambda: client.remove_column(*of_table, "a")),
        (fixed, lambda: client.rename_column(*of_table, "a", "b")),
        (fixed, lambda: client.set_default(*of_table, "a", "1")),
        (fixed, lambda: client.set_not_null(*of_table, "a")),
        (fixed, lambda: client.drop_not_null(*of_table, "a")),
        (fixed, lambda: client.change_column_type(*of_table, "a", pa.int64(), "a")),
        (fixed, lambda: client.remove_field(*of_table, ["s", "b"])),
        (fixed, lambda: client.rename_field(*of_table, ["s", "b"], "c")),
        (fixed, lambda: client.add_constraint(*of_table, "UNIQUE (a)")),
        (
            "has no history: query it without AT",
            lambda: client.scan(*of_table, at=("VERSION", "1")),
        ),
        (
            "is not an Iceberg table: optimize has nothing to do with it",
            lambda: client.table_function(_DATABASE, "optimize", name),
        ),
        (
            "is not an Iceberg table: its rows cannot be found again",
            lambda: client.in_out(_DATABASE, "upsert", name, "a", rows=pa.table({"a": [1]})),
        ),
    ):
        with pytest.raises(ServerError, match=why):
            statement()
    assert table() == []


def test_rows_do_not_wait_for_the_commit_of_a_transaction_so_none_is_taken(session, table):
    made = table("(a INT) USING PARQUET")
    inside = Context(transaction_id=session.begin_transaction(CTX))
    with pytest.raises(NotWritable, match="cannot be part of a transaction: run it outside"):
        made.stage(inside, Operation.INSERT, DMLOptions())
    session.rollback_transaction(CTX, inside.transaction_id)


def test_views_are_refused_with_the_reason(lake, session, client):
    lake.spark.sql(f"CREATE VIEW spark_catalog.{_DATABASE}.shown AS SELECT 1 AS a")
    view = _found(session, "shown")
    assert isinstance(view, RelationTable)
    with pytest.raises(NotWritable, match="shown is a view"):
        view.stage(CTX, Operation.INSERT, DMLOptions())
    client.detach()
    client.attach()
    with pytest.raises(ServerError, match="DDL operations: it is a view; make it anew with Spark"):
        client.add_column(_DATABASE, "shown", "n", pa.int32())


def test_columns_that_only_spark_knows_are_refused(lake, namespace, session, table):
    made = table("(a INT, v VARIANT) USING PARQUET")
    with pytest.raises(NotWritable, match="column v is of type variant, which only Spark knows"):
        made.stage(CTX, Operation.INSERT, DMLOptions())
