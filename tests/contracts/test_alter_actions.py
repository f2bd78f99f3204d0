"""The ALTER actions of airport §4.14 beyond the contract's two, each with its success and its
errors.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from tests.contracts.conftest import ITEMS
from tests.contracts.contract_client import insert_command
from tests.contracts.ddl_requests import (
    add_column_body,
    alter_body,
    column_names,
    described,
    one_column,
    remove_column_body,
    serialized,
    without,
)
from tests.server.catalogs import ListedSchema, ListedTable, numbers
from tests.server.raw_client import metadata

from sparkport.catalog import (
    AddColumnOptions,
    Constraints,
    Context,
    DynamicTable,
    RemoveColumnOptions,
)
from sparkport.memory import MemoryTable

STRUCT = pa.struct(
    [pa.field("a", pa.int32()), pa.field("b", pa.struct([pa.field("c", pa.int32())]))]
)
NESTED = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("st", STRUCT)])

ALTERS: dict[str, dict[str, Any]] = {
    "add_column": add_column_body(),
    "remove_column": remove_column_body(),
    "rename_column": alter_body(old_name="price", new_name="cost"),
    "rename_table": alter_body(new_table_name="things"),
    "set_default": alter_body(column_name="price", expression="(5 + 1)"),
    "set_not_null": alter_body(column_name="id"),
    "drop_not_null": alter_body(column_name="id"),
    "change_column_type": alter_body(
        column_schema=one_column("id", pa.string()), expression="CAST(id AS VARCHAR)"
    ),
    "add_field": alter_body(
        name="nested", column_path=["st"], column_schema=one_column("d"), if_field_not_exists=False
    ),
    "remove_field": alter_body(
        name="nested", column_path=["st", "a"], if_column_exists=False, cascade=False
    ),
    "rename_field": alter_body(name="nested", column_path=["st", "a"], new_name="z"),
    "add_constraint": alter_body(constraint="CHECK (id > 0)"),
}


@pytest.fixture
def catalog(catalog):
    """Has a table `nested` too, with a struct and a NOT NULL column."""
    row = {"id": 1, "st": {"a": 10, "b": {"c": 100}}}
    rows = pa.Table.from_pylist([row, {"id": 2, "st": None}], NESTED)
    shop = catalog.schema(Context(), "shop")
    shop.add_table(MemoryTable("nested", rows, constraints=Constraints(not_null=("id",))))
    return catalog


# --------------------------------------------------------------------------------------- every one


@pytest.mark.parametrize("action", ALTERS)
def test_the_answer_describes_the_table_as_it_is_afterwards(client, action):
    info = described(client, action, ALTERS[action])

    told = metadata(info)
    assert (told["schema"], told["catalog"]) == ("shop", "lake")
    now = client.flight_info(f"shop.{told['name']}")
    assert info.schema.equals(now.schema, check_metadata=True)
    assert client.read(info) == client.read(now)


@pytest.mark.parametrize("action", sorted(set(ALTERS) - {"drop_not_null"}))
def test_the_catalog_version_rises(client, action):
    before = client.version()

    client.action(action, ALTERS[action])

    assert client.version() > before


@pytest.mark.parametrize("missing", [{"name": "no"}, {"schema": "no"}], ids=["table", "schema"])
@pytest.mark.parametrize("action", ALTERS)
def test_what_is_missing_is_not_found_unless_that_is_to_be_ignored(client, action, missing):
    body = ALTERS[action] | missing

    with client.unchanged():
        assert client.action_failure(action, body).code == "NOT_FOUND"
        assert client.action(action, body | {"ignore_not_found": True}) == []


@pytest.mark.parametrize("action", sorted(set(ALTERS) - {"rename_table"}))
def test_a_table_that_is_not_dynamic_is_unimplemented(client, catalog, action):
    catalog.schema(Context(), "shop").add_table(ListedTable("fixed", numbers()))

    with client.unchanged():
        failure = client.action_failure(action, ALTERS[action] | {"name": "fixed"})

    assert failure.code == "UNIMPLEMENTED"
    assert failure.message == "table shop.fixed does not support DDL operations"


def test_renaming_a_table_of_a_schema_that_is_not_dynamic_is_unimplemented(client, catalog):
    catalog.add(ListedSchema("fixed", [ListedTable("items", numbers())]))

    with client.unchanged():
        failure = client.action_failure(
            "rename_table", ALTERS["rename_table"] | {"schema": "fixed"}
        )

    assert failure.code == "UNIMPLEMENTED"
    assert failure.message == "schema fixed does not support DDL operations"


class TwoAlters(ListedTable, DynamicTable):
    """Offers what the contract has, and nothing more."""

    def add_column(self, ctx: Context, column_schema: pa.Schema, options: AddColumnOptions) -> None:
        column = pa.nulls(self.rows.num_rows, column_schema.field(0).type)
        self.rows = self.rows.append_column(column_schema.field(0), column)

    def remove_column(self, ctx: Context, name: str, options: RemoveColumnOptions) -> None:
        self.rows = self.rows.drop_columns([name])


@pytest.mark.parametrize(
    "action", sorted(set(ALTERS) - {"rename_table", "add_column", "remove_column"})
)
def test_an_alter_that_a_dynamic_table_does_not_offer_is_unimplemented(client, catalog, action):
    catalog.schema(Context(), "shop").add_table(TwoAlters("two", numbers()))

    with client.unchanged():
        failure = client.action_failure(action, ALTERS[action] | {"name": "two"})

    assert failure.code == "UNIMPLEMENTED"
    assert "table two does not support this change" in failure.message


def test_the_contracts_two_alters_are_enough_for_a_dynamic_table(client, catalog):
    catalog.schema(Context(), "shop").add_table(TwoAlters("two", numbers()))

    added = described(client, "add_column", add_column_body(name="two"))
    removed = described(
        client, "remove_column", remove_column_body(name="two", removed_column="value")
    )

    assert added.schema.names == ["id", "name", "value", "extra"]
    assert removed.schema.names == ["id", "name", "extra"]


REQUIRED = [
    (action, key)
    for action, body in ALTERS.items()
    for key in body
    if key not in ("catalog", "ignore_not_found", "cascade") and not key.startswith("if_")
    if (action, key) != ("change_column_type", "expression")
]


@pytest.mark.parametrize(("action", "key"), REQUIRED, ids=lambda value: value)
def test_a_missing_field_is_an_invalid_argument(client, action, key):
    with client.unchanged():
        failure = client.action_failure(action, without(ALTERS[action], key))

    assert failure.code == "INVALID_ARGUMENT"
    assert key in failure.message


@pytest.mark.parametrize(("action", "key"), REQUIRED, ids=lambda value: value)
def test_an_empty_field_is_an_invalid_argument(client, action, key):
    empty = [] if key == "column_path" else ""

    with client.unchanged():
        failure = client.action_failure(action, ALTERS[action] | {key: empty})

    assert failure.code == "INVALID_ARGUMENT"
    assert key in failure.message


@pytest.mark.parametrize(
    ("action", "key"),
    [(action, key) for action, body in ALTERS.items() for key in body],
    ids=lambda value: value,
)
def test_a_field_of_the_wrong_type_is_an_invalid_argument(client, action, key):
    with client.unchanged():
        failure = client.action_failure(action, ALTERS[action] | {key: 7})

    assert failure.code == "INVALID_ARGUMENT"
    assert f"'{key}'" in failure.message


@pytest.mark.parametrize("action", ALTERS)
def test_extra_keys_are_ignored(client, action):
    assert len(client.action(action, ALTERS[action] | {"colour": "red", "schema_version": 7})) == 1


@pytest.mark.parametrize("action", ALTERS)
def test_the_names_may_be_spelled_as_in_the_other_actions(client, action):
    body = ALTERS[action]
    spelled = without(body, "catalog", "schema", "name")
    spelled |= {"catalog_name": "lake", "schema_name": "shop", "table_name": body["name"]}

    assert len(client.action(action, spelled)) == 1


# ----------------------------------------------------------------------------------------- columns


def test_rename_column_keeps_the_values(client):
    assert column_names(described(client, "rename_column", ALTERS["rename_column"])) == [
        "id",
        "name",
        "cost",
    ]
    assert [row["cost"] for row in client.rows("shop.items")] == [1.5, None, 3.5]


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"old_name": "no"}, "NOT_FOUND"),
        ({"new_name": "name"}, "ALREADY_EXISTS"),
        ({"new_name": "NAME"}, "ALREADY_EXISTS"),
        ({"new_name": "rowid"}, "INVALID_ARGUMENT"),
    ],
    ids=["unknown column", "name taken", "name taken in another case", "name of the row id"],
)
def test_rename_column_errors(client, changed, code):
    with client.unchanged():
        assert (
            client.action_failure("rename_column", ALTERS["rename_column"] | changed).code == code
        )


def test_rename_table_moves_it_to_the_new_name(client):
    before = client.rows_with_ids("shop.items")

    info = described(client, "rename_table", ALTERS["rename_table"])

    assert metadata(info)["name"] == "things"
    assert set(client.list_schemas()["shop"]) == {"things", "nested"}
    assert client.rows_with_ids("shop.things") == before


def test_rename_table_to_a_name_that_is_taken_already_exists(client):
    with client.unchanged():
        failure = client.action_failure("rename_table", alter_body(new_table_name="nested"))

    assert failure.code == "ALREADY_EXISTS"


def test_set_default_is_published_with_the_column(client):
    info = described(client, "set_default", ALTERS["set_default"])

    assert info.schema.field("price").metadata[b"default"] == b"(5 + 1)"


@pytest.mark.parametrize(
    ("changed", "code"),
    [({"column_name": "no"}, "NOT_FOUND"), ({"expression": "not ( SQL"}, "INVALID_ARGUMENT")],
    ids=["unknown column", "not SQL"],
)
def test_set_default_errors(client, changed, code):
    with client.unchanged():
        assert client.action_failure("set_default", ALTERS["set_default"] | changed).code == code


def test_not_null_can_be_set_and_dropped(client):
    assert (
        not described(client, "set_not_null", alter_body(column_name="id"))
        .schema.field("id")
        .nullable
    )
    without_id = pa.Table.from_pylist([{"id": None, "name": "x", "price": 1.0}], ITEMS)
    assert (
        client.put_failure(insert_command("shop.items"), without_id).code == "FAILED_PRECONDITION"
    )

    assert (
        described(client, "drop_not_null", alter_body(column_name="id")).schema.field("id").nullable
    )
    assert client.insert("shop.items", without_id).affected_rows == 1


@pytest.mark.parametrize("action", ["set_not_null", "drop_not_null"])
def test_not_null_of_an_unknown_column_is_not_found(client, action):
    with client.unchanged():
        assert client.action_failure(action, alter_body(column_name="no")).code == "NOT_FOUND"


def test_set_not_null_on_a_column_that_holds_nulls_fails(client):
    with client.unchanged():
        failure = client.action_failure("set_not_null", alter_body(column_name="name"))

    assert failure.code == "FAILED_PRECONDITION"
    assert "NOT NULL constraint failed: items.name" in failure.message


def test_change_column_type_computes_the_values(client):
    body = alter_body(column_schema=one_column("id", pa.string()), expression="'no ' || id")

    info = described(client, "change_column_type", body)

    assert info.schema.field("id").type == pa.string()
    assert [row["id"] for row in client.rows("shop.items")] == ["no 1", "no 2", "no 3"]


def test_change_column_type_without_an_expression_casts(client):
    client.action(
        "change_column_type", alter_body(column_schema=one_column("id", pa.int16()), expression="")
    )

    assert [row["id"] for row in client.rows("shop.items")] == [1, 2, 3]


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"column_schema": one_column("no", pa.string())}, "NOT_FOUND"),
        ({"column_schema": serialized(pa.schema([]))}, "INVALID_ARGUMENT"),
        (
            {"column_schema": serialized(pa.schema([("id", pa.int8()), ("name", pa.int8())]))},
            "INVALID_ARGUMENT",
        ),
        ({"expression": "not ( SQL"}, "INVALID_ARGUMENT"),
        ({"expression": "no + 1"}, "INVALID_ARGUMENT"),
        (
            {"column_schema": one_column("name", pa.int64()), "expression": "CAST(name AS BIGINT)"},
            "INVALID_ARGUMENT",
        ),
    ],
    ids=[
        "unknown column",
        "no field",
        "two fields",
        "not SQL",
        "unknown column in USING",
        "values that cannot be cast",
    ],
)
def test_change_column_type_errors(client, changed, code):
    with client.unchanged():
        failure = client.action_failure(
            "change_column_type", ALTERS["change_column_type"] | changed
        )

    assert failure.code == code


# ------------------------------------------------------------------------------------------ fields


def test_add_field_extends_the_struct(client):
    info = described(client, "add_field", ALTERS["add_field"] | {"column_path": ["st", "b"]})

    assert info.schema.field("st").type.field("b").type.names == ["c", "d"]
    assert client.rows("shop.nested")[0]["st"] == {"a": 10, "b": {"c": 100, "d": None}}


@pytest.mark.parametrize("path", [["st"], ["st", "b"]])
def test_add_field_without_its_name_is_refused_with_the_reason(client, path):
    # What DuckDB sends: the single field is named after the column (airport §4.14, T34).
    body = ALTERS["add_field"] | {"column_path": path, "column_schema": one_column("st")}

    with client.unchanged():
        failure = client.action_failure("add_field", body)

    assert failure.code == "FAILED_PRECONDITION"
    assert "did not send the name of the new field" in failure.message


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"column_path": ["no"]}, "NOT_FOUND"),
        ({"column_path": ["st", "no"]}, "NOT_FOUND"),
        ({"column_schema": one_column("a")}, "ALREADY_EXISTS"),
        ({"column_schema": one_column("A")}, "ALREADY_EXISTS"),
        ({"column_path": ["id"]}, "INVALID_ARGUMENT"),
        (
            {"column_schema": serialized(pa.schema([("d", pa.int8()), ("e", pa.int8())]))},
            "INVALID_ARGUMENT",
        ),
        ({"column_path": ["st", ""]}, "INVALID_ARGUMENT"),
    ],
    ids=[
        "unknown column",
        "unknown field",
        "field exists",
        "in another case",
        "not a struct",
        "two fields",
        "empty",
    ],
)
def test_add_field_errors(client, changed, code):
    with client.unchanged():
        assert client.action_failure("add_field", ALTERS["add_field"] | changed).code == code


def test_if_field_not_exists_makes_an_existing_field_no_error(client):
    body = ALTERS["add_field"] | {"column_schema": one_column("a"), "if_field_not_exists": True}

    assert described(client, "add_field", body).schema.field("st").type == STRUCT


def test_remove_field_shrinks_the_struct(client):
    info = described(client, "remove_field", ALTERS["remove_field"])

    assert info.schema.field("st").type.names == ["b"]
    assert [row["st"] for row in client.rows("shop.nested")] == [{"b": {"c": 100}}, None]


@pytest.mark.parametrize(
    ("path", "code"),
    [
        (["no", "a"], "NOT_FOUND"),
        (["st", "no"], "NOT_FOUND"),
        (["st", "b", "no"], "NOT_FOUND"),
        (["st"], "INVALID_ARGUMENT"),
        (["st", "b", "c"], "FAILED_PRECONDITION"),
    ],
    ids=["unknown column", "unknown field", "unknown inner field", "no field", "the only field"],
)
def test_remove_field_errors(client, path, code):
    with client.unchanged():
        assert (
            client.action_failure(
                "remove_field", ALTERS["remove_field"] | {"column_path": path}
            ).code
            == code
        )


def test_if_field_exists_makes_a_missing_field_no_error(client):
    body = ALTERS["remove_field"] | {"column_path": ["st", "no"], "if_column_exists": True}

    assert described(client, "remove_field", body).schema.field("st").type == STRUCT


def test_rename_field_keeps_the_values(client):
    info = described(client, "rename_field", ALTERS["rename_field"])

    assert info.schema.field("st").type.names == ["z", "b"]
    assert client.rows("shop.nested")[0]["st"] == {"z": 10, "b": {"c": 100}}


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"column_path": ["st", "no"]}, "NOT_FOUND"),
        ({"column_path": ["no", "a"]}, "NOT_FOUND"),
        ({"new_name": "b"}, "ALREADY_EXISTS"),
        ({"column_path": ["st"]}, "INVALID_ARGUMENT"),
    ],
    ids=["unknown field", "unknown column", "name taken", "no field"],
)
def test_rename_field_errors(client, changed, code):
    with client.unchanged():
        assert client.action_failure("rename_field", ALTERS["rename_field"] | changed).code == code


# ------------------------------------------------------------------------------------- constraints


@pytest.mark.parametrize(
    "constraint",
    [
        "CHECK (id > 0)",
        "UNIQUE (id)",
        "PRIMARY KEY (id)",
        "UNIQUE (id, name)",
        "CONSTRAINT c CHECK (id>0)",
    ],
)
def test_add_constraint_holds_from_then_on(client, constraint):
    client.action("add_constraint", alter_body(constraint=constraint))
    bad = (
        {"id": -1, "name": "x", "price": None}
        if "CHECK" in constraint
        else {"id": 1, "name": "ant", "price": None}
    )

    with client.unchanged():
        failure = client.put_failure(
            insert_command("shop.items"), pa.Table.from_pylist([bad], ITEMS)
        )

    assert failure.code == "FAILED_PRECONDITION"
    assert "items" in failure.message


def test_a_check_constraint_is_published_for_the_client(client):
    info = described(client, "add_constraint", alter_body(constraint="CHECK (id > 0)"))

    assert b"id > 0" in info.schema.metadata[b"check_constraints"]


@pytest.mark.parametrize(
    ("constraint", "code"),
    [
        ("CHECK (id > 1)", "FAILED_PRECONDITION"),
        ("CHECK (this is not SQL", "INVALID_ARGUMENT"),
        ("CHECK (this is not SQL)", "INVALID_ARGUMENT"),
        ("CHECK (no > 1)", "INVALID_ARGUMENT"),
        ("UNIQUE (no)", "INVALID_ARGUMENT"),
        ("PRIMARY KEY (name)", "FAILED_PRECONDITION"),
        ("FOREIGN KEY (id) REFERENCES other (id)", "UNIMPLEMENTED"),
        ("hello", "INVALID_ARGUMENT"),
    ],
)
def test_add_constraint_errors(client, constraint, code):
    with client.unchanged():
        assert (
            client.action_failure("add_constraint", alter_body(constraint=constraint)).code == code
        )
