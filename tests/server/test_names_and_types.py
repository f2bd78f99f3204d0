"""Awkward names, many columns, every Arrow type: each works, or is left out harmlessly (T9)."""

from __future__ import annotations

import datetime
import decimal
import uuid

import pyarrow as pa
import pytest
from tests.server.catalogs import (
    ListedCatalog,
    ListedSchema,
    ListedTable,
    ScriptedTable,
    catalog_of,
    numbers,
)
from tests.server.raw_client import metadata, path

NAMES = [
    "with space",
    " ",
    'quo"te',
    "apo'strophe",
    "sl/ash",
    "back\\slash",
    "dot.ted",
    "..",
    "per%20cent",
    "new\nline",
    "tab\t",
    "semi;colon--",
    "ünïcödé",
    "emoji 🦆",
    "👩‍👩‍👧‍👦",
    "mixed CASE",
    "x" * 500,
    "🦆" * 500,
    "rowid",
    "sparkport",
    "table",
    "__databases",
    "main",
    "temp",
    "información",
    "\u202eright to left",
    "\x01\x7f",
]


@pytest.mark.parametrize("name", NAMES, ids=lambda name: ascii(name[:12]))
def test_a_table_of_any_name_in_a_schema_of_any_name_can_be_read(serve, name):
    client = serve(catalog_of(ListedTable(name, numbers(), comment=name), name="cat", schema=name))
    published = "main_" if name == "main" else name

    listed = client.list_schemas("cat")

    info = listed[published][name]
    assert metadata(info)["schema"] == published
    assert metadata(info)["name"] == metadata(info)["comment"] == name
    # The client copies the path of a descriptor into a header.
    header = {"airport-flight-path": "/".join(element.decode() for element in info.descriptor.path)}
    assert client.scan(info.descriptor, headers=header).table.num_rows == 3
    assert client.scan(path(published, name)).table.num_rows == 3
    assert client.scan(path("cat", published, name)).table.num_rows == 3


@pytest.mark.parametrize(
    "name", [name for name in NAMES if name != "\x01\x7f"], ids=lambda name: ascii(name[:12])
)
def test_a_column_of_any_name_can_be_read(serve, name):
    rows = pa.table({"first": [1, 2], name: ["a", "b"]})
    client = serve(catalog_of(ListedTable("t", rows)))
    ids = [0] if name == "rowid" else [1]

    stream = client.scan(client.list_schemas()["s"]["t"].descriptor, ids)

    assert stream.arrow_schema.names == ["first", name]
    assert stream.table.num_rows == 2


def test_an_error_about_a_very_long_name_can_still_be_read(serve):
    failure = serve(catalog_of()).failure("GetSchema", path("🦆" * 500, "🦆" * 500).serialize())

    assert failure.code == "NOT_FOUND"
    assert "🦆🦆" in failure.message


def test_a_schema_called_main_is_published_under_another_name(serve):
    """DuckDB cannot look it up (T8)."""
    client = serve(catalog_of(ListedTable("t", numbers()), name="cat", schema="main"))

    listed = client.list_schemas("cat")

    assert list(listed) == ["main_"]
    assert client.scan(listed["main_"]["t"].descriptor).table.num_rows == 3
    assert client.scan(path("main", "t")).table.num_rows == 3
    assert client.scan(path("main_", "t")).table.num_rows == 3


def test_main_does_not_displace_a_schema_of_the_name_it_is_given(serve):
    schemas = [
        ListedSchema("main_", [ListedTable("t", numbers(1))]),
        ListedSchema("main", [ListedTable("t", numbers(2))]),
    ]
    client = serve(ListedCatalog("", schemas))

    assert list(client.list_schemas()) == ["main_"]
    assert client.scan(path("main_", "t")).table.num_rows == 1


def test_a_table_without_rows_can_be_read(serve):
    stream = serve(catalog_of(ListedTable("t", numbers(0)))).scan(path("s", "t"))

    assert stream.arrow_schema == numbers(0).schema
    assert stream.table.num_rows == 0


