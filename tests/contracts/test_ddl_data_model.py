"""contracts/ddl-data-model.md: validation rules, sentinel errors, and option structs as
implementers receive them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from tests.contracts.ddl_requests import (
    NEW_TABLE,
    add_column_body,
    alter_body,
    create_schema_body,
    create_table_body,
    drop_schema_body,
    drop_table_body,
    one_column,
    remove_column_body,
    serialized,
)
from tests.server.catalogs import ListedCatalog, ListedSchema, ListedTable

from sparkport.catalog import (
    AddColumnOptions,
    AddFieldOptions,
    Constraints,
    Context,
    CreateSchemaOptions,
    CreateTableOptions,
    DropSchemaOptions,
    DropTableOptions,
    DynamicCatalog,
    DynamicSchema,
    DynamicTable,
    OnConflict,
    RemoveColumnOptions,
    RemoveFieldOptions,
    Schema,
    Table,
)
from sparkport.errors import AlreadyExists, NotFound, SchemaNotEmpty, SparkportError

TWO_FIELDS = serialized(pa.schema([("a", pa.int32()), ("b", pa.int32())]))


@pytest.mark.parametrize(
    ("action", "body", "code"),
    [
        pytest.param(
            "create_schema",
            create_schema_body(schema=""),
            "INVALID_ARGUMENT",
            id="Schema: name non-empty",
        ),
        pytest.param(
            "create_schema",
            create_schema_body(schema="shop"),
            "ALREADY_EXISTS",
            id="Schema: name must not conflict",
        ),
        pytest.param(
            "drop_schema",
            drop_schema_body(name="shop", schema_name="shop"),
            "FAILED_PRECONDITION",
            id="Schema: must be empty before drop",
        ),
        pytest.param(
            "create_table",
            create_table_body(table_name=""),
            "INVALID_ARGUMENT",
            id="Table: name non-empty",
        ),
        pytest.param(
            "create_table",
            create_table_body(arrow_schema=b"\xff" * 40),
            "INVALID_ARGUMENT",
            id="Table: schema must be valid Arrow schema",
        ),
        pytest.param(
            "create_table",
            create_table_body(table_name="items", on_conflict="error"),
            "ALREADY_EXISTS",
            id="Table: name must not conflict",
        ),
        pytest.param(
            "add_column",
            add_column_body(column_schema=TWO_FIELDS),
            "INVALID_ARGUMENT",
            id="Column: schema must contain exactly one field",
        ),
        pytest.param(
            "add_column",
            add_column_body(column_schema=one_column("name")),
            "ALREADY_EXISTS",
            id="Column: name must not conflict",
        ),
    ],
)
def test_validation_rule(client, action, body, code):
    with client.unchanged():
        assert client.action_failure(action, body).code == code


# ----------------------------------------------------------------------- what implementers receive


class Noting:
    """Notes every call with its arguments, and fails where it is told to."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.error: SparkportError | None = None

    def note(self, *call: Any) -> None:
        self.calls.append(call)
        if self.error is not None:
            raise self.error


class NotingTable(ListedTable, DynamicTable):
    def __init__(self, noting: Noting) -> None:
        super().__init__("items", pa.table({"id": [1], "price": [1.5]}))
        self.noting = noting

    def add_column(self, ctx: Context, column_schema: pa.Schema, options: AddColumnOptions) -> None:
        self.noting.note("add_column", column_schema, options)

    def remove_column(self, ctx: Context, name: str, options: RemoveColumnOptions) -> None:
        self.noting.note("remove_column", name, options)

    def rename_column(self, ctx: Context, old_name: str, new_name: str) -> None:
        self.noting.note("rename_column", old_name, new_name)

    def set_default(self, ctx: Context, column: str, expression: str) -> None:
        self.noting.note("set_default", column, expression)

    def set_not_null(self, ctx: Context, column: str) -> None:
        self.noting.note("set_not_null", column)

    def drop_not_null(self, ctx: Context, column: str) -> None:
        self.noting.note("drop_not_null", column)

    def change_column_type(self, ctx: Context, column_schema: pa.Schema, expression: str) -> None:
        self.noting.note("change_column_type", column_schema, expression)

    def add_field(
        self, ctx: Context, path: Sequence[str], column_schema: pa.Schema, options: AddFieldOptions
    ) -> None:
        self.noting.note("add_field", path, column_schema, options)

    def remove_field(self, ctx: Context, path: Sequence[str], options: RemoveFieldOptions) -> None:
        self.noting.note("remove_field", path, options)

    def rename_field(self, ctx: Context, path: Sequence[str], new_name: str) -> None:
        self.noting.note("rename_field", path, new_name)

    def add_constraint(self, ctx: Context, constraint: str) -> None:
        self.noting.note("add_constraint", constraint)


