"""Arguments and rows under both of DuckDB's settings: functions see equal values (airport §13)."""

# mypy: disable-error-code="valid-type"

import functools
import uuid
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from tests.functions.catalogs import catalog

import sparkport as sp
from sparkport.catalog import FunctionSignature, Parameter, TableFunction
from sparkport.testing import DuckDBClient

STRUCTS = pa.struct([("a", pa.int64()), ("b", pa.string())])


def opaque(name: str, storage: pa.DataType) -> pa.DataType:
    return pa.opaque(storage, name, "DuckDB")


# Two values in SQL, and the type that a function declares for them.
DECLARED: dict[str, tuple[tuple[str, str], pa.DataType]] = {
    "BOOLEAN": (("true", "false"), pa.bool_()),
    "BOOLEAN as bool8": (("true", "false"), pa.bool8()),
    "TINYINT": (("-128", "127"), pa.int8()),
    "UBIGINT": (("0", "18446744073709551615"), pa.uint64()),
    "HUGEINT": (("-170141183460469231731687303715884105", "5"), opaque("hugeint", pa.binary(16))),
    "UHUGEINT": (("0", "12345678901234567890123"), opaque("uhugeint", pa.binary(16))),
    "FLOAT": (("1.5", "'inf'"), pa.float32()),
    "DOUBLE": (("-0.0", "1e300"), pa.float64()),
    "DECIMAL(4,1)": (("-999.9", "0.1"), pa.decimal128(4, 1)),
    "DECIMAL(9,2) as decimal64": (("-9999999.99", "0.01"), pa.decimal64(9, 2)),
    "DECIMAL(38,10)": (("-1234567890123456789012345678.0123456789", "0"), pa.decimal128(38, 10)),
    "VARCHAR": (("'ä\U0001f986'", "''"), pa.string()),
    "VARCHAR as large_string": (("'ä\U0001f986'", "''"), pa.large_string()),
    "VARCHAR as string_view": (("'more than twelve bytes'", "''"), pa.string_view()),
    "VARCHAR as dictionary": (("'a'", "'b'"), pa.dictionary(pa.int8(), pa.string())),
    "JSON": (("'{\"a\": [1]}'", "'null'"), pa.json_()),
    "BLOB as large_binary": ((r"'\x00\xFF'", "''"), pa.large_binary()),
    "BIT": (("'0101'", "'111100001'"), opaque("bit", pa.binary())),
    "BIGNUM": (("5", "-123456789012345678901234567890"), opaque("bignum", pa.binary())),
    "DATE as date64": (("'2024-02-29'", "'1970-01-01'"), pa.date64()),
    "TIME": (("'23:59:59.999999'", "'00:00:00'"), pa.time64("us")),
    "TIME as time32": (("'23:59:59'", "'00:00:00'"), pa.time32("s")),
    "TIMETZ": (("'01:02:03+00'", "'23:59:59+00'"), opaque("time_tz", pa.binary(8))),
    "TIMESTAMP": (("'2024-01-02 03:04:05.000006'", "'1900-01-01'"), pa.timestamp("us")),
    "TIMESTAMP_NS": (("'2024-01-02 03:04:05.000000006'", "'1900-01-01'"), pa.timestamp("ns")),
    "TIMESTAMPTZ as another zone": (
        ("'2024-01-02 03:04:05+00'", "'1900-01-01 00:00:00+00'"),
        pa.timestamp("ms", "Asia/Tokyo"),
    ),
    "INTERVAL": (("'1 month 2 days 3 microseconds'", "'-1 day'"), pa.month_day_nano_interval()),
    "INTERVAL as duration": (("'2 hours 3 microseconds'", "'-1 second'"), pa.duration("us")),
    "UUID": (
        ("'00000000-0000-0000-0000-000000000005'", "'ffffffff-ffff-ffff-ffff-ffffffffffff'"),
        pa.uuid(),
    ),
    "INTEGER[] as large_list": (("[1, NULL, 3]", "[]"), pa.large_list(pa.int32())),
    "BOOLEAN[]": (("[true, false, true, true, NULL, true]", "[]"), pa.list_(pa.bool_())),
    "UUID[]": (("['00000000-0000-0000-0000-000000000005', NULL]", "[]"), pa.list_(pa.uuid())),
    "HUGEINT[]": (("[5, NULL]", "[]"), pa.list_(opaque("hugeint", pa.binary(16)))),
    "VARCHAR[2]": (("['a', NULL]", "['b', 'c']"), pa.list_(pa.string(), 2)),
    "STRUCT(a BIGINT, b VARCHAR)": (("{'a': 1, 'b': 'x'}", "{'a': NULL, 'b': ''}"), STRUCTS),
    "MAP(VARCHAR, UUID)": (
        ("MAP {'k': '00000000-0000-0000-0000-000000000005'}", "MAP {}"),
        pa.map_(pa.string(), pa.uuid()),
    ),
    "UNION(n INTEGER, s VARCHAR)": (
        ("union_value(n := 1)", "union_value(s := 'x')"),
        pa.sparse_union([pa.field("n", pa.int32()), pa.field("s", pa.string())]),
    ),
}
# The simulation takes no nested Arrow values as arguments of a table function, and without the
# lossless setting DuckDB sends a BIT as its bytes.
PLAIN = [name for name in DECLARED if not DECLARED[name][1].num_fields]
UNTYPED = [name for name in DECLARED if name != "BIT"]
CASES = [
    (kind, name)
    for kind, names in (("scalar", DECLARED), ("table", PLAIN), ("rows", UNTYPED))
    for name in names
]


