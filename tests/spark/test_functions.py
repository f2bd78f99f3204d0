"""The functions of the lake: queries in Spark SQL, Iceberg's metadata, functions of Spark SQL."""

import datetime
import threading
import time
from contextlib import ExitStack
from decimal import Decimal

import pyarrow as pa
import pytest
from tests.spark.calling import Caller

import sparkport as sp
from sparkport import errors
from sparkport.catalog import Context, ScanOptions, Stability
from sparkport.catalog.filters import (
    ColumnRef,
    Comparison,
    ComparisonKind,
    Constant,
    DuckType,
    Filter,
)
from sparkport.spark import LakeCatalog
from sparkport.spark.functions.query_arguments import markers
from sparkport.spark.jvm.result_columns import distinct_names
from sparkport.testing import DuckDBClient, ServerError


@pytest.fixture
def caller(lake, namespace):
    return Caller(lake, namespace)


@pytest.fixture
def table(spark, lake, namespace):
    name = f"{lake.spark_catalog}.{namespace}.t"
    spark.sql(
        f"CREATE TABLE {name} (id BIGINT, v STRING) USING iceberg TBLPROPERTIES ('format-version' "
        "= '3')"
    )
    spark.sql(f"INSERT INTO {name} VALUES (1, 'x'), (2, 'y')")
    return name


def test_spark_sql_reads_tables_of_its_schema_by_their_plain_names(caller, table):
    found = caller.sql("SELECT id, upper(v) AS v FROM t ORDER BY id")

    assert sorted(found.to_pylist(), key=str) == [{"id": 1, "v": "X"}, {"id": 2, "v": "Y"}]


def test_spark_sql_sees_what_others_commit(caller, spark, table):
    assert caller.sql("SELECT count(*) AS n FROM t")["n"].to_pylist() == [2]
    spark.sql(f"INSERT INTO {table} VALUES (3, 'z')")
    assert caller.sql("SELECT count(*) AS n FROM t")["n"].to_pylist() == [3]


def test_the_session_of_the_lake_is_not_disturbed(caller, spark, table):
    before = spark.catalog.currentCatalog(), spark.catalog.currentDatabase()
    caller.sql("SELECT 1 AS a FROM t")
    assert (spark.catalog.currentCatalog(), spark.catalog.currentDatabase()) == before
    assert spark.sql("SELECT reflect('java.lang.Math', 'abs', -1) AS a").collect()[0].a == "1"


def test_columns_and_rows_are_chosen_by_spark(caller, table):
    kept = Filter(
        (
            Comparison(
                ComparisonKind.EQUAL,
                ColumnRef("id", DuckType("BIGINT")),
                Constant(DuckType("BIGINT"), 2),
            ),
        )
    )

    found = caller.sql("SELECT * FROM t", options=ScanOptions(columns=("v",), filter=kept))

    assert found.to_pylist() == [{"v": "y"}]


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO t VALUES (9, 'no')",
        "WITH c AS (SELECT 9 AS id, 'no' AS v) INSERT INTO t SELECT * FROM c",
        "FROM t INSERT INTO t SELECT * INSERT INTO t SELECT *",
        "UPDATE t SET id = 9",
        "DELETE FROM t",
        "MERGE INTO t USING t AS s ON false WHEN NOT MATCHED THEN INSERT *",
        "CREATE TABLE u AS SELECT 1 AS a",
        "CREATE VIEW w AS SELECT 1 AS a",
        "CREATE TEMPORARY VIEW w AS SELECT 1 AS a",
        "DROP TABLE t",
        "TRUNCATE TABLE t",
        "ALTER TABLE t ADD COLUMN w INT",
        "ALTER TABLE t CREATE BRANCH b",
        "CALL system.rewrite_data_files('t')",
        "SET spark.sql.ansi.enabled = false",
        "USE spark_catalog",
        "CACHE TABLE t",
        "EXECUTE IMMEDIATE 'DROP TABLE t'",
        "BEGIN DROP TABLE t; END",
        "EXPLAIN SELECT 1",
        "ADD JAR 'x.jar'",
        "DECLARE x INT",
        "/* SELECT */ DROP TABLE t -- SELECT",
        "SELECT TRANSFORM(id) USING 'cat' AS x FROM t",
        "WITH c AS (SELECT TRANSFORM(id) USING 'cat' AS x FROM t) SELECT * FROM c",
        "SELECT * FROM t WHERE id IN (SELECT TRANSFORM(id) USING 'cat' AS x FROM t)",
    ],
)
def test_what_is_no_query_is_refused_and_not_run(caller, table, statement):
    with pytest.raises(errors.BadRequest, match="spark_sql reads only"):
        caller.sql(statement)

    assert caller.sql("SELECT * FROM t").num_rows == 2


