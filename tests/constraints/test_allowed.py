"""Which of users' expressions the server computes: allowed functions, and bounded work per row."""

from __future__ import annotations

import re
from collections.abc import Callable

import duckdb
import pyarrow as pa
import pytest

from sparkport.catalog import AddColumnOptions, Constraints, Context
from sparkport.catalog.access import Restrictions
from sparkport.engine.columns import DEFAULT
from sparkport.engine.constraints import enforce, validate_constraints
from sparkport.engine.visibility import Visibility
from sparkport.errors import BadRequest, ConstraintViolation, PermissionDenied
from sparkport.memory import MemoryTable

ROWS = pa.table(
    {
        "i": pa.array([1, 2], pa.int64()),
        "n": pa.array([1, 1], pa.int32()),
        "s": ["a@b.org", "x"],
        "t": ["a", "y"],
        "d": pa.array([1, 2], pa.date32()),
        "ts": pa.array([1, 2], pa.timestamp("us")),
        "l": pa.array([[1, 2], [3]], pa.list_(pa.int32())),
        "ll": pa.array([[[1], [2]], [[3]]], pa.list_(pa.list_(pa.int32()))),
        "st": pa.array(
            [{"a": 1, "b": "x"}, {"a": 2, "b": None}],
            pa.struct([("a", pa.int32()), ("b", pa.string())]),
        ),
        "m": pa.array([[("k", 1)], []], pa.map_(pa.string(), pa.int32())),
        "j": ['{"a": [1]}', "{}"],
        "b": [True, None],
    }
)


def as_check(expression: str) -> None:
    validate_constraints(ROWS.schema, Constraints(checks=(f"({expression}) IS NULL OR true",)))


def as_stored_check(expression: str) -> None:
    """A CHECK that another program wrote into a table's metadata, without any review."""
    try:
        enforce("t", Constraints(checks=(f"({expression}) IS NULL OR true",)), ROWS, ROWS.select)
    except ConstraintViolation as error:
        raise BadRequest(error.message) from error


def as_default(expression: str) -> None:
    MemoryTable("t", ROWS).set_default(Context(), "s", f"CAST(({expression}) AS VARCHAR)")


def as_default_of_new_column(expression: str) -> None:
    field = pa.field("new", pa.string(), metadata={DEFAULT: f"CAST(({expression}) AS VARCHAR)"})
    MemoryTable("t", ROWS).add_column(Context(), pa.schema([field]), AddColumnOptions())


def as_using(expression: str) -> None:
    MemoryTable("t", ROWS).change_column_type(
        Context(), pa.schema([("s", pa.string())]), f"CAST(({expression}) AS VARCHAR)"
    )


def as_row_filter(expression: str) -> None:
    _as_rule(Restrictions(row_filters=(f"({expression}) IS NULL OR true",)))


def as_mask(expression: str) -> None:
    _as_rule(Restrictions(masks={"s": f"CAST(({expression}) AS VARCHAR)"}))


def _as_rule(restrictions: Restrictions) -> None:
    try:
        visibility = Visibility(restrictions, ROWS.schema, "t")
        assert visibility.rows(ROWS.combine_chunks().to_batches()[0]).num_rows == 2
    except PermissionDenied as error:
        raise BadRequest(error.message) from error


Use = Callable[[str], None]
OVER_ROWS: list[Use] = [as_check, as_stored_check, as_using, as_row_filter, as_mask]
WITHOUT_ROWS: list[Use] = [as_default, as_default_of_new_column]

