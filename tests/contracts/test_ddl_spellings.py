"""Both spellings of DDL bodies (airport §15.1), and CREATE SCHEMA for those who can and cannot say
what they mean.
"""

from __future__ import annotations

from typing import Any

import msgpack
import pyarrow as pa
import pytest
from tests.contracts.contract_client import DUCKDB, insert_command
from tests.contracts.ddl_requests import (
    NEW_TABLE,
    add_column_body,
    column_names,
    contents,
    create_schema_body,
    create_table_body,
    described,
    drop_schema_body,
    drop_table_body,
    one_column,
    serialized,
    without,
)

from sparkport.server import ServerSettings

# -------------------------------------------------------------------------- names and missing keys


@pytest.mark.parametrize(
    "names",
    [{"name": "spare", "schema_name": "spare"}, {"name": "spare", "schema_name": ""},
     {"name": "spare"},
     {"schema_name": "spare"}, {"name": "", "schema_name": "spare"}],
    ids=["contract: both", "client: name, schema_name empty", "only name", "only schema_name",
         "name empty"],
)  # fmt: skip
def test_drop_schema_finds_the_schema_under_either_key(client, names):
    client.action("drop_schema", without(drop_schema_body(), "name", "schema_name") | names)

    assert "spare" not in client.list_schemas()


def test_create_schema_takes_the_name_as_schema_name_too(client):
    client.action("create_schema", {"schema_name": "fresh"})

    assert "fresh" in client.list_schemas()


@pytest.mark.parametrize("comment", ["missing", "nil", "text"])
@pytest.mark.parametrize("tags", ["missing", "nil", "empty", "filled"])
def test_create_schema_takes_comment_and_tags_in_every_form(client, comment, tags):
    body = without(create_schema_body(), "comment", "tags")
    comments: dict[str, Any] = {"nil": None, "text": "hello"}
    filled: dict[str, Any] = {"nil": None, "empty": {}, "filled": {"a": "b"}}
    body |= {"comment": comments[comment]} if comment in comments else {}
    body |= {"tags": filled[tags]} if tags in filled else {}

    client.action("create_schema", body)

    (entry,) = [entry for entry in client.schema_entries() if entry["name"] == "fresh"]
    assert entry["description"] == ("hello" if comment == "text" else "")
    assert entry["tags"] == ({"a": "b"} if tags == "filled" else {})


@pytest.mark.parametrize("action", ["create_table", "add_column"])
def test_arrow_schemas_may_be_str_or_bin(client, action):
    body = create_table_body() if action == "create_table" else add_column_body()

    # Without `bin`, bytes are packed as `str` that is not UTF-8, as DuckDB does.
    as_str = msgpack.packb(body, use_bin_type=False)

    assert len(client.action(action, as_str)) == 1


def test_create_table_takes_the_names_in_the_other_spelling(client):
    body = without(create_table_body(), "schema_name", "table_name", "catalog_name")

    client.action("create_table", body | {"schema": "shop", "name": "fresh", "catalog": "lake"})

    assert "fresh" in client.list_schemas()["shop"]


def test_drop_table_takes_the_names_in_the_other_spelling(client):
    client.action("drop_table", {"schema": "shop", "table_name": "items"})

    assert client.list_schemas()["shop"] == {}


def test_a_key_that_comes_twice_counts_once(client):
    # DuckDB's set_not_null has `ignore_not_found` twice (T37).
    pairs = [("catalog", ""), ("schema", "shop"), ("name", "items"), ("ignore_not_found", False)]
    pairs += [("column_name", "id"), ("ignore_not_found", False)]
    packer = msgpack.Packer()
    body = packer.pack_map_header(len(pairs)) + b"".join(
        packer.pack(each) for pair in pairs for each in pair
    )

    assert not described(client, "set_not_null", body).schema.field("id").nullable


# ------------------------------------------------------------------------------------- constraints


BOTH_SOURCES = [
    pytest.param(
        {"unique_constraints": [0]},
        {"k": [1, 1], "v": ["a", "b"]},
        id="contract: unique_constraints",
    ),
    pytest.param(
        {"unique_columns": ["k"]}, {"k": [1, 1], "v": ["a", "b"]}, id="client: unique_columns"
    ),
    pytest.param(
        {"primary_key_columns": ["k"]},
        {"k": [1, 1], "v": ["a", "b"]},
        id="client: primary_key_columns",
    ),
    pytest.param(
        {"primary_key_columns": ["k"]}, {"k": [None], "v": ["a"]}, id="client: a key is NOT NULL"
    ),
    pytest.param(
        {"multi_key_primary_keys": ["v", "k"]},
        {"k": [1, 1], "v": ["a", "a"]},
        id="client: multi_key_primary_keys",
    ),
    pytest.param(
        {"extra_constraints": ["UNIQUE(k, v)"]},
        {"k": [1, 1], "v": ["a", "a"]},
        id="client: extra_constraints",
    ),
    pytest.param(
        {"not_null_constraints": [1]}, {"k": [1], "v": [None]}, id="both: not_null_constraints"
    ),
    pytest.param(
        {"check_constraints": ["(k > 0)"]}, {"k": [0], "v": ["a"]}, id="both: check_constraints"
    ),
    pytest.param(
        {"unique_constraints": [1], "unique_columns": ["k"]},
        {"k": [1, 2], "v": ["a", "a"]},
        id="both sources: first",
    ),
    pytest.param(
        {"unique_constraints": [1], "unique_columns": ["k"]},
        {"k": [1, 1], "v": ["a", "b"]},
        id="both sources: second",
    ),
]


