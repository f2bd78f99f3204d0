"""Endpoints that DuckDB reads by itself: files and its own table functions (airport §5.8)."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Sequence

import pyarrow as pa

from sparkport.testing.failures import ClientSideError, ProtocolViolation
from sparkport.testing.local import LocalDuckDB
from sparkport.testing.replies import Fields
from sparkport.testing.types import duckdb_type, quoted

__all__ = ["is_data_uri", "read_data_uri"]

_FILE = "data:application/msgpack;base64,"
_FUNCTION = "data:application/x-msgpack-duckdb-function-call;base64,"


def is_data_uri(uri: str) -> bool:
    return uri.startswith((_FILE, _FUNCTION))


def read_data_uri(
    uri: str, bound: pa.Schema, wanted: Sequence[int], local: LocalDuckDB
) -> Iterator[pa.RecordBatch]:
    """Read what the URI describes. Columns are matched by name; a missing column is NULL."""
    if uri.startswith(_FILE):
        fields = Fields.unpack(_decoded(uri, _FILE), "data URI", trap="§5.8")
        kind, location = fields.text("format"), fields.text("uri")
        if kind == "parquet":
            table = local.table_function("parquet_scan", [location], {})
        elif kind in ("ipc-stream", "ipc-file"):
            table = _ipc(kind, location, bound)
        else:
            raise ProtocolViolation(
                "§5.8", f"data URI: the client does not know the format {kind!r}"
            )
    else:
        fields = Fields.unpack(_decoded(uri, _FUNCTION), "data URI", trap="§5.8")
        arguments = _arguments(fields.bytes_("data"))
        positional = [arguments[name] for name in _positional(arguments)]
        named = {name: value for name, value in arguments.items() if not name.startswith("arg_")}
        table = _run(local, fields.text("function_name"), positional, named)
    return _matched(table, bound, wanted)


def _run(
    local: LocalDuckDB, name: str, positional: list[object], named: dict[str, object]
) -> pa.Table:
    try:
        return local.table_function(name, positional, named)
    except ClientSideError as error:
        raise ProtocolViolation("§5.8", f"data URI: DuckDB cannot run {name}: {error}") from error


def _decoded(uri: str, prefix: str) -> bytes:
    try:
        return base64.b64decode(uri[len(prefix) :], validate=True)
    except binascii.Error as error:
        raise ProtocolViolation(
            "§5.8", f"data URI: not padded base64 of the standard alphabet: {error}"
        ) from error


def _arguments(data: bytes) -> dict[str, object]:
    try:
        table = pa.ipc.open_stream(data).read_all()
    except (pa.ArrowException, OSError) as error:
        raise ProtocolViolation("§5.8", f"data URI: data is no IPC stream: {error}") from error
    if table.num_rows != 1:
        raise ProtocolViolation("§5.8", f"data URI: data has {table.num_rows} rows instead of one")
    row: dict[str, object] = table.to_pylist()[0]
    return row


def _positional(arguments: dict[str, object]) -> list[str]:
    names = [name for name in arguments if name.startswith("arg_")]
    if sorted(names) != sorted(f"arg_{index}" for index in range(len(names))):
        raise ProtocolViolation(
            "§5.8", f"data URI: the positional arguments are {', '.join(names)}"
        )
    return [f"arg_{index}" for index in range(len(names))]


def _ipc(kind: str, location: str, bound: pa.Schema) -> pa.Table:
    try:
        filesystem, path = pa.fs.FileSystem.from_uri(location)
        with filesystem.open_input_file(path) as source:
            opened = (
                pa.ipc.open_stream(source) if kind == "ipc-stream" else pa.ipc.open_file(source)
            )
            table = opened.read_all()
    except (pa.ArrowException, OSError) as error:
        raise ProtocolViolation("§5.8", f"data URI: {location} cannot be read: {error}") from error
    if not table.schema.equals(bound):
        raise ProtocolViolation("§5.8", f"data URI: the schema of {location} is not the bound one")
    return table


def _matched(table: pa.Table, bound: pa.Schema, wanted: Sequence[int]) -> Iterator[pa.RecordBatch]:
    fields = [bound.field(position) for position in wanted]
    columns = []
    for field in fields:
        if field.name not in table.column_names:
            columns.append(pa.nulls(table.num_rows, field.type))
            continue
        where = f"data URI, column {field.name!r}"
        got = duckdb_type(table.schema.field(field.name), "main", where, quoted)
        due = duckdb_type(field, "main", where, quoted)
        if got != due:
            raise ProtocolViolation("§5.8", f"{where}: DuckDB reads {got} instead of {due}")
        columns.append(table.column(field.name).cast(field.type))
    schema = pa.schema([pa.field(field.name, field.type) for field in fields])
    yield from pa.table(columns, schema=schema).to_batches()
