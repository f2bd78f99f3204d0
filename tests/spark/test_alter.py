"""ALTER TABLE on the lake: each change is one commit, and a refused one leaves nothing behind."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from tests.spark.lake_tables import (
    COLUMNS,
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
    Constraints,
    RemoveColumnOptions,
)
from sparkport.errors import (
    AlreadyExists,
    BadRequest,
    ConstraintViolation,
    NotFound,
    PreconditionFailed,
    Unsupported,
)
from sparkport.spark import LakeCatalog


@pytest.fixture
def filled(lake: LakeCatalog, namespace: str) -> Callable[[], Any]:
    return fill(lake, namespace)


def test_add_column(lake, namespace, filled):
    table = changed_once(
        filled, lambda t: t.add_column(CTX, field("extra", pa.uint8()), AddColumnOptions())
    )
    assert table.arrow_schema.field("extra").type == pa.uint8()
    assert values(table, "extra") == [None, None, None]
    unchanged(
        filled,
        AlreadyExists,
        "column extra exists already",
        lambda t: t.add_column(CTX, field("Extra", pa.int8()), AddColumnOptions()),
    )
    filled().add_column(CTX, field("EXTRA", pa.int8()), AddColumnOptions(if_column_not_exists=True))
    assert filled().arrow_schema.field("extra").type == pa.uint8()
    unchanged(
        filled,
        BadRequest,
        "exactly one field",
        lambda t: t.add_column(CTX, COLUMNS, AddColumnOptions()),
    )
    unchanged(
        filled,
        BadRequest,
        "reserved for the row id",
        lambda t: t.add_column(CTX, field("rowid", pa.int8()), AddColumnOptions()),
    )


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
    unchanged(
        filled,
        BadRequest,
        "there is no column id that it could use",
        lambda t: t.add_column(CTX, field("more", pa.int64(), "id"), AddColumnOptions()),
    )


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


def test_remove_column(lake, namespace, filled):
    table = changed_once(filled, lambda t: t.remove_column(CTX, "V", RemoveColumnOptions()))
    assert table.arrow_schema.names == ["id", "name", "rowid"]
    assert in_spark(lake, namespace, "t") == [(1, "a"), (2, "b"), (3, None)]
    unchanged(
        filled,
        NotFound,
        "column v does not exist in table",
        lambda t: t.remove_column(CTX, "v", RemoveColumnOptions()),
    )
    filled().remove_column(CTX, "v", RemoveColumnOptions(if_column_exists=True))
    filled().remove_column(CTX, "id", RemoveColumnOptions())
    unchanged(
        filled,
        PreconditionFailed,
        "is the only one of table",
        lambda t: t.remove_column(CTX, "name", RemoveColumnOptions()),
    )


@pytest.mark.parametrize(
    ("constraints", "using"),
    [
        (Constraints(primary_key=("id", "v")), r"the primary key \(id, v\)"),
        (Constraints(unique=(("v",),)), r"UNIQUE\(v\)"),
        (Constraints(checks=("(v > 0)",)), r"CHECK\(\(v > 0\)\)"),
    ],
)
def test_a_column_that_a_constraint_uses(lake, namespace, constraints, using):
    create(lake, namespace, "t", constraints=constraints)
    table = lambda: find(lake, namespace, "t")  # noqa: E731 - as the fixture gives it
    unchanged(
        table,
        PreconditionFailed,
        f"is used by {using}: drop it with CASCADE",
        lambda t: t.remove_column(CTX, "v", RemoveColumnOptions()),
    )
    found = changed_once(
        table, lambda t: t.remove_column(CTX, "v", RemoveColumnOptions(cascade=True))
    )
    assert (
        found.constraints.primary_key == found.constraints.unique == found.constraints.checks == ()
    )


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


def test_rename_column(lake, namespace):
    constraints = Constraints(checks=("(v > 0)",), unique=(("v",),), not_null=("v",))
    create(lake, namespace, "t", COLUMNS.set(1, pa.field("v", pa.uint8())), constraints=constraints)
    insert(lake, namespace, "t", "(1, 10, 'a')")
    table = lambda: find(lake, namespace, "t")  # noqa: E731
    found = changed_once(table, lambda t: t.rename_column(CTX, "V", "value"))
    assert found.arrow_schema.names == ["id", "value", "name", "rowid"]
    assert found.arrow_schema.field("value").type == pa.uint8()
    assert found.constraints == Constraints(
        ("value",),
        ('("value" > 0)',) if '"' in found.constraints.checks[0] else ("(value > 0)",),
        (("value",),),
    )
    assert in_spark(lake, namespace, "t", "value") == [(10,)]
    unchanged(
        table,
        AlreadyExists,
        "column ID exists already",
        lambda t: t.rename_column(CTX, "value", "ID"),
    )
    unchanged(
        table,
        AlreadyExists,
        "column value exists already",
        lambda t: t.rename_column(CTX, "value", "value"),
    )
    unchanged(table, NotFound, "column v does not exist", lambda t: t.rename_column(CTX, "v", "w"))
    unchanged(table, BadRequest, "reserved", lambda t: t.rename_column(CTX, "value", "rowid"))
    assert (
        changed_once(table, lambda t: t.rename_column(CTX, "value", "VALUE")).arrow_schema.names[1]
        == "VALUE"
    )


def test_set_default(lake, namespace, filled):
    table = changed_once(filled, lambda t: t.set_default(CTX, "name", "'x' || 'y'"))
    assert table.arrow_schema.field("name").metadata[b"default"] == b"'x' || 'y'"
    changed_once(filled, lambda t: t.rename_column(CTX, "name", "label"))
    assert filled().arrow_schema.field("label").metadata[b"default"] == b"'x' || 'y'"
    unchanged(
        filled,
        BadRequest,
        "the default of column v is not an SQL expression",
        lambda t: t.set_default(CTX, "v", "1 +"),
    )
    unchanged(filled, NotFound, "column x does not exist", lambda t: t.set_default(CTX, "x", "1"))


def test_not_null(lake, namespace, filled):
    unchanged(
        filled,
        ConstraintViolation,
        r"NOT NULL constraint failed: t\.v",
        lambda t: t.set_not_null(CTX, "v"),
    )
    table = changed_once(filled, lambda t: t.set_not_null(CTX, "ID"))
    assert table.constraints.not_null == ("id",)
    assert values(table, "id") == [1, 2, 3]
    assert len(in_spark(lake, namespace, "t")) == 3
    with pytest.raises(Exception, match=r"(?i)null"):
        insert(lake, namespace, "t", "(NULL, 1, 'x')")
    table.set_not_null(CTX, "id")
    assert version(filled()) == version(table)
    changed_once(filled, lambda t: t.drop_not_null(CTX, "id"))
    assert filled().constraints.not_null == ()
    filled().drop_not_null(CTX, "id")
    insert(lake, namespace, "t", "(NULL, 1, 'x')")


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


def test_the_primary_key_stays_not_null(lake, namespace):
    create(lake, namespace, "t", constraints=Constraints(primary_key=("id",)))
    unchanged(
        lambda: find(lake, namespace, "t"),
        PreconditionFailed,
        "is in the primary key, so it cannot be NULL",
        lambda t: t.drop_not_null(CTX, "id"),
    )


def test_add_constraint(lake, namespace, filled):
    unchanged(
        filled,
        ConstraintViolation,
        "CHECK constraint failed on table t",
        lambda t: t.add_constraint(CTX, "CHECK (v > 10)"),
    )
    unchanged(
        filled,
        ConstraintViolation,
        r"NOT NULL constraint failed: t\.v",
        lambda t: t.add_constraint(CTX, "PRIMARY KEY (v)"),
    )
    unchanged(
        filled,
        BadRequest,
        "which the table does not have",
        lambda t: t.add_constraint(CTX, "UNIQUE (nothing)"),
    )
    unchanged(
        filled,
        Unsupported,
        "foreign keys",
        lambda t: t.add_constraint(CTX, "FOREIGN KEY (v) REFERENCES x (y)"),
    )
    table = changed_once(filled, lambda t: t.add_constraint(CTX, "CHECK (t.v > 1)"))
    table = changed_once(filled, lambda t: t.add_constraint(CTX, "PRIMARY KEY (id)"))
    assert (table.constraints.primary_key, table.constraints.not_null) == (("id",), ("id",))
    table = changed_once(filled, lambda t: t.add_constraint(CTX, "UNIQUE (id, v)"))
    assert len(table.constraints.checks) == 1
    assert table.constraints.unique == (("id", "v"),)
    unchanged(
        filled,
        PreconditionFailed,
        "has a primary key already",
        lambda t: t.add_constraint(CTX, "PRIMARY KEY (name)"),
    )
    filled().add_constraint(CTX, "UNIQUE (id, v)")
    assert version(filled()) == version(table)


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
