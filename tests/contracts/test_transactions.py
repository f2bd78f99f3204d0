"""contracts/dml-transactions.md: the states of a transaction, what belongs to it, and what the
client's path does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgpack
import pyarrow as pa
import pytest
from tests.contracts.conftest import ITEMS
from tests.contracts.contract_client import (
    DUCKDB,
    as_json,
    batches_of,
    in_transaction,
    insert_command,
    update_command,
)
from tests.contracts.ddl_requests import add_column_body, create_table_body
from tests.contracts.noting_manager import NotingManager
from tests.contracts.written_tables import COLUMNS, Everything
from tests.server.catalogs import catalog_of

from sparkport.catalog import Context, DMLOptions, DMLResult, RecordReader
from sparkport.errors import ConstraintViolation
from sparkport.memory import MemoryCatalog, MemorySettings, MemoryTable
from sparkport.server import ServerSettings

HEADERS = ["airport-transaction-id", "x-transaction-id"]
ROW = pa.Table.from_pylist([{"id": 9, "name": "new", "price": 9.0}], ITEMS)
NAME = pa.table({"name": ["changed"]})
ENDINGS = ["commit_transaction", "rollback_transaction"]
OPERATIONS = ["insert", "update", "delete"]


@pytest.fixture
def catalog(catalog):
    """Has a second table, `shop.orders`."""
    orders = pa.Table.from_pylist([{"n": 1}], pa.schema([("n", pa.int64())]))
    catalog.schema(Context(), "shop").add_table(MemoryTable("orders", orders))
    return catalog


def run(client: Any, operation: str, headers: Any) -> Any:
    if operation == "insert":
        return client.insert("shop.items", ROW, headers)
    if operation == "update":
        return client.update("shop.items", [0], NAME, headers)
    return client.delete("shop.items", [0], headers)


def run_failure(client: Any, operation: str, headers: Any) -> Any:
    if operation == "insert":
        return client.put_failure(insert_command("shop.items"), ROW, headers)
    if operation == "update":
        return client.put_failure(update_command("shop.items", [0]), NAME, headers)
    return client.delete_failure("shop.items", [0], headers)


def ids(client: Any, headers: Any = None) -> list[int]:
    return [row["id"] for row in client.rows("shop.items", headers)]


# ---------------------------------------------------------------------------------- create, status


@pytest.mark.parametrize(
    "body", [b"", b"{}", b' {"catalog_name": "lake"}', msgpack.packb({"catalog_name": "lake"}),
             msgpack.packb({})],
    ids=["empty", "JSON", "JSON with the catalog", "MessagePack", "empty MessagePack"],
)  # fmt: skip
def test_begin_gives_an_id_that_both_kinds_of_client_can_read(client, body):
    (answer,) = client.action("create_transaction", body)

    told = msgpack.unpackb(answer)
    assert told["identifier"] == told["transaction_id"]
    assert told["status"] == "success"
    assert told["identifier"].isascii()
    assert told["identifier"].isprintable()
    assert client.status(told["identifier"]) == "active"


def test_ids_are_unguessable_and_never_the_same(client):
    begun = {client.begin() for _ in range(50)}

    assert len(begun) == 50
    assert min(map(len, begun)) > 40


@pytest.mark.parametrize("as_what", [as_json, msgpack.packb], ids=["JSON", "MessagePack"])
@pytest.mark.parametrize("key", ["transaction_id", "identifier"])
@pytest.mark.parametrize("action", ["get_transaction_status", *ENDINGS])
def test_requests_about_a_transaction_may_be_json_or_messagepack(client, action, key, as_what):
    (answer,) = client.action(action, as_what({key: client.begin()}))

    assert msgpack.unpackb(answer)["status"] == "success"


@pytest.mark.parametrize(
    "body", [b"", b"{}", b"[]", b"\xc1", b'{"transaction_id": 7}', b'{"transaction_id": ""}']
)
@pytest.mark.parametrize("action", ["get_transaction_status", *ENDINGS])
def test_requests_that_name_no_transaction_are_an_invalid_argument(client, action, body):
    assert client.action_failure(action, body).code == "INVALID_ARGUMENT"


# --------------------------------------------------------------------------------- states, by cell


def test_new_to_active_by_begin(client):
    assert client.status(client.begin()) == "active"


def test_active_to_committed_by_commit(client):
    begun = client.begin()

    assert client.commit(begun)["state"] == "committed"
    assert client.status(begun) == "committed"


def test_active_to_aborted_by_rollback(client):
    begun = client.begin()

    assert client.rollback(begun)["state"] == "aborted"
    assert client.status(begun) == "aborted"


def test_committed_stays_committed_when_committed_again(client):
    begun = client.begin()
    client.insert("shop.items", ROW, in_transaction(begun))

    for _ in range(3):
        assert client.commit(begun)["state"] == "committed"

    assert ids(client) == [1, 2, 3, 9]


def test_aborted_stays_aborted_when_rolled_back_again(client):
    begun = client.begin()
    client.insert("shop.items", ROW, in_transaction(begun))

    for _ in range(3):
        assert client.rollback(begun)["state"] == "aborted"

    assert ids(client) == [1, 2, 3]


def test_aborted_cannot_be_committed(client):
    begun = client.begin()
    client.insert("shop.items", ROW, in_transaction(begun))
    client.rollback(begun)

    failure = client.action_failure("commit_transaction", {"transaction_id": begun})

    assert failure.code == "FAILED_PRECONDITION"
    assert failure.message.endswith("is not active (state: aborted)")
    assert ids(client) == [1, 2, 3]


def test_committed_cannot_be_rolled_back(client):
    begun = client.begin()
    client.insert("shop.items", ROW, in_transaction(begun))
    client.commit(begun)

    failure = client.action_failure("rollback_transaction", {"transaction_id": begun})

    assert failure.code == "FAILED_PRECONDITION"
    assert failure.message.endswith("is not active (state: committed)")
    assert client.status(begun) == "committed"
    assert ids(client) == [1, 2, 3, 9]


def test_asking_for_the_status_changes_nothing(client):
    begun = client.begin()
    client.insert("shop.items", ROW, in_transaction(begun))

    assert [client.status(begun) for _ in range(3)] == ["active"] * 3
    client.commit(begun)
    assert ids(client) == [1, 2, 3, 9]


# ----------------------------------------------------------------------- unknown, foreign, expired


def foreign_ids(serve: Any, client: Any) -> dict[str, tuple[str, dict[str, str]]]:
    """Ids that are none, or somebody else's, and with which headers they are used."""
    begun = client.begin()
    elsewhere = serve(MemoryCatalog("lake"))
    mine = client.begin({"airport-client-session-id": "mine"})
    return {
        "nonsense": ("nonsense", {}),
        "of the right form": (".".join(["a", "ffffffff", "00" * 16]), {}),
        "altered": (begun[:-1] + ("0" if begun[-1] != "0" else "1"), {}),
        "with a later date": (_later(begun), {}),
        "of another server": (elsewhere.begin(), {}),
        "of another session": (mine, {"airport-client-session-id": "yours"}),
        "of a session, without one": (mine, {}),
        "very long": ("x" * 5000, {}),
    }


