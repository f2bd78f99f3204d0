"""Any relation of Spark, read by its workers and passed on."""

import sys
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark import cloudpickle
from tests.spark.spark_jobs import running, wait_for

from sparkport.catalog import Cancellation, Context
from sparkport.errors import BadRequest, Cancelled
from sparkport.service.framing import ScanFraming
from sparkport.spark.jvm.relay import relayed_scan
from sparkport.spark.jvm.relay.relations import scan_relation, scan_relation_batches
from sparkport.spark.jvm.relay.relay import Relay
from sparkport.wire.flight_data import BatchReader, decode_flight_data, encode_schema


@pytest.fixture
def relay(spark: Any) -> Iterator[Relay]:
    relay = Relay.of(spark)
    yield relay
    relay.release()


def decoded(messages: Iterable[bytes], arrow_schema: pa.Schema) -> pa.Table:
    """The batches that a client decodes from the messages, fully validated."""
    reader = BatchReader(decode_flight_data(encode_schema(arrow_schema)))
    batches = [reader.read(decode_flight_data(message)) for message in messages]
    return pa.Table.from_batches([each for each in batches if each is not None], arrow_schema)


def framed(
    relay: Relay, df: Any, arrow_schema: pa.Schema, wanted: Any = None, convert: Any = None
) -> pa.Table:
    framing = ScanFraming(arrow_schema, wanted, "s.v")
    return decoded(
        scan_relation(relay, Context(), "view s.v", df, framing, convert), framing.arrow_schema
    )


NUMBERS = pa.schema([("id", pa.int64()), ("half", pa.float64()), ("name", pa.string())])


def numbers(spark: Any, count: int) -> Any:
    return spark.range(0, count, 1, 3).selectExpr("id", "id / 2 AS half", "concat('n', id) AS name")


def test_all_rows_of_a_query_arrive(relay, spark):
    rows = framed(relay, numbers(spark, 100_000), NUMBERS)

    assert rows.num_rows == 100_000
    assert pc.sum(rows.column("id")).as_py() == sum(range(100_000))
    assert pc.all(
        pc.equal(rows.column("half"), pc.divide(rows.column("id").cast(pa.float64()), 2.0))
    ).as_py()
    assert pc.count_distinct(rows.column("name")).as_py() == 100_000


def test_columns_that_nobody_wants_are_null(relay, spark):
    rows = framed(relay, numbers(spark, 1000), NUMBERS, wanted=(2,))

    assert [str(field.type) for field in rows.schema] == ["null", "null", "string"]
    assert sorted(rows.column("name").to_pylist()) == sorted(f"n{each}" for each in range(1000))


def test_columns_come_in_any_order(relay, spark):
    rows = framed(relay, numbers(spark, 10).select("name", "half", "id"), NUMBERS)

    assert sorted(rows.column("id").to_pylist()) == list(range(10))
    assert rows.schema.names == ["id", "half", "name"]


def test_a_query_without_rows(relay, spark):
    assert framed(relay, numbers(spark, 10).where("id < 0"), NUMBERS).num_rows == 0
    assert (
        framed(
            relay, spark.createDataFrame([], "id long"), pa.schema([("id", pa.int64())])
        ).num_rows
        == 0
    )


def test_a_column_of_nothing_but_nulls(relay, spark):
    arrow_schema = pa.schema([("nothing", pa.null()), ("id", pa.int64())])
    df = spark.sql("SELECT NULL AS nothing, id FROM range(3)")

    assert framed(relay, df, arrow_schema).column("nothing").to_pylist() == [None] * 3
    assert framed(relay, df, arrow_schema, wanted=(0,)).num_rows == 3
    assert framed(relay, df.select("nothing"), arrow_schema.remove(1)).num_rows == 3


