"""Every type of airport §13.1, one line each: how it is encoded, edge cases of its values, a
condition, what is lost.

All settings but the first have `arrow_lossless_conversion`, as the recorded ones had. VARIANT is no
line, because the client refuses to send it; neither are TIMESTAMPTZ_NS, TUPLE and TYPE, which
DuckDB 2 has and the protocol has not. BIT in views is what DuckDB sends from 1.5.5 on; the recorded
client, with 1.5.0, fails on it.
"""

from __future__ import annotations

import datetime
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from enum import Enum
from typing import Any, TypeAlias

import pyarrow as pa
from tests.wire.arrow_values import BIGNUM, BIT, HUGEINT, TIME_TZ, UHUGEINT


class Setting(Enum):
    """The settings of a session that decide how it encodes, as DuckDB's SET takes them (airport
    §13.1).
    """

    DEFAULT = ()
    LOSSLESS = ("arrow_lossless_conversion = true",)
    LARGE = (*LOSSLESS, "arrow_large_buffer_size = true")
    STRING_VIEW = (*LOSSLESS, "arrow_output_version = '1.4'", "produce_arrow_string_view = true")
    LIST_VIEW = (*LOSSLESS, "arrow_output_version = '1.4'", "arrow_output_list_view = true")
    LARGE_LIST_VIEW = (*LIST_VIEW, "arrow_large_buffer_size = true")
    VERSION_1_4 = (*LOSSLESS, "arrow_output_version = '1.4'")
    VERSION_1_5 = (*LOSSLESS, "arrow_output_version = '1.5'")
    NEW_YORK = (*LOSSLESS, "TimeZone = 'America/New_York'")


Encodings: TypeAlias = Mapping[Setting, pa.DataType]
_VERSIONED = (
    Setting.VERSION_1_4,
    Setting.VERSION_1_5,
    Setting.STRING_VIEW,
    Setting.LIST_VIEW,
    Setting.LARGE_LIST_VIEW,
)
_LARGE = (Setting.LARGE, Setting.LARGE_LIST_VIEW)

# ---------------------------------------------------------------------- the table of airport §13.1


def same(
    everywhere: pa.DataType, default: pa.DataType | None = None, **others: pa.DataType
) -> Encodings:
    """The lossless type, and under which settings it is another."""
    found = dict.fromkeys(Setting, everywhere) | {
        Setting[name]: kind for name, kind in others.items()
    }
    return found if default is None else found | {Setting.DEFAULT: default}


def _blob(
    wrap: Callable[[pa.DataType], pa.DataType], default: pa.DataType | None = None
) -> Encodings:
    """Bytes; the version counts for more than large buffers do."""
    encodings = {**same(wrap(pa.binary()), default), Setting.LARGE: wrap(pa.large_binary())}
    return encodings | dict.fromkeys(_VERSIONED, wrap(pa.binary_view()))


def _text(
    wrap: Callable[[pa.DataType], pa.DataType], default: pa.DataType | None = None
) -> Encodings:
    view = {Setting.STRING_VIEW: wrap(pa.string_view())}
    return {
        **same(wrap(pa.string()), default),
        **view,
        **dict.fromkeys(_LARGE, wrap(pa.large_string())),
    }


def _decimal(precision: int, scale: int) -> Encodings:
    narrow = pa.decimal32 if precision <= 9 else pa.decimal64 if precision <= 18 else pa.decimal128
    return same(pa.decimal128(precision, scale), VERSION_1_5=narrow(precision, scale))


boolean = same(pa.bool8(), default=pa.bool_())
integer = same(pa.int32())
hugeint = same(HUGEINT, default=pa.decimal128(38, 0))
varchar = _text(lambda text: text)
json = _text(pa.json_, default=pa.string())
blob = _blob(lambda octets: octets)
bit = _blob(lambda octets: pa.opaque(octets, "bit", "DuckDB"), default=pa.binary())
bignum = _blob(lambda octets: pa.opaque(octets, "bignum", "DuckDB"))
timetz = same(TIME_TZ, default=pa.time64("us"))
timestamptz = same(pa.timestamp("us", "Etc/UTC"), NEW_YORK=pa.timestamp("us", "America/New_York"))
uid = same(pa.uuid(), default=pa.string())
assert (bit[Setting.LOSSLESS], bignum[Setting.LOSSLESS]) == (BIT, BIGNUM)


