"""Compute new values of a column from SQL, by DuckDB, batch by batch."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache

import duckdb
import pyarrow as pa

from sparkport.engine.columns import default_of
from sparkport.engine.constraints.expressions import column_types, expect_default, expect_stored
from sparkport.engine.constraints.parsing import NotAnExpression, first_line, parse
from sparkport.engine.constraints.review import Effort
from sparkport.engine.constraints.sandbox import in_small_chunks, quoted, sandbox
from sparkport.engine.databases import Check
from sparkport.engine.encodings import convert_array
from sparkport.errors import BadRequest

__all__ = ["computed_values", "default_values", "is_plain_cast", "packs_booleans"]


def computed_values(
    rows: Iterable[pa.RecordBatch],
    expression: str,
    field: pa.Field,
    table: str,
    check: Check | None = None,
) -> Iterator[pa.Array]:
    """The values of an expression for each batch, in the type of `field`.

    The expression may qualify columns with `table`. Raises: BadRequest; LimitExceeded; what `check`
    raises.
    """
    what = f"the expression {expression[:200]} for column {field.name}"
    return _computed(
        rows, expression, field, table, lambda names: expect_stored(expression, what, names), check
    )


def default_values(
    field: pa.Field, lengths: Iterable[int], check: Check | None = None
) -> Iterator[pa.Array]:
    """The default of a column, or NULL: an array for each of the lengths.

    Raises: BadRequest; LimitExceeded; what `check` raises.
    """
    default = default_of(field)
    if not default:
        return (pa.nulls(length, field.type) for length in lengths)
    # A default cannot use columns, so these rows have no values.
    rows = (pa.record_batch([pa.nulls(length)], names=["row"]) for length in lengths)
    effort = expect_default(default, f"the default of column {field.name}")
    return _computed(rows, default, field, "rows", lambda _: effort, check)


def _computed(
    rows: Iterable[pa.RecordBatch],
    expression: str,
    field: pa.Field,
    table: str,
    reviewed: Callable[[Sequence[str]], Effort],
    check: Check | None,
) -> Iterator[pa.Array]:
    (kind,) = column_types(pa.schema([field]))
    query = f"SELECT CAST((\n{expression}\n) AS {kind}) AS value FROM rows AS {quoted(table)}"
    for batch in rows:
        given = in_small_chunks(pa.Table.from_batches([batch]), reviewed(batch.schema.names))
        with sandbox(check, rows=given) as connection:
            try:
                values = connection.sql(query).to_arrow_table().column(0).combine_chunks()
            except duckdb.Error as error:
                message = f"the values of column {field.name} cannot be computed"
                raise BadRequest(
                    f"{message}: {first_line(error)}", without_values=message
                ) from error
        if isinstance(values, pa.ChunkedArray):
            values = pa.concat_arrays(values.chunks)
        if len(values) != batch.num_rows:
            raise BadRequest(f"{expression[:200]} does not give one value for each row")
        yield convert_array(values, field.type, field.name, from_duckdb=packs_booleans())


def is_plain_cast(expression: str, field: pa.Field) -> bool:
    """Whether an expression only casts the column, like `ALTER … TYPE` without USING."""
    (kind,) = column_types(pa.schema([field]))
    own = quoted(field.name)
    try:
        given, *plain = map(_tree, (expression, own, f"CAST({own} AS {kind})"))
    except NotAnExpression:  # the type is too long to be written
        return False
    return given in plain


def _tree(expression: str) -> str:
    """The parsed form of an expression, regardless of the case and the quotes of its names."""
    return _PLACES.sub("", json.dumps(parse(expression))).lower()


_PLACES = re.compile(r'"query_location(?:_length)?": ?\d+,? ?')


@cache
def packs_booleans() -> bool:
    """Whether this DuckDB has the defect of airport §13.1.

    It sends BOOLEANs in lists as bits, although their type says bytes.
    """
    with sandbox() as connection:
        lists = (
            connection.sql("SELECT [false, true] AS value")
            .to_arrow_table()
            .column(0)
            .combine_chunks()
        )
    values = lists.values if isinstance(lists, pa.Array) else lists.chunk(0).values
    return bool(getattr(values, "storage", values)[1].as_py() != 1)
