"""The framework's own enforcement of constraints, as any backend may call it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.counting import lines_run

from sparkport.catalog import Constraints
from sparkport.engine.constraints import columns_of, concerning, enforce
from sparkport.errors import ConstraintViolation

EXISTING = pa.table(
    {"id": [1, 2, 3], "u": [10, 20, None], "s": ["a", "b", "c"], "rowid": [0, 1, 2]}
)


def _insert(
    constraints: Constraints, rows: dict[str, list[Any]], existing: pa.Table = EXISTING
) -> None:
    changed = pa.table(
        {name: pa.array(values, existing.schema.field(name).type) for name, values in rows.items()}
    )
    enforce("t", constraints, changed, existing.select)


def _update(constraints: Constraints, rows: dict[str, list[Any]]) -> None:
    changed = pa.table(
        {name: pa.array(values, EXISTING.schema.field(name).type) for name, values in rows.items()}
    )
    enforce("t", constraints, changed, EXISTING.select, row_id="rowid")


def test_rows_that_fulfil_everything_pass() -> None:
    everything = Constraints(
        not_null=("id",), checks=("u > 0",), unique=(("u", "s"),), primary_key=("id",)
    )
    _insert(everything, {"id": [4, 5], "u": [10, None], "s": ["b", "a"]})
    _insert(everything, {"id": [], "u": [], "s": []})


def test_null_in_a_not_null_column_names_table_and_column() -> None:
    with pytest.raises(ConstraintViolation, match=r"^NOT NULL constraint failed: t\.id$"):
        _insert(Constraints(not_null=("id",)), {"id": [4, None]})


def test_a_failed_check_names_the_expression_and_the_values() -> None:
    with pytest.raises(
        ConstraintViolation,
        match=r"^CHECK constraint failed on table t with expression CHECK\(\(u > id\)\): id = 5, "
        r"u = -3$",
    ):
        _insert(Constraints(checks=("(u > id)",)), {"id": [4, 5], "u": [10, -3]})


def test_a_check_that_is_null_passes() -> None:
    _insert(Constraints(checks=("u > 0", "NULL")), {"u": [None]})


def test_a_check_may_name_the_table_and_may_end_in_a_comment() -> None:
    check = Constraints(checks=("t.u > 0 -- positive",))
    _insert(check, {"u": [1]})
    with pytest.raises(ConstraintViolation, match="u = 0"):
        _insert(check, {"u": [0]})


def test_a_check_that_fails_to_compute_is_a_violation() -> None:
    with pytest.raises(ConstraintViolation, match="cannot be evaluated: Conversion Error"):
        _insert(Constraints(checks=("CAST(s AS INTEGER) > 0",)), {"s": ["not a number"]})


def test_long_values_are_shortened() -> None:
    with pytest.raises(ConstraintViolation) as caught:
        _insert(Constraints(checks=("s = ''",)), {"s": ["x" * 10_000]})
    assert len(caught.value.message) < 250


@pytest.mark.parametrize(
    ("constraints", "kind"),
    [
        (Constraints(primary_key=("id", "s")), "primary key"),
        (Constraints(unique=(("id", "s"),)), "unique"),
    ],
)
def test_a_duplicate_key_names_its_columns_and_values(constraints: Constraints, kind: str) -> None:
    message = rf'^Duplicate key "id: 2, s: b" violates {kind} constraint of table t$'
    with pytest.raises(ConstraintViolation, match=message):
        _insert(constraints, {"id": [4, 2], "s": ["b", "b"]})
    with pytest.raises(ConstraintViolation, match='"id: 9, s: z"'):
        _insert(constraints, {"id": [9, 8, 9], "s": ["z", "z", "z"]})
    _insert(constraints, {"id": [2, 4], "s": ["a", "b"]})


def test_rows_with_a_null_in_a_unique_key_are_not_compared() -> None:
    _insert(Constraints(unique=(("u",),)), {"u": [None, None]})
    _insert(Constraints(unique=(("u", "s"),)), {"u": [None, None], "s": ["c", "c"]})


def test_an_update_may_keep_or_swap_keys() -> None:
    key = Constraints(primary_key=("id",))
    _update(key, {"id": [1], "rowid": [0]})
    _update(key, {"id": [2, 1], "rowid": [0, 1]})
    _update(key, {"id": [2, 3, 1], "rowid": [0, 1, 2]})
    with pytest.raises(ConstraintViolation, match='"id: 3"'):
        _update(key, {"id": [3], "rowid": [0]})
    with pytest.raises(ConstraintViolation, match='"id: 7"'):
        _update(key, {"id": [7, 7], "rowid": [0, 1]})


@pytest.mark.parametrize(
    ("values", "equal"),
    [
        ([float("nan"), float("nan")], True),
        ([0.0, -0.0], True),
        ([[1, None], [1, None]], True),
        ([{"a": None}, {"a": None}], True),
        ([{"a": 1}, {"a": 2}], False),
        (["a", "A"], False),
        (["a", "a "], False),
    ],
)
def test_keys_are_equal_where_duckdb_says_so(values: list[Any], equal: bool) -> None:
    column = pa.array(values)
    existing, changed = pa.table({"k": column.slice(0, 1)}), pa.table({"k": column.slice(1, 1)})
    constraints = Constraints(unique=(("k",),))

    def against(rows: pa.Table, others: pa.Table) -> bool:
        try:
            enforce("t", constraints, rows, others.select)
            return False
        except ConstraintViolation:
            return True

    assert against(changed, existing) is equal
    assert against(pa.table({"k": column}), existing.slice(0, 0)) is equal


def test_odd_names_are_quoted() -> None:
    name = 'a "quoted" näme, with; everything--'
    table = pa.table({name: [1]})
    with pytest.raises(ConstraintViolation):
        enforce(
            "odd table's", Constraints(primary_key=(name,), not_null=(name,)), table, table.select
        )


def test_the_table_is_read_only_when_there_are_keys() -> None:
    def forbidden(columns: Sequence[str]) -> pa.Table:
        raise AssertionError(columns)

    changed = pa.table({"id": [1]})
    enforce("t", Constraints(not_null=("id",), checks=("id > 0",)), changed, forbidden)
    enforce("t", Constraints(primary_key=("id",)), changed.slice(0, 0), forbidden)


def test_only_the_columns_of_the_key_are_read() -> None:
    asked: list[list[str]] = []

    def existing(columns: Sequence[str]) -> pa.Table:
        asked.append(list(columns))
        return EXISTING.select(columns)

    changed = pa.table({"id": [7], "u": [7], "rowid": [7]})
    enforce("t", Constraints(primary_key=("id",)), changed, existing, row_id="rowid")
    assert asked == [["id", "rowid"]]


def test_an_update_concerns_only_constraints_of_its_columns() -> None:
    constraints = Constraints(
        not_null=("id", "u"),
        checks=("u > 0", "s <> ''", "st.u > 0"),
        unique=(("u", "s"), ("id",)),
        primary_key=("id",),
    )
    columns = ["id", "u", "s", "st", "x"]
    # `st.u` might be column `u` of a table `st`: it is checked too, since a check too many is
    # harmless.
    assert concerning(constraints, ["U"]) == Constraints(
        not_null=("u",), checks=("u > 0", "st.u > 0"), unique=(("u", "s"),)
    )
    assert columns_of(Constraints(unique=(("u", "s"),), checks=("st.u > 0",)), columns) == (
        "u",
        "s",
        "st",
    )
    assert not concerning(constraints, ["x"])


def test_a_million_keys_are_compared_without_a_loop_over_them() -> None:
    rows = 1_000_000
    table = pa.table({"id": pa.arange(0, rows), "s": pa.arange(0, rows).cast(pa.string())})
    more = pa.table({"id": pa.arange(rows, 2 * rows), "s": pa.arange(0, rows).cast(pa.string())})
    lines = lines_run(
        lambda: enforce(
            "t", Constraints(primary_key=("id",), unique=(("s", "id"),)), more, table.select
        )
    )
    assert lines < 10_000


@settings(max_examples=40, deadline=None)
@given(
    existing=st.lists(
        st.tuples(st.integers(0, 3), st.one_of(st.none(), st.integers(0, 2))), max_size=4
    ),
    new=st.lists(st.tuples(st.integers(0, 3), st.one_of(st.none(), st.integers(0, 2))), max_size=3),
)
def test_inserts_are_refused_exactly_when_duckdb_refuses_them(
    existing: list[Any], new: list[Any]
) -> None:
    database = duckdb.connect()
    database.execute("CREATE TABLE t (a BIGINT, b BIGINT, UNIQUE (a, b), CHECK (a + b < 5))")
    kept = []
    for row in existing:
        try:
            database.execute("INSERT INTO t VALUES (?, ?)", list(row))
            kept.append(row)
        except duckdb.ConstraintException:
            pass
    try:
        if new:
            values = ", ".join(f"({a}, {'NULL' if b is None else b})" for a, b in new)
            database.execute(f"INSERT INTO t VALUES {values}")
        refused = False
    except duckdb.ConstraintException:
        refused = True
    database.close()

    def table(rows: list[Any]) -> pa.Table:
        columns = {
            name: pa.array([row[i] for row in rows], pa.int64()) for i, name in enumerate("ab")
        }
        return pa.table(columns)

    constraints = Constraints(unique=(("a", "b"),), checks=("a + b < 5",))
    try:
        enforce("t", constraints, table(new), table(kept).select)
        assert not refused
    except ConstraintViolation:
        assert refused
