"""Errors of Spark, Iceberg and Java, in one sentence for the person who typed the SQL."""

import glob
import os
import re
import time

import pyarrow as pa
import pytest
from pyiceberg.exceptions import NoSuchTableError

from sparkport import errors
from sparkport.catalog import Context
from sparkport.spark.jvm.errors import scrubbed, translate, translated
from sparkport.spark.jvm.relay.jobs import start_job


def raised(action, what="spark_sql"):
    with pytest.raises(errors.SparkportError) as found, translated(what):
        action()
    message = found.value.message
    assert "\n" not in message
    assert not re.search(
        r"/tmp|file:|\.java|\.scala|org\.apache|localhost|Traceback|SQLSTATE|\+-", message
    ), message
    return found.value


@pytest.fixture
def table(spark, lake, namespace):
    name = f"{lake.spark_catalog}.{namespace}.t"
    spark.sql(f"CREATE TABLE {name} (id BIGINT, v STRING) USING iceberg")
    spark.sql(f"INSERT INTO {name} VALUES (1, 'x'), (2, 'y')")
    return name


@pytest.mark.parametrize(
    ("query", "error", "words"),
    [
        (
            "SELECT idd FROM {table}",
            errors.NotFound,
            r"\[UNRESOLVED_COLUMN.*`idd`.*Did you mean.*`id`.*\(line 1, position 8\)$",
        ),
        (
            "SELECT *\nFROM nope.nope",
            errors.NotFound,
            r"`nope`.`nope` cannot be found\. .*\(line 2, position 6\)$",
        ),
        (
            "SELEC 1",
            errors.BadRequest,
            r"Syntax error at or near 'SELEC'\. \(line 1, position 1\)$",
        ),
        ("SELECT 1; SELECT 2", errors.BadRequest, r"extra input 'SELECT'"),
        (
            "SELECT id / 0 FROM {table}",
            errors.BadRequest,
            r"Division by zero\. Use `try_divide`.*\(line 1, position 8\)$",
        ),
        (
            "SELECT CAST(v AS INT) FROM {table}",
            errors.BadRequest,
            r"The value '[xy]' of the type \"STRING\"",
        ),
        ("SELECT raise_error('boom') FROM {table}", errors.BadRequest, r"boom$"),
        ("SELECT nofunction(1)", errors.NotFound, r"Cannot resolve routine `nofunction`"),
        ("SELECT array(1) + 1", errors.BadRequest, r"incompatible types"),
        ("SELECT id, count(*) FROM {table}", errors.BadRequest, r"GROUP BY"),
        ("SELECT (SELECT id FROM {table})", errors.BadRequest, r"More than one row returned"),
        (
            "SELECT * FROM {table} VERSION AS OF 12345",
            errors.NotFound,
            r"Cannot find snapshot with ID 12345",
        ),
        ("SELECT :x", errors.BadRequest, r"unbound parameter: x"),
        ("CREATE TABLE {table} (a INT) USING iceberg", errors.AlreadyExists, r"already exists"),
        ("SELECT CAST(1 AS nope)", errors.Unsupported, r"Unsupported data type"),
    ],
)
def test_sql_errors_keep_the_sentence_of_spark(spark, table, query, error, words):
    found = raised(lambda: spark.sql(query.format(table=table)).collect())

    assert type(found) is error
    assert re.search(words, found.message), found.message
    assert found.message.startswith("spark_sql: ")


def test_an_object_that_is_missing_is_not_found(spark, lake, namespace):
    found = raised(
        lambda: spark.table(f"{lake.spark_catalog}.{namespace}.nope"), f"table {namespace}.nope"
    )

    assert (type(found), found.message) == (
        errors.NotFound,
        f"table {namespace}.nope does not exist",
    )


def test_a_view_whose_table_is_gone_is_told_from_a_view_that_is_gone(spark, table, namespace):
    view = table.removesuffix(".t") + ".v"
    spark.sql(f"CREATE VIEW {view} AS SELECT * FROM {table}")
    spark.sql(f"DROP TABLE {table}")

    found = raised(lambda: spark.table(view).collect(), f"table {namespace}.v")

    assert type(found) is errors.PreconditionFailed
    assert found.message.startswith(f"table {namespace}.v can no longer be resolved: ")


def test_a_view_whose_column_is_gone_no_longer_resolves(spark, table, namespace):
    view = table.removesuffix(".t") + ".v"
    spark.sql(f"CREATE VIEW {view} AS SELECT id, v FROM {table}")
    spark.sql(f"ALTER TABLE {table} RENAME COLUMN v TO w")

    found = raised(lambda: spark.table(view).collect(), f"view {namespace}.v")

    assert type(found) is errors.PreconditionFailed
    assert "can no longer be resolved" in found.message


