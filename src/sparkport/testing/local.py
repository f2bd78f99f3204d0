"""The parts of the real client that run inside DuckDB, run by DuckDB.

It parses and evaluates expressions, and encodes rows as Arrow.
"""

from __future__ import annotations

import functools
import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import duckdb
import pyarrow as pa

from sparkport.testing.failures import ClientSideError
from sparkport.testing.requests import json_text
from sparkport.testing.types import quoted

__all__ = ["LocalDuckDB"]


class LocalDuckDB:
    """A DuckDB without data. Safe to use from several threads: each call has its own cursor.

    `lossless` is DuckDB's setting `arrow_lossless_conversion`, which decides how rows are encoded
    (airport §13.1).
    """

    def __init__(self, lossless: bool) -> None:
        self._database = duckdb.connect(":memory:")
        self._lock = threading.Lock()
        for setting in (
            f"arrow_lossless_conversion = {lossless}",
            "threads = 1",
            "TimeZone = 'Etc/UTC'",
            "autoload_known_extensions = false",
        ):
            self._database.execute(f"SET {setting}")

    @staticmethod
    @functools.lru_cache(maxsize=2)
    def shared(lossless: bool) -> LocalDuckDB:
        """Return the instance that this process shares."""
        return LocalDuckDB(lossless)

    def parses(self, expression: str) -> bool:
        """Whether DuckDB's parser accepts the text as an expression."""
        parsed = self._parsed(f"SELECT ({expression}\n)")
        return not parsed["error"] and len(parsed["statements"]) == 1

    def columns_in(self, expression: str, columns: Sequence[str]) -> list[str]:
        """Return the columns that an expression mentions, in order of appearance."""
        parsed = self._parsed(f"SELECT {expression}")
        if parsed["error"]:
            raise ClientSideError(f"Parser Error: {parsed.get('error_message', expression)}")
        by_name = {column.casefold(): column for column in columns}
        mentioned = (
            by_name.get(name.casefold()) for name in _column_references(parsed["statements"])
        )
        return list(dict.fromkeys(column for column in mentioned if column is not None))

    def filter_json(self, where: str, columns: Mapping[str, str]) -> str:
        """Return the filters that DuckDB would push down for `where`.

        The binding names are the columns that `where` mentions.
        """
        definitions = ", ".join(f"{quoted(name)} {kind}" for name, kind in columns.items())
        with self._cursor() as cursor:
            try:
                cursor.execute(f"CREATE OR REPLACE TEMP TABLE scanned ({definitions})")
                sql = f"SELECT 1 FROM scanned WHERE {where}"
                text = cursor.execute(
                    "SELECT json_serialize_plan($1, optimize := false)", [sql]
                ).fetchall()[0][0]
            except duckdb.Error as error:
                raise ClientSideError(str(error)) from error
        plan = json.loads(text)
        if plan["error"]:
            raise ClientSideError(f"Binder Error: {plan.get('error_message')}")
        names = list(columns)
        for node in _nodes(plan["plans"]):
            if (
                node.get("type") == "LOGICAL_FILTER"
                and node["children"][0]["type"] == "LOGICAL_GET"
            ):
                # A condition without columns reads the row id, whose index is far above all others.
                indexes = [index["index"] for index in node["children"][0]["column_indexes"]]
                scanned = [names[index] if index < len(names) else "rowid" for index in indexes]
                filters = [
                    _with_column_references(expression) for expression in node["expressions"]
                ]
                return json_text({"filters": filters, "column_binding_names_by_index": scanned})
        return json_text({"filters": [], "column_binding_names_by_index": []})

    def evaluate(
        self, rows: pa.Table, select: Mapping[str, str], where: str | None = None
    ) -> pa.Table:
        """Run `SELECT … FROM rows WHERE …`, encoded as by DuckDB, in the order of the rows.

        Raises: ClientSideError when DuckDB cannot evaluate it.
        """
        if not rows.num_columns:
            rows = pa.table({"": pa.nulls(rows.num_rows)})
        items = ", ".join(
            f"({expression}) AS {quoted(name)}" for name, expression in select.items()
        )
        with self._cursor() as cursor:
            cursor.register("rows", rows)
            try:
                return cursor.sql(
                    f"SELECT {items} FROM rows" + (f" WHERE {where}" if where else "")
                ).to_arrow_table()
            except duckdb.Error as error:
                raise ClientSideError(str(error)) from error
            finally:
                cursor.unregister("rows")

    def mask(self, rows: pa.Table, condition: str) -> pa.ChunkedArray:
        """Return for each row whether the condition is TRUE."""
        result = self.evaluate(
            rows, {"kept": f"CASE WHEN ({condition}) THEN 1::TINYINT ELSE 0::TINYINT END"}
        )
        return result.column("kept").cast(pa.bool_())

    def arrow_schema(self, columns: Mapping[str, str]) -> pa.Schema:
        """Return the Arrow schema in which DuckDB sends columns of these SQL types."""
        nulls = {name: f"CAST(NULL AS {kind})" for name, kind in columns.items()}
        return self.evaluate(pa.table({"": pa.nulls(0)}), nulls).schema

    def table_function(
        self, name: str, positional: Sequence[Any], named: Mapping[str, Any]
    ) -> pa.Table:
        """Return all rows of a table function of DuckDB's own."""
        places = ["?"] * len(positional) + [f"{quoted(argument)} := ?" for argument in named]
        with self._cursor() as cursor:
            try:
                sql = f"SELECT * FROM {quoted(name)}({', '.join(places)})"
                return cursor.sql(sql, params=[*positional, *named.values()]).to_arrow_table()
            except duckdb.Error as error:
                raise ClientSideError(str(error)) from error

    def _parsed(self, sql: str) -> dict[str, Any]:
        with self._cursor() as cursor:
            try:
                text = cursor.execute("SELECT json_serialize_sql($1::VARCHAR)", [sql]).fetchall()[
                    0
                ][0]
            except duckdb.Error as error:
                return {"error": True, "error_message": str(error)}
        parsed: dict[str, Any] = json.loads(text)
        return parsed

    def _cursor(self) -> duckdb.DuckDBPyConnection:
        with self._lock:
            return self._database.cursor()


def _nodes(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
        value = list(value.values())
    if isinstance(value, list):
        for element in value:
            yield from _nodes(element)


def _column_references(statements: Any) -> Iterator[str]:
    for node in _nodes(statements):
        if node.get("type") == "COLUMN_REF":
            yield from node["column_names"][:1]


def _with_column_references(value: Any) -> Any:
    """Rename `BOUND_REF`, as plans have it, to the client's `BOUND_COLUMN_REF` (airport §6.4)."""
    if isinstance(value, list):
        return [_with_column_references(element) for element in value]
    if not isinstance(value, dict):
        return value
    if value.get("expression_class") == "BOUND_REF":
        reference = {key: value[key] for key in ("alias", "query_location", "return_type")}
        return {
            "expression_class": "BOUND_COLUMN_REF",
            "type": "BOUND_COLUMN_REF",
            **reference,
            "binding": {"table_index": 0, "column_index": value["index"]},
            "depth": 0,
        }
    return {
        key: element if key == "lambda_expr" else _with_column_references(element)
        for key, element in value.items()
    }
