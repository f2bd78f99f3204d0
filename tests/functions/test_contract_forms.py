"""The contracts' own forms of requests (contracts/catalog-interfaces, airport §15.3)."""

# mypy: disable-error-code="valid-type"

import datetime
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import msgpack
import pyarrow as pa
import pyarrow.flight as flight
import pytest
from tests.functions.catalogs import LOCAL, NUMBERS, catalog, numbers
from tests.server.raw_client import RawClient, Stream, metadata, path

import sparkport as sp
from sparkport.catalog import DynamicSchemaTable, RecordReader, SchemaRequest, TimePoint
from sparkport.memory import MemorySettings
from sparkport.testing import DuckDBClient

START = datetime.datetime(2024, 1, 15, 10, 30, tzinfo=datetime.timezone.utc)


@pytest.fixture
def serve() -> Iterator[Any]:
    """Starts a server and connects a client to it."""
    with ExitStack() as stack:

        def serve(served: Any) -> RawClient:
            server = stack.enter_context(sp.Server(served, LOCAL))
            return stack.enter_context(RawClient(server.location))

        yield serve


def info(client: RawClient, body: Mapping[str, Any]) -> flight.FlightInfo:
    (answer,) = client.action("table_function_flight_info", body)
    return flight.FlightInfo.deserialize(answer)


def rows(client: RawClient, found: Sequence[flight.FlightEndpoint]) -> list[dict[str, Any]]:
    return [row for endpoint in found for row in client.get(endpoint.ticket.ticket).rows()]


def call(client: RawClient, name: str, *parameters: Any, **more: Any) -> list[dict[str, Any]]:
    """The rows of a table function, by its FlightInfo and tickets."""
    return rows(
        client, info(client, {"name": name, "parameters": list(parameters), **more}).endpoints
    )


# ------------------------------------------------------------------------------ {name, parameters}


@pytest.fixture
def functions(serve) -> RawClient:
    builder, schema = catalog()
    other = builder.schema("other")

    @schema.table_function(returns=lambda prefix, count: pa.schema([(prefix, pa.int64())]))
    def column(prefix: pa.string(), count: pa.int64(), *, start: pa.int64() = 0):
        yield pa.record_batch({prefix: pa.array(range(start, start + count), pa.int64())})

    @schema.table_function(returns=NUMBERS, name="total")
    def _total(*values: pa.int64()):
        yield pa.record_batch({"n": pa.array([sum(values)], pa.int64())})

    @schema.table_function(returns=pa.schema([("shown", pa.string())]))
    def shown(value: Any):
        yield pa.record_batch({"shown": [f"{type(value).__name__} {value!r}"]})

    @schema.table_function(returns=pa.schema([("shown", pa.string())]), name="typed")
    def _typed(flag: pa.bool_(), key: pa.uuid(), data: pa.binary(), rate: pa.float64()):
        yield pa.record_batch({"shown": [repr((flag, str(key), data, rate))]})

    @schema.table_function(returns=NUMBERS)
    def rows(rows: pa.Table): ...

    @schema.table_function(returns=NUMBERS)
    def refusing(count: pa.int64()):
        raise sp.BadRequest(f"refusing: {count} is too many")

    @other.table_function(returns=NUMBERS, name="elsewhere")
    def _elsewhere(count: pa.int64()):
        yield numbers(count)

    @other.table_function(returns=NUMBERS, name="total")
    def _other_total(text: pa.string()):
        yield numbers(len(text))

    return serve(builder)


def test_a_function_is_described_by_its_name_and_plain_parameters(functions):
    found = info(functions, {"name": "column", "parameters": ["x", 3]})

    assert found.schema == pa.schema([("x", pa.int64())])
    assert found.total_records == -1
    assert rows(functions, found.endpoints) == [{"x": 0}, {"x": 1}, {"x": 2}]


def test_named_parameters_may_follow_in_their_order(functions):
    assert call(functions, "column", "x", 1, 5) == [{"x": 5}]


def test_names_have_no_case(functions):
    assert call(functions, "COLUMN", "x", 1) == [{"x": 0}]


