"""Every type of constant (airport §6.6): what DuckDB serialises becomes SQL of an equal value."""

import base64
import json

import duckdb
import pytest
from tests.filters.plans import constant_json

from sparkport.catalog.filters.literals import Inexpressible, constant_sql
from sparkport.catalog.filters.tree import Constant, DuckType, Interval
from sparkport.wire.filter_values import decode_constant

LITERALS = [
    "true",
    "false",
    *(f"CAST({value} AS TINYINT)" for value in (-128, 0, 127)),
    *(f"CAST({value} AS SMALLINT)" for value in (-32768, 32767)),
    *(f"CAST({value} AS INTEGER)" for value in (-2147483648, 2147483647)),
    *(f"CAST({value} AS BIGINT)" for value in (-9223372036854775808, 9223372036854775807)),
    "CAST(255 AS UTINYINT)",
    "CAST(65535 AS USMALLINT)",
    "CAST(4294967295 AS UINTEGER)",
    "CAST(18446744073709551615 AS UBIGINT)",
    *(f"CAST('{value}' AS HUGEINT)" for value in (-(2**127), -(2**64), -1, 2**64, 2**127 - 1)),
    *(f"CAST('{value}' AS UHUGEINT)" for value in (0, 2**127, 2**128 - 1)),
    *(
        f"CAST('{value}' AS FLOAT)"
        for value in ("0.1", "-0.0", "3.4028235e38", "1e-45", "inf", "-inf")
    ),
    *(
        f"CAST('{value}' AS DOUBLE)"
        for value in ("0.1", "-0.0", "1.7976931348623157e308", "5e-324", "inf", "-inf")
    ),
    *(f"CAST('{value}' AS DECIMAL(4, 2))" for value in ("12.34", "-0.05", "0", "99.99")),
    "CAST('-123456789012345.678' AS DECIMAL(18, 3))",
    *(
        f"CAST('{value}' AS DECIMAL(38, 5))"
        for value in ("-123456789012345678901234567890123.45678", "0.00001")
    ),
    "CAST('99999999999999999999999999999999999999' AS DECIMAL(38, 0))",
    *(
        f"CAST({text} AS VARCHAR)"
        for text in ("''", "'it''s'", "'日本 \"x\" \\ %'", "'--'", "'a' || chr(0) || 'b'")
    ),
    """CAST('{"a": 1}' AS JSON)""",
    *(f"CAST({text} AS BLOB)" for text in ("''", r"'\x00\xFF\x27\x22\x5C'", "'plain text'")),
    *(
        f"CAST('{date}' AS DATE)"
        for date in ("1970-01-01", "0044-03-15 (BC)", "infinity", "-infinity", "5874897-12-31")
    ),
    *(f"CAST('{time}' AS TIME)" for time in ("00:00:00", "23:59:59.999999", "24:00:00")),
    *(
        f"CAST('{time}' AS TIMETZ)"
        for time in ("01:02:03.456+02", "00:00:00-15:59:59", "24:00:00+15:59:59", "12:00:00+00")
    ),
    *(
        f"CAST('{text}' AS {kind})"
        for kind in ("TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS")
        for text in (
            "1970-01-01",
            "2020-02-29 13:14:15",
            "1921-07-08 01:02:03",
            "infinity",
            "-infinity",
        )
    ),
    "CAST('2020-02-29 13:14:15.678901' AS TIMESTAMP)",
    "CAST('0044-03-15 (BC) 01:00:00' AS TIMESTAMP)",
    "CAST('2020-02-29 13:14:15.678' AS TIMESTAMP_MS)",
    "CAST('2020-02-29 13:14:15.678901234' AS TIMESTAMP_NS)",
    *(
        f"CAST('{text}' AS TIMESTAMPTZ)"
        for text in ("2022-06-01 07:00:00.5+02", "1900-01-01 00:00:00+00", "infinity")
    ),
    *(
        f"INTERVAL '{text}'"
        for text in ("1 month 6 days", "-40 days", "3 hours -1 microsecond", "-7 months 1 day")
    ),
    *(
        f"CAST('{text}' AS UUID)"
        for text in ("00000000-0000-0000-0000-000000000000", "f1234567-89ab-7def-8123-456789abcdef")
    ),
    "CAST('b''c' AS ENUM('a', 'b''c', 'd'))",
    "[1, NULL, 3]",
    "CAST([] AS VARCHAR[])",
    "[['a'], NULL, []]",
    "[{'x': 1}, {'x': NULL}]",
    "CAST([1, 2, NULL] AS INTEGER[3])",
    "{'a': 1, 'b c': 'x', 'd\"e': NULL::DATE}",
    "{'outer': {'inner': [1.5]}}",
    "MAP {'k': 1, 'l': NULL}",
    "CAST(MAP {} AS MAP(VARCHAR, INTEGER[]))",
    "CAST(union_value(s := 'x') AS UNION(n INTEGER, s VARCHAR))",
    "CAST(union_value(n := NULL::INTEGER) AS UNION(n INTEGER, s VARCHAR))",
    "row(1, 'x')",
    *(
        f"CAST(NULL AS {kind})"
        for kind in ("INTEGER", "DECIMAL(10, 2)", "VARCHAR", "INTEGER[]", "STRUCT(a DATE)", "UUID")
    ),
]


