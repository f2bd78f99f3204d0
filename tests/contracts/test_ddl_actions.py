"""contracts/ddl-actions.md: every answer and every error of its six actions, cell by cell."""

from __future__ import annotations

import hashlib

import msgpack
import pyarrow as pa
import pyarrow.flight as flight
import pytest
from tests.contracts.contract_client import DUCKDB
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
    remove_column_body,
    serialized,
    without,
)
from tests.server.catalogs import ListedCatalog, ListedSchema, ListedTable, catalog_of, numbers
from tests.server.raw_client import decompress, metadata

from sparkport.catalog import Context, CreateSchemaOptions, DynamicCatalog, Schema

NOTHING = pa.schema([])
TWO_FIELDS = serialized(pa.schema([("a", pa.int32()), ("b", pa.int32())]))

BODIES = {
    "create_schema": create_schema_body,
    "drop_schema": drop_schema_body,
    "create_table": create_table_body,
    "drop_table": drop_table_body,
    "add_column": add_column_body,
    "remove_column": remove_column_body,
}


# --------------------------------------------------------------------------------- errors, by cell


@pytest.mark.parametrize(
    ("action", "changed", "code", "message"),
    [
        pytest.param(action, changed, code, message, id=f"{action}: {code} - {cell}")
        for action, code, cell, changed, message in [
            (
                "create_schema",
                "ALREADY_EXISTS",
                "schema already exists",
                {"schema": "shop"},
                "shop",
            ),
            (
                "create_schema",
                "INVALID_ARGUMENT",
                "empty schema name",
                {"schema": ""},
                "'schema' must not be empty",
            ),
            (
                "drop_schema",
                "NOT_FOUND",
                "schema doesn't exist",
                {"name": "no", "schema_name": "no"},
                "no not found",
            ),
            (
                "drop_schema",
                "FAILED_PRECONDITION",
                "schema contains tables",
                {"name": "shop", "schema_name": "shop"},
                "contains tables",
            ),
            (
                "drop_schema",
                "FAILED_PRECONDITION",
                "schema contains tables, also with ignore_not_found",
                {"name": "shop", "schema_name": "shop", "ignore_not_found": True},
                "contains tables",
            ),
            (
                "drop_schema",
                "INVALID_ARGUMENT",
                "empty name",
                {"name": "", "schema_name": ""},
                "must not be empty",
            ),
            (
                "create_table",
                "ALREADY_EXISTS",
                "table already exists",
                {"table_name": "items"},
                "items",
            ),
            (
                "create_table",
                "NOT_FOUND",
                "schema doesn't exist",
                {"schema_name": "no"},
                "schema no not found",
            ),
            (
                "create_table",
                "INVALID_ARGUMENT",
                "not an Arrow schema",
                {"arrow_schema": b"junk"},
                "arrow_schema",
            ),
            (
                "create_table",
                "INVALID_ARGUMENT",
                "empty Arrow schema bytes",
                {"arrow_schema": b""},
                "arrow_schema",
            ),
            (
                "create_table",
                "INVALID_ARGUMENT",
                "Arrow schema without columns",
                {"arrow_schema": serialized(NOTHING)},
                "at least one column",
            ),
            (
                "create_table",
                "INVALID_ARGUMENT",
                "empty table name",
                {"table_name": ""},
                "'table_name' must not be",
            ),
            (
                "create_table",
                "INVALID_ARGUMENT",
                "empty schema name",
                {"schema_name": ""},
                "'schema_name' must not",
            ),
            ("drop_table", "NOT_FOUND", "table doesn't exist", {"name": "no"}, "shop.no"),
            (
                "drop_table",
                "NOT_FOUND",
                "schema doesn't exist",
                {"schema_name": "no"},
                "schema no not found",
            ),
            (
                "drop_table",
                "INVALID_ARGUMENT",
                "empty name",
                {"name": ""},
                "'name' must not be empty",
            ),
            (
                "add_column",
                "ALREADY_EXISTS",
                "column already exists",
                {"column_schema": one_column("price")},
                "price",
            ),
            (
                "add_column",
                "ALREADY_EXISTS",
                "column already exists, in another case",
                {"column_schema": one_column("PRICE")},
                "price",
            ),
            (
                "add_column",
                "NOT_FOUND",
                "table doesn't exist",
                {"name": "no"},
                "table shop.no not found",
            ),
            (
                "add_column",
                "NOT_FOUND",
                "schema doesn't exist",
                {"schema": "no"},
                "schema no not found",
            ),
            (
                "add_column",
                "INVALID_ARGUMENT",
                "column schema has no field",
                {"column_schema": serialized(NOTHING)},
                "exactly one field",
            ),
            (
                "add_column",
                "INVALID_ARGUMENT",
                "column schema has two fields",
                {"column_schema": TWO_FIELDS},
                "exactly one field",
            ),
            (
                "add_column",
                "INVALID_ARGUMENT",
                "not an Arrow schema",
                {"column_schema": b"junk"},
                "column_schema",
            ),
            (
                "remove_column",
                "NOT_FOUND",
                "table doesn't exist",
                {"name": "no"},
                "table shop.no not found",
            ),
            (
                "remove_column",
                "NOT_FOUND",
                "schema doesn't exist",
                {"schema": "no"},
                "schema no not found",
            ),
            (
                "remove_column",
                "NOT_FOUND",
                "column doesn't exist",
                {"removed_column": "no"},
                "column no",
            ),
            (
                "remove_column",
                "INVALID_ARGUMENT",
                "empty column",
                {"removed_column": ""},
                "'removed_column' must not",
            ),
        ]
    ],
)
def test_errors_of_an_action(client, action, changed, code, message):
    with client.unchanged():
        failure = client.action_failure(action, BODIES[action](**changed))

    assert failure.code == code
    assert message in failure.message


