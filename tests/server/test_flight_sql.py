"""Flight SQL's commands for discovery: as ADBC's driver sends them, and each as bytes."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from importlib.metadata import version

import duckdb
import grpc
import pyarrow as pa
import pyarrow.flight as flight
import pytest
from adbc_driver_flightsql import DatabaseOptions, dbapi
from adbc_driver_manager import NotSupportedError, ProgrammingError
from tests.server.catalogs import (
    ListedCatalog,
    ListedSchema,
    ListedTable,
    ScriptedTable,
    catalog_of,
    numbers,
)
from tests.server.protobuf import command, message, varint
from tests.server.raw_client import REUSE, RawClient, failure_of, path

import sparkport as sp
from sparkport.catalog import ConstrainedTable, Constraints, Context, Schema, Table

OPTIONS = flight.FlightCallOptions(timeout=20)
LIMITS = {
    DatabaseOptions.TIMEOUT_QUERY.value: "20",
    DatabaseOptions.TIMEOUT_FETCH.value: "20",
    DatabaseOptions.TIMEOUT_UPDATE.value: "20",
    "adbc.flight.sql.rpc.timeout_seconds.connect": "20",
}
SESSION = DatabaseOptions.RPC_CALL_HEADER_PREFIX.value + "airport-client-session-id"
CATALOG = DatabaseOptions.RPC_CALL_HEADER_PREFIX.value + "airport-catalog"
SENDS_TABLE_TYPES = pytest.mark.skipif(
    version("adbc-driver-flightsql").startswith("1.12."),
    reason="up to 1.12, all that Python 3.10 has, ADBC keeps them back",
)
WEIRD = 'We"ird. schémä'
DUCK = 'ta\'ble "🦆" %'


class KeyedTable(ListedTable, ConstrainedTable):
    @property
    def constraints(self) -> Constraints:
        return Constraints(primary_key=("name", "id"), not_null=("name", "id"))


class BrokenSchema(ListedSchema):
    def tables(self, ctx: Context) -> Sequence[Table]:
        raise RuntimeError("the store is down")


class DiscreetCatalog(ListedCatalog):
    """A catalog whose schema `secret` only one session may see."""

    def schemas(self, ctx: Context) -> Sequence[Schema]:
        return [
            each for each in self.contents if each.name != "secret" or ctx.session_id == "insider"
        ]


def documented(rows: pa.Table) -> pa.Table:
    return rows.cast(rows.schema.set(0, rows.schema.field(0).with_metadata({"comment": "counts"})))


@pytest.fixture(scope="module")
def server() -> Iterator[sp.Server]:
    sales = ListedSchema(
        "sales", [KeyedTable("orders", documented(numbers())), ListedTable("old_orders", numbers())]
    )
    # DuckDB cannot read it, so it is not published.
    halves = ScriptedTable("halves", pa.schema([("x", pa.float16())]))
    weird = ListedSchema(WEIRD, [halves, ListedTable(DUCK, pa.table({'a"b': [1], "ü": ["x"]}))])
    secret = ListedSchema("secret", [ListedTable("plans", numbers())])
    shop = DiscreetCatalog(
        "shop", [weird, sales, ListedSchema("main", [ListedTable("t", numbers())]), secret]
    )
    lake = ListedCatalog(
        "lake", [ListedSchema("sales", [ListedTable("orders", numbers())]), BrokenSchema("broken")]
    )
    with sp.Server([shop, lake], "grpc://127.0.0.1:0") as server:
        yield server


@pytest.fixture(scope="module")
def client(server):
    with flight.connect(server.location) as client:
        yield client


@pytest.fixture(scope="module")
def raw(server):
    with RawClient(server.location) as client:
        yield client


@pytest.fixture(scope="module")
def connection(server):
    with connect(server) as connection:
        yield connection


def connect(server: sp.Server, **options: str) -> dbapi.Connection:
    return dbapi.connect(server.location, db_kwargs={**LIMITS, **options}, autocommit=True)


# ----------------------------------------------------------------------------------- ADBC's driver


def objects(connection, depth="tables", **filters):
    """Return the names that the driver has found, as paths of one to four elements."""
    found = connection.adbc_get_objects(depth=depth, **filters).read_all().to_pylist()
    for catalog in found:
        yield (catalog["catalog_name"],)
        for schema in catalog["catalog_db_schemas"] or ():
            yield (catalog["catalog_name"], schema["db_schema_name"])
            for table in schema["db_schema_tables"] or ():
                names = (catalog["catalog_name"], schema["db_schema_name"], table["table_name"])
                yield names
                yield from (
                    (*names, column["column_name"]) for column in table["table_columns"] or ()
                )


SCHEMAS = [
    ("lake", "broken"),
    ("lake", "sales"),
    ("shop", WEIRD),
    ("shop", "main_"),
    ("shop", "sales"),
]
TABLES = [
    ("lake", "sales", "orders"),
    ("shop", WEIRD, DUCK),
    ("shop", "main_", "t"),
    ("shop", "sales", "old_orders"),
    ("shop", "sales", "orders"),
]


@pytest.mark.parametrize(
    ("depth", "expected"),
    [
        ("catalogs", [("lake",), ("shop",)]),
        ("db_schemas", [("lake",), ("shop",), *SCHEMAS]),
        ("tables", [("lake",), ("shop",), *SCHEMAS, *TABLES]),
    ],
)
def test_adbc_finds_what_there_is_in_order(connection, depth, expected):
    found = list(objects(connection, depth))

    assert sorted(found) == sorted(expected)
    for length in (1, 2, 3):
        assert [each for each in found if len(each) == length] == [
            each for each in expected if len(each) == length
        ]


def test_adbc_finds_columns_with_their_types(connection):
    found = connection.adbc_get_objects(
        catalog_filter="shop", db_schema_filter="sales", table_name_filter="orders"
    )
    (table,) = found.read_all().to_pylist()[0]["catalog_db_schemas"][0]["db_schema_tables"]

    columns = [(each["column_name"], each["xdbc_type_name"]) for each in table["table_columns"]]
    assert columns == [("id", "BIGINT"), ("name", "VARCHAR"), ("value", "DOUBLE")]
    assert table["table_type"] == "TABLE"


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({"catalog_filter": "lake"}, TABLES[:1]),
        ({"db_schema_filter": "s_les"}, [TABLES[0], *TABLES[3:]]),
        ({"table_name_filter": "%orders"}, [TABLES[0], *TABLES[3:]]),
        ({"table_name_filter": "old%"}, TABLES[3:4]),
        ({"table_name_filter": DUCK}, TABLES[1:2]),
        ({"db_schema_filter": "main"}, []),
        ({"table_types_filter": ["TABLE"]}, TABLES),
        pytest.param({"table_types_filter": ["VIEW"]}, [], marks=SENDS_TABLE_TYPES),
    ],
)
def test_adbc_filters_tables(connection, filters, expected):
    assert [each for each in objects(connection, **filters) if len(each) == 3] == expected


def test_adbc_filters_columns(connection):
    found = objects(
        connection, "all", catalog_filter="shop", db_schema_filter="sales", column_name_filter="n%"
    )

    assert [each for each in found if len(each) == 4] == [(*table, "name") for table in TABLES[3:]]


def test_adbc_gets_the_schema_of_a_table(connection):
    arrow_schema = connection.adbc_get_table_schema(
        "orders", catalog_filter="shop", db_schema_filter="sales"
    )

    assert arrow_schema.equals(numbers().schema)
    assert arrow_schema.field(0).metadata[b"ARROW:FLIGHT:SQL:REMARKS"] == b"counts"
    assert connection.adbc_get_table_schema(DUCK, db_schema_filter=WEIRD).names == ['a"b', "ü"]


def test_adbc_finds_no_schema_of_a_table_that_is_not_there(connection):
    with pytest.raises(ProgrammingError, match="NOT_FOUND"):
        connection.adbc_get_table_schema("nope")


def test_adbc_learns_about_the_server(connection):
    info = connection.adbc_get_info()

    assert info["vendor_name"] == "Sparkport"
    assert info["vendor_version"] == sp.__version__
    assert info["vendor_arrow_version"] == pa.__version__
    assert connection.adbc_get_table_types() == ["TABLE"]


def test_adbc_sees_what_the_session_may_see(server):
    with connect(server, **{SESSION: "insider"}) as insider:
        assert ("shop", "secret", "plans") in objects(insider)
    with connect(server, **{SESSION: "outsider"}) as outsider:
        assert not [each for each in objects(outsider) if "secret" in each]


def test_adbc_can_keep_to_one_catalog_by_a_header(server):
    with connect(server, **{CATALOG: "lake"}) as connection:
        assert list(objects(connection)) == [("lake",), *SCHEMAS[:2], TABLES[0]]


def test_adbc_may_bring_a_user_name_and_a_password(server):
    with connect(server, username="me", password="hush") as connection:
        assert connection.adbc_get_table_types() == ["TABLE"]


def test_adbc_reads_a_table_as_a_partition(connection, client):
    info = client.get_flight_info(path("shop", "sales", "orders"), OPTIONS)
    with connection.cursor() as cursor:
        cursor.adbc_read_partition(info.serialize())

        assert cursor.fetch_arrow_table().equals(numbers())


def test_adbc_is_told_where_to_run_sql(connection):
    with (
        connection.cursor() as cursor,
        pytest.raises(NotSupportedError, match="does not run SQL: ATTACH it in DuckDB"),
    ):
        cursor.execute("SELECT 1")


def test_adbc_cannot_begin_a_transaction(server):
    with pytest.warns(Warning, match="Cannot disable autocommit"):
        connection = dbapi.connect(server.location, db_kwargs=LIMITS)
    connection.close()


@pytest.mark.parametrize("name", ["", "named"])
def test_adbc_browses_a_server_of_one_catalog_whether_it_has_a_name_or_not(start, name):
    with connect(start(catalog_of(ListedTable("t", numbers()), name=name))) as connection:
        assert list(objects(connection)) == [(name,), (name, "s"), (name, "s", "t")]
        assert connection.adbc_get_table_schema("t", catalog_filter=name) == numbers().schema


@pytest.mark.parametrize(
    "catalogs", [[], [ListedCatalog("empty")]], ids=["no catalog", "no schema"]
)
def test_adbc_browses_a_server_that_has_nothing(start, catalogs):
    with connect(start(catalogs)) as connection:
        assert [each for each in objects(connection, "all") if len(each) > 1] == []


def test_a_thousand_tables_are_listed(start):
    tables = [
        ScriptedTable(f"t{i}", pa.schema([(f"c{i}_{j}", pa.int64()) for j in range(20)]))
        for i in range(1000)
    ]
    with connect(start(catalog_of(*tables, name="big"))) as connection:
        assert len(list(objects(connection, "all"))) == 2 + 1000 * 21


# ---------------------------------------------------------------------------- commands, one by one


def ask(client, name: str, *fields: tuple[int, str | bytes | int]) -> pa.Table:
    """Return the answer of a command, after a check that its schema is equal everywhere."""
    descriptor = flight.FlightDescriptor.for_command(command(name, *fields))
    info = client.get_flight_info(descriptor, OPTIONS)
    (endpoint,) = info.endpoints
    assert info.descriptor == descriptor
    assert [location.uri.decode() for location in endpoint.locations] == [REUSE]
    answer = client.do_get(endpoint.ticket, OPTIONS).read_all()
    described = client.get_schema(descriptor, OPTIONS).schema
    assert answer.schema.equals(info.schema, check_metadata=True)
    assert answer.schema.equals(described, check_metadata=True)
    answer.validate(full=True)
    return answer


def field(text: str) -> pa.Field:
    """`name: type` or `name: type not null`, in the words of FlightSql.proto."""
    name, _, rest = text.partition(": ")
    kind = rest.removesuffix(" not null")
    types = {
        "utf8": pa.string(),
        "bytes": pa.binary(),
        "int32": pa.int32(),
        "uint8": pa.uint8(),
        "bool": pa.bool_(),
    }
    return pa.field(name, types[kind], nullable=kind == rest)


def spec(*texts: str) -> pa.Schema:
    return pa.schema([field(text) for text in texts])


NAMES = ("catalog_name: utf8", "db_schema_name: utf8", "table_name: utf8 not null")
REFERENCES = spec(
    *(
        "pk_catalog_name: utf8",
        "pk_db_schema_name: utf8",
        "pk_table_name: utf8 not null",
        "pk_column_name: utf8 not null",
    ),
    *(
        "fk_catalog_name: utf8",
        "fk_db_schema_name: utf8",
        "fk_table_name: utf8 not null",
        "fk_column_name: utf8 not null",
    ),
    *("key_sequence: int32 not null", "fk_key_name: utf8", "pk_key_name: utf8"),
    *("update_rule: uint8 not null", "delete_rule: uint8 not null"),
)
TYPES = spec(
    *("type_name: utf8 not null", "data_type: int32 not null", "column_size: int32"),
    *("literal_prefix: utf8", "literal_suffix: utf8"),
    *("nullable: int32 not null", "case_sensitive: bool not null", "searchable: int32 not null"),
    *(
        "unsigned_attribute: bool",
        "fixed_prec_scale: bool not null",
        "auto_increment: bool",
        "local_type_name: utf8",
    ),
    *(
        "minimum_scale: int32",
        "maximum_scale: int32",
        "sql_data_type: int32 not null",
        "datetime_subcode: int32",
    ),
    *("num_prec_radix: int32", "interval_precision: int32"),
).insert(5, pa.field("create_params", pa.list_(pa.field("item", pa.string(), nullable=False))))
INFO = pa.schema(
    [
        pa.field("info_name", pa.uint32(), nullable=False),
        pa.field(
            "value",
            pa.dense_union(
                [
                    pa.field("string_value", pa.string()),
                    pa.field("bool_value", pa.bool_()),
                    pa.field("bigint_value", pa.int64()),
                    pa.field("int32_bitmask", pa.int32()),
                    pa.field("string_list", pa.list_(pa.field("string_data", pa.string()))),
                    pa.field(
                        "int32_to_int32_list_map",
                        pa.map_(pa.int32(), pa.list_(pa.field("$data$", pa.int32()))),
                    ),
                ]
            ),
        ),
    ]
)


@pytest.mark.parametrize(
    ("name", "fields", "expected"),
    [
        ("CommandGetCatalogs", (), spec("catalog_name: utf8 not null")),
        ("CommandGetDbSchemas", (), spec("catalog_name: utf8", "db_schema_name: utf8 not null")),
        ("CommandGetTables", (), spec(*NAMES, "table_type: utf8 not null")),
        (
            "CommandGetTables",
            ((5, 1),),
            spec(*NAMES, "table_type: utf8 not null", "table_schema: bytes not null"),
        ),
        ("CommandGetTableTypes", (), spec("table_type: utf8 not null")),
        (
            "CommandGetPrimaryKeys",
            ((3, "orders"),),
            spec(
                *NAMES,
                "column_name: utf8 not null",
                "key_name: utf8",
                "key_sequence: int32 not null",
            ),
        ),
        ("CommandGetExportedKeys", ((3, "orders"),), REFERENCES),
        ("CommandGetImportedKeys", ((3, "orders"),), REFERENCES),
        ("CommandGetCrossReference", ((3, "orders"), (6, "old_orders")), REFERENCES),
        ("CommandGetXdbcTypeInfo", (), TYPES),
        ("CommandGetSqlInfo", (), INFO),
    ],
)
def test_answers_have_the_schema_that_flight_sql_documents(client, name, fields, expected):
    assert ask(client, name, *fields).schema.equals(expected, check_metadata=True)


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ([], TABLES),
        ([(1, "shop")], TABLES[1:]),
        ([(1, "")], []),  # without a catalog there is none
        ([(1, "nope")], []),
        ([(1, "sh%")], []),  # the catalog is no pattern
        ([(2, "%a%")], [TABLES[0], *TABLES[2:]]),
        ([(2, "")], []),
        ([(2, "%"), (3, "%%_%")], TABLES),
        ([(3, "orders_")], []),
        ([(3, "%o%d%_%d%s")], TABLES[3:4]),
        ([(3, "ORDERS")], []),
        ([(3, ".*")], []),
        ([(4, "VIEW"), (4, "TABLE")], TABLES),
        ([(4, "VIEW")], []),
        ([(99, "unknown fields"), (98, 3)], TABLES),
    ],
)
def test_tables_are_filtered(client, filters, expected):
    found = ask(client, "CommandGetTables", *filters)

    assert list(zip(*found.select([0, 1, 2]).to_pydict().values(), strict=True)) == expected


def test_schemas_are_filtered(client):
    found = ask(client, "CommandGetDbSchemas", (1, "shop"), (2, "_a%"))

    assert found.to_pylist() == [
        {"catalog_name": "shop", "db_schema_name": "main_"},
        {"catalog_name": "shop", "db_schema_name": "sales"},
    ]


def test_a_table_brings_its_arrow_schema_with_the_names_of_duckdb_for_its_types(start):
    plain = [
        pa.int8(),
        pa.uint8(),
        pa.int32(),
        pa.uint64(),
        pa.float32(),
        pa.float64(),
        pa.bool_(),
        pa.large_string(),
    ]
    plain += [
        pa.binary(),
        pa.date32(),
        pa.time64("us"),
        pa.time64("ns"),
        pa.duration("us"),
        pa.decimal128(9, 2),
    ]
    plain += [*(pa.timestamp(unit) for unit in ("s", "ms", "us", "ns")), pa.timestamp("us", "UTC")]
    plain += [
        pa.uuid(),
        pa.opaque(pa.binary(16), "hugeint", "DuckDB"),
        pa.opaque(pa.binary(), "bit", "DuckDB"),
    ]
    plain += [
        pa.list_(pa.int16()),
        pa.list_(pa.string(), 3),
        pa.map_(pa.string(), pa.list_(pa.int64())),
    ]
    plain += [pa.struct([("a", pa.int64()), ("b c", pa.list_(pa.date32()))])]
    plain += [pa.sparse_union([pa.field("n", pa.int64()), pa.field("s", pa.string())])]
    columns = pa.schema([(f"c{number}", kind) for number, kind in enumerate(plain)])
    with flight.connect(start(catalog_of(ScriptedTable("t", columns))).location) as client:
        (sent,) = ask(client, "CommandGetTables", (5, 1)).column("table_schema").to_pylist()
    arrow_schema = pa.ipc.read_schema(pa.py_buffer(sent))
    with duckdb.connect() as database:
        described = database.from_arrow(pa.RecordBatchReader.from_batches(columns, [])).types

    assert arrow_schema.equals(columns)
    names = [each.metadata[b"ARROW:FLIGHT:SQL:TYPE_NAME"].decode() for each in arrow_schema]
    assert names == [str(kind) for kind in described]


@pytest.mark.parametrize(
    ("fields", "catalogs"),
    [
        ([(3, "orders")], ["shop"]),
        ([(1, "shop"), (2, "sales"), (3, "orders")], ["shop"]),
        ([(1, "lake"), (3, "orders")], []),
        ([(2, "s_les"), (3, "orders")], []),  # no pattern
        ([(3, "old_orders")], []),
        ([(3, "nope")], []),
        ([], []),
    ],
)
def test_primary_keys_are_those_that_the_table_declares(client, fields, catalogs):
    assert ask(client, "CommandGetPrimaryKeys", *fields).to_pylist() == [
        {
            "catalog_name": catalog,
            "db_schema_name": "sales",
            "table_name": "orders",
            "column_name": column,
            "key_name": None,
            "key_sequence": position,
        }
        for catalog in catalogs
        for position, column in enumerate(("name", "id"), 1)
    ]


def infos(client, *fields):
    return {
        row["info_name"]: row["value"]
        for row in ask(client, "CommandGetSqlInfo", *fields).to_pylist()
    }


def test_the_infos_that_are_asked_for_are_given(client):
    packed = varint(0) + varint(3) + varint(503) + varint(9999)
    expected = {0: "Sparkport", 3: True, 503: 1}

    assert (
        infos(client, (1, packed)) == infos(client, (1, 0), (1, 3), (1, 503), (1, 9999)) == expected
    )


def test_all_infos_of_a_catalog_that_only_reads_say_so(client):
    given = infos(client)

    assert [*range(12), 100, 101, *range(500, 577)] == list(given)
    assert not any(given[number] for number in (4, 5, 8, 9, 10, 11, 500, 501, 502, 563))
    assert given[3]


def test_types_are_listed_by_number_and_name(client):
    rows = ask(client, "CommandGetXdbcTypeInfo").to_pylist()
    listed = [(row["data_type"], row["type_name"]) for row in rows]

    assert listed == sorted(set(listed))
    assert {(12, "VARCHAR"), (-5, "BIGINT"), (3, "DECIMAL"), (93, "TIMESTAMP")} <= set(listed)
    assert {
        row["type_name"] for row in ask(client, "CommandGetXdbcTypeInfo", (1, -5)).to_pylist()
    } == {*("BIGINT", "UBIGINT")}
    assert ask(client, "CommandGetXdbcTypeInfo", (1, 1111)).num_rows == 0


def test_large_answers_come_in_several_batches(start):
    tables = [
        ScriptedTable("t" * 4000 + str(i), pa.schema([("x", pa.int64())])) for i in range(700)
    ]
    with flight.connect(start(catalog_of(*tables)).location) as client:
        batches = ask(client, "CommandGetTables").to_batches()

    assert len(batches) == 3
    assert sum(batch.num_rows for batch in batches) == 700


# ---------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize("method", ["GetFlightInfo", "GetSchema"])
@pytest.mark.parametrize(
    ("name", "code", "reason"),
    [
        ("CommandStatementQuery", "UNIMPLEMENTED", "'shop' does not run SQL: ATTACH it in DuckDB"),
        ("CommandStatementSubstraitPlan", "UNIMPLEMENTED", "is not served"),
        ("CommandOfTheFuture", "UNIMPLEMENTED", "CommandOfTheFuture is not served"),
        ("CommandPreparedStatementQuery", "INVALID_ARGUMENT", "prepare the statement again"),
        ("CommandStatementUpdate", "INVALID_ARGUMENT", "is for DoPut"),
        ("CommandPreparedStatementUpdate", "INVALID_ARGUMENT", "is for DoPut"),
        ("CommandStatementIngest", "INVALID_ARGUMENT", "is for DoPut"),
    ],
)
def test_a_command_that_cannot_be_run_is_refused(raw, method, name, code, reason):
    descriptor = flight.FlightDescriptor.for_command(command(name, (1, "SELECT 1")))
    failure = raw.failure(method, descriptor.serialize())

    assert failure.code == code
    assert reason in failure.message


@pytest.mark.parametrize(
    ("name", "fields", "reason"),
    [
        ("CreatePreparedStatement", [(1, "SELECT 1")], "'shop' does not run SQL"),
        ("BeginTransaction", [], "transaction manager not configured"),
        ("EndTransaction", [(1, "t"), (2, 1)], "transaction manager not configured"),
        ("BeginSavepoint", [(1, "t"), (2, "s")], "there is no action 'BeginSavepoint'"),
        ("CreatePreparedSubstraitPlan", [], "there is no action"),
    ],
)
def test_an_action_that_the_catalog_cannot_do_is_refused(raw, name, fields, reason):
    failure = raw.action_failure(name, command(f"Action{name}Request", *fields))

    assert failure.code == "UNIMPLEMENTED"
    assert reason in failure.message


@pytest.mark.parametrize(
    "garbage",
    [
        command("CommandGetTables")[:-1],
        command("CommandGetTables") + b"\xff",
        message((1, "type.googleapis.com/arrow.flight.protocol.sql.CommandGetTables"), (2, 7)),
        message(
            (1, "type.googleapis.com/arrow.flight.protocol.sql.CommandGetTables"), (2, b"\xff\xff")
        ),
        command("CommandGetTables", (1, b"\xff\xfe")),
        command("CommandGetTables", (1, 5)),
        command("CommandGetTables", (4, 5)),
        command("CommandGetTables", (5, "yes")),
        command("CommandGetTables", (3, "%" * 10_001)),
        command("CommandGetDbSchemas", (2, 5)),
        command("CommandGetCatalogs")[:-1] + b"\x02\xff\xff",
        command("CommandGetPrimaryKeys", (3, b"\x80")),
        command("CommandGetCrossReference", (6, 1)),
        command("CommandGetSqlInfo", (1, b"\x80")),
        command("CommandGetSqlInfo", (1, b"\xff" * 20)),
        command("CommandGetXdbcTypeInfo", (1, "x")),
    ],
)
def test_a_command_that_cannot_be_read_is_a_bad_request(raw, garbage):
    descriptor = flight.FlightDescriptor.for_command(garbage).serialize()

    assert raw.failure("GetFlightInfo", descriptor).code == "INVALID_ARGUMENT"
    assert raw.failure("GetSchema", descriptor).code == "INVALID_ARGUMENT"


@pytest.mark.parametrize(
    "other", [b"hello", message((1, "type.googleapis.com/google.protobuf.Empty")), b"\x0a\xff"]
)
def test_a_command_of_something_else_is_not_found(raw, other):
    assert (
        raw.failure("GetFlightInfo", flight.FlightDescriptor.for_command(other).serialize()).code
        == "NOT_FOUND"
    )


def test_a_damaged_command_is_never_an_internal_error(raw):
    whole = command("CommandGetTables", (1, "shop"), (3, "%o%"), (4, "TABLE"), (5, 1))
    damaged = [whole[:end] for end in range(1, len(whole))]
    damaged += [
        whole[:at] + bytes([whole[at] ^ flip]) + whole[at + 1 :]
        for at in range(len(whole))
        for flip in (1, 128)
    ]
    codes = set()
    for each in damaged:
        try:
            raw.call("GetSchema", flight.FlightDescriptor.for_command(each).serialize())
        except grpc.RpcError as error:
            codes.add(failure_of(error).code)

    assert codes == {"INVALID_ARGUMENT", "NOT_FOUND", "UNIMPLEMENTED"}


def test_a_pattern_of_many_wildcards_costs_little(start):
    with flight.connect(start(catalog_of(ListedTable("a" * 2000, numbers()))).location) as client:
        began = time.monotonic()
        assert ask(client, "CommandGetTables", (3, "%a" * 500 + "%b")).num_rows == 0
        assert ask(client, "CommandGetTables", (3, "%a" * 500 + "%")).num_rows == 1
        assert time.monotonic() - began < 30  # to try all ways would never end


def test_a_header_that_names_no_catalog_of_the_server_is_not_found(raw):
    descriptor = flight.FlightDescriptor.for_command(command("CommandGetTables")).serialize()

    assert raw.failure("GetFlightInfo", descriptor, {"airport-catalog": "nope"}).code == "NOT_FOUND"


# --------------------------------------------------------------------------------------- handshake


def test_a_handshake_gives_a_token_that_says_nothing(client):
    assert client.authenticate_basic_token("me", "hush", OPTIONS) == (
        b"authorization",
        b"Bearer anonymous",
    )


def test_a_handshake_answers_every_message_with_an_empty_one(raw):
    assert raw.call("Handshake", [b"\x12\x04hush", b""]) == [b"", b""]
    assert raw.call("Handshake", []) == []
