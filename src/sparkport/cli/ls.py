"""`sparkport ls`."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from typing import Any

from sparkport.cli.connecting_flags import DEFAULT_LOCATION, add_client_flags
from sparkport.cli.flags import Commands, command
from sparkport.errors import BadRequest, NotFound
from sparkport.lines import one_line

__all__ = ["add_command"]

_DESCRIPTION = """\
Show what a client of a running server would see: catalogs, schemas, tables with
their columns, functions. It asks what DuckDB asks, and complains about answers
that DuckDB would stumble over."""
_EXAMPLES = """\
examples:
  sparkport ls              everything on grpc://127.0.0.1:50051
  sparkport ls lake.sales   one schema; lake.sales.orders is one table
  SPARKPORT_TOKEN=… sparkport ls grpc+tls://data.example.com:443 --json
"""


def add_command(commands: Commands) -> None:
    parser = command(
        commands,
        "ls",
        run,
        help="show what a client would see",
        description=_DESCRIPTION,
        examples=_EXAMPLES,
    )
    parser.add_argument(
        "what", nargs="*", help="a location such as grpc://host:port, and catalog[.schema[.object]]"
    )
    add_client_flags(parser)
    parser.add_argument("--json", action="store_true", help="as JSON, for programs")


def run(options: argparse.Namespace) -> int:
    from sparkport.cli.connecting import catalog_names, plain_errors, remote_server

    locations = [each for each in options.what if "://" in each]
    paths = [each for each in options.what if "://" not in each]
    if len(locations) > 1 or len(paths) > 1:
        raise BadRequest("name one location, and one catalog, schema or table")
    server = remote_server(options, locations[0] if locations else DEFAULT_LOCATION)
    wanted = paths[0].split(".", 2) if paths else []
    with plain_errors(server):
        names = [wanted[0]] if wanted else catalog_names(server)
        catalogs = {}
        for name in names:
            with server.client(name) as client:
                catalogs[name] = {
                    schema.name: _schema(schema, wanted) for schema in client.schemas().values()
                }
    catalogs = {name: _only(schemas, wanted) for name, schemas in catalogs.items()}
    if options.json:
        print(json.dumps(catalogs, indent=2, ensure_ascii=False))
    else:
        print("\n".join(map(one_line, _tree(catalogs))) or "There is nothing to see.")
    return 0


def _only(schemas: dict[str, Any], wanted: Sequence[str]) -> dict[str, Any]:
    if len(wanted) > 1:
        schemas = {
            name: content for name, content in schemas.items() if name.lower() == wanted[1].lower()
        }
        if not schemas:
            raise NotFound(
                f"there is no schema {wanted[1]!r} in {wanted[0]}, or none that you may see"
            )
    if len(wanted) > 2 and not any(
        each["tables"] or each["functions"] for each in schemas.values()
    ):
        raise NotFound(
            f"there is no {wanted[2]!r} in {wanted[0]}.{wanted[1]}, or none that you may see"
        )
    return schemas


def _schema(schema: Any, wanted: Sequence[str]) -> dict[str, Any]:
    """A schema as JSON shows it."""

    def is_wanted(name: str) -> bool:
        return len(wanted) < 3 or name.lower() == wanted[2].lower()

    tables = {each.name: _table(each) for each in schema.tables.values() if is_wanted(each.name)}
    functions = [_function(each) for each in schema.functions if is_wanted(each.name)]
    return {"comment": schema.description or None, "tables": tables, "functions": functions}


def _table(table: Any) -> dict[str, Any]:
    columns = [
        {
            "name": each.name,
            "type": each.type,
            "nullable": each.nullable,
            "default": each.default,
            "comment": each.comment,
        }
        for each in table.columns
    ]
    return {"comment": table.comment, "columns": columns, "checks": list(table.checks)}


def _function(function: Any) -> dict[str, Any]:
    results = [(each.name, _type(each)) for each in function.arrow_schema]
    scalar = function.kind == "scalar_function"
    return {
        "name": function.name,
        "kind": "scalar" if scalar else "table",
        "parameters": [_parameter(each) for each in function.input_schema],
        "result": results[0][1]
        if scalar
        else ", ".join(f"{name} {kind}" for name, kind in results),
        "comment": function.description,
    }


def _parameter(field: Any) -> str:
    named = " :=" if (field.metadata or {}).get(b"is_named_parameter") else ""
    return f"{field.name}{named} {_type(field)}"


def _type(field: Any) -> str:
    from sparkport.testing.types import duckdb_type

    metadata = field.metadata or {}
    if metadata.get(b"is_table_type"):
        return "TABLE"
    return "ANY" if metadata.get(b"is_any_type") else duckdb_type(field, "main", field.name)


def _tree(catalogs: dict[str, Any]) -> Iterator[str]:
    for name, schemas in catalogs.items():
        yield name
        yield from _branches(
            [(_commented(each, schemas[each]), list(_objects(schemas[each]))) for each in schemas]
        )


def _objects(schema: dict[str, Any]) -> Iterator[tuple[str, list[Any]]]:
    for name, table in schema["tables"].items():
        yield _commented(name, table), [(_column(each), []) for each in table["columns"]]
    for function in schema["functions"]:
        result = f" → {function['result']}" if function["result"] else ""
        signature = f"{function['name']}({', '.join(function['parameters'])}){result}"
        yield _commented(signature, function), []


def _column(column: dict[str, Any]) -> str:
    missing = "" if column["nullable"] else " NOT NULL"
    default = f" DEFAULT {column['default']}" if column["default"] else ""
    return _commented(f"{column['name']} {column['type']}{missing}{default}", column)


def _commented(text: str, described: dict[str, Any]) -> str:
    comment = described["comment"]
    return f"{text}   -- {comment}" if comment else text


def _branches(nodes: Sequence[tuple[str, list[Any]]], indent: str = "") -> Iterator[str]:
    for number, (text, children) in enumerate(nodes, 1):
        last = number == len(nodes)
        yield f"{indent}{'└─' if last else '├─'} {text}"
        yield from _branches(children, indent + ("   " if last else "│  "))
