"""Requests that change the catalog: schemas, tables, columns, fields (airport §4.10 – 4.14)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import pyarrow as pa

from sparkport.catalog.constraints import Constraints
from sparkport.catalog.ddl import OnConflict
from sparkport.errors import BadRequest
from sparkport.wire.constraints import merge_constraints, with_not_null
from sparkport.wire.ipc import decode_arrow_schema
from sparkport.wire.packing import Fields, read_fields

__all__ = [
    "AddColumn",
    "AddConstraint",
    "AddField",
    "Alter",
    "AlterTable",
    "ChangeColumnType",
    "CreateSchema",
    "CreateTable",
    "DropNotNull",
    "DropSchema",
    "DropTable",
    "RemoveColumn",
    "RemoveField",
    "RenameColumn",
    "RenameField",
    "RenameTable",
    "SetDefault",
    "SetNotNull",
    "decode_add_column",
    "decode_add_constraint",
    "decode_add_field",
    "decode_change_column_type",
    "decode_create_schema",
    "decode_create_table",
    "decode_drop_not_null",
    "decode_drop_schema",
    "decode_drop_table",
    "decode_remove_column",
    "decode_remove_field",
    "decode_rename_column",
    "decode_rename_field",
    "decode_rename_table",
    "decode_set_default",
    "decode_set_not_null",
]


# ------------------------------------------------------------------------------ schemas and tables


@dataclass(frozen=True, slots=True)
class CreateSchema:
    """CREATE SCHEMA. `on_conflict` is None where absent, as always from DuckDB (airport §4.10)."""

    catalog: str
    name: str
    comment: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)
    on_conflict: OnConflict | None = None


@dataclass(frozen=True, slots=True)
class DropSchema:
    """DROP SCHEMA; DuckDB does not send CASCADE."""

    catalog: str
    name: str
    ignore_not_found: bool = False
    cascade: bool = False


@dataclass(frozen=True, slots=True)
class CreateTable:
    """CREATE TABLE. Where `constraints` has NOT NULL, the field of `arrow_schema` says so too."""

    catalog: str
    schema: str
    name: str
    arrow_schema: pa.Schema
    on_conflict: OnConflict = OnConflict.ERROR
    comment: str = ""
    constraints: Constraints = field(default_factory=Constraints)


@dataclass(frozen=True, slots=True)
class DropTable:
    """DROP TABLE."""

    catalog: str
    schema: str
    name: str
    ignore_not_found: bool = False


def decode_create_schema(body: bytes) -> CreateSchema:
    fields = read_fields(body, "create_schema")
    on_conflict = _on_conflict(fields)
    if on_conflict is None and "if_not_exists" in fields:
        on_conflict = OnConflict.IGNORE if fields.flag("if_not_exists") else OnConflict.ERROR
    return CreateSchema(
        _catalog(fields),
        fields.name("schema", "schema_name"),
        fields.optional_text("comment") or "",
        fields.text_map("tags"),
        on_conflict,
    )


def decode_drop_schema(body: bytes) -> DropSchema:
    fields = read_fields(body, "drop_schema")
    # DuckDB puts the schema into `name` and leaves `schema_name` empty; the contract fills both
    # (airport §15.1).
    key = "name" if fields.optional_text("name") else "schema_name"
    return DropSchema(
        _catalog(fields), fields.name(key), fields.flag("ignore_not_found"), fields.flag("cascade")
    )


def decode_create_table(body: bytes) -> CreateTable:
    fields = read_fields(body, "create_table")
    arrow_schema = decode_arrow_schema(fields.blob("arrow_schema"), "create_table: arrow_schema")
    constraints = merge_constraints(fields, arrow_schema)
    return CreateTable(
        _catalog(fields),
        fields.name("schema_name", "schema"),
        fields.name("table_name", "name"),
        with_not_null(arrow_schema, constraints.not_null),
        _on_conflict(fields) or OnConflict.ERROR,
        fields.optional_text("comment") or "",
        constraints,
    )


def decode_drop_table(body: bytes) -> DropTable:
    fields = read_fields(body, "drop_table")
    return DropTable(
        _catalog(fields),
        fields.name("schema_name", "schema"),
        fields.name("name", "table_name"),
        fields.flag("ignore_not_found"),
    )


def _catalog(fields: Fields) -> str:
    return fields.optional_text("catalog_name", "catalog") or ""


def _on_conflict(fields: Fields) -> OnConflict | None:
    word = fields.optional_text("on_conflict")
    if not word:
        return None
    try:
        return OnConflict(word.lower())
    except ValueError as error:
        raise BadRequest(
            f"on_conflict must be error, ignore or replace, not {word[:40]!r}"
        ) from error


# ------------------------------------------------------------------------------------- ALTER TABLE


@dataclass(frozen=True, slots=True)
class AlterTable:
    """The fields that every ALTER has: the table, and whether it may be missing."""

    catalog: str
    schema: str
    name: str
    ignore_not_found: bool


@dataclass(frozen=True, slots=True)
class AddColumn(AlterTable):
    column_schema: pa.Schema
    if_column_not_exists: bool = False

    def __post_init__(self) -> None:
        _check_one_field(self.column_schema)


@dataclass(frozen=True, slots=True)
class RemoveColumn(AlterTable):
    column: str
    if_column_exists: bool = False
    cascade: bool = False


@dataclass(frozen=True, slots=True)
class RenameColumn(AlterTable):
    old_name: str
    new_name: str


@dataclass(frozen=True, slots=True)
class RenameTable(AlterTable):
    new_name: str


@dataclass(frozen=True, slots=True)
class SetDefault(AlterTable):
    column: str
    expression: str


@dataclass(frozen=True, slots=True)
class SetNotNull(AlterTable):
    column: str


@dataclass(frozen=True, slots=True)
class DropNotNull(AlterTable):
    column: str


@dataclass(frozen=True, slots=True)
class ChangeColumnType(AlterTable):
    """`expression` computes the new values; it is DuckDB SQL over the columns of the table."""

    column_schema: pa.Schema
    expression: str

    def __post_init__(self) -> None:
        _check_one_field(self.column_schema)


@dataclass(frozen=True, slots=True)
class AddField(AlterTable):
    """Add a field to the struct at `path`."""

    path: tuple[str, ...]
    column_schema: pa.Schema
    if_field_not_exists: bool = False

    def __post_init__(self) -> None:
        _check_one_field(self.column_schema)
        _check_path(self.path, 1)

    @property
    def lost_its_name(self) -> bool:
        """Whether the field bears the column's name, as DuckDB sends it (airport §4.14, T34)."""
        return bool(self.column_schema.field(0).name == self.path[0])


