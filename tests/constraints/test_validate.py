"""Constraints that make sense, and expressions that are safe to compute."""

from __future__ import annotations

import duckdb
import pyarrow as pa
import pytest

from sparkport.catalog import Constraints
from sparkport.engine.constraints import parse_constraint, validate_constraints
from sparkport.engine.constraints.expressions import renamed_in, unqualified, used_columns
from sparkport.engine.constraints.sandbox import sandbox
from sparkport.errors import BadRequest, PreconditionFailed, Unsupported

COLUMNS = pa.schema(
    [
        pa.field("Id", pa.int64(), nullable=False),
        ("v", pa.string()),
        ("l", pa.list_(pa.int32())),
        ("st", pa.struct([("v", pa.int32())])),
        ("u", pa.uuid()),
        ("e", pa.dictionary(pa.int8(), pa.string())),
    ]
)


def test_names_are_spelled_as_in_the_table_and_keys_imply_not_null() -> None:
    given = Constraints(
        not_null=("V",), unique=(("ST", "l", "st"), ("st", "l")), primary_key=("id", "U")
    )
    assert validate_constraints(COLUMNS, given) == Constraints(
        not_null=("Id", "v", "u"), unique=(("st", "l"),), primary_key=("Id", "u")
    )


NO_STRUCT_CHECKS = pytest.mark.skipif(
    duckdb.__version__.startswith("1."), reason="DuckDB 1 knows no CHECK of a struct's field"
)


@pytest.mark.parametrize(
    "check",
    [
        "id > 0",
        "(v LIKE 'a%' OR v IS NULL)",
        "len(l) < 5",
        pytest.param("st.v > 0", marks=NO_STRUCT_CHECKS),
        "u <> '00000000-0000-0000-0000-000000000000'",
        "e IN ('x', 'y')",
        "id > 0 -- comment",
    ],
)
def test_a_check_of_the_columns_is_accepted(check: str) -> None:
    assert validate_constraints(COLUMNS, Constraints(checks=(check, check))).checks == (check,)


@pytest.mark.parametrize(
    "check",
    [
        "",
        "this is not SQL",
        "nothing > 0",
        "st.nothing > 0",
        "id > 0, v = 'a'",
        "id > 0; DROP TABLE x",
        "id > 0), CHECK (true",
        "sum(id) > 0",
        "(SELECT 1) = 1",
        "id > ?",
        "row_number() OVER () > 0",
        "random() >= 0",
        "id FROM x",
        "id > " + "(" * 9_000,
        "id > 0" + " AND id > 0" * 100_000,
    ],
)
def test_a_check_that_cannot_be_computed_from_one_row_is_refused(check: str) -> None:
    with pytest.raises(BadRequest) as caught:
        validate_constraints(COLUMNS, Constraints(checks=(check,)))
    assert len(caught.value.message) < 1000


@NO_STRUCT_CHECKS
def test_a_check_may_qualify_columns_with_the_table_and_is_kept_without() -> None:
    given = Constraints(checks=("t.Id > 0 AND T.st.v > 1 AND st.v < 9",))
    assert validate_constraints(COLUMNS, given, "t").checks == (
        "((Id > 0) AND (st.v > 1) AND (st.v < 9))",
    )
    with pytest.raises(BadRequest):
        validate_constraints(COLUMNS, given, "u")


@pytest.mark.parametrize(
    "constraints",
    [Constraints(not_null=("x",)), Constraints(unique=(("v", "x"),)), Constraints(unique=((),))],
)
def test_constraints_on_columns_that_do_not_exist_are_refused(constraints: Constraints) -> None:
    with pytest.raises(BadRequest):
        validate_constraints(COLUMNS, constraints)


def test_constraints_are_read_from_sql() -> None:
    assert parse_constraint("UNIQUE(id, u)") == Constraints(unique=(("id", "u"),))
    assert parse_constraint('unique ("a, b", "say ""hi""" , c$1)') == Constraints(
        unique=(("a, b", 'say "hi"', "c$1"),)
    )
    assert parse_constraint("PRIMARY  KEY\n(id)") == Constraints(
        primary_key=("id",), not_null=("id",)
    )
    assert parse_constraint("CHECK((v > 0))") == Constraints(checks=("((v > 0))",))
    for text in ("UNIQUE", "UNIQUE(", "UNIQUE(a,)", "UNIQUE(a b)", "NOT NULL", "CHECK v"):
        with pytest.raises(BadRequest):
            parse_constraint(text)
    with pytest.raises(Unsupported):
        parse_constraint("FOREIGN KEY (a) REFERENCES b(c)")


def test_columns_used_by_an_expression() -> None:
    names = ["Id", "v", "l", "st", "x"]
    assert used_columns("id > 0 AND lower(V) = 'x'", names) == ("Id", "v")
    assert used_columns("st.v > 0", names) == ("st",)
    assert used_columns("t.v > 0", names) == ("v",)
    assert used_columns("'v' = 'st'", names) == ()
    assert used_columns("CASE WHEN id = 1 THEN l[1] ELSE 2 END > 0", names) == ("Id", "l")


def test_a_column_is_renamed_in_an_expression_and_nothing_else_is() -> None:
    assert (
        renamed_in("v = 'v' AND st.v = 3", "V", "new name")
        == """(("new name" = 'v') AND (st.v = 3))"""
    )
    assert renamed_in("st.v = 3", "st", "s") == "(s.v = 3)"
    assert unqualified("a.b > 0", "t", ["a"]) == "a.b > 0"
    with pytest.raises(PreconditionFailed, match="lambda"):
        renamed_in("len(list_filter(l, lambda x: x > v)) > 0", "v", "w")


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM read_csv('/etc/passwd')",
        "COPY (SELECT 1) TO '/tmp/sandbox.csv'",
        "ATTACH '/tmp/sandbox.db'",
        "INSTALL httpfs",
        "LOAD httpfs",
        "SET enable_external_access = true",
        "SET threads = 1",
        "SELECT * FROM secret_table",
    ],
)
def test_the_sandbox_can_reach_nothing(sql: str) -> None:
    secret_table = pa.table({"a": [1]})
    with sandbox() as connection, pytest.raises(duckdb.Error):
        connection.execute(sql)
    assert secret_table.num_rows == 1


def test_what_one_sandbox_holds_is_not_seen_by_another() -> None:
    with sandbox(rows=pa.table({"a": [1]})) as first, sandbox(rows=pa.table({"a": [2]})) as second:
        assert first.execute("SELECT a FROM rows").fetchall() == [(1,)]
        assert second.execute("SELECT a FROM rows").fetchall() == [(2,)]
        first.execute("CREATE TEMP TABLE mine (a INTEGER)")
        with pytest.raises(duckdb.Error):
            second.execute("SELECT * FROM mine")