@pytest.mark.parametrize(("constraint", "rows"), BOTH_SOURCES)
def test_constraints_of_both_sources_are_enforced(client, constraint, rows):
    client.action("create_table", create_table_body(**constraint))

    with client.unchanged():
        failure = client.put_failure(insert_command("shop.fresh"), pa.table(rows, NEW_TABLE))

    assert failure.code == "FAILED_PRECONDITION"


@pytest.mark.parametrize(
    "constraint",
    [
        {"unique_constraints": [0]},
        {"extra_constraints": ["UNIQUE(k, v)"]},
        {"multi_key_primary_keys": ["v", "k"]},
        {"check_constraints": ["(k > 0)"]},
    ],
    ids=["unique", "composite unique", "composite primary key", "check"],
)
def test_rows_that_fulfil_them_are_welcome(client, constraint):
    client.action("create_table", create_table_body(**constraint))

    assert client.insert("shop.fresh", pa.table({"k": [1, 2], "v": ["a", "a"]})).affected_rows == 2


def test_not_null_columns_are_published_as_not_nullable(client):
    info = described(
        client,
        "create_table",
        create_table_body(not_null_constraints=[1], primary_key_columns=["k"]),
    )

    assert [info.schema.field(name).nullable for name in ("k", "v")] == [False, False]


@pytest.mark.parametrize(
    "changed",
    [
        {"not_null_constraints": [2]},
        {"not_null_constraints": [-1]},
        {"not_null_constraints": ["k"]},
        {"unique_constraints": [99]},
        {"check_constraints": ["this is not SQL"]},
        {"check_constraints": ["(no > 1)"]},
        {"check_constraints": ["k > (SELECT max(k) FROM fresh)"]},
        {"check_constraints": ["true); DROP TABLE items; --"]},
        {"check_constraints": [7]},
        {"unique_columns": ["no"]},
        {"primary_key_columns": ["no"]},
        {"primary_key_columns": ["k"], "multi_key_primary_keys": ["k", "v"]},
        {"multi_key_primary_keys": ["k", "no"]},
        {"extra_constraints": ["UNIQUE(k, no)"]},
        {"extra_constraints": ["EXCLUDE (k)"]},
        {"extra_constraints": "UNIQUE(k)"},
    ],
    ids=lambda changed: " and ".join(f"{key}={value}" for key, value in changed.items()),
)
def test_constraints_that_make_no_sense_are_an_invalid_argument(client, changed):
    with client.unchanged():
        assert (
            client.action_failure("create_table", create_table_body(**changed)).code
            == "INVALID_ARGUMENT"
        )


# ----------------------------------------------------------------------------------- CREATE SCHEMA


def test_duckdb_creates_a_schema_that_exists_and_gets_its_contents(client):
    # CREATE SCHEMA IF NOT EXISTS looks like CREATE SCHEMA on the wire (airport §4.10).
    with client.unchanged():
        answer = contents(client, create_schema_body(schema="shop"), DUCKDB)

    (entry,) = [entry for entry in client.schema_entries("lake", DUCKDB) if entry["name"] == "shop"]
    assert answer == entry["contents"]


@pytest.mark.parametrize(
    "headers", [None, {"airport-user-agent": "curl/8"}], ids=["no agent", "another agent"]
)
def test_everyone_else_is_told_that_a_schema_exists(client, headers):
    with client.unchanged():
        assert (
            client.action_failure("create_schema", create_schema_body(schema="shop"), headers).code
            == "ALREADY_EXISTS"
        )


def test_the_strict_setting_tells_duckdb_too(serve, catalog):
    client = serve(catalog, ServerSettings(strict_create_schema=True))

    with client.unchanged():
        failure = client.action_failure("create_schema", create_schema_body(schema="shop"), DUCKDB)

    assert failure.code == "ALREADY_EXISTS"
    assert len(client.action("create_schema", create_schema_body(), DUCKDB)) == 1