@pytest.mark.parametrize("action", BODIES)
def test_an_unknown_catalog_is_not_found(client, action):
    key = "catalog" if action.endswith("column") else "catalog_name"

    failure = client.action_failure(action, BODIES[action](**{key: "nope"}))

    assert failure.code == "NOT_FOUND"
    assert "'nope'" in failure.message


@pytest.mark.parametrize("action", ["create_schema", "drop_schema"])
def test_unimplemented_when_the_catalog_does_not_support_dynamic_operations(serve, action):
    client = serve(ListedCatalog("lake", [ListedSchema("spare")]))

    failure = client.action_failure(action, BODIES[action]())

    assert failure.code == "UNIMPLEMENTED"
    assert failure.message == "catalog does not support DDL operations"
    assert client.list_schemas() == {"spare": {}}


@pytest.mark.parametrize("action", ["create_table", "drop_table"])
def test_unimplemented_when_the_schema_does_not_support_dynamic_operations(client, catalog, action):
    catalog.add(ListedSchema("fixed", [ListedTable("items", numbers())]))

    with client.unchanged():
        failure = client.action_failure(action, BODIES[action](schema_name="fixed"))

    assert failure.code == "UNIMPLEMENTED"
    assert failure.message == "schema fixed does not support DDL operations"


@pytest.mark.parametrize("action", ["add_column", "remove_column"])
def test_unimplemented_when_the_table_does_not_support_dynamic_operations(client, catalog, action):
    catalog.schema(Context(), "shop").add_table(ListedTable("fixed", numbers()))

    with client.unchanged():
        failure = client.action_failure(action, BODIES[action](name="fixed"))

    assert failure.code == "UNIMPLEMENTED"
    assert failure.message == "table shop.fixed does not support DDL operations"


class BrokenCatalog(ListedCatalog, DynamicCatalog):
    """Fails in a way that nobody foresaw."""

    def create_schema(self, ctx: Context, name: str, options: CreateSchemaOptions) -> Schema:
        raise RuntimeError("the password is hunter2")

    def drop_schema(self, ctx, name, options):
        raise RuntimeError("the password is hunter2")


@pytest.mark.parametrize(
    ("agent", "code"), [("another-client/1", "INTERNAL"), ("airport/20250723", "UNKNOWN")]
)
@pytest.mark.parametrize("action", ["create_schema", "drop_schema"])
def test_an_internal_error_shows_a_trace_id_and_nothing_else(serve, action, agent, code):
    # The contract says INTERNAL; DuckDB would repeat such an action for three seconds (airport
    # §14.1, §14.4).
    client = serve(BrokenCatalog("lake", [ListedSchema("spare")]))
    headers = {"airport-trace-id": "trace-me", "airport-user-agent": agent}

    failure = client.action_failure(action, BODIES[action](), headers)

    assert failure.code == code
    assert failure.message.startswith("internal error")
    assert "trace-me" in failure.message
    assert "hunter2" not in failure.message


