"""DuckDB's shell with airport loaded, as far as the pages use it.

What concerns an attached catalog goes over the wire through `DuckDBClient`, statement by statement;
everything else is run by a DuckDB of this process, in which an attached catalog is an empty
database of the same name. Before a query runs there, the tables that it names are fetched, and the
calls of the catalog's functions are replaced by their results. A statement that is not understood
is an error, never ignored.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import duckdb
import pyarrow as pa
from tests.docs.queries import NotUnderstood, Queries
from tests.docs.sql_text import (
    NAME,
    PATH,
    closing,
    parts_of,
    split_at_commas,
    split_clauses,
    without_comments,
)

from sparkport.testing import ClientFailure, DuckDBClient

__all__ = ["NotUnderstood", "Shell"]

_SUBQUERY = re.compile(r"\(\s*(SELECT|FROM|WITH|VALUES)\b", re.IGNORECASE)


class Shell(Queries):
    """One connection of the shell."""

    def run(self, sql: str) -> pa.Table | None:
        """Run statements; return the rows of the last. A line with `-- refused…` must fail."""
        rows = None
        for statement, comment in _statements(sql):
            refused = comment.startswith("refused")
            try:
                rows = self._run(statement)
            except (ClientFailure, duckdb.Error) as error:
                if not refused:
                    raise NotUnderstood(f"{statement}\n{error}") from error
            else:
                assert not refused, f"{statement} was to be refused"
        return rows

    # ---------------------------------------------------------------------------------- statements

    def _run(self, sql: str) -> pa.Table | None:
        (parsed,) = self._parsed(sql)
        kind = parsed.type.name
        for pattern, method in _STATEMENTS:
            match = re.fullmatch(pattern, sql, re.DOTALL | re.IGNORECASE)
            if match is not None:
                done: pa.Table | None = method(self, match)
                return done
        if kind in ("SELECT", "EXPLAIN", "COPY", "SET", "PRAGMA") or not self._mentions_a_catalog(
            sql
        ):
            return self._query(sql)
        raise NotUnderstood(f"the shell of the tests does not know this statement: {sql}")

    def _parsed(self, sql: str) -> list[Any]:
        try:
            return self._local.extract_statements(sql)
        except duckdb.Error as error:
            raise NotUnderstood(f"DuckDB cannot parse: {sql}\n{error}") from error

    def _mentions_a_catalog(self, sql: str) -> bool:
        return any(re.search(rf"\b{re.escape(name)}\.", sql) for name in self._clients)

    def _extension(self, match: re.Match[str]) -> None:
        assert match["name"].lower() == "airport", f"no page needs the extension {match['name']}"

    def _secret(self, match: re.Match[str]) -> None:
        options = _options(match["options"])
        assert options["TYPE"].lower() == "airport", match[0]
        assert "SCOPE" in options, (
            f"a secret without SCOPE ends DuckDB with an internal error: {match[0]}"
        )
        self._secrets.append((options["SCOPE"], options["AUTH_TOKEN"]))

    def _attach(self, match: re.Match[str]) -> None:
        options = _options(match["options"])
        assert options["TYPE"].lower() == "airport", match[0]
        assert set(options) <= {"TYPE", "LOCATION", "AUTH_TOKEN", "SECRET"}, match[0]
        location, catalog = options["LOCATION"], match["catalog"]
        name = (match["alias"] or catalog).strip('"')
        assert re.fullmatch(r"grpc(\+tls)?://[\w.-]+:\d+/?", location), (
            f"DuckDB cannot reach {location!r}"
        )
        token = next((token for scope, token in self._secrets if location.startswith(scope)), None)
        if name in self._clients:
            raise ClientFailure(f"Binder Error: database with name {name} already exists")
        served = self._located(location)
        client = DuckDBClient(
            served, catalog, token=token, attach_token=options.get("AUTH_TOKEN"), timeout=60
        )
        self._clients[name] = client
        client.attach()
        self._local.execute(f"ATTACH ':memory:' AS {name}")
        assert client.schemas(), f"there is no catalog {catalog} at {location}"

    def _detach(self, match: re.Match[str]) -> None:
        self._clients.pop(match["name"]).close()
        self._local.execute(f"USE memory; DETACH {match['name']}")
        self._default = None

    def _use(self, match: re.Match[str]) -> None:
        name, _, schema = match["path"].partition(".")
        if name not in self._clients:
            self._local.execute(match[0])
            self._default = None
            return
        assert schema in self._clients[name].schemas(), f"USE needs catalog and schema: {match[0]}"
        self._local.execute(f"CREATE SCHEMA IF NOT EXISTS {match['path']}; USE {match['path']}")
        self._default = name, schema

    def _transaction(self, match: re.Match[str]) -> None:
        for client in self._clients.values():
            {"BEGIN": client.begin, "COMMIT": client.commit, "ROLLBACK": client.rollback}[
                match[1].upper()
            ]()

    # ------------------------------------------------------------------------------- changing rows

    def _insert(self, match: re.Match[str]) -> pa.Table | None:
        client, schema, table = self._object(match["path"])
        clauses = split_clauses(match["rest"], "RETURNING")
        body, names = clauses[""], [column.name for column in client.table(schema, table).columns]
        by_name = re.match(r"BY\s+NAME\s+", body, re.IGNORECASE)
        if body.startswith("(") and not _SUBQUERY.match(body):
            end = closing(body, 0)
            names = [each.strip('"') for each in split_at_commas(body[1:end])]
            body = body[end + 1 :].strip()
        rows = self._rows(body[by_name.end() :] if by_name else body)
        if not by_name:
            assert len(names) == rows.num_columns, (
                f"{len(names)} columns, {rows.num_columns} values: {match[0]}"
            )
            rows = rows.rename_columns(names)
        changed = client.insert(schema, table, rows, returning="RETURNING" in clauses)
        return self._returned(clauses, changed.rows)

    def _update(self, match: re.Match[str]) -> pa.Table | None:
        client, schema, table = self._object(match["path"])
        clauses = split_clauses(match["rest"], "SET", "FROM", "WHERE", "RETURNING")
        assert set(clauses) <= {"", "SET", "WHERE", "RETURNING"}, f"not understood: {match[0]}"
        assignments = {}
        for each in split_at_commas(clauses["SET"]):
            name, _, value = each.partition("=")
            assignments[name.strip().strip('"')] = value.strip()
        changed = client.update(
            schema, table, assignments, where=clauses.get("WHERE"), returning="RETURNING" in clauses
        )
        return self._returned(clauses, changed.rows)

    def _delete(self, match: re.Match[str]) -> pa.Table | None:
        client, schema, table = self._object(match["path"])
        clauses = split_clauses(match["rest"], "USING", "WHERE", "RETURNING")
        assert set(clauses) <= {"", "WHERE", "RETURNING"}, f"not understood: {match[0]}"
        changed = client.delete(
            schema, table, where=clauses.get("WHERE"), returning="RETURNING" in clauses
        )
        return self._returned(clauses, changed.rows)

    def _returned(self, clauses: dict[str, str], rows: pa.Table | None) -> pa.Table | None:
        if rows is None:
            return None
        self._local.register("returned", rows)
        return self._local.sql(f"SELECT {clauses['RETURNING']} FROM returned").to_arrow_table()

    def _refused(self, match: re.Match[str]) -> None:
        raise ClientFailure(f"DuckDB's client does not know this statement: {match[0]}")

    # ----------------------------------------------------------------------------- changing tables

    def _create_schema(self, match: re.Match[str]) -> None:
        name, _, schema = match["path"].partition(".")
        self._clients[name].create_schema(schema.strip('"'))

    def _drop(self, match: re.Match[str]) -> None:
        parts = parts_of(match["path"])
        if match["kind"].upper() == "SCHEMA":
            name, schema = parts
            self._clients[name].drop_schema(schema, if_exists=bool(match["if_exists"]))
        else:
            client, schema, table = self._object(match["path"])
            client.drop_table(schema, table, if_exists=bool(match["if_exists"]))

    def _create_table_as(self, match: re.Match[str]) -> None:
        client, schema, table = self._object(match["path"])
        client.create_table_as(schema, table, self._rows(match["query"]))

    def _create_table(self, match: re.Match[str]) -> None:
        client, schema, table = self._object(match["path"])
        self._local.execute(f"CREATE OR REPLACE TABLE memory.main.definition ({match['columns']})")
        described = self._local.execute("DESCRIBE memory.main.definition").fetchall()
        assert not any(default is not None for *_, default, _ in described), (
            f"a DEFAULT is not transmitted: {match[0]}"
        )
        constraints = self._local.execute(
            "SELECT constraint_type, constraint_column_names, expression FROM duckdb_constraints()"
            " WHERE table_name = 'definition'"
        ).fetchall()
        keys = {kind: columns for kind, columns, _ in constraints if kind == "PRIMARY KEY"}
        client.create_table(
            schema,
            table,
            {name: kind for name, kind, *_ in described},
            if_not_exists=bool(match["if_not_exists"]),
            not_null=[columns[0] for kind, columns, _ in constraints if kind == "NOT NULL"],
            checks=[text for kind, _, text in constraints if kind == "CHECK"],
            primary_key=keys.get("PRIMARY KEY", ()),
            unique=[
                columns[0] if len(columns) == 1 else columns
                for kind, columns, _ in constraints
                if kind == "UNIQUE"
            ],
        )

    def _alter(self, match: re.Match[str]) -> None:
        client, schema, table = self._object(match["path"])
        change = match["change"].strip()
        for pattern, method in _CHANGES:
            found = re.fullmatch(pattern, change, re.DOTALL | re.IGNORECASE)
            if found is not None:
                assert "DEFAULT" not in found.groupdict().get("type", "").upper(), (
                    f"a DEFAULT is not sent: {match[0]}"
                )
                method(client, schema, table, found)
                return
        raise NotUnderstood(f"the shell of the tests does not know this change: {change}")


# ----------------------------------------------------------------------------------------- grammar


_STATEMENTS: tuple[tuple[str, Callable[[Shell, re.Match[str]], pa.Table | None]], ...] = (
    (rf"(?:FORCE\s+)?(?:INSTALL|LOAD)\s+(?P<name>{NAME})(?:\s+FROM\s+\w+)?", Shell._extension),
    (rf"CREATE\s+(?:OR\s+REPLACE\s+)?SECRET\s*(?:{NAME}\s*)?\((?P<options>.*)\)", Shell._secret),
    (
        rf"ATTACH\s+'(?P<catalog>[^']*)'\s*(?:AS\s+(?P<alias>{NAME})\s*)?\((?P<options>.*)\)",
        Shell._attach,
    ),
    (rf"DETACH\s+(?P<name>{NAME})", Shell._detach),
    (rf"USE\s+(?P<path>{PATH})", Shell._use),
    (r"(BEGIN|COMMIT|ROLLBACK)(?:\s+TRANSACTION)?", Shell._transaction),
    (r"MERGE\s+INTO\b.*|INSERT\s+.*\bON\s+CONFLICT\b.*", Shell._refused),
    (rf"INSERT\s+INTO\s+(?P<path>{PATH})\s*(?P<rest>.*)", Shell._insert),
    (rf"UPDATE\s+(?P<path>{PATH})\s+(?P<rest>.*)", Shell._update),
    (rf"DELETE\s+FROM\s+(?P<path>{PATH})(?P<rest>.*)", Shell._delete),
    (rf"CREATE\s+SCHEMA\s+(?:IF\s+NOT\s+EXISTS\s+)?(?P<path>{NAME}\.{NAME})", Shell._create_schema),
    (
        rf"DROP\s+(?P<kind>TABLE|SCHEMA)\s+(?P<if_exists>IF\s+EXISTS\s+)?(?P<path>{PATH})",
        Shell._drop,
    ),
    (rf"CREATE\s+TABLE\s+(?P<path>{PATH})\s+AS\s+(?P<query>.*)", Shell._create_table_as),
    (
        rf"CREATE\s+TABLE\s+(?P<if_not_exists>IF\s+NOT\s+EXISTS\s+)?(?P<path>{PATH})\s*\((?P<columns>.*)\)",
        Shell._create_table,
    ),
    (r"CREATE\s+(?:OR\s+REPLACE\s+TABLE|VIEW|INDEX)\b.*", Shell._refused),
    (rf"ALTER\s+TABLE\s+(?P<path>{PATH})\s+(?P<change>.*)", Shell._alter),
)

_CHANGES: tuple[tuple[str, Callable[[DuckDBClient, str, str, re.Match[str]], object]], ...] = (
    (
        rf"ADD\s+COLUMN\s+(?P<column>{NAME})\s+(?P<type>.*)",
        lambda client, schema, table, found: client.add_column(
            schema, table, found["column"], found["type"]
        ),
    ),
    (
        rf"DROP\s+COLUMN\s+(?P<column>{NAME})",
        lambda client, schema, table, found: client.remove_column(schema, table, found["column"]),
    ),
    (
        rf"RENAME\s+COLUMN\s+(?P<old>{NAME})\s+TO\s+(?P<new>{NAME})",
        lambda client, schema, table, found: client.rename_column(
            schema, table, found["old"], found["new"]
        ),
    ),
    (
        rf"RENAME\s+TO\s+(?P<new>{NAME})",
        lambda client, schema, table, found: client.rename_table(schema, table, found["new"]),
    ),
    (
        rf"ALTER\s+(?:COLUMN\s+)?(?P<column>{NAME})\s+SET\s+DEFAULT\s+(?P<value>.*)",
        lambda client, schema, table, found: client.set_default(
            schema, table, found["column"], found["value"]
        ),
    ),
    (
        rf"ALTER\s+(?:COLUMN\s+)?(?P<column>{NAME})\s+SET\s+NOT\s+NULL",
        lambda client, schema, table, found: client.set_not_null(schema, table, found["column"]),
    ),
    (
        rf"ALTER\s+(?:COLUMN\s+)?(?P<column>{NAME})\s+(?:SET\s+DATA\s+)?TYPE\s+(?P<type>.*)",
        lambda client, schema, table, found: client.change_column_type(
            schema, table, found["column"], found["type"]
        ),
    ),
)


def _statements(sql: str) -> Iterator[tuple[str, str]]:
    """Each statement without comments, and the comment at the end of its line."""
    for statement, comment in re.findall(
        r"((?:\$\$.*?\$\$|'(?:[^']|'')*'|\"[^\"]*\"|--[^\n]*|[^;'\"])+?);"
        r"(?:[ \t]*--[ \t]*([^\n]*))?",
        sql.strip() + ";",
        re.DOTALL,
    ):
        text = without_comments(statement)
        if text:
            yield text, comment


def _options(text: str) -> dict[str, str]:
    """Read options such as `TYPE airport, LOCATION '…'`."""
    found = {}
    for each in split_at_commas(text):
        name, _, value = each.partition(" ")
        found[name.upper()] = value.strip().strip("'")
    return found
