"""Which Python Spark's workers run: in local mode always the server's own."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from sparkport.spark.jvm.session.jars import lake_jars

pytestmark = [pytest.mark.spark, pytest.mark.timeout(280)]

PROLOGUE = """
import os, sys
from pyspark.sql import SparkSession
import sparkport as sp
from sparkport.spark import LakeCatalog, LakeSettings
from sparkport.testing import DuckDBClient

all_by_spark = LakeSettings(in_place_bytes=0)

def read(lake):
    for statement in (
        f"CREATE NAMESPACE {lake.spark_catalog}.s",
        f"CREATE TABLE {lake.spark_catalog}.s.t USING iceberg AS SELECT id FROM range(3)",
        f"CREATE VIEW {lake.spark_catalog}.s.v AS SELECT id + 1 AS id FROM range(3)",
    ):
        lake.spark.sql(statement)
    with sp.Server(lake, "grpc://127.0.0.1:0") as server:
        with DuckDBClient(server.location, lake.name, timeout=120) as client:
            client.attach()
            for name in ("t", "v"):
                print(name, sorted(client.scan("s", name)["id"].to_pylist()), flush=True)

def session(**settings):
    made = SparkSession.builder.master("local[2]").config("spark.jars", os.environ["JARS"])
    for key, value in {
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.sql.extensions":
            "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "jdbc",
        "spark.sql.catalog.lake.uri": f"jdbc:sqlite:{os.getcwd()}/catalog.db",
        "spark.sql.catalog.lake.jdbc.schema-version": "V1",
        "spark.sql.catalog.lake.warehouse": f"{os.getcwd()}/lake",
        **settings,
    }.items():
        made = made.config(key, value)
    return made.getOrCreate()
"""
ROWS = ["t [0, 1, 2]", "v [1, 2, 3]"]


@pytest.fixture
def run(tmp_path):
    """Run a program by this Python, where `python3` is another that has no packages."""
    other = tmp_path / "bin" / "python3"
    other.parent.mkdir()
    other.write_text(f'#!/bin/sh\nexec "{Path(sys.executable).resolve()}" -S "$@"\n')
    other.chmod(0o755)

    def run(program: str, **environment: str) -> list[str]:
        inherited = {
            name: value
            for name, value in os.environ.items()
            if name not in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "VIRTUAL_ENV", "PYTHONPATH")
        }
        done = subprocess.run(
            [sys.executable, "-c", PROLOGUE + textwrap.dedent(program)],
            cwd=tmp_path,
            env={
                **inherited,
                "PATH": f"{other.parent}:{os.environ['PATH']}",
                "JARS": ",".join(map(str, lake_jars())),
                **environment,
            },
            check=False,
            capture_output=True,
            text=True,
            timeout=250,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout.splitlines()

    return run


def test_workers_of_a_session_of_the_user_run_the_servers_python(run):
    """As in a virtual environment that is not activated."""
    said = run(
        """
        spark = session()
        with LakeCatalog(spark=spark, spark_catalog="lake", settings=all_by_spark) as lake:
            read(lake)
        print(spark.sparkContext.pythonExec, "PYTHONPATH" in spark.sparkContext.environment)
        spark.stop()
        """
    )

    assert said == [*ROWS, "python3 False"], "the session itself is not changed"


def test_workers_of_an_embedded_session_run_the_servers_python_whatever_a_variable_says(run):
    """A PYSPARK_PYTHON in somebody's profile is for other programs."""
    said = run(
        """
        with LakeCatalog("warehouse", settings=all_by_spark) as lake:
            read(lake)
            print(lake.spark.sparkContext.pythonExec == sys.executable)
        """,
        PYSPARK_PYTHON="python3",
    )

    assert said == [*ROWS, "True"]
