"""Bulk ingestion and transactions of Flight SQL, in a catalog in memory that runs no SQL."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight
import pytest
from adbc_driver_flightsql import DatabaseOptions, dbapi
from adbc_driver_manager import (
    NotSupportedError,
    OperationalError,
    ProgrammingError,
)
from tests.server.protobuf import command, decoded, message, unwrapped
from tests.server.raw_client import RawClient

import sparkport as sp
from sparkport.catalog import Constraints, Context, Schema, Table
from sparkport.errors import Unsupported
from sparkport.memory import MemorySchema

LIMITS = {
    DatabaseOptions.TIMEOUT_QUERY.value: "20",
    DatabaseOptions.TIMEOUT_FETCH.value: "20",
    DatabaseOptions.TIMEOUT_UPDATE.value: "20",
    "adbc.flight.sql.rpc.timeout_seconds.connect": "20",
}
OPTIONS = flight.FlightCallOptions(timeout=20)
ROWS = pa.table({"a": [1, 2, 3], "b": ["x", None, "z"]})
CREATE, APPEND, REPLACE = b"\x08\x01\x10\x01", b"\x08\x02\x10\x02", b"\x08\x01\x10\x03"


@pytest.fixture
def catalog() -> sp.MemoryCatalog:
    catalog = sp.MemoryCatalog("shop")
    schema = catalog.add_schema("s")
    columns = pa.schema(
        [
            pa.field("a", pa.int64(), nullable=False),
            pa.field("b", pa.string()),
            pa.field("c", pa.int32(), metadata={"default": "40 + 2"}),
        ]
    )
    kept = sp.MemoryTable(
        "kept", columns, constraints=Constraints(not_null=("a",), checks=("(a > 0)",))
    )
    schema.add_table(kept)
    return catalog


@pytest.fixture
def server(catalog, start) -> sp.Server:
    return start([catalog])


@pytest.fixture
def cursor(server) -> Iterator[dbapi.Cursor]:
    with (
        dbapi.connect(server.location, db_kwargs=LIMITS, autocommit=True) as connection,
        connection.cursor() as cursor,
    ):
        yield cursor


@pytest.fixture
def raw(server) -> Iterator[RawClient]:
    with RawClient(server.location) as client:
        yield client


def tables(catalog: sp.MemoryCatalog) -> list[str]:
    schema = catalog.schema(Context(), "s")
    assert isinstance(schema, Schema)
    return sorted(table.name for table in schema.tables(Context()))


def rows(catalog: sp.MemoryCatalog, name: str) -> list[dict[str, object]]:
    schema = catalog.schema(Context(), "s")
    assert isinstance(schema, Schema)
    table = schema.table(Context(), name)
    assert isinstance(table, Table)
    batches = list(table.scan(Context(), sp.ScanOptions()))
    found = [row for batch in batches for row in batch.to_pylist()]
    return [{key: row[key] for key in row if key != "rowid"} for row in found]


def test_a_catalog_that_runs_no_sql_says_what_works(cursor, catalog):
    with pytest.raises(NotSupportedError, match=r"does not run SQL: ATTACH .* by a bulk ingest"):
        cursor.execute("SELECT * FROM s.kept")

    assert cursor.adbc_ingest("kept", pa.table({"a": [1]}), mode="append") == 1


def test_an_ingest_creates_a_table_and_fills_it(cursor, catalog):
    assert cursor.adbc_ingest("t", ROWS, mode="create") == 3

    assert rows(catalog, "t") == ROWS.to_pylist()


def test_a_column_that_is_not_nullable_is_not_null(cursor):
    columns = pa.schema([pa.field("a", pa.int64(), nullable=False)])
    cursor.adbc_ingest("t", pa.table({"a": [1]}, columns), mode="create")

    with pytest.raises(OperationalError, match="FailedPrecondition"):
        cursor.adbc_ingest("t", pa.table({"a": pa.array([None], pa.int64())}), mode="append")


def test_an_ingest_in_create_mode_keeps_a_table_that_exists(cursor, catalog):
    with pytest.raises(ProgrammingError, match=r"ALREADY_EXISTS.*s\.kept exists already"):
        cursor.adbc_ingest("kept", ROWS, mode="create")

    assert rows(catalog, "kept") == []


def test_an_ingest_in_append_mode_wants_a_table(cursor, catalog):
    with pytest.raises(ProgrammingError, match=r"NOT_FOUND.*s\.t not found"):
        cursor.adbc_ingest("t", ROWS, mode="append")

    assert tables(catalog) == ["kept"]


def test_an_ingest_may_create_or_append(cursor, catalog):
    for _ in range(2):
        assert cursor.adbc_ingest("t", ROWS, mode="create_append") == 3

    assert rows(catalog, "t") == ROWS.to_pylist() * 2


def test_an_ingest_of_many_batches_is_one_change(cursor, catalog):
    batches = [pa.record_batch({"n": list(range(start, start + 1000))}) for start in range(50)]
    reader = pa.RecordBatchReader.from_batches(batches[0].schema, batches)

    assert cursor.adbc_ingest("t", reader, mode="create") == 50_000
    assert len(rows(catalog, "t")) == 50_000


def test_columns_are_found_by_name_and_converted(cursor, catalog):
    sent = pa.table({"C": pa.array([7], pa.int8()), "b": ["x"], "a": pa.array([1], pa.int16())})
    cursor.adbc_ingest("kept", sent, mode="append")

    assert rows(catalog, "kept") == [{"a": 1, "b": "x", "c": 7}]


def test_missing_columns_get_their_defaults(cursor, catalog):
    cursor.adbc_ingest("kept", pa.table({"a": [1, 2]}), mode="append")

    assert rows(catalog, "kept") == [{"a": a, "b": None, "c": 42} for a in (1, 2)]


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        ({"a": [1], "y": [1], "z": [2]}, r"INVALID_ARGUMENT.*s\.kept has no column y, z"),
        ({"b": ["x"]}, r"INVALID_ARGUMENT.*s\.kept needs a value for column a"),
        ({"a": [1], "c": [2**40]}, "INVALID_ARGUMENT.*column c is int32"),
        ({"a": [1], "c": [[1]]}, "INVALID_ARGUMENT.*cannot be converted"),
        ({"a": [1, -1]}, "FailedPrecondition"),
        ({"a": [1, None]}, "FailedPrecondition"),
    ],
)
def test_rows_that_do_not_fit_are_refused_as_a_whole(cursor, catalog, sent, reason):
    with pytest.raises((ProgrammingError, OperationalError), match=reason):
        cursor.adbc_ingest("kept", pa.table(sent), mode="append")

    assert rows(catalog, "kept") == []


def unreadable() -> pa.RecordBatchReader:
    """Rows that end in an error of the client."""

    def batches() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"a": [5]})
        raise ValueError("the disk is gone")

    return pa.RecordBatchReader.from_batches(pa.schema([("a", pa.int64())]), batches())


def test_a_table_whose_rows_do_not_come_is_not_created(raw, catalog):
    sent = ingest_messages("t", CREATE, pa.record_batch({"a": [1]}))
    sent[-1] = sent[-1][:-40]
    assert raw.failure("DoPut", sent).code == "INVALID_ARGUMENT"

    assert tables(catalog) == ["kept"]


def test_rows_that_break_off_leave_everything_as_it_was(cursor, catalog):
    cursor.adbc_ingest("t", ROWS, mode="create")
    with pytest.raises(Exception, match=r"the disk is gone|anceled|ancelled"):
        cursor.adbc_ingest("t", unreadable(), mode="replace")

    assert rows(catalog, "t") == ROWS.to_pylist()


@pytest.fixture(params=["at once", "by renaming"])
def way(request, monkeypatch) -> None:
    """How a schema has a table take another's place: each way works without the other."""

    def cannot(*_: object) -> None:
        raise Unsupported("this way is closed")

    closed = "rename_table" if request.param == "at once" else "replace_table"
    monkeypatch.setattr(MemorySchema, closed, cannot)


