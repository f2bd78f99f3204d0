"""Types as Flight SQL's drivers know them: DuckDB's names, and the numbers of ODBC and JDBC."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

import pyarrow as pa

from sparkport.engine.type_table import ROWS, row_of, storage_type
from sparkport.engine.types import fields_of

__all__ = ["described_schema", "duckdb_type", "type_info"]


def described_schema(arrow_schema: pa.Schema) -> bytes:
    """A published Arrow schema as an IPC message, with Flight SQL's metadata for each column."""
    fields = [
        field.with_metadata({**(field.metadata or {}), **_description(field)})
        for field in arrow_schema
    ]
    described: bytes = pa.schema(fields, arrow_schema.metadata).serialize().to_pybytes()
    return described


def _description(field: pa.Field) -> dict[bytes, bytes]:
    metadata = field.metadata or {}
    described = {b"ARROW:FLIGHT:SQL:TYPE_NAME": duckdb_type(field).encode()}
    if comment := metadata.get(b"comment"):
        described[b"ARROW:FLIGHT:SQL:REMARKS"] = comment
    return described


def duckdb_type(field: pa.Field) -> str:
    """The type that DuckDB shows for a published column (airport §13.2)."""
    if (field.metadata or {}).get(b"ARROW:extension:name") == b"geoarrow.wkb":
        return "GEOMETRY"
    return _named(field.type)


def _named(data_type: pa.DataType) -> str:
    row = row_of(data_type)
    if row is None:
        return str(data_type).upper()
    plain = storage_type(data_type)
    members = fields_of(plain)
    match row.name:
        case "NULL":
            return '"NULL"'
        case "DECIMAL":
            return f"DECIMAL({plain.precision},{plain.scale})"
        case "LIST":
            return f"{duckdb_type(members[0])}[]"
        case "ARRAY":
            return f"{duckdb_type(members[0])}[{plain.list_size}]"
        case "MAP":
            return f"MAP({', '.join(map(duckdb_type, members))})"
        case "STRUCT" | "UNION":
            listed = (f"{_quoted(member.name)} {duckdb_type(member)}" for member in members)
            return f"{row.name}({', '.join(listed)})"
        case _:
            return row.name


def _quoted(name: str) -> str:
    if re.fullmatch("[a-z_][a-z0-9_]*", name):
        return name
    return '"{}"'.format(name.replace('"', '""'))


@cache
def type_info() -> tuple[Mapping[str, Any], ...]:
    """DuckDB's types, as rows of the answer to CommandGetXdbcTypeInfo, in its order."""
    described = (
        {"type_name": row.name, "local_type_name": row.name, **row.driver}
        for row in ROWS
        if row.driver is not None
    )
    return tuple(sorted(described, key=lambda each: (each["data_type"], each["type_name"])))
