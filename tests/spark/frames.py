"""Reads and fills a table by ADBC as frames, in a process that has pandas and polars.

    python frames.py LOCATION SCHEMA pandas|polars

Makes table `t` from a frame, appends another, and prints the rows of both ways to read it as JSON.
Sparkport itself must do without these packages, so the environment of the tests has none of them.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from adbc_driver_flightsql import dbapi

_SECONDS = {
    f"adbc.flight.sql.rpc.timeout_seconds.{each}": "60" for each in ("fetch", "query", "update")
}
_FIRST: dict[str, list[Any]] = {"id": [1, 2], "name": ["ann", None]}
_MORE: dict[str, list[Any]] = {"id": [3], "name": ["cy"]}


def _frame(library: str, columns: dict[str, list[Any]]) -> Any:
    if library == "pandas":
        import pandas

        return pandas.DataFrame(columns)
    import polars

    return polars.DataFrame(columns)


def _rows(library: str, cursor: Any) -> list[list[Any]]:
    if library == "pandas":
        frame = cursor.fetch_df().astype(object)
        return [list(row) for row in frame.where(frame.notna(), None).itertuples(index=False)]
    return [list(row) for row in cursor.fetch_polars().rows()]


def main(location: str, schema: str, library: str) -> None:
    found = []
    with (
        dbapi.connect(location, db_kwargs=_SECONDS, autocommit=True) as connection,
        connection.cursor() as cursor,
    ):
        cursor.adbc_ingest("t", _frame(library, _FIRST), mode="create", db_schema_name=schema)
        cursor.adbc_ingest("t", _frame(library, _MORE), mode="append", db_schema_name=schema)
        for by_spark in ("", " ORDER BY id"):
            cursor.execute(f"SELECT id, name FROM {schema}.t{by_spark}")
            found.append(sorted(_rows(library, cursor)))
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