REACHING = [
    "sleep_ms(1)",
    "write_log('forged')",
    "len(range(50000000))",
    "getenv('HOME')",
    "current_setting('temp_directory')",
    "getvariable('x')",
    "version()",
    "current_user",
    "session_user",
    "current_schema",
    "current_database()",
    "txid_current()",
    "error('mine')",
    "json_serialize_sql('SELECT 1')",
    "read_text('/etc/hostname')",
    "(SELECT 1)",
    "(FROM duckdb_settings() LIMIT 1)",
    "exists(SELECT 1)",
    "1 IN (SELECT 1)",
    "1 = ANY([1, 2])",
    "ARRAY(SELECT 1)",
    "sum(1)",
    "count(*)",
    "max(1) FILTER (WHERE true)",
    "row_number() OVER ()",
    "unnest([1])",
    "generate_series(1, 3)",
    "*",
    "COLUMNS('s')",
    "concat(*COLUMNS(*))",
    "#1",
    "?",
    "$1",
    "DEFAULT",
    "1; SELECT 2",
    "1) FROM (SELECT 1",
    "1 AS x",
    "elsewhere.main.lower('A')",
    "list_reduce([1, 2], lambda x, y: x + y)",
    "list_aggregate([1], 'sum')",
    "stats(1)",
    "nonsense(1)",
]
LARGE = [
    "repeat('x', 1000000000)",
    "lpad('x', 1000000000, ' ')",
    "rpad('x', 1000000000, ' ')",
    "repeat(repeat(repeat('x', 1000), 1000), 1000)",
    "format('{:>1000000000}', 'x')",
    "printf('%1000000000d', 1)",
    "list_resize([1], 1000000000)",
    "bar(1, 0, 1, 1000000000)",
    "bitstring('1', 1000000000)",
    "CAST(NULL AS INTEGER[100000][100000])",
    "replace(" * 9 + "'a'" + ", 'a', 'aaaaaaaaaa')" * 9,
    "regexp_replace(" * 9 + "'a'" + ", 'a', 'aaaaaaaaaa', 'g')" * 9,
    "hex(" * 40 + "'a'" + ")" * 40,
    "to_json(" * 20 + "'\"'" + ")" * 20,
    "list_transform(" * 30 + "['a']" + ", lambda x: x || x)" * 30,
    "concat(" * 90 + "'a'" + ", 'a')" * 90 + "LIKE '%a%a%a%a%_b'",
    "json_extract('[[[1]]]', '$..*')",
    "json_extract('[[[1]]]', '$.' || '.*')",
    "'aaaa' LIKE '%a%a%a%a%a%_b'",
    "'aaaa' ILIKE '%a%a%a%a%a%b'",
    "'aaaa' GLOB '*a*a*a*a*a*b'",
    "'aaaa' LIKE '%a%a%' || '%a%a%_b'",
    "'aaaa' LIKE replace('xaxaxaxa_b', 'x', '%')",
]
BOMBS = {
    "CASE in CASE": "case " * 40 + "1" + " when 1 then 2 when 3 then 4 end" * 40,
    "nullif in nullif": "nullif(" * 40 + "1" + ", 2)" * 40,
    "fmod in fmod": "fmod(" * 40 + "1" + ", 2)" * 40,
    "array_pop_back in array_pop_back": "array_pop_back(" * 40 + "[1]" + ")" * 40,
    "split_part in split_part": "split_part(" * 40 + "'a'" + ", 'b', 1)" * 40,
    "brackets after a quote in a string": r"e'\'' || " + "(" * 4000 + "'a'" + ")" * 4000 + " || ''",
    "brackets after a comment": "1 /* ' */ + " + "(" * 4000 + "1" + ")" * 4000 + " /* ' */",
    "a long chain": "1" + " + 1" * 2400,
}
SQUARE = [
    "levenshtein(s, t)",
    "damerau_levenshtein(s, t)",
    "repeat(s, length(t))",
    "repeat(s, i)",
    "lpad(s, n, ' ')",
    "replace(s, 'a', t)",
    "regexp_replace(s, 'a', t, 'g')",
    "regexp_matches(s, t)",
    "s LIKE t",
    "s ILIKE t",
    "j ->> s",
    "list_transform(l, lambda x: s || t)",
    "list_filter(l, lambda x: length(s) > x)",
    "list_transform(l, lambda x: list_transform(l, lambda y: x + y))",
    "array_to_string(l, s)",
]


