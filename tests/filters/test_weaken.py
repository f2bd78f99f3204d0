"""What may be skipped of a filter (airport §6.1), and what counts as exactly understood."""

import duckdb
import pyarrow as pa
import pytest
from tests.filters.plans import filter_json, kept_by, kept_by_duckdb

from sparkport.catalog.filters import (
    BOOLEAN,
    Case,
    Cast,
    ColumnRef,
    Comparison,
    ComparisonKind,
    Conjunction,
    ConjunctionKind,
    Constant,
    DuckType,
    Filter,
    Function,
    Operator,
    OperatorKind,
    Unknown,
    is_exact,
)
from sparkport.engine.filters import Evaluator
from sparkport.wire.filters import decode_filter

INTEGER = DuckType("INTEGER")
UNKNOWN = Unknown("for the test")


def column_is(value: int) -> Comparison:
    return Comparison(ComparisonKind.EQUAL, ColumnRef("a", INTEGER), Constant(INTEGER, value))


def both(*children) -> Conjunction:
    return Conjunction(ConjunctionKind.AND, children)


def either(*children) -> Conjunction:
    return Conjunction(ConjunctionKind.OR, children)


def negated(child) -> Operator:
    return Operator(OperatorKind.NOT, (child,), BOOLEAN)


ONE, TWO = column_is(1), column_is(2)


@pytest.mark.parametrize(
    ("expressions", "kept"),
    [
        ((ONE, UNKNOWN), (ONE,)),
        ((UNKNOWN,), ()),
        ((both(ONE, UNKNOWN, TWO),), (both(ONE, TWO),)),
        ((both(ONE, UNKNOWN),), (ONE,)),
        ((both(UNKNOWN, UNKNOWN),), ()),
        ((either(ONE, TWO),), (either(ONE, TWO),)),
        ((either(ONE, UNKNOWN),), ()),
        ((either(ONE, both(TWO, UNKNOWN)),), (either(ONE, TWO),)),
        ((either(ONE, both(UNKNOWN, UNKNOWN)),), ()),
        ((both(ONE, either(TWO, UNKNOWN)),), (ONE,)),
        ((negated(UNKNOWN),), ()),
        ((negated(both(ONE, UNKNOWN)),), ()),
        ((negated(either(ONE, UNKNOWN)),), ()),
        ((negated(negated(both(ONE, UNKNOWN))),), ()),
        ((Comparison(ComparisonKind.EQUAL, both(ONE, UNKNOWN), TWO),), ()),
        ((Operator(OperatorKind.IS_NULL, (both(ONE, UNKNOWN),), BOOLEAN),), ()),
        ((Operator(OperatorKind.COALESCE, (both(ONE, UNKNOWN), TWO), BOOLEAN),), ()),
        ((Case(((ONE, both(TWO, UNKNOWN)),), TWO, BOOLEAN),), ()),
        ((Function("xor", (both(ONE, UNKNOWN), TWO), BOOLEAN),), ()),
        ((Cast(both(ONE, UNKNOWN), BOOLEAN),), ()),
    ],
)
def test_only_and_and_or_at_the_top_are_taken_apart(expressions, kept):
    assert Filter(expressions, "raw").weaken(is_exact) == Filter(kept, "raw")


def test_a_backend_weakens_to_what_it_can_translate():
    whole = Filter((both(ONE, TWO), either(ONE, TWO), negated(ONE)))

    assert whole.weaken(lambda part: part == ONE).expressions == (ONE,)


def test_sql_is_the_conjunction_of_what_is_exact():
    assert (
        Filter((both(ONE, UNKNOWN), TWO)).sql()
        == '("a" = CAST(1 AS INTEGER)) AND ("a" = CAST(2 AS INTEGER))'
    )
    assert Filter((UNKNOWN,)).sql() is None


