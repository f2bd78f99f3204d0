"""The client simulation catches every misbehaviour of a server, each by its name."""

import base64
import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import msgpack
import pyarrow as pa
import pyarrow.flight as flight
import pytest
from tests.client.flight_double import (
    CATALOG,
    COLUMNS,
    NOTHING,
    FlightDouble,
    app_metadata,
    compressed,
    described,
    inline,
    orders,
    with_rowid,
)
from tests.client.hanging import hangs

from sparkport.testing import ClientHang, DuckDBClient, ProtocolViolation

Act = Callable[[DuckDBClient], Any]


@pytest.fixture
def server() -> Iterator[FlightDouble]:
    with FlightDouble() as double:
        yield double
        double.released.set()


@pytest.fixture
def client(server: FlightDouble) -> Iterator[DuckDBClient]:
    with DuckDBClient(server.location, CATALOG) as client:
        yield client


@dataclass(frozen=True)
class Case:
    """A server that is honest except at one point, and the client's error."""

    name: str
    trap: str
    point: str
    spoil: Callable[[Any], Any]
    act: Act


# ---------------------------------------------------------------------------- what the client does


def attach(client: DuckDBClient) -> Any:
    return client.schemas()


def select(client: DuckDBClient) -> Any:
    return client.scan("sales", "orders", ["id", "amount"])


def select_at(client: DuckDBClient) -> Any:
    return client.scan("sales", "orders", at=("VERSION", "1"))


def statistics(client: DuckDBClient) -> Any:
    return client.statistics("sales", "orders", "name")


def insert(client: DuckDBClient) -> Any:
    return client.insert("sales", "orders", {"id": [100], "amount": [1.0]})


def insert_returning(client: DuckDBClient) -> Any:
    return client.insert("sales", "orders", {"id": [100], "amount": [1.0]}, returning=True)


def update(client: DuckDBClient) -> Any:
    return client.update("sales", "orders", {"amount": "amount + 1"})


def update_returning(client: DuckDBClient) -> Any:
    return client.update(
        "sales", "orders", {"amount": "amount + 1"}, where="id < 3", returning=True
    )


def delete_returning(client: DuckDBClient) -> Any:
    return client.delete("sales", "orders", where="id < 3", returning=True)


def create_schema(client: DuckDBClient) -> Any:
    client.create_schema("new")
    return client.tables("new")


def create_table(client: DuckDBClient) -> Any:
    return client.create_table("sales", "made", {"a": "INTEGER"})


def add_column(client: DuckDBClient) -> Any:
    return client.add_column("sales", "orders", "b", "VARCHAR")


def take_flight(client: DuckDBClient) -> Any:
    return client.take_flight([CATALOG, "sales", "table", "orders"])


# ------------------------------------------------------------------------------- what is put wrong