def lists(values: Encodings) -> Encodings:
    kinds = dict.fromkeys(Setting, pa.list_) | {Setting.LARGE: pa.large_list}
    kinds |= {Setting.LIST_VIEW: pa.list_view, Setting.LARGE_LIST_VIEW: pa.large_list_view}
    return {setting: kinds[setting](pa.field("l", kind)) for setting, kind in values.items()}


def arrays(values: Encodings, size: int) -> Encodings:
    return {setting: pa.list_(pa.field("", kind), size) for setting, kind in values.items()}


def struct(**fields: Encodings) -> Encodings:
    return {
        each: pa.struct([(name, field[each]) for name, field in fields.items()]) for each in Setting
    }


def maps(keys: Encodings, values: Encodings) -> Encodings:
    return {setting: pa.map_(keys[setting], values[setting]) for setting in Setting}


def union(**members: Encodings) -> Encodings:
    return {
        each: pa.sparse_union([pa.field(name, kind[each]) for name, kind in members.items()])
        for each in Setting
    }


# --------------------------------------------------------------------------------------- the lines


@dataclass(frozen=True, slots=True, eq=False)
class Line:
    """One type."""

    name: str
    """As DuckDB spells it, and as the catalog reports a column of it that was declared with
    lossless conversion.
    """
    encodings: Encodings
    values: tuple[str, ...]
    """SQL, each to be cast to the type. The first is the argument of functions."""
    python: Any
    """What the first value is in Python, for a function that is given it; Arrow's scalar where
    Python has none.
    """
    where: str
    """A condition on `v`, as SQL."""
    kept: tuple[int, ...]
    """Which of the values fulfil it."""
    sql: str = ""
    """How a column is declared, where that is not the name."""
    by_default: str = ""
    """LOSS: the type of a column that was declared with default settings, where the wire cannot say
    the true one.
    """
    reported: str = ""
    """LOSS: the type of a column even if it was declared with lossless conversion."""
    arrives: tuple[str, ...] = ()
    """LOSS: what a client with default settings sends instead of the values."""
    compared: tuple[str, Any] | None = None
    """The condition as the client pushes it, where it is one comparison with a constant: how, and
    its JSON (§6.6).
    """
    exact: bool = True
    """Whether the server applies the condition; else it may send all rows, and DuckDB alone applies
    it (airport §6.1).
    """
    metadata: Mapping[str, str] = field(default_factory=dict)
    """Of the field: extension types that pyarrow does not know."""

    @property
    def declared(self) -> str:
        return self.sql or self.name

    @property
    def arrow(self) -> pa.DataType:
        """What the values are stored as."""
        return self.encodings[Setting.LOSSLESS]

    @property
    def published(self) -> pa.DataType:
        """What clients see of it: plain values in place of a dictionary (T33)."""
        return self.arrow.value_type if pa.types.is_dictionary(self.arrow) else self.arrow

    def sent_as(self, setting: Setting) -> pa.Field:
        """The column `v` under that setting."""
        return pa.field("v", self.encodings[setting], metadata=self.metadata or None)

    @property
    def distinct(self) -> tuple[Setting, ...]:
        """The settings that encode it differently; of those that agree, the first."""
        found: list[Setting] = []
        for setting in (Setting.LOSSLESS, *Setting):
            if all(self.encodings[setting] != self.encodings[other] for other in found):
                found.append(setting)
        return tuple(found)


N = "NULL"
ID, ZEROS, ONES = (
    "'123e4567-e89b-12d3-a456-426614174000'",
    "'00000000-0000-0000-0000-000000000000'",
    "'ffffffff-ffff-ffff-ffff-ffffffffffff'",
)
THE_ID = uuid.UUID(ID[1:-1])
LOW, HIGH = f"'{-(2**127)}'", f"'{2**127 - 1}'"
MOMENT, STAMP = "'2024-02-29 12:34:56.789012'", datetime.datetime(2024, 2, 29, 12, 34, 56, 789012)
LONG = "'🦆 and more than the twelve bytes that a view has room for'"
ENUM = "ENUM('red', 'green', 'blue')"
MANY = "ENUM(" + ", ".join(f"'member {number}'" for number in range(300)) + ")"
NOON_TZ = bytes(
    [0xDF, 0xC4, 0x00, 0x14, 0x26, 0xE6, 0x8B, 0x0A]
)  # 12:34:56.789012 at two hours east
POINT = bytes.fromhex("0101000000000000000000f03f0000000000000040")
WKB = {"ARROW:extension:name": "geoarrow.wkb", "ARROW:extension:metadata": "{}"}
MONTHS = pa.MonthDayNano([14, 3, ((4 * 60 + 5) * 60 + 6) * 10**9 + 789012000])