@pytest.mark.parametrize(
    "query",
    [
        "SELECT reflect('java.lang.System', 'getProperty', 'user.home')",
        "SELECT * FROM text.`/etc/hostname`",
    ],
)
def test_what_reaches_past_the_tables_is_not_found(caller, query):
    with pytest.raises(errors.NotFound):
        caller.sql(query)


@pytest.mark.parametrize(
    "query",
    [
        "FROM (VALUES (1)) AS v(a)",
        "WITH c AS (SELECT 1 AS a) SELECT * FROM c",
        "(SELECT 1 AS a)",
        "VALUES (1);",
    ],
)
def test_every_form_of_a_query_is_one(caller, query):
    assert caller.sql(query).num_rows == 1


@pytest.mark.parametrize(
    ("query", "error", "words"),
    [
        ("SELEC 1", errors.BadRequest, "Syntax error at or near 'SELEC'"),
        ("SELECT 1; DROP TABLE t", errors.BadRequest, "extra input 'DROP'"),
        ("SELECT nope FROM t", errors.NotFound, "Did you mean"),
        ("SELECT * FROM nope", errors.NotFound, "cannot be found"),
        ("", errors.BadRequest, "needs a query"),
        (None, errors.BadRequest, "needs a query"),
    ],
)
def test_a_query_that_spark_does_not_understand_fails_before_it_runs(
    caller, table, query, error, words
):
    with pytest.raises(error, match=words):
        caller.function("spark_sql").schema_for_parameters(Context(), [query])


def test_a_query_that_fails_while_it_runs_fails_the_stream(caller):
    with pytest.raises(
        errors.BadRequest, match=r"^spark_sql: \[USER_RAISED_EXCEPTION\] so it goes$"
    ):
        caller.sql("SELECT IF(id = 7, raise_error('so it goes'), id) AS id FROM range(10)")
    assert caller.sql("SELECT 1 AS a").to_pylist() == [{"a": 1}]


def test_a_query_that_fails_after_some_rows_fails_the_stream(caller):
    # By the time Spark starts the task again, some of its rows have gone to the client.
    with pytest.raises((errors.BadRequest, errors.Conflict), match=r"^spark_sql: "):
        caller.sql(
            "SELECT IF(id = 190000, raise_error('halfway'), id) AS id FROM range(0, 200000, 1, 2)"
        )
    assert caller.sql("SELECT 1 AS a").to_pylist() == [{"a": 1}]


def test_markers_stand_for_typed_values(caller, table):
    values = pa.array(
        [
            {
                "id": 2,
                "v": "y",
                "d": Decimal("1.50"),
                "t": datetime.date(2020, 1, 2),
                "n": None,
                "l": [1, 2],
            }
        ]
    )

    found = caller.sql(
        "SELECT id, :d AS d, :t AS t, :n AS n, :l AS l FROM t WHERE id = :id AND v = :v", values
    )

    expected = {
        "id": 2,
        "d": Decimal("1.50"),
        "t": datetime.date(2020, 1, 2),
        "n": None,
        "l": [1, 2],
    }
    assert found.to_pylist() == [expected]