@pytest.fixture(scope="module")
def connection():
    with duckdb.connect(config={"threads": "1"}) as opened:
        opened.execute("SET TimeZone = 'Asia/Tokyo'")
        yield opened


@pytest.mark.parametrize("literal", LITERALS)
def test_a_constant_means_what_duckdb_serialised(connection, literal):
    constant = decode_constant(constant_json(connection, literal)["value"])
    again = constant_sql(constant)

    equal, same_bits, same_type = connection.execute(
        f"SELECT ({again}) IS NOT DISTINCT FROM ({literal}), "
        f"CAST({again} AS VARCHAR) IS NOT DISTINCT FROM CAST({literal} AS VARCHAR), "
        f"typeof({again}) = typeof({literal})"
    ).fetchone()

    assert (equal, same_bits, same_type) == (True, True, True), again


@pytest.mark.skipif(duckdb.__version__.startswith("1.4"), reason="TIME_NS came with DuckDB 1.5")
@pytest.mark.parametrize("text", ["00:00:00", "23:59:59.999999999"])
def test_nanosecond_times_mean_what_duckdb_serialised(connection, text):
    test_a_constant_means_what_duckdb_serialised(connection, f"CAST('{text}' AS TIME_NS)")


@pytest.mark.parametrize("kind", ["FLOAT", "DOUBLE"])
def test_not_a_number_is_a_number(connection, kind):
    # json_serialize_plan cannot write it; the client can (airport §6.2).
    constant = decode_constant(
        json.loads(f'{{"type": {{"id": "{kind}"}}, "is_null": false, "value": NaN}}')
    )

    assert connection.execute(
        f"SELECT isnan({constant_sql(constant)}), typeof({constant_sql(constant)})"
    ).fetchone() == (
        True,
        kind,
    )


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        *(("BIT", bits) for bits in ("0", "0101", "11111111", "111100001", "0" * 64 + "1")),
        *(("BIGNUM", str(value)) for value in (0, 5, -5, 128, -256, 10**40, -(10**40))),
    ],
)
def test_internal_bytes_mean_what_duckdb_keeps_in_them(connection, kind, text):
    # Nor can it write bytes that are not text, so Arrow makes them; its bytes are equal (airport
    # §13.1).
    connection.execute("SET arrow_lossless_conversion = true")
    (value,) = (
        connection.sql(f"SELECT CAST('{text}' AS {kind}) AS value")
        .to_arrow_table()
        .column("value")
        .to_pylist()
    )
    encoded = {"base64": base64.b64encode(value).decode()}
    constant = decode_constant(
        {"type": {"id": kind, "type_info": None}, "is_null": False, "value": encoded}
    )

    assert constant_sql(constant) == f"CAST('{text}' AS {kind})"


def test_internal_bytes_that_are_text_arrive_as_text():
    number = {"type": {"id": "BIT", "type_info": None}, "is_null": False, "value": "\u0000A"}

    assert constant_sql(decode_constant(number)) == "CAST('01000001' AS BIT)"


def test_children_without_a_type_inherit_it():
    kind = {
        "id": "LIST",
        "type_info": {"type": "LIST_TYPE_INFO", "child_type": {"id": "TINYINT", "type_info": None}},
    }
    value = {"children": [{"is_null": False, "value": 7}, {"is_null": True}]}

    assert constant_sql(decode_constant({"type": kind, "is_null": False, "value": value})) == (
        "CAST([CAST(7 AS TINYINT), CAST(NULL AS TINYINT)] AS TINYINT[])"
    )


@pytest.mark.parametrize(
    "constant",
    [
        Constant(DuckType("TINYINT"), 128),
        Constant(DuckType("UTINYINT"), -1),
        Constant(DuckType("INTEGER"), True),
        Constant(DuckType("BOOLEAN"), 1),
        Constant(DuckType("INTEGER"), "1) OR (1 = 1"),
        Constant(DuckType("INTEGER); DROP TABLE x; --"), 1),
        Constant(DuckType("VARCHAR", alias="INET"), "x"),
        Constant(DuckType("VARCHAR"), "\ud800"),
        Constant(DuckType("DECIMAL", 50, 2), 1),
        Constant(DuckType("DECIMAL", 10, 2), 10**40),
        Constant(DuckType("TIME"), -1),
        Constant(DuckType("TIME WITH TIME ZONE"), 0xFFFFFF),
        Constant(DuckType("TIMESTAMP_S"), 2**62),
        Constant(DuckType("DATE"), 2**31),
        Constant(DuckType("INTERVAL"), Interval(2**31, 0, 0)),
        Constant(DuckType("ENUM", values=("a",)), "b"),
        Constant(DuckType("BIT"), b"\x09\xff"),
        Constant(DuckType("BIGNUM"), b"\x80\x00\x05\x01"),
        Constant(DuckType("GEOMETRY"), b"x"),
        Constant(DuckType("VARIANT"), None),
        Constant(DuckType("STRUCT", fields=(("a", DuckType("DATE")),)), ()),
        Constant(DuckType("LIST", child=DuckType("DATE")), 5),
    ],
)
def test_a_value_that_is_not_of_its_type_has_no_sql(constant):
    with pytest.raises(Inexpressible):
        constant_sql(constant)
