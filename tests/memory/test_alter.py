"""Every ALTER TABLE, with rows in the table."""

from __future__ import annotations

import pyarrow as pa
import pytest
from tests.memory.statements import CTX, ids_of, insert, rows_of, staged, update

from sparkport.catalog import (
    AddColumnOptions,
    Constraints,
    DropTableOptions,
    Operation,
    RemoveColumnOptions,
    ScanOptions,
)
from sparkport.errors import (
    AlreadyExists,
    BadRequest,
    ConstraintViolation,
    NotFound,
    PreconditionFailed,
    Unsupported,
)
from sparkport.memory import MemorySchema, MemoryTable

DATA = pa.table({"id": [1, 2, 3], "v": ["a", "b", None], "n": [10, 20, 30]})


def _table(**constraints: object) -> MemoryTable:
    table = MemoryTable("t", DATA, constraints=Constraints(**constraints))  # type: ignore[arg-type]
    MemorySchema("s").add_table(table)
    return table


@pytest.fixture
def table() -> MemoryTable:
    return _table()


def _column(table: MemoryTable, name: str) -> list[object]:
    return [row[name] for row in rows_of(table)]


def _one(name: str, data_type: pa.DataType, **options: object) -> pa.Schema:
    return pa.schema([pa.field(name, data_type, **options)])


# ADD COLUMN


def test_an_added_column_is_null_in_the_rows_there_are(table: MemoryTable) -> None:
    table.add_column(CTX, _one("new", pa.list_(pa.string())), AddColumnOptions())
    assert table.arrow_schema.names == ["id", "v", "n", "new", "rowid"]
    assert _column(table, "new") == [None] * 3
    table.add_column(CTX, _one("enum", pa.dictionary(pa.uint8(), pa.string())), AddColumnOptions())
    assert table.arrow_schema.field("enum").type == pa.string()
    table.remove_column(CTX, "enum", RemoveColumnOptions())
    insert(table, [{"id": 4, "v": "d", "n": 40, "new": ["x"]}])
    assert _column(table, "new")[-1] == ["x"]


def test_an_added_column_with_a_default_has_it_in_the_rows_there_are(table: MemoryTable) -> None:
    table.add_column(
        CTX, _one("new", pa.int32(), metadata={"default": "6 * 7"}), AddColumnOptions()
    )
    assert _column(table, "new") == [42] * 3
    with pytest.raises(BadRequest, match="not an SQL expression"):
        table.add_column(
            CTX, _one("bad", pa.int32(), metadata={"default": "6 *"}), AddColumnOptions()
        )
    with pytest.raises(BadRequest, match="cannot be computed"):
        table.add_column(
            CTX, _one("bad", pa.int32(), metadata={"default": "'six'"}), AddColumnOptions()
        )


def test_a_column_that_exists_is_not_added_again_whatever_its_case(table: MemoryTable) -> None:
    with pytest.raises(AlreadyExists, match=r"column id exists already in table s\.t"):
        table.add_column(CTX, _one("ID", pa.int32()), AddColumnOptions())
    table.add_column(CTX, _one("ID", pa.int32()), AddColumnOptions(if_column_not_exists=True))
    assert table.current.number == 0


def test_a_column_that_cannot_be_is_not_added(table: MemoryTable) -> None:
    with pytest.raises(BadRequest, match="exactly one field"):
        table.add_column(CTX, pa.schema([]), AddColumnOptions())
    with pytest.raises(BadRequest, match="exactly one field"):
        table.add_column(CTX, DATA.schema, AddColumnOptions())
    with pytest.raises(BadRequest, match="reserved"):
        table.add_column(CTX, _one("RowID", pa.int64()), AddColumnOptions())
    with pytest.raises((BadRequest, Unsupported)):
        table.add_column(CTX, _one("d", pa.decimal256(60)), AddColumnOptions())
    with pytest.raises(ConstraintViolation, match="NOT NULL"):
        table.add_column(CTX, _one("d", pa.int64(), nullable=False), AddColumnOptions())
    assert table.current.number == 0


# DROP COLUMN