REQUIRED = [
    ("create_schema", "schema"),
    ("create_table", "schema_name"),
    ("create_table", "table_name"),
    ("create_table", "arrow_schema"),
    ("drop_table", "schema_name"),
    ("drop_table", "name"),
    ("add_column", "schema"),
    ("add_column", "name"),
    ("add_column", "column_schema"),
    ("remove_column", "schema"),
    ("remove_column", "name"),
    ("remove_column", "removed_column"),
]


@pytest.mark.parametrize(("action", "key"), REQUIRED, ids=lambda value: value)
def test_a_missing_required_field_is_an_invalid_argument_that_names_it(client, action, key):
    with client.unchanged():
        failure = client.action_failure(action, without(BODIES[action](), key))

    assert failure.code == "INVALID_ARGUMENT"
    assert f"'{key}' is missing" in failure.message


def test_drop_schema_needs_one_of_its_two_names(client):
    with client.unchanged():
        failure = client.action_failure(
            "drop_schema", without(drop_schema_body(), "name", "schema_name")
        )

    assert failure.code == "INVALID_ARGUMENT"
    assert "is missing" in failure.message


OPTIONAL = [
    (action, key)
    for action, make in BODIES.items()
    for key in make()
    if (action, key) not in REQUIRED and key not in ("type", "name")
]


@pytest.mark.parametrize("nil", [False, True], ids=["missing", "nil"])
@pytest.mark.parametrize(("action", "key"), OPTIONAL, ids=lambda value: value)
def test_every_other_field_may_be_missing(client, action, key, nil):
    body = BODIES[action]() | {key: None} if nil else without(BODIES[action](), key)

    client.action(action, body)


# ----------------------------------------------------------------------------------------- answers


def test_create_schema_answers_with_the_contents_and_their_hash(client):
    answer = contents(client, create_schema_body())

    assert set(answer) == {"sha256", "url", "serialized"}
    assert answer["url"] is None
    assert answer["sha256"] == hashlib.sha256(answer["serialized"]).hexdigest()
    assert msgpack.unpackb(decompress(answer["serialized"])) == []
    assert "fresh" in client.list_schemas()


def test_create_schema_keeps_comment_and_tags(client):
    client.action(
        "create_schema", create_schema_body(comment="New things", tags={"owner": "ann", "": "x"})
    )

    entry = next(entry for entry in client.schema_entries() if entry["name"] == "fresh")
    assert entry["description"] == "New things"
    assert entry["tags"] == {"owner": "ann", "": "x"}


@pytest.mark.parametrize("action", ["drop_schema", "drop_table"])
def test_drops_answer_with_no_result(client, action):
    assert client.action(action, BODIES[action]()) == []

    assert set(client.list_schemas()) == (
        {"shop"} if action == "drop_schema" else {"shop", "spare"}
    )
    assert set(client.list_schemas()["shop"]) == ({"items"} if action == "drop_schema" else set())


def test_create_table_answers_with_a_flight_info_of_the_table(client):
    info = described(client, "create_table", create_table_body())

    assert column_names(info) == NEW_TABLE.names
    assert info.schema.field("k").type == pa.int64()
    assert info.descriptor == flight.FlightDescriptor.for_path("shop", "fresh")
    told = metadata(info)
    assert (told["type"], told["catalog"], told["schema"], told["name"]) == (
        "table",
        "lake",
        "shop",
        "fresh",
    )


def test_the_endpoint_of_create_table_reads_the_table(client):
    info = described(client, "create_table", create_table_body())

    (endpoint,) = info.endpoints
    empty = client.get(endpoint.ticket.ticket)
    assert (empty.arrow_schema.names, empty.rows()) == (["k", "v", "rowid"], [])
    client.insert("shop.fresh", pa.table({"k": [1], "v": ["x"]}))
    assert [(row["k"], row["v"]) for row in client.read(info)] == [(1, "x")]