@pytest.mark.parametrize("headers", [None, DUCKDB], ids=["another client", "duckdb"])
@pytest.mark.parametrize(
    ("said", "code"),
    [
        ({"on_conflict": "error"}, "ALREADY_EXISTS"),
        ({"on_conflict": "ignore"}, None),
        ({"if_not_exists": True}, None),
        ({"if_not_exists": False}, "ALREADY_EXISTS"),
        ({"on_conflict": "replace"}, "FAILED_PRECONDITION"),
    ],
    ids=str,
)
def test_who_says_what_shall_happen_gets_that(client, headers, said, code):
    body = create_schema_body(schema="shop", **said)

    with client.unchanged():
        if code is None:
            assert len(client.action("create_schema", body, headers)) == 1
        else:
            assert client.action_failure("create_schema", body, headers).code == code


def test_replace_makes_an_empty_schema_anew(client):
    client.action(
        "create_schema", create_schema_body(schema="spare", comment="again", on_conflict="replace")
    )

    (entry,) = [entry for entry in client.schema_entries() if entry["name"] == "spare"]
    assert entry["description"] == "again"


def test_duckdb_cannot_have_a_schema_called_main(client):
    with client.unchanged():
        failure = client.action_failure("create_schema", create_schema_body(schema="main"), DUCKDB)

    assert failure.code == "INVALID_ARGUMENT"


# -------------------------------------------------------------------------------------- bad bodies


@pytest.mark.parametrize(
    "body", [b"", b"\xc1", b"\xff\xff", b"{}", msgpack.packb([1, 2]), msgpack.packb("x"),
             msgpack.packb(None)],
    ids=["empty", "not MessagePack", "an integer", "JSON", "a list", "text", "nil"],
)  # fmt: skip
@pytest.mark.parametrize(
    "action",
    ["create_schema", "drop_schema", "create_table", "drop_table", "add_column", "remove_column"],
)
def test_a_body_that_is_no_map_is_an_invalid_argument(client, action, body):
    with client.unchanged():
        failure = client.action_failure(action, body)

    assert failure.code == "INVALID_ARGUMENT"
    assert action in failure.message


@pytest.mark.parametrize(
    ("action", "body"),
    [
        ("create_schema", create_schema_body(schema=7)),
        ("create_schema", create_schema_body(comment=7)),
        ("create_schema", create_schema_body(tags=["a"])),
        ("create_schema", create_schema_body(tags={"a": 7})),
        ("create_schema", create_schema_body(schema="nul\0")),
        ("create_schema", create_schema_body(schema=b"\xff\xfe")),
        ("drop_schema", drop_schema_body(ignore_not_found="yes")),
        ("drop_schema", drop_schema_body(name=[])),
        ("create_table", create_table_body(table_name=7)),
        ("create_table", create_table_body(arrow_schema=7)),
        ("create_table", create_table_body(on_conflict=7)),
        ("create_table", create_table_body(not_null_constraints=7)),
        ("create_table", create_table_body(pa.schema([("", pa.int64())]))),
        ("create_table", create_table_body(pa.schema([("k", pa.int64()), ("k", pa.int64())]))),
        ("create_table", create_table_body(pa.schema([("k", pa.int64()), ("K", pa.int64())]))),
        ("create_table", create_table_body(pa.schema([("rowid", pa.int64())]))),
        ("drop_table", drop_table_body(ignore_not_found=1)),
        ("add_column", add_column_body(column_schema=one_column(""))),
        ("add_column", add_column_body(column_schema=one_column("rowid"))),
        ("add_column", add_column_body(if_column_not_exists="no")),
    ],
)
def test_a_field_of_the_wrong_kind_is_an_invalid_argument(client, action, body):
    with client.unchanged():
        assert client.action_failure(action, body).code == "INVALID_ARGUMENT"


@pytest.mark.parametrize(
    "action", ["create_schema", "drop_schema", "create_table", "drop_table", "add_column"]
)
def test_extra_keys_are_ignored(client, action):
    bodies = {
        "create_schema": create_schema_body(),
        "drop_schema": drop_schema_body(),
        "create_table": create_table_body(),
        "drop_table": drop_table_body(),
        "add_column": add_column_body(),
    }

    client.action(action, bodies[action] | {"colour": "red", "size": 7, "nested": {"a": [1]}})


def test_a_type_that_duckdb_cannot_take_is_refused(client):
    with client.unchanged():
        failure = client.action_failure(
            "create_table", create_table_body(pa.schema([("h", pa.float16())]))
        )

    assert failure.code == "UNIMPLEMENTED"
    assert "use float or double" in failure.message


def test_an_arrow_schema_with_bytes_behind_it_is_read(client):
    body = create_table_body(arrow_schema=serialized(NEW_TABLE) + bytes(8))

    assert column_names(described(client, "create_table", body)) == ["k", "v"]