@pytest.mark.usefixtures("way")
def test_an_ingest_may_replace_a_table(cursor, catalog):
    cursor.adbc_ingest("t", ROWS, mode="create")
    cursor.adbc_ingest("t", pa.table({"z": [True]}), mode="replace")

    assert rows(catalog, "t") == [{"z": True}]
    assert tables(catalog) == ["kept", "t"]


@pytest.mark.usefixtures("way")
def test_a_replacement_that_fails_leaves_the_old_table(raw, cursor, catalog):
    cursor.adbc_ingest("t", ROWS, mode="create")
    sent = ingest_messages("t", REPLACE, pa.record_batch({"a": [1]}))
    sent[-1] = sent[-1][:-40]
    assert raw.failure("DoPut", sent).code == "INVALID_ARGUMENT"

    assert rows(catalog, "t") == ROWS.to_pylist()
    assert tables(catalog) == ["kept", "t"]


def test_an_ingest_names_its_catalog_and_schema(cursor, catalog):
    catalog.add(MemorySchema("other"))
    with pytest.raises(ProgrammingError, match="names no schema: choose one"):
        cursor.adbc_ingest("t", ROWS, mode="create")
    cursor.adbc_ingest("t", ROWS, mode="create", catalog_name="shop", db_schema_name="s")
    for names in ({"catalog_name": "nope"}, {"db_schema_name": "nope"}):
        with pytest.raises(ProgrammingError, match="NOT_FOUND"):
            cursor.adbc_ingest("t", ROWS, mode="append", **{"db_schema_name": "s", **names})

    assert len(rows(catalog, "t")) == 3