@pytest.mark.parametrize("pattern", ["data/*.parquet", "metadata/*.avro"])
def test_a_file_that_is_missing_is_not_named(spark, table, namespace, pattern):
    [(location,)] = spark.sql(f"SELECT file_path FROM {table}.files LIMIT 1").collect()
    folder = os.path.dirname(os.path.dirname(location)).removeprefix("file:")
    for path in glob.glob(f"{folder}/{pattern}"):
        os.remove(path)

    found = raised(lambda: spark.table(table).collect(), f"table {namespace}.t")

    assert type(found) is errors.PreconditionFailed
    assert found.message.startswith(
        f"table {namespace}.t cannot be read: one of its files is missing"
    )


def test_a_file_that_is_damaged_is_not_named(spark, tmp_path):
    (tmp_path / "x.parquet").write_text("not a Parquet file at all")

    found = raised(lambda: spark.read.parquet(str(tmp_path / "x.parquet")).collect(), "table a.t")

    assert type(found) is errors.PreconditionFailed
    assert "damaged" in found.message


def test_a_schema_with_tables_is_not_empty(spark, table, namespace):
    found = raised(
        lambda: spark.sql(f"DROP NAMESPACE {table.removesuffix('.t')}"), f"schema {namespace}"
    )

    assert type(found) is errors.SchemaNotEmpty


def test_a_commit_that_lost_is_a_conflict(spark, lake, table, namespace):
    from sparkport.spark.iceberg.identifiers import Identifier
    from sparkport.spark.jvm.gateway import Gateway

    handle = Gateway(spark, lake.spark_catalog).iceberg(
        Identifier(lake.spark_catalog, (namespace,), "t")
    )
    assert handle is not None
    operations = handle.table.operations()
    seen = operations.refresh()
    first = seen.replaceProperties({**dict(seen.properties()), "a": "1"})
    second = seen.replaceProperties({**dict(seen.properties()), "a": "2"})
    operations.commit(seen, first)

    found = raised(lambda: operations.commit(seen, second), f"table {namespace}.t")

    assert type(found) is errors.Conflict
    assert "try again" in found.message


def test_a_cancelled_job_is_cancelled(spark):
    query = "SELECT count(*) FROM range(0, 100000000000, 1, 2) WHERE id % 7 = rand()"
    job = start_job(spark.sparkContext, Context(), "spark_sql", lambda: spark.sql(query).collect())
    deadline = time.monotonic() + 60
    while not spark.sparkContext.statusTracker().getActiveJobsIds() and time.monotonic() < deadline:
        time.sleep(0.05)
    job.cancel()

    assert type(raised(lambda: job.result(timeout=60))) is errors.Cancelled


def test_an_error_of_a_python_function_is_told_without_its_traceback(spark):
    def fail(value):
        raise ValueError("python says no")

    found = raised(lambda: spark.sparkContext.parallelize([1], 1).map(fail).collect())

    assert type(found) is errors.CatalogFault
    assert found.message.endswith("ValueError: python says no")


def test_an_error_of_ours_comes_back_from_a_worker_as_it_was(spark):
    def fail(value):
        from sparkport.errors import LimitExceeded

        raise LimitExceeded("too many of them")

    found = raised(lambda: spark.sparkContext.parallelize([1], 1).map(fail).collect())

    assert (type(found), found.message) == (errors.LimitExceeded, "too many of them")


