"""Tables and functions as DuckDB makes them from FlightInfos in the catalog (airport §3.5–3.7)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import pyarrow as pa
import pyarrow.flight as flight
import pyarrow.types as kinds

from sparkport.testing.failures import ProtocolViolation
from sparkport.testing.headers import flight_path, printable_ascii
from sparkport.testing.local import LocalDuckDB
from sparkport.testing.replies import Fields, as_text
from sparkport.testing.types import Line, duckdb_type, has_statistics, quoted

__all__ = [
    "AttachedColumn",
    "AttachedFunction",
    "AttachedObject",
    "AttachedTable",
    "attached_object",
    "bound_table",
]


@dataclass(frozen=True, slots=True)
class AttachedColumn:
    """A column as DuckDB shows it. `position` is its index in the Arrow schema with the row id."""

    name: str
    type: str
    nullable: bool
    default: str | None
    comment: str | None
    position: int
    field: pa.Field
    sql_type: str


@dataclass(frozen=True, slots=True)
class AttachedTable:
    """A table as DuckDB knows it, until this client alters it or attaches again."""

    schema: str
    name: str
    comment: str | None
    columns: tuple[AttachedColumn, ...]
    rowid: AttachedColumn | None
    checks: tuple[str, ...]
    descriptor: flight.FlightDescriptor
    arrow_schema: pa.Schema
    produces_statistics: bool
    total_records: int = -1

    def column(self, name: str) -> AttachedColumn | None:
        """Return the column of that name, ignoring case; `rowid` is the row id."""
        if name.casefold() == "rowid" and self.rowid is not None:
            return self.rowid
        return next(
            (column for column in self.columns if column.name.casefold() == name.casefold()), None
        )


@dataclass(frozen=True, slots=True)
class AttachedFunction:
    """A scalar or table function. `arrow_schema` holds a scalar function's result."""

    schema: str
    name: str
    kind: Literal["scalar_function", "table_function"]
    description: str | None
    input_schema: pa.Schema
    arrow_schema: pa.Schema
    stability: str
    descriptor: flight.FlightDescriptor


AttachedObject: TypeAlias = AttachedTable | AttachedFunction


def attached_object(
    info: flight.FlightInfo, catalog: str, schema: str, line: Line, local: LocalDuckDB
) -> AttachedObject:
    """Read the FlightInfo of an object.

    Raises: ProtocolViolation for anything that would break the loading of its schema, or the
    object.
    """
    where = f"an object of schema {schema!r}"
    fields = Fields.unpack(_bytes(info.app_metadata), f"app_metadata of {where}", trap="T9")
    kind, name = fields.text("type"), fields.text("name")
    where = f"{kind} {schema}.{name}"
    fields.where = f"app_metadata of {where}"
    if not name:
        raise ProtocolViolation("T9", f"an object of schema {schema!r} has an empty name")
    if (named := fields.text("catalog")) != catalog:
        raise ProtocolViolation("T9", f"{where}: catalog is {named!r}, but {catalog!r} is attached")
    if (named := fields.text("schema")) != schema:
        raise ProtocolViolation(
            "T9", f"{where}: schema is {named!r}, but it is listed in {schema!r}"
        )
    comment = fields.optional_text("comment")
    input_schema = fields.optional_bytes("input_schema")
    fields.optional_text("action_name")
    description = fields.optional_text("description")
    extra_data = fields.optional_bytes("extra_data")
    if kind == "table":
        return bound_table(info, schema, name, comment, line, local)
    if kind not in ("scalar_function", "table_function"):
        raise ProtocolViolation("T9", f"{where}: the client does not know the type {kind!r}")
    if input_schema is None:
        raise ProtocolViolation("T9", f"{where}: input_schema is missing")
    function = AttachedFunction(
        schema=schema,
        name=name,
        kind="scalar_function" if kind == "scalar_function" else "table_function",
        description=description,
        input_schema=_read_schema(input_schema, f"{where}: input_schema"),
        arrow_schema=_schema(info, where),
        stability=_stability(extra_data, where),
        descriptor=_descriptor(info, where),
    )
    _check_function(function, line, where)
    return function