def test_markers_stand_for_text_of_a_map_and_for_values_in_order(caller, table):
    texts = pa.array([[("id", "2")]], pa.map_(pa.string(), pa.string()))

    assert caller.sql("SELECT v FROM t WHERE id = :id", texts).to_pylist() == [{"v": "y"}]
    assert caller.sql("SELECT v FROM t WHERE id = ?", pa.array([[1]])).to_pylist() == [{"v": "x"}]


def test_times_are_passed_as_the_instants_they_are(caller):
    moment = datetime.datetime(2020, 1, 2, 3, 4, 5, 678901)
    values = pa.StructArray.from_arrays(
        [
            pa.array([moment], pa.timestamp("us")),
            pa.array([moment], pa.timestamp("us", "Europe/Berlin")),
        ],
        ["n", "z"],
    )

    found = caller.sql("SELECT :n AS n, :z AS z", values)

    assert found.schema.field("n").type == pa.timestamp("us")
    assert found.to_pylist() == [{"n": moment, "z": moment.replace(tzinfo=datetime.timezone.utc)}]


def test_dates_before_the_year_1000_are_passed_as_they_are(caller):
    day = datetime.date(987, 6, 5)
    assert caller.sql("SELECT ? AS d", pa.array([[day]])).to_pylist() == [{"d": day}]


@pytest.mark.parametrize(
    "beyond",
    [
        pa.array([4_000_000], pa.date32()),
        pa.array([2**60], pa.timestamp("us")),
        pa.array([2**60], pa.timestamp("us", "UTC")),
    ],
)
def test_years_that_python_lacks_are_refused(beyond):
    with pytest.raises(errors.BadRequest, match="pass it as text"):
        markers(pa.ListArray.from_arrays([0, 1], beyond)[0])


def test_a_marker_without_a_value_is_told(caller):
    with pytest.raises(errors.BadRequest, match="unbound parameter: x"):
        caller.sql("SELECT :x")


def test_arguments_of_other_shapes_are_refused(lake):
    with pytest.raises(errors.BadRequest, match="takes its arguments as"):
        markers(pa.scalar(5))


def test_columns_get_names_and_types_that_duckdb_has(caller):
    found = caller.sql(
        'SELECT 1 AS a, 2 AS a, 3 AS A, count(*), NULL AS n, array() AS e, parse_json(\'{"k": '
        "[1]}') AS v,"
        " INTERVAL '14' MONTH AS m, INTERVAL '1' DAY AS d, named_struct('q', NULL, 'w', "
        "parse_json('[1]')) AS s"
    )

    assert found.schema.names == ["a", "a_1", "A_2", "count(1)", "n", "e", "v", "m", "d", "s"]
    [row] = found.to_pylist()
    assert (row["a"], row["a_1"], row["A_2"], row["n"], row["e"], row["v"]) == (
        1,
        2,
        3,
        None,
        [],
        '{"k":[1]}',
    )
    assert row["m"] == "INTERVAL '14' MONTH"
    assert row["d"] == datetime.timedelta(days=1)
    assert row["s"] == {"q": None, "w": "[1]"}


def test_names_are_made_distinct_as_duckdb_compares_them():
    assert distinct_names(["a", "A", "a_1", "", "é", "É"]) == [
        "a",
        "A_1",
        "a_1_1",
        "column3",
        "é",
        "É",
    ]


def test_a_cancelled_call_stops_the_job(caller, spark):
    ctx = Context()
    function = caller.function("spark_sql")
    query = "SELECT count(*) AS n FROM range(0, 100000000000, 1, 2) WHERE id % 7 = rand()"
    caught = []

    def run():
        try:
            list(function.execute(ctx, [query], ScanOptions()))
        except errors.SparkportError as error:
            caught.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    tracker, deadline = spark.sparkContext.statusTracker(), time.monotonic() + 60
    while not tracker.getActiveJobsIds() and time.monotonic() < deadline:
        time.sleep(0.05)
    ctx.cancellation.cancel()
    thread.join(timeout=30)

    assert not thread.is_alive()
    assert isinstance(caught[0], errors.Cancelled)
    while tracker.getActiveJobsIds() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not tracker.getActiveJobsIds()


