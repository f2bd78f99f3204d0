"""The contracts' JSON commands for changing rows, and the answers to both kinds of client."""

from __future__ import annotations

import json
from typing import Any

import msgpack
import pytest

from sparkport.errors import BadRequest
from sparkport.wire import write

INSERT = {"operation": "insert", "schema_name": "s", "table_name": "t"}
UPDATE = {"operation": "update", "schema_name": "s", "table_name": "t", "row_ids": [3, -1]}
DELETE = {"schema_name": "s", "table_name": "t", "row_ids": [3, 2**63 - 1]}


def put(command: Any) -> write.InsertCommand | write.UpdateCommand:
    return write.decode_put_command(json.dumps(command).encode())


def delete(command: Any) -> write.DeleteCommand:
    return write.decode_delete(json.dumps(command).encode())


def test_insert() -> None:
    assert put(INSERT) == write.InsertCommand("s", "t")
    assert put({**INSERT, "returning": True, "catalog_name": "c"}) == write.InsertCommand(
        "s", "t", True, "c"
    )


def test_update() -> None:
    assert put(UPDATE) == write.UpdateCommand("s", "t", (3, -1))
    assert put({**UPDATE, "returning": True, "catalog_name": "c"}) == write.UpdateCommand(
        "s", "t", (3, -1), True, "c"
    )


def test_delete() -> None:
    assert delete(DELETE) == write.DeleteCommand("s", "t", (3, 2**63 - 1))
    assert delete({**DELETE, "returning": True, "catalog_name": "c"}).catalog == "c"


@pytest.mark.parametrize("row_ids", [[], None])
def test_row_ids_cannot_be_empty(row_ids) -> None:
    message = "^row_ids cannot be empty for UPDATE/DELETE$"
    with pytest.raises(BadRequest, match=message):
        put({**UPDATE, "row_ids": row_ids})
    with pytest.raises(BadRequest, match=message):
        delete({**DELETE, "row_ids": row_ids})


@pytest.mark.parametrize(
    ("row_ids", "problem"),
    [
        ([True], "must hold integers, not a boolean"),
        ([1.0], "must hold integers, not a floating-point number"),
        (["1"], "must hold integers, not text"),
        ([None], "must hold integers, not nothing"),
        ([2**63], "is not between"),
        ([-(2**63) - 1], "is not between"),
        (5, "must be a list, not an integer"),
        ({"a": 1}, "must be a list, not a map"),
    ],
)
def test_row_ids_are_integers_of_64_bits(row_ids, problem) -> None:
    for decode, command in ((put, UPDATE), (delete, DELETE)):
        with pytest.raises(BadRequest) as refusal:
            decode({**command, "row_ids": row_ids})
        assert problem in refusal.value.message


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        ({}, "DoPut: the field 'operation' is missing"),
        (
            {**INSERT, "operation": "upsert"},
            "DoPut: the operation must be insert or update, not 'upsert'",
        ),
        ({**INSERT, "operation": 1}, "DoPut: the field 'operation' must be text, not an integer"),
        ({**INSERT, "schema_name": ""}, "insert: the field 'schema_name' must not be empty"),
        ({**INSERT, "table_name": None}, "insert: the field 'table_name' is missing"),
        (
            {**INSERT, "table_name": 5},
            "insert: the field 'table_name' must be text, not an integer",
        ),
        ({**UPDATE, "table_name": ""}, "update: the field 'table_name' must not be empty"),
        (
            {**INSERT, "returning": "yes"},
            "insert: the field 'returning' must be true or false, not text",
        ),
        ([INSERT], "DoPut: the body must be a JSON object, not a list"),
    ],
)
def test_a_wrong_command_is_refused(command, problem) -> None:
    with pytest.raises(BadRequest) as refusal:
        put(command)
    assert refusal.value.message == problem


@pytest.mark.parametrize("body", [b"", b"insert", b"\xff\xfe", b"{", b'{"operation":'])
def test_a_command_that_is_no_json_is_refused(body) -> None:
    with pytest.raises(BadRequest, match="not valid JSON"):
        write.decode_put_command(body)


def test_the_response_leaves_out_what_is_empty() -> None:
    assert msgpack.unpackb(write.encode_dml_response("success", 3)) == {
        "status": "success",
        "affected_rows": 3,
    }
    assert msgpack.unpackb(write.encode_dml_response("success", 3, b"ipc")) == {
        "status": "success",
        "affected_rows": 3,
        "returning_data": b"ipc",
    }
    assert msgpack.unpackb(write.encode_dml_response("error", 0, error_message="no")) == {
        "status": "error",
        "affected_rows": 0,
        "error_message": "no",
    }


@pytest.mark.parametrize("count", [0, 1, 2048, 2**32, 2**63 - 1])
def test_the_count_of_changed_rows_is_an_unsigned_integer(count) -> None:
    assert msgpack.unpackb(write.encode_total_changed(count)) == {"total_changed": count}