def test_columns_are_those_of_the_whole_filter():
    assert Filter(
        (either(ONE, negated(Function("f", (ColumnRef("rowid", INTEGER),), BOOLEAN))),)
    ).columns == {
        "a",
        "rowid",
    }


DATA = pa.record_batch(
    {
        "id": pa.array(range(8), pa.int64()),
        "a": pa.array([0, 1, 2, -3, None, 2147483647, 6, 7], pa.int32()),
        "b": pa.array([3, None, 5, 7, 1, 0, -6, 2], pa.int32()),
        "d": pa.array([0.0, -0.0, 1.5, float("nan"), None, float("inf"), 2.25, -7.125]),
        "s": pa.array(["", "abc", "ABC", None, "a%b", "Ünï", "12", "2020-01-02"]),
        "dec": pa.array(["1.10", "2.25", None, "-0.05", "9.99", "0.00", "3.00", "12.34"]).cast(
            pa.decimal128(10, 2)
        ),
        "dt": pa.array([0, 18262, None, -1, 19000, 20000, 59, 60], pa.int32()).cast(pa.date32()),
        "ts": pa.array([0, 1, -1, None, 1582982055678901, 10**15, 59, 60], pa.int64()).cast(
            pa.timestamp("us")
        ),
        "tz": pa.array([0, 1, -1, None, 1582982055678901, 10**15, 5, 6], pa.int64()).cast(
            pa.timestamp("us", "UTC")
        ),
        "l": pa.array(
            [[1, 2], [], None, [None], [3, 4, 5], [1], [7], [8, 9]], pa.list_(pa.int32())
        ),
        "ll": pa.array(
            [[[1], [2, 3]], [], None, [None], [[4]], [[1]], [[]], [[8, 9]]],
            pa.list_(pa.list_(pa.int32())),
        ),
        "st": pa.array(
            [{"x": 1, "y": "p"}, {"x": None, "y": "q"}, None, *[{"x": 3, "y": None}] * 5]
        ),
        "m": pa.array(
            [[("k", 1)], [], None, [("k", None)], *[[("j", 2), ("k", 3)]] * 4],
            pa.map_(pa.string(), pa.int32()),
        ),
    }
)


@pytest.fixture(scope="module")
def connection():
    with duckdb.connect(config={"threads": "1"}) as opened:
        opened.execute("SET TimeZone = 'UTC'")
        opened.register("arriving", pa.Table.from_batches([DATA]))
        opened.execute("CREATE TABLE t AS FROM arriving")
        yield opened


def evaluator_of(connection: duckdb.DuckDBPyConnection, predicate: str) -> Evaluator:
    decoded = decode_filter(filter_json(connection, "t", predicate))
    assert decoded is not None
    return Evaluator(decoded, DATA.schema)


