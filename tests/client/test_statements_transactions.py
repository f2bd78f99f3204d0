"""BEGIN … COMMIT: an identifier is a snapshot that shows the client's own writes (airport §10)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pyarrow as pa
import pytest

from sparkport.memory import MemoryCatalog, MemorySettings, MemoryTable
from sparkport.server import Server, ServerSettings
from sparkport.testing import DuckDBClient, ServerError

CATALOG = "shop"
COLUMNS = pa.schema([("id", pa.int64()), ("name", pa.string())])
STATE = "FAILED_PRECONDITION"

Connect = Callable[..., DuckDBClient]


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def connect(clock: Clock) -> Iterator[Connect]:
    """Connect clients, each like another process, to a server with `s.t` and `s.u` of one row."""
    settings = MemorySettings(monotonic=clock, transaction_idle_seconds=100)
    catalog = MemoryCatalog(CATALOG, settings=settings)
    schema = catalog.add_schema("s")
    for name in ("t", "u"):
        schema.add_table(
            MemoryTable(name, pa.table({"id": [0], "name": ["first"]}, schema=COLUMNS))
        )
    with ExitStack() as stack:
        server = stack.enter_context(
            Server(
                catalog,
                "grpc://127.0.0.1:0",
                ServerSettings(transaction_seconds=60),
            )
        )
        sessions = iter(range(1000))

        def connect(**options: Any) -> DuckDBClient:
            session_id = f"session-{next(sessions)}"
            client = DuckDBClient(
                server.location, CATALOG, **{"session_id": session_id, "timeout": 20, **options}
            )
            return stack.enter_context(client)

        yield connect


def ids(client: DuckDBClient, table: str = "t") -> list[int]:
    return sorted(client.scan("s", table).column("id").to_pylist())


def insert(client: DuckDBClient, number: int, table: str = "t") -> None:
    assert client.insert("s", table, {"id": [number], "name": [f"n{number}"]}).total == 1


# --------------------------------------------------------------------------------------- snapshots


def test_scans_of_one_transaction_read_one_snapshot_while_another_client_writes(connect):
    reader, writer = connect(), connect()
    reader.begin()
    assert ids(reader) == [0]
    insert(writer, 1)
    writer.update("s", "t", {"name": "'changed'"})
    writer.delete("s", "t", where="id = 0")
    assert ids(reader) == [0]
    assert reader.scan("s", "t").column("name").to_pylist() == ["first"]
    assert reader.count("s", "t") == 1
    reader.commit()
    assert ids(reader) == [1]


def test_the_snapshot_is_of_the_whole_catalog(connect):
    reader, writer = connect(), connect()
    reader.begin()
    assert ids(reader, "t") == [0]
    insert(writer, 1, "t")
    insert(writer, 1, "u")
    # The second table is read for the first time after it was changed.
    assert ids(reader, "u") == [0]
    reader.rollback()
    assert ids(reader, "u") == [0, 1]


def test_without_begin_every_statement_reads_what_is_there_now(connect):
    reader, writer = connect(), connect()
    for number in (1, 2, 3):
        insert(writer, number)
        assert ids(reader) == list(range(number + 1))


def test_one_transactions_streams_agree_while_every_batch_of_another_is_committed(connect):
    reader, writer = connect(), connect()
    reader.begin()
    first = ids(reader)
    for number in range(1, 30):
        insert(writer, number)
        assert ids(reader) == first
    reader.commit()
    assert ids(reader) == list(range(30))


# -------------------------------------------------------------------------------------- own writes


def test_a_transaction_sees_its_own_writes(connect):
    client = connect()
    client.begin()
    assert ids(client) == [0]
    insert(client, 1)
    assert ids(client) == [0, 1]
    assert client.update("s", "t", {"name": "'mine'"}, where="id = 1").total == 1
    assert client.scan("s", "t", where="id = 1").to_pylist() == [{"id": 1, "name": "mine"}]
    assert client.delete("s", "t", where="id = 0").total == 1
    assert ids(client) == [1]
    client.commit()
    assert ids(client) == [1]


def test_a_transactions_own_write_does_not_bring_in_what_others_wrote_since_its_snapshot(connect):
    client, other = connect(), connect()
    client.begin()
    assert ids(client) == [0]
    insert(other, 100)
    insert(client, 1)
    assert ids(client) == [0, 1]
    client.commit()
    assert ids(client) == [0, 1, 100]


def test_a_write_of_a_transaction_is_committed_at_once_and_rollback_undoes_nothing(connect):
    client, other = connect(), connect()
    client.begin()
    insert(client, 1)
    assert ids(other) == [0, 1]
    client.rollback()
    assert ids(other) == [0, 1]
    assert ids(client) == [0, 1]


def test_insert_select_in_a_transaction_reads_the_transactions_rows(connect):
    client, other = connect(), connect()
    client.begin()
    insert(client, 1)
    assert ids(client) == [0, 1]
    insert(other, 100)
    assert client.insert_select("s", "u", ("s", "t"), {"id": "id + 10", "name": "name"}).total == 2
    assert ids(client, "u") == [0, 10, 11]
    client.commit()
    assert ids(client, "t") == [0, 1, 100]


def test_updating_a_row_that_another_client_changed_after_the_snapshot_is_a_conflict(connect):
    client, other = connect(), connect()
    client.begin()
    assert ids(client) == [0]
    other.update("s", "t", {"name": "'theirs'"}, where="id = 0")
    with pytest.raises(ServerError) as caught:
        client.update("s", "t", {"name": "'mine'"}, where="id = 0")
    assert caught.value.code == "ABORTED"
    client.rollback()
    assert client.scan("s", "t").column("name").to_pylist() == ["theirs"]
    assert client.update("s", "t", {"name": "'mine'"}, where="id = 0").total == 1


def test_a_transaction_sees_the_table_it_creates(connect):
    client = connect()
    client.begin()
    assert ids(client) == [0]
    client.create_table("s", "mine", {"id": "BIGINT"})
    assert client.insert("s", "mine", {"id": [7]}).total == 1
    assert client.scan("s", "mine").to_pylist() == [{"id": 7}]
    client.drop_table("s", "mine")
    client.commit()
    assert set(client.tables("s")) == {"t", "u"}


def test_a_transaction_reads_and_writes_the_column_it_adds(connect):
    client = connect()
    client.begin()
    assert ids(client) == [0]
    client.add_column("s", "t", "extra", "INTEGER")
    assert client.insert("s", "t", {"id": [8], "extra": [1]}).total == 1
    assert client.scan("s", "t").to_pylist() == [
        {"id": 0, "name": "first", "extra": None},
        {"id": 8, "name": None, "extra": 1},
    ]


def test_a_table_that_another_client_altered_must_be_attached_again(connect):
    client, other = connect(), connect()
    client.begin()
    assert ids(client) == [0]
    other.add_column("s", "t", "extra", "INTEGER")
    with pytest.raises(ServerError) as caught:
        client.scan("s", "t")
    assert caught.value.code == STATE
    assert "ATTACH" in caught.value.message
    client.rollback()
    client.detach()
    assert client.scan("s", "t").column_names == ["id", "name", "extra"]


# ------------------------------------------------------------------------------------- identifiers


def identifier(client: DuckDBClient) -> str:
    found = client._session.transaction()
    assert found is not None
    return found


def borrow(client: DuckDBClient, transaction: str) -> None:
    """Let a client use an identifier that it did not get."""
    client.begin()
    client._session._transaction, client._session._has_transaction = transaction, True


def refused(statement: Callable[[], Any]) -> ServerError:
    with pytest.raises(ServerError) as caught:
        statement()
    assert caught.value.code == STATE
    assert "not active" in caught.value.message
    return caught.value


def test_an_identifier_is_good_for_scans_and_writes_of_the_session_that_got_it(connect):
    first, second = connect(session_id="one"), connect(session_id="one")
    first.begin()
    assert ids(first) == [0]
    borrow(second, identifier(first))
    insert(second, 1)
    assert ids(first) == [0, 1]


@pytest.mark.parametrize("statement", ["scan", "insert", "update", "delete"])
def test_an_identifier_of_another_session_is_refused(connect, statement):
    owner, thief = connect(), connect()
    owner.begin()
    assert ids(owner) == [0]
    borrow(thief, identifier(owner))
    calls: dict[str, Callable[[], Any]] = {
        "scan": lambda: thief.scan("s", "t"),
        "insert": lambda: thief.insert("s", "t", {"id": [1], "name": ["x"]}),
        "update": lambda: thief.update("s", "t", {"name": "'x'"}),
        "delete": lambda: thief.delete("s", "t"),
    }
    refused(calls[statement])
    owner.commit()
    assert owner.scan("s", "t").to_pylist() == [{"id": 0, "name": "first"}]


@pytest.mark.parametrize(
    "forged",
    [
        lambda good: "x",
        lambda good: good[:-1] + ("0" if good[-1] != "0" else "1"),
        lambda good: "a" + good,
        lambda good: good.replace(".", ".f", 1),
        lambda good: ".." + good,
        lambda good: good.rpartition(".")[0] + ".",
    ],
    ids=["made up", "other signature", "other id", "later date", "more dots", "no signature"],
)
def test_a_forged_identifier_is_refused(connect, forged):
    client = connect()
    client.begin()
    assert ids(client) == [0]
    good = identifier(client)
    client.commit()
    borrow(client, forged(good))
    refused(lambda: client.scan("s", "t"))
    refused(lambda: client.insert("s", "t", {"id": [1], "name": ["x"]}))


def test_identifiers_differ_and_are_printable(connect):
    client = connect()
    found = []
    for _ in range(50):
        client.begin()
        found.append(identifier(client))
        client.commit()
    assert len(set(found)) == 50
    assert all(each.isascii() and each.isprintable() and len(each) > 40 for each in found)


def test_an_identifier_that_nobody_used_for_long_expires(connect, clock):
    client = connect()
    client.begin()
    assert ids(client) == [0]
    clock.now += 90
    assert ids(client) == [0]  # and is in use again
    clock.now += 90
    insert(client, 1)
    clock.now += 101
    refused(lambda: client.scan("s", "t"))
    refused(lambda: client.insert("s", "t", {"id": [2], "name": ["x"]}))
    client.rollback()
    assert ids(client) == [0, 1]


def test_an_identifier_is_refused_after_its_lifetime_even_if_it_is_in_use(clock: Clock) -> None:
    catalog = MemoryCatalog(CATALOG)
    catalog.add_schema("s").add_table(
        MemoryTable("t", pa.table({"id": [0], "name": ["first"]}, schema=COLUMNS))
    )
    settings = ServerSettings(transaction_seconds=60)
    with (
        Server(catalog, "grpc://127.0.0.1:0", settings) as server,
        DuckDBClient(server.location, CATALOG, timeout=20) as client,
    ):
        server._service.transactions._clock = clock
        client.begin()
        assert ids(client) == [0]
        clock.now += 59
        assert ids(client) == [0]
        clock.now += 2
        refused(lambda: client.scan("s", "t"))
        client.rollback()
        assert ids(client) == [0]