@pytest.mark.parametrize(
    ("name", "message", "error"),
    [
        ("java.lang.OutOfMemoryError", "Java heap space", errors.LimitExceeded),
        ("java.nio.file.AccessDeniedException", "/secret/place", errors.PermissionDenied),
        (
            "java.lang.IllegalStateException",
            "Cannot call methods on a stopped SparkContext.",
            errors.CatalogFault,
        ),
        ("java.net.ConnectException", "Connection refused (db.internal:5432)", errors.CatalogFault),
        ("java.lang.UnsupportedOperationException", "not this one", errors.Unsupported),
        ("java.sql.SQLException", "[SQLITE_BUSY] The database file is locked", errors.Conflict),
        (
            "java.sql.SQLException",
            "[SQLITE_NOTADB] File opened that is not a database file",
            errors.CatalogFault,
        ),
        (
            "java.lang.RuntimeException",
            "Job aborted due to stage failure: Task 1 in stage 2.0 failed 4 times, most recent "
            "failure: Lost task 1.3"
            " in stage 2.0 (TID 9) (10.0.0.7 executor 3): ExecutorLostFailure (executor 3 exited) "
            "Reason: worker lost",
            errors.CatalogFault,
        ),
        (
            "org.apache.hadoop.hive.metastore.api.MetaException",
            "Could not connect to meta store using any of the URIs provided. Most recent failure: "
            "org.apache.thrift.transport.TTransportException: java.net.ConnectException: "
            "Connection refused\n\tat org.apache.thrift.transport.TSocket.open(TSocket.java:255)",
            errors.CatalogFault,
        ),
        (
            "org.apache.hadoop.hive.metastore.api.MetaException",
            "Got exception: org.apache.thrift.transport.TTransportException Cannot write to null "
            "outputStream",
            errors.CatalogFault,
        ),
        (
            "org.apache.thrift.transport.TTransportException",
            "Socket is closed by peer.",
            errors.CatalogFault,
        ),
        (
            "java.io.IOException",
            "can not read class org.apache.parquet.format.PageHeader: Socket is closed by peer.",
            errors.PreconditionFailed,
        ),
        (
            "org.apache.hadoop.hive.metastore.api.MetaException",
            "Got exception: org.apache.hadoop.fs.UnsupportedFileSystemException No FileSystem for "
            'scheme "s3"',
            errors.PreconditionFailed,
        ),
    ],
)
def test_errors_of_java_are_told_by_their_class_and_words(spark, name, message, error):
    from py4j.protocol import Py4JJavaError

    made = spark._jvm.java.lang.RuntimeException("outside", getattr(spark._jvm, name)(message))

    found = translate(Py4JJavaError("An error occurred", made), "table a.t")

    assert type(found) is error
    assert "/secret" not in str(found)
    assert "10.0.0.7" not in str(found)
    assert "db.internal" not in str(found)
    assert "org.apache" not in str(found)


def test_a_metastore_that_is_away_is_not_taken_for_a_damaged_file(spark):
    from py4j.protocol import Py4JJavaError

    away = "Most recent failure: org.apache.thrift.transport.TTransportException: refused"
    made = spark._jvm.org.apache.hadoop.hive.metastore.api.MetaException(away)

    found = translate(Py4JJavaError("An error occurred", made), "Spark catalog lake")

    assert str(found) == (
        "Spark catalog lake: its catalog or its storage cannot be reached: try again later"
    )


def test_a_jvm_that_is_gone_is_told():
    for error in (ConnectionRefusedError(111, "Connection refused"), ConnectionResetError()):
        found = translate(error, "table a.t")
        assert type(found) is errors.CatalogFault
        assert "Spark is gone" in found.message


@pytest.mark.parametrize(
    ("raise_", "error"),
    [
        (FileNotFoundError(2, "No such file", "/tmp/x"), errors.PreconditionFailed),
        (pa.ArrowInvalid("Parquet magic bytes not found in footer."), errors.PreconditionFailed),
        (
            OSError("When reading: AWS Error ACCESS_DENIED during HeadObject"),
            errors.PermissionDenied,
        ),
        (NoSuchTableError("x"), errors.NotFound),
        (MemoryError(), errors.LimitExceeded),
    ],
)
def test_errors_of_python_libraries_are_told(raise_, error):
    assert type(translate(raise_, "table a.t")) is error


def test_an_error_of_the_program_stays_what_it_is():
    error = KeyError("corrupt")

    assert translate(error, "table a.t") is error
    with pytest.raises(KeyError), translated("table a.t"):
        raise error


def test_an_error_of_ours_stays_what_it_is():
    error = errors.Conflict("x")

    assert translate(error, "table a.t") is error


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Path does not exist: file:/tmp/a/b.parquet.", "Path does not exist: <file>."),
        ("cannot open /var/lib/x/y.db", "cannot open <file>"),
        ("at s3a://bucket/key?sig=1, retry", "at <address>, retry"),
        ("jdbc:postgresql://u:p@h/db failed", "<address> failed"),
        ("no route to 10.1.2.3:7077", "no route to <host>"),
        ("no route to node-1.example.org:7077", "no route to <host>"),
        ("password=hunter2 rejected", "password=<hidden> rejected"),
        (
            "a / b, 1/0 and x/y at 2020-01-01T00:00:00+00:00",
            "a / b, 1/0 and x/y at 2020-01-01T00:00:00+00:00",
        ),
        ("`lake`.`a`.`t` has [`id`, `v`]", "`lake`.`a`.`t` has [`id`, `v`]"),
    ],
)
def test_what_is_nobodys_business_is_taken_out(text, expected):
    assert scrubbed(text) == expected