def test_a_function_is_looked_for_in_all_schemas_unless_one_is_named(functions):
    assert call(functions, "elsewhere", 1) == [{"n": 0}]
    assert call(functions, "elsewhere", 1, schema="other", catalog="c") == [{"n": 0}]
    failure = functions.action_failure(
        "table_function_flight_info", {"name": "elsewhere", "parameters": [1], "schema": "s"}
    )
    assert failure.code == "NOT_FOUND"


def test_parameters_choose_between_overloads_in_all_schemas(functions):
    assert call(functions, "total", 1, 2) == [{"n": 3}]
    assert call(functions, "total", "ab") == [{"n": 0}, {"n": 1}]


@pytest.mark.parametrize("count", [1, 2, 8, 9, 20])
def test_a_variadic_function_takes_as_many_values_as_one_likes(functions, count):
    """The eight overloads are only for DuckDB, which does not know variadic functions."""
    assert call(functions, "total", *range(count)) == [{"n": sum(range(count))}]


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (5, "int 5"),
        (-(2**63), f"int {-(2**63)}"),
        (2**64 - 1, f"int {2**64 - 1}"),
        (1.5, "float 1.5"),
        (True, "bool True"),
        ("ä", "str 'ä'"),
        (b"\0\xff", r"bytes b'\x00\xff'"),
        (None, "NoneType None"),
        ([1, None], "list [1, None]"),
        ({"a": 1}, "dict {'a': 1}"),
    ],
    ids=repr,
)
def test_a_parameter_of_any_type_is_what_messagepack_brings(functions, value, shown):
    assert call(functions, "shown", value) == [{"shown": shown}]


def test_parameters_are_converted_to_the_declared_types(functions):
    key = uuid.UUID(int=5)
    expected = [{"shown": repr((True, str(key), b"x", 2.0))}]

    assert call(functions, "typed", True, str(key), b"x", 2) == expected
    assert call(functions, "typed", True, key.bytes, b"x", 2.0) == expected


@pytest.mark.parametrize(
    ("body", "code", "says"),
    [
        ({"name": "nosuch", "parameters": []}, "NOT_FOUND", "nosuch"),
        ({"name": "column", "parameters": []}, "INVALID_ARGUMENT", "takes 2 arguments, not 0"),
        ({"name": "column"}, "INVALID_ARGUMENT", "takes 2 arguments, not 0"),
        (
            {"name": "column", "parameters": ["x", "y"]},
            "INVALID_ARGUMENT",
            "count must be int64, not str",
        ),
        (
            {"name": "column", "parameters": ["x", 1.5]},
            "INVALID_ARGUMENT",
            "count must be int64, not float",
        ),
        (
            {"name": "column", "parameters": ["x", 2**64 - 1]},
            "INVALID_ARGUMENT",
            "count must be int64, not int",
        ),
        ({"name": "column", "parameters": "x"}, "INVALID_ARGUMENT", "must be a list"),
        (
            {"name": "shown", "parameters": [[1, "a"]]},
            "INVALID_ARGUMENT",
            "value must be a value, not list",
        ),
        ({"name": "rows", "parameters": []}, "UNIMPLEMENTED", "subquery"),
        ({"name": "", "parameters": []}, "INVALID_ARGUMENT", "name"),
        ({"parameters": []}, "INVALID_ARGUMENT", "name"),
        ({"name": "column", "parameters": ["x", 1], "schema": "nosuch"}, "NOT_FOUND", "nosuch"),
        ({"name": "column", "parameters": ["x", 1], "catalog": "nosuch"}, "NOT_FOUND", "nosuch"),
    ],
    ids=str,
)
def test_what_cannot_be_called_is_refused_with_the_reason(functions, body, code, says):
    failure = functions.action_failure("table_function_flight_info", body)

    assert failure.code == code
    assert says in failure.message
    assert call(functions, "column", "x", 1) == [{"x": 0}]


def test_an_error_of_the_function_comes_when_it_is_read(functions):
    (endpoint,) = info(functions, {"name": "refusing", "parameters": [5]}).endpoints

    failure = functions.failure("DoGet", endpoint.ticket.serialize())

    assert (failure.code, failure.message) == ("INVALID_ARGUMENT", "refusing: 5 is too many")