def _signed(name: str, bits: int, kind: pa.DataType) -> Line:
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    values = (str(low), str(high), "0", "-1", N)
    return Line(name, same(kind), values, low, "v < 0", (0, 3), compared=("LESSTHAN", 0))


def _unsigned(name: str, bits: int, kind: pa.DataType) -> Line:
    high = 2**bits - 1
    half, values = high // 2, (str(high), "0", "1", N)
    return Line(name, same(kind), values, high, f"v > {half}", (0,), compared=("GREATERTHAN", half))


def _float(name: str, kind: pa.DataType, least: str, most: str) -> Line:
    nans = ("'nan'", f"-('nan'::{name})")
    values = ("1.5", *nans, "'inf'", "'-inf'", "'-0.0'", "0", least, most, N)
    # NaN is greater than all numbers.
    return Line(
        name, same(kind), values, 1.5, "v > 1e30", (1, 2, 3, 8), compared=("GREATERTHAN", 1e30)
    )


def _decimals(precision: int, scale: int) -> Line:
    nines = "9" * (precision - scale) + ("." + "9" * scale if scale else "")
    values = (f"'{nines}'", f"'-{nines}'", "0", "1", N)
    name, one = f"DECIMAL({precision},{scale})", 10**scale
    compared = ("GREATERTHANOREQUALTO", one if precision <= 18 else {"upper": 0, "lower": one})
    encodings = _decimal(precision, scale)
    return Line(name, encodings, values, Decimal(nines), "v >= 1", (0, 3), compared=compared)


def _timestamp(name: str, unit: str, moment: str, python: Any, low: str, high: str) -> Line:
    zoned = "+00" if "ZONE" in name else ""
    dates = (f"'1970-01-01 00:00:00{zoned}'", f"'{low} 00:00:00{zoned}'", f"'{high}{zoned}'")
    values = (f"'{moment}'", "'infinity'", "'-infinity'", *dates, N)
    encodings = timestamptz if zoned else same(pa.timestamp(unit))
    compared = ("GREATERTHAN", 946684800 * {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit])
    where = f"v > '2000-01-01 00:00:00{zoned}'::{name}"
    return Line(name, encodings, values, python, where, (0, 1, 5), compared=compared)


