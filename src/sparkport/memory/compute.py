"""New values of a column from SQL, computed by DuckDB."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import duckdb
import pyarrow as pa

from sparkport.catalog.constraints.expressions import column_types, expect_computable, first_line
from sparkport.catalog.constraints.sandbox import quoted, sandbox
from sparkport.catalog.encodings import convert_array
from sparkport.errors import BadRequest
from sparkport.memory.segments import Segment

__all__ = ["computed_column", "default_column"]


def computed_column(
    columns: pa.Schema, segments: Sequence[Segment], expression: str, field: pa.Field, table: str
) -> list[pa.Array]:
    """The values of `expression` for the rows of each segment, as `field` wants them. Raises: BadRequest."""
    what = f"the expression {expression[:200]} for column {field.name}"
    expect_computable(expression, columns, what, table)
    rows = [pa.RecordBatch.from_arrays(list(segment.columns), schema=columns) for segment in segments]
    return _evaluated(rows, expression, field, table)


def default_column(field: pa.Field, lengths: Sequence[int]) -> list[pa.Array]:
    """Values for rows that exist already when a column is added: its default, else NULL. Raises: BadRequest."""
    default = (field.metadata or {}).get(b"default")
    if not default:
        return [pa.nulls(length, field.type) for length in lengths]
    # The rows have nothing to say: a default cannot use columns.
    rows = [pa.record_batch([pa.nulls(length)], names=["row"]) for length in lengths]
    return _evaluated(rows, default.decode(), field, "rows")


def _evaluated(rows: Sequence[pa.RecordBatch], expression: str, field: pa.Field, table: str) -> list[pa.Array]:
    (kind,) = column_types(pa.schema([field]))
    query = f"SELECT CAST((\n{expression}\n) AS {kind}) AS value FROM rows AS {quoted(table)}"
    result = []
    with sandbox() as connection:
        for batch in rows:
            connection.register("rows", pa.Table.from_batches([batch]))
            try:
                values = connection.sql(query).to_arrow_table().column(0).combine_chunks()
            except duckdb.Error as error:
                raise BadRequest(
                    f"the values of column {field.name} cannot be computed: {first_line(error)}"
                ) from error
            if isinstance(values, pa.ChunkedArray):
                values = pa.concat_arrays(values.chunks)
            if len(values) != batch.num_rows:
                raise BadRequest(f"{expression[:200]} does not give one value for each row")
            result.append(convert_array(values, field.type, field.name, from_duckdb=_packs_booleans()))
    return result


@cache
def _packs_booleans() -> bool:
    """Whether this DuckDB has the defect of airport §13.1: BOOLEANs in lists as bits, although their type says bytes."""
    with sandbox() as connection:
        lists = connection.sql("SELECT [false, true] AS value").to_arrow_table().column(0).combine_chunks()
    values = lists.values if isinstance(lists, pa.Array) else lists.chunk(0).values
    return bool(getattr(values, "storage", values)[1].as_py() != 1)