@dataclass(frozen=True, slots=True)
class RemoveField(AlterTable):
    path: tuple[str, ...]
    if_field_exists: bool = False
    cascade: bool = False

    def __post_init__(self) -> None:
        _check_path(self.path, 2)


@dataclass(frozen=True, slots=True)
class RenameField(AlterTable):
    path: tuple[str, ...]
    new_name: str

    def __post_init__(self) -> None:
        _check_path(self.path, 2)


@dataclass(frozen=True, slots=True)
class AddConstraint(AlterTable):
    constraint: str


Alter: TypeAlias = (
    AddColumn
    | RemoveColumn
    | RenameColumn
    | RenameTable
    | SetDefault
    | SetNotNull
    | DropNotNull
    | ChangeColumnType
    | AddField
    | RemoveField
    | RenameField
    | AddConstraint
)


def _check_one_field(column_schema: pa.Schema) -> None:
    if len(column_schema) != 1:
        raise BadRequest(f"column schema must contain exactly one field, not {len(column_schema)}")


def _check_path(path: tuple[str, ...], least: int) -> None:
    if len(path) < least or not all(path):
        raise BadRequest(
            "column_path must name a column and the fields that lead to the one that is meant"
        )


def decode_add_column(body: bytes) -> AddColumn:
    fields = read_fields(body, "add_column")
    return AddColumn(*_table(fields), _column_schema(fields), fields.flag("if_column_not_exists"))


def decode_remove_column(body: bytes) -> RemoveColumn:
    fields = read_fields(body, "remove_column")
    return RemoveColumn(
        *_table(fields),
        fields.name("removed_column"),
        fields.flag("if_column_exists"),
        fields.flag("cascade"),
    )


def decode_rename_column(body: bytes) -> RenameColumn:
    fields = read_fields(body, "rename_column")
    return RenameColumn(*_table(fields), fields.name("old_name"), fields.name("new_name"))


def decode_rename_table(body: bytes) -> RenameTable:
    fields = read_fields(body, "rename_table")
    return RenameTable(*_table(fields), fields.name("new_table_name"))


def decode_set_default(body: bytes) -> SetDefault:
    fields = read_fields(body, "set_default")
    return SetDefault(*_table(fields), fields.name("column_name"), fields.name("expression"))


def decode_set_not_null(body: bytes) -> SetNotNull:
    fields = read_fields(body, "set_not_null")
    return SetNotNull(*_table(fields), fields.name("column_name"))


def decode_drop_not_null(body: bytes) -> DropNotNull:
    fields = read_fields(body, "drop_not_null")
    return DropNotNull(*_table(fields), fields.name("column_name"))


def decode_change_column_type(body: bytes) -> ChangeColumnType:
    fields = read_fields(body, "change_column_type")
    return ChangeColumnType(
        *_table(fields), _column_schema(fields), fields.optional_text("expression") or ""
    )


def decode_add_field(body: bytes) -> AddField:
    fields = read_fields(body, "add_field")
    return AddField(
        *_table(fields),
        fields.texts("column_path"),
        _column_schema(fields),
        fields.flag("if_field_not_exists"),
    )


def decode_remove_field(body: bytes) -> RemoveField:
    fields = read_fields(body, "remove_field")
    return RemoveField(
        *_table(fields),
        fields.texts("column_path"),
        fields.flag("if_column_exists"),
        fields.flag("cascade"),
    )


def decode_rename_field(body: bytes) -> RenameField:
    fields = read_fields(body, "rename_field")
    return RenameField(*_table(fields), fields.texts("column_path"), fields.name("new_name"))


def decode_add_constraint(body: bytes) -> AddConstraint:
    fields = read_fields(body, "add_constraint")
    return AddConstraint(*_table(fields), fields.name("constraint"))


def _table(fields: Fields) -> tuple[str, str, str, bool]:
    return (
        fields.optional_text("catalog", "catalog_name") or "",
        fields.name("schema", "schema_name"),
        fields.name("name", "table_name"),
        fields.flag("ignore_not_found"),
    )


def _column_schema(fields: Fields) -> pa.Schema:
    return decode_arrow_schema(fields.blob("column_schema"), "column_schema")
