"""Statistics from manifests: sound whatever a file leaves open, never narrower than its rows."""

from __future__ import annotations

import datetime
import json
import math
import struct
import uuid
from collections.abc import Mapping, Sequence
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.conversions import to_bytes
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    DoubleType,
    FloatType,
    IcebergType,
    ListType,
    LongType,
    NestedField,
    StringType,
    TimestampType,
    TimestamptzNanoType,
    TimeType,
    UUIDType,
)
from pyiceberg.utils.truncate import truncate_upper_bound_text_string
from tests.spark.lake_tables import find
from tests.wire.arrow_values import HUGEINT, TIME_TZ

from sparkport.catalog import ColumnStatistics
from sparkport.errors import NotFound
from sparkport.spark import LakeSettings
from sparkport.spark.iceberg.column_statistics import column_statistics, statistics_of
from sparkport.spark.iceberg.identifiers import Identifier
from sparkport.spark.iceberg.manifests import DATA, EQUALITY_DELETES, ManifestEntry
from sparkport.spark.iceberg.table_state import States, TableState
from sparkport.spark.iceberg.types.declared import (
    TYPES_PROPERTY,
    encode,
    stored_schema,
    written_type_tags,
)
from sparkport.spark.table import LakeTable

_NAN = struct.pack("<d", math.nan)


def _state(schema: Schema, type_tags: Mapping[int, str] | None = None) -> TableState:
    """A table without a snapshot: the tests pass its files."""
    metadata = {
        "format-version": 3,
        "table-uuid": str(uuid.uuid4()),
        "location": "file:///nowhere",
        "last-sequence-number": 0,
        "last-updated-ms": 0,
        "last-column-id": schema.highest_field_id,
        "schemas": [json.loads(schema.model_dump_json())],
        "current-schema-id": schema.schema_id,
        "partition-specs": [{"spec-id": 0, "fields": []}],
        "default-spec-id": 0,
        "last-partition-id": 999,
        "sort-orders": [{"order-id": 0, "fields": []}],
        "default-sort-order-id": 0,
        "next-row-id": 0,
        "properties": {TYPES_PROPERTY: written_type_tags(type_tags or {})},
    }
    return States().add(Identifier("lake", ("s",), "t"), "nowhere", json.dumps(metadata), None)


def _declared(kind: pa.DataType) -> TableState:
    return _state(*stored_schema(pa.schema([("v", kind)])))


def _plain(kind: IcebergType) -> TableState:
    return _state(Schema(NestedField(1, "v", kind, required=False)))


def _file(
    lower: bytes | None = None,
    upper: bytes | None = None,
    *,
    rows: int = 10,
    values: int | None = 10,
    nulls: int | None = 0,
    nans: int | None = None,
    content: int = DATA,
) -> ManifestEntry:
    """A file whose only column has these metrics; None stands for a missing metric."""

    def of(value: Any) -> dict[int, Any]:
        return {} if value is None else {1: value}

    return ManifestEntry(
        snapshot_id=1,
        sequence_number=1,
        content=content,
        path="file",
        format="PARQUET",
        partition={},
        rows=rows,
        size=1,
        column_sizes={},
        value_counts=of(values),
        null_counts=of(nulls),
        nan_counts=of(nans),
        lower_bounds=of(lower),
        upper_bounds=of(upper),
        encrypted=False,
        split_offsets=(),
        first_row_id=None,
        referenced_data_file=None,
        content_offset=None,
        content_length=None,
    )


def _of(state: TableState, *entries: ManifestEntry) -> ColumnStatistics:
    return statistics_of(state, entries, 0) or ColumnStatistics()


def _bounds(statistics: ColumnStatistics) -> tuple[Any, Any]:
    return tuple(
        None if bound is None else bound.as_py()
        for bound in (statistics.minimum, statistics.maximum)
    )  # type: ignore[return-value]  # of two


def _long(value: int) -> bytes:
    return struct.pack("<q", value)


# ----------------------------------------------------------------------------------- several files


def test_bounds_of_all_files_together_are_the_bounds_of_the_column() -> None:
    found = _of(_plain(LongType()), _file(_long(3), _long(5)), _file(_long(-7), _long(4)))
    assert _bounds(found) == (-7, 5)
    assert (found.has_null, found.has_not_null) == (False, True)