@pytest.mark.parametrize(
    "predicate",
    [
        "a BETWEEN 1 AND b",
        "a NOT BETWEEN 1 AND 6",
        "a IN (1, 6, NULL)",
        "a NOT IN (1, 6)",
        "(a, b) IN ((0, 3), (7, 2))",
        "row(a, b) > row(1, 1)",
        "{'q': a} = {'q': 6}",
        "a + b > 5",
        "b * 2 - 1 = 9",
        "a % 3 = 1",
        "a // 2 = 3",
        "d / 2 > 1",
        "-b > 2",
        "dec * 2 > 4.5",
        "dec + 1.005 > 3",
        "dec::INTEGER = 10",
        "(d > 1 AND d < 9) AND d::INTEGER = 2",
        "a::VARCHAR = '6'",
        "TRY_CAST(s AS INTEGER) = 12",
        "s LIKE '2020%' AND s::DATE = DATE '2020-01-02'",
        "round(d, 1) = 2.3",
        "floor(d) = 2",
        "d = 'nan'::DOUBLE",
        "abs(b) = 6",
        "a & 3 = 2",
        "greatest(a, b) = 7",
        "coalesce(a, b, 0) = 1",
        "CASE WHEN a > 1 THEN s = '12' ELSE b IS NULL END",
        "nullif(a, 6) IS NULL",
        "if(a > 1, b > 1, s = '')",
        "s LIKE 'a%'",
        "s NOT ILIKE 'A%'",
        r"s LIKE 'a\%b' ESCAPE '\'",
        "s GLOB '[a-z]*'",
        "s SIMILAR TO '[A-Z]+'",
        "regexp_matches(s, 'b', 'i')",
        "regexp_replace(s, 'b', 'x') = 'axc'",
        "regexp_extract(s, '(.)%', 1) = 'a'",
        "lower(s) = 'abc'",
        "s COLLATE NOCASE = 'abc'",
        "s COLLATE NOACCENT = 'Uni'",
        "length(s) = 3",
        "substring(s, 2, 1) = 'b'",
        "s[1:2] = 'ab'",
        "left(s, 1) || right(s, 1) = 'ac'",
        "trim(s) = 'abc'",
        "concat(s, a, b) = '126-6'",
        "string_split(s, '-')[1] = '2020'",
        "md5(s) = md5('12')",
        "year(dt) = 2020",
        "date_part('dow', ts) = 4",
        "date_trunc('month', dt) = DATE '1970-03-01'",
        "date_trunc('hour', ts) = TIMESTAMP '1970-01-01'",
        "dt + 1 = DATE '1970-01-02'",
        "dt + INTERVAL 1 MONTH > TIMESTAMP '2020-01-31'",
        "ts - INTERVAL 1 DAY < TIMESTAMP '1970-01-01'",
        "datediff('day', dt, DATE '2020-01-01') = 0",
        "dayname(dt) = 'Thursday'",
        "ts::DATE = DATE '2020-02-29'",
        "tz > TIMESTAMPTZ '2000-01-01 00:00:00+00'",
        "tz IN (TIMESTAMPTZ '1970-01-01 02:00:00+02')",
        "epoch_us(tz) = 5",
        "l[1] = 1",
        "l[1:2] = [3, 4]",
        "len(l) = 2",
        "list_contains(l, 7)",
        "l = [1, 2]",
        "l @> [9]",
        "list_value(a, b)[2] = 7",
        "list_transform(l, lambda x: x + 1) = [2]",
        "list_transform(l, lambda x, i: x * i) = [8, 18]",
        "list_filter(l, lambda x: x > b) = [7]",
        "list_filter(l, lambda x, i: x + i > a) = [3, 4, 5]",
        "list_transform(ll, lambda y: list_transform(y, lambda x: x + b)) = [[10, 11]]",
        "len([x * 2 for x in l if x > 3]) = 2",
        "st.x = 1",
        "st['y'] = 'q'",
        "st = {'x': 3, 'y': NULL}",
        "m['k'] = 3",
        "map_contains(m, 'j')",
        "map_keys(m) = ['k']",
        "cardinality(m) = 2",
        """('{"k": ' || a || '}')::JSON ->> 'k' = '6'""",
        "(a > 1) = (b > 1)",
        "a IS DISTINCT FROM b AND NOT (a = 1 OR s IS NULL)",
    ],
)
def test_exact_predicates_keep_what_duckdb_keeps(connection, predicate):
    evaluator = evaluator_of(connection, predicate)

    assert evaluator.conditions, "not evaluated"
    assert kept_by(evaluator.apply(DATA)) == kept_by_duckdb(connection, "t", predicate)