def test_a_function_without_parameters_is_called_too(serve):
    builder, schema = catalog()
    schema.table_function(returns=NUMBERS, name="f")(lambda: numbers(2))

    assert call(serve(builder), "f") == [{"n": 0}, {"n": 1}]


def test_several_catalogs_each_have_their_own_functions(serve):
    first, second = (catalog(name) for name in ("first", "second"))

    @first[1].table_function(returns=NUMBERS, name="f")
    def _first(start: pa.int64()):
        return numbers(1, start)

    @second[1].table_function(returns=NUMBERS, name="f")
    def _second(start: pa.int64()):
        return numbers(1, -start)

    client = serve([first[0], second[0]])

    assert call(client, "f", 5) == [{"n": 5}]
    assert call(client, "f", 5, catalog="second") == [{"n": -5}]
    assert call(client, "f", 5, catalog_name="first") == [{"n": 5}]


# -------------------------------------------------------------------- endpoints {schema, table, …}


class Changing(DynamicSchemaTable):
    """A table whose version n has n columns, so that it has no fixed Arrow schema."""

    name = "t"
    arrow_schema = None

    def __init__(self) -> None:
        self.seen: list[TimePoint | None] = []

    def schema_for_request(self, ctx: sp.Context, request: SchemaRequest) -> pa.Schema:
        return pa.schema(
            [(f"c{number}", pa.int64()) for number in range(self._version(request.time_point))]
        )

    def scan(self, ctx: sp.Context, options: sp.ScanOptions) -> RecordReader:
        self.seen.append(options.time_point)
        version = self._version(options.time_point)
        names = [f"c{number}" for number in range(version)]
        return [pa.record_batch([pa.array([version])] * version, names=names)]

    @staticmethod
    def _version(time_point: TimePoint | None) -> int:
        if time_point is None:
            return 3
        if time_point.unit == "timestamp":
            return 2
        if not time_point.value.isdecimal() or not 1 <= int(time_point.value) <= 3:
            raise sp.NotFound(f"table t has no version {time_point.value}")
        return int(time_point.value)


@pytest.fixture
def changing() -> Changing:
    return Changing()


@pytest.fixture
def tables(serve, changing) -> RawClient:
    builder, schema = catalog()
    schema.table("t", changing)
    schema.table("plain", lambda ctx, options: [numbers(2)], arrow_schema=NUMBERS)
    return serve(builder)


def endpoints(client: RawClient, **body: Any) -> list[flight.FlightEndpoint]:
    (answer,) = client.action("endpoints", body)
    return [flight.FlightEndpoint.deserialize(each) for each in msgpack.unpackb(answer)]


def read(client: RawClient, **body: Any) -> Stream:
    (endpoint,) = endpoints(client, **body)
    return client.get(endpoint.ticket.ticket)


def test_a_table_is_planned_by_schema_and_name(tables, changing):
    stream = read(tables, schema="s", table="t")

    assert stream.arrow_schema.names == ["c0", "c1", "c2"]
    assert stream.rows() == [{"c0": 3, "c1": 3, "c2": 3}]
    assert changing.seen == [None]
    assert read(tables, schema="s", table="plain").rows() == [{"n": 0}, {"n": 1}]


@pytest.mark.parametrize("unit", ["version", "VERSION", "Version", "snapshot", "SNAPSHOT"])
def test_a_version_may_be_spelled_in_any_case(tables, changing, unit):
    stream = read(tables, schema="s", table="t", time_point={"unit": unit, "value": "2"})

    assert stream.rows() == [{"c0": 2, "c1": 2}]
    assert changing.seen == [
        TimePoint("snapshot" if unit.lower() == "snapshot" else "version", "2")
    ]


@pytest.mark.parametrize("unit", ["timestamp", "TIMESTAMP"])
@pytest.mark.parametrize(
    "value", ["2024-01-15T10:30:00Z", "2024-01-15 10:30:00", "2024-01-15 10:30:00.5+00"]
)
def test_a_timestamp_reaches_the_table_as_it_was_written(tables, changing, unit, value):
    read(tables, schema="s", table="t", time_point={"unit": unit, "value": value})

    assert changing.seen == [TimePoint("timestamp", value)]


