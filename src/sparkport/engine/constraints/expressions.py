"""SQL expressions as text: whether they may be used, which columns they use, renaming those."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import lru_cache

import duckdb
import pyarrow as pa

from sparkport.catalog.names import folded
from sparkport.engine.constraints.allowed import CHANGING_PER_ROW
from sparkport.engine.constraints.parsing import (
    NotAnExpression,
    column_references,
    first_line,
    nodes,
    parse,
    unparse,
)
from sparkport.engine.constraints.review import Effort, review
from sparkport.engine.constraints.sandbox import quoted, sandbox
from sparkport.errors import BadRequest, PreconditionFailed

__all__ = [
    "column_types",
    "expect_check",
    "expect_computable",
    "expect_default",
    "expect_per_row",
    "expect_rule",
    "expect_stored",
    "is_one_value",
    "renamed_in",
    "unqualified",
    "used_columns",
]


def expect_default(text: str, what: str) -> Effort:
    """Raises: BadRequest unless `text` gives a value without any row, by allowed functions."""
    return _expect_reviewed(text, what, (), changing=True)


def expect_stored(text: str, what: str, columns: Sequence[str]) -> Effort:
    """Raises: BadRequest unless `text` gives for each row a value to store, as in ALTER … USING."""
    return _expect_reviewed(text, what, columns, changing=True)


def expect_per_row(text: str, what: str, columns: Sequence[str]) -> Effort:
    """Raises: BadRequest unless `text` always gives the same value for a row, as a CHECK must."""
    return _expect_reviewed(text, what, columns)


def expect_rule(text: str, what: str, columns: Sequence[str] | None = None) -> Effort:
    """Raises: BadRequest unless `text` is an expression over one row, perhaps with `$name`."""
    return _expect_reviewed(text, what, columns, parameters=True)


def _expect_reviewed(
    text: str,
    what: str,
    columns: Sequence[str] | None,
    *,
    parameters: bool = False,
    changing: bool = False,
) -> Effort:
    try:
        known = None if columns is None else tuple(columns)
        return review(text, known, parameters=parameters, changing=changing)
    except NotAnExpression as error:
        raise BadRequest(f"{what} is not an SQL expression: {error.message}") from error
    except BadRequest as error:
        raise BadRequest(f"{what} cannot be used: {error.message}") from error


def expect_check(text: str, columns: pa.Schema, what: str, table: str = "") -> None:
    """Raises: BadRequest unless DuckDB accepts `text` as a CHECK of a table with these columns.

    That excludes subqueries, aggregates and unknown columns.
    """
    expect_per_row(text, what, columns.names)
    types = column_types(columns)
    declared = ", ".join(
        f"{quoted(name)} {kind}" for name, kind in zip(columns.names, types, strict=True)
    )
    with sandbox() as connection:
        try:
            connection.execute(
                f"CREATE TEMP TABLE {quoted(table or 'rows')} ({declared}, CHECK (\n{text}\n))"
            )
        except duckdb.Error as error:
            raise BadRequest(f"{what} cannot be used: {first_line(error)}") from error


def expect_computable(text: str, columns: pa.Schema, what: str, table: str = "rows") -> None:
    """Raises: BadRequest unless `text` gives one value for each row, from that row alone."""
    expect_stored(text, what, columns.names)
    with sandbox(rows=pa.Table.from_batches([], columns)) as connection:
        try:
            connection.execute(f"SELECT (\n{text}\n) FROM rows AS {quoted(table)}").fetchall()
        except duckdb.Error as error:
            raise BadRequest(f"{what} cannot be used: {first_line(error)}") from error


def column_types(columns: pa.Schema) -> list[str]:
    """The types that DuckDB gives to the columns, as SQL."""
    with sandbox(columns=pa.Table.from_batches([], columns)) as connection:
        return [str(row[1]) for row in connection.execute("DESCRIBE columns").fetchall()]


def is_one_value(default: str) -> bool:
    """Whether a default gives all rows of a statement the same value, perhaps its time."""
    return not any(
        node.get("function_name", "").lower() in CHANGING_PER_ROW for node in nodes(parse(default))
    )


def used_columns(expression: str, columns: Sequence[str]) -> tuple[str, ...]:
    """Those of `columns` that the expression uses; names of lambda parameters may be among them."""
    own = {folded(column) for column in columns}
    used = set()
    for first, *rest in _references(expression):
        # `a.b` is a field of column `a`, unless there is none: then `a` is the table.
        used.add(folded(first) if folded(first) in own or not rest else folded(rest[0]))
    return tuple(column for column in columns if folded(column) in used)


def renamed_in(expression: str, column: str, new_name: str) -> str:
    """The expression with another name for a column.

    Raises: PreconditionFailed when it is unclear where the column is meant.
    """
    tree = parse(expression)
    if any(node.get("class") == "LAMBDA" for node in nodes(tree)):
        raise PreconditionFailed(
            f"column {column} is used by CHECK({expression}), which has a lambda and cannot be "
            f"rewritten: "
            "drop the constraint first"
        )
    for node in column_references(tree):
        if folded(node["column_names"][0]) == folded(column):
            node["column_names"][0] = new_name
    return unparse(tree)


def unqualified(expression: str, table: str, columns: Collection[str]) -> str:
    """The expression with `column` for `table.column`: it then survives a renaming of the table."""
    if folded(table) not in {
        folded(reference[0]) for reference in _references(expression) if len(reference) > 1
    }:
        return expression
    own = {folded(column) for column in columns}
    tree = parse(expression)
    for node in column_references(tree):
        names = node["column_names"]
        if len(names) > 1 and folded(names[0]) == folded(table) and folded(names[1]) in own:
            del names[0]
    return unparse(tree)


@lru_cache(maxsize=4096)
def _references(expression: str) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(node["column_names"]) for node in column_references(parse(expression)))