@pytest.mark.parametrize(
    "predicate",
    [
        "random() < 2",
        "a > random() * 0",
        "ts < now()::TIMESTAMP",
        "ts < current_localtimestamp()",
        "dt < current_date",
        "gen_random_uuid()::VARCHAR <> s",
        "current_setting('TimeZone') <> s",
        "current_schema() <> s",
        "version() <> s",
        "age(ts) > INTERVAL 1 DAY",
        "error(s) IS NULL",
        # the client's time zone
        "tz::DATE = DATE '2020-02-29'",
        "tz::VARCHAR = s",
        "tz = ts",
        "tz > s::TIMESTAMPTZ",
        "tz = TIMESTAMPTZ '2020-01-01 00:00:00'",
        "year(tz) = 2020",
        "date_trunc('day', tz) = tz",
        "tz + INTERVAL 1 DAY > tz",
        "tz - tz = INTERVAL 0 DAY",
        "strftime(tz, '%Y') = s",
        "(tz AT TIME ZONE 'Asia/Tokyo')::DATE = dt",
        "list_transform([tz], lambda x: hour(x)) = [3]",
        # settings and versions
        "d / d > 0",
        "a % b = 0",
        "a // (b - 3) = 1",
        "epoch_ms(ts) = 1",
        "list_sort(l) = [1]",
        "TRY(s::INTEGER) = 12",
        "concat_ws(',', s) = s",
        "hash(a) = 5",
        "INTERVAL 7 MONTHS * d > INTERVAL 1 YEAR",
        # the platform
        "sin(d) > 0",
        "d ^ 2 > 0",
        "ln(d) > 0",
        # nothing may be skipped under NOT
        "NOT (a = 1 AND random() < 2)",
        "a = 1 OR random() < 2",
    ],
)
def test_what_depends_on_more_than_its_arguments_is_left_to_the_client(connection, predicate):
    evaluator = evaluator_of(connection, predicate)

    assert evaluator.conditions == ()
    assert evaluator.apply(DATA) is DATA


@pytest.mark.parametrize(
    "predicate",
    [
        "len(" + "replace(" * 9 + "s" + ", 'a', 'aaaaaaaaaa')" * 9 + ") > 0",
        "len(" + "hex(" * 30 + "s" + ")" * 30 + ") > 0",
        "levenshtein(s, s) = 0",
        "s LIKE s",
        "s LIKE '%a%a%a%a%a%_b'",
        "s ILIKE '%a%a%a%a%a%b'",
        "regexp_matches(s, s)",
        "replace(s, 'a', s) = 'b'",
        "list_transform(l, lambda x: x + len(s)) = [1]",
        "list_transform(ll, lambda y: list_transform(y, lambda x: x + b + len(y))) = [[12, 13]]",
    ],
)
def test_what_could_make_much_work_of_one_row_is_left_to_the_client(connection, predicate):
    evaluator = evaluator_of(connection, predicate)

    assert evaluator.conditions == ()
    assert evaluator.apply(DATA) is DATA


def test_functions_of_other_catalogs_are_not_ours():
    ours = Function("lower", (ColumnRef("s", DuckType("VARCHAR")),), BOOLEAN, "system")
    theirs = Function("lower", (ColumnRef("s", DuckType("VARCHAR")),), BOOLEAN, "cat")

    assert (is_exact(ours), is_exact(theirs)) == (True, False)


def test_functions_with_state_of_their_own_are_not_called_by_name():
    plain = Function("lower", (ColumnRef("s", DuckType("VARCHAR")),), BOOLEAN)
    stateful = Function("lower", (ColumnRef("s", DuckType("VARCHAR")),), BOOLEAN, has_data=True)

    assert (is_exact(plain), is_exact(stateful)) == (True, False)


def test_comparisons_of_different_types_are_not_exact():
    assert not is_exact(
        Comparison(ComparisonKind.EQUAL, ColumnRef("a", INTEGER), Constant(DuckType("BIGINT"), 1))
    )


@pytest.mark.parametrize(
    ("kind", "exact"),
    [("TIMESTAMP", True), ("TIMESTAMP WITH TIME ZONE", True), ("TIMESTAMP_NS", False)],
)
def test_nanoseconds_are_not_handed_to_functions_for_microseconds(kind, exact):
    micros = Function("epoch_us", (ColumnRef("t", DuckType(kind)),), DuckType("BIGINT"))

    assert (
        is_exact(Comparison(ComparisonKind.EQUAL, micros, Constant(DuckType("BIGINT"), 1))) is exact
    )