def test_the_steps_of_one_scan_read_what_was_planned(caller, spark, table):
    function, ctx = caller.function("spark_sql"), Context(trace_id="one scan")
    columns = function.schema_for_parameters(ctx, ["SELECT * FROM t"])
    spark.sql(f"ALTER TABLE {table} ADD COLUMN w INT")

    assert function.schema_for_parameters(ctx, ["SELECT * FROM t"]) == columns
    assert (
        "w"
        in function.schema_for_parameters(Context(trace_id="another"), ["SELECT * FROM t"]).names
    )


def test_duckdb_calls_the_functions(lake, namespace, table):
    with ExitStack() as stack:
        server = sp.Server(
            lake, "grpc://127.0.0.1:0", sp.ServerSettings(idle_thread_seconds=0.05)
        ).start()
        stack.callback(server.stop, 0)
        client = stack.enter_context(DuckDBClient(server.location, lake.name, timeout=60.0))

        def called(name, *arguments, **named):
            return client.table_function(namespace, name, *arguments, named=named).to_pylist()

        texts = pa.scalar([("i", "2")], pa.map_(pa.string(), pa.string()))
        assert called("spark_sql", "SELECT v FROM t WHERE id = 1") == [{"v": "x"}]
        assert called("spark_sql", "SELECT v FROM t WHERE id = :i", args=texts) == [{"v": "y"}]
        assert called("spark_sql", "SELECT v FROM t WHERE id = :i", {"i": 2}) == [{"v": "y"}]
        assert [each["change"] for each in called("history", "t")] == ["create", "append"]
        assert [each["version"] for each in called("snapshots", "t")] == [1]
        assert sum(each["rows"] for each in called("files", "t")) == 2
        with pytest.raises(ServerError, match="spark_sql reads only"):
            called("spark_sql", "DROP TABLE t")


# ---------------------------------------------------------------------------------------- metadata


@pytest.fixture
def changed(spark, table):
    spark.sql(f"ALTER TABLE {table} ADD COLUMN w INT")
    spark.sql(f"INSERT INTO {table} VALUES (3, 'z', 1)")
    spark.sql(f"ALTER TABLE {table} CREATE TAG first")
    spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('a' = 'b')")
    return table


def test_snapshots_are_listed_with_their_versions(caller, changed):
    found = caller.call("snapshots", "t")

    assert found["version"].to_pylist() == [1, 3]
    assert found["operation"].to_pylist() == ["append", "append"]
    assert found["is_current"].to_pylist() == [False, True]
    assert found["tags"].to_pylist() == [[], ["first"]]
    assert found["branches"].to_pylist() == [[], ["main"]]
    assert found["parent_id"].to_pylist() == [None, found["snapshot_id"][0].as_py()]
    assert dict(found["summary"][1].as_py())["added-records"] == "1"
    assert caller.function("snapshots").estimated_rows(Context(), ["t"]) == 2


def test_history_tells_what_each_change_changed(caller, changed):
    found = caller.call("history", "t")

    assert found["version"].to_pylist() == [0, 1, 2, 3], (
        "a tag and a setting of Iceberg change nothing that is shown"
    )
    assert found["change"].to_pylist() == ["create", "append", "columns", "append"]
    assert found["schema_id"].to_pylist() == [0, 0, 1, 1]
    assert found["snapshot_id"].to_pylist() == [
        None,
        *caller.call("snapshots", "t")["snapshot_id"].to_pylist()[:1] * 2,
        caller.call("snapshots", "t")["snapshot_id"][1].as_py(),
    ]
    assert caller.function("history").estimated_rows(Context(), ["t"]) == 4