def test_names_may_be_strange(relay, spark):
    arrow_schema = pa.schema([("a.b", pa.int64()), ("c`d", pa.int64()), ("é x", pa.int64())])
    df = spark.sql("SELECT id AS `a.b`, id AS `c``d`, id AS `é x` FROM range(3)")

    assert sorted(framed(relay, df, arrow_schema, wanted=(1,)).column(1).to_pylist()) == [0, 1, 2]


ALL = """
    SELECT CAST(1 AS tinyint) AS i8, CAST(2 AS smallint) AS i16, 3 AS i32,
        CAST(1.5 AS float) AS f32, true AS yes,
        CAST(12.34 AS decimal(10, 2)) AS money, CAST('x' AS binary) AS raw, date'2020-02-03' AS day,
        timestamp'2020-02-03 04:05:06.789' AS instant,
        timestamp_ntz'2020-02-03 04:05:06.789' AS clock,
        array(1, NULL, 3) AS list, map('k', 1) AS map,
        named_struct('x', 1, 'y', array('z')) AS struct,
        interval '1 02:03:04' day to second AS span, CAST(NULL AS string) AS nothing
"""


@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_every_type_arrives_as_spark_has_it(relay, spark, zone):
    from pyspark.sql.pandas.types import to_arrow_schema

    session = spark.newSession()
    session.conf.set("spark.sql.session.timeZone", zone)
    df = session.sql(ALL)
    rows = framed(relay, df, to_arrow_schema(df.schema))
    expected = df.toArrow()

    for name in rows.schema.names:
        assert (
            rows.column(name).cast(expected.schema.field(name).type).equals(expected.column(name))
        ), name


def test_types_that_look_alike_are_not_converted(relay, spark):
    """An instant has no zone of its own, names inside a list mean nothing, and JSON is text."""
    arrow_schema = pa.schema(
        [
            pa.field("instant", pa.timestamp("us", "Europe/Berlin"), nullable=False),
            pa.field("list", pa.list_(pa.field("entry", pa.int32(), nullable=False))),
            pa.field("text", pa.json_()),
        ]
    )
    df = spark.sql(
        "SELECT timestamp'2020-01-01 00:00:00Z' AS instant, array(1) AS list, '{}' AS text"
    )
    rows = framed(relay, df, arrow_schema)

    assert rows.schema.types == arrow_schema.types
    assert rows.column("instant")[0].as_py().timestamp() == 1577836800
    assert rows.column("list").to_pylist() == [[1]]


def test_other_types_are_cast(relay, spark):
    arrow_schema = pa.schema(
        [("id", pa.uint32()), ("clock", pa.timestamp("s")), ("name", pa.large_string())]
    )
    df = spark.sql(
        "SELECT id, timestamp_ntz'2020-01-01 00:00:00' AS clock, 'x' AS name FROM range(3)"
    )

    assert sorted(framed(relay, df, arrow_schema).column("id").to_pylist()) == [0, 1, 2]


class Uuids:
    """Converts texts to UUIDs."""

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        values = [uuid.UUID(each).bytes for each in batch.column("key").to_pylist()]
        array = pa.ExtensionArray.from_storage(pa.uuid(), pa.array(values, pa.binary(16)))
        return pa.record_batch([array], names=["key"])


def test_a_converter_runs_in_the_workers(relay, spark):
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    arrow_schema = pa.schema([("key", pa.uuid()), ("id", pa.int64())])
    df = spark.sql("SELECT '00000000-0000-0000-0000-00000000000' || id AS key, id FROM range(3)")

    rows = framed(relay, df, arrow_schema, wanted=(0,), convert=Uuids())

    assert sorted(each.int for each in rows.column("key").to_pylist()) == [0, 1, 2]


def test_batches_for_those_who_look_at_them(relay, spark):
    arrow_schema = pa.schema([("id", pa.int64()), ("name", pa.large_string())])
    batches = list(
        scan_relation_batches(relay, Context(), "view s.v", numbers(spark, 100), arrow_schema)
    )

    assert all(batch.schema.equals(arrow_schema) for batch in batches)
    rows = pa.Table.from_batches(batches).to_pydict()
    assert sorted(rows["id"]) == list(range(100))


