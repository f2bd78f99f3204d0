"""Filter JSON from the installed DuckDB, for predicates and literals that the corpus lacks."""

import json
from collections.abc import Iterator
from typing import Any

import duckdb
import pyarrow as pa

COLUMN_NAMES = "column_binding_names_by_index"


def filter_json(connection: duckdb.DuckDBPyConnection, table: str, predicate: str) -> str:
    """What the client would send for `predicate`, before its optimiser (airport §6.4)."""
    plan = _plan(connection, f"SELECT * FROM {table} WHERE {predicate}", optimize=False)
    (scan,) = (node for node in _objects(plan) if node.get("type") == "LOGICAL_GET")
    (selection,) = (node for node in _objects(plan) if node.get("type") == "LOGICAL_FILTER")
    names = [scan["names"][column["index"]] for column in scan["column_indexes"]]
    return json.dumps(
        {"filters": [_with_columns(node) for node in selection["expressions"]], COLUMN_NAMES: names}
    )


def constant_json(connection: duckdb.DuckDBPyConnection, literal: str) -> dict[str, Any]:
    """The VALUE_CONSTANT that DuckDB folds a literal to."""
    plan = _plan(connection, f"SELECT {literal} AS value", optimize=True)
    (constant,) = (
        expression
        for node in _objects(plan)
        if node.get("type") == "LOGICAL_PROJECTION"
        for expression in node["expressions"]
    )
    assert constant["type"] == "VALUE_CONSTANT", constant["type"]
    return constant


def kept_by_duckdb(connection: duckdb.DuckDBPyConnection, table: str, predicate: str) -> list[int]:
    rows = connection.execute(f"SELECT id FROM {table} WHERE {predicate} ORDER BY id").fetchall()
    return [identifier for (identifier,) in rows]


def kept_by(batch: pa.RecordBatch) -> list[int]:
    return batch.column(batch.schema.get_field_index("id")).to_pylist()


def _plan(connection: duckdb.DuckDBPyConnection, query: str, optimize: bool) -> Any:
    row = connection.execute(
        f"SELECT json_serialize_plan($1, optimize := {'true' if optimize else 'false'})", [query]
    ).fetchone()
    assert row is not None
    plan = json.loads(row[0])
    assert not plan.get("error"), plan
    return plan


def _objects(node: Any) -> Iterator[dict[str, Any]]:
    if isinstance(node, dict):
        yield node
    for child in (
        node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    ):
        yield from _objects(child)


def _with_columns(node: Any) -> Any:
    """Make columns of references to the scan; inside lambda bodies they are parameters."""
    if isinstance(node, list):
        return [_with_columns(child) for child in node]
    if not isinstance(node, dict):
        return node
    if node.get("type") == "BOUND_REF":
        binding = {"table_index": 0, "column_index": node["index"]}
        return {
            "expression_class": "BOUND_COLUMN_REF",
            "type": "BOUND_COLUMN_REF",
            "alias": node["alias"],
            "return_type": node["return_type"],
            "binding": binding,
            "depth": 0,
        }
    return {
        key: child if key == "lambda_expr" else _with_columns(child) for key, child in node.items()
    }