@pytest.mark.parametrize(
    ("action", "body"),
    [
        ("add_column", add_column_body()),
        ("remove_column", remove_column_body()),
        ("create_table", create_table_body(table_name="items", on_conflict="ignore")),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_endpoint_of_a_table_with_rows_reads_them(client, action, body):
    info = described(client, action, body)

    assert info.endpoints
    assert client.read(info) == client.rows_with_ids("shop.items")
    assert [row["id"] for row in client.read(info)] == [1, 2, 3]


def test_the_answer_to_duckdb_has_a_descriptor_of_its_own_that_works_the_same(client):
    info = described(client, "create_table", create_table_body(), DUCKDB)

    assert info.descriptor != flight.FlightDescriptor.for_path("shop", "fresh")
    client.insert("shop.fresh", pa.table({"k": [1], "v": ["x"]}))
    assert [row["k"] for row in client.scan(info.descriptor).rows()] == [1]


def test_add_column_answers_with_the_updated_schema(client):
    info = described(client, "add_column", add_column_body())

    assert column_names(info) == ["id", "name", "price", "extra"]
    assert info.schema.field("extra").type == pa.int32()
    assert [row["extra"] for row in client.rows("shop.items")] == [None, None, None]


def test_remove_column_answers_with_the_updated_schema(client):
    info = described(client, "remove_column", remove_column_body())

    assert column_names(info) == ["id", "name"]
    assert client.rows("shop.items")[0] == {"id": 1, "name": "ant"}


# ----------------------------------------------------------------------------------------- options


def test_on_conflict_error_is_the_default(client):
    body = create_table_body(table_name="items")

    for changed in (body, body | {"on_conflict": ""}, without(body, "on_conflict")):
        assert client.action_failure("create_table", changed).code == "ALREADY_EXISTS"


def test_on_conflict_ignore_leaves_the_table_and_describes_it(client):
    before = client.rows_with_ids("shop.items")

    info = described(
        client, "create_table", create_table_body(table_name="items", on_conflict="ignore")
    )

    assert column_names(info) == ["id", "name", "price"]
    assert client.rows_with_ids("shop.items") == before


def test_on_conflict_ignore_creates_a_table_that_is_not_there(client):
    assert column_names(
        described(client, "create_table", create_table_body(on_conflict="ignore"))
    ) == ["k", "v"]


def test_on_conflict_replace_puts_an_empty_table_in_its_place(client):
    info = described(
        client, "create_table", create_table_body(table_name="items", on_conflict="replace")
    )

    assert column_names(info) == ["k", "v"]
    assert client.rows("shop.items") == []


def test_on_conflict_replace_creates_a_table_that_is_not_there(client):
    assert column_names(
        described(client, "create_table", create_table_body(on_conflict="replace"))
    ) == ["k", "v"]


def test_a_replacement_that_cannot_be_made_leaves_the_table(client):
    body = create_table_body(
        table_name="items", on_conflict="replace", check_constraints=["not SQL at all ("]
    )

    with client.unchanged():
        assert client.action_failure("create_table", body).code == "INVALID_ARGUMENT"


def test_any_other_on_conflict_is_an_invalid_argument(client):
    with client.unchanged():
        failure = client.action_failure("create_table", create_table_body(on_conflict="perhaps"))

    assert failure.code == "INVALID_ARGUMENT"
    assert "'perhaps'" in failure.message


def test_create_table_keeps_its_comment(client):
    info = described(client, "create_table", create_table_body(comment="Fresh things"))

    assert metadata(info)["comment"] == "Fresh things"


@pytest.mark.parametrize(
    ("action", "body"),
    [
        ("drop_schema", drop_schema_body(name="no", schema_name="no")),
        ("drop_table", drop_table_body(name="no")),
        ("drop_table", drop_table_body(schema_name="no")),
        ("add_column", add_column_body(name="no")),
        ("add_column", add_column_body(schema="no")),
        ("remove_column", remove_column_body(name="no")),
    ],
)
def test_ignore_not_found_makes_a_missing_object_no_error(client, action, body):
    with client.unchanged():
        assert client.action_failure(action, body).code == "NOT_FOUND"
        assert client.action(action, body | {"ignore_not_found": True}) == []


def test_ignore_not_found_does_not_excuse_a_missing_column(client):
    with client.unchanged():
        failure = client.action_failure(
            "remove_column", remove_column_body(removed_column="no", ignore_not_found=True)
        )

    assert failure.code == "NOT_FOUND"


def test_if_column_not_exists_makes_an_existing_column_no_error(client):
    body = add_column_body(column_schema=one_column("price"), if_column_not_exists=True)

    info = described(client, "add_column", body)

    assert column_names(info) == ["id", "name", "price"]
    assert info.schema.field("price").type == pa.float64()


def test_if_column_not_exists_adds_a_column_that_is_not_there(client):
    assert (
        "extra"
        in described(client, "add_column", add_column_body(if_column_not_exists=True)).schema.names
    )


def test_if_column_exists_makes_a_missing_column_no_error(client):
    info = described(
        client, "remove_column", remove_column_body(removed_column="no", if_column_exists=True)
    )

    assert column_names(info) == ["id", "name", "price"]


def test_if_column_exists_removes_a_column_that_is_there(client):
    assert column_names(
        described(client, "remove_column", remove_column_body(if_column_exists=True))
    ) == ["id", "name"]


@pytest.mark.parametrize(
    "constraint",
    [
        {"check_constraints": ["(v > 'a')"]},
        {"unique_constraints": [1]},
        {"extra_constraints": ["UNIQUE(k, v)"]},
    ],
    ids=["check", "unique", "composite unique"],
)
def test_cascade_removes_the_constraints_that_use_the_column(client, constraint):
    client.action("create_table", create_table_body(**constraint))
    body = remove_column_body(name="fresh", removed_column="v")

    with client.unchanged():
        failure = client.action_failure("remove_column", body)
    assert failure.code == "FAILED_PRECONDITION"
    assert "CASCADE" in failure.message

    assert column_names(described(client, "remove_column", body | {"cascade": True})) == ["k"]
    assert client.insert("shop.fresh", pa.table({"k": [1, 1]})).affected_rows == 2


def test_the_last_column_cannot_be_removed(client):
    client.action("create_table", create_table_body(pa.schema([("only", pa.int64())])))

    with client.unchanged():
        failure = client.action_failure(
            "remove_column", remove_column_body(name="fresh", removed_column="only")
        )

    assert failure.code == "FAILED_PRECONDITION"


# ------------------------------------------------------------------------------------- life cycles


def test_a_schema_can_be_created_filled_emptied_and_dropped_again_and_again(client):
    for _ in range(2):
        client.action("create_schema", create_schema_body())
        client.action("create_table", create_table_body(schema_name="fresh"))
        assert (
            client.action_failure("drop_schema", drop_schema_body(name="fresh")).code
            == "FAILED_PRECONDITION"
        )
        client.action("drop_table", drop_table_body(schema_name="fresh", name="fresh"))
        client.action("drop_schema", drop_schema_body(name="fresh"))
        assert "fresh" not in client.list_schemas()


def test_a_dropped_table_is_not_found_by_anyone(client):
    client.action("drop_table", drop_table_body())

    assert client.action_failure("drop_table", drop_table_body()).code == "NOT_FOUND"
    assert client.action_failure("add_column", add_column_body()).code == "NOT_FOUND"
    assert client.delete_failure("shop.items", [0]).code == "NOT_FOUND"


def test_the_catalog_version_rises_with_every_change(client):
    versions = [client.version()]
    for action, body in [
        ("create_schema", create_schema_body()),
        ("create_table", create_table_body()),
        ("create_table", create_table_body(on_conflict="replace")),
        ("add_column", add_column_body()),
        ("remove_column", remove_column_body()),
        ("drop_table", drop_table_body()),
        ("drop_schema", drop_schema_body()),
    ]:
        client.action(action, body)
        versions.append(client.version())

    assert versions == sorted(set(versions))


class CountedCatalog(ListedCatalog, DynamicCatalog):
    """Has no version of its own."""

    def create_schema(self, ctx: Context, name: str, options: CreateSchemaOptions) -> Schema:
        self.contents.append(ListedSchema(name))
        return self.contents[-1]

    def drop_schema(self, ctx, name, options):
        self.contents = [schema for schema in self.contents if schema.name != name]


def test_the_server_counts_the_changes_of_a_catalog_that_does_not(serve):
    client = serve(CountedCatalog("lake"))
    versions = [client.version()]

    client.action("create_schema", create_schema_body())
    versions.append(client.version())
    client.action("drop_schema", drop_schema_body(name="fresh"))
    versions.append(client.version())

    assert versions == sorted(set(versions))


def test_a_catalog_that_cannot_be_changed_keeps_its_version(serve):
    client = serve(catalog_of(ListedTable("t", numbers()), name="lake"))
    before = client.version()

    client.action_failure("create_schema", create_schema_body())

    assert client.version() == before