@pytest.mark.parametrize(
    ("body", "code", "says"),
    [
        ({"schema": "s", "table": "nosuch"}, "NOT_FOUND", "nosuch"),
        ({"schema": "nosuch", "table": "t"}, "NOT_FOUND", "nosuch"),
        ({"schema": "s"}, "INVALID_ARGUMENT", "table"),
        ({"table": "t"}, "INVALID_ARGUMENT", "schema"),
        (
            {"schema": "s", "table": "t", "time_point": {"unit": "era", "value": "1"}},
            "INVALID_ARGUMENT",
            "era",
        ),
        (
            {"schema": "s", "table": "t", "time_point": {"unit": "version", "value": ""}},
            "INVALID_ARGUMENT",
            "VERSION",
        ),
        (
            {"schema": "s", "table": "t", "time_point": {"value": "1"}},
            "INVALID_ARGUMENT",
            "point in time",
        ),
        (
            {"schema": "s", "table": "t", "time_point": "yesterday"},
            "INVALID_ARGUMENT",
            "time_point",
        ),
        (
            {"schema": "s", "table": "t", "time_point": {"unit": "version", "value": "9"}},
            "NOT_FOUND",
            "version 9",
        ),
        (
            {"schema": "s", "table": "plain", "time_point": {"unit": "version", "value": "1"}},
            "UNIMPLEMENTED",
            "history",
        ),
    ],
    ids=str,
)
def test_what_cannot_be_planned_is_refused_with_the_reason(tables, body, code, says):
    failure = tables.action_failure("endpoints", body)

    assert failure.code == code
    assert says in failure.message


def test_a_table_without_an_arrow_schema_of_its_own_is_published_with_that_of_now(tables):
    listed = tables.list_schemas("c")["s"]["t"]

    assert listed.schema.names == ["c0", "c1", "c2"]
    assert metadata(listed)["name"] == "t"
    info = flight.FlightInfo.deserialize(
        tables.call("GetFlightInfo", path("c", "s", "t").serialize())[0]
    )
    assert info.schema.names == ["c0", "c1", "c2"]


@pytest.mark.parametrize("unit", ["VERSION", "SNAPSHOT"])
def test_duckdb_travels_in_a_table_without_an_arrow_schema_of_its_own(changing, unit):
    builder, schema = catalog()
    schema.table("t", changing)
    with sp.Server(builder, LOCAL) as server, DuckDBClient(server.location, "c") as client:
        assert client.scan("s", "t").to_pylist() == [{"c0": 3, "c1": 3, "c2": 3}]
        assert client.scan("s", "t", at=(unit, "1")).to_pylist() == [{"c0": 1}]
        assert client.scan("s", "t", ["c1"], at=(unit, "2")).to_pylist() == [{"c1": 2}]


@pytest.mark.parametrize(
    ("unit", "value", "count"),
    [
        ("version", "0", 1),
        ("SNAPSHOT", "1", 2),
        ("timestamp", "2024-01-15T10:30:30Z", 1),
        ("TIMESTAMP", "2024-01-15 10:30:30", 1),
        ("TIMESTAMP", "2024-01-15 10:31:30.25+00", 2),
        ("timestamp", "2024-01-15T12:31:30+02:00", 2),
        ("timestamp", "2024-01-15T10:31:30.250Z", 2),
    ],
)
def test_the_history_of_a_table_in_memory_is_read_in_both_notations(unit, value, count):
    moment = START

    def now() -> datetime.datetime:
        return moment

    settings = MemorySettings(now=now)
    history = sp.MemoryCatalog("c", settings=settings)
    history.add_schema("s").add_table(sp.MemoryTable("t", pa.table({"n": [1]}), settings=settings))
    with (
        sp.Server(history, LOCAL) as server,
        RawClient(server.location) as client,
        DuckDBClient(server.location, "c") as duckdb,
    ):
        moment = START + datetime.timedelta(minutes=1)
        duckdb.insert("s", "t", pa.table({"n": [2]}))

        stream = read(client, schema="s", table="t", time_point={"unit": unit, "value": value})

        assert len(stream.rows()) == count
        assert duckdb.scan("s", "t", ["n"], at=(unit.upper(), value)).num_rows == count
