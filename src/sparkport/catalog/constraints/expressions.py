"""SQL expressions as text: whether they are one, which columns they use, and how to rename those."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Sequence
from functools import lru_cache
from typing import Any

import duckdb
import pyarrow as pa

from sparkport.catalog.constraints.sandbox import quoted, sandbox
from sparkport.catalog.names import folded
from sparkport.errors import BadRequest, PreconditionFailed

__all__ = [
    "column_types",
    "expect_check",
    "expect_computable",
    "expect_expression",
    "expect_rule",
    "first_line",
    "renamed_in",
    "unqualified",
    "used_columns",
]


def expect_expression(text: str, what: str) -> None:
    """Raises: BadRequest unless `text` is one expression that DuckDB can parse, and not of monstrous size."""
    _expect_parsed(text, what)
    if _classes(text) & {"STAR", "PARAMETER"}:
        raise BadRequest(f"{what} is not an SQL expression: it has no single value")


def expect_rule(text: str, what: str) -> None:
    """Raises: BadRequest unless `text` is an expression over one row, in which `$name` may stand for a value."""
    _expect_parsed(text, what)
    if _classes(text) & {"STAR", "SUBQUERY", "WINDOW"}:
        raise BadRequest(f"{what} cannot be used: it must be computed from one row, without subquery or window")


def _expect_parsed(text: str, what: str) -> None:
    _expect_moderate(text, what)
    try:
        duckdb.SQLExpression(text)
        duckdb.SQLExpression(f"{text}\nIS NULL")  # alone, DuckDB takes `7,` and `7 AS x` for expressions too
    except duckdb.Error as error:
        raise BadRequest(f"{what} is not an SQL expression: {first_line(error)}") from error


_MAX_LENGTH = 10_000
_MAX_DEPTH = 100
"""DuckDB's parser needs seconds for a thousand open brackets, hours for a hundred thousand, and cannot be interrupted."""
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")


def _expect_moderate(text: str, what: str) -> None:
    depth = deepest = 0
    for character in _QUOTED.sub("", text) if len(text) <= _MAX_LENGTH else ():
        depth += (character in "([{") - (character in ")]}")
        deepest = max(deepest, depth)
    if len(text) > _MAX_LENGTH or deepest > _MAX_DEPTH:
        raise BadRequest(f"{what} is not an SQL expression of moderate size")


def expect_check(text: str, columns: pa.Schema, what: str, table: str = "") -> None:
    """Raises: BadRequest unless DuckDB accepts `text` as a CHECK of a table with these columns.

    That excludes subqueries, aggregates and unknown columns.
    """
    expect_expression(text, what)
    types = column_types(columns)
    declared = ", ".join(f"{quoted(name)} {kind}" for name, kind in zip(columns.names, types, strict=True))
    with sandbox() as connection:
        try:
            connection.execute(f"CREATE TEMP TABLE {quoted(table or 'rows')} ({declared}, CHECK (\n{text}\n))")
        except duckdb.Error as error:
            raise BadRequest(f"{what} cannot be used: {first_line(error)}") from error


def expect_computable(text: str, columns: pa.Schema, what: str, table: str = "rows") -> None:
    """Raises: BadRequest unless `text` gives one value for each row, computed from that row alone."""
    expect_expression(text, what)
    if _classes(text) & {"SUBQUERY", "WINDOW"}:
        raise BadRequest(f"{what} cannot be used: it must be computed from one row, without subquery or window")
    with sandbox(rows=pa.Table.from_batches([], columns)) as connection:
        try:
            result = connection.execute(f"SELECT (\n{text}\n) FROM rows AS {quoted(table)}").fetchall()
        except duckdb.Error as error:
            raise BadRequest(f"{what} cannot be used: {first_line(error)}") from error
    if result:  # of no rows, only an aggregate makes one
        raise BadRequest(f"{what} cannot be used: it must be computed from one row, without aggregates")


def column_types(columns: pa.Schema) -> list[str]:
    """The types that DuckDB gives to the columns, as SQL."""
    with sandbox(columns=pa.Table.from_batches([], columns)) as connection:
        return [str(row[1]) for row in connection.execute("DESCRIBE columns").fetchall()]


def used_columns(expression: str, columns: Sequence[str]) -> tuple[str, ...]:
    """Those of `columns` that the expression uses; names that are only parameters of a lambda may be among them."""
    own = {folded(column) for column in columns}
    used = set()
    for first, *rest in _references(expression):
        # `a.b` is a field of column `a`, unless there is none: then `a` is the table.
        used.add(folded(first) if folded(first) in own or not rest else folded(rest[0]))
    return tuple(column for column in columns if folded(column) in used)


def renamed_in(expression: str, column: str, new_name: str) -> str:
    """The same expression with another name for one column.

    Raises: PreconditionFailed when it cannot be told where the column is meant.
    """
    tree = _parse(expression)
    if any(node.get("class") == "LAMBDA" for node in _nodes(tree)):
        raise PreconditionFailed(
            f"column {column} is used by CHECK({expression}), which has a lambda and cannot be rewritten: "
            "drop the constraint first"
        )
    for node in _column_references(tree):
        if folded(node["column_names"][0]) == folded(column):
            node["column_names"][0] = new_name
    return _unparse(tree)


def unqualified(expression: str, table: str, columns: Collection[str]) -> str:
    """The same expression with `column` for `table.column`, so that it outlives a renaming of the table."""
    if folded(table) not in {folded(reference[0]) for reference in _references(expression) if len(reference) > 1}:
        return expression
    own = {folded(column) for column in columns}
    tree = _parse(expression)
    for node in _column_references(tree):
        names = node["column_names"]
        if len(names) > 1 and folded(names[0]) == folded(table) and folded(names[1]) in own:
            del names[0]
    return _unparse(tree)


def first_line(error: BaseException) -> str:
    """What DuckDB says, without its drawing of the place; it never names files."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


@lru_cache(maxsize=4096)
def _references(expression: str) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(node["column_names"]) for node in _column_references(_parse(expression)))


def _classes(expression: str) -> set[str]:
    return {str(node.get("class")) for node in _nodes(_parse(expression))}


def _parse(expression: str) -> Any:
    with sandbox() as connection:
        row = connection.execute("SELECT json_serialize_sql(?)", [f"SELECT (\n{expression}\n)"]).fetchone()
    assert row is not None
    tree = json.loads(row[0])
    if tree["error"] or len(tree["statements"]) != 1 or len(tree["statements"][0]["node"]["select_list"]) != 1:
        raise BadRequest(f"{expression[:100]!r} is not an SQL expression")
    return tree


def _unparse(tree: Any) -> str:
    with sandbox() as connection:
        row = connection.execute("SELECT json_deserialize_sql(?::JSON)", [json.dumps(tree)]).fetchone()
    assert row is not None
    return str(row[0]).removeprefix("SELECT ")


def _column_references(tree: Any) -> Iterator[dict[str, Any]]:
    return (node for node in _nodes(tree) if node.get("class") == "COLUMN_REF")


def _nodes(tree: Any) -> Iterator[dict[str, Any]]:
    stack = [tree]
    while stack:
        node = stack.pop()
        if isinstance(node, dict):
            yield node
            stack.extend(node.values())
        elif isinstance(node, list):
            stack.extend(node)