def test_there_are_no_temporary_tables(cursor):
    with pytest.raises(NotSupportedError, match="no temporary tables"):
        cursor.adbc_ingest("t", ROWS, mode="create", temporary=True)


def test_an_ingest_needs_the_permissions_of_its_statements(catalog, start):
    policy = sp.Policy(
        [
            sp.Grant(("ada",), "shop", (sp.Privilege.READ, sp.Privilege.WRITE)),
            sp.Grant(("bob",), "shop", (sp.Privilege.READ,)),
        ]
    )
    tokens = sp.TokenAuthenticator({"a": "ada", "b": "bob"})
    server = start([catalog], sp.ServerSettings(authenticate=tokens, policy=policy))

    def ingest(token: str, name: str, mode: Any) -> None:
        options = {**LIMITS, DatabaseOptions.AUTHORIZATION_HEADER.value: f"Bearer {token}"}
        with (
            dbapi.connect(server.location, db_kwargs=options, autocommit=True) as connection,
            connection.cursor() as cursor,
        ):
            cursor.adbc_ingest(name, pa.table({"a": [1]}), mode=mode)

    ingest("a", "kept", "append")
    for token, name, mode in (
        ("b", "kept", "append"),
        ("a", "kept", "replace"),
        ("a", "new", "create"),
    ):
        with pytest.raises(ProgrammingError, match=r"UNAUTHORIZED.*permission"):
            ingest(token, name, mode)
    assert tables(catalog) == ["kept"]
    assert len(rows(catalog, "kept")) == 1


# ------------------------------------------------------------------------------------ transactions


def ingest_messages(
    name: str, options: bytes, batch: pa.RecordBatch, transaction: bytes = b""
) -> list[bytes]:
    """The messages of an ingest, as DoPut sends them."""
    fields: list[tuple[int, str | bytes | int]] = [(1, options), (2, name)]
    fields += [(6, transaction)] if transaction else []
    # *([(6, transaction)] if transaction else [])]
    asked = flight.FlightDescriptor.for_command(command("CommandStatementIngest", *fields))
    schema = batch.schema.serialize().to_pybytes()[8:]
    encoded = batch.serialize().to_pybytes()
    end = 8 + int.from_bytes(encoded[4:8], "little")
    return [
        message((1, asked.serialize()), (2, schema)),
        message((2, encoded[8:end]), (1000, encoded[end:])),
    ]