@pytest.mark.parametrize(
    ("source", "target", "exact", "exact_as_try"),
    [
        ("INTEGER", "BIGINT", True, True),
        ("BIGINT", "TINYINT", True, True),
        ("DOUBLE", "INTEGER", True, False),
        ("DOUBLE", "VARCHAR", True, True),
        ("VARCHAR", "INTEGER", True, True),
        ("VARCHAR", "HUGEINT", True, False),
        ("VARCHAR", "DATE", True, False),
        ("VARCHAR", "TIMESTAMP", True, False),
        ("VARCHAR", "INTERVAL", False, False),
        ("VARCHAR", "BIGNUM", False, False),
        ("TIMESTAMP", "DATE", True, True),
        ("TIMESTAMP_NS", "TIMESTAMP", False, False),
        ("TIMESTAMP WITH TIME ZONE", "DATE", False, False),
        ("TIMESTAMP WITH TIME ZONE", "VARCHAR", False, False),
        ("TIMESTAMP", "TIMESTAMP WITH TIME ZONE", False, False),
        ("TIME", "TIME WITH TIME ZONE", False, False),
        ("UUID", "VARCHAR", True, True),
    ],
)
def test_casts_are_exact_if_every_version_agrees(source, target, exact, exact_as_try):
    def is_exact_as(try_cast: bool) -> bool:
        cast = Cast(ColumnRef("c", DuckType(source)), DuckType(target), try_cast)
        return is_exact(Operator(OperatorKind.IS_NULL, (cast,), BOOLEAN))

    assert (is_exact_as(False), is_exact_as(True)) == (exact, exact_as_try)


@pytest.mark.parametrize(
    ("source", "target", "exact"),
    [
        (DuckType("DECIMAL", 15, 2), DuckType("DOUBLE"), True),
        (DuckType("DECIMAL", 18, 2), DuckType("DOUBLE"), False),
        (DuckType("DECIMAL", 18, 0), DuckType("DOUBLE"), True),
        (DuckType("DECIMAL", 6, 2), DuckType("FLOAT"), True),
        (DuckType("DECIMAL", 9, 2), DuckType("FLOAT"), False),
        (DuckType("DECIMAL", 38, 10), DuckType("DECIMAL", 9, 2), True),
        (DuckType("DOUBLE"), DuckType("DECIMAL", 9, 2), False),
        (DuckType("VARCHAR"), DuckType("DECIMAL", 9, 2), False),
        (DuckType("VARCHAR"), DuckType("VARCHAR", alias="JSON"), True),
        (DuckType("VARCHAR", alias="JSON"), DuckType("INTEGER"), False),
        (DuckType("VARCHAR", collation="NOCASE"), DuckType("VARCHAR"), True),
        (DuckType("LIST", child=INTEGER), DuckType("LIST", child=DuckType("DOUBLE")), True),
        (DuckType("LIST", child=INTEGER), DuckType("VARCHAR"), False),
        (
            DuckType("STRUCT", fields=(("x", INTEGER),)),
            DuckType("STRUCT", fields=(("y", INTEGER),)),
            False,
        ),
    ],
)
def test_casts_depend_on_the_whole_types(source, target, exact):
    assert (
        is_exact(Operator(OperatorKind.IS_NULL, (Cast(ColumnRef("c", source), target),), BOOLEAN))
        is exact
    )


def test_bit_strings_are_equal_but_not_ordered():
    bits = ColumnRef("c", DuckType("BIT"))

    assert is_exact(Comparison(ComparisonKind.EQUAL, bits, bits))
    assert not is_exact(Comparison(ComparisonKind.LESS, bits, bits))
