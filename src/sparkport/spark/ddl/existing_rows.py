"""Check whether the rows of a table fulfil constraints that it is to get."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from sparkport.catalog import Constraints, Context, ScanOptions
from sparkport.engine.constraints.enforce import (
    columns_of,
    duplicate_key,
    enforce_keys,
    enforce_rows,
)
from sparkport.spark.iceberg.identifiers import quoted
from sparkport.spark.iceberg.plan import plan_scan
from sparkport.spark.iceberg.table_state import TableState
from sparkport.spark.iceberg.types.declared import needs_decoding
from sparkport.spark.lake.lake import Lake
from sparkport.spark.scan import routes

__all__ = ["check_rows", "existing_rows"]

_MOST_IN_PLACE = 2_000_000
"""Keys of more rows than this are compared by Spark, where it compares them as DuckDB does."""


def check_rows(lake: Lake, ctx: Context, state: TableState, constraints: Constraints) -> None:
    """Check all rows. Raises: ConstraintViolation, which names the constraint and a value."""
    names = state.definition.columns.names
    table = state.identifier.name
    per_row = Constraints(not_null=constraints.not_null, checks=constraints.checks)
    if per_row:
        for batch in existing_rows(lake, ctx, state, columns_of(per_row, names)):
            enforce_rows(table, per_row, batch, ctx.check)
    keys = [("primary key", constraints.primary_key)] if constraints.primary_key else []
    keys += [("unique", key) for key in constraints.unique]
    rows = plan_scan(state, (), None).rows if keys else 0
    for kind, key in keys:
        if rows > _MOST_IN_PLACE and _compares_alike(state, key):
            _check_by_spark(lake, state, kind, key)
        elif rows:
            _check_in_place(lake, ctx, state, kind, key)


def existing_rows(
    lake: Lake, ctx: Context, state: TableState, columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Read all rows: at least the given columns."""
    yield from routes.read(lake, ctx, state, ScanOptions(columns=tuple(columns)))


def _check_in_place(
    lake: Lake, ctx: Context, state: TableState, kind: str, key: tuple[str, ...]
) -> None:
    batches = [batch.select(list(key)) for batch in existing_rows(lake, ctx, state, key)]
    if batches:
        rows = pa.Table.from_batches(batches)
        constraints = (
            Constraints(primary_key=key) if kind == "primary key" else Constraints(unique=(key,))
        )
        enforce_keys(
            state.identifier.name, constraints, rows, rows.slice(0, 0).select, check=ctx.check
        )


def _compares_alike(state: TableState, key: Sequence[str]) -> bool:
    """Whether Spark sees the values that DuckDB sees, and takes the same values for equal."""
    definition = state.definition
    fields = [
        (state.schema.fields[position], definition.columns.field(position))
        for position in map(definition.position, key)
        if position is not None
    ]
    return not any(
        needs_decoding(stored.field_type, declared) or pa.types.is_nested(declared.type)
        for stored, declared in fields
    )


def _check_by_spark(lake: Lake, state: TableState, kind: str, key: Sequence[str]) -> None:
    assert state.snapshot is not None
    columns = ", ".join(map(quoted, key))
    known = " AND ".join(f"{quoted(name)} IS NOT NULL" for name in key)
    found = lake.collected(
        f"table {state.identifier}",
        f"SELECT {columns} FROM {state.identifier.sql} VERSION AS OF {state.snapshot.snapshot_id}"
        f" WHERE {known} GROUP BY {columns} HAVING count(*) > 1 LIMIT 1",
    )
    if found:
        raise duplicate_key(state.identifier.name, kind, key, [str(value) for value in found[0]])