def _later(begun: str) -> str:
    own, expires, signature = begun.rsplit(".", 2)
    return f"{own}.{int(expires, 16) + 1000:x}.{signature}"


KINDS = [
    "nonsense",
    "of the right form",
    "altered",
    "with a later date",
    "of another server",
    "of another session",
]
KINDS += ["of a session, without one", "very long"]


@pytest.mark.parametrize("kind", KINDS)
def test_the_status_of_an_id_that_is_not_ours_is_that_there_is_none(serve, client, kind):
    transaction_id, headers = foreign_ids(serve, client)[kind]

    assert client.status(transaction_id, headers) is None


@pytest.mark.parametrize("action", ENDINGS)
@pytest.mark.parametrize("kind", KINDS)
def test_an_id_that_is_not_ours_cannot_be_ended(serve, client, kind, action):
    transaction_id, headers = foreign_ids(serve, client)[kind]

    failure = client.action_failure(action, {"transaction_id": transaction_id}, headers)

    assert failure.code == "FAILED_PRECONDITION"
    assert failure.message.startswith("transaction ")
    assert failure.message.endswith("is not active (state: unknown)")


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("kind", KINDS)
def test_an_id_that_is_not_ours_cannot_be_written_with(serve, client, kind, operation):
    transaction_id, headers = foreign_ids(serve, client)[kind]

    with client.unchanged():
        failure = run_failure(client, operation, headers | in_transaction(transaction_id))

    assert failure.code == "FAILED_PRECONDITION"
    assert failure.message.endswith("is not active (state: unknown)")


