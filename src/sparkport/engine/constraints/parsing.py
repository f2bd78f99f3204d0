"""SQL expressions as DuckDB's trees; the details in which DuckDB 1 and 2 differ end here."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import duckdb

from sparkport.engine.databases import EXPRESSIONS
from sparkport.errors import BadRequest

__all__ = [
    "CastType",
    "DatabaseError",
    "Node",
    "NotAnExpression",
    "arguments_of",
    "cast_of",
    "column_references",
    "first_line",
    "literal_of",
    "nodes",
    "parse",
    "root_of",
    "unparse",
]

Node: TypeAlias = dict[str, Any]

DatabaseError = duckdb.Error
"""What DuckDB raises, for modules that use it only through the engine."""


class NotAnExpression(BadRequest):
    """The text is not an SQL expression; the message says why."""


def parse(expression: str) -> Any:
    """The tree of a query that selects the expression and nothing else. Raises: NotAnExpression."""
    _expect_moderate(expression)
    try:
        duckdb.SQLExpression(expression)
        duckdb.SQLExpression(
            f"{expression}\nIS NULL"
        )  # by itself, DuckDB takes `7,` and `7 AS x` for expressions too
        with EXPRESSIONS.session() as connection:
            row = connection.execute(
                "SELECT json_serialize_sql(?)", [f"SELECT (\n{expression}\n)"]
            ).fetchone()
    except duckdb.Error as error:
        raise NotAnExpression(first_line(error)) from error
    assert row is not None
    tree = json.loads(row[0])
    if (
        tree["error"]
        or len(tree["statements"]) != 1
        or not _selects_one_value(tree["statements"][0]["node"])
    ):
        raise NotAnExpression("it is not a single value")
    for node in list(nodes(tree)):
        # DuckDB 1 writes `main` for what has a syntax of its own, such as `substring(x FROM 2)`.
        if (
            node.get("class") == "FUNCTION"
            and node["schema"] not in {"", "main"}
            and not node["catalog"]
        ):
            _turn_into_call(node)
    return tree


def _turn_into_call(method: Node) -> None:
    """Turn `x.upper()`, which DuckDB parses as a function in a schema x, into `upper(x)`."""
    column = {
        "class": "COLUMN_REF",
        "type": "COLUMN_REF",
        "alias": "",
        "column_names": [method["schema"]],
    }
    if "arguments" in method:
        method["arguments"].insert(0, {"name": "", "expression": column})
        method["qualified_name"]["path"] = [method["function_name"]]
    else:
        method["children"].insert(0, column)
    method["schema"] = ""


_MAX_LENGTH = 10_000
_MAX_DEPTH = 100
"""The deepest nesting.

DuckDB's parser needs seconds for a thousand open brackets, hours for a hundred thousand, and cannot
be interrupted.
"""
_MAX_CASES = 5_000
"""The largest product of WHENs.

