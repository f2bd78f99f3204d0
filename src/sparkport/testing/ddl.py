"""CREATE, DROP and ALTER: calls, bodies, and answers in the client's cache (airport §4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa

from sparkport.testing.attachment import Attachment
from sparkport.testing.contents import ContentsMap, flight_info
from sparkport.testing.failures import ClientSideError, ProtocolViolation
from sparkport.testing.objects import AttachedTable
from sparkport.testing.replies import Fields
from sparkport.testing.requests import pack

__all__ = ["Columns", "DDLStatements", "TableOptions"]

Columns: TypeAlias = Mapping[str, str] | pa.Schema
"""Names and SQL types, encoded by DuckDB's settings; or an Arrow schema, which is sent as it is."""


@dataclass(frozen=True, slots=True)
class TableOptions:
    """The parts of CREATE TABLE besides columns; airport §4.12 tells where the body has them."""

    if_not_exists: bool = False
    not_null: Sequence[str] = ()
    checks: Sequence[str] = ()
    primary_key: Sequence[str] = ()
    unique: Sequence[str | Sequence[str]] = ()


class DDLStatements(Attachment):
    """The statements that change the catalog. None of them sends the transaction (airport §2.2)."""

    # ------------------------------------------------------------------------------------- schemas

    def create_schema(self, name: str) -> None:
        """`CREATE SCHEMA [IF NOT EXISTS] name`: both send equal bytes (trap T36)."""
        with self._session.statement():
            self._session.check_version()
            self._session.transaction()
            self._create_schema(name)

    def replace_schema(self, name: str) -> None:
        """`CREATE OR REPLACE SCHEMA name`: `drop_schema`, then `create_schema`."""
        with self._session.statement():
            self._session.check_version()
            self._session.transaction()
            self._catalog().load()
            self._drop("schema", "", name, ignore_not_found=True)
            self._cache.remove_schema(name)
            self._create_schema(name)

    def drop_schema(self, name: str, *, if_exists: bool = False) -> None:
        """`DROP SCHEMA [IF EXISTS] name`: sent even when the client knows no such schema."""
        with self._session.statement():
            self._session.check_version()
            self._session.transaction()
            self._catalog().load()
            self._drop("schema", "", name, if_exists)
            self._cache.remove_schema(name)

    def _create_schema(self, name: str) -> None:
        session = self._session
        body = pack({"catalog_name": session.catalog, "schema": name, "comment": None, "tags": {}})
        answer = session.answer("create_schema", body, session.headers.of_catalog("create_schema"))
        contents = ContentsMap.read(Fields.unpack(answer, "create_schema"))
        self._catalog().put_schema(name, contents)

    # -------------------------------------------------------------------------------------- tables

    def create_table(
        self,
        schema: str,
        name: str,
        columns: Columns,
        *,
        if_not_exists: bool = False,
        not_null: Sequence[str] = (),
        checks: Sequence[str] = (),
        primary_key: Sequence[str] = (),
        unique: Sequence[str | Sequence[str]] = (),
    ) -> AttachedTable:
        """`CREATE TABLE [IF NOT EXISTS]`: return the table as the server answered it.

        A text in `unique` is a UNIQUE constraint of that column; a sequence is a UNIQUE constraint
        of the table.
        """
        options = TableOptions(if_not_exists, not_null, checks, primary_key, unique)
        with self._session.statement():
            return self._created(schema, name, columns, options)

    def _created(
        self, schema: str, name: str, columns: Columns, options: TableOptions
    ) -> AttachedTable:
        session = self._session
        session.transaction()
        cached = self._catalog().schema(schema)
        session.check_version()
        body = _create_table(session.catalog, cached.name, name, self._arrow(columns), options)
        answer = session.answer("create_table", body, session.headers.of_catalog("create_table"))
        table = self._cache.read_table(
            flight_info(answer, "create_table"), cached.name, "create_table"
        )
        self._cache.put_table(table)
        return table

    def drop_table(self, schema: str, name: str, *, if_exists: bool = False) -> None:
        """`DROP TABLE [IF EXISTS]`: sent only for a table that the client knows (airport §4.11)."""
        with self._session.statement():
            self._session.check_version()
            self._session.transaction()
            table = self._catalog().known_table(schema, name)
            if table is None:
                if if_exists:
                    return
                raise ClientSideError(f"Catalog Error: Table with name {name} does not exist!")
            self._session.check_version()
            self._drop("table", table.schema, table.name, if_exists)
            self._cache.remove_table(table.schema, table.name)

    def _drop(self, kind: str, schema: str, name: str, ignore_not_found: bool) -> None:
        session = self._session
        body = pack(
            {
                "type": kind,
                "catalog_name": session.catalog,
                "schema_name": schema,
                "name": name,
                "ignore_not_found": ignore_not_found,
            }
        )
        action = f"drop_{kind}"
        session.connection.action(action, body, session.headers.of_catalog(action))

    # --------------------------------------------------------------------------------------- ALTER

    def add_column(
        self,
        schema: str,
        table: str,
        column: str,
        kind: str | pa.DataType,
        *,
        if_not_exists: bool = False,
    ) -> AttachedTable:
        """`ALTER TABLE … ADD COLUMN [IF NOT EXISTS]`; a DEFAULT would not be sent."""
        extra = {
            "if_column_not_exists": if_not_exists,
            "column_schema": self._one_field(column, kind),
        }
        return self._alter("add_column", schema, table, extra)

    def remove_column(
        self,
        schema: str,
        table: str,
        column: str,
        *,
        if_exists: bool = False,
        cascade: bool = False,
    ) -> AttachedTable:
        """`ALTER TABLE … DROP COLUMN [IF EXISTS] … [CASCADE]`."""
        extra = {"removed_column": column, "if_column_exists": if_exists, "cascade": cascade}
        return self._alter("remove_column", schema, table, extra)

    def rename_column(self, schema: str, table: str, old_name: str, new_name: str) -> AttachedTable:
        """`ALTER TABLE … RENAME COLUMN old_name TO new_name`."""
        return self._alter(
            "rename_column", schema, table, {"new_name": new_name, "old_name": old_name}
        )

    def rename_table(self, schema: str, table: str, new_name: str) -> AttachedTable:
        """`ALTER TABLE … RENAME TO new_name`; the name that counts is the one in the answer."""
        return self._alter("rename_table", schema, table, {"new_table_name": new_name})

    def set_default(self, schema: str, table: str, column: str, expression: str) -> AttachedTable:
        """`ALTER TABLE … ALTER column SET DEFAULT expression`."""
        return self._alter(
            "set_default", schema, table, {"column_name": column, "expression": expression}
        )

    def set_not_null(self, schema: str, table: str, column: str) -> AttachedTable:
        """`ALTER TABLE … ALTER column SET NOT NULL`; its body has one key twice (trap T37)."""
        extra = [("column_name", column), ("ignore_not_found", False)]
        return self._alter("set_not_null", schema, table, extra)

    def drop_not_null(self, schema: str, table: str, column: str) -> AttachedTable:
        """`ALTER TABLE … ALTER column DROP NOT NULL`."""
        return self._alter("drop_not_null", schema, table, {"column_name": column})

    def change_column_type(
        self,
        schema: str,
        table: str,
        column: str,
        kind: str | pa.DataType,
        using: str | None = None,
    ) -> AttachedTable:
        """`ALTER TABLE … ALTER column TYPE kind [USING using]`."""
        expression = using if using is not None else f"CAST({column} AS {kind})"
        extra = {"column_schema": self._one_field(column, kind), "expression": expression}
        return self._alter("change_column_type", schema, table, extra)

    def add_field(
        self,
        schema: str,
        table: str,
        path: Sequence[str],
        kind: str | pa.DataType,
        *,
        if_not_exists: bool = False,
        field_name: str | None = None,
    ) -> AttachedTable:
        """`ALTER TABLE … ADD COLUMN path.name kind`, where `path` is the struct.

        The client loses the new name (trap T34). `field_name` stands for a corrected client that
        sends it.
        """
        extra = {
            "if_field_not_exists": if_not_exists,
            "column_schema": self._one_field(field_name or path[0], kind),
            "column_path": list(path),
        }
        return self._alter("add_field", schema, table, extra)

    def remove_field(
        self,
        schema: str,
        table: str,
        path: Sequence[str],
        *,
        if_exists: bool = False,
        cascade: bool = False,
    ) -> AttachedTable:
        """`ALTER TABLE … DROP COLUMN path`."""
        extra = {"column_path": list(path), "if_column_exists": if_exists, "cascade": cascade}
        return self._alter("remove_field", schema, table, extra)

    def rename_field(
        self, schema: str, table: str, path: Sequence[str], new_name: str
    ) -> AttachedTable:
        """`ALTER TABLE … RENAME COLUMN path TO new_name`."""
        return self._alter(
            "rename_field", schema, table, {"column_path": list(path), "new_name": new_name}
        )

    def add_constraint(self, schema: str, table: str, constraint: str) -> AttachedTable:
        """Add a constraint, by an action that no SQL of DuckDB 1.4 and 1.5 sends."""
        return self._alter("add_constraint", schema, table, {"constraint": constraint})

    def _alter(
        self,
        action: str,
        schema: str,
        name: str,
        extra: Mapping[str, Any] | Sequence[tuple[str, Any]],
        if_exists: bool = False,
    ) -> AttachedTable:
        session = self._session
        with session.statement():
            table = self._bound(schema, name)
            pairs = [
                ("catalog", session.catalog),
                ("schema", table.schema),
                ("name", table.name),
                ("ignore_not_found", if_exists),
                *(extra.items() if isinstance(extra, Mapping) else extra),
            ]
            answer = session.answer(
                action, pack(pairs), session.headers.of_catalog(action, twice=True)
            )
            altered = self._cache.read_table(flight_info(answer, action), table.schema, action)
            if action != "rename_table" and altered.name != table.name:
                raise ProtocolViolation("§4.13", f"{action}: the answer is about {altered.name!r}")
            self._cache.put_table(altered, instead_of=table.name)
            return altered

    def _one_field(self, name: str, kind: str | pa.DataType) -> bytes:
        columns: Columns = {name: kind} if isinstance(kind, str) else pa.schema([(name, kind)])
        return _serialized(self._arrow(columns))

    def _arrow(self, columns: Columns) -> pa.Schema:
        if isinstance(columns, pa.Schema):
            return _as_sent(columns)
        return self._session.local.arrow_schema(columns)