LINES: tuple[Line, ...] = (
    Line("BOOLEAN", boolean, ("true", "false", N), True, "v", (0,)),
    _signed("TINYINT", 8, pa.int8()),
    _signed("SMALLINT", 16, pa.int16()),
    _signed("INTEGER", 32, pa.int32()),
    _signed("BIGINT", 64, pa.int64()),
    _unsigned("UTINYINT", 8, pa.uint8()),
    _unsigned("USMALLINT", 16, pa.uint16()),
    _unsigned("UINTEGER", 32, pa.uint32()),
    _unsigned("UBIGINT", 64, pa.uint64()),
    Line("HUGEINT", hugeint, (LOW, HIGH, f"'{'9' * 38}'", "-1", "0", N), -(2**127),
         f"v > {2**64}", (1, 2), by_default="DECIMAL(38,0)", compared=("GREATERTHAN", {"upper": 1, "lower": 0})),
    Line("UHUGEINT", same(UHUGEINT, default=pa.decimal128(38, 0)), (f"'{2**128 - 1}'", f"'{2**127}'", HIGH, "0", N),
         2**128 - 1, f"v >= {2**127}", (0, 1), by_default="DECIMAL(38,0)",
         compared=("GREATERTHANOREQUALTO", {"upper": 2**63, "lower": 0})),
    _float("FLOAT", pa.float32(), "1e-45", "3.4028234663852886e38"),
    _float("DOUBLE", pa.float64(), "5e-324", "1.7976931348623157e308"),
    _decimals(4, 1),
    _decimals(9, 2),
    _decimals(18, 3),
    _decimals(38, 10),
    _decimals(38, 0),
    Line("VARCHAR", varchar, ("'text ü'", "''", LONG, "'a' || chr(0) || 'b'", "'it''s'", N), "text ü",
         "v >= 'text'", (0, 2), compared=("GREATERTHANOREQUALTO", "text")),
    Line("JSON", json, ("'{\"a\": [1, 2]}'", "'null'", "' \"ü\" '", "'[]'", N), '{"a": [1, 2]}',
         "v::VARCHAR LIKE '%a%'", (0,), by_default="VARCHAR"),
    Line("BLOB", blob, (r"'\xAA\x00\xFF'::BLOB", "''::BLOB", "'abc'::BLOB", r"repeat('\xFE'::BLOB, 40)", N),
         b"\xaa\x00\xff", r"v > '\x07a''\xFD'::BLOB", (0, 2, 3), compared=("GREATERTHAN", r"\x07a\x27\xFD")),
    Line("BIT", bit, ("'0101101'", "'1'", "'01010101'", "'010101010'", "'01010101010101010'", "'0'", N), b"\x01\xad",
         "v = '01010101'::BIT", (2,), by_default="BLOB", compared=("EQUAL", "\x00U")),
    Line("BIGNUM", bignum, (f"'{-(2**100)}'", f"'{2**100}'", "5", "-5", "0", N), b"\x7f\xff\xf2\xef" + b"\xff" * 12,
         "v < 0::BIGNUM", (0, 3), compared=("LESSTHAN", {"base64": "gAABAA=="})),
    Line("DATE", same(pa.date32()), ("'2024-02-29'", "'infinity'", "'-infinity'", "'0044-03-15 (BC)'",
         "'5877642-06-25 (BC)'", "'5881580-07-10'", N), datetime.date(2024, 2, 29), "v > DATE '2024-01-01'", (0, 1, 5),
         compared=("GREATERTHAN", 19723)),
    Line("TIME", same(pa.time64("us")), ("'12:34:56.789012'", "'00:00:00'", "'23:59:59.999999'", "'24:00:00'", N),
         datetime.time(12, 34, 56, 789012), "v >= TIME '12:00:00'", (0, 2, 3),
         compared=("GREATERTHANOREQUALTO", 43200000000)),
    Line("TIME_NS", same(pa.time64("ns")), ("'12:34:56.789012345'", "'00:00:00'", "'23:59:59.999999999'", N),
         pa.scalar(45296789012345, pa.time64("ns")), "v > '12:34:56.789012344'::TIME_NS", (0, 2),
         compared=("GREATERTHAN", 45296789012344)),
    Line("TIME WITH TIME ZONE", timetz, ("'12:34:56.789012+02'", "'00:00:00+15:59:59'", "'23:00:00-15:59:59'",
         "'12:34:56+00'", N), NOON_TZ, "v < '12:00:00+00'::TIMETZ", (0, 1), by_default="TIME",
         arrives=("'12:34:56.789012+00'", "'00:00:00+00'", "'23:00:00+00'", "'12:34:56+00'", N)),
    _timestamp("TIMESTAMP", "us", MOMENT[1:-1], STAMP, "290309-12-22 (BC)", "294247-01-10 04:00:54.775806"),
    _timestamp("TIMESTAMP_S", "s", MOMENT[1:20], STAMP.replace(microsecond=0), "290309-12-22 (BC)", "294247-01-10"),
    _timestamp("TIMESTAMP_MS", "ms", MOMENT[1:-4], STAMP.replace(microsecond=789000), "290309-12-22 (BC)",
               "294247-01-10 04:00:54.775"),
    _timestamp("TIMESTAMP_NS", "ns", MOMENT[1:-1] + "345", pa.scalar(1709210096789012345, pa.timestamp("ns")),
               "1677-09-22", "2262-04-11 23:47:16.854775806"),
    _timestamp("TIMESTAMP WITH TIME ZONE", "us", MOMENT[1:-1] + "+02",
               STAMP.replace(hour=10, tzinfo=datetime.timezone.utc), "290309-12-22 (BC)",
               "294247-01-10 04:00:54.775806"),
    Line("INTERVAL", same(pa.month_day_nano_interval()), ("'1 year 2 months 3 days "
                                                          "04:05:06.789012'",
         "'-1 month 2 days -3 microseconds'", "'30 days'", "'1 month'", "'720 hours'",
         "to_microseconds(9223372036854775)", "'-2147483647 months'", "'0 days'", N), MONTHS,
         "v = INTERVAL '1 month'", (2, 3, 4)),  # all three are as long
    Line("UUID", uid, (ID, ZEROS, ONES, N), THE_ID, "v >= '80000000-0000-0000-0000-000000000000'::UUID", (2,),
         by_default="VARCHAR", compared=("GREATERTHANOREQUALTO", {"upper": 0, "lower": 0})),
    # The members of an ENUM are not in the schema, so its column is VARCHAR, and gets text.
    Line("ENUM", same(pa.dictionary(pa.uint8(), pa.string())), ("'green'", "'red'", "'blue'", N), "green",
         "v = 'green'", (0,), sql=ENUM, by_default="VARCHAR", reported="VARCHAR", compared=("EQUAL", "green")),
    Line("ENUM of 300", same(pa.dictionary(pa.uint16(), pa.string())), ("'member 299'", "'member 0'", N), "member 299",
         "v > 'member 1'", (0,), sql=MANY, by_default="VARCHAR", reported="VARCHAR"),
    Line("INTEGER[]", lists(integer), ("[1, NULL, 3]", "[]", "[NULL]", N, "[2]"), [1, None, 3], "v[1] > 1", (4,)),
    Line("VARCHAR[]", lists(varchar), ("['a', NULL]", "[]", f"[{LONG}, '']", N), ["a", None], "v = ['a', NULL]", (0,)),
    Line("BLOB[]", lists(blob), (r"['\xAA'::BLOB, NULL]", "[]", "[''::BLOB]", N), [b"\xaa", None], "len(v) = 2", (0,)),
    Line("DECIMAL(9,2)[]", lists(_decimal(9, 2)), ("[1.25, NULL, -9999999.99]", "[]", N),
         [Decimal("1.25"), None, Decimal("-9999999.99")], "v[1] = 1.25", (0,)),
    Line("BOOLEAN[]", lists(boolean), ("[true, false, true, true]", "[]", "[NULL, false]", N,
         "[false, false, true, NULL, true, false, false, true, true]"), [True, False, True, True], "v[1]", (0,)),
    Line("UUID[]", lists(uid), (f"[{ID}, NULL]", "[]", f"[{ONES}, {ZEROS}]", N), [THE_ID, None], f"v[1] = {ID}::UUID",
         (0,), by_default="VARCHAR[]"),
    Line("HUGEINT[]", lists(hugeint), ("[-1, NULL]", "[]", f"[{LOW}, {HIGH}]", N), [-1, None], "v[1] = -1", (0,),
         by_default="DECIMAL(38,0)[]"),
    Line("BIT[]", lists(bit), ("['101', NULL]", "[]", "['01010101']", N), [b"\x05\xfd", None],
         "v[1] = '01010101'::BIT", (2,), by_default="BLOB[]", exact=False),
    Line("INTEGER[][]", lists(lists(integer)), ("[[1, 2], [], NULL]", "[]", "[[NULL]]", N), [[1, 2], [], None],
         "len(v) = 3", (0,)),
    Line("INTEGER[3]", arrays(integer, 3), ("[1, NULL, 3]", N, "[4, 5, 6]"), [1, None, 3], "v[1] = 4", (2,)),
    Line("BOOLEAN[3]", arrays(boolean, 3), ("[true, false, NULL]", N, "[false, true, true]", "[true, true, true]"),
         [True, False, None], "v[1]", (0, 3)),
    Line("UUID[2]", arrays(uid, 2), (f"[{ID}, NULL]", N, f"[{ZEROS}, {ONES}]"), [THE_ID, None], f"v[1] = {ID}::UUID",
         (0,), by_default="VARCHAR[2]"),
    Line("HUGEINT[2]", arrays(hugeint, 2), ("[-1, NULL]", N, f"[{LOW}, {HIGH}]"), [-1, None], "v[1] = -1", (0,),
         by_default="DECIMAL(38,0)[2]"),
    Line("STRUCT(a INTEGER, b VARCHAR)", struct(a=integer, b=varchar), ("{'a': 1, 'b': 'x'}", "{'a': NULL, 'b': NULL}",
         N, f"{{'a': 2, 'b': {LONG}}}"), {"a": 1, "b": "x"}, "v.a = 2", (3,)),
    Line("STRUCT(b BOOLEAN, u UUID, h HUGEINT, x BIT)", struct(b=boolean, u=uid, h=hugeint, x=bit),
         (f"{{'b': true, 'u': {ID}, 'h': -1, 'x': '101'}}", "{'b': false, 'u': NULL, 'h': NULL, "
                                                            "'x': NULL}", N,
          f"{{'b': NULL, 'u': {ONES}, 'h': 5, 'x': '1'}}"), {"b": True, "u": THE_ID, "h": -1, "x": b"\x05\xfd"},
         "v.b", (0,), by_default="STRUCT(b BOOLEAN, u VARCHAR, h DECIMAL(38,0), x BLOB)"),
    Line("STRUCT(t TIME WITH TIME ZONE)", struct(t=timetz), ("{'t': '12:34:56.789012+02'}", "{'t': NULL}", N),
         {"t": NOON_TZ}, "v.t IS NOT NULL", (0,), by_default="STRUCT(t TIME)",
         arrives=("{'t': '12:34:56.789012+00'}", "{'t': NULL}", N)),
    Line("MAP(VARCHAR, INTEGER)", maps(varchar, integer), ("MAP {'a': 1, 'b': NULL}", "MAP {}", N), [("a", 1), ("b", None)],
         "v['a'] = 1", (0,)),
    Line("MAP(UUID, BOOLEAN)", maps(uid, boolean), (f"MAP {{{ID}: false, {ONES}: true, {ZEROS}: "
                                                    f"NULL}}", "MAP {}", N),
         [(THE_ID, False), (uuid.UUID(ONES[1:-1]), True), (uuid.UUID(int=0), None)], "cardinality(v) = 3", (0,),
         by_default="MAP(VARCHAR, BOOLEAN)"),
    # A union on the wire is never NULL itself: a NULL is the first member's.
    Line("UNION(num INTEGER, str VARCHAR)", union(num=integer, str=varchar), ("union_value(str := "
                                                                              "'x')",
         "union_value(num := 7)", f"union_value(str := {LONG})", N, "union_value(num := NULL)"), "x",
         "v.num = 7", (1,)),
    Line("UNION(b BOOLEAN, u UUID)", union(b=boolean, u=uid), (f"union_value(u := {ID}::UUID)", "union_value(b := true)",
         "union_value(b := false)", N), THE_ID, "v.b", (1,), by_default="UNION(b BOOLEAN, u "
                                                                        "VARCHAR)"),
    Line("MAP(VARCHAR, STRUCT(l HUGEINT[][], b BOOLEAN[2])[])",
         maps(varchar, lists(struct(l=lists(lists(hugeint)), b=arrays(boolean, 2)))),
         ("MAP {'k': [{'l': [[1, NULL], [], NULL], 'b': [false, true]}, NULL]}", "MAP {'e': [], 'n': NULL}", N,
          "MAP {'s': [{'l': NULL, 'b': NULL}, {'l': [], 'b': [NULL, true]}]}"),
         [("k", [{"l": [[1, None], [], None], "b": [False, True]}, None])], "len(v['k']) = 2", (0,),
         by_default="MAP(VARCHAR, STRUCT(l DECIMAL(38,0)[][], b BOOLEAN[2])[])"),
    # A function can only be declared with an Arrow type, which does not say GEOMETRY, but BLOB.
    Line("GEOMETRY", blob, ("'POINT(1 2)'", "'POINT EMPTY'", "'POINT Z (1 2 3)'", "'POLYGON((0 0, "
                                                                                  "1 0, 1 1, 0 "
                                                                                  "0))'",
         "'GEOMETRYCOLLECTION EMPTY'", N), POINT, "v = 'POINT(1 2)'::GEOMETRY", (0,), exact=False, metadata=WKB),
    Line('"NULL"', same(pa.null()), (N, N), None, "v IS NULL", (0, 1)),
)  # fmt: skip
