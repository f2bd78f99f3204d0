"""A client that reads the lake's files from S3 by itself, with DuckDB's extension httpfs.

It runs in a process of its own with the DuckDB of the independent readers: the extension is a wheel
for that version. It knows the store by a secret of its own, as users do.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.spark.independent_readers import duckdb_environment, load_extensions

from sparkport.testing import DuckDBClient
from sparkport.testing.local import LocalDuckDB

__all__ = ["read_by_httpfs"]

_SECONDS = 100


def read_by_httpfs(
    location: str, catalog: str, schema: str, tables: Sequence[str], options: Mapping[str, str]
) -> dict[str, list[dict[str, Any]]]:
    """The rows of tables. `options` are Iceberg's for the store.

    Raises: AssertionError with what the client said.
    """
    run = subprocess.run(
        [sys.executable, "-m", __name__],
        # Not among the arguments, which all users of the machine can see.
        input=json.dumps([location, catalog, schema, tables, dict(options)]),
        env=duckdb_environment(),
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=False,
    )
    if run.returncode:
        raise AssertionError(f"the client cannot read: {run.stderr[-3000:]}")
    found: dict[str, list[dict[str, Any]]] = json.loads(run.stdout)
    return found


def _main() -> None:
    location, catalog, schema, tables, options = json.loads(sys.stdin.read())
    load_extensions(LocalDuckDB.shared(True)._database, ["httpfs"], options)
    with DuckDBClient(location, catalog, timeout=60) as client:
        client.attach()
        found = {each: client.scan(schema, each).to_pylist() for each in tables}
    print(json.dumps(found))  # noqa: T201


if __name__ == "__main__":
    _main()
