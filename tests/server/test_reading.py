"""Scans over real gRPC: columns by position, partitions, row ids, dictionaries, time travel."""

from __future__ import annotations

import pyarrow as pa
import pytest
from tests.server.catalogs import ListedTable, catalog_of, numbers
from tests.server.raw_client import REUSE, ROWID, endpoints_body, metadata, path

from sparkport.catalog import (
    DynamicSchemaTable,
    PartitionedTable,
    ScanOptions,
    TimePoint,
    find_rowid_column,
    rowid_field,
)
from sparkport.errors import NotFound

T = path("s", "t")


def test_every_column_is_sent_and_those_not_asked_for_are_null_typed(serve):
    """The client addresses columns by position and checks nothing (airport §5.4, T4, T5)."""
    table = ListedTable("t", numbers())

    stream = serve(catalog_of(table)).scan(T, [1])

    assert stream.arrow_schema.names == ["id", "name", "value"]
    assert stream.arrow_schema.types == [pa.null(), pa.string(), pa.null()]
    assert stream.table["name"].to_pylist() == ["n0", "n1", "n2"]
    assert table.seen == [ScanOptions(columns=("name",))]


@pytest.mark.parametrize("column_ids", [[2, 0], [0, 2], [2, 0, 2, 0]])
def test_the_order_in_which_columns_are_asked_for_does_not_matter(serve, column_ids):
    stream = serve(catalog_of(ListedTable("t", numbers()))).scan(T, column_ids)

    assert stream.arrow_schema.types == [pa.int64(), pa.null(), pa.float64()]
    assert stream.table["id"].to_pylist() == [0, 1, 2]
    assert stream.table["value"].to_pylist() == [0.0, 0.5, 1.0]


def test_without_column_ids_all_columns_are_sent(serve):
    table = ListedTable("t", numbers())

    stream = serve(catalog_of(table)).scan(T)

    assert stream.table.equals(numbers())
    assert table.seen[0].columns is None


def test_rows_are_counted_even_when_no_column_is_wanted(serve):
    table = ListedTable("t", numbers(7))

    stream = serve(catalog_of(table)).scan(T, [])

    assert stream.table.num_rows == 7
    assert table.seen[0].columns == ("id",)


def with_rowid(name: str, field: pa.Field, position: int) -> ListedTable:
    rows = numbers().add_column(position, field, pa.array([10, 20, 30], field.type))
    return ListedTable(name, rows)


@pytest.mark.parametrize(
    "field",
    [rowid_field(), rowid_field("key", pa.int32()), pa.field("rowid", pa.int64())],
    ids=["as usual", "of another name and type", "known by its name only"],
)
@pytest.mark.parametrize("position", [0, 1, 3])
def test_the_row_id_is_published_last_and_marked(serve, field, position):
    client = serve(catalog_of(with_rowid("t", field, position)))

    info = client.list_schemas()["s"]["t"]

    assert info.schema.names == ["id", "name", "value", field.name]
    assert find_rowid_column(info.schema) == 3
    assert info.schema.field(3).metadata[b"is_rowid"] == b"1"
    # Ids do not count the row id, which has its own id (T6).
    stream = client.scan(info.descriptor, [0, ROWID])
    assert stream.arrow_schema.types == [pa.int64(), pa.null(), pa.null(), field.type]
    assert stream.table["id"].to_pylist() == [0, 1, 2]
    assert stream.table[field.name].to_pylist() == [10, 20, 30]


def test_the_row_id_alone_is_what_counting_asks_for(serve):
    table = with_rowid("t", rowid_field(), 0)

    stream = serve(catalog_of(table)).scan(T, [ROWID])

    assert stream.table["rowid"].to_pylist() == [10, 20, 30]
    assert table.seen[0].columns == ("rowid",)


class Halves(PartitionedTable, ListedTable):
    """Each partition is a range of rows."""

    def __init__(self, name: str, rows: pa.Table, parts: int) -> None:
        super().__init__(name, rows)
        self.parts = parts
        self.planned: list[ScanOptions] = []

    def partitions(self, ctx, options):
        self.planned.append(options)
        return [bytes([part]) for part in range(self.parts)]

    def scan(self, ctx, options):
        assert options.partition is not None
        self.seen.append(options)
        return self.rows.slice(options.partition[0] * 10, 10).to_batches()


@pytest.mark.parametrize("parts", [1, 3, 50])
def test_there_is_an_endpoint_for_each_partition(serve, parts):
    table = Halves("t", numbers(parts * 10), parts)
    client = serve(catalog_of(table))

    endpoints = client.endpoints(T, [0])
    read = [
        client.get(endpoint.ticket.ticket).table["id"].to_pylist()
        for endpoint in reversed(endpoints)
    ]

    assert len(endpoints) == parts
    assert {endpoint.locations[0].uri.decode() for endpoint in endpoints} == {REUSE}
    assert sorted(row for rows in read for row in rows) == list(range(parts * 10))
    assert all(len(rows) == 10 for rows in read)
    assert table.planned == [ScanOptions(columns=("id",))]
    assert {options.partition for options in table.seen} == {bytes([part]) for part in range(parts)}


def test_no_partitions_are_no_endpoints_and_no_rows(serve):
    assert serve(catalog_of(Halves("t", numbers(0), 0))).endpoints(T) == []