def test_a_table_without_rows_has_neither_nulls_nor_values() -> None:
    for entries in ((), (_file(_long(1), _long(2), rows=0),), (_file(content=EQUALITY_DELETES),)):
        found = _of(_plain(LongType()), *entries)
        assert (found.has_null, found.has_not_null, *_bounds(found)) == (False, False, None, None)


@pytest.mark.parametrize(
    "unmeasured",
    [
        _file(values=None, nulls=None),  # not measured, or from before the column was added
        _file(_long(1), _long(2), values=None),
        _file(_long(1), _long(2), values=9),
        _file(_long(1), _long(2), nulls=11),
        _file(_long(1), _long(2), nulls=-1),
    ],
)
def test_a_file_that_leaves_it_open_leaves_it_open_for_the_column(
    unmeasured: ManifestEntry,
) -> None:
    assert statistics_of(_plain(LongType()), [_file(_long(3), _long(5)), unmeasured], 0) is None


def test_a_missing_bound_leaves_only_that_one_open() -> None:
    found = _of(_plain(LongType()), _file(_long(3), _long(5)), _file(_long(1), None))
    assert _bounds(found) == (1, None)
    found = _of(_plain(LongType()), _file(_long(3), _long(5)), _file(None, _long(9)))
    assert _bounds(found) == (None, 9)


def test_a_missing_null_count_leaves_nulls_open() -> None:
    found = _of(_plain(LongType()), _file(_long(3), _long(5), nulls=None))
    assert (*_bounds(found), found.has_null) == (3, 5, True)


def test_files_with_nothing_but_nulls_do_not_touch_the_bounds() -> None:
    found = _of(_plain(LongType()), _file(_long(3), _long(5)), _file(nulls=10))
    assert (*_bounds(found), found.has_null, found.has_not_null) == (3, 5, True, True)
    found = _of(_plain(LongType()), _file(nulls=10))
    assert (found.has_null, found.has_not_null) == (True, False)


def test_bounds_that_contradict_each_other_are_not_believed() -> None:
    assert _bounds(_of(_plain(LongType()), _file(_long(5), _long(3)))) == (None, None)


# ------------------------------------------------------------------------------------------- types


@pytest.mark.parametrize(
    ("kind", "low", "high"),
    [
        (pa.bool_(), False, True),
        (pa.int8(), -5, 127),
        (pa.uint8(), 0, 255),
        (pa.uint16(), 0, 65535),
        (pa.int32(), -(2**31), 2**31 - 1),
        (pa.uint32(), 1, 2**32 - 1),
        (pa.int64(), -(2**63), 2**63 - 1),
        (pa.uint64(), 0, 2**64 - 1),
        (pa.decimal128(4, 1), Decimal("-999.9"), Decimal("0.0")),
        (
            pa.decimal128(38, 10),
            Decimal("-9999999999999999999999999999.9999999999"),
            Decimal("1.0000000000"),
        ),
        (pa.string(), "a", "ü"),
        (pa.json_(), '{"a": 1}', "{}"),
        (pa.date32(), datetime.date(1, 1, 1), datetime.date(9999, 12, 31)),
        (pa.time64("us"), datetime.time(0), datetime.time(23, 59, 59, 999999)),
        (pa.time32("s"), datetime.time(0), datetime.time(23, 59, 59)),
        (pa.timestamp("us"), datetime.datetime(1, 1, 1), datetime.datetime(9999, 12, 31)),
        (pa.timestamp("s"), datetime.datetime(1, 1, 1), datetime.datetime(9999, 12, 31)),
        (
            pa.timestamp("ms"),
            datetime.datetime(1, 1, 1),
            datetime.datetime(9999, 12, 31, microsecond=1000),
        ),
        (
            pa.timestamp("us", "Etc/UTC"),
            datetime.datetime(1970, 1, 1),
            datetime.datetime(2000, 1, 1),
        ),
    ],
    ids=str,
)
def test_bounds_are_shown_as_the_declared_type(kind: pa.DataType, low: Any, high: Any) -> None:
    state = _declared(kind)
    field, stored = state.definition.columns.field(0), state.schema.fields[0].field_type
    storage = pa.array(
        [low, high], kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind
    )
    declared = pa.ExtensionArray.from_storage(kind, storage) if storage.type != kind else storage
    lower, upper = (_serialised(encode(declared, field, stored)[row], stored) for row in range(2))
    found = _of(state, _file(lower, upper))
    assert found.minimum.equals(declared[0])
    assert found.maximum.equals(declared[1])