class NotingSchema(ListedSchema, DynamicSchema):
    def __init__(self, noting: Noting) -> None:
        self.noting = noting
        self.table_ = NotingTable(noting)
        super().__init__("shop", [self.table_])

    def create_table(
        self, ctx: Context, name: str, arrow_schema: pa.Schema, options: CreateTableOptions
    ) -> Table:
        self.noting.note("create_table", name, arrow_schema, options)
        return ListedTable(name, arrow_schema.empty_table())

    def drop_table(self, ctx: Context, name: str, options: DropTableOptions) -> None:
        self.noting.note("drop_table", name, options)

    def rename_table(self, ctx: Context, name: str, new_name: str) -> Table:
        self.noting.note("rename_table", name, new_name)
        self.table_._name = new_name
        return self.table_


class NotingCatalog(ListedCatalog, DynamicCatalog):
    def __init__(self, noting: Noting) -> None:
        self.noting = noting
        super().__init__("lake", [NotingSchema(noting), ListedSchema("spare")])

    def create_schema(self, ctx: Context, name: str, options: CreateSchemaOptions) -> Schema:
        self.noting.note("create_schema", name, options)
        return ListedSchema(name)

    def drop_schema(self, ctx: Context, name: str, options: DropSchemaOptions) -> None:
        self.noting.note("drop_schema", name, options)


@pytest.fixture
def noting():
    return Noting()


@pytest.fixture
def noted(serve, noting):
    return serve(NotingCatalog(noting))


REQUIRED = pa.schema([pa.field("k", pa.int64(), nullable=False), pa.field("v", pa.string())])
EXTRA = pa.schema([pa.field("extra", pa.int32())])

