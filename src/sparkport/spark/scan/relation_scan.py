"""Scans that Spark runs: views, tables of other formats, and Iceberg tables beyond our reader."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, NestedField

from sparkport.catalog import Context, Framing
from sparkport.catalog.filters import Filter
from sparkport.catalog.rowid import NO_ROW_ID, ROWID_MARKER, ROWID_NAME
from sparkport.engine.encodings import convert_array
from sparkport.errors import StaleDescriptor, Unsupported
from sparkport.spark.iceberg.identifiers import Identifier, quoted
from sparkport.spark.iceberg.table_state import TableState
from sparkport.spark.iceberg.types.declared import decode, natural_type, needs_decoding, spark_type
from sparkport.spark.jvm.errors import translated
from sparkport.spark.jvm.relay.relations import scan_relation, scan_relation_batches
from sparkport.spark.jvm.result_columns import presented
from sparkport.spark.lake.lake import Lake
from sparkport.spark.scan.query_permissions import expect_unrestricted
from sparkport.spark.scan.spark_filters import spark_condition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = [
    "is_row_id",
    "read_iceberg",
    "read_iceberg_framed",
    "read_relation",
    "read_relation_framed",
]

_SPARK_ROW_ID = "_row_id"
_SESSION_CATALOG = "spark_catalog"
_NO_ROW_ID = f"CAST({NO_ROW_ID} AS BIGINT)"


def read_iceberg(
    lake: Lake, ctx: Context, state: TableState, names: tuple[str, ...], row_filter: Filter | None
) -> Iterator[pa.RecordBatch]:
    """A state of an Iceberg table, read by Spark, as batches."""
    rows = _iceberg_rows(lake, state, names, row_filter)
    fields = pa.schema([state.definition.arrow_schema.field(name) for name in names])
    title = f"table {state.identifier}"
    return scan_relation_batches(lake.relay, ctx, title, rows, fields, _Decode.of(state, names))


def read_iceberg_framed(
    lake: Lake,
    ctx: Context,
    state: TableState,
    names: tuple[str, ...],
    row_filter: Filter | None,
    framing: Framing,
) -> Iterator[bytes]:
    """A state of an Iceberg table, read by Spark, as messages."""
    rows = _iceberg_rows(lake, state, names, row_filter)
    return scan_relation(
        lake.relay, ctx, f"table {state.identifier}", rows, framing, _Decode.of(state, names)
    )


def _iceberg_rows(
    lake: Lake, state: TableState, names: tuple[str, ...], row_filter: Filter | None
) -> DataFrame:
    with translated(f"table {state.identifier}"):
        reader = lake.spark.read
        if state.snapshot is not None:
            reader = reader.option("versionAsOf", str(state.snapshot.snapshot_id))
        rows = reader.table(state.identifier.sql)
        shown = [_as_now(state, field, _schema_of_snapshot(state)) for field in state.schema.fields]
        row_id = ROWID_NAME if state.definition.shows_row_id else None
        if row_id is not None:
            kept = _SPARK_ROW_ID if state.has_row_ids else _NO_ROW_ID
            shown.append(f"{kept} AS {row_id}")
        return _kept(rows.selectExpr(*shown), row_filter, row_id).select(*map(quoted, names))


def _schema_of_snapshot(state: TableState) -> Schema:
    """The schema with which Spark reads a snapshot: columns may have changed since then."""
    schema_id = None if state.snapshot is None else state.snapshot.schema_id
    found = None if schema_id is None else state.metadata.schema_by_id(schema_id)
    return state.schema if found is None else found


def _as_now(state: TableState, column: NestedField, then: Schema) -> str:
    """What Spark is to select for a column. Raises: Unsupported."""
    kind, name = column.field_type, quoted(column.name)
    known = next((field for field in then.fields if field.field_id == column.field_id), None)
    if known is None and column.initial_default is None:
        return f"CAST(NULL AS {spark_type(kind)}) AS {name}"
    if known is not None and known.field_type == kind:
        return f"{quoted(known.name)} AS {name}"
    if known is not None and kind.is_primitive and known.field_type.is_primitive:
        return f"CAST({quoted(known.name)} AS {spark_type(kind)}) AS {name}"
    raise Unsupported(
        f"column {column.name} of table {state.identifier} was changed since its rows were last, "
        "and only Spark can read "
        "them: change a row, or run Iceberg's procedure rewrite_data_files on it in Spark"
    )


def read_relation(
    lake: Lake,
    ctx: Context,
    identifier: Identifier,
    columns: pa.Schema,
    names: tuple[str, ...],
    row_filter: Filter | None,
) -> Iterator[pa.RecordBatch]:
    """A view, or a table of any format, as batches."""
    rows = _relation_rows(lake, ctx, identifier, columns, row_filter)
    fields = pa.schema([columns.field(name) for name in names])
    return scan_relation_batches(lake.relay, ctx, f"table {identifier}", rows, fields)


def read_relation_framed(
    lake: Lake,
    ctx: Context,
    identifier: Identifier,
    columns: pa.Schema,
    row_filter: Filter | None,
    framing: Framing,
) -> Iterator[bytes]:
    """A view, or a table of any format, as messages."""
    rows = _relation_rows(lake, ctx, identifier, columns, row_filter)
    return scan_relation(lake.relay, ctx, f"table {identifier}", rows, framing)


def _relation_rows(
    lake: Lake, ctx: Context, identifier: Identifier, columns: pa.Schema, row_filter: Filter | None
) -> DataFrame:
    """The rows as a DataFrame.

    Raises: StaleDescriptor when its columns are not those that the client was told;
    PermissionDenied.
    """
    with translated(f"table {identifier}"):
        if identifier.catalog == _SESSION_CATALOG:
            # Spark keeps the list of a table's files, and does not see what others add.
            lake.spark.catalog.refreshTable(identifier.sql)
        relation = lake.gateway.relation(identifier)
        expect_unrestricted(ctx, lake, relation, identifier)
        rows, _ = presented(relation)
        if rows.columns != [field.name for field in columns if not is_row_id(field)]:
            lake.changed(identifier)
            raise StaleDescriptor(
                f"the columns of {identifier} have changed: attach the catalog again"
            )
        kept = _kept(rows, row_filter, None)
        has_row_id = any(map(is_row_id, columns))
        return kept.selectExpr("*", f"{_NO_ROW_ID} AS {ROWID_NAME}") if has_row_id else kept


def is_row_id(field: pa.Field) -> bool:
    """Whether a column is the row id that is published of a relation, which has none of its own."""
    return ROWID_MARKER in (field.metadata or {})


def _kept(rows: DataFrame, row_filter: Filter | None, row_id: str | None) -> DataFrame:
    condition = spark_condition(row_filter, rows.schema, row_id)
    return rows if condition is None else rows.where(condition)


@dataclass(frozen=True)
class _Decode:
    """Converts Spark's batches of an Iceberg table to the declared types. It is pickled."""

    schema_json: str
    fields: bytes

    @staticmethod
    def of(state: TableState, names: tuple[str, ...]) -> _Decode | None:
        """The conversion; None where Arrow can cast Spark's types to the declared ones."""
        definition = state.definition
        kinds = {field.name: field.field_type for field in state.schema.fields}
        wanted = [name for name in names if name in kinds]
        fields = pa.schema([definition.columns.field(name) for name in wanted])
        if not any(_differs(kinds[field.name], field) for field in fields):
            return None
        return _Decode(state.schema.model_dump_json(), fields.serialize().to_pybytes())

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        kinds = {
            field.name: field.field_type
            for field in Schema.model_validate_json(self.schema_json).fields
        }
        declared = pa.ipc.read_schema(pa.py_buffer(self.fields))
        arrays, fields = [], []
        for field, array in zip(batch.schema, batch.columns, strict=True):
            position = declared.get_field_index(field.name)
            if position >= 0:
                kind, field = kinds[field.name], declared.field(position)
                natural = natural_type(kind)
                stored = (
                    array if array.type == natural else convert_array(array, natural, field.name)
                )
                array = decode(stored, kind, field)
            arrays.append(array)
            fields.append(field)
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def _differs(kind: IcebergType, field: pa.Field) -> bool:
    """Whether Arrow cannot cast Spark's values to the declared type. Spark shows UUIDs as text."""
    return needs_decoding(kind, field) or "uuid" in str(kind)