@pytest.mark.parametrize(
    ("action", "body"),
    [
        ("create_table", create_table_body()),
        ("add_column", add_column_body()),
        ("endpoints", {"schema": "shop", "table": "items"}),
        ("list_schemas", {"catalog_name": ""}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_nothing_else_can_be_done_with_an_id_that_is_not_ours(client, action, body):
    with client.unchanged():
        failure = client.action_failure(action, body, in_transaction("nonsense"))

    assert failure.code == "FAILED_PRECONDITION"
    assert failure.message == "transaction nonsense is not active (state: unknown)"


def test_an_id_is_bound_to_its_catalog(serve, catalog):
    client = serve([catalog, MemoryCatalog("other")])
    (answer,) = client.action("create_transaction", {"catalog_name": "other"})
    other = msgpack.unpackb(answer)["identifier"]

    assert client.status(other) is None
    assert run_failure(client, "insert", in_transaction(other)).code == "FAILED_PRECONDITION"
    (answer,) = client.action(
        "get_transaction_status", {"transaction_id": other, "catalog_name": "other"}
    )
    assert msgpack.unpackb(answer)["state"] == "active"


def test_an_id_works_for_the_session_that_got_it(client):
    mine = {"airport-client-session-id": "mine"}
    begun = client.begin(mine)

    run(client, "insert", mine | in_transaction(begun))

    assert client.status(begun, mine) == "active"


def test_an_expired_id_is_unknown(serve, catalog):
    client = serve(catalog, ServerSettings(transaction_seconds=-5))
    begun = client.begin()

    assert client.status(begun) is None
    for action in ENDINGS:
        assert (
            client.action_failure(action, {"transaction_id": begun}).code == "FAILED_PRECONDITION"
        )
    with client.unchanged():
        assert run_failure(client, "insert", in_transaction(begun)).code == "FAILED_PRECONDITION"


def test_a_transaction_that_nobody_uses_is_rolled_back_and_then_forgotten(serve):
    now = [0.0]
    settings = MemorySettings(transaction_idle_seconds=10, monotonic=lambda: now[0])
    catalog = MemoryCatalog("lake", settings=settings)
    catalog.add_schema("shop").add_table(MemoryTable("items", ITEMS))
    client = serve(catalog)
    begun = client.begin()
    client.insert("shop.items", ROW, in_transaction(begun))

    now[0] = 11
    assert client.status(begun) == "aborted"
    failure = run_failure(client, "insert", in_transaction(begun))
    assert failure.message.endswith("is not active (state: aborted)")
    now[0] = 40
    assert client.status(begun) is None
    assert client.rows("shop.items") == []


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize(("ending", "state"), [(ENDINGS[0], "committed"), (ENDINGS[1], "aborted")])
def test_error_transaction_not_active(client, ending, state, operation):
    begun = client.begin()
    client.transaction(ending, begun)

    with client.unchanged():
        failure = run_failure(client, operation, in_transaction(begun))

    assert failure.code == "FAILED_PRECONDITION"
    shown = begun if len(begun) <= 100 else begun[:100] + "…"
    assert failure.message == f"transaction {shown} is not active (state: {state})"


# -------------------------------------------------------------------------- together or not at all


@pytest.mark.parametrize("header", HEADERS)
def test_operations_with_one_id_commit_together(client, header):
    begun = client.begin()
    inside = in_transaction(begun, header)

    assert client.insert("shop.items", ROW, inside).affected_rows == 1
    assert client.update("shop.items", [0], NAME, inside).affected_rows == 1
    assert client.delete("shop.items", [1], inside).affected_rows == 1
    assert client.insert("shop.orders", pa.table({"n": [2]}), inside).affected_rows == 1

    assert ids(client) == [1, 2, 3]
    assert client.rows("shop.orders") == [{"n": 1}]
    client.commit(begun)
    assert [(row["id"], row["name"]) for row in client.rows("shop.items")] == [
        (1, "changed"),
        (3, None),
        (9, "new"),
    ]
    assert client.rows("shop.orders") == [{"n": 1}, {"n": 2}]


@pytest.mark.parametrize("header", HEADERS)
def test_operations_with_one_id_are_rolled_back_together(client, header):
    begun = client.begin()
    inside = in_transaction(begun, header)

    with client.unchanged():
        client.insert("shop.items", ROW, inside)
        client.update("shop.items", [0], NAME, inside)
        client.delete("shop.items", [1], inside)
        client.insert("shop.orders", pa.table({"n": [2]}), inside)
        client.rollback(begun)


def test_the_clients_header_wins_over_the_contracts(client):
    used, ignored = client.begin(), client.begin()

    client.insert("shop.items", ROW, {"airport-transaction-id": used, "x-transaction-id": ignored})
    client.commit(ignored)
    assert ids(client) == [1, 2, 3]
    client.commit(used)
    assert ids(client) == [1, 2, 3, 9]


FAILURES: dict[str, Any] = {
    "unknown table": lambda client, inside: client.delete_failure("shop.no", [0], inside),
    "unknown schema": lambda client, inside: client.put_failure(
        insert_command("no.items"), ROW, inside
    ),
    "unknown row id": lambda client, inside: client.delete_failure("shop.items", [77], inside),
    "schema mismatch": lambda client, inside: client.put_failure(
        insert_command("shop.items"), NAME, inside
    ),
    "a value that does not fit": lambda client, inside: client.put_failure(
        update_command("shop.items", [0]), pa.table({"id": ["x"]}), inside
    ),
    "counts that differ": lambda client, inside: client.put_failure(
        update_command("shop.items", [0, 1]), NAME, inside
    ),
}


@pytest.mark.parametrize("fail", FAILURES.values(), ids=FAILURES)
def test_an_operation_that_fails_rolls_the_whole_transaction_back(client, fail):
    begun = client.begin()
    inside = in_transaction(begun)

    with client.unchanged():
        client.insert("shop.orders", pa.table({"n": [2]}), inside)
        client.insert("shop.items", ROW, inside)
        fail(client, inside)

        assert client.status(begun) == "aborted"
        failure = client.action_failure("commit_transaction", {"transaction_id": begun})
        assert failure.message.endswith("is not active (state: aborted)")


def test_a_constraint_violation_rolls_the_whole_transaction_back(client):
    client.action("create_table", create_table_body(unique_constraints=[0]))
    begun = client.begin()
    inside = in_transaction(begun)

    with client.unchanged():
        client.insert("shop.items", ROW, inside)
        client.insert("shop.fresh", pa.table({"k": [1], "v": ["a"]}), inside)
        failure = client.put_failure(
            insert_command("shop.fresh"), pa.table({"k": [1], "v": ["b"]}), inside
        )
        assert failure.code == "FAILED_PRECONDITION"
        assert "Duplicate key" in failure.message
        assert client.status(begun) == "aborted"


def test_a_conflict_at_commit_leaves_nothing_of_the_transaction(client):
    begun = client.begin()
    client.update("shop.items", [0], NAME, in_transaction(begun))
    client.insert("shop.orders", pa.table({"n": [2]}), in_transaction(begun))
    client.update("shop.items", [0], pa.table({"name": ["first"]}))

    with client.unchanged():
        failure = client.action_failure("commit_transaction", {"transaction_id": begun})

    assert failure.code == "ABORTED"
    assert client.status(begun) == "aborted"
    assert client.rows("shop.items")[0]["name"] == "first"
    assert client.rows("shop.orders") == [{"n": 1}]


# ----------------------------------------------------------------------------------------- reading


@pytest.mark.parametrize("header", HEADERS)
def test_reads_inside_see_the_transactions_own_writes_and_others_do_not(client, header):
    begun = client.begin()
    inside = in_transaction(begun, header)
    client.insert("shop.items", ROW, inside)
    client.update("shop.items", [0], NAME, inside)
    client.delete("shop.items", [1], inside)

    assert [(row["id"], row["name"]) for row in client.rows("shop.items", inside)] == [
        (1, "changed"),
        (3, None),
        (9, "new"),
    ]
    assert [(row["id"], row["name"]) for row in client.rows("shop.items")] == [
        (1, "ant"),
        (2, "bee"),
        (3, None),
    ]
    assert ids(client, in_transaction(client.begin())) == [1, 2, 3]


def test_writes_inside_build_on_each_other(client):
    begun = client.begin()
    inside = in_transaction(begun)
    client.insert("shop.items", ROW, inside)
    (added,) = [
        row["rowid"] for row in client.rows_with_ids("shop.items", inside) if row["id"] == 9
    ]

    (changed,) = client.update("shop.items", [added], NAME, inside, returning=True).returned
    assert (changed["id"], changed["name"]) == (9, "changed")
    (removed,) = client.delete("shop.items", [added], inside, returning=True).returned
    assert removed["name"] == "changed"

    client.commit(begun)
    assert ids(client) == [1, 2, 3]


def test_all_scans_with_one_id_read_one_snapshot(client):
    inside = in_transaction(client.begin())
    before = ids(client, inside)

    client.insert("shop.items", ROW)
    client.insert("shop.orders", pa.table({"n": [2]}))

    assert ids(client, inside) == before == [1, 2, 3]
    assert client.rows("shop.orders", inside) == [{"n": 1}]
    assert ids(client) == [1, 2, 3, 9]


def test_a_ticket_made_inside_reads_the_same_without_the_header(client):
    inside = in_transaction(client.begin())
    client.insert("shop.items", ROW, inside)

    info = client.flight_info("shop.items", inside)

    assert len(client.read(info)) == 4


# ----------------------------------------------------------------------------------- without an id


@pytest.mark.parametrize("operation", OPERATIONS)
def test_without_an_id_every_operation_commits_by_itself(client, operation):
    before = client.rows("shop.items")

    assert run(client, operation, None).affected_rows == 1

    assert client.rows("shop.items") != before


# ------------------------------------------------------------------------------- the client's path


def test_an_exchange_commits_by_itself_and_leaves_the_id_usable(client):
    begun = client.begin(DUCKDB)
    inside = in_transaction(begun)

    for _ in range(3):
        assert client.exchange("insert", "shop.items", ROW, inside).total_changed == 1

    assert client.status(begun) == "active"
    assert ids(client) == [1, 2, 3, 9, 9, 9]
    assert ids(client, inside) == [1, 2, 3, 9, 9, 9]


def test_an_exchange_that_fails_leaves_the_id_usable(client):
    inside = in_transaction(client.begin(DUCKDB))

    with client.unchanged():
        failure = client.exchange_failure(
            "delete", "shop.items", pa.table({"rowid": [0, 77]}), inside
        )

    assert failure.code == "NOT_FOUND"
    assert client.exchange("insert", "shop.items", ROW, inside).total_changed == 1


def test_an_exchange_with_a_committed_id_is_welcome(client):
    # One id serves all statements of a BEGIN block, and the client never says COMMIT (airport
    # §15.2).
    begun = client.begin(DUCKDB)
    client.commit(begun)

    assert client.exchange("insert", "shop.items", ROW, in_transaction(begun)).total_changed == 1


@pytest.mark.parametrize("state", ["aborted", "unknown"])
def test_an_exchange_with_an_id_that_is_not_good_is_refused(client, state):
    begun = client.begin() if state == "aborted" else "nonsense"
    if state == "aborted":
        client.rollback(begun)

    with client.unchanged():
        failure = client.exchange_failure("insert", "shop.items", ROW, in_transaction(begun))

    assert failure.code == "FAILED_PRECONDITION"
    assert failure.message.endswith(f"is not active (state: {state})")


# -------------------------------------------------------------------- without a TransactionManager


@pytest.fixture
def plain(serve):
    """A server whose catalog has no transactions."""
    return serve(catalog_of(Everything("t"), name="plain"))


def test_create_transaction_without_a_manager_answers_with_nil(plain):
    (answer,) = plain.action("create_transaction", b"")

    assert msgpack.unpackb(answer) == {"identifier": None}


@pytest.mark.parametrize("action", ["get_transaction_status", *ENDINGS])
def test_error_no_transaction_manager(plain, action):
    failure = plain.action_failure(action, {"transaction_id": "x"})

    assert (failure.code, failure.message) == (
        "UNIMPLEMENTED",
        "transaction manager not configured",
    )


@pytest.mark.parametrize("header", HEADERS)
def test_a_write_with_an_id_but_without_a_manager_is_unimplemented(plain, header):
    headers = in_transaction("x", header)
    failures = [
        plain.put_failure(insert_command("s.t"), pa.table({"a": [1], "b": ["x"]}), headers),
        plain.put_failure(update_command("s.t", [10]), pa.table({"b": ["x"]}), headers),
        plain.delete_failure("s.t", [10], headers),
    ]

    assert {(each.code, each.message) for each in failures} == {
        ("UNIMPLEMENTED", "transaction manager not configured")
    }
    assert len(plain.rows("s.t")) == 3


def test_a_catalog_without_a_manager_works_without_transactions(plain):
    assert plain.insert("s.t", pa.table({"a": [1], "b": ["x"]})).affected_rows == 1
    assert (
        plain.exchange(
            "delete", "s.t", pa.table({"rowid": [10]}), in_transaction("x")
        ).total_changed
        == 1
    )


# -------------------------------------------------------------------------- what a manager is told


class InTransactions(Everything):
    """Notes the transactions of its calls; refuses -1."""

    def __init__(self) -> None:
        super().__init__("t")
        self.seen: list[tuple[str | None, str | None]] = []

    def insert(self, ctx: Context, rows: RecordReader, options: DMLOptions) -> DMLResult:
        self.seen.append((ctx.transaction_id, ctx.parent_transaction_id))
        batches = list(rows)
        if any(row["a"] == -1 for batch in batches for row in batch.to_pylist()):
            raise ConstraintViolation("not -1")
        return super().insert(ctx, batches, options)


def rows_of(*values: int) -> tuple[pa.Schema, Sequence[pa.RecordBatch]]:
    body = batches_of(COLUMNS, *([{"a": value, "b": "x"}] for value in values))
    assert isinstance(body, tuple)
    return body


@pytest.fixture
def noting(serve):
    table = InTransactions()
    manager = NotingManager(table)
    return serve(manager), manager, table


@pytest.mark.parametrize("returning", [False, True], ids=["", "returning"])
@pytest.mark.parametrize("path", ["exchange", "put"])
def test_an_operation_begins_and_commits_a_transaction_of_its_own(noting, path, returning):
    client, manager, table = noting

    if path == "put":
        client.insert("s.t", rows_of(1), returning=returning)
    else:
        client.exchange("insert", "s.t", rows_of(1), returning=returning)

    assert manager.told == [("begin", "tx/1"), ("commit", "tx/1")]
    assert table.seen == [("tx/1", None)]


@pytest.mark.parametrize("returning", [False, True], ids=["", "returning"])
@pytest.mark.parametrize("path", ["exchange", "put"])
def test_an_operation_that_fails_is_rolled_back(noting, path, returning):
    client, manager, _ = noting

    if path == "put":
        failure = client.put_failure(insert_command("s.t", returning), rows_of(1, -1))
    else:
        failure = client.exchange_failure("insert", "s.t", rows_of(1, -1), returning=returning)

    assert failure.message == "not -1"
    assert manager.told == [("begin", "tx/1"), ("rollback", "tx/1")]


def test_operations_of_a_callers_transaction_begin_and_commit_nothing(noting):
    client, manager, table = noting
    begun = client.begin()

    client.insert("s.t", rows_of(1), in_transaction(begun))
    client.insert("s.t", rows_of(2), in_transaction(begun))
    client.commit(begun)

    assert manager.told == [("begin", "tx/1"), ("commit", "tx/1")]
    assert table.seen == [("tx/1", None), ("tx/1", None)]


def test_a_failing_operation_of_a_callers_transaction_rolls_that_back(noting):
    client, manager, _ = noting
    begun = client.begin()

    client.put_failure(insert_command("s.t"), rows_of(-1), in_transaction(begun))

    assert manager.told[-1] == ("rollback", "tx/1")
    assert client.status(begun) == "aborted"


def test_a_write_of_duckdb_has_its_transaction_as_the_parent(noting):
    client, manager, table = noting
    begun = client.begin(DUCKDB)

    client.exchange("insert", "s.t", rows_of(1), in_transaction(begun))

    assert manager.told == [("begin", "tx/1"), ("begin", "tx/2"), ("commit", "tx/2")]
    assert table.seen == [("tx/2", "tx/1")]


def test_a_commit_raises_the_version_of_a_catalog_that_does_not_count_itself(serve):
    """Plans of prepared statements hold statistics of the rows, and become visible rows only now
    (decision 0007).
    """
    client = serve(NotingManager(Everything("t")))

    def version() -> int:
        (answer,) = client.action("catalog_version", {"catalog_name": "lake"})
        return int(msgpack.unpackb(answer)["catalog_version"])

    (answer,) = client.action("create_transaction", {"catalog_name": "lake"})
    begun = msgpack.unpackb(answer)["identifier"]
    before = version()
    client.action("commit_transaction", {"transaction_id": begun})

    assert version() > before