@pytest.fixture(scope="module")
def seen():
    """What the functions of `location` have received, by their names."""
    return {}


@pytest.fixture(scope="module")
def location(seen):
    """A server whose functions note their arguments, and return them."""
    builder, schema = catalog()
    for number, (_, declared) in enumerate(DECLARED.values()):
        add_functions(schema, number, declared, seen)
    with sp.Server(builder, "grpc://127.0.0.1:0") as server:
        yield server.location


def add_functions(
    schema: sp.SchemaBuilder, number: int, declared: pa.DataType, seen: dict[str, pa.Array]
) -> None:
    returns = pa.schema([("x", declared)])

    def of_scalar(x: declared):
        seen[f"scalar{number}"] = x
        return x

    class OfTable(TableFunction):
        name = f"table{number}"
        signature = FunctionSignature((Parameter("x", declared),))

        def schema_for_parameters(self, ctx, parameters):
            return returns

        def execute(self, ctx, parameters, options):
            seen[self.name] = parameters.arrow.column(0)
            return [pa.RecordBatch.from_arrays([parameters.arrow.column(0)], schema=returns)]

    def of_rows(rows: pa.Table):
        for batch in rows:
            seen[f"rows{number}"] = batch.column(0)
            yield batch

    schema.scalar_function(of_scalar, name=f"scalar{number}", returns=declared)
    schema.table_function(returns=lambda rows: rows, name=f"rows{number}")(of_rows)
    schema._schema.add_table_function(OfTable())


@pytest.fixture(scope="module", params=[True, False], ids=["lossless", "lossy"])
def client(location, request):
    with DuckDBClient(location, "c", arrow_lossless=request.param) as client:
        yield client


@functools.lru_cache(maxsize=1)
def database() -> duckdb.DuckDBPyConnection:
    """A DuckDB beside the client's, which loads no extensions and converts without loss."""
    connection = duckdb.connect(
        config={"autoload_known_extensions": False, "arrow_lossless_conversion": True}
    )
    connection.execute("SET TimeZone = 'Etc/UTC'")
    return connection


def values_of(sql_type: str, values: tuple[str, str]) -> pa.Array:
    """The values as DuckDB has them, with NULL as the third, without loss."""
    selects = [f"SELECT CAST({value} AS {sql_type}) AS x" for value in (*values, "NULL")]
    rows = database().sql(" UNION ALL ".join(selects)).to_arrow_table()
    return rows.column(0).combine_chunks()


def texts(values: pa.Array, sql_type: str) -> list[Any]:
    """DuckDB's texts of Arrow values, whatever their encoding."""
    connection = database()
    connection.register("given", pa.table({"x": values}))
    return [
        row[0] for row in connection.sql(f"SELECT x::{sql_type}::VARCHAR FROM given").fetchall()
    ]


@pytest.mark.parametrize(("kind", "name"), CASES)
def test_arguments_arrive_and_return_with_the_same_values(client, seen, kind, name):
    sql_type = name.partition(" as ")[0]
    values, declared = values_of(sql_type, DECLARED[name][0]), DECLARED[name][1]
    function = f"{kind}{list(DECLARED).index(name)}"
    if kind == "table":  # one value at a time
        values = values.slice(0, 1)

    if kind == "scalar":
        returned = client.call("s", function, [values])
    elif kind == "table":
        returned = client.table_function("s", function, values[0]).column("x")
    else:
        returned = client.in_out("s", function, rows=pa.table({"x": values})).column("x")

    assert kind == "rows" or seen[function].type == declared
    assert texts(seen[function], sql_type) == texts(values, sql_type)
    assert texts(returned, sql_type) == texts(values, sql_type)


@pytest.mark.parametrize("lossless", [True, False], ids=["lossless", "lossy"])
def test_python_gets_the_same_values_under_both_settings(serve, lossless):
    arrived: list[Any] = []
    builder, schema = catalog()

    @schema.table_function(returns=pa.schema([("n", pa.int64())]))
    def f(
        flag: pa.bool_(), large: opaque("hugeint", pa.binary(16)), key: pa.uuid(), note: pa.json_()
    ):
        arrived.append((flag, large, key, note))

    client = serve(builder, arrow_lossless=lossless)
    client.table_function("s", "f", True, 2**100, uuid.UUID(int=5), "{}")

    assert arrived == [(True, 2**100, uuid.UUID(int=5), "{}")]
