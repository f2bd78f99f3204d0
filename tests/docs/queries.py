"""Queries over attached catalogs: tables are fetched, functions called, DuckDB does the rest."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import duckdb
import pyarrow as pa
from tests.docs.sql_text import NAME, PATH, Call, calls, closing, parts_of

from sparkport.testing import AttachedFunction, ClientFailure, DuckDBClient
from sparkport.testing.arguments import parameters_of

__all__ = ["NotUnderstood", "Queries"]

_SUBQUERY = re.compile(r"\(\s*(SELECT|FROM|WITH|VALUES)\b", re.IGNORECASE)
_AFTER_A_TABLE = re.compile(
    r"WHERE|GROUP|ORDER|LIMIT|JOIN|LEFT|RIGHT|FULL|INNER|CROSS|ON|USING|HAVING|UNION|EXCEPT|INTERSECT|QUALIFY|NATURAL",
    re.IGNORECASE,
)
_BEFORE_A_TABLE = re.compile(r"\b(FROM|JOIN)\s*$", re.IGNORECASE)


class NotUnderstood(AssertionError):
    """The page has SQL that this shell cannot run, or that DuckDB would refuse."""


class Queries:
    """A DuckDB of this process, in which an attached catalog is an empty database of the same name.

    `located` tells the address at which a location that a page names is served here.
    """

    def __init__(self, located: Callable[[str], str]) -> None:
        self._located = located
        self._local = duckdb.connect(
            config={"arrow_lossless_conversion": True, "autoload_known_extensions": False}
        )
        self._local.execute("SET TimeZone = 'UTC'")
        self._clients: dict[str, DuckDBClient] = {}
        self._secrets: list[tuple[str, str]] = []
        self._default: tuple[str, str] | None = None
        self._numbers = iter(range(1, 1_000_000))

    def close(self) -> None:
        for client in self._clients.values():
            client.close()
        self._local.close()

    def _query(self, sql: str) -> pa.Table | None:
        sql = self._with_results(self._at_points(sql))
        if re.fullmatch(
            r"SHOW\s+ALL\s+TABLES|SHOW\s+TABLES\s+FROM.*|FROM\s+duckdb_\w+\(\).*",
            sql,
            re.DOTALL | re.IGNORECASE,
        ):
            self._fetch_all()
        for path in self._tables_in(sql):
            client, schema, table = self._object(".".join(f'"{part}"' for part in path))
            self._fetch(path, client.scan(schema, table))
        rows: Any = self._local.sql(sql)  # None of a statement without rows, whatever the stubs say
        return None if rows is None else rows.to_arrow_table()

    def _rows(self, sql: str) -> pa.Table:
        body = sql if not re.match(r"VALUES\b", sql, re.IGNORECASE) else f"SELECT * FROM ({sql})"
        rows = self._query(body)
        assert rows is not None
        return rows

    def _tables_in(self, sql: str) -> Iterator[tuple[str, ...]]:
        """The tables of attached catalogs that a query names."""
        found = self._serialized(_query_of(sql))
        names = {
            tuple(
                each
                for each in (node["catalog_name"], node["schema_name"], node["table_name"])
                if each
            )
            for node in _nodes(found)
            if node.get("type") == "BASE_TABLE"
        }
        for path in sorted(names):
            if len(path) == 3 and path[0] in self._clients:
                yield path
            elif len(path) == 1 and self._default is not None:
                name, schema = self._default
                if path[0] in self._clients[name].tables(schema):
                    yield (name, schema, path[0])

    def _serialized(self, sql: str) -> dict[str, Any]:
        """DuckDB's own parse of a query."""
        text = self._local.execute("SELECT json_serialize_sql($1::VARCHAR)", [sql]).fetchall()[0][0]
        found: dict[str, Any] = json.loads(text)
        return found

    def _fetch(self, path: tuple[str, ...], rows: pa.Table) -> None:
        catalog, schema, table = (f'"{part}"' for part in path)
        self._local.register("fetched", rows)
        self._local.execute(f"CREATE SCHEMA IF NOT EXISTS {catalog}.{schema}")
        self._local.execute(f"CREATE OR REPLACE TABLE {catalog}.{schema}.{table} AS FROM fetched")
        self._local.unregister("fetched")

    def _fetch_all(self) -> None:
        for name, client in self._clients.items():
            for schema in client.schemas():
                for table in client.tables(schema).values():
                    fields = [pa.field(column.name, column.field.type) for column in table.columns]
                    self._fetch((name, schema, table.name), pa.schema(fields).empty_table())

    def _at_points(self, sql: str) -> str:
        """The query with tables of the past fetched under names of their own."""
        pattern = re.compile(
            rf"(?P<path>{PATH})\s+AT\s*(?P<open>\()\s*(?P<unit>VERSION|TIMESTAMP)\s*=>",
            re.IGNORECASE,
        )
        while (match := pattern.search(sql)) is not None:
            client, schema, table = self._object(match["path"])
            end = closing(sql, match.start("open"))
            value = (
                self._rows(f"SELECT CAST({sql[match.end() : end]} AS VARCHAR)").column(0)[0].as_py()
            )
            rows = client.scan(schema, table, at=(match["unit"].upper(), value))
            sql = sql[: match.start()] + self._kept(rows, table, sql[end + 1 :]) + sql[end + 1 :]
        return sql

    def _with_results(self, sql: str) -> str:
        """The query with the functions of attached catalogs called."""
        done = False
        while not done:
            done = True
            for call in calls(sql):
                found = self._function(call, sql[: call.start])
                if found is not None:
                    sql = sql[: call.start] + found(sql[call.end :]) + sql[call.end :]
                    done = False
                    break
        return sql

    def _function(self, call: Call, before: str) -> Callable[[str], str] | None:
        if call.path[0].startswith("airport_"):
            return lambda rest: self._airport_function(call, rest)
        path = call.path
        if len(path) == 1 and self._default is not None:
            path = (*self._default, *path)
        if len(path) != 3 or path[0] not in self._clients:
            return None
        client, (_, schema, name) = self._clients[path[0]], path
        overloads = [
            each for each in client.functions(schema) if each.name.casefold() == name.casefold()
        ]
        if not overloads:
            if len(call.path) == 1:
                return None  # a function of DuckDB's own
            raise NotUnderstood(f"there is no function {'.'.join(path)}")
        scalars = [each for each in overloads if each.kind == "scalar_function"]
        if scalars and not _BEFORE_A_TABLE.search(before):
            return lambda rest: self._scalar(client, scalars, call)
        return lambda rest: self._kept(self._table_function(client, schema, name, call), name, rest)

    def _scalar(self, client: DuckDBClient, overloads: list[AttachedFunction], call: Call) -> str:
        fitting = [each for each in overloads if len(each.input_schema) == len(call.arguments)]
        if len(fitting) > 1:
            given = self._local.sql(f"SELECT {', '.join(call.arguments)}").types
            fitting = [each for each in fitting if _parameter_types(each) == list(map(str, given))]
        assert len(fitting) == 1, f"which function is meant? {call}"
        function = fitting[0]
        if not call.arguments:
            value = client.call(function.schema, function.name, [], rows=1)[0].as_py()
            return "'" + str(value).replace("'", "''") + "'"
        types = _parameter_types(function)
        assert all(types), f"a parameter takes any type: {call}"
        made = f"scalar_{next(self._numbers)}"

        def call_with(*columns: Any) -> pa.Array:
            return client.call(function.schema, function.name, list(columns)).combine_chunks()

        # DuckDB counts the parameters.
        called: dict[int, Callable[..., pa.Array]] = {
            1: lambda a: call_with(a, *()),
            2: lambda a, b: call_with(a, b, *()),
            3: lambda a, b, c: call_with(a, b, c, *()),
        }
        returns = self._local.from_arrow(function.arrow_schema.empty_table()).types[0]
        local: Any = self._local  # the stubs want enums
        local.create_function(
            made,
            called[len(types)],
            types,
            returns,
            type="arrow",
            null_handling="special",
            side_effects=True,
        )
        return f"{made}({', '.join(call.arguments)})"

    def _table_function(self, client: DuckDBClient, schema: str, name: str, call: Call) -> pa.Table:
        positional, named, rows = self._arguments(call)
        if rows is not None:
            return client.in_out(schema, name, *positional, rows=rows)
        return client.table_function(schema, name, *positional, named=named)

    def _arguments(self, call: Call) -> tuple[list[Any], dict[str, Any], pa.Table | None]:
        positional: list[Any] = []
        named: dict[str, Any] = {}
        rows = None
        for argument in call.arguments:
            given = re.fullmatch(rf"({NAME})\s*(?::=|=>)\s*(.*)", argument, re.DOTALL)
            if _SUBQUERY.match(argument):
                rows = self._input(argument[1:-1].strip())
                continue
            value = (
                self._rows(f"SELECT {given[2] if given else argument} AS value")
                .column(0)
                .combine_chunks()
            )
            if given:
                named[given[1]] = value
            else:
                positional.append(value)
        return positional, named, rows

    def _input(self, sql: str) -> pa.Table:
        """The rows of a subquery that is an argument."""
        (statement,) = self._serialized(sql)["statements"]
        node = statement["node"]
        if node["type"] == "SET_OPERATION_NODE" and not any(
            each["type"] == "ORDER_MODIFIER" for each in node["modifiers"]
        ):
            raise ClientFailure(
                "the client ends the exchange after the first part of a UNION ALL: sort the rows"
            )
        return self._rows(sql)

    def _airport_function(self, call: Call, rest: str) -> str:
        values = [each[0].as_py() for each in self._arguments(call)[0]]
        token = next(
            (token for scope, token in self._secrets if str(values[0]).startswith(scope)), None
        )
        with DuckDBClient(self._located(values[0]), token=token, timeout=60) as client:
            match call.path[0], values[1:]:
                case "airport_action", [action, *parameter]:
                    rows = pa.table({"result": client.action(action, *parameter)})
                case "airport_take_flight", [descriptor]:
                    rows = client.take_flight(descriptor)
                case _:
                    raise NotUnderstood(f"not understood: {call}")
        return self._kept(rows, call.path[0], rest)

    def _kept(self, rows: pa.Table, alias: str, rest: str) -> str:
        """Keep rows under a name for FROM. `rest` is the text after it, which may give an alias."""
        made = f"result_{next(self._numbers)}"
        self._local.register("kept", rows)
        self._local.execute(f"CREATE TABLE memory.main.{made} AS FROM kept")
        self._local.unregister("kept")
        word = re.match(r"\s+(\w+)", rest)
        has_alias = word is not None and not _AFTER_A_TABLE.fullmatch(word[1])
        return f"memory.main.{made}" + ("" if has_alias else f' AS "{alias}"')

    def _object(self, path: str) -> tuple[DuckDBClient, str, str]:
        parts = parts_of(path)
        if len(parts) == 1 and self._default is not None:
            parts = [*self._default, *parts]
        if len(parts) != 3 or parts[0] not in self._clients:
            raise NotUnderstood(
                f"{path} is not of the form catalog.schema.table, of a catalog that is attached"
            )
        return self._clients[parts[0]], parts[1], parts[2]


def _parameter_types(function: AttachedFunction) -> list[str | None]:
    return [each.sql_type for each in parameters_of(function, "main")]


def _query_of(sql: str) -> str:
    """The query inside EXPLAIN, DESCRIBE or COPY."""
    copied = re.fullmatch(r"COPY\s*\((.*)\)\s*TO\b.*", sql, re.DOTALL | re.IGNORECASE)
    return (
        copied[1] if copied else re.sub(r"^EXPLAIN\s+(ANALYZE\s+)?", "", sql, flags=re.IGNORECASE)
    )


def _nodes(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
        value = list(value.values())
    if isinstance(value, list):
        for each in value:
            yield from _nodes(each)