RECEIVED: dict[str, tuple[str, dict[str, Any], tuple[Any, ...]]] = {
    "CreateSchemaOptions: defaults": (
        "create_schema",
        create_schema_body(),
        ("create_schema", "fresh", CreateSchemaOptions("", {})),
    ),
    "CreateSchemaOptions: Comment, Tags": (
        "create_schema",
        create_schema_body(comment="c", tags={"t": "u"}),
        ("create_schema", "fresh", CreateSchemaOptions("c", {"t": "u"})),
    ),
    "DropSchemaOptions: defaults": (
        "drop_schema",
        drop_schema_body(),
        ("drop_schema", "spare", DropSchemaOptions(ignore_not_found=False, cascade=False)),
    ),
    "DropSchemaOptions: IgnoreNotFound": (
        "drop_schema",
        drop_schema_body(ignore_not_found=True),
        ("drop_schema", "spare", DropSchemaOptions(ignore_not_found=True)),
    ),
    "DropSchemaOptions: cascade": (
        "drop_schema",
        drop_schema_body(cascade=True),
        ("drop_schema", "spare", DropSchemaOptions(cascade=True)),
    ),
    "CreateTableOptions: defaults": (
        "create_table",
        create_table_body(),
        (
            "create_table",
            "fresh",
            NEW_TABLE,
            CreateTableOptions(OnConflict.ERROR, "", Constraints()),
        ),
    ),
    "CreateTableOptions: OnConflict ignore": (
        "create_table",
        create_table_body(on_conflict="ignore"),
        ("create_table", "fresh", NEW_TABLE, CreateTableOptions(OnConflict.IGNORE)),
    ),
    "CreateTableOptions: OnConflict replace": (
        "create_table",
        create_table_body(on_conflict="replace"),
        ("create_table", "fresh", NEW_TABLE, CreateTableOptions(OnConflict.REPLACE)),
    ),
    "CreateTableOptions: Comment": (
        "create_table",
        create_table_body(comment="c"),
        ("create_table", "fresh", NEW_TABLE, CreateTableOptions(comment="c")),
    ),
    "CreateTableOptions: NotNullConstraints": (
        "create_table",
        create_table_body(not_null_constraints=[0]),
        (
            "create_table",
            "fresh",
            REQUIRED,
            CreateTableOptions(constraints=Constraints(not_null=("k",))),
        ),
    ),
    "CreateTableOptions: UniqueConstraints": (
        "create_table",
        create_table_body(unique_constraints=[0, 1]),
        (
            "create_table",
            "fresh",
            NEW_TABLE,
            CreateTableOptions(constraints=Constraints(unique=(("k",), ("v",)))),
        ),
    ),
    "CreateTableOptions: CheckConstraints": (
        "create_table",
        create_table_body(check_constraints=["(k > 0)", "(v <> '')"]),
        (
            "create_table",
            "fresh",
            NEW_TABLE,
            CreateTableOptions(constraints=Constraints(checks=("(k > 0)", "(v <> '')"))),
        ),
    ),
    "DropTableOptions: defaults": (
        "drop_table",
        drop_table_body(),
        ("drop_table", "items", DropTableOptions(ignore_not_found=False)),
    ),
    "DropTableOptions: IgnoreNotFound": (
        "drop_table",
        drop_table_body(ignore_not_found=True),
        ("drop_table", "items", DropTableOptions(ignore_not_found=True)),
    ),
    "AddColumnOptions: defaults": (
        "add_column",
        add_column_body(),
        ("add_column", EXTRA, AddColumnOptions(if_column_not_exists=False, ignore_not_found=False)),
    ),
    "AddColumnOptions: IfColumnNotExists": (
        "add_column",
        add_column_body(if_column_not_exists=True),
        ("add_column", EXTRA, AddColumnOptions(if_column_not_exists=True)),
    ),
    "AddColumnOptions: IgnoreNotFound": (
        "add_column",
        add_column_body(ignore_not_found=True),
        ("add_column", EXTRA, AddColumnOptions(ignore_not_found=True)),
    ),
    "RemoveColumnOptions: defaults": (
        "remove_column",
        remove_column_body(),
        ("remove_column", "price", RemoveColumnOptions(False, False, False)),
    ),
    "RemoveColumnOptions: IfColumnExists": (
        "remove_column",
        remove_column_body(if_column_exists=True),
        ("remove_column", "price", RemoveColumnOptions(if_column_exists=True)),
    ),
    "RemoveColumnOptions: IgnoreNotFound": (
        "remove_column",
        remove_column_body(ignore_not_found=True),
        ("remove_column", "price", RemoveColumnOptions(ignore_not_found=True)),
    ),
    "RemoveColumnOptions: Cascade": (
        "remove_column",
        remove_column_body(cascade=True),
        ("remove_column", "price", RemoveColumnOptions(cascade=True)),
    ),
    "rename_column": (
        "rename_column",
        alter_body(old_name="a", new_name="b"),
        ("rename_column", "a", "b"),
    ),
    "rename_table": (
        "rename_table",
        alter_body(new_table_name="n"),
        ("rename_table", "items", "n"),
    ),
    "set_default": (
        "set_default",
        alter_body(column_name="a", expression="1"),
        ("set_default", "a", "1"),
    ),
    "set_not_null": ("set_not_null", alter_body(column_name="a"), ("set_not_null", "a")),
    "drop_not_null": ("drop_not_null", alter_body(column_name="a"), ("drop_not_null", "a")),
    "change_column_type": (
        "change_column_type",
        alter_body(column_schema=one_column(), expression="x"),
        ("change_column_type", EXTRA, "x"),
    ),
    "add_field": (
        "add_field",
        alter_body(column_path=["a", "b"], column_schema=one_column(), if_field_not_exists=True),
        ("add_field", ("a", "b"), EXTRA, AddFieldOptions(if_field_not_exists=True)),
    ),
    "remove_field": (
        "remove_field",
        alter_body(column_path=["a", "b"], if_column_exists=True, cascade=True),
        ("remove_field", ("a", "b"), RemoveFieldOptions(if_field_exists=True, cascade=True)),
    ),
    "rename_field": (
        "rename_field",
        alter_body(column_path=["a", "b"], new_name="c"),
        ("rename_field", ("a", "b"), "c"),
    ),
    "add_constraint": (
        "add_constraint",
        alter_body(constraint="UNIQUE(a)"),
        ("add_constraint", "UNIQUE(a)"),
    ),
}


@pytest.mark.parametrize(("action", "body", "call"), RECEIVED.values(), ids=RECEIVED)
def test_an_implementer_receives_every_option(noted, noting, action, body, call):
    noted.action(action, body)

    assert noting.calls == [call]


SENTINELS = {
    "ErrAlreadyExists": (AlreadyExists("it is there"), "ALREADY_EXISTS"),
    "ErrNotFound": (NotFound("it is gone"), "NOT_FOUND"),
    "ErrSchemaNotEmpty": (SchemaNotEmpty("schema contains tables"), "FAILED_PRECONDITION"),
}


@pytest.mark.parametrize(
    "action", ["create_schema", "drop_schema", "create_table", "drop_table", "add_column"]
)
@pytest.mark.parametrize(("error", "code"), SENTINELS.values(), ids=SENTINELS)
def test_an_implementers_error_has_its_code_and_message(noted, noting, action, error, code):
    noting.error = error
    body = next(body for name, body, _ in RECEIVED.values() if name == action)

    with noted.unchanged():
        failure = noted.action_failure(action, body)

    assert (failure.code, failure.message) == (code, error.message)