def test_dictionaries_are_published_and_sent_as_plain_values(serve):
    """The client would show the indices (T33)."""
    words = pa.array(["a", "b", None, "a"]).dictionary_encode()
    nested = pa.StructArray.from_arrays([pa.array([1, 1, 2, 2])], ["n"])
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([2, 4], pa.int32()), pa.array([7, 8]))
    table = ListedTable("t", pa.table({"word": words, "nested": nested, "runs": runs}))
    client = serve(catalog_of(table))

    info = client.list_schemas()["s"]["t"]
    stream = client.scan(info.descriptor)

    assert info.schema.types == [pa.string(), nested.type, pa.int64()]
    assert stream.arrow_schema.types == info.schema.types
    assert stream.table["word"].to_pylist() == ["a", "b", None, "a"]
    assert stream.table["runs"].to_pylist() == [7, 7, 8, 8]


def test_batches_whose_dictionaries_differ_are_decoded_each_by_its_own(serve):
    class Changing(ListedTable):
        def scan(self, ctx, options):
            for words in (["a", "b"], ["c", "d"], ["a"]):
                yield pa.record_batch({"word": pa.array(words).dictionary_encode()})

    rows = pa.table({"word": pa.array(["a"]).dictionary_encode()})

    stream = serve(catalog_of(Changing("t", rows))).scan(T)

    assert stream.table["word"].to_pylist() == ["a", "b", "c", "d", "a"]


def test_a_batch_too_large_for_one_message_arrives_in_pieces(serve):
    rows = pa.table({"text": pa.array(["x" * 1000] * 50_000), "id": pa.array(range(50_000))})

    stream = serve(catalog_of(ListedTable("t", rows))).scan(T)

    assert len(stream.batches) > 1
    assert stream.table.equals(rows)


def test_a_single_row_larger_than_any_usual_limit_arrives(serve):
    rows = pa.table({"text": pa.array(["x" * 40_000_000])})

    assert serve(catalog_of(ListedTable("t", rows))).scan(T).table.equals(rows)


class History(DynamicSchemaTable):
    """Version n has n columns and n rows; version 3 is the current version."""

    def __init__(self) -> None:
        self.seen: list[TimePoint | None] = []

    @property
    def name(self):
        return "t"

    @property
    def arrow_schema(self):
        return self._schema(3)

    def schema_for_request(self, ctx, request):
        return self._schema(self._version(request.time_point))

    def scan(self, ctx, options):
        self.seen.append(options.time_point)
        version = self._version(options.time_point)
        columns = [pa.array(range(version)) for _ in range(version)]
        yield pa.RecordBatch.from_arrays(columns, schema=self._schema(version))

    def _schema(self, version):
        return pa.schema([(f"c{index}", pa.int64()) for index in range(version)])

    def _version(self, time_point):
        if time_point is None:
            return 3
        if not 1 <= int(time_point.value) <= 3:
            raise NotFound(f"table t has no version {time_point.value}")
        return int(time_point.value)


def test_time_travel_describes_and_reads_the_table_as_it_was(serve):
    table = History()
    client = serve(catalog_of(table, name="cat"))
    listed = client.list_schemas("cat")["s"]["t"]
    assert listed.schema.names == ["c0", "c1", "c2"]
    body = {"descriptor": listed.descriptor.serialize(), "at_unit": "VERSION", "at_value": "2"}

    (answer,) = client.action("flight_info", body)
    info = listed.deserialize(answer)
    stream = client.scan(listed.descriptor, [1], at_unit="VERSION", at_value="2")

    assert info.descriptor == listed.descriptor  # T42
    assert info.schema.names == ["c0", "c1"]
    assert metadata(info) == metadata(listed)
    assert stream.arrow_schema.types == [pa.null(), pa.int64()]
    assert stream.table["c1"].to_pylist() == [0, 1]
    assert table.seen == [TimePoint("version", "2")]
    assert client.scan(listed.descriptor).table.num_columns == 3


def test_a_column_id_counts_in_the_schema_of_the_time_point(serve):
    client = serve(catalog_of(History()))

    failure = client.action_failure(
        "endpoints", endpoints_body(T, [2], at_unit="VERSION", at_value="2")
    )

    assert failure.code == "INVALID_ARGUMENT"
    assert client.scan(T, [2]).table.num_rows == 3


def test_a_point_in_time_that_does_not_exist_is_not_found(serve):
    client = serve(catalog_of(History()))

    for action in ("flight_info", "endpoints"):
        body = {"descriptor": T.serialize(), "at_unit": "VERSION", "at_value": "9"}
        body |= {"parameters": {"at_unit": "VERSION", "at_value": "9"}}
        failure = client.action_failure(action, body)
        assert (failure.code, failure.message) == ("NOT_FOUND", "table t has no version 9")


@pytest.mark.parametrize("unit", ["version", "VERSION", "Snapshot", "TIMESTAMP"])
def test_units_of_time_may_be_spelled_in_any_case(serve, unit):
    table = History()

    serve(catalog_of(table)).scan(T, at_unit=unit, at_value="1")

    assert table.seen == [TimePoint(unit.lower(), "1")]


def test_the_contracts_form_of_a_point_in_time_works(serve):
    client = serve(catalog_of(History()))

    body = {"schema": "s", "table": "t", "time_point": {"unit": "version", "value": "1"}}

    assert len(client.action("endpoints", body)) == 1