def bound_table(
    info: flight.FlightInfo,
    schema: str,
    name: str,
    comment: str | None,
    line: Line,
    local: LocalDuckDB,
) -> AttachedTable:
    """Return the table that a FlightInfo describes, without its app_metadata."""
    where = f"table {schema}.{name}"
    arrow_schema = _schema(info, where)
    positions = [index for index, field in enumerate(arrow_schema) if _marked(field, b"is_rowid")]
    if len(positions) > 1:
        raise ProtocolViolation("T7", f"{where}: {len(positions)} fields are marked is_rowid")
    if positions and positions[0] != len(arrow_schema) - 1:
        raise ProtocolViolation("T7", f"{where}: the row id is not the last field")
    names = _deduplicated(
        [
            field.name or f"v{index}"
            for index, field in enumerate(arrow_schema)
            if index not in positions
        ]
    )
    columns = tuple(
        _column(arrow_schema.field(index), column, index, where, line, local)
        for index, column in enumerate(names)
    )
    rowid = None
    if positions:
        rowid = _column(arrow_schema.field(positions[0]), "rowid", positions[0], where, line, local)
    table = AttachedTable(
        schema=schema,
        name=name,
        comment=comment,
        columns=columns,
        rowid=rowid,
        checks=_checks(arrow_schema, where, local),
        descriptor=_descriptor(info, where),
        arrow_schema=arrow_schema,
        produces_statistics=bool((arrow_schema.metadata or {}).get(b"can_produce_statistics")),
        total_records=info.total_records,
    )
    if table.produces_statistics:
        for column in columns:
            if not has_statistics(column.type):
                raise ProtocolViolation(
                    "T29", f"{where}: the client has no statistics of {column.name} ({column.type})"
                )
    return table


def _column(
    field: pa.Field, name: str, position: int, where: str, line: Line, local: LocalDuckDB
) -> AttachedColumn:
    metadata = field.metadata or {}
    at = f"{where}, column {name!r}"
    default = (
        as_text(metadata[b"default"], f"{at}: default", "§3.6")
        if metadata.get(b"default")
        else None
    )
    if default is not None and not local.parses(default):
        raise ProtocolViolation("§3.6", f"{at}: DuckDB cannot parse the default {default!r}")
    comment = metadata.get(b"comment")
    return AttachedColumn(
        name=name,
        type=duckdb_type(field, line, at),
        nullable=field.nullable,
        default=default,
        comment=None if comment is None else as_text(comment, f"{at}: comment", "§3.6"),
        position=position,
        field=field,
        sql_type=duckdb_type(field, line, at, quoted),
    )


def _checks(arrow_schema: pa.Schema, where: str, local: LocalDuckDB) -> tuple[str, ...]:
    packed = (arrow_schema.metadata or {}).get(b"check_constraints")
    if not packed:
        return ()
    at = f"{where}: check_constraints"
    fields = Fields.unpack(packed, at, trap="§3.6")
    checks = tuple(as_text(check, at, "§3.6") for check in fields.array("constraints"))
    for check in checks:
        if not local.parses(check):
            raise ProtocolViolation(
                "§3.6", f"{at}: DuckDB cannot parse {check!r} as one expression"
            )
    return checks


