"""New values of a column from SQL, computed by DuckDB, batch by batch."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache

import duckdb
import pyarrow as pa

from sparkport.catalog.columns import default_of
from sparkport.catalog.constraints.expressions import column_types, first_line
from sparkport.catalog.constraints.sandbox import quoted, sandbox
from sparkport.catalog.encodings import convert_array
from sparkport.errors import BadRequest

__all__ = ["computed_values", "default_values", "is_plain_cast", "packs_booleans"]


def computed_values(rows: Iterable[pa.RecordBatch], expression: str, field: pa.Field, table: str) -> Iterator[pa.Array]:
    """The values of an expression for each batch, as `field` wants them. `table` may qualify columns. Raises: BadRequest."""
    (kind,) = column_types(pa.schema([field]))
    query = f"SELECT CAST((\n{expression}\n) AS {kind}) AS value FROM rows AS {quoted(table)}"
    with sandbox() as connection:
        for batch in rows:
            connection.register("rows", pa.Table.from_batches([batch]))
            try:
                values = connection.sql(query).to_arrow_table().column(0).combine_chunks()
            except duckdb.Error as error:
                message = f"the values of column {field.name} cannot be computed"
                raise BadRequest(f"{message}: {first_line(error)}", without_values=message) from error
            if isinstance(values, pa.ChunkedArray):
                values = pa.concat_arrays(values.chunks)
            if len(values) != batch.num_rows:
                raise BadRequest(f"{expression[:200]} does not give one value for each row")
            yield convert_array(values, field.type, field.name, from_duckdb=packs_booleans())


def default_values(field: pa.Field, lengths: Iterable[int]) -> Iterator[pa.Array]:
    """The default of a column, or NULL, for so many rows each time. Raises: BadRequest."""
    default = default_of(field)
    if not default:
        return (pa.nulls(length, field.type) for length in lengths)
    # The rows have nothing to say: a default cannot use columns.
    rows = (pa.record_batch([pa.nulls(length)], names=["row"]) for length in lengths)
    return computed_values(rows, default, field, "rows")


def is_plain_cast(expression: str, field: pa.Field) -> bool:
    """Whether an expression does nothing but give the column its new type, as `ALTER … TYPE` without USING has it."""
    (kind,) = column_types(pa.schema([field]))
    own = quoted(field.name)
    given, *plain = map(_tree, (expression, own, f"CAST({own} AS {kind})"))
    return given in plain


def _tree(expression: str) -> str:
    """What an expression is made of, whatever the case and the quotes of its names."""
    with sandbox() as connection:
        row = connection.execute("SELECT json_serialize_sql(?)", [f"SELECT (\n{expression}\n)"]).fetchone()
    assert row is not None
    return _PLACES.sub("", row[0]).lower()


_PLACES = re.compile(r'"query_location(?:_length)?":\d+,?')


@cache
def packs_booleans() -> bool:
    """Whether this DuckDB has the defect of airport §13.1: BOOLEANs in lists as bits, although their type says bytes."""
    with sandbox() as connection:
        lists = connection.sql("SELECT [false, true] AS value").to_arrow_table().column(0).combine_chunks()
    values = lists.values if isinstance(lists, pa.Array) else lists.chunk(0).values
    return bool(getattr(values, "storage", values)[1].as_py() != 1)
