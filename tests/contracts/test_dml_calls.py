"""contracts/dml-transactions.md: DoPut with InsertDescriptor and UpdateDescriptor, the action
`delete`, DMLResponse.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.flight as flight
import pytest
from tests.contracts.conftest import ITEMS
from tests.contracts.contract_client import (
    as_json,
    batches_of,
    delete_body,
    flight_messages,
    insert_command,
    update_command,
)
from tests.contracts.written_tables import Deletes, Everything, Inserts, Updates, WrittenTable
from tests.server.catalogs import ListedTable, catalog_of, numbers
from tests.server.raw_client import path

from sparkport.catalog import Context

NEW = pa.Table.from_pylist(
    [{"id": 4, "name": "cat", "price": 4.5}, {"id": 5, "name": None, "price": None}], ITEMS
)
NAMES = pa.table({"name": ["ape", "bat"]})


# ----------------------------------------------------------------------------------------- success


def test_insert_adds_rows_and_counts_them(client):
    response = client.insert("shop.items", NEW)

    assert response.packed == {"status": "success", "affected_rows": 2}
    assert client.rows("shop.items")[3:] == NEW.to_pylist()


def test_insert_with_returning_gives_the_rows_back_as_arrow_ipc(client):
    response = client.insert("shop.items", NEW, returning=True)

    assert set(response.packed) == {"status", "affected_rows", "returning_data"}
    assert [
        {name: row[name] for name in ITEMS.names} for row in response.returned
    ] == NEW.to_pylist()


def test_update_changes_the_rows_of_the_ids_in_their_order(client):
    response = client.update("shop.items", [2, 0], NAMES)

    assert response.packed == {"status": "success", "affected_rows": 2}
    assert [row["name"] for row in client.rows("shop.items")] == ["bat", "bee", "ape"]
    assert [row["price"] for row in client.rows("shop.items")] == [1.5, None, 3.5]


def test_update_with_returning_gives_the_rows_as_they_are_afterwards(client):
    response = client.update("shop.items", [2, 0], NAMES, returning=True)

    assert [(row["id"], row["name"], row["price"]) for row in response.returned] == [
        (3, "ape", 3.5),
        (1, "bat", 1.5),
    ]


def test_delete_removes_the_rows_of_the_ids(client):
    response = client.delete("shop.items", [2, 0])

    assert response.packed == {"status": "success", "affected_rows": 2}
    assert [row["id"] for row in client.rows("shop.items")] == [2]


def test_delete_with_returning_gives_the_rows_as_they_were(client):
    response = client.delete("shop.items", [2, 0], returning=True)

    assert [(row["id"], row["name"]) for row in response.returned] == [(3, None), (1, "ant")]


def test_affected_rows_counts_rows_and_not_ids(client):
    assert client.delete("shop.items", [0, 0]).affected_rows == 1


def test_a_row_is_not_updated_twice_by_one_statement(client):
    with client.unchanged():
        failure = client.put_failure(update_command("shop.items", [0, 0]), NAMES)

    assert failure.code == "INVALID_ARGUMENT"
    assert failure.message == "row 0 of table shop.items is updated twice by one statement"


def test_an_insert_of_many_batches_is_one_statement(client):
    batches = [[{"id": 10 * n + i, "name": "x", "price": 1.0} for i in range(3)] for n in range(5)]

    assert client.insert("shop.items", batches_of(ITEMS, *batches)).affected_rows == 15
    assert len(client.rows("shop.items")) == 18


@pytest.mark.parametrize("returning", [False, True], ids=["", "returning"])
@pytest.mark.parametrize("batches", [(), ([],)], ids=["no batch", "a batch without rows"])
def test_an_insert_without_rows_succeeds(client, batches, returning):
    response = client.insert("shop.items", batches_of(ITEMS, *batches), returning=returning)

    assert (response.status, response.affected_rows) == ("success", 0)
    if returning:
        assert response.returned == []


def test_what_is_inserted_is_converted_to_the_tables_types(client):
    rows = pa.table(
        {
            "PRICE": pa.array([2], pa.float32()),
            "name": pa.array(["x"], pa.large_string()),
            "id": pa.array([9], pa.uint8()),
        }
    )

    client.insert("shop.items", rows)

    assert client.rows("shop.items")[3] == {"id": 9, "name": "x", "price": 2.0}


@pytest.mark.parametrize("returning", [None, False], ids=["nil", "false"])
def test_returning_is_optional(client, returning):
    response = client.put(insert_command("shop.items") | {"returning": returning}, NEW)

    assert "returning_data" not in response.packed


def test_extra_keys_are_ignored(client):
    extra = {"colour": "red", "version": 2}

    assert client.put(insert_command("shop.items") | extra, NEW).affected_rows == 2
    assert client.put(update_command("shop.items", [0, 1]) | extra, NAMES).affected_rows == 2
    assert len(client.action("delete", as_json(delete_body("shop.items", [0]) | extra))) == 1


@pytest.mark.parametrize("how", ["header", "body"])
def test_the_catalog_may_be_named_by_a_header_or_in_the_command(serve, catalog, how):
    other = catalog_of(Everything("items"), name="other", schema="shop")
    client = serve([catalog_of(name="first"), other, catalog])
    named = {"catalog_name": "other"} if how == "body" else {}
    headers = {"airport-catalog": "other"} if how == "header" else None

    response = client.put(
        insert_command("shop.items") | named, pa.table({"a": [1], "b": ["x"]}), headers
    )

    assert response.affected_rows == 1


def test_pyarrows_own_client_can_do_all_of_it(client):
    options = flight.FlightCallOptions(timeout=20)
    with flight.connect(client.location) as arrow:
        descriptor = flight.FlightDescriptor.for_command(as_json(insert_command("shop.items")))
        writer, results = arrow.do_put(descriptor, ITEMS, options)
        writer.write_table(NEW)
        writer.done_writing()
        assert b"success" in results.read().to_pybytes()
        writer.close()

        (result,) = arrow.do_action(
            flight.Action("delete", as_json(delete_body("shop.items", [0]))), options
        )
        assert b"success" in result.body.to_pybytes()

    assert [row["id"] for row in client.rows("shop.items")] == [2, 3, 4, 5]


# ------------------------------------------------------------------------- error types, row by row


def failure_of(client, operation, table="shop.items", rows=None, row_ids=(0, 1)):
    if operation == "insert":
        return client.put_failure(insert_command(table), NEW if rows is None else rows)
    if operation == "update":
        return client.put_failure(update_command(table, row_ids), NAMES if rows is None else rows)
    return client.delete_failure(table, row_ids)


OPERATIONS = ["insert", "update", "delete"]


@pytest.mark.parametrize("operation", OPERATIONS)
def test_error_schema_not_found(client, operation):
    with client.unchanged():
        failure = failure_of(client, operation, "no.items")

    assert (failure.code, failure.message) == ("NOT_FOUND", "schema no not found")


@pytest.mark.parametrize("operation", OPERATIONS)
def test_error_table_not_found(client, operation):
    with client.unchanged():
        failure = failure_of(client, operation, "shop.no")

    assert (failure.code, failure.message) == ("NOT_FOUND", "table shop.no not found")


@pytest.mark.parametrize(
    "table", [WrittenTable("t"), Updates("t"), Deletes("t")], ids=lambda t: type(t).__name__
)
def test_error_INSERT_not_supported(serve, table):
    failure = failure_of(
        serve(catalog_of(table)), "insert", "s.t", pa.table({"a": [1], "b": ["x"]})
    )

    assert failure.code == "FAILED_PRECONDITION"
    assert failure.message == "table t does not support INSERT operations"


@pytest.mark.parametrize(
    "table", [WrittenTable("t"), Inserts("t"), Deletes("t")], ids=lambda t: type(t).__name__
)
def test_error_UPDATE_not_supported(serve, table):
    failure = failure_of(serve(catalog_of(table)), "update", "s.t", pa.table({"b": ["x", "y"]}))

    assert failure.code == "FAILED_PRECONDITION"
    assert failure.message == "table t does not support UPDATE operations (no rowid)"


@pytest.mark.parametrize(
    "table", [WrittenTable("t"), Inserts("t"), Updates("t")], ids=lambda t: type(t).__name__
)
def test_error_DELETE_not_supported(serve, table):
    failure = failure_of(serve(catalog_of(table)), "delete", "s.t")

    assert failure.code == "FAILED_PRECONDITION"
    assert failure.message == "table t does not support DELETE operations (no rowid)"


@pytest.mark.parametrize("operation", ["update", "delete"])
def test_error_not_supported_without_a_row_id_column(client, catalog, operation):
    catalog.schema(Context(), "shop").add_table(ListedTable("plain", numbers()))

    with client.unchanged():
        failure = failure_of(client, operation, "shop.plain")

    assert failure.code == "FAILED_PRECONDITION"
    assert (
        failure.message == f"table plain does not support {operation.upper()} operations (no rowid)"
    )


@pytest.mark.parametrize("row_ids", [[], None], ids=["empty", "missing"])
@pytest.mark.parametrize("operation", ["update", "delete"])
def test_error_empty_row_ids(client, operation, row_ids):
    with client.unchanged():
        if operation == "update":
            failure = client.put_failure(
                update_command("shop.items", []) | {"row_ids": row_ids}, NAMES.slice(0, 0)
            )
        else:
            failure = client.action_failure(
                "delete", as_json(delete_body("shop.items", []) | {"row_ids": row_ids})
            )

    assert failure.code == "INVALID_ARGUMENT"
    assert failure.message == "row_ids cannot be empty for UPDATE/DELETE"


MISMATCHES = {
    "an unknown column": (
        "insert",
        NEW.append_column("zoo", pa.array([1, 2])),
        "has no column zoo",
    ),
    "a missing column": (
        "insert",
        NEW.drop_columns(["price"]),
        "has a column price, which was not sent",
    ),
    "a column that comes twice": (
        "insert",
        NEW.append_column("id", pa.array([1, 2])),
        "sent twice",
    ),
    "a type that cannot be converted": (
        "insert",
        NEW.set_column(0, "id", pa.array([[1], [2]])),
        "column id is int64",
    ),
    "a row id of its own": (
        "insert",
        NEW.append_column("rowid", pa.array([1, 2])),
        "has no column rowid",
    ),
    "an unknown column to update": ("update", pa.table({"zoo": [1, 2]}), "has no column zoo"),
    "an update of a type that cannot be converted": (
        "update",
        pa.table({"id": [[1], [2]]}),
        "column id is int64",
    ),
    "an update of nothing": (
        "update",
        pa.table({"x": [1, 2]}).drop_columns(["x"]),
        "needs a column to change",
    ),
    "an update with a row id column": (
        "update",
        pa.table({"name": ["a", "b"], "rowid": [0, 1]}),
        "sent twice",
    ),
}


@pytest.mark.parametrize(("operation", "rows", "message"), MISMATCHES.values(), ids=MISMATCHES)
def test_error_schema_mismatch(client, operation, rows, message):
    with client.unchanged():
        failure = failure_of(client, operation, rows=rows)

    assert failure.code == "INVALID_ARGUMENT"
    assert failure.message.startswith("schema mismatch: ")
    assert message in failure.message


# Two rows of the table are in test_transactions.py: "Transaction not active", "No transaction
# manager".


# ------------------------------------------------------------------------------ row ids and counts


@pytest.mark.parametrize("operation", ["update", "delete"])
def test_a_row_id_that_does_not_exist_is_not_found(client, operation):
    with client.unchanged():
        failure = failure_of(client, operation, row_ids=[0, 77])

    assert failure.code == "NOT_FOUND"
    assert "row id 77" in failure.message


@pytest.mark.parametrize("returning", [False, True], ids=["", "returning"])
@pytest.mark.parametrize(
    "row_ids", [[0], [0, 1, 2]], ids=["fewer ids than rows", "more ids than rows"]
)
def test_there_must_be_as_many_row_ids_as_rows(client, row_ids, returning):
    with client.unchanged():
        failure = client.put_failure(update_command("shop.items", row_ids, returning), NAMES)

    assert failure.code == "INVALID_ARGUMENT"
    assert f"{len(row_ids)} row_ids" in failure.message


@pytest.mark.parametrize("returning", [False, True], ids=["", "returning"])
@pytest.mark.parametrize(
    "row_ids", [[10], [10, 11, 12]], ids=["fewer ids than rows", "more ids than rows"]
)
def test_a_table_of_the_simple_forms_is_not_called_when_the_counts_differ(
    serve, row_ids, returning
):
    table = Everything("t")
    client = serve(catalog_of(table))
    rows = batches_of(pa.schema([("b", pa.string())]), [{"b": "p"}], [{"b": "q"}])

    failure = client.put_failure(update_command("s.t", row_ids, returning), rows)

    assert failure.code == "INVALID_ARGUMENT"
    assert table.calls == []


@pytest.mark.parametrize(
    "row_ids",
    [["0"], [0.5], [None], [True], [[0]], 0, "0", {"0": 1}, [2**63], [-(2**63) - 1]],
    ids=[
        "text",
        "a fraction",
        "NULL",
        "a boolean",
        "a list",
        "no list",
        "text, no list",
        "a map",
        "too large",
        "too small",
    ],
)
@pytest.mark.parametrize("operation", ["update", "delete"])
def test_row_ids_that_are_no_integers_of_64_bits_are_an_invalid_argument(
    client, operation, row_ids
):
    with client.unchanged():
        if operation == "update":
            failure = client.put_failure(
                update_command("shop.items", []) | {"row_ids": row_ids}, NAMES.slice(0, 1)
            )
        else:
            failure = client.action_failure(
                "delete", as_json(delete_body("shop.items", []) | {"row_ids": row_ids})
            )

    assert failure.code == "INVALID_ARGUMENT"
    assert "'row_ids'" in failure.message


def test_a_null_row_id_in_an_exchange_is_an_invalid_argument(client):
    with client.unchanged():
        for operation in ("update", "delete"):
            rows = pa.table({"name": ["x", "y"], "rowid": pa.array([0, None], pa.int64())})
            failure = client.exchange_failure(operation, "shop.items", rows)
            assert failure.code == "INVALID_ARGUMENT"
            assert "NULL" in failure.message


@pytest.mark.parametrize(
    ("column", "value"),
    [("id", 1.5), ("id", 2**64 - 1), ("id", "x"), ("price", "x"), ("price", 2**53 + 1)],
)
def test_a_value_that_the_tables_type_cannot_hold_is_an_invalid_argument(client, column, value):
    kind = pa.uint64() if value == 2**64 - 1 else None
    rows = NEW.set_column(ITEMS.names.index(column), column, pa.array([value, value], kind))

    with client.unchanged():
        failure = client.put_failure(insert_command("shop.items"), rows)

    assert failure.code == "INVALID_ARGUMENT"
    assert f"column {column}" in failure.message


# --------------------------------------------------------------------------------- bad descriptors

REQUIRED = [
    ("insert", "operation"),
    ("insert", "schema_name"),
    ("insert", "table_name"),
    ("update", "operation"),
    ("update", "schema_name"),
    ("update", "table_name"),
    ("update", "row_ids"),
    ("delete", "schema_name"),
    ("delete", "table_name"),
    ("delete", "row_ids"),
]


@pytest.mark.parametrize("wrong", ["missing", "nil", "number", "map", "empty"])
@pytest.mark.parametrize(("operation", "key"), REQUIRED, ids=lambda value: value)
def test_a_required_field_that_is_missing_or_wrong_is_an_invalid_argument(
    client, operation, key, wrong
):
    commands = {
        "insert": insert_command("shop.items"),
        "update": update_command("shop.items", [0, 1]),
        "delete": delete_body("shop.items", [0, 1]),
    }
    command = {name: value for name, value in commands[operation].items() if name != key}
    empty = [] if key == "row_ids" else ""
    values: dict[str, Any] = {"nil": None, "number": 7, "map": {}, "empty": empty}
    command |= {key: values[wrong]} if wrong in values else {}

    with client.unchanged():
        if operation == "delete":
            failure = client.action_failure("delete", as_json(command))
        else:
            failure = client.put_failure(command, NEW if operation == "insert" else NAMES)

    assert failure.code == "INVALID_ARGUMENT"
    assert key in failure.message


@pytest.mark.parametrize("returning", ["yes", 1, []])
def test_returning_must_be_a_boolean(client, returning):
    with client.unchanged():
        failure = client.put_failure(insert_command("shop.items") | {"returning": returning}, NEW)

    assert failure.code == "INVALID_ARGUMENT"
    assert "'returning'" in failure.message


@pytest.mark.parametrize("operation", ["delete", "INSERT", "upsert", "insert "])
def test_any_other_operation_is_an_invalid_argument(client, operation):
    with client.unchanged():
        failure = client.put_failure(insert_command("shop.items") | {"operation": operation}, NEW)

    assert failure.code == "INVALID_ARGUMENT"
    assert repr(operation) in failure.message


@pytest.mark.parametrize(
    "command", [b"", b"{", b"[]", b"null", b"\xff", b'"insert"', b"\x81\xa1a\x01", b"[" * 100_000],
    ids=["empty", "cut off", "a list", "null", "not text", "a text", "MessagePack", "very deep"],
)  # fmt: skip
def test_a_command_that_is_no_json_object_is_an_invalid_argument(client, command):
    with client.unchanged():
        assert client.put_failure(command, NEW).code == "INVALID_ARGUMENT"
        assert client.action_failure("delete", command).code == "INVALID_ARGUMENT"


def test_a_put_with_a_path_is_an_invalid_argument(client):
    with client.unchanged():
        failure = client.failure("DoPut", flight_messages(path("shop", "items"), NEW))

    assert failure.code == "INVALID_ARGUMENT"
    assert "command" in failure.message


def test_a_put_without_a_descriptor_or_without_a_schema_is_an_invalid_argument(client):
    messages = flight_messages(
        flight.FlightDescriptor.for_command(as_json(insert_command("shop.items"))), NEW
    )

    with client.unchanged():
        assert client.failure("DoPut", []).code == "INVALID_ARGUMENT"
        assert client.failure("DoPut", messages[:1]).code == "INVALID_ARGUMENT"
        assert client.failure("DoPut", messages[2:]).code == "INVALID_ARGUMENT"


def test_a_stream_that_is_broken_in_the_middle_changes_nothing(client):
    descriptor = flight.FlightDescriptor.for_command(as_json(insert_command("shop.items")))
    messages = flight_messages(descriptor, NEW)

    with client.unchanged():
        failure = client.failure("DoPut", [*messages, b"\x12\x04junk"])

    assert failure.code == "INVALID_ARGUMENT"