def test_history_tells_rollbacks_comments_and_constraints(caller, changed, spark, lake):
    name = changed.rpartition(".")[0].rpartition(".")[2]
    first = caller.call("snapshots", "t")["snapshot_id"][0].as_py()
    spark.sql(f"CALL {lake.spark_catalog}.system.set_current_snapshot('{name}.t', {first})")
    spark.sql(f"COMMENT ON TABLE {changed} IS 'a table'")
    spark.sql(f"ALTER TABLE {changed} CREATE BRANCH b")
    spark.sql(f"INSERT INTO {changed}.branch_b VALUES (9, 'q', 1)")
    found = caller.call("history", "t")

    assert found["version"].to_pylist()[4:] == [4, 5]
    assert found["change"].to_pylist()[4:] == ["rollback", "comment"]


def test_files_are_listed_with_their_partitions(caller, lake, spark, namespace):
    name = f"{lake.spark_catalog}.{namespace}.p"
    spark.sql(
        f"CREATE TABLE {name} (id BIGINT, day DATE) USING iceberg PARTITIONED BY (day)"
        " TBLPROPERTIES ('format-version' = '3', 'write.delete.mode' = 'merge-on-read')"
    )
    spark.sql(
        f"INSERT INTO {name} VALUES (1, DATE '2020-01-02'), (2, DATE '2020-01-02'), (3, NULL)"
    )
    spark.sql(f"DELETE FROM {name} WHERE id = 1")

    found = (
        caller.call("files", "p")
        .sort_by([("content", "ascending"), ("rows", "ascending")])
        .to_pylist()
    )

    assert [(each["content"], each["rows"], each["partition"]) for each in found] == [
        ("data", 1, "day=null"),
        ("data", 2, "day=2020-01-02"),
        ("delete vector", 1, "day=2020-01-02"),
    ]
    assert found[2]["data_file"] == found[1]["path"]
    assert dict(found[0]["null_counts"]) == {"id": 0, "day": 1}
    assert all(each["bytes"] > 0 for each in found)
    assert [(each["deleted_rows"], each["is_small"]) for each in found] == [
        (0, True),
        (1, True),
        (None, None),
    ]
    assert caller.function("files").estimated_rows(Context(), ["p"]) == 3


def test_a_new_table_has_no_files_and_no_snapshots(caller, lake, spark, namespace):
    spark.sql(f"CREATE TABLE {lake.spark_catalog}.{namespace}.e (id BIGINT) USING iceberg")

    assert caller.call("files", "e").num_rows == 0
    assert caller.call("snapshots", "e").num_rows == 0
    assert caller.call("history", "e")["change"].to_pylist() == ["create"]


def test_tables_are_named_alone_or_with_their_schema(lake, caller, namespace, table, spark):
    other = f"{namespace}_other"
    spark.sql(f"CREATE NAMESPACE {lake.spark_catalog}.{other}")

    assert Caller(lake, other).call("history", f"{namespace}.t").num_rows == 2
    assert caller.call("history", "T").num_rows == 2
    with pytest.raises(errors.NotFound, match="table t does not exist"):
        Caller(lake, other).call("history", "t")
    with pytest.raises(errors.NotFound, match="needs the name of a table"):
        caller.function("files").schema_for_parameters(Context(), [None])


def test_a_view_has_no_snapshots(caller, lake, spark, namespace, table):
    spark.sql(f"CREATE VIEW {lake.spark_catalog}.{namespace}.w AS SELECT 1 AS a")

    with pytest.raises(errors.Unsupported, match="not an Iceberg table"):
        caller.call("snapshots", "w")


# ------------------------------------------------------------------------ functions defined in SQL


