"""Reads an Iceberg table by others than Sparkport: PyIceberg, plain Spark, DuckDB's extension.

Each runs in a process of its own, which knows nothing of Sparkport. A table is named by its present
metadata file; `options` are Iceberg's for the store that it is in, by the names of Java's library
(`s3.endpoint`, `client.region` and so on).

    python -m tests.spark.independent_readers duckdb s3://lake/s/t/metadata/00003-….metadata.json \
        s3.endpoint=http://127.0.0.1:7070 …

DuckDB's extensions are wheels for a certain version of DuckDB (tests/parts/wheels.py).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pyarrow as pa

if TYPE_CHECKING:
    import duckdb

__all__ = ["READERS", "duckdb_environment", "load_extensions", "rows_by"]

_DUCKDB = "1.5.5"
_EXTENSIONS = ("avro", "httpfs", "iceberg", "tpcds", "tpch")
_WHEELS = (
    f"duckdb=={_DUCKDB}",
    *(f"duckdb-extension-{name}=={_DUCKDB}" for name in _EXTENSIONS),
)
_NAME = f"duckdb-{_DUCKDB}-{'-'.join(_EXTENSIONS)}"
_READ_SECONDS = 200

Row = tuple[Any, ...]


def rows_by(
    reader: str,
    metadata: str,
    options: Mapping[str, str] | None = None,
    snapshot_id: int | None = None,
) -> list[Row]:
    """The rows of a table as one reader reads them, sorted, with comparable values.

    They are those of a snapshot, if one is given.
    """
    environment = duckdb_environment() if reader == "duckdb" else _environment()
    with tempfile.TemporaryDirectory() as folder:
        run = subprocess.run(
            [sys.executable, __file__, reader],
            # Not among the arguments, which all users of the machine can see.
            input=json.dumps([metadata, dict(options or {}), folder, snapshot_id]),
            env=environment,
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=_READ_SECONDS,
            check=False,
        )
        if run.returncode:
            raise AssertionError(f"{reader} cannot read {metadata}: {run.stderr[-3000:]}")
        with pa.ipc.open_file(Path(folder, "rows.arrow")) as file:
            found = file.read_all()
    return sorted((tuple(map(_plain, row.values())) for row in found.to_pylist()), key=repr)


def _plain(value: Any) -> Any:
    """A value that compares: readers differ in zones and in the type of a UUID."""
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(timezone.utc)
    return str(value) if isinstance(value, uuid.UUID) else value


def _environment() -> dict[str, str]:
    """This process's, without what the machine knows of stores."""
    return {key: each for key, each in os.environ.items() if not key.startswith("AWS_")}


def duckdb_environment() -> dict[str, str]:
    """For a process that imports the DuckDB whose extensions are wheels."""
    from tests.parts.wheels import installed  # which those processes do not have

    return {**_environment(), "PYTHONPATH": str(installed(_NAME, _WHEELS))}


# ------------------------------------------------------------------------------ in their processes


def _pyiceberg(
    metadata: str, options: Mapping[str, str], folder: Path, snapshot_id: int | None
) -> pa.Table:
    from pyiceberg.table import StaticTable

    region = {"s3.region": options["client.region"]} if "client.region" in options else {}
    table = StaticTable.from_metadata(metadata, {**options, **region})
    return table.scan(snapshot_id=snapshot_id).to_arrow()


def _duckdb(
    metadata: str, options: Mapping[str, str], folder: Path, snapshot_id: int | None
) -> pa.Table:
    import duckdb

    connection = duckdb.connect()
    connection.execute("SET autoinstall_known_extensions = false")
    load_extensions(connection, ("avro", "httpfs", "iceberg"), options)
    at = "" if snapshot_id is None else f", snapshot_from_id := {snapshot_id}"
    query = f"SELECT * FROM iceberg_scan(?{at})"
    return connection.execute(query, [metadata]).to_arrow_table()


def load_extensions(
    connection: duckdb.DuckDBPyConnection, names: Sequence[str], options: Mapping[str, str]
) -> None:
    """Load extensions from their wheels, and make DuckDB's secret for a store."""
    import duckdb

    for name in names:
        (extension,) = (
            Path(duckdb.__file__)
            .parents[1]
            .glob(f"duckdb_extension_{name}/extensions/*/{name}.duckdb_extension")
        )
        connection.execute(f"LOAD '{extension}'")
    if "s3.endpoint" in options:
        endpoint = urlsplit(options["s3.endpoint"])
        connection.execute(
            "CREATE SECRET (TYPE s3, KEY_ID ?, SECRET ?, REGION ?, ENDPOINT ?, URL_STYLE 'path', "
            f"USE_SSL {str(endpoint.scheme == 'https').lower()})",
            [
                options["s3.access-key-id"],
                options["s3.secret-access-key"],
                options.get("client.region", "us-east-1"),
                endpoint.netloc,
            ],
        )


def _spark(
    metadata: str, options: Mapping[str, str], folder: Path, snapshot_id: int | None
) -> pa.Table:
    from pyspark.sql import SparkSession

    settings = {
        "spark.sql.catalog.other": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.other.type": "jdbc",
        "spark.sql.catalog.other.uri": f"jdbc:sqlite:{folder}/other.db",
        "spark.sql.catalog.other.warehouse": f"{folder}/other",
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": f"{folder}/spark",
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.jars": ",".join(_jars(metadata)),
        **{f"spark.sql.catalog.other.{key}": value for key, value in options.items()},
    }
    if metadata.startswith("s3"):
        settings["spark.sql.catalog.other.io-impl"] = "org.apache.iceberg.aws.s3.S3FileIO"
    builder = SparkSession.builder.master("local[2]")
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    try:
        spark.sql("CREATE NAMESPACE other.s")
        spark.sql(
            f"CALL other.system.register_table(table => 's.t', metadata_file => '{metadata}')"
        )
        at = "" if snapshot_id is None else f" VERSION AS OF {snapshot_id}"
        return spark.sql(f"SELECT * FROM other.s.t{at}").toArrow()
    finally:
        spark.stop()


def _jars(metadata: str) -> list[str]:
    from sparkport.spark.jvm.session.jars import AWS, COORDINATES, lake_jars

    wanted = (*COORDINATES, AWS) if metadata.startswith("s3") else COORDINATES
    return list(map(str, lake_jars(None, wanted)))


READERS: Mapping[str, Callable[[str, Mapping[str, str], Path, int | None], pa.Table]] = {
    "pyiceberg": _pyiceberg,
    "spark": _spark,
    "duckdb": _duckdb,
}
"""What reads a table, by the name of the reader."""


def main(arguments: Sequence[str]) -> None:
    if len(arguments) > 1:  # called by a person
        options = dict(each.split("=", 1) for each in arguments[2:])
        print(*rows_by(arguments[0], arguments[1], options), sep="\n")  # noqa: T201
        return
    metadata, options, folder, snapshot_id = json.loads(sys.stdin.read())
    found = READERS[arguments[0]](metadata, options, Path(folder), snapshot_id)
    with pa.ipc.new_file(Path(folder, "rows.arrow"), found.schema) as file:
        file.write_table(found)


if __name__ == "__main__":
    main(sys.argv[1:])