@pytest.mark.parametrize("use", [*OVER_ROWS, *WITHOUT_ROWS])
@pytest.mark.parametrize("expression", [*REACHING, *LARGE])
def test_what_is_not_on_the_list_or_has_no_bound_is_refused(expression: str, use: Use) -> None:
    with pytest.raises(BadRequest) as caught:
        use(expression)
    assert len(caught.value.message) < 1500


@pytest.mark.parametrize("use", [as_check, as_row_filter, as_default])
@pytest.mark.parametrize("bomb", BOMBS.values(), ids=BOMBS)
def test_an_expression_that_is_small_only_as_text_is_refused(bomb: str, use: Use) -> None:
    with pytest.raises(BadRequest):
        use(bomb)


@pytest.mark.parametrize("use", OVER_ROWS)
@pytest.mark.parametrize("expression", SQUARE)
def test_work_that_grows_with_the_square_of_a_row_is_refused(expression: str, use: Use) -> None:
    with pytest.raises(BadRequest):
        use(expression)


CHANGING = [
    "now()",
    "current_timestamp",
    "current_date",
    "today()",
    "uuid()",
    "gen_random_uuid()",
    "random()",
]


@pytest.mark.parametrize("expression", CHANGING)
def test_the_moment_and_chance_are_for_values_that_are_stored(expression: str) -> None:
    for use in (as_default, as_default_of_new_column, as_using):
        use(expression)
    for use in (as_check, as_stored_check, as_row_filter, as_mask):
        with pytest.raises(BadRequest):
            use(expression)


def test_a_default_cannot_use_columns_and_may_name_a_sequence_of_the_client() -> None:
    as_default("nextval('serial')")
    with pytest.raises(BadRequest):
        as_default("i + 1")


def test_a_column_may_be_called_like_a_function_without_brackets() -> None:
    rows = pa.table({"user": ["ann", "bob"], "current_date": [1, 2]})
    enforce("t", Constraints(checks=("user <> 'eve' AND current_date < 3",)), rows, rows.select)
    with pytest.raises(ConstraintViolation, match="user = ann"):
        enforce("t", Constraints(checks=("user <> 'ann'",)), rows, rows.select)