def without(key: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda honest: {name: value for name, value in honest.items() if name != key}


def changed(**values: Any) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda honest: {**honest, **values}


def schema_map(**values: Any) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda root: {**root, "schemas": [{**schema, **values} for schema in root["schemas"]]}


def schema_without(key: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda root: {**root, "schemas": [without(key)(schema) for schema in root["schemas"]]}


def packed(value: Any) -> Callable[[Any], list[bytes]]:
    return lambda honest: [msgpack.packb(value)]


def field(kind: pa.DataType, **metadata: str) -> Callable[[pa.Schema], pa.Schema]:
    """Give the table another column, before the row id."""
    added = pa.field("odd", kind, metadata=metadata or None)
    return lambda schema: schema.insert(0, added)


def nothing(honest: Any) -> list[bytes]:
    return []


def with_metadata(**metadata: str | bytes) -> Callable[[pa.Schema], pa.Schema]:
    added = {name.encode(): value for name, value in metadata.items()}
    return lambda schema: schema.with_metadata({**(schema.metadata or {}), **added})


def marked(count: int) -> Callable[[pa.Schema], pa.Schema]:
    return lambda schema: schema.insert(
        0, pa.field("other", pa.int64(), metadata={"is_rowid": "1"})
    )


def rowid_first(schema: pa.Schema) -> pa.Schema:
    return pa.schema([schema.field(3), *list(schema)[:3]])


def function(
    kind: str, parameters: pa.Schema | None, result: pa.Schema, **values: Any
) -> Callable[[Any], list[bytes]]:
    packed_parameters = None if parameters is None else parameters.serialize().to_pybytes()
    metadata = app_metadata("f", type=kind, input_schema=packed_parameters, **values)
    return lambda honest: [
        *honest,
        described(result, flight.FlightDescriptor.for_path("f"), metadata),
    ]


RESULT = pa.schema([("result", pa.int64())])
TABLE_PARAMETER = pa.field("rows", pa.null(), metadata={"is_table_type": "1"})

CATALOGS = [
    ("no result", "§4.1", "list_schemas", nothing),
    ("not compressed", "T46", "list_schemas", packed({"contents": NOTHING})),
    ("compressed is a map", "T46", "list_schemas", packed({"length": 1, "data": b""})),
    ("wrong length", "§1.6", "list_schemas", lambda honest: [_longer(honest[0], 1)]),
    ("too short a length", "§1.6", "list_schemas", lambda honest: [_longer(honest[0], -1)]),
    ("length is a float", "§1.6", "list_schemas", lambda honest: [_longer(honest[0], 0.0)]),
    ("data is no frame", "§1.6", "list_schemas", packed([3, b"abc"])),
    ("root is no map", "§1.3", "root", lambda root: [root]),
    ("root is garbage", "§1.3", "root_bytes", lambda body: b"\xc1\xc1"),
    ("root is cut", "§1.3", "root_bytes", lambda body: body[:-3]),
    ("bin keys", "§1.3", "root", lambda root: {key.encode(): value for key, value in root.items()}),
    ("no version_info", "§1.3", "root", without("version_info")),
    (
        "version is a float",
        "§1.3",
        "root",
        changed(version_info={"catalog_version": 1.0, "is_fixed": False}),
    ),
    (
        "version is negative",
        "§1.3",
        "root",
        changed(version_info={"catalog_version": -1, "is_fixed": False}),
    ),
    (
        "is_fixed is a number",
        "§1.3",
        "root",
        changed(version_info={"catalog_version": 1, "is_fixed": 0}),
    ),
    ("is_fixed is missing", "§1.3", "root", changed(version_info={"catalog_version": 1})),
    ("schemas is nil", "§1.3", "root", changed(schemas=None)),
    ("contents missing", "§1.3", "root", without("contents")),
    (
        "bundle hash wrong",
        "T46",
        "root",
        changed(contents={"sha256": "0" * 64, "url": None, "serialized": b"\x90"}),
    ),
    (
        "sha256 in capitals",
        "T46",
        "root",
        changed(contents={"sha256": "A" * 64, "url": None, "serialized": b"\x90"}),
    ),
    ("empty schema name", "T45", "root", schema_map(name="")),
    ("two schemas of a name", "T45", "root", lambda root: {**root, "schemas": root["schemas"] * 2}),
    ("schema called main", "T8", "root", schema_map(name="main")),
    ("description nil", "T47", "root", schema_map(description=None)),
    ("tags nil", "T47", "root", schema_map(tags=None)),
    ("tags missing", "T47", "root", schema_without("tags")),
    ("tag is a number", "T47", "root", schema_map(tags={"a": 1})),
    ("schema contents nil", "§1.3", "root", schema_map(contents=None)),
    ("hash mismatch", "T46", "contents", changed(sha256=hashlib.sha256(b"").hexdigest())),
    ("sha256 nil", "§1.3", "contents", changed(sha256=None)),
    ("not in the cache", "§3.4", "contents", changed(serialized=None)),
    (
        "url without hash",
        "T43",
        "contents",
        lambda honest: {"sha256": "", "url": "http://localhost/x", "serialized": None},
    ),
    (
        "objects are a map",
        "§3.4",
        "contents",
        lambda honest: {**NOTHING, "serialized": compressed(b"\x80")},
    ),
    ("object is no FlightInfo", "§1.5", "infos", lambda honest: [b"\xff\xff\xff"]),
    ("no app_metadata", "§3.5", "app_metadata", lambda honest: None),
    ("app_metadata is no map", "T9", "app_metadata", lambda honest: [honest]),
    ("app_metadata lacks name", "T9", "app_metadata", without("name")),
    ("app_metadata lacks type", "T9", "app_metadata", without("type")),
    ("name is empty", "T9", "app_metadata", changed(name="")),
    ("name is not UTF-8", "T9", "app_metadata", changed(name=b"\xff")),
    ("name is a number", "T9", "app_metadata", changed(name=1)),
    ("type is view", "T9", "app_metadata", changed(type="view")),
    ("other catalog", "T9", "app_metadata", changed(catalog="SHOP")),
    ("other schema", "T9", "app_metadata", changed(schema="Sales")),
    ("comment is a number", "T9", "app_metadata", changed(comment=1)),
    ("two tables of a name", "§3.5", "infos", lambda honest: honest * 2),
    ("path not ASCII", "T3", "path", lambda path: [CATALOG, "sales", "table", "ördérs"]),
    (
        "path with control character",
        "T3",
        "path",
        lambda path: [CATALOG, "sales", "table", "or\nders"],
    ),
    ("row id first", "T7", "arrow_schema", rowid_first),
    ("two row ids", "T7", "arrow_schema", marked(2)),
    ("float16", "T9", "arrow_schema", field(pa.float16())),
    ("decimal256", "T9", "arrow_schema", field(pa.decimal256(20, 2))),
    ("dense union", "T9", "arrow_schema", field(pa.dense_union([pa.field("a", pa.int8())]))),
    ("empty struct", "T9", "arrow_schema", field(pa.struct([]))),
    (
        "nested float16",
        "T9",
        "arrow_schema",
        field(pa.list_(pa.struct([("x", pa.map_(pa.string(), pa.float16()))]))),
    ),
    (
        "nested dictionary",
        "T9",
        "arrow_schema",
        field(pa.list_(pa.dictionary(pa.int8(), pa.string()))),
    ),
    (
        "unknown edges",
        "T9",
        "arrow_schema",
        field(
            pa.binary(),
            **{
                "ARROW:extension:name": "geoarrow.wkb",
                "ARROW:extension:metadata": '{"edges": "spherical"}',
            },
        ),
    ),
    ("bad default", "§3.6", "arrow_schema", field(pa.int64(), default="1 +")),
    ("checks not packed", "§3.6", "arrow_schema", with_metadata(check_constraints="amount > 0")),
    (
        "check not SQL",
        "§3.6",
        "arrow_schema",
        with_metadata(check_constraints=msgpack.packb({"constraints": ["a >"]})),
    ),
    (
        "statistics of interval",
        "T29",
        "arrow_schema",
        lambda schema: with_metadata(can_produce_statistics="1")(field(pa.duration("s"))(schema)),
    ),
    (
        "function without parameters schema",
        "T9",
        "infos",
        function("scalar_function", None, RESULT),
    ),
    (
        "scalar function of two results",
        "§3.5",
        "infos",
        function("scalar_function", RESULT, COLUMNS),
    ),
    (
        "unknown stability",
        "§3.5",
        "infos",
        function(
            "scalar_function", RESULT, RESULT, extra_data=msgpack.packb({"stability": "often"})
        ),
    ),
    (
        "large_string parameter",
        "T32",
        "infos",
        function("scalar_function", pa.schema([("a", pa.large_string())]), RESULT),
    ),
    (
        "table parameter first",
        "T41",
        "infos",
        function("table_function", pa.schema([TABLE_PARAMETER, pa.field("n", pa.int64())]), RESULT),
    ),
    (
        "named parameter of in/out",
        "T41",
        "infos",
        function(
            "table_function",
            pa.schema(
                [pa.field("n", pa.int64(), metadata={"is_named_parameter": "1"}), TABLE_PARAMETER]
            ),
            RESULT,
        ),
    ),
]


def _longer(pair: bytes, by: float) -> bytes:
    length, data = msgpack.unpackb(pair)
    return msgpack.packb([length + by, data])


def columns(*names: str) -> Callable[[pa.Table], pa.Table]:
    return lambda rows: rows.select(list(names))


def retyped(name: str, kind: pa.DataType) -> Callable[[pa.Table], pa.Table]:
    def spoil(rows: pa.Table) -> pa.Table:
        index = rows.column_names.index(name)
        return rows.set_column(index, name, rows.column(name).cast(kind))

    return spoil


def chunks(*metadata: Any) -> Callable[[list[pa.RecordBatch]], list[Any]]:
    return lambda batches: [(batch, metadata[0]) for batch in batches]


SCANS = [
    ("no transaction result", "T2", "create_transaction", nothing),
    ("identifier is a number", "§1.3", "create_transaction", packed({"identifier": 5})),
    ("identifier not ASCII", "T3", "create_transaction", packed({"identifier": "tx-ü"})),
    ("identifier with newline", "T3", "create_transaction", packed({"identifier": "tx\n"})),
    ("no version result", "T2", "catalog_version", nothing),
    ("version missing", "§1.3", "catalog_version", packed({"is_fixed": False})),
    (
        "version nil",
        "§1.3",
        "catalog_version",
        packed({"catalog_version": None, "is_fixed": False}),
    ),
    (
        "version is a boolean",
        "§1.3",
        "catalog_version",
        packed({"catalog_version": True, "is_fixed": False}),
    ),
    (
        "version above 64 bits",
        "§1.3",
        "catalog_version",
        lambda honest: [b"\x82\xafcatalog_version\xd3" + b"\xff" * 8 + b"\xa8is_fixed\xc2"],
    ),
    ("no endpoints result", "T2", "endpoints", nothing),
    ("endpoints are a map", "§5.3", "endpoints", packed({})),
    ("endpoint is garbage", "§5.3", "endpoint_list", lambda honest: [b"\xff\xff"]),
    ("endpoint is nil", "§1.3", "endpoint_list", lambda honest: [None]),
    ("endpoint without location", "T48", "locations", lambda honest: []),
    ("unknown scheme", "§5.3", "locations", lambda honest: ["ftp://somewhere/x"]),
    ("only the projection", "T4", "rows", columns("id", "amount")),
    ("reordered", "T5", "rows", columns("name", "id", "amount", "row")),
    ("other type", "T5", "rows", retyped("amount", pa.float32())),
    ("large offsets", "T5", "rows", retyped("name", pa.large_string())),
    (
        "null type for a wanted column",
        "T5",
        "rows",
        lambda rows: rows.set_column(0, "id", pa.nulls(rows.num_rows)),
    ),
    ("metadata is no progress", "T20", "chunks", chunks(b"hello")),
    ("progress beyond 1", "T20", "chunks", chunks(msgpack.packb({"progress": 1.5}))),
    ("progress is text", "T20", "chunks", chunks(msgpack.packb({"progress": "0.5"}))),
    ("no progress key", "T20", "chunks", chunks(msgpack.packb({"percent": 0.5}))),
]

TIME_TRAVEL = [
    ("flight_info without result", "§4.1", "flight_info", nothing),
    ("flight_info is MessagePack", "§1.5", "flight_info", packed({"flight": "info"})),
    ("without app_metadata", "§4.12", "app_metadata", lambda honest: None),
]

STATISTICS = [
    ("no result", "T2", "column_statistics", nothing),
    ("no stream", "§4.9", "column_statistics", lambda honest: [b"nonsense"]),
    ("no min", "§4.9", "statistics", without("min")),
    ("min NULL for text", "§4.9", "statistics", changed(min=pa.array([None], pa.string()))),
    ("min of another type", "§4.9", "statistics", changed(min=pa.array(["a"], pa.large_string()))),
    ("has_null NULL", "§4.9", "statistics", changed(has_null=pa.array([None], pa.bool_()))),
    ("has_not_null a number", "§4.9", "statistics", changed(has_not_null=pa.array([1]))),
    ("distinct_count a float", "§4.9", "statistics", changed(distinct_count=pa.array([1.0]))),
    ("distinct_count missing", "§4.9", "statistics", without("distinct_count")),
    (
        "length not uint64",
        "§4.9",
        "statistics",
        changed(max_string_length=pa.array([1], pa.int32())),
    ),
    (
        "two rows",
        "§4.9",
        "statistics",
        lambda honest: {name: pa.concat_arrays([a, a]) for name, a in honest.items()},
    ),
]


def exchange(
    *,
    schema: pa.Schema | None = None,
    answer: Callable[[pa.RecordBatch], list[pa.RecordBatch]] | None = None,
    last: Callable[[Any], None] | None = None,
) -> Callable[[Any], Any]:
    """An exchange that differs in its schema, in its answers, or in its last message."""

    def spoil(honest: Any) -> Any:
        change = honest.__self__
        before = change.server.tables[change.key]

        def run(reader: Any, writer: Any) -> None:
            published = reader.schema if change.operation == "update" else before.schema
            writer.begin(schema(reader.schema) if callable(schema) else schema or published)
            total = 0
            for chunk in reader:
                total += chunk.data.num_rows
                answers = [change.answer(before, chunk.data)] if change.returning else []
                for batch in answers if answer is None else answer(chunk.data):
                    writer.write_batch(batch)
            if last is None:
                writer.write_metadata(msgpack.packb({"total_changed": total}))
            else:
                last(writer)

        return run

    return spoil


def metadata(value: Any) -> Callable[[Any], None]:
    return lambda writer: writer.write_metadata(msgpack.packb(value))


def _fail_late(writer: Any) -> None:
    writer.write_metadata(msgpack.packb({"total_changed": 1}))
    raise flight.FlightServerError("could not commit")


def _twice(writer: Any) -> None:
    writer.write_metadata(msgpack.packb({"total_changed": 1}))
    writer.write_metadata(msgpack.packb({"total_changed": 1}))


ORDERS = with_rowid(COLUMNS)
ROW = orders(1).to_batches()[0]

EXCHANGES = [
    ("no last message", "§7.1", insert, exchange(last=lambda writer: None)),
    ("total_changed missing", "§7.1", insert, exchange(last=metadata({"affected_rows": 1}))),
    ("total_changed negative", "§7.1", insert, exchange(last=metadata({"total_changed": -1}))),
    ("total_changed a float", "§7.1", insert, exchange(last=metadata({"total_changed": 1.0}))),
    ("total_changed nil", "§7.1", insert, exchange(last=metadata({"total_changed": None}))),
    ("batch before total_changed", "§7.3", insert, exchange(answer=lambda batch: [ROW])),
    ("error after total_changed", "T21", insert, exchange(last=_fail_late)),
    ("message after total_changed", "§7.1", insert, exchange(last=_twice)),
    ("two batches for one", "T16", insert_returning, exchange(answer=lambda batch: [ROW, ROW])),
    (
        "too many rows",
        "T16",
        insert_returning,
        exchange(answer=lambda batch: orders(3).to_batches()),
    ),
    (
        "beyond 2048 rows",
        "T16",
        insert_returning,
        exchange(answer=lambda batch: orders(2049).to_batches()),
    ),
    (
        "column missing",
        "§7.4",
        insert_returning,
        exchange(schema=pa.schema([("id", pa.int64())]), answer=lambda batch: []),
    ),
    (
        "type differs",
        "§7.4",
        insert_returning,
        exchange(schema=ORDERS.set(0, pa.field("id", pa.int32())), answer=lambda batch: []),
    ),
    (
        "delete: column missing",
        "§7.4",
        delete_returning,
        exchange(schema=lambda sent: sent, answer=lambda batch: [batch]),
    ),
    (
        "update in table order",
        "T17",
        update_returning,
        exchange(schema=ORDERS, answer=lambda batch: [ROW]),
    ),
    (
        "update: a type differs",
        "T17",
        update_returning,
        exchange(
            schema=lambda sent: sent.set(0, pa.field(sent.names[0], pa.float32())),
            answer=lambda batch: [],
        ),
    ),
]

OTHER = described(ORDERS, flight.FlightDescriptor.for_path("x"), app_metadata("other"))
HASH_WRONG = changed(sha256="0" * 64)(inline([]))

DDL = [
    ("create_schema without result", "§4.1", "create_schema", nothing, create_schema),
    (
        "create_schema compressed",
        "§1.3",
        "create_schema",
        lambda honest: [compressed(honest[0])],
        create_schema,
    ),
    ("create_schema hash wrong", "T46", "create_schema", packed(HASH_WRONG), create_schema),
    (
        "create_schema lacks sha256",
        "§1.3",
        "create_schema",
        packed(without("sha256")(inline([]))),
        create_schema,
    ),
    ("create_table without result", "§4.1", "create_table", nothing, create_table),
    ("create_table gives a map", "§1.5", "create_table", packed({"a": 1}), create_table),
    (
        "create_table lacks app_metadata",
        "§4.12",
        "create_table",
        lambda honest: [bare(honest[0])],
        create_table,
    ),
    ("ALTER without result", "§4.1", "add_column", nothing, add_column),
    (
        "ALTER lacks app_metadata",
        "§4.12",
        "add_column",
        lambda honest: [bare(honest[0])],
        add_column,
    ),
    (
        "ALTER answers about another table",
        "§4.13",
        "add_column",
        lambda honest: [OTHER],
        add_column,
    ),
    (
        "GetFlightInfo of another flight",
        "T42",
        "get_flight_info",
        lambda honest: OTHER,
        take_flight,
    ),
]


def bare(body: bytes) -> bytes:
    info = flight.FlightInfo.deserialize(body)
    return described(info.schema, info.descriptor, None)


CASES = [
    *(
        Case(f"catalog: {name}", trap, point, spoil, attach)
        for name, trap, point, spoil in CATALOGS
    ),
    *(Case(f"scan: {name}", trap, point, spoil, select) for name, trap, point, spoil in SCANS),
    *(
        Case(f"exchange: {name}", trap, "exchange", spoil, act)
        for name, trap, act, spoil in EXCHANGES
    ),
    *(Case(f"DDL: {name}", trap, point, spoil, act) for name, trap, point, spoil, act in DDL),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_misbehaviour_is_caught_and_named(case: Case, server: FlightDouble, client: DuckDBClient):
    server.spoil[case.point] = case.spoil

    with pytest.raises(ProtocolViolation) as caught:
        case.act(client)

    assert caught.value.trap == case.trap, caught.value


@pytest.mark.parametrize(("name", "trap", "point", "spoil"), TIME_TRAVEL)
def test_time_travel_misbehaviour_is_caught(name, trap, point, spoil, server, client):
    client.schemas()
    server.spoil[point] = spoil

    with pytest.raises(ProtocolViolation) as caught:
        select_at(client)

    assert caught.value.trap == trap


def test_the_second_flight_info_without_result_crashes_duckdb(server, client):
    calls = iter([0, 1])
    server.spoil["flight_info"] = lambda honest: honest if next(calls) == 0 else []

    with pytest.raises(ProtocolViolation, match="would crash") as caught:
        select_at(client)

    assert caught.value.trap == "T2"


def test_the_second_flight_info_must_echo_the_descriptor(server, client):
    calls = iter([0, 1])
    other = described(ORDERS, flight.FlightDescriptor.for_path("x"), app_metadata("orders"))
    server.spoil["flight_info"] = lambda honest: honest if next(calls) == 0 else [other]

    with pytest.raises(ProtocolViolation) as caught:
        select_at(client)

    assert caught.value.trap == "T42"


@pytest.mark.parametrize(("name", "trap", "point", "spoil"), STATISTICS)
def test_bad_statistics_are_caught(name, trap, point, spoil, server, client):
    server.spoil["arrow_schema"] = with_metadata(can_produce_statistics="1")
    server.spoil[point] = spoil

    with pytest.raises(ProtocolViolation) as caught:
        statistics(client)

    assert caught.value.trap == trap


def test_statistics_that_the_rows_contradict_are_caught(server, client):
    server.spoil["arrow_schema"] = with_metadata(can_produce_statistics="1")
    server.spoil["statistics"] = lambda honest: {**honest, "max": honest["min"]}

    with pytest.raises(ProtocolViolation) as caught:
        select(client)

    assert caught.value.trap == "T28"


def test_a_dictionary_in_take_flight_shows_its_indices(server, client):
    server.spoil["arrow_schema"] = field(pa.dictionary(pa.int8(), pa.string()))

    with pytest.raises(ProtocolViolation) as caught:
        take_flight(client)

    assert caught.value.trap == "T33"


def test_a_row_id_on_a_table_of_data_uris_is_caught(server, client):
    body = base64.b64encode(msgpack.packb({"format": "parquet", "uri": "x.parquet"})).decode()
    server.spoil["locations"] = lambda honest: [f"data:application/msgpack;base64,{body}"]

    with pytest.raises(ProtocolViolation) as caught:
        client.count("sales", "orders")

    assert caught.value.trap == "T40"


DATA_URI = "data:application/msgpack;base64,"
CALL_URI = "data:application/x-msgpack-duckdb-function-call;base64,"


def _uri(prefix: str, **fields: Any) -> str:
    return prefix + base64.b64encode(msgpack.packb(fields)).decode()


@pytest.mark.parametrize(
    "uri",
    [
        pytest.param(DATA_URI + "!", id="not base64"),
        pytest.param(_uri(DATA_URI, uri="x"), id="no format"),
        pytest.param(_uri(DATA_URI, format="csv", uri="x"), id="unknown format"),
        pytest.param(
            _uri(DATA_URI, format="ipc-file", uri="file:///nowhere/at.all"), id="no such file"
        ),
        pytest.param(
            _uri(CALL_URI, function_name="range", data=b"x"), id="arguments are no stream"
        ),
    ],
)
def test_data_uris_that_duckdb_cannot_use_are_caught(uri, server, client):
    server.tables["sales", "orders"] = orders(5).drop_columns("row")
    server.spoil["locations"] = lambda honest: [uri]

    with pytest.raises(ProtocolViolation) as caught:
        select(client)

    assert caught.value.trap == "§5.8"


def test_text_that_is_not_utf_8_is_caught(server, client):
    text = pa.Array.from_buffers(pa.string(), 1, pa.array([b"\xff\xfe"]).buffers())
    row = orders(1)
    server.tables["sales", "orders"] = row.set_column(1, row.schema.field(1), text)

    with pytest.raises(ProtocolViolation) as caught:
        client.scan("sales", "orders", ["name"])

    assert caught.value.trap == "§5.4"


def test_a_row_id_that_is_null_is_caught(server, client):
    row = orders(1)
    server.tables["sales", "orders"] = row.set_column(
        3, row.schema.field(3), pa.array([None], pa.int64())
    )

    with pytest.raises(ProtocolViolation) as caught:
        client.delete("sales", "orders")

    assert caught.value.trap == "§7.2"


def test_a_catalog_name_that_is_no_header_aborts_main_but_not_v1_4(server):
    server.spoil["app_metadata"] = changed(catalog="lädchen")
    with DuckDBClient(server.location, "lädchen", line="v1.4") as old:
        assert list(old.attach().schemas()) == ["sales"]

    with (
        DuckDBClient(server.location, "lädchen", line="main") as new,
        pytest.raises(ProtocolViolation) as caught,
    ):
        new.schemas()

    assert caught.value.trap == "T3"


def test_a_schema_name_that_is_no_header_aborts_where_it_is_listed(server, client):
    server.schemas = ["lädchen"]
    server.spoil["contents"] = lambda honest: NOTHING

    with pytest.raises(ProtocolViolation) as caught:
        attach(client)

    assert caught.value.trap == "T3"


# ----------------------------------------------------------------------------------------- hanging


def hanging(server: FlightDouble, *, after_schema: bool) -> Callable[[Any], Any]:
    def spoil(honest: Any) -> Any:
        def run(reader: Any, writer: Any) -> None:
            if after_schema:
                writer.begin(ORDERS)
            server.released.wait(60)

        return run

    return spoil


@pytest.mark.parametrize(
    ("act", "after_schema", "trap"),
    [
        pytest.param(insert, False, "T15", id="no schema before the first batch"),
        pytest.param(insert_returning, True, "T16", id="no batch for a batch"),
        pytest.param(insert, True, "§7.1", id="no end"),
    ],
)
def test_an_exchange_that_waits_for_ever_is_a_hang(act, after_schema, trap, server, client):
    server.spoil["exchange"] = hanging(server, after_schema=after_schema)

    hangs(client, trap, lambda: act(client))


@pytest.mark.parametrize("point", ["endpoints", "rows"])
def test_a_scan_that_the_open_exchange_locks_out_is_a_hang(point, server, client):
    def locked(honest: Any) -> Any:
        server.released.wait(60)
        return honest

    server.spoil[point] = locked

    hangs(client, "T24", lambda: update(client))


def test_an_action_without_answer_is_a_hang(server):
    server.spoil["list_schemas"] = lambda honest: [server.released.wait(60)]

    with DuckDBClient(server.location, CATALOG, timeout=2) as client, pytest.raises(ClientHang):
        attach(client)
