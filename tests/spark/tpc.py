"""Data and queries of TPC-H and TPC-DS, as DuckDB's extensions make them, and what a query scans.

    python tests/spark/tpc.py tpch 0.01 /tmp/data

writes a Parquet file for each table, and the queries as JSON. The extensions are wheels for a
DuckDB of their own (see `independent_readers`), so this runs in a process of its own.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb

__all__ = ["Scanned", "make", "queries", "scanned", "tables"]

_CALLS = {"tpch": "dbgen", "tpcds": "dsdgen"}
_SECONDS = 200


def make(kind: str, scale: float, folder: Path) -> None:
    """Make the tables of "tpch" or "tpcds", and its queries, in a folder."""
    from tests.spark.independent_readers import duckdb_environment

    subprocess.run(
        [sys.executable, __file__, kind, str(scale), str(folder)],
        env=duckdb_environment(),
        check=True,
        timeout=_SECONDS,
    )


def tables(folder: Path) -> dict[str, Path]:
    """The file of each table."""
    return {path.stem: path for path in sorted(folder.glob("*.parquet"))}


def queries(folder: Path) -> list[str]:
    """The queries by their numbers, from 1."""
    found: list[str] = json.loads((folder / "queries.json").read_text("utf-8"))
    return found


@dataclass(frozen=True, slots=True)
class Scanned:
    """What a query needs of a table: columns, and rows that fulfil a condition of DuckDB SQL."""

    columns: tuple[str, ...]
    where: str | None


def scanned(
    connection: duckdb.DuckDBPyConnection, query: str, columns: Mapping[str, Sequence[str]]
) -> dict[str, Scanned]:
    """What a query over the tables of a connection needs of each table.

    The columns are those that the query names; each is in one table only. The conditions are those
    that DuckDB's plan pushes into the scans. A row is needed that any scan of the table needs.
    """
    words = set(re.findall(r"\w+", query.lower()))
    plan = json.loads(connection.execute(f"EXPLAIN (FORMAT json) {query}").fetchall()[0][1])
    pushed: dict[str, list[str]] = {}
    for scan in _scans(plan):
        table = scan["Table"].rsplit(".", 1)[-1]
        filters = scan.get("Filters") or []
        certain = [
            each.removeprefix("optional: ")
            for each in ([filters] if isinstance(filters, str) else filters)
            if each and "Dynamic Filter" not in each
        ]
        pushed.setdefault(table, []).append(" AND ".join(f"({each})" for each in certain))
    return {
        table: Scanned(
            tuple(each for each in columns[table] if each in words) or (columns[table][0],),
            None if "" in conditions else " OR ".join(dict.fromkeys(conditions)),
        )
        for table, conditions in pushed.items()
    }


def _scans(nodes: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    for node in nodes:
        if "Table" in node["extra_info"]:
            yield node["extra_info"]
        yield from _scans(node["children"])


# --------------------------------------------------------------------------- in its own environment


def main(kind: str, scale: str, target: str) -> None:
    folder = Path(target)
    folder.mkdir(parents=True, exist_ok=True)
    connection = duckdb.connect()
    connection.execute("SET autoinstall_known_extensions = false")
    (extension,) = (
        Path(duckdb.__file__)
        .parents[1]
        .glob(f"duckdb_extension_{kind}/extensions/*/{kind}.duckdb_extension")
    )
    connection.execute(f"LOAD '{extension}'")
    connection.execute(f"CALL {_CALLS[kind]}(sf = {float(scale)})")
    for (table,) in connection.execute("SELECT table_name FROM duckdb_tables()").fetchall():
        connection.execute(f"COPY {table} TO '{folder}/{table}.parquet'")
    found = connection.execute(f"SELECT query FROM {kind}_queries() ORDER BY query_nr").fetchall()
    (folder / "queries.json").write_text(json.dumps([query for (query,) in found]), "utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
