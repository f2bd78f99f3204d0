"""The Spark session of an embedded lake: shared in a process, quiet, and gone with it."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import textwrap
import time
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest
from tests.spark.processes import java_of, wait_until_ended

from sparkport.catalog import Context, CreateSchemaOptions, CreateTableOptions, DynamicSchema
from sparkport.errors import BadRequest, Unsupported
from sparkport.spark import LakeCatalog
from sparkport.spark.jvm.session.adopted import adopt
from sparkport.spark.jvm.session.embedded import (
    DATABASE,
    catalog_name,
    embedded_session,
    release,
)
from sparkport.spark.jvm.session.source import LakeSource

pytestmark = [pytest.mark.spark, pytest.mark.timeout(280)]


def source(folder: Path) -> LakeSource:
    return LakeSource(warehouse=str(folder))


def start(folder: Path, program: str, **environment: str) -> subprocess.Popen[str]:
    """Start a Python process that runs `program` in an empty folder."""
    return subprocess.Popen(
        [sys.executable, "-c", PROLOGUE + textwrap.dedent(program)],
        cwd=folder,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


PROLOGUE = """
from sparkport.spark.jvm.session.embedded import embedded_session, release
from sparkport.spark.jvm.session.source import LakeSource

small = {"spark.driver.memory": "1g"}
"""


def test_a_session_is_set_up_for_a_server(spark):
    context = spark.sparkContext

    assert context.master.startswith("local[")
    assert context.getConf().get("spark.driver.host") == "127.0.0.1"
    assert context.uiWebUrl is None
    assert context.pythonExec == sys.executable
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert context.getConf().get("spark.scheduler.mode") == "FAIR"
    assert int(spark.conf.get("spark.sql.shuffle.partitions")) == len(os.sched_getaffinity(0))


def test_lakes_of_other_names_share_a_session(spark, tmp_path):
    second = embedded_session(source(tmp_path), "second")
    third = embedded_session(source(tmp_path / "third"), "third")
    try:
        second.sql("CREATE NAMESPACE second.a")

        assert second.sparkContext is spark.sparkContext
        assert third is second
        assert [row.namespace for row in third.sql("SHOW NAMESPACES IN second").collect()] == ["a"]
        assert (tmp_path / DATABASE).exists()
    finally:
        release(second)
        release(third)


def test_lakes_that_are_called_alike_have_a_session_each(spark, lake, tmp_path):
    first, second = (
        embedded_session(source(tmp_path / name), lake.spark_catalog)
        for name in ("first", "second")
    )
    try:
        first.sql(f"CREATE NAMESPACE {lake.spark_catalog}.only_in_first")

        assert len({spark, first, second}) == 3
        assert embedded_session(source(tmp_path / "second"), lake.spark_catalog) is second
        namespaces = [
            row.namespace
            for row in second.sql(f"SHOW NAMESPACES IN {lake.spark_catalog}").collect()
        ]
        assert namespaces == []
    finally:
        for session in (first, second, second):
            release(session)


def test_lakes_in_two_folders_may_be_called_alike(lake, tmp_path):
    ctx = Context()
    with (
        LakeCatalog(tmp_path / "first", name=lake.name) as first,
        LakeCatalog(tmp_path / "second", name=lake.name) as second,
    ):
        for each, name in ((first, "a"), (second, "b")):
            schema = each.create_schema(ctx, name, CreateSchemaOptions())
            assert isinstance(schema, DynamicSchema)
            schema.create_table(ctx, "t", pa.schema([("i", pa.int64())]), CreateTableOptions())

        assert [schema.name for schema in first.schemas(ctx)] == ["a"]
        assert [schema.name for schema in second.schemas(ctx)] == ["b"]
    assert sorted(path.name for path in (tmp_path / "second").iterdir() if path.is_dir()) == ["b"]


def test_a_warehouse_keeps_the_name_of_its_catalog(spark, tmp_path):
    assert catalog_name(source(tmp_path), "my lake") == "my_lake"
    session = embedded_session(source(tmp_path), "my_lake")
    try:
        session.sql("CREATE NAMESPACE my_lake.a")
    finally:
        release(session)

    assert catalog_name(source(tmp_path), "other") == "my_lake"
    with pytest.raises(BadRequest, match="holds the Spark catalog 'my_lake', not 'other'"):
        embedded_session(source(tmp_path), "other")


def test_settings_can_be_added_while_spark_runs_but_not_those_of_its_start(spark, tmp_path):
    session = embedded_session(
        source(tmp_path),
        "added",
        conf={"spark.sql.catalog.added.x": "1", "spark.sql.some.setting": "2"},
    )
    release(session)

    assert session.conf.get("spark.sql.catalog.added.x") == "1"
    assert session.conf.get("spark.sql.some.setting") == "2"
    with pytest.raises(
        BadRequest, match=r"spark\.sql\.warehouse\.dir cannot be set once Spark has started"
    ):
        embedded_session(
            source(tmp_path), "added_too", conf={"spark.sql.warehouse.dir": "/nowhere"}
        )
    with pytest.raises(BadRequest, match="Spark runs already, with the master 'local"):
        embedded_session(source(tmp_path), "added_too", master="spark://elsewhere:7077")


def test_a_session_of_the_user_is_adopted_as_it_is(spark):
    before = spark.conf.getAll

    assert adopt(spark) is spark
    assert spark.conf.getAll == before
    release(spark.newSession())  # not one of ours
    assert spark.range(3).count() == 3


def test_a_session_without_a_jvm_is_refused():
    with pytest.raises(Unsupported, match="classic SparkSession"):
        adopt(object())  # type: ignore[arg-type]  # a Connect session, of which grpcio-status is not installed


@pytest.mark.long
def test_python_reads_the_catalog_while_two_processes_commit(tmp_path):
    """SQLite serialises them: no process finds the file busy, even on an empty folder."""
    program = """
        import sys, threading
        session = embedded_session(LakeSource(warehouse="shared"), "lake", conf=small)
        session.sql(f"CREATE NAMESPACE lake.a{PROCESS}")
        def work(thread):
            for n in range(8):
                session.sql(f"CREATE TABLE lake.a{PROCESS}.t{thread}_{n} (i INT)")
        threads = [threading.Thread(target=work, args=(n,)) for n in range(3)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
    """
    several = [
        start(tmp_path, f"PROCESS = {number}" + textwrap.dedent(program)) for number in (1, 2)
    ]
    while any(process.poll() is None for process in several):
        _tables(tmp_path / "shared" / DATABASE)
        time.sleep(0.02)

    assert [process.communicate(timeout=30)[1] for process in several] == ["", ""]
    assert _tables(tmp_path / "shared" / DATABASE) == 2 * 3 * 8


def _tables(database: Path) -> int:
    """How many tables the catalog has, which may not exist yet."""
    if not database.exists():
        return 0
    with closing(sqlite3.connect(database, timeout=60)) as connection:
        if not connection.execute(
            "SELECT 1 FROM sqlite_master WHERE name = 'iceberg_tables'"
        ).fetchone():
            return 0
        (count,) = connection.execute("SELECT count(*) FROM iceberg_tables").fetchone()
        return int(count)


@pytest.mark.long
def test_servers_that_start_at_once_on_an_empty_folder_make_one_lake(tmp_path):
    program = """
        from sparkport.catalog import Context, CreateSchemaOptions
        from sparkport.errors import AlreadyExists
        from sparkport.spark import LakeCatalog, demo
        lake = LakeCatalog("shared", conf=small)
        made = 0
        for n in range(20):
            try:
                lake.create_schema(Context(), f"s{n}", CreateSchemaOptions())
                made += 1
            except AlreadyExists:
                pass
        demo.fill(lake)
        print(made, lake.spark.table(f"{lake.spark_catalog}.demo.orders").count())
        lake.close()
    """
    several = [start(tmp_path, program) for _ in range(2)]
    outputs = [process.communicate(timeout=250) for process in several]

    assert [complaints for _, complaints in outputs] == ["", ""]
    made, orders = zip(*(map(int, output.split()) for output, _ in outputs), strict=True)
    assert sum(made) == 20, "each schema was made by one of them"
    assert orders == (50_000, 50_000)


def test_it_is_quiet_forks_nothing_leaves_nothing_behind_and_takes_java_with_it(tmp_path):
    program = """
        import os
        forks = []
        os.register_at_fork(before=lambda: forks.append("fork"))
        session = embedded_session(LakeSource(warehouse="my lake"), "lake", conf=small)
        session.sql("CREATE NAMESPACE lake.a")
        session.sql("CREATE TABLE lake.a.t AS SELECT id FROM range(10)")
        session.sql("CREATE VIEW lake.a.v AS SELECT id * 2 AS i FROM lake.a.t")
        for statement in ("SELECT 1 / (id - 5) FROM lake.a.t", "SELECT nonsense", "SELEC"):
            try:
                session.sql(statement).collect()
            except Exception:
                pass
        total = session.sql("SELECT sum(i) FROM lake.a.v").collect()[0][0]
        print(total, session.sparkContext._gateway.proc.pid, len(forks))
    """
    process = start(tmp_path, program)
    output, complaints = process.communicate(timeout=250)
    total, java, forks = output.split()

    assert complaints == ""
    assert total == "90"
    assert forks == "0", "one copy in eight of a process that has used gRPC dies before it is Java"
    assert not Path(f"/proc/{java}").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["my lake"]
    assert sorted(path.name for path in (tmp_path / "my lake").iterdir()) == ["a", DATABASE]


def test_java_ends_with_a_process_that_is_killed(tmp_path):
    process = start(
        tmp_path,
        """
        session = embedded_session(LakeSource(warehouse="lake"), "lake", conf=small)
        print("ready", flush=True)
        numbers = session.sparkContext.parallelize(range(2), 2)
        numbers.foreach(lambda n: __import__("time").sleep(600))
        """,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    (java,) = java_of(process.pid)
    process.kill()
    process.communicate(timeout=30)

    wait_until_ended(java)


@pytest.mark.long
def test_a_spark_that_does_not_start_is_one_sentence_and_can_be_started_again(tmp_path):
    program = """
        from sparkport.errors import PreconditionFailed
        for conf in ({"spark.driver.memory": "nonsense"}, {"spark.master": "nonsense"}, small):
            try:
                session = embedded_session(LakeSource(warehouse="lake"), "lake", conf=conf)
                print(session.version)
                release(session)
            except PreconditionFailed as error:
                print(error)
    """
    process = start(tmp_path, program)
    output, complaints = process.communicate(timeout=250)

    assert (process.returncode, complaints) == (0, "")
    memory, master, version = output.splitlines()
    assert memory == "Spark does not start: Invalid maximum heap size: -Xmxnonsense"
    assert (
        master
        == "Spark does not start: Master must either be yarn or start with spark, k8s, or local"
    )
    assert version.startswith("4.")


@pytest.mark.long
def test_a_process_that_has_another_spark_is_told_so(tmp_path):
    program = """
        from pyspark.sql import SparkSession
        from sparkport.errors import PreconditionFailed
        builder = SparkSession.builder.master("local[1]")
        other = builder.config("spark.ui.enabled", "false").getOrCreate()
        try:
            embedded_session(LakeSource(warehouse="lake"), "lake")
        except PreconditionFailed as error:
            print(error)
        print(other.range(3).count())
        other.stop()
    """
    output, _ = start(tmp_path, program).communicate(timeout=250)

    refusal, count = output.splitlines()
    assert refusal.startswith("this process has a Spark session without Iceberg")
    assert count == "3"
