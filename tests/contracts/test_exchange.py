"""What DoExchange refuses: the contracts' codes, and nothing changed; what it converts on its way
to a table.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import grpc
import pyarrow as pa
import pyarrow.flight as flight
import pytest
from tests.contracts.conftest import ITEMS
from tests.contracts.contract_client import (
    as_json,
    batches_of,
    exchange_headers,
    flight_messages,
    insert_command,
)
from tests.contracts.ddl_requests import add_column_body, described
from tests.contracts.noting_manager import NotingManager
from tests.contracts.written_tables import ConstrainedRowIdForms, Everything
from tests.server.catalogs import ListedTable, catalog_of, numbers
from tests.server.raw_client import path

from sparkport.catalog import Constraints, Context
from sparkport.memory import MemoryCatalog, MemoryTable

ROW = pa.Table.from_pylist([{"id": 9, "name": "new", "price": 9.0}], ITEMS)


# ----------------------------------------------------------------------------------------- refused


@pytest.mark.parametrize("operation", [None, "", "select", "INSERT"])
def test_an_exchange_without_a_known_operation_is_an_invalid_argument(client, operation):
    headers = {} if operation is None else {"airport-operation": operation}

    with client.unchanged():
        failure = client.failure("DoExchange", flight_messages(path("shop", "items"), ROW), headers)

    assert failure.code == "INVALID_ARGUMENT"
    assert "airport-operation" in failure.message


@pytest.mark.parametrize(
    ("table", "message"),
    [("shop.no", "table shop.no not found"), ("no.items", "schema no not found")],
)
@pytest.mark.parametrize("operation", ["insert", "update", "delete"])
def test_an_unknown_table_is_not_found(client, operation, table, message):
    with client.unchanged():
        failure = client.exchange_failure(operation, table, ROW)

    assert (failure.code, failure.message) == ("NOT_FOUND", message)


def test_a_read_only_table_is_a_failed_precondition(client, catalog):
    catalog.schema(Context(), "shop").add_table(ListedTable("fixed", numbers()))

    with client.unchanged():
        failures = [
            client.exchange_failure("insert", "shop.fixed", numbers()),
            client.exchange_failure(
                "update", "shop.fixed", pa.table({"name": ["x"], "rowid": [0]})
            ),
            client.exchange_failure("delete", "shop.fixed", pa.table({"rowid": [0]})),
        ]

    assert [(failure.code, failure.message) for failure in failures] == [
        ("FAILED_PRECONDITION", "table fixed does not support INSERT operations"),
        ("FAILED_PRECONDITION", "table fixed does not support UPDATE operations (no rowid)"),
        ("FAILED_PRECONDITION", "table fixed does not support DELETE operations (no rowid)"),
    ]


@pytest.mark.parametrize("returning", [False, True], ids=["", "returning"])
@pytest.mark.parametrize(
    ("operation", "rows"),
    [
        ("insert", ROW.append_column("zoo", pa.array([1]))),
        ("insert", ROW.drop_columns(["price"])),
        ("insert", ROW.set_column(0, "id", pa.array([[1]]))),
        ("update", pa.table({"zoo": [1], "rowid": [0]})),
        ("update", pa.table({"rowid": [0]})),
        ("update", pa.table({"id": [[1]], "rowid": [0]})),
    ],
    ids=[
        "unknown column",
        "missing column",
        "type",
        "unknown column to update",
        "nothing to update",
        "type to update",
    ],
)
def test_a_schema_that_does_not_match_is_an_invalid_argument(client, operation, rows, returning):
    with client.unchanged():
        failure = client.exchange_failure(operation, "shop.items", rows, returning=returning)

    assert failure.code == "INVALID_ARGUMENT"
    assert failure.message.startswith("schema mismatch: ")


@pytest.mark.parametrize("returning", [False, True], ids=["", "returning"])
@pytest.mark.parametrize("operation", ["update", "delete"])
def test_a_row_id_that_does_not_exist_is_not_found(client, operation, returning):
    rows = batches_of(
        pa.schema([("name", pa.string()), ("rowid", pa.int64())]),
        [{"name": "x", "rowid": 0}],
        [{"name": "y", "rowid": 77}],
    )

    with client.unchanged():
        failure = client.exchange_failure(operation, "shop.items", rows, returning=returning)

    assert failure.code == "NOT_FOUND"
    assert "row id 77" in failure.message


def test_a_table_that_was_altered_since_it_was_described_is_a_failed_precondition(client):
    info = described(client, "add_column", add_column_body(), {"airport-user-agent": "airport/1"})
    client.action("remove_column", {"schema": "shop", "name": "items", "removed_column": "extra"})

    with client.unchanged():
        failure = client.failure(
            "DoExchange", flight_messages(info.descriptor, ROW), exchange_headers("insert")
        )

    assert failure.code == "FAILED_PRECONDITION"
    assert "ATTACH" in failure.message


def test_an_exchange_without_descriptor_or_schema_is_an_invalid_argument(client):
    messages = flight_messages(path("shop", "items"), ROW)
    command = flight_messages(
        flight.FlightDescriptor.for_command(as_json(insert_command("shop.items"))), ROW
    )

    with client.unchanged():
        for sent in ([], messages[:1], messages[2:], command, [b"\xff\xff"]):
            assert (
                client.failure("DoExchange", sent, exchange_headers("insert")).code
                == "INVALID_ARGUMENT"
            )


def test_a_batch_that_is_broken_changes_nothing(client):
    messages = flight_messages(path("shop", "items"), ROW)

    with client.unchanged():
        failure = client.failure(
            "DoExchange", [*messages, b"\x12\x04junk"], exchange_headers("insert")
        )

    assert failure.code == "INVALID_ARGUMENT"


# ----------------------------------------------------------------------------- clients that vanish


@pytest.mark.parametrize("method", ["DoExchange", "DoPut"])
def test_clients_that_vanish_in_the_middle_leave_nothing_behind(serve, method):
    # Many: the end of a stream that breaks off must not be taken for that of one that is complete,
    # ever.
    table = Everything("t")
    manager = NotingManager(table)
    client = serve(manager)
    descriptor = path("s", "t")
    if method == "DoPut":
        descriptor = flight.FlightDescriptor.for_command(as_json(insert_command("s.t")))

    for number in range(1, 51):
        _vanish(client, method, descriptor, partial(_has_begun, manager, number))

    _wait_for(lambda: len(manager.told) == 100)
    assert {told for told, _ in manager.told} == {"begin", "rollback"}
    assert table.calls == []


def _has_begun(manager: NotingManager, transactions: int) -> bool:
    return len(manager.states) == transactions


def _vanish(
    client: Any, method: str, descriptor: flight.FlightDescriptor, begun: Callable[[], bool]
) -> None:
    """Send a row, and go away when the server has begun."""
    sent, go_on = threading.Event(), threading.Event()

    def messages() -> Iterator[bytes]:
        yield from flight_messages(descriptor, pa.table({"a": [7], "b": ["x"]}))
        sent.set()
        go_on.wait(60)

    call = client.open(method, messages(), exchange_headers("insert"))
    try:
        assert sent.wait(60)
        _wait_for(begun)
        call.cancel()
        with pytest.raises(grpc.RpcError):
            list(call)
    finally:
        go_on.set()


def _wait_for(condition: Callable[[], object]) -> None:
    waiting = threading.Event()
    for _ in range(2000):
        if condition():
            return
        waiting.wait(0.005)
    raise AssertionError("it did not happen within ten seconds")


# ------------------------------------------------------------------------------------- conversions

ENUM = pa.dictionary(pa.int8(), pa.string())
WITH_ENUM = pa.schema([pa.field("k", pa.int64()), pa.field("e", ENUM)])


@pytest.mark.parametrize(
    "sent", [pa.string(), ENUM, pa.dictionary(pa.int32(), pa.large_string())], ids=str
)
@pytest.mark.parametrize("returning", [False, True], ids=["", "returning"])
def test_a_column_of_dictionaries_is_published_plain_and_can_be_written(serve, sent, returning):
    catalog = MemoryCatalog()
    rows = pa.Table.from_pylist([{"k": 1, "e": "a"}], WITH_ENUM)
    catalog.add_schema("s").add_table(
        MemoryTable("t", rows, constraints=Constraints(unique=(("e",),)))
    )
    client = serve(catalog)

    client.exchange(
        "insert", "s.t", pa.table({"k": [2], "e": pa.array(["b"], sent)}), returning=returning
    )
    client.exchange(
        "update", "s.t", pa.table({"e": pa.array(["c"], sent), "rowid": [0]}), returning=returning
    )

    assert client.flight_info("s.t").schema.field("e").type == pa.string()
    assert client.rows("s.t") == [{"k": 1, "e": "c"}, {"k": 2, "e": "b"}]
    with client.unchanged():
        failure = client.exchange_failure(
            "insert", "s.t", pa.table({"k": [3], "e": pa.array(["c"], sent)})
        )
    assert 'Duplicate key "e: c"' in failure.message


def test_a_table_of_the_simple_forms_gets_its_own_types(serve):
    table = ConstrainedRowIdForms(
        "t", [{"k": 1, "e": "a"}], columns=WITH_ENUM, constraints=Constraints(unique=(("e",),))
    )
    client = serve(catalog_of(table))

    client.insert("s.t", pa.table({"k": pa.array([2], pa.int8()), "e": ["b"]}))

    assert (
        client.put_failure(insert_command("s.t"), pa.table({"k": [3], "e": ["a"]})).code
        == "FAILED_PRECONDITION"
    )
    assert [row["e"] for row in client.rows("s.t")] == ["a", "b"]
    (call,) = table.calls
    assert call.rows == [{"k": 2, "e": "b"}]


def test_columns_that_differ_only_in_the_case_of_other_letters_than_ascii_are_two(serve):
    catalog = MemoryCatalog()
    columns = pa.schema([("é", pa.int64()), ("É", pa.int64())])
    catalog.add_schema("s").add_table(
        MemoryTable("t", pa.Table.from_pylist([{"é": 1, "É": 2}], columns))
    )
    client = serve(catalog)

    client.exchange("update", "s.t", pa.table({"É": [3], "rowid": [0]}))

    assert client.rows("s.t") == [{"é": 1, "É": 3}]