def _serialised(stored: pa.Scalar, kind: IcebergType) -> bytes:
    """A bound as Iceberg writes it."""
    value = stored.as_py()
    if pa.types.is_temporal(stored.type):
        value = (
            pa.repeat(stored, 1)
            .view(pa.int32() if stored.type.bit_width == 32 else pa.int64())[0]
            .as_py()
        )
        return struct.pack("<i" if stored.type.bit_width == 32 else "<q", value)
    return to_bytes(kind, value)  # type: ignore[arg-type]  # only primitive ones are asked for


def test_infinite_moments_are_bounds_too() -> None:
    state, infinity = _declared(pa.timestamp("s")), 2**63 - 1
    found = _of(state, _file(_long(-infinity), _long(infinity)))
    assert (found.minimum.value, found.maximum.value) == (-infinity, infinity)


def test_bounds_from_before_a_promotion_are_shorter() -> None:
    assert _bounds(_of(_plain(LongType()), _file(struct.pack("<i", -5), struct.pack("<i", 6)))) == (
        -5,
        6,
    )
    found = _of(_plain(DoubleType()), _file(struct.pack("<f", 0.5), struct.pack("<f", 2.5), nans=0))
    assert _bounds(found) == (0.5, 2.5)
    # A date that became a timestamp: days, which are no microseconds.
    assert _bounds(
        _of(_plain(TimestampType()), _file(struct.pack("<i", 1), struct.pack("<i", 2)))
    ) == (None, None)


@pytest.mark.parametrize(
    "kind",
    [pa.uuid(), HUGEINT, pa.opaque(pa.binary(16), "uhugeint", "DuckDB")],
    ids=["UUID", "HUGEINT", "UHUGEINT"],
)
def test_types_that_are_stored_in_another_order_have_no_bounds(kind: pa.DataType) -> None:
    found = _of(_declared(kind), _file(b"0", b"1"))
    assert (*_bounds(found), found.has_null) == (None, None, False)


def test_icebergs_own_uuids_have_no_bounds() -> None:
    found = _of(_plain(UUIDType()), _file(b"\0" * 16, b"\xff" * 16))
    assert (*_bounds(found), found.has_null) == (None, None, False)


@pytest.mark.parametrize("kind", [TimeType(), TimestamptzNanoType()], ids=str)
def test_types_that_only_other_engines_write_have_bounds(kind: IcebergType) -> None:
    found = _of(_plain(kind), _file(_long(1), _long(2)))
    assert (found.minimum.value, found.maximum.value) == (1, 2)


@pytest.mark.parametrize(
    "kind", [BinaryType(), ListType(2, LongType(), element_required=False)], ids=str
)
def test_nothing_is_said_of_types_whose_statistics_the_client_misreads(kind: IcebergType) -> None:
    assert statistics_of(_plain(kind), [_file(_long(1), _long(2))], 0) is None


def test_a_bound_that_the_declared_type_cannot_hold_is_left_open() -> None:
    found = _of(_declared(pa.uint8()), _file(struct.pack("<i", 1), struct.pack("<i", 300)))
    assert _bounds(found) == (1, None)
    found = _of(_declared(TIME_TZ), _file(_long(-1), _long(-1)))
    assert _bounds(found) == (None, None)


# ------------------------------------------------------------------------------------ text, floats


@given(st.lists(st.text(), min_size=1))
@settings(max_examples=100, deadline=None)
def test_shortened_bounds_of_text_are_still_bounds(texts: list[str]) -> None:
    least, greatest = (choose(texts, key=lambda text: text.encode()) for choose in (min, max))
    shortened = truncate_upper_bound_text_string(greatest, 16)
    entry = _file(least[:16].encode(), None if shortened is None else shortened.encode())
    found = _of(_plain(StringType()), entry)
    assert found.minimum.as_py().encode() <= least.encode()
    assert found.maximum is None or found.maximum.as_py().encode() >= greatest.encode()
    assert found.contains_unicode
    assert found.max_string_length is None