def test_a_removed_column_is_gone_and_history_still_has_it(table: MemoryTable) -> None:
    table.remove_column(CTX, "V", RemoveColumnOptions())
    assert rows_of(table)[0] == {"id": 1, "n": 10}
    assert rows_of(table, version=0)[0] == {"id": 1, "v": "a", "n": 10}


def test_removing_a_column_that_does_not_exist(table: MemoryTable) -> None:
    table.remove_column(CTX, "x", RemoveColumnOptions(if_column_exists=True))
    with pytest.raises(NotFound, match=r"column x does not exist in table s\.t"):
        table.remove_column(CTX, "x", RemoveColumnOptions())
    with pytest.raises(NotFound):
        table.remove_column(CTX, "rowid", RemoveColumnOptions())


def test_the_last_column_cannot_be_removed(table: MemoryTable) -> None:
    for name in ("id", "v"):
        table.remove_column(CTX, name, RemoveColumnOptions())
    with pytest.raises(PreconditionFailed, match="drop the table instead"):
        table.remove_column(CTX, "n", RemoveColumnOptions())


@pytest.mark.parametrize(
    "constraints",
    [{"primary_key": ("id", "n")}, {"unique": (("n", "id"),)}, {"checks": ("n > id",)}],
)
def test_a_column_that_a_constraint_uses_is_removed_only_with_cascade(
    constraints: dict[str, object],
) -> None:
    table = _table(**constraints)
    with pytest.raises(PreconditionFailed, match=r"column n of table s\.t is used by"):
        table.remove_column(CTX, "n", RemoveColumnOptions())
    table.remove_column(CTX, "n", RemoveColumnOptions(cascade=True))
    left = table.constraints
    assert (left.primary_key, left.unique, left.checks) == ((), (), ())
    insert(table, [{"id": 1, "v": "again"}])


# RENAME COLUMN


def test_a_renamed_column_keeps_values_default_and_constraints() -> None:
    table = _table(
        primary_key=("id", "n"),
        unique=(("n",),),
        checks=("n > 0", "id < 100 AND n < 1000", "id > -5"),
    )
    table.set_default(CTX, "n", "7")
    table.rename_column(CTX, "N", "new name")
    assert _column(table, "new name") == [10, 20, 30]
    assert table.constraints == Constraints(
        not_null=("id", "new name"),
        checks=('("new name" > 0)', '((id < 100) AND ("new name" < 1000))', "id > -5"),
        unique=(("new name",),),
        primary_key=("id", "new name"),
    )
    field = table.arrow_schema.field("new name")
    assert (field.nullable, field.metadata[b"default"]) == (False, b"7")
    with pytest.raises(ConstraintViolation, match="new name = -1"):
        insert(table, [{"id": 9, "v": "", "new name": -1}])


def test_a_column_is_not_renamed_to_a_name_that_is_taken_or_reserved(table: MemoryTable) -> None:
    for new_name in ("v", "V", "id"):
        with pytest.raises(AlreadyExists):
            table.rename_column(CTX, "id", new_name)
    for new_name in ("rowid", ""):
        with pytest.raises(BadRequest):
            table.rename_column(CTX, "id", new_name)
    with pytest.raises(NotFound):
        table.rename_column(CTX, "x", "y")
    table.rename_column(CTX, "id", "ID")
    assert table.arrow_schema.names[0] == "ID"


# SET DEFAULT, SET and DROP NOT NULL


@pytest.mark.parametrize("expression", ["7", "(5 + 1)", "now()", "'it''s'", "NULL", "current_date"])
def test_a_default_is_published_as_metadata_of_the_field(
    table: MemoryTable, expression: str
) -> None:
    table.set_default(CTX, "n", expression)
    assert table.arrow_schema.field("n").metadata == {b"default": expression.encode()}
    assert _column(table, "n") == [10, 20, 30]


@pytest.mark.parametrize(
    "expression", ["", "7,", "7; DROP TABLE t", "1 2", "FROM x", "7)", "7 AS x", "*", "?"]
)
def test_a_default_that_is_not_one_expression_is_refused(
    table: MemoryTable, expression: str
) -> None:
    with pytest.raises(BadRequest, match="not an SQL expression"):
        table.set_default(CTX, "n", expression)
    assert table.current.number == 0


