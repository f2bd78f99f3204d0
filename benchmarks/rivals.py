"""Other ways to read the same lake, in a process of their own: `python -m benchmarks.rivals KIND`.

It reads where the lake is from standard input, and then commands, one a line. It answers each with
the seconds it took and the bytes of Arrow data.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import pyarrow as pa

from benchmarks.data import rows as made_rows
from sparkport.spark.jvm.session.source import LakeSource

__all__ = ["Rival", "start_rival"]


class Rival:
    """A running competitor."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def run(self, command: str, argument: str) -> tuple[float, float]:
        """The seconds that it took, and the bytes of Arrow data."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([command, argument]) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError(f"the rival ended at {command}")
        took, size = json.loads(answer)
        return float(took), float(size)


@contextmanager
def start_rival(kind: str, source: LakeSource) -> Iterator[Rival]:
    """Start a competitor and wait until it is ready."""
    command = [sys.executable, "-m", "benchmarks.rivals", kind]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(asdict(source)) + "\n")
        process.stdin.flush()
        if process.stdout.readline().strip() != "ready":
            raise RuntimeError(f"the rival {kind} did not start")
        yield Rival(process)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        process.wait(60)


def _settings(source: LakeSource) -> dict[str, str]:
    """Spark as its users run it on one machine, with room for what `toArrow` collects in the
    driver.
    """
    from sparkport.spark.jvm.session.jars import ICEBERG, lake_jars

    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    return {
        "spark.jars": ",".join(map(str, lake_jars(wanted=(ICEBERG, *source.coordinates)))),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "6g",
        "spark.driver.maxResultSize": "0",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.shuffle.partitions": str(os.cpu_count()),
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        **(source.settings("bench") or _embedded(source)),
    }


def _embedded(source: LakeSource) -> dict[str, str]:
    catalog = "spark.sql.catalog.bench"
    return {
        catalog: "org.apache.iceberg.spark.SparkCatalog",
        f"{catalog}.type": "jdbc",
        f"{catalog}.uri": f"jdbc:sqlite:{source.folder / 'catalog.db'}",
        f"{catalog}.jdbc.schema-version": "V1",
        f"{catalog}.warehouse": f"file://{source.folder}",
        f"{catalog}.cache-enabled": "false",  # others change the tables too
    }


def _spark(source: LakeSource) -> dict[str, Callable[[str], float]]:
    from pyspark.sql import SparkSession

    builder: Any = SparkSession.builder.master("local[*]")
    for key, value in _settings(source).items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")

    def to_arrow(query: str) -> float:
        return float(spark.sql(query).toArrow().nbytes)

    def collect(query: str) -> float:
        return float(len(spark.sql(query).collect()))

    return {"to_arrow": to_arrow, "collect": collect, "stop": lambda _: float(spark.stop() is None)}


def _connect(source: LakeSource) -> dict[str, Callable[[str], float]]:
    """Spark Connect: the server is started by PySpark, the client is in this process."""
    from pyspark.sql import SparkSession

    builder: Any = SparkSession.builder.remote("local[*]")
    for key, value in _settings(source).items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()

    def to_arrow(query: str) -> float:
        return float(spark.sql(query).toArrow().nbytes)

    return {"to_arrow": to_arrow}


def _pyiceberg(source: LakeSource) -> dict[str, Callable[[str], float]]:
    from pyiceberg.table import StaticTable

    properties = dict(source.options)
    if "client.region" in properties:  # PyIceberg's own name
        properties["s3.region"] = properties["client.region"]

    def to_arrow(location: str) -> float:
        table: pa.Table = StaticTable.from_metadata(location, properties).scan().to_arrow()
        return float(table.nbytes)

    return {"to_arrow": to_arrow}


def _pyiceberg_append(source: LakeSource) -> dict[str, Callable[[str], float]]:
    """PyIceberg that appends rows, in a catalog of its own beside the lake."""
    from pyiceberg.catalog.sql import SqlCatalog

    folder = source.folder.parent / "pyiceberg"
    folder.mkdir()
    catalog = SqlCatalog("own", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}")
    catalog.create_namespace("s")
    row = made_rows(1)
    table = catalog.create_table("s.t", row.schema)

    def append(_: str) -> float:
        table.append(row)
        return float(row.nbytes)

    return {"append": append}


def _pyiceberg_upsert(source: LakeSource) -> dict[str, Callable[[str], float]]:
    """PyIceberg that upserts rows, in a catalog of its own beside the lake."""
    from pyiceberg.catalog.sql import SqlCatalog

    folder = source.folder.parent / "pyiceberg"
    folder.mkdir()
    catalog = SqlCatalog("own", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}")
    catalog.create_namespace("s")
    table = catalog.create_table("s.t", made_rows(1).schema)

    def make(count: str) -> float:
        table.append(made_rows(int(count)))
        return float(count)

    def upsert(given: str) -> float:
        rows, changed, turn = map(int, given.split())
        half = changed // 2
        there = [place * (rows // half) + turn + 1 for place in range(half)]
        new = range(rows + turn * half, rows + (turn + 1) * half)
        wanted = made_rows(changed).set_column(0, "id", pa.array([*there, *new], pa.int64()))
        result = table.upsert(wanted, ["id"])
        if (result.rows_updated, result.rows_inserted) != (half, half):
            raise RuntimeError(f"PyIceberg says {result}")
        return float(wanted.nbytes)

    return {"make": make, "upsert": upsert}


def main() -> None:
    """Answer commands until there are no more."""
    source = LakeSource(**json.loads(sys.stdin.readline()))
    kinds = {
        "spark": _spark,
        "connect": _connect,
        "pyiceberg": _pyiceberg,
        "pyiceberg_append": _pyiceberg_append,
        "pyiceberg_upsert": _pyiceberg_upsert,
    }
    commands = kinds[sys.argv[1]](source)
    print("ready", flush=True)
    for line in sys.stdin:
        command, argument = json.loads(line)
        began = time.perf_counter()
        size = commands[command](argument)
        print(json.dumps([time.perf_counter() - began, size]), flush=True)
    if (stop := commands.get("stop")) is not None:
        stop("")


if __name__ == "__main__":
    main()