def test_joins_aggregates_and_subqueries(relay, spark):
    """Adaptive execution runs the first stages before it knows how many tasks the last has."""
    session = spark.newSession()  # so that no other test sees the views
    session.range(1000).selectExpr("id", "id % 10 AS k").createOrReplaceTempView("left_rows")
    session.range(10).selectExpr("id AS k", "concat('k', id) AS name").createOrReplaceTempView(
        "right_rows"
    )
    df = session.sql(
        "SELECT name, count(*) AS n FROM left_rows JOIN right_rows USING (k)"
        " WHERE id < (SELECT max(id) FROM left_rows) GROUP BY name ORDER BY name"
    )
    rows = framed(relay, df, pa.schema([("name", pa.string()), ("n", pa.int64())]))

    assert rows.to_pylist() == [
        {"name": f"k{each}", "n": 99 if each == 9 else 100} for each in range(10)
    ]


def test_rows_that_are_sorted_arrive_in_their_order(relay, spark):
    session = spark.newSession()
    session.conf.set("spark.sql.adaptive.enabled", "false")
    session.conf.set("spark.sql.shuffle.partitions", "5")
    df = (
        session.range(0, 50_000, 1, 7)
        .selectExpr("id", "hash(id) AS h")
        .orderBy("h")
        .where("id >= 0")
        .select("h")
    )
    hashes = framed(relay, df, pa.schema([("h", pa.int32())])).column("h").to_pylist()

    assert len(hashes) == 50_000
    assert hashes == sorted(hashes)


def test_wide_rows_are_sent_in_messages_of_a_good_size(relay, spark):
    df = spark.range(0, 2000, 1, 1).selectExpr("repeat('x', 10000) AS text")
    framing = ScanFraming(pa.schema([("text", pa.string())]), None, "s.v")
    messages = list(scan_relation(relay, Context(), "view s.v", df, framing))

    assert len(messages) > 5
    assert max(map(len, messages)) < 5_000_000
    assert decoded(messages, framing.arrow_schema).num_rows == 2000


@pytest.mark.parametrize("partitions", [1, 3])
def test_a_query_that_fails_halfway_says_why(relay, spark, partitions, monkeypatch):
    """The workers must not take the end of their input for the end of the rows."""
    monkeypatch.setattr(relayed_scan, "_RETRY", 300.0)  # all attempts fail before that
    df = spark.range(0, 100_000, 1, partitions).selectExpr(
        "IF(id < 90000, id, raise_error('no such luck')) AS id"
    )

    with pytest.raises(BadRequest, match="no such luck") as caught:
        framed(relay, df, pa.schema([("id", pa.int64())]))
    assert "Traceback" not in caught.value.message


def test_closing_the_reader_stops_the_query(relay, spark):
    df = spark.range(0, 10**12, 1, 2)
    messages = scan_relation(
        relay, Context(), "view s.v", df, ScanFraming(pa.schema([("id", pa.int64())]), None, "s.v")
    )
    next(messages)
    assert wait_for(lambda: running(spark) > 0)

    messages.close()

    assert wait_for(lambda: not running(spark))


def test_cancelling_stops_a_query_that_has_given_nothing_yet(relay, spark):
    ctx = Context(cancellation=Cancellation())
    df = spark.range(0, 10**12, 1, 2).where("id < 0")
    messages = scan_relation(
        relay, ctx, "view s.v", df, ScanFraming(pa.schema([("id", pa.int64())]), None, "s.v")
    )
    _later(1.0, ctx.cancellation.cancel)

    with pytest.raises(Cancelled):
        next(messages)

    assert wait_for(lambda: not running(spark))


def _later(seconds: float, action: Callable[[], None]) -> None:
    threading.Timer(seconds, action).start()