@pytest.fixture(scope="module")
def defined(lake):
    """Functions in Spark's session catalog, made in a session whose parser can define them."""
    from sparkport.spark.functions.sql_functions import session_without_extensions

    session = session_without_extensions(lake.spark, "default")
    session.sql("CREATE DATABASE IF NOT EXISTS functions_of_tests")
    session.sql("USE functions_of_tests")
    session.sql(
        "CREATE FUNCTION weigh(x INT, y STRING DEFAULT 'q') RETURNS INT COMMENT 'weighs' RETURN x "
        "+ length(y)"
    )
    session.sql(
        "CREATE FUNCTION later(t TIMESTAMP_NTZ) RETURNS TIMESTAMP_NTZ RETURN t + INTERVAL '1' DAY"
    )
    session.sql("CREATE FUNCTION half() RETURNS DOUBLE RETURN 0.5D")
    session.sql("CREATE FUNCTION noise() RETURNS DOUBLE NOT DETERMINISTIC RETURN rand()")
    session.sql(
        "CREATE FUNCTION pairs(n INT) RETURNS TABLE (a INT, b STRING) RETURN SELECT n, 'x' UNION "
        "ALL SELECT n + 1, 'y'"
    )
    catalog = LakeCatalog(spark=lake.spark, spark_catalog="spark_catalog", name="session")
    yield Caller(catalog, "functions_of_tests")
    for name in ("weigh", "later", "half", "noise", "pairs"):
        session.sql(f"DROP FUNCTION functions_of_tests.{name}")
    session.sql("DROP DATABASE functions_of_tests")
    catalog.close()


def test_a_scalar_function_is_computed_in_the_order_of_its_rows(defined):
    function = defined.function("weigh", 2)
    batch = pa.record_batch(
        {"x": pa.array(range(1000), pa.int32()), "y": pa.array(["ab"] * 999 + [None])}
    )

    found = function.execute(Context(), batch)

    assert function.comment == "weighs"
    assert function.signature.return_type == pa.int32()
    assert found.to_pylist() == [*range(2, 1001), None]


def test_a_default_is_left_to_spark(defined):
    found = defined.function("weigh", 1).execute(
        Context(), pa.record_batch({"x": pa.array([1], pa.int32())})
    )

    assert found.to_pylist() == [2]


def test_times_keep_their_clock(defined):
    moment = datetime.datetime(2020, 1, 2, 3, 4, 5)
    found = defined.function("later").execute(
        Context(), pa.record_batch({"t": pa.array([moment], pa.timestamp("us"))})
    )

    assert found.type == pa.timestamp("us")
    assert found.to_pylist() == [moment + datetime.timedelta(days=1)]


def test_a_function_that_fails_says_why(defined):
    batch = pa.record_batch({"x": pa.array([2**31 - 1], pa.int32())})

    with pytest.raises(
        errors.BadRequest, match=r"function functions_of_tests.weigh: \[ARITHMETIC_OVERFLOW\]"
    ):
        defined.function("weigh", 1).execute(Context(), batch)


def test_functions_say_how_stable_they_are(defined):
    assert defined.function("half").stability is Stability.CONSISTENT
    assert defined.function("noise").stability is Stability.VOLATILE


def test_a_function_without_parameters_is_computed_for_each_row(defined):
    rows = pa.RecordBatch.from_struct_array(pa.array([{}, {}, {}], pa.struct([])))

    assert defined.function("half").execute(Context(), rows).to_pylist() == [0.5, 0.5, 0.5]


def test_a_table_function_is_a_query(defined):
    found = defined.call("pairs", pa.array([5], pa.int32()))

    assert sorted(found.to_pylist(), key=str) == [{"a": 5, "b": "x"}, {"a": 6, "b": "y"}]


def test_an_iceberg_catalog_has_no_functions_of_its_own(caller):
    scalars = {each.name for each in caller.schema.scalar_functions(Context())}
    assert scalars == {"lake_begin", "lake_commit", "lake_rollback", "spark_run"}
    names = {each.name for each in caller.schema.table_functions(Context())}
    care = {"optimize", "expire_snapshots", "rollback_to", "tag", "table_changes", "set_care"}
    told = {"snapshots", "files", "history", "views", "care"}
    assert names == {"spark_sql", "spark_run", *told, "upsert", "merge_delete", *care}


def test_the_functions_of_a_schema_stay_the_same_objects(caller):
    first, second = (
        caller.schema.table_functions(Context()),
        caller.schema.table_functions(Context()),
    )

    assert all(one is other for one, other in zip(first, second, strict=True))
