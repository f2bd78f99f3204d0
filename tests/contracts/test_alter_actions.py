"""The ALTER actions of airport §4.14 beyond the contract's two, each with its success and its
errors.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from tests.contracts.ddl_requests import (
    add_column_body,
    alter_body,
    described,
    one_column,
    remove_column_body,
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


@pytest.mark.parametrize(
    ("action", "changed", "code"),
    [
        ("add_column", {"column_schema": one_column("NAME")}, "ALREADY_EXISTS"),
        ("remove_column", {"removed_column": "no"}, "NOT_FOUND"),
        ("rename_column", {"new_name": "rowid"}, "INVALID_ARGUMENT"),
        ("rename_table", {"new_table_name": "nested"}, "ALREADY_EXISTS"),
        ("set_default", {"expression": "not ( SQL"}, "INVALID_ARGUMENT"),
        ("set_not_null", {"column_name": "name"}, "FAILED_PRECONDITION"),
        ("drop_not_null", {"column_name": "no"}, "NOT_FOUND"),
        ("change_column_type", {"expression": "no + 1"}, "INVALID_ARGUMENT"),
        ("add_field", {"column_path": ["st", ""]}, "INVALID_ARGUMENT"),
        ("add_field", {"column_schema": one_column("A")}, "ALREADY_EXISTS"),
        ("remove_field", {"column_path": ["st", "b", "c"]}, "FAILED_PRECONDITION"),
        ("rename_field", {"column_path": ["st", "no"]}, "NOT_FOUND"),
        ("add_constraint", {"constraint": "CHECK (id > 1)"}, "FAILED_PRECONDITION"),
        ("add_constraint", {"constraint": "FOREIGN KEY (id) REFERENCES o (id)"}, "UNIMPLEMENTED"),
    ],
)
def test_what_a_table_refuses_has_the_code_of_its_error(client, action, changed, code):
    """All that tables refuse is in `sparkport.testing.contract`."""
    with client.unchanged():
        assert client.action_failure(action, ALTERS[action] | changed).code == code


# ----------------------------------------------------------------------------------------- columns


def test_rename_table_moves_it_to_the_new_name(client):
    before = client.rows_with_ids("shop.items")

    info = described(client, "rename_table", ALTERS["rename_table"])

    assert metadata(info)["name"] == "things"
    assert set(client.list_schemas()["shop"]) == {"things", "nested"}
    assert client.rows_with_ids("shop.things") == before


def test_set_default_is_published_with_the_column(client):
    info = described(client, "set_default", ALTERS["set_default"])

    assert info.schema.field("price").metadata[b"default"] == b"(5 + 1)"


def test_change_column_type_computes_the_values(client):
    body = alter_body(column_schema=one_column("id", pa.string()), expression="'no ' || id")

    info = described(client, "change_column_type", body)

    assert info.schema.field("id").type == pa.string()
    assert [row["id"] for row in client.rows("shop.items")] == ["no 1", "no 2", "no 3"]


# ------------------------------------------------------------------------------------------ fields


@pytest.mark.parametrize("path", [["st"], ["st", "b"]])
def test_add_field_without_its_name_is_refused_with_the_reason(client, path):
    # What DuckDB sends: the single field is named after the column (airport §4.14, T34).
    body = ALTERS["add_field"] | {"column_path": path, "column_schema": one_column("st")}

    with client.unchanged():
        failure = client.action_failure("add_field", body)

    assert failure.code == "FAILED_PRECONDITION"
    assert "did not send the name of the new field" in failure.message


def test_if_field_not_exists_makes_an_existing_field_no_error(client):
    body = ALTERS["add_field"] | {"column_schema": one_column("a"), "if_field_not_exists": True}

    assert described(client, "add_field", body).schema.field("st").type == STRUCT


def test_if_field_exists_makes_a_missing_field_no_error(client):
    body = ALTERS["remove_field"] | {"column_path": ["st", "no"], "if_column_exists": True}

    assert described(client, "remove_field", body).schema.field("st").type == STRUCT


# ------------------------------------------------------------------------------------- constraints


def test_a_check_constraint_is_published_for_the_client(client):
    info = described(client, "add_constraint", alter_body(constraint="CHECK (id > 0)"))

    assert b"id > 0" in info.schema.metadata[b"check_constraints"]