def test_bounds_that_are_no_text_are_left_open() -> None:
    assert _bounds(_of(_plain(StringType()), _file(b"a", b"\xff"))) == ("a", None)


@pytest.mark.parametrize(("kind", "code"), [(FloatType(), "<f"), (DoubleType(), "<d")], ids=str)
def test_nan_is_the_greatest_number(kind: IcebergType, code: str) -> None:
    low, high = struct.pack(code, -1.5), struct.pack(code, 2.5)
    assert _bounds(_of(_plain(kind), _file(low, high, nans=0))) == (-1.5, 2.5)
    found = _of(_plain(kind), _file(low, high, nans=0), _file(low, high, nans=1))
    assert found.minimum.as_py() == -1.5
    assert math.isnan(found.maximum.as_py())
    found = _of(_plain(kind), _file(low, high, nans=0), _file(nans=10))  # nothing else in there
    assert found.minimum.as_py() == -1.5
    assert math.isnan(found.maximum.as_py())
    found = _of(_plain(kind), _file(nans=10))
    assert found.minimum is None
    assert math.isnan(found.maximum.as_py())


def test_without_a_count_of_nans_the_bounds_of_floats_are_not_known() -> None:
    low, high = struct.pack("<d", -1.5), struct.pack("<d", 2.5)
    assert _bounds(_of(_plain(DoubleType()), _file(low, high))) == (None, None)
    assert _bounds(_of(_plain(DoubleType()), _file(_NAN, _NAN, nans=0))) == (None, None)


# ------------------------------------------------------------------------------------- remembering


def test_they_are_asked_for_by_name_and_remembered() -> None:
    state = _plain(LongType())
    found = column_statistics(state, "V")
    assert found is not None
    assert not found.has_not_null
    assert column_statistics(state, "v") is found
    with pytest.raises(NotFound, match="column w does not exist"):
        column_statistics(state, "w")


# ---------------------------------------------------------------------------------- files of Spark


def _expect_sound(lake: Any, namespace: str, table: str) -> dict[str, ColumnStatistics | None]:
    """All rows lie within the statistics."""
    state = find(lake, namespace, table).state
    rows = lake.spark.table(f"{lake.spark_catalog}.{namespace}.{table}").toArrow()
    found = {name: column_statistics(state, name) for name in rows.column_names}
    connection = duckdb.connect(":memory:")
    connection.register("rows", rows)
    for name, statistics in found.items():
        if statistics is None:
            continue
        column = rows.column(name)
        assert statistics.has_null or column.null_count == 0
        assert statistics.has_not_null or column.null_count == len(column)
        for bound, comparison in ((statistics.minimum, "<"), (statistics.maximum, ">")):
            if bound is not None:
                connection.register("bound", pa.table({"limit": pa.repeat(bound, 1)}))
                outside = connection.sql(
                    f'SELECT count(*) FROM rows, bound WHERE "{name}" {comparison} "limit"'
                ).fetchall()
                assert outside == [(0,)], (name, bound)
    return found


_VALUES: Sequence[str] = (
    "true, 1, 1L, cast(1.5 AS FLOAT), 2.5D, 1.25BD, 'a', DATE '2024-01-01', TIMESTAMP_NTZ "
    "'2024-01-01 00:00:00.5', TIMESTAMP '2024-01-01 00:00:00.5', NULL",
    "false, -1, -1L, cast('NaN' AS FLOAT), -2.5D, -1.25BD, repeat('\U0001f986', 40), DATE "
    "'0001-01-01', "
    "TIMESTAMP_NTZ '0001-01-01 00:00:00', TIMESTAMP '1969-12-31 23:59:59.999999', NULL",
    "NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL",
)


