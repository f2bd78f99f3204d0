"""ALTER TABLE on the lake: each change is one commit, and Spark sees the same.

A refused change leaves nothing behind. What the lake shares with memory is tested in
`sparkport.testing.contract`.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from tests.spark.lake_tables import (
    CTX,
    changed_once,
    create,
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
    AddColumnOptions,
    RemoveColumnOptions,
)
from sparkport.errors import (
    AlreadyExists,
    BadRequest,
    ConstraintViolation,
    NotFound,
    PreconditionFailed,
)
from sparkport.spark import LakeCatalog


@pytest.fixture
def filled(lake: LakeCatalog, namespace: str) -> Callable[[], Any]:
    return fill(lake, namespace)


CHANGES = {
    "add_column": lambda t: t.add_column(CTX, field("extra", pa.uint8()), AddColumnOptions()),
    "remove_column": lambda t: t.remove_column(CTX, "extra", RemoveColumnOptions()),
    "rename_column": lambda t: t.rename_column(CTX, "name", "label"),
    "set_default": lambda t: t.set_default(CTX, "label", "'x' || 'y'"),
    "rename with a default": lambda t: t.rename_column(CTX, "label", "name"),
    "set_not_null": lambda t: t.set_not_null(CTX, "id"),
    "drop_not_null": lambda t: t.drop_not_null(CTX, "id"),
    "add a CHECK": lambda t: t.add_constraint(CTX, "CHECK (v > 1)"),
    "add a primary key": lambda t: t.add_constraint(CTX, "PRIMARY KEY (id)"),
    "rename in constraints": lambda t: t.rename_column(CTX, "v", "value"),
    "change_column_type": lambda t: t.change_column_type(CTX, field("value", pa.int64()), ""),
}


def test_each_change_is_one_commit_and_spark_sees_it(lake, namespace, filled):
    for change in CHANGES.values():
        changed_once(filled, change)
    table = filled()
    assert table.arrow_schema.names == ["id", "value", "name", "rowid"]
    assert table.arrow_schema.field("name").metadata[b"default"] == b"'x' || 'y'"
    assert table.constraints.primary_key == table.constraints.not_null == ("id",)
    assert "value" in table.constraints.checks[0]
    assert in_spark(lake, namespace, "t", "id, value, name") == [
        (1, 10, "a"),
        (2, 20, "b"),
        (3, None, None),
    ]
    with pytest.raises(Exception, match=r"(?i)null"):
        insert(lake, namespace, "t", "(NULL, 1, 'x')")


def test_what_changes_nothing_makes_no_commit(lake, namespace, filled):
    filled().add_constraint(CTX, "PRIMARY KEY (id)")
    before = version(filled())
    table = filled()
    table.add_column(CTX, field("ID", pa.int8()), AddColumnOptions(if_column_not_exists=True))
    table.remove_column(CTX, "x", RemoveColumnOptions(if_column_exists=True))
    table.set_not_null(CTX, "id")
    table.drop_not_null(CTX, "v")
    table.change_column_type(CTX, field("v", pa.int32()), "")
    assert version(filled()) == before


@pytest.mark.parametrize(
    ("error", "change"),
    [
        (AlreadyExists, lambda t: t.add_column(CTX, field("V", pa.int8()), AddColumnOptions())),
        (NotFound, lambda t: t.remove_column(CTX, "x", RemoveColumnOptions())),
        (ConstraintViolation, lambda t: t.set_not_null(CTX, "v")),
        (ConstraintViolation, lambda t: t.add_constraint(CTX, "CHECK (v > 10)")),
        (BadRequest, lambda t: t.change_column_type(CTX, field("name", pa.int8()), "name::INT")),
        (
            BadRequest,
            lambda t: t.add_column(
                CTX, field("d", pa.int8(), "(random() * 1000)::INT + 1000"), AddColumnOptions()
            ),
        ),
    ],
    ids=["first", "no column", "rows", "CHECK", "type", "default"],
)
def test_a_refused_change_leaves_no_file(lake, namespace, filled, error, change):
    unchanged(filled, error, ".", change)


@pytest.mark.parametrize(
    ("kind", "default", "expected"),
    [
        (pa.bool_(), "true", True),
        (pa.int32(), "-7", -7),
        (pa.int64(), "9223372036854775807", 2**63 - 1),
        (pa.uint64(), "18446744073709551615", 2**64 - 1),
        (pa.float32(), "1.5", 1.5),
        (pa.float64(), "'-inf'", float("-inf")),
        (pa.decimal128(10, 2), "1.5", Decimal("1.50")),
        (pa.string(), "'ü' || 'b'", "üb"),
        (pa.binary(), r"'\xAA'::BLOB", b"\xaa"),
        (pa.date32(), "DATE '1969-12-31'", date(1969, 12, 31)),
        (
            pa.timestamp("us"),
            "TIMESTAMP '2020-01-01 00:00:00.123456'",
            datetime(2020, 1, 1, 0, 0, 0, 123456),
        ),
        (
            pa.uuid(),
            "'6ba7b810-9dad-11d1-80b4-00c04fd430c8'",
            uuid.UUID("6ba7b810-9dad-11d1-80b4-00c04fd430c8"),
        ),
        (pa.list_(pa.int32()), "[1, 2]", [1, 2]),
        (pa.struct([("x", pa.int8())]), "{'x': 3}", {"x": 3}),
        (pa.string(), "NULL", None),
    ],
    ids=str,
)
def test_a_new_column_gives_its_default_to_the_rows_there_are(
    lake, namespace, filled, kind, default, expected
):
    before = values(filled(), "rowid")
    table = changed_once(
        filled, lambda t: t.add_column(CTX, field("extra", kind, default), AddColumnOptions())
    )
    assert values(table, "extra") == [expected] * 3
    assert values(table, "rowid") == before
    assert table.arrow_schema.field("extra").metadata[b"default"] == default.encode()
    assert len(in_spark(lake, namespace, "t", "extra")) == 3


def test_a_default_that_differs_from_row_to_row(lake, namespace, filled):
    table = changed_once(
        filled, lambda t: t.add_column(CTX, field("extra", pa.uuid(), "uuid()"), AddColumnOptions())
    )
    assert len(set(values(table, "extra"))) == 3
    assert values(table, "id", "v", "name") == [(1, 10, "a"), (2, 20, "b"), (3, None, None)]


def test_a_new_column_that_is_not_null(lake, namespace, filled):
    required = field("extra", pa.int32(), nullable=False)
    unchanged(
        filled,
        ConstraintViolation,
        r"NOT NULL constraint failed: t\.extra",
        lambda t: t.add_column(CTX, required, AddColumnOptions()),
    )
    changed_once(
        filled,
        lambda t: t.add_column(
            CTX, field("extra", pa.int32(), "5", nullable=False), AddColumnOptions()
        ),
    )
    assert filled().constraints.not_null == ("extra",)
    assert in_spark(lake, namespace, "t", "extra") == [(5,)] * 3
    create(lake, namespace, "empty")
    find(lake, namespace, "empty").add_column(CTX, required, AddColumnOptions())
    assert find(lake, namespace, "empty").constraints.not_null == ("extra",)


def test_a_new_column_that_is_not_null_where_all_rows_were_deleted(lake, namespace):
    create(lake, namespace, "t")
    insert(lake, namespace, "t", "(1, 1, 'a'), (2, 2, 'b')")
    for number in (1, 2):
        lake.spark.sql(f"DELETE FROM {sql_name(lake, namespace, 't')} WHERE id = {number}")
    find(lake, namespace, "t").add_column(
        CTX, field("extra", pa.int32(), nullable=False), AddColumnOptions()
    )
    assert in_spark(lake, namespace, "t") == []
    assert rows(find(lake, namespace, "t")) == []


def test_columns_of_the_layout_stay(lake, namespace):
    name = sql_name(lake, namespace, "t")
    lake.spark.sql(
        f"CREATE TABLE {name} (p INT, s INT, v INT) USING iceberg PARTITIONED BY (bucket(4, p))"
        " TBLPROPERTIES ('format-version' = '3')"
    )
    lake.spark.sql(f"ALTER TABLE {name} WRITE ORDERED BY s")
    insert(lake, namespace, "t", "(1, 2, 3), (4, 5, 6)")
    table = lambda: find(lake, namespace, "t")  # noqa: E731
    unchanged(
        table,
        PreconditionFailed,
        "column p of table .* is used by its partitioning",
        lambda t: t.remove_column(CTX, "p", RemoveColumnOptions()),
    )
    unchanged(
        table,
        PreconditionFailed,
        "column s of table .* is used by its sort order",
        lambda t: t.remove_column(CTX, "s", RemoveColumnOptions()),
    )
    unchanged(
        table,
        PreconditionFailed,
        "column p of table .* is used by its partitioning, so it cannot become string",
        lambda t: t.change_column_type(CTX, field("p", pa.string()), ""),
    )
    changed_once(table, lambda t: t.change_column_type(CTX, field("v", pa.string()), "v || '!'"))
    assert sorted(values(table(), "p", "v")) == [(1, "3!"), (4, "6!")]
    assert lake.spark.sql(f"SELECT v FROM {name} WHERE p = 4").collect()[0].v == "6!"
    partitions = lake.spark.sql(f"SELECT * FROM {name}.partitions").collect()
    assert sum(row.record_count for row in partitions) == 2


def test_a_required_column_that_files_of_deleted_rows_lack(lake, namespace):
    create(lake, namespace, "t")
    insert(lake, namespace, "t", "(1, 1, 'a'), (2, 2, 'b')")
    find(lake, namespace, "t").add_column(CTX, field("extra", pa.int32()), AddColumnOptions())
    insert(lake, namespace, "t", "(3, 3, 'c', 3)")
    for number in (1, 2):
        lake.spark.sql(f"DELETE FROM {sql_name(lake, namespace, 't')} WHERE id = {number}")
    changed_once(lambda: find(lake, namespace, "t"), lambda t: t.set_not_null(CTX, "extra"))
    assert in_spark(lake, namespace, "t", "id, extra") == [(3, 3)]
    assert values(find(lake, namespace, "t"), "id", "extra") == [(3, 3)]


@pytest.mark.parametrize("in_place", [True, False])
def test_a_key_is_checked_against_the_rows_there_are(
    lake, namespace, filled, monkeypatch, in_place
):
    if not in_place:
        monkeypatch.setattr("sparkport.spark.ddl.existing_rows._MOST_IN_PLACE", 0)
    insert(lake, namespace, "t", "(1, 10, 'c'), (4, NULL, 'd')")
    unchanged(
        filled,
        ConstraintViolation,
        'Duplicate key "v: 10" violates unique constraint of table t',
        lambda t: t.add_constraint(CTX, "UNIQUE (v)"),
    )
    unchanged(
        filled,
        ConstraintViolation,
        'Duplicate key "id: 1" violates primary key constraint',
        lambda t: t.add_constraint(CTX, "PRIMARY KEY (id)"),
    )
    changed_once(filled, lambda t: t.add_constraint(CTX, "UNIQUE (name)"))
