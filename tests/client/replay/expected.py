"""What a scenario's SQL does in DuckDB itself: the server's tables are compared with it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import duckdb
import pyarrow as pa
from tests.client.replay.recording import Step

from sparkport.testing import DuckDBClient
from sparkport.testing.exchange import Changed

OF_THE_CLIENT = re.compile(r"CREATE SECRET|ATTACH|BEGIN|COMMIT|ROLLBACK", re.IGNORECASE)
AT = re.compile(r" AT \(.*?\)", re.IGNORECASE)


class Expected:
    """A DuckDB in process, with a catalog of the same name."""

    def __init__(self, catalog: str) -> None:
        self.catalog = catalog
        self.duckdb = duckdb.connect(config={"autoload_known_extensions": False})
        self.duckdb.execute(
            f"SET arrow_lossless_conversion = true; ATTACH ':memory:' AS {catalog}; USE {catalog}"
        )

    def close(self) -> None:
        self.duckdb.close()

    def run(self, statements: Iterable[str]) -> list[tuple[Any, ...]]:
        """Run statements and return the rows of the last; each statement commits (trap T23)."""
        rows: list[tuple[Any, ...]] = []
        for sql in statements:
            if not OF_THE_CLIENT.match(sql):
                rows = self.duckdb.execute(sql).fetchall()
        return rows

    def tables(self) -> dict[tuple[str, str], pa.Table]:
        """All tables by schema and name."""
        found = self.duckdb.execute(
            "SELECT schema_name, table_name FROM duckdb_tables() WHERE database_name = ? AND NOT "
            "temporary",
            [self.catalog],
        ).fetchall()
        return {
            (schema, name): self.duckdb.sql(
                f'SELECT * FROM {self.catalog}."{schema}"."{name}"'
            ).to_arrow_table()
            for schema, name in found
        }

    def columns(self) -> dict[tuple[str, str], list[tuple[str, str]]]:
        """Names and types of all tables' columns."""
        found: dict[tuple[str, str], list[tuple[str, str]]] = {}
        for schema, table, column, kind in self.duckdb.execute(
            "SELECT schema_name, table_name, column_name, data_type FROM duckdb_columns() "
            "WHERE database_name = ? AND NOT internal ORDER BY table_oid, column_index",
            [self.catalog],
        ).fetchall():
            found.setdefault((schema, table), []).append((column, kind))
        return {key: value for key, value in found.items() if key in self.tables()}

    def schemas(self) -> set[str]:
        found = self.duckdb.execute(
            "SELECT schema_name FROM duckdb_schemas() WHERE database_name = ? AND schema_name <> "
            "'main'",
            [self.catalog],
        )
        return {name for (name,) in found.fetchall()}


def assert_same_contents(
    client: DuckDBClient, expected: Expected, unread: frozenset[str] = frozenset()
) -> None:
    """Check that every table of the server equals DuckDB's in names, types and rows."""
    schemas = client.schemas()
    served = {(s.name, t.name): t for s in schemas.values() for t in s.tables.values()}
    assert set(schemas) == expected.schemas()
    assert set(served) == set(expected.tables())
    columns = expected.columns()
    for (schema, name), rows in expected.tables().items():
        table = served[schema, name]
        assert [(column.name, column.type) for column in table.columns] == columns[schema, name], (
            f"{schema}.{name}"
        )
        if name not in unread:
            assert unordered(client.scan(schema, name)) == unordered(rows), f"{schema}.{name}"


def unordered(rows: pa.Table) -> list[str]:
    """The rows in an order that depends on their values only; NaN equals NaN."""
    return sorted(repr(tuple(row.values())) for row in rows.to_pylist())


def shown(
    step: Step, scanned: Mapping[str, pa.Table], changed: Changed | None, schema: str
) -> list[list[Any]]:
    """Return DuckDB's result from the server's replies: of SELECT, RETURNING, or a row count."""
    database = duckdb.connect(config={"autoload_known_extensions": False})
    try:
        if changed is None:
            database.execute(f"CREATE SCHEMA {schema}; USE {schema}")
            for name, rows in scanned.items():
                database.register("scanned", rows)
                database.execute(f"CREATE TABLE {name} AS SELECT * FROM scanned")
                database.unregister("scanned")
            sql = AT.sub("", step.sql)
        elif changed.rows is None:
            return [[changed.total]]
        else:
            database.register("returned", changed.rows)
            sql = f"SELECT {step.sql.rpartition(' RETURNING ')[2]} FROM returned"
        return [list(row) for row in database.execute(sql).fetchall()]
    finally:
        database.close()