def test_not_null_is_set_enforced_and_dropped(table: MemoryTable) -> None:
    table.set_not_null(CTX, "N")
    assert not table.arrow_schema.field("n").nullable
    assert table.constraints.not_null == ("n",)
    for change in (
        lambda: insert(table, [{"id": 1, "v": "", "n": None}]),
        lambda: update(table, [{"n": None, "rowid": 0}]),
    ):
        with pytest.raises(ConstraintViolation, match=r"NOT NULL constraint failed: t\.n"):
            change()
    table.set_not_null(CTX, "n")
    assert table.current.number == 1
    table.drop_not_null(CTX, "n")
    table.drop_not_null(CTX, "n")
    assert table.current.number == 2
    assert update(table, [{"n": None, "rowid": 0}]) == 1


def test_not_null_is_refused_while_there_are_nulls(table: MemoryTable) -> None:
    with pytest.raises(ConstraintViolation, match=r"NOT NULL constraint failed: t\.v"):
        table.set_not_null(CTX, "v")
    assert table.arrow_schema.field("v").nullable


def test_columns_of_the_primary_key_stay_not_null() -> None:
    table = _table(primary_key=("id",))
    with pytest.raises(PreconditionFailed, match="primary key"):
        table.drop_not_null(CTX, "id")


# SET DATA TYPE


@pytest.mark.parametrize(
    ("name", "data_type", "expression", "expected"),
    [
        ("n", pa.string(), "CAST(n AS VARCHAR)", ["10", "20", "30"]),
        ("n", pa.int8(), "CAST(n AS TINYINT)", [10, 20, 30]),
        ("n", pa.int64(), "n + id", [11, 22, 33]),
        ("n", pa.list_(pa.int32()), "[n, id]", [[10, 1], [20, 2], [30, 3]]),
        ("n", pa.struct([("x", pa.int32())]), "{'x': n}", [{"x": 10}, {"x": 20}, {"x": 30}]),
        ("n", pa.large_string(), "n", ["10", "20", "30"]),
        ("n", pa.timestamp("us", "UTC"), "to_timestamp(t.n)", None),
        ("n", pa.bool8(), "n > 10", [0, 1, 1]),
        ("v", pa.binary(), "encode(v)", [b"a", b"b", None]),
        ("v", pa.uuid(), "uuid()", None),
        ("N", pa.float64(), "n / 4 -- a comment", [2.5, 5.0, 7.5]),
        ("n", pa.float32(), "", [10, 20, 30]),
        (
            "n",
            pa.list_(pa.bool_()),
            "list_transform([1, 20], lambda x: x >= n)",
            [[False, True]] * 2 + [[False] * 2],
        ),
    ],
)
def test_a_column_gets_another_type(
    table: MemoryTable,
    name: str,
    data_type: pa.DataType,
    expression: str,
    expected: list[object] | None,
) -> None:
    table.change_column_type(CTX, _one(name, data_type), expression)
    field = table.arrow_schema.field(name.lower())
    assert field.type == data_type
    if expected is not None:
        values = [
            value
            for batch in table.scan(CTX, ScanOptions())
            for value in _storage(batch.column(field.name)).to_pylist()
        ]
        assert values == expected
    assert ids_of(table) == [0, 1, 2]
    assert rows_of(table, version=0)[0] == {"id": 1, "v": "a", "n": 10}


def _storage(column: pa.Array) -> pa.Array:
    return column.storage if isinstance(column, pa.ExtensionArray) else column


@pytest.mark.parametrize(
    "expression",
    [
        "CAST(v AS INTEGER)",
        "not SQL at all",
        "nothing + 1",
        "sum(n)",
        "(SELECT 1)",
        "unnest([1, 2])",
        "row_number() OVER ()",
        "1; SELECT 2",
        "n) AS x, (n",
    ],
)
def test_an_expression_that_does_not_work_changes_nothing(
    table: MemoryTable, expression: str
) -> None:
    with pytest.raises(BadRequest):
        table.change_column_type(CTX, _one("v", pa.int32()), expression)
    assert table.current.number == 0
    assert table.arrow_schema.field("v").type == pa.string()