def _check_function(function: AttachedFunction, line: Line, where: str) -> None:
    fields = list(function.input_schema)
    for index, field in enumerate(fields):
        if _marked(field, b"is_any_type"):
            continue
        if _marked(field, b"is_table_type"):
            if function.kind == "scalar_function":
                raise ProtocolViolation(
                    "§3.6", f"{where}: a scalar function has no table parameter"
                )
            if index != len(fields) - 1:
                raise ProtocolViolation("T41", f"{where}: the table parameter is not the last one")
            if any(_marked(other, b"is_named_parameter") for other in fields):
                raise ProtocolViolation(
                    "T41", f"{where}: named parameters of in/out functions arrive as NULL"
                )
            continue
        duckdb_type(field, line, f"{where}, parameter {field.name!r}")
        if function.kind == "scalar_function" and not _sent_by_default(field.type):
            raise ProtocolViolation(
                "T32",
                f"{where}, parameter {field.name!r}: DuckDB does not send {field.type}, memory is "
                "misread",
            )
    if function.kind == "scalar_function":
        if len(function.arrow_schema) != 1:
            raise ProtocolViolation(
                "§3.5", f"{where}: the schema of a scalar function has exactly one field"
            )
        duckdb_type(function.arrow_schema.field(0), line, f"{where}, result")


def _sent_by_default(kind: pa.DataType) -> bool:
    """Whether DuckDB itself sends this Arrow type (airport §13.1).

    Its own extension types depend on settings.
    """
    if isinstance(kind, pa.BaseExtensionType):
        return True
    refused = (
        kinds.is_large_string(kind)
        or kinds.is_large_binary(kind)
        or kinds.is_large_list(kind)
        or kinds.is_string_view(kind)
        or kinds.is_binary_view(kind)
        or kinds.is_list_view(kind)
        or kinds.is_large_list_view(kind)
        or kinds.is_dictionary(kind)
        or kinds.is_run_end_encoded(kind)
        or kinds.is_date64(kind)
        or kinds.is_time32(kind)
        or kinds.is_duration(kind)
        or kinds.is_fixed_size_binary(kind)
        or kinds.is_decimal32(kind)
        or kinds.is_decimal64(kind)
    )
    return not refused and all(
        _sent_by_default(kind.field(index).type) for index in range(kind.num_fields)
    )


def _stability(extra_data: bytes | None, where: str) -> str:
    if extra_data is None:
        return "volatile"
    stability = Fields.unpack(extra_data, f"{where}: extra_data", trap="§3.5").text("stability")
    if stability not in ("consistent", "consistent_within_query", "volatile"):
        raise ProtocolViolation(
            "§3.5", f"{where}: the client does not know the stability {stability!r}"
        )
    return stability


def _descriptor(info: flight.FlightInfo, where: str) -> flight.FlightDescriptor:
    descriptor = info.descriptor
    if descriptor.descriptor_type not in (flight.DescriptorType.PATH, flight.DescriptorType.CMD):
        raise ProtocolViolation("§3.7", f"{where}: the descriptor is neither PATH nor CMD")
    path = flight_path(descriptor)
    if path is not None and not printable_ascii(path):
        raise ProtocolViolation(
            "T3", f"{where}: the path {path!r} becomes a header that gRPC refuses: DuckDB aborts"
        )
    return descriptor


def _schema(info: flight.FlightInfo, where: str) -> pa.Schema:
    try:
        schema = info.schema
    except (pa.ArrowException, OSError) as error:
        raise ProtocolViolation("§3.5", f"{where}: the schema cannot be read: {error}") from error
    if schema is None:
        raise ProtocolViolation("§3.5", f"{where}: the FlightInfo has no schema")
    return schema


def _read_schema(body: bytes, where: str) -> pa.Schema:
    try:
        return pa.ipc.read_schema(pa.py_buffer(body))
    except (pa.ArrowException, OSError) as error:
        raise ProtocolViolation(
            "§1.4", f"{where}: not an encapsulated schema message: {error}"
        ) from error


def _marked(field: pa.Field, key: bytes) -> bool:
    return bool((field.metadata or {}).get(key))


def _deduplicated(names: list[str]) -> list[str]:
    seen: set[str] = set()
    result = []
    for name in names:
        unique, number = name, 1
        while unique.casefold() in seen:
            unique, number = f"{name}_{number}", number + 1
        seen.add(unique.casefold())
        result.append(unique)
    return result


def _bytes(metadata: bytes | str | None) -> bytes:
    return metadata.encode() if isinstance(metadata, str) else metadata or b""