def test_a_table_with_2000_columns_can_be_read(serve):
    rows = pa.table({f"column {index}": pa.array([index, None]) for index in range(2000)})
    client = serve(catalog_of(ListedTable("t", rows)))
    descriptor = client.list_schemas()["s"]["t"].descriptor

    all_of_them = client.scan(descriptor)
    one_of_them = client.scan(descriptor, [1999])

    assert all_of_them.table.equals(rows)
    assert one_of_them.table.num_columns == 2000
    assert one_of_them.table["column 1999"].to_pylist() == [1999, None]
    assert one_of_them.arrow_schema.types[:1999] == [pa.null()] * 1999


DAY, MOMENT = datetime.date(2026, 1, 2), datetime.datetime(2026, 1, 2, 3, 4, 5)
OPAQUE = {
    "hugeint": pa.binary(16),
    "uhugeint": pa.binary(16),
    "time_tz": pa.binary(8),
    "bit": pa.binary(),
    "bignum": pa.binary(),
}

TAKEN = {
    **{str(t): pa.array([1, None], t) for t in (pa.int8(), pa.int16(), pa.int32(), pa.int64())},
    **{str(t): pa.array([1, None], t) for t in (pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())},
    **{str(t): pa.array([0.5, None], t) for t in (pa.float32(), pa.float64())},
    **{
        str(t): pa.array([decimal.Decimal("1.5"), None], t)
        for t in (pa.decimal32(9, 2), pa.decimal64(18, 2))
    },
    **{
        str(t): pa.array([decimal.Decimal("1.5"), None], t)
        for t in (pa.decimal128(38, 2), pa.decimal128(5, 1))
    },
    **{
        str(t): pa.array(["ä", None], t) for t in (pa.string(), pa.large_string(), pa.string_view())
    },
    **{
        str(t): pa.array([b"\0", None], t)
        for t in (pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(1))
    },
    **{str(t): pa.array([DAY, None], t) for t in (pa.date32(), pa.date64())},
    **{
        str(t): pa.array([1000, None], t)
        for t in (pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns"))
    },
    **{
        f"timestamp {unit}": pa.array([MOMENT, None], pa.timestamp(unit))
        for unit in ("s", "ms", "us", "ns")
    },
    **{
        f"timestamp {zone}": pa.array([MOMENT, None], pa.timestamp("us", zone))
        for zone in ("UTC", "Europe/Berlin")
    },
    **{
        f"duration {unit}": pa.array([1000, None], pa.duration(unit))
        for unit in ("s", "ms", "us", "ns")
    },
    "interval": pa.array([(1, 2, 3), None], pa.month_day_nano_interval()),
    "bool": pa.array([True, None]),
    "null": pa.nulls(2),
    "list": pa.array([[1, None], None]),
    "large_list": pa.array([[1], None], pa.large_list(pa.int64())),
    "list_view": pa.array([[1], None], pa.list_view(pa.int64())),
    "large_list_view": pa.array([[1], None], pa.large_list_view(pa.int64())),
    "fixed_size_list": pa.array([[1, 2], None], pa.list_(pa.int64(), 2)),
    "struct": pa.array([{"a": 1, "b": {"c": [{"d": "x"}]}}, None]),
    "map": pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int64())),
    "list of lists": pa.array([[[[[1]]]], None]),
    "sparse_union": pa.UnionArray.from_sparse(
        pa.array([0, 1], pa.int8()), [pa.array([1, 2]), pa.array(["a", "b"])], ["number", "text"]
    ),
    "dictionary": pa.array(["a", None]).dictionary_encode(),
    "run_end_encoded": pa.RunEndEncodedArray.from_arrays(
        pa.array([2], pa.int32()), pa.array(["a"])
    ),
    "uuid": pa.array([uuid.UUID(int=1).bytes, None], pa.uuid()),
    "json": pa.array(["{}", None], pa.json_()),
    "bool8": pa.ExtensionArray.from_storage(pa.bool8(), pa.array([1, None], pa.int8())),
    **{
        f"opaque {name}": pa.opaque(storage, name, "DuckDB").wrap_array(
            pa.array([b"\0" * max(storage.byte_width if name[0] in "hut" else 2, 1), None], storage)
        )
        for name, storage in OPAQUE.items()
    },
}


