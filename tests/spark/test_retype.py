"""ALTER TABLE … TYPE on the lake, and changes that another writer interferes with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from tests.spark.lake_tables import (
    COLUMNS,
    CTX,
    changed_once,
    create,
    data_files,
    field,
    fill,
    find,
    in_spark,
    insert,
    rows,
    sql_name,
    unchanged,
    values,
    version,
)

from sparkport.catalog import (
    Constraints,
    ScanOptions,
    TimePoint,
)
from sparkport.engine.constraints.compute import computed_values
from sparkport.errors import (
    BadRequest,
    Conflict,
    ConstraintViolation,
    NotFound,
    PreconditionFailed,
)
from sparkport.spark import LakeCatalog
from sparkport.spark.lake import iceberg_commit


@pytest.fixture
def filled(lake: LakeCatalog, namespace: str) -> Callable[[], Any]:
    return fill(lake, namespace)


@pytest.mark.parametrize(
    ("old", "new", "expression", "stays"),
    [
        (pa.int32(), pa.int64(), "", True),
        (pa.int32(), pa.int64(), "CAST(v AS BIGINT)", True),
        (pa.int32(), pa.int16(), "CAST(v AS SMALLINT)", True),
        (pa.int8(), pa.int32(), "", True),
        (pa.int32(), pa.uint32(), "", True),
        (pa.float32(), pa.float64(), "", True),
        (pa.decimal128(4, 1), pa.decimal128(9, 1), "", True),
        (pa.int32(), pa.int64(), "v + 0", True),
        (pa.int32(), pa.int64(), "v * 2", False),
        (pa.int64(), pa.int32(), "", False),
        (pa.int32(), pa.string(), "CAST(v AS VARCHAR)", False),
        (pa.int32(), pa.list_(pa.int32()), "[v, id]", False),
        (pa.string(), pa.json_(), "", True),
        (pa.string(), pa.uint64(), "", False),
        (pa.decimal128(4, 1), pa.decimal128(9, 2), "", False),
    ],
    ids=str,
)
def test_change_of_type(lake, namespace, old, new, expression, stays):
    columns = pa.schema([("id", pa.int64()), ("v", old), ("w", pa.uint16())])
    create(lake, namespace, "t", columns)
    insert(lake, namespace, "t", "(1, 10, 1), (2, NULL, 2), (9, 9, 9)")
    insert(lake, namespace, "t", "(3, 30, 3)")
    lake.spark.sql(f"DELETE FROM {sql_name(lake, namespace, 't')} WHERE id = 9")
    table = lambda: find(lake, namespace, "t")  # noqa: E731
    before, files = table(), data_files(table())
    found = changed_once(table, lambda t: t.change_column_type(CTX, field("v", new), expression))
    assert found.arrow_schema.names == before.arrow_schema.names
    assert found.arrow_schema.field("v").type == new
    assert found.arrow_schema.field("w").type == pa.uint16()
    assert (data_files(found) == files) == stays
    assert values(found, "id", "w", "rowid") == values(before, "id", "w", "rowid")
    assert [None if value is None else str(value) for value in values(found, "v")] == _computed(
        before, new, expression
    )
    assert len(in_spark(lake, namespace, "t", "v")) == 3
    assert [row[0] for row in in_spark(lake, namespace, "t", "_row_id")] == values(before, "rowid")


def _computed(table: Any, new: pa.DataType, expression: str) -> list[str | None]:
    (batch,) = (
        pa.Table.from_pylist(rows(table), schema=table.arrow_schema)
        .select(["id", "v"])
        .combine_chunks()
        .to_batches()
    )
    (array,) = computed_values([batch], expression or "v", pa.field("v", new), "t")
    return [None if value is None else str(value) for value in array.to_pylist()]


def test_constraints_are_kept_by_a_change_of_type(lake, namespace):
    constraints = Constraints(not_null=("v",), checks=("(v > 0)",), unique=(("v",),))
    columns = COLUMNS.set(1, pa.field("v", pa.int32(), metadata={"default": "3"}))
    create(lake, namespace, "t", columns, constraints=constraints)
    insert(lake, namespace, "t", "(1, 10, 'a'), (2, 11, 'b')")
    table = lambda: find(lake, namespace, "t")  # noqa: E731
    unchanged(
        table,
        ConstraintViolation,
        "Duplicate key",
        lambda t: t.change_column_type(CTX, field("v", pa.float64()), "v // 5"),
    )
    unchanged(
        table,
        ConstraintViolation,
        "CHECK constraint failed",
        lambda t: t.change_column_type(CTX, field("v", pa.float64()), "v - 10"),
    )
    unchanged(
        table,
        ConstraintViolation,
        "NOT NULL constraint failed",
        lambda t: t.change_column_type(CTX, field("v", pa.float64()), "NULL"),
    )
    unchanged(
        table,
        PreconditionFailed,
        "cannot become date32",
        lambda t: t.change_column_type(CTX, field("v", pa.date32()), "DATE '2020-01-01'"),
    )
    found = changed_once(
        table, lambda t: t.change_column_type(CTX, field("v", pa.float64()), "v / 4")
    )
    assert found.constraints == constraints
    assert found.arrow_schema.field("v").metadata[b"default"] == b"3"
    assert values(found, "v") == [2.5, 2.75]


def test_values_that_the_new_type_cannot_hold(lake, namespace, filled):
    unchanged(
        filled,
        BadRequest,
        "the values of column name cannot be computed",
        lambda t: t.change_column_type(CTX, field("name", pa.int32()), ""),
    )
    insert(lake, namespace, "t", "(5, 100000, 'e')")
    unchanged(
        filled,
        BadRequest,
        "the values of column v cannot be computed",
        lambda t: t.change_column_type(CTX, field("v", pa.int16()), ""),
    )
    unchanged(
        filled,
        BadRequest,
        "cannot be used",
        lambda t: t.change_column_type(CTX, field("v", pa.int64()), "sum(v)"),
    )
    unchanged(
        filled,
        NotFound,
        "column x does not exist",
        lambda t: t.change_column_type(CTX, field("x", pa.int64()), ""),
    )


def test_time_travel_after_a_change_of_type(lake, namespace, filled):
    before = version(filled())
    filled().change_column_type(CTX, field("v", pa.string()), "'<' || v || '>'")
    then = filled().scan(CTX, ScanOptions(time_point=TimePoint("version", str(before))))
    assert sorted(pa.Table.from_batches(then).column("id").to_pylist()) == [1, 2, 3]
    old = filled().scan(CTX, ScanOptions(time_point=TimePoint("version", str(before))))
    assert set(pa.Table.from_batches(old).column("v").to_pylist()) == {10, 20, None}
    assert values(filled(), "v") == ["<10>", "<20>", None]


def test_a_change_is_made_on_what_was_looked_at(lake, namespace, filled, monkeypatch):
    """Another engine adds a NULL between the check and the commit."""
    commit = iceberg_commit.commit
    calls: list[Any] = []

    def slow(draft: Any) -> bool:
        if not calls:
            insert(lake, namespace, "t", "(NULL, 1, 'late')")
        calls.append(draft)
        return commit(draft)

    monkeypatch.setattr(iceberg_commit, "commit", slow)
    with pytest.raises(ConstraintViolation, match=r"NOT NULL constraint failed: t\.id"):
        filled().set_not_null(CTX, "id")
    calls.clear()
    filled().rename_column(CTX, "name", "label")  # harmless, so it is tried again
    assert len(calls) == 2
    assert "label" in filled().arrow_schema.names
    calls.clear()
    before = data_files(filled())
    with pytest.raises(
        Conflict,
        match="was changed by somebody else at the same time; nothing was changed: try again",
    ):
        filled().change_column_type(CTX, field("v", pa.string()), "")
    assert len(calls) == 1
    assert len(data_files(filled()) - before) == 1, "only what the other one has written"