def test_a_type_of_many_segments_is_changed_row_by_row() -> None:
    rows = 400_000
    table = MemoryTable("t", pa.table({"n": pa.arange(0, rows)}))
    write = staged(table, Operation.DELETE)
    write.apply(pa.record_batch({"rowid": pa.arange(1000, 2000)}))
    write.commit()
    table.change_column_type(CTX, _one("n", pa.string()), "CAST(n AS VARCHAR)")
    assert _column(table, "n") == [str(n) for n in range(rows) if not 1000 <= n < 2000]


def test_constraints_hold_for_the_new_values() -> None:
    table = _table(unique=(("n",),), checks=("n > 5",), not_null=("n",))
    with pytest.raises(ConstraintViolation, match="Duplicate key"):
        table.change_column_type(CTX, _one("n", pa.int64()), "10")
    with pytest.raises(ConstraintViolation, match="CHECK"):
        table.change_column_type(CTX, _one("n", pa.int64()), "n - 5")
    with pytest.raises(ConstraintViolation, match="NOT NULL"):
        table.change_column_type(CTX, _one("n", pa.int64()), "NULL")
    with pytest.raises(PreconditionFailed, match="cannot become"):
        table.change_column_type(CTX, _one("n", pa.struct([("x", pa.int64())])), "{'x': n}")
    table.change_column_type(CTX, _one("n", pa.int16()), "n")
    assert table.constraints == Constraints(not_null=("n",), checks=("n > 5",), unique=(("n",),))
    assert not table.arrow_schema.field("n").nullable


# ADD CONSTRAINT


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("CHECK (n > 0)", Constraints(checks=("(n > 0)",))),
        (
            "constraint positive check(n > 0 AND id > 0)",
            Constraints(checks=("(n > 0 AND id > 0)",)),
        ),
        ("UNIQUE (ID, n)", Constraints(unique=(("id", "n"),))),
        (
            'ADD CONSTRAINT "my key" PRIMARY KEY("id");',
            Constraints(not_null=("id",), primary_key=("id",)),
        ),
    ],
)
def test_a_constraint_is_added(table: MemoryTable, text: str, expected: Constraints) -> None:
    before = table.arrow_schema
    table.add_constraint(CTX, text)
    assert table.constraints == expected
    assert table.arrow_schema is not before


def test_a_constraint_that_the_rows_do_not_fulfil_is_not_added(table: MemoryTable) -> None:
    for text in ("CHECK (n > 10)", "PRIMARY KEY (v)"):
        with pytest.raises(ConstraintViolation):
            table.add_constraint(CTX, text)
    update(table, [{"n": 10, "rowid": 1}])
    with pytest.raises(ConstraintViolation, match='Duplicate key "n: 10"'):
        table.add_constraint(CTX, "UNIQUE (n)")
    assert table.constraints == Constraints()


def test_what_is_no_constraint_is_refused(table: MemoryTable) -> None:
    for text in (
        "",
        "n > 0",
        "CHECK n > 0",
        "UNIQUE ()",
        "UNIQUE (a b)",
        "UNIQUE (nothing)",
        "CHECK (nothing > 0)",
    ):
        with pytest.raises(BadRequest):
            table.add_constraint(CTX, text)
    with pytest.raises(Unsupported, match="foreign keys"):
        table.add_constraint(CTX, "FOREIGN KEY (id) REFERENCES u (id)")
    table.add_constraint(CTX, "PRIMARY KEY (id)")
    with pytest.raises(PreconditionFailed, match="primary key already"):
        table.add_constraint(CTX, "PRIMARY KEY (n)")


def test_a_dropped_table_cannot_be_altered() -> None:
    schema = MemorySchema("s")
    table = MemoryTable("t", DATA)
    schema.add_table(table)
    schema.drop_table(CTX, "t", DropTableOptions())
    with pytest.raises(NotFound, match=r"table s\.t does not exist"):
        table.rename_column(CTX, "id", "x")