`CASE x WHEN … WHEN …` becomes a tree with an x for each WHEN, and each x may be such a CASE.
"""
_WORD = re.compile(rb"(?:case|when|end)\b|[(\[{)\]}]", re.IGNORECASE)
_OUTSIDE = frozenset(
    {duckdb.token_type.string_const, duckdb.token_type.comment, duckdb.token_type.numeric_const}
)


def _expect_moderate(expression: str) -> None:
    """Raises: NotAnExpression for a text that is too long or too deeply nested.

    It reads DuckDB's own tokens: an apparent end of a string may be in the middle of it.
    """
    if len(expression) > _MAX_LENGTH:
        raise NotAnExpression("it is too long")
    text = expression.encode("utf-8", "surrogatepass")
    depth = 0
    # For each open CASE: its WHENs, and the largest product inside.
    cases: list[list[int]] = [[1, 1]]
    for start, kind in duckdb.tokenize(expression):
        word = _WORD.match(text, start) if kind not in _OUTSIDE else None
        match word.group().lower() if word is not None else b"":
            case b"(" | b"[" | b"{":
                depth += 1
            case b")" | b"]" | b"}":
                depth -= 1
            case b"case":
                cases.append([0, 1])
            case b"when":
                cases[-1][0] += 1
            case b"end" if len(cases) > 1:
                whens, inside = cases.pop()
                cases[-1][1] = max(cases[-1][1], max(whens, 1) * inside)
        if depth > _MAX_DEPTH or len(cases) > _MAX_DEPTH or cases[-1][1] > _MAX_CASES:
            raise NotAnExpression("it is nested too deeply")


def _selects_one_value(query: Node) -> bool:
    clauses = ("where_clause", "group_expressions", "having", "qualify", "sample", "modifiers")
    return (
        query["type"] == "SELECT_NODE"
        and len(query["select_list"]) == 1
        and query["from_table"]["type"] == "EMPTY"
        and not query["cte_map"]["map"]
        and not any(query[clause] for clause in clauses)
    )


def root_of(tree: Any) -> Node:
    """The root node of the expression."""
    root: Node = tree["statements"][0]["node"]["select_list"][0]
    return root


def unparse(tree: Any) -> str:
    """The expression as text."""
    with EXPRESSIONS.session() as connection:
        row = connection.execute(
            "SELECT json_deserialize_sql(?::JSON)", [json.dumps(tree)]
        ).fetchone()
    assert row is not None
    return str(row[0]).removeprefix("SELECT ")


def nodes(tree: Any) -> Iterator[Node]:
    """All objects of a tree, in no order."""
    stack = [tree]
    while stack:
        node = stack.pop()
        if isinstance(node, dict):
            yield node
            stack.extend(node.values())
        elif isinstance(node, list):
            stack.extend(node)


def column_references(tree: Any) -> Iterator[Node]:
    """The nodes that name columns, or parameters of lambdas."""
    return (node for node in nodes(tree) if node.get("class") == "COLUMN_REF")


def arguments_of(function: Node) -> list[Node]:
    """The argument nodes of a function call."""
    if "arguments" in function:
        return [argument["expression"] for argument in function["arguments"]]
    return list(function["children"])


def literal_of(node: Node) -> str | int | None:
    """The text or the whole number of a constant; None for other nodes."""
    if node["class"] != "CONSTANT":
        return None
    if "literal" in node:
        kind, text = node["literal"]["kind"], node["literal"]["text"]
        return int(text) if kind == "INTEGER" else str(text) if kind == "STRING" else None
    value = node["value"].get("value")
    whole = (
        isinstance(value, int)
        and not isinstance(value, bool)
        and node["value"]["type"]["id"] != "DECIMAL"
    )
    return value if isinstance(value, str) or whole else None


def first_line(error: BaseException) -> str:
    """The first line of DuckDB's message, without its drawing of the place. It names no files."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


@dataclass(frozen=True, slots=True)
class CastType:
    """The type that a cast makes."""

    is_plain: bool
    """Whether its values take a few bytes: numbers, times and the like."""
    elements: int
    """How many values it has at least, for arrays in arrays."""


def cast_of(cast: Node) -> CastType:
    """The type of a cast. Raises: BadRequest for a type that is not written out."""
    kind = cast.get("type_expr") or cast["cast_type"]
    elements = 1
    for each in nodes(kind):
        if each.get("class", "TYPE") not in {"TYPE", "CONSTANT"}:
            raise BadRequest("it casts to a type that is not written out")
        if str(each.get("type_name")).lower() == "array":
            lengths = [
                literal_of(child) for child in each["children"] if child["class"] == "CONSTANT"
            ]
        else:
            lengths = [each.get("size")]
        for length in lengths:
            elements *= max(length, 1) if isinstance(length, int) else 1
    return CastType(str(kind.get("type_name") or kind.get("id")).upper() in _PLAIN_TYPES, elements)


_PLAIN = """
    BOOLEAN BOOL LOGICAL TINYINT SMALLINT INTEGER BIGINT HUGEINT UTINYINT USMALLINT UINTEGER UBIGINT
    UHUGEINT INT INT1 INT2 INT4 INT8 SHORT SIGNED LONG FLOAT REAL FLOAT4 FLOAT8 DOUBLE DECIMAL
    NUMERIC DEC DATE TIME TIMESTAMP DATETIME TIMESTAMP_S TIMESTAMP_MS TIMESTAMP_NS TIMESTAMP_US
    TIMETZ TIMESTAMPTZ INTERVAL UUID
"""
_PLAIN_TYPES = frozenset(_PLAIN.split()) | {"TIMESTAMP WITH TIME ZONE", "TIME WITH TIME ZONE"}