@pytest.mark.parametrize("use", OVER_ROWS)
@pytest.mark.parametrize(
    "expression",
    [
        "i > 0 AND i BETWEEN 1 AND 10 OR NOT (n IN (1, 2)) OR b IS NOT TRUE",
        "(i + n * 2 - 1) % 3 // 2 / 4.0 ** 2",
        "round(abs(i) + sqrt(n) + ln(2) + greatest(i, n), 2)",
        "CASE WHEN i = 1 THEN 'one' WHEN i = 2 THEN 'two' ELSE 'many' END",
        "CASE n WHEN 1 THEN 2 WHEN 3 THEN CASE i WHEN 1 THEN 5 ELSE 6 END END",
        "coalesce(s, t, 'x') || nullif(t, 'y') || ifnull(s, '')",
        "lower(trim(s)) = upper(t) OR s.upper() = 'X' OR length(s) < 10",
        "s LIKE '%@%.%' OR s NOT ILIKE 'a%' OR s GLOB 'a*' OR s SIMILAR TO 'a+'",
        "s LIKE '%a%b%c%d%e%f%'",
        "regexp_matches(s, '^[a-z0-9._%+-]+@[a-z0-9.-]+\\.[a-z]{2,}$')",
        "regexp_matches(t, '^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$')",
        "regexp_replace(s, '.*@', '***@')",
        "regexp_replace(s, '[^@]', '*', 'g')",
        "'…@' || split_part(s, '@', 2)",
        "repeat('*', greatest(length(s) - 4, 0)) || right(s, 4)",
        "lpad(t, 10, '0') || substring(s, 1, 3) || left(s, 2) || replace(s, 'a', 'bb')",
        "md5(s) || sha256(s) || hash(s) || to_base64(encode(s)) || hex(s)",
        "concat_ws('-', s, t, i) || strftime(ts, '%Y-%m-%d %H:%M')",
        "d >= DATE '1970-01-01' AND ts < TIMESTAMP '2999-01-01' + INTERVAL 3 DAY + INTERVAL (n) "
        "MONTH",
        "year(d) + date_part('month', ts) + extract(hour FROM ts) + date_diff('day', d, ts)",
        "date_trunc('month', ts) AT TIME ZONE 'Europe/Berlin'",
        "TRY_CAST(s AS INTEGER) IS NULL OR CAST(i AS DECIMAL(10, 2)) > 1.5 OR i::VARCHAR(10) = '1'",
        "l[1] + len(l) + list_sum(l) + l[-1] + list_max(l[1:2])",
        "list_contains(l, n) OR i IN l OR list_has_any(l, [1, 2])",
        "list_filter(l, lambda x: x > n) = [x + 1 for x in l if x > 3]",
        "list_transform(ll, lambda x: list_transform(x, lambda y: y + n))",
        "st.a > 0 AND st['b'] = 'x' AND {'a': 1} = {'a': n} AND (i, n) = (1, 2)",
        "m['k'] > 0 AND map_contains(m, 'k') AND cardinality(m) < 3",
        "json_extract_string(j, '$.a') = j ->> '$.a' OR json_valid(j) OR (j -> '$.a[0]') IS NULL",
        "levenshtein(s, 'ann@example.org') < 3",
        "s COLLATE NOCASE = 'A' OR s IS DISTINCT FROM t",
        "'00000000-0000-0000-0000-000000000000'::UUID::VARCHAR <> s",
        "i & 3 | 4 << 1",
    ],
)
def test_what_people_write_is_accepted(expression: str, use: Use) -> None:
    if (
        use is as_check
        and duckdb.__version__.startswith("1.")
        and re.search(r"st\.a|s\.upper", expression)
    ):
        pytest.skip("DuckDB 1 knows no CHECK of a struct's field, and takes a method for one")
    if use is as_check and "lambda" in expression:
        with pytest.raises(
            BadRequest, match="Lambda functions are currently not supported in CHECK"
        ):
            use(expression)
    else:
        use(expression)


def test_a_rule_may_use_attributes_of_the_caller_in_patterns() -> None:
    for rule in (
        "s LIKE '%' || $domain",
        "list_contains($all, s)",
        "starts_with(s, $a) OR s = $principal",
    ):
        as_row_filter(rule)


def test_a_column_that_a_method_is_called_on_is_used() -> None:
    rows = pa.RecordBatch.from_pylist([{"a": "x", "b": "secret"}])
    assert Visibility(Restrictions(masks={"b": "a.upper()"}), rows.schema, "t").rows(
        rows
    ).to_pylist() == [{"a": "x", "b": "X"}]


def test_a_check_from_before_the_list_fails_closed_and_says_why() -> None:
    with pytest.raises(
        ConstraintViolation, match="cannot be used: the function getenv cannot be used here"
    ):
        enforce("t", Constraints(checks=("getenv('HOME') IS NULL",)), ROWS, ROWS.select)


def test_every_function_on_the_list_is_one_that_duckdb_calls_consistent() -> None:
    from sparkport.engine.constraints.allowed import ALLOWED, CHANGING, MACROS

    known = dict(
        duckdb.execute(
            "SELECT function_name, bool_and(stability IS NULL OR stability = 'CONSISTENT') FROM "
            "duckdb_functions() "
            "WHERE function_type IN ('scalar', 'macro') GROUP BY ALL"
        ).fetchall()
    )
    if duckdb.__version__.startswith("2."):
        assert not ALLOWED - known.keys()
    assert all(known.get(name, True) for name in ALLOWED)
    assert not ALLOWED & CHANGING
    repeating = set()
    for name, definition, parameters in duckdb.execute(
        "SELECT function_name, macro_definition, parameters FROM duckdb_functions() WHERE "
        "function_type = 'macro'"
    ).fetchall():
        if any(
            len(re.findall(rf'(?<!\w)"?{each}"?(?![\w(])', definition)) > 1 for each in parameters
        ):
            repeating.add(name)
    assert repeating & ALLOWED <= MACROS.keys()