@pytest.mark.parametrize("values", TAKEN.values(), ids=TAKEN.keys())
def test_a_column_of_a_type_that_duckdb_takes_arrives_as_it_is(serve, values):
    rows = pa.table({"id": pa.array([1, 2]), "v": values, "after": pa.array(["x", "y"])})
    client = serve(catalog_of(ListedTable("t", rows), ListedTable("other", numbers())))
    info = client.list_schemas()["s"]["t"]

    for column_ids in (None, [1], [0]):
        stream = client.scan(info.descriptor, column_ids)
        assert stream.table.num_rows == 2
        if column_ids != [0]:
            assert stream.arrow_schema.field("v").type == info.schema.field("v").type
            assert stream.table["v"].to_pylist() == values.to_pylist()
    sliced = serve(catalog_of(ListedTable("t", rows.slice(1)))).scan(path("s", "t"))
    assert sliced.table["v"].to_pylist() == values.to_pylist()[1:]


def test_a_geometry_keeps_the_metadata_that_makes_it_one(serve):
    marked = {
        "ARROW:extension:name": "geoarrow.wkb",
        "ARROW:extension:metadata": '{"crs":"EPSG:4326"}',
    }
    schema = pa.schema([pa.field("g", pa.binary(), metadata=marked)])
    rows = pa.table([pa.array([b"\x01"])], schema)

    info = serve(catalog_of(ListedTable("t", rows))).list_schemas()["s"]["t"]

    assert info.schema.field("g").metadata == schema.field("g").metadata


REFUSED = {
    "half float": pa.float16(),
    "decimal256": pa.decimal256(40, 2),
    "dense union": pa.dense_union([pa.field("a", pa.int64())]),
    "empty struct": pa.struct([]),
    "nested half float": pa.list_(pa.struct([("a", pa.float16())])),
    "map to decimal256": pa.map_(pa.string(), pa.decimal256(40, 0)),
    "empty union": pa.sparse_union([]),
    "list of no elements": pa.list_(pa.int64(), 0),
    "hugeint of the wrong width": pa.opaque(pa.binary(8), "hugeint", "DuckDB"),
}


@pytest.mark.parametrize("data_type", REFUSED.values(), ids=REFUSED.keys())
def test_a_table_of_a_type_that_duckdb_cannot_take_is_left_out_and_the_others_are_not(
    serve, caplog, data_type
):
    bad = ScriptedTable("bad", pa.schema([("id", pa.int64()), ("v", data_type)]))
    client = serve(
        catalog_of(
            ListedTable("before", numbers()), bad, ListedTable("after", numbers()), name="cat"
        )
    )

    assert list(client.list_schemas("cat")["s"]) == ["before", "after"]
    assert client.scan(path("s", "after")).table.num_rows == 3
    failure = client.failure("GetSchema", path("s", "bad").serialize())
    assert failure.code == "UNIMPLEMENTED"
    assert "s.bad" in failure.message
    assert "v" in failure.message
    assert "bad" in caplog.text


@pytest.mark.parametrize(
    "rows",
    [
        pa.schema([]).empty_table(),
        pa.schema([("a", pa.int64()), ("a", pa.string())]).empty_table(),
        pa.schema([("", pa.int64())]).empty_table(),
        pa.schema([("a\0b", pa.int64())]).empty_table(),
        pa.schema(
            [pa.field("a", pa.int64()), pa.field("a", pa.int64(), metadata={"is_rowid": "1"})]
        ).empty_table(),
        pa.schema(
            [rowid_ := pa.field("rowid", pa.int64(), metadata={"is_rowid": "1"}), rowid_]
        ).empty_table(),
        pa.schema([pa.field("rowid", pa.int64())]).empty_table(),
    ],
    ids=[
        "no columns",
        "name twice",
        "no name",
        "NUL",
        "row id of a name that is taken",
        "two row ids",
        "only a row id",
    ],
)
def test_a_table_of_columns_that_cannot_be_published_is_left_out(serve, rows):
    client = serve(catalog_of(ListedTable("bad", rows), ListedTable("good", numbers())))

    assert list(client.list_schemas()["s"]) == ["good"]
    assert client.failure("GetSchema", path("s", "bad").serialize()).code in (
        "UNIMPLEMENTED",
        "INVALID_ARGUMENT",
    )


def test_columns_whose_names_differ_only_in_case_are_told_apart(serve):
    """DuckDB gives the second column a suffix; columns are found by position (airport §3.6)."""
    client = serve(catalog_of(ListedTable("t", pa.table({"a": [1], "A": ["x"]}))))

    stream = client.scan(client.list_schemas()["s"]["t"].descriptor, [1])

    assert stream.rows() == [{"a": None, "A": "x"}]