def begin(raw: RawClient) -> bytes:
    (answer,) = raw.action("BeginTransaction", command("ActionBeginTransactionRequest"))
    transaction = unwrapped(answer, "ActionBeginTransactionResult")[1]
    assert isinstance(transaction, bytes)
    return transaction


def ending(transaction: bytes, action: int) -> bytes:
    return command("ActionEndTransactionRequest", (1, transaction), (2, action))


def append(raw: RawClient, transaction: bytes, *values: int) -> list[bytes]:
    return raw.call(
        "DoPut",
        ingest_messages("kept", APPEND, pa.record_batch({"a": list(values)}), transaction),
    )


def test_rows_of_a_transaction_are_seen_when_it_is_committed(raw, catalog):
    transaction = begin(raw)
    (answer,) = append(raw, transaction, 1, 2)
    append(raw, transaction, 3)
    assert decoded(bytes(decoded(answer)[1])) == {1: 2}
    assert rows(catalog, "kept") == []

    assert raw.action("EndTransaction", ending(transaction, 1)) == []
    assert [row["a"] for row in rows(catalog, "kept")] == [1, 2, 3]


def test_rows_of_a_transaction_are_gone_when_it_is_rolled_back(raw, catalog):
    transaction = begin(raw)
    append(raw, transaction, 1)
    assert raw.action("EndTransaction", ending(transaction, 2)) == []

    assert rows(catalog, "kept") == []
    failure = raw.failure(
        "DoPut", ingest_messages("kept", APPEND, pa.record_batch({"a": [1]}), transaction)
    )
    assert failure.code == "FAILED_PRECONDITION"
    assert "is not active (state: aborted)" in failure.message


def test_an_ingest_that_fails_ends_its_transaction(raw, catalog):
    transaction = begin(raw)
    append(raw, transaction, 1)
    bad = ingest_messages("kept", APPEND, pa.record_batch({"z": [1]}), transaction)
    assert raw.failure("DoPut", bad).code == "INVALID_ARGUMENT"

    failure = raw.action_failure("EndTransaction", ending(transaction, 1))
    assert failure.code == "FAILED_PRECONDITION"
    assert "state: aborted" in failure.message
    assert rows(catalog, "kept") == []


@pytest.mark.parametrize("transaction", [b"nonsense", b"a.b.c", b"x" * 1000])
def test_a_transaction_of_somebody_elses_making_is_not_active(raw, transaction):
    sent = ingest_messages("kept", APPEND, pa.record_batch({"a": [1]}), transaction)

    assert raw.failure("DoPut", sent).code == "FAILED_PRECONDITION"
    assert raw.action_failure("EndTransaction", ending(transaction, 1)).code == (
        "FAILED_PRECONDITION"
    )


def test_a_table_is_not_replaced_inside_a_transaction(raw, catalog):
    sent = ingest_messages("kept", REPLACE, pa.record_batch({"a": [1]}), begin(raw))
    failure = raw.failure("DoPut", sent)

    assert failure.code == "UNIMPLEMENTED"
    assert "cannot be replaced inside a transaction" in failure.message


def test_adbc_ingests_outside_of_its_transaction(server, catalog):
    """ADBC's driver, up to 1.13 at least, does not say in which transaction it ingests."""
    with dbapi.connect(server.location, db_kwargs=LIMITS) as connection:
        with connection.cursor() as cursor:
            cursor.adbc_ingest("kept", pa.table({"a": [1]}), mode="append")
        connection.rollback()

    assert len(rows(catalog, "kept")) == 1