@pytest.mark.spark
def test_no_row_that_spark_writes_lies_outside(lake: Any, namespace: str) -> None:
    spark, table = lake.spark, f"{lake.spark_catalog}.{namespace}.measured"
    spark.sql(
        f"CREATE TABLE {table} (b BOOLEAN, i INT, l BIGINT, f FLOAT, d DOUBLE, n DECIMAL(10,2), s "
        "STRING, a DATE, t TIMESTAMP_NTZ, z TIMESTAMP, e INT) USING iceberg TBLPROPERTIES "
        "('format-version'='3', 'write.delete.mode'='merge-on-read', "
        "'write.update.mode'='merge-on-read')"
    )
    for values in _VALUES:
        spark.sql(f"INSERT INTO {table} SELECT {values}")
    found = _expect_sound(lake, namespace, "measured")
    numbers = found["i"]
    assert numbers is not None
    assert (*_bounds(numbers), numbers.has_null) == (-1, 1, True)
    texts = found["s"]
    assert texts is not None
    assert texts.minimum.as_py() == "a"
    assert len(texts.maximum.as_py()) == 16  # shortened, and the last character is the next one
    floats = found["f"]
    assert floats is not None
    assert math.isnan(floats.maximum.as_py())
    empty = found["e"]
    assert empty is not None
    assert not empty.has_not_null

    spark.sql(f"ALTER TABLE {table} ALTER COLUMN i TYPE BIGINT")
    spark.sql(f"ALTER TABLE {table} ALTER COLUMN f TYPE DOUBLE")
    spark.sql(f"ALTER TABLE {table} ADD COLUMN later INT")
    spark.sql(f"UPDATE {table} SET i = 5000000000, later = 7 WHERE i = 1")
    spark.sql(f"DELETE FROM {table} WHERE i = -1")
    found = _expect_sound(lake, namespace, "measured")
    assert found["later"] is None  # the first files lack it
    numbers = found["i"]
    assert numbers is not None
    assert _bounds(numbers) == (1, 5000000000)  # 1 is deleted by a vector, -1 with its file


@pytest.mark.spark
def test_columns_that_are_not_measured_are_not_known(lake: Any, namespace: str) -> None:
    spark, table = lake.spark, f"{lake.spark_catalog}.{namespace}.unmeasured"
    spark.sql(
        f"CREATE TABLE {table} (i INT, j INT, k INT) USING iceberg TBLPROPERTIES "
        "('format-version'='3', 'write.metadata.metrics.column.i'='none', "
        "'write.metadata.metrics.column.j'='counts')"
    )
    spark.sql(f"INSERT INTO {table} VALUES (1, 1, 1), (2, 2, 2)")
    found = _expect_sound(lake, namespace, "unmeasured")
    assert found["i"] is None
    assert found["j"] == ColumnStatistics(has_null=False)
    assert found["k"] is not None
    assert _bounds(found["k"]) == (1, 2)


def test_distinct_values_are_told_where_spark_has_counted_them(lake: Any, namespace: str) -> None:
    name = f"`{lake.spark_catalog}`.{namespace}.t"
    lake.spark.sql(f"CREATE TABLE {name} (id BIGINT, v STRING, w INT) USING iceberg")
    lake.spark.sql(f"INSERT INTO {name} SELECT id, concat('v', id % 7), 5 FROM range(100)")

    def told() -> list[int]:
        state = find(lake, namespace, "t").state
        found = [column_statistics(state, each) for each in ("id", "v", "w")]
        return [each.distinct_count for each in found if each is not None]

    assert told() == [0, 0, 0]
    lake.spark.sql(
        f"CALL `{lake.spark_catalog}`.system.compute_table_stats("
        f"table => '{namespace}.t', columns => array('id', 'v'))"
    )
    assert told() == [100, 7, 0]
    lake.spark.sql(f"INSERT INTO {name} VALUES (100, 'other', 6)")
    assert told() == [100, 7, 0], "an estimate may be older than the rows"


def test_tables_offer_statistics_from_a_number_of_rows_on(lake: Any, namespace: str) -> None:
    lake.spark.sql(f"CREATE TABLE `{lake.spark_catalog}`.`{namespace}`.t (v BIGINT) USING iceberg")
    lake.spark.sql(f"INSERT INTO `{lake.spark_catalog}`.`{namespace}`.t VALUES (1), (2)")
    state = find(lake, namespace, "t").state
    for chosen, offered in (
        (LakeSettings(), False),
        (LakeSettings(statistics_rows=2), True),
        (LakeSettings(statistics_rows=3), False),
        (LakeSettings(statistics_rows=0, statistics=False), False),
    ):
        served: Any = SimpleNamespace(settings=chosen)
        assert LakeTable(served, state).offers_statistics == offered, chosen
