"""A cluster whose workers have nothing but Java and Spark, as the how-to on clusters says.

The page is docs/how-to/deploy-on-a-cluster.md.
"""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from tests.parts.s3 import s3_server
from tests.spark.cluster import Cluster, ServerProcess

from sparkport.testing import DuckDBClient, ServerError

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(580)]

_QUICK_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_ALL_BY_SPARK = ("--lake-in-place-mb", "0", "--lake-update-rows-in-place", "0")
ROWS = pa.table(
    {"id": pa.array(range(1000), pa.int32()), "item": [f"item {each}" for each in range(1000)]}
)
_CONF = {
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": _QUICK_START,
    "spark.driver.extraJavaOptions": _QUICK_START,
}


@pytest.fixture(scope="module")
def environment(tmp_path_factory) -> Path:
    made = tmp_path_factory.mktemp("packed") / "environment.tar.gz"
    subprocess.run([sys.executable, "-m", "sparkport", "pack", made], timeout=280, check=True)
    return made


@pytest.fixture(scope="module")
def workers(tmp_path_factory) -> Path:
    """The folder in which the workers run."""
    return tmp_path_factory.mktemp("workers")


@pytest.fixture(scope="module")
def cluster(workers) -> Iterator[Cluster]:
    with pytest.MonkeyPatch.context() as bare:
        bare.setenv("PATH", "/usr/bin:/bin")
        for name in ("VIRTUAL_ENV", "PYTHONPATH", "PYSPARK_PYTHON"):
            bare.delenv(name, raising=False)
        cluster = Cluster(workers)
    with cluster:
        yield cluster


def serve(cluster: Cluster, folder: Path, *flags: str, **conf: str) -> ServerProcess:
    """Serve a lake in a folder, unless the flags say where else, and leave all work to Spark."""
    settings = {**_CONF, **{name.replace("_", "."): value for name, value in conf.items()}}
    place = () if "--warehouse" in flags else ("--warehouse", f"{folder}/lake")
    return ServerProcess(
        [
            *("--master", cluster.url, *_ALL_BY_SPARK, *place, *flags),
            *(f"--spark-conf={name}={value}" for name, value in settings.items()),
        ],
        {},
        folder / "log",
    )


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def test_executors_read_and_write_with_the_python_of_a_packed_environment(
    cluster, environment, workers, tmp_path
):
    port = free_port()
    with serve(
        cluster,
        tmp_path,
        *("--worker-environment", str(environment)),
        *("--spark-conf", f"spark.sparkport.relayPort={port}"),
    ) as server:
        use(server)

        assert list(workers.glob("worker*/app-*/*/environment/bin/python"))
        with socket.create_connection(("127.0.0.1", port), 5):
            pass  # the place where the executors have sent the rows


def use(server: ServerProcess) -> None:
    """Write and read, on each of the ways that lead through executors."""
    with DuckDBClient(server.location, "lake", timeout=120) as client:
        client.attach()
        client.create_schema("s")
        client.create_table("s", "t", {"id": "INTEGER", "item": "VARCHAR"})
        client.insert("s", "t", ROWS)
        assert client.update("s", "t", {"item": "upper(item)"}, where="id < 500").total == 500

        found = client.scan("s", "t", ["id", "item"], where="item LIKE 'ITEM%7'")

        assert sorted(found["id"].to_pylist()) == [each for each in range(500) if each % 10 == 7]
        query = "SELECT count(DISTINCT item) AS n FROM t"
        assert client.table_function("s", "spark_sql", query)["n"].to_pylist() == [1000]


def test_executors_read_and_write_what_is_in_s3_and_postgresql(
    cluster, environment, postgres, tmp_path
):
    """Nobody has told them how: keys and jars come from the server."""
    database = postgres.new_database()
    with s3_server() as s3:
        hidden = tmp_path / "secrets.toml"
        hidden.touch(0o600)
        kept = {**database.options, **s3.options()}
        hidden.write_text("".join(f'"{key}" = "{value}"\n' for key, value in kept.items()))
        with serve(
            cluster,
            tmp_path,
            *("--worker-environment", str(environment), "--secrets-file", str(hidden)),
            *("--catalog", "jdbc", "--catalog-uri", database.uri),
            *("--warehouse", f"s3://{s3.bucket}/lake"),
        ) as server:
            use(server)

        assert s3.secret_key not in (tmp_path / "log").read_text("utf-8")


def test_executors_without_sparkport_are_named_in_a_sentence(cluster, tmp_path):
    bare = tmp_path / "python3"
    bare.write_text(f'#!/bin/sh\nexec "{Path(sys.executable).resolve()}" -S "$@"\n')
    bare.chmod(0o755)
    with (
        serve(cluster, tmp_path, spark_pyspark_python=str(bare)) as server,
        DuckDBClient(server.location, "lake", timeout=120) as client,
    ):
        client.attach()
        client.create_schema("s")
        client.create_table("s", "t", {"id": "INTEGER"})
        client.insert("s", "t", ROWS.select(["id"]))

        with pytest.raises(ServerError) as caught:
            client.scan("s", "t")

        assert "table s.t: the Python of Spark's executors has no Sparkport" in str(caught.value)
        assert "`sparkport pack`" in str(caught.value)


def test_executors_without_any_python_are_named_in_a_sentence(cluster, tmp_path):
    with (
        serve(cluster, tmp_path, spark_pyspark_python="./nowhere/python") as server,
        DuckDBClient(server.location, "lake", timeout=120) as client,
    ):
        client.attach()
        client.create_schema("s")

        with pytest.raises(ServerError) as caught:
            client.table_function("s", "spark_sql", "SELECT 1 AS n")

        assert "the Python of Spark's executors cannot be started" in str(caught.value)