def _create_table(
    catalog: str, schema: str, name: str, columns: pa.Schema, options: TableOptions
) -> bytes:
    not_null = {*options.not_null, *options.primary_key}
    composite = len(options.primary_key) > 1
    of_table = [", ".join(unique) for unique in options.unique if not isinstance(unique, str)]
    return pack(
        {
            "catalog_name": catalog,
            "schema_name": schema,
            "table_name": name,
            "arrow_schema": _serialized(columns),
            "on_conflict": "ignore" if options.if_not_exists else "error",
            "not_null_constraints": [
                index for index, name in enumerate(columns.names) if name in not_null
            ],
            "unique_constraints": [],
            "check_constraints": list(options.checks),
            "primary_key_columns": [] if composite else list(options.primary_key),
            "unique_columns": [unique for unique in options.unique if isinstance(unique, str)],
            "multi_key_primary_keys": list(options.primary_key) if composite else [],
            "extra_constraints": [f"UNIQUE({names})" for names in of_table],
        }
    )


def _as_sent(schema: pa.Schema) -> pa.Schema:
    """Make all fields nullable and drop metadata, but not of extension types (airport §4.12)."""
    fields = []
    for field in schema:
        kept = {
            key: value for key, value in (field.metadata or {}).items() if key.startswith(b"ARROW:")
        }
        fields.append(pa.field(field.name, field.type, nullable=True, metadata=kept or None))
    return pa.schema(fields)


def _serialized(schema: pa.Schema) -> bytes:
    serialized: bytes = schema.serialize().to_pybytes()
    return serialized
