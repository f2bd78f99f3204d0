"""ALTER TABLE on columns and constraints: the behaviours that all backends share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from sparkport.catalog import AddColumnOptions, Constraints, RemoveColumnOptions
from sparkport.errors import (
    AlreadyExists,
    BadRequest,
    ConstraintViolation,
    NotFound,
    PreconditionFailed,
    Unsupported,
)
from sparkport.testing.contract.behaviours import (
    Behaviour,
    SetUp,
    Subject,
    one_column,
    refusal,
)
from sparkport.testing.contract.changed_rows import ITEMS, KEYED

__all__ = ["ALTERED_COLUMNS"]

_Statement = Callable[[Subject], Any]
_NAMES = ITEMS.columns.names
_ONLY = SetUp("only", pa.schema([("id", pa.int64())]), [(1,)])


def _add(
    name: str, kind: pa.DataType, default: str = "", *, nullable: bool = True, **options: bool
) -> _Statement:
    return _add_all(one_column(name, kind, default, nullable=nullable), **options)


def _add_all(columns: pa.Schema, **options: bool) -> _Statement:
    return lambda t: t.table.add_column(t.ctx, columns, AddColumnOptions(**options))


def _added(name: str, kind: pa.DataType, default: str, value: Any) -> Behaviour:
    rows = [(*row, value) for row in ITEMS.rows]
    return Behaviour(f"ADD COLUMN {name}", ITEMS, _add("extra", kind, default), rows=rows)


def _remove(name: str, **options: bool) -> _Statement:
    return lambda t: t.table.remove_column(t.ctx, name, RemoveColumnOptions(**options))


def _rename(name: str, new_name: str) -> _Statement:
    return lambda t: t.table.rename_column(t.ctx, name, new_name)


def _default(name: str, expression: str) -> _Statement:
    return lambda t: t.table.set_default(t.ctx, name, expression)


def _retype(name: str, kind: pa.DataType, expression: str = "") -> _Statement:
    return lambda t: t.table.change_column_type(t.ctx, one_column(name, kind), expression)


def _retyped(kind: pa.DataType, expression: str, values: list[Any]) -> Behaviour:
    """Of the column `v`, to which `id` may be used."""
    name = f"TYPE {kind} USING {expression}"
    rows = [(row[0], value, row[2]) for row, value in zip(ITEMS.rows, values, strict=True)]
    return Behaviour(name, ITEMS, _retype("V", kind, expression), rows=rows, columns=_NAMES)


def _constrain(text: str) -> _Statement:
    return lambda t: t.table.add_constraint(t.ctx, text)


def _constrained(text: str, constraints: Constraints) -> Behaviour:
    return Behaviour(f"ADD {text}", ITEMS, _constrain(text), constraints=constraints)


def _followed(t: Subject) -> Any:
    """Statements after a renaming: constraints and defaults have followed the column."""
    t.table.set_default(t.ctx, "v", "7")
    t.table.rename_column(t.ctx, "V", "new name")
    field = t.table.arrow_schema.field("new name")
    try:
        t.insert((9, 3, "x"))
    except ConstraintViolation:
        return field.metadata[b"default"], t.table.constraints.unique
    return None


def _not_null(t: Subject) -> Any:
    """Set and dropped, each also where that has been done."""
    t.table.set_not_null(t.ctx, "ID")
    t.table.set_not_null(t.ctx, "id")
    is_set = t.table.constraints.not_null, t.table.arrow_schema.field("id").nullable
    try:
        t.update({"id": [None], "rowid": [0]})
    except ConstraintViolation:
        t.table.drop_not_null(t.ctx, "id")
        t.table.drop_not_null(t.ctx, "id")
        return is_set, t.update({"id": [None], "rowid": [0]})
    return None


def _different(t: Subject) -> int:
    _add("extra", pa.string(), "uuid()::VARCHAR")(t)
    return len({row[-1] for row in t.rows()})


_EXISTS, _GONE, _TAKEN = (
    "column name exists already",
    "column x does not exist in table",
    "exists already",
)
_RESERVED = "reserved for the row id"
_CASCADE = "is used by {}: drop it with CASCADE to drop that too"
_NO_EXPRESSION = "the default of column v is not an SQL expression"
_NO_CONSTRAINTS = Constraints()

ALTERED_COLUMNS = [
    # ADD COLUMN
    _added("without a default", pa.list_(pa.string()), "", None),
    _added("with a default", pa.int32(), "6 * 7", 42),
    _added("with a default that is a list", pa.list_(pa.int32()), "[1, 2]", [1, 2]),
    Behaviour(
        "ADD COLUMN with a default that differs from row to row", ITEMS, _different, result=3
    ),
    Behaviour(
        "ADD COLUMN that is NOT NULL, with a default",
        ITEMS,
        _add("extra", pa.int32(), "5", nullable=False),
        rows=[(*row, 5) for row in ITEMS.rows],
        constraints=Constraints(not_null=("extra",)),
    ),
    Behaviour(
        "ADD COLUMN IF NOT EXISTS",
        ITEMS,
        _add("NAME", pa.int8(), if_column_not_exists=True),
        rows=ITEMS.rows,
        columns=_NAMES,
    ),
    refusal("ADD COLUMN that exists", ITEMS, _add("NAME", pa.int8()), AlreadyExists, _EXISTS),
    refusal("ADD COLUMN rowid", ITEMS, _add("RowID", pa.int8()), BadRequest, _RESERVED),
    refusal(
        "ADD COLUMN without a name", ITEMS, _add("", pa.int8()), BadRequest, "a column needs a name"
    ),
    refusal(
        "ADD COLUMN of a type that DuckDB lacks",
        ITEMS,
        _add("extra", pa.decimal256(60)),
        (BadRequest, Unsupported),
    ),
    refusal(
        "ADD COLUMN that is NOT NULL",
        ITEMS,
        _add("extra", pa.int32(), nullable=False),
        ConstraintViolation,
        r"NOT NULL constraint failed: t\.extra",
    ),
    *(
        refusal(f"ADD COLUMN DEFAULT {text}", ITEMS, _add("d", kind, text), BadRequest, message)
        for text, kind, message in (
            ("6 *", pa.int32(), "the default of column d is not an SQL expression"),
            ("'six'", pa.int32(), "cannot be computed"),
            ("id", pa.int64(), "there is no column id that it could use"),
        )
    ),
    *(
        refusal(
            f"ADD COLUMN with {len(columns)} fields",
            ITEMS,
            _add_all(columns),
            BadRequest,
            "exactly one field",
        )
        for columns in (pa.schema([]), ITEMS.columns)
    ),
    # DROP COLUMN
    Behaviour("DROP COLUMN", ITEMS, _remove("V"), rows=[(1, "a"), (2, "b"), (3, None)]),
    Behaviour("DROP COLUMN IF EXISTS", ITEMS, _remove("x", if_column_exists=True), columns=_NAMES),
    Behaviour(
        "DROP COLUMN CASCADE takes the constraints along",
        KEYED,
        _remove("v", cascade=True),
        constraints=Constraints(not_null=("id", "name"), primary_key=("id",)),
    ),
    refusal("DROP COLUMN that does not exist", ITEMS, _remove("x"), NotFound, _GONE),
    refusal("DROP COLUMN rowid", ITEMS, _remove("rowid"), NotFound, "column rowid does not exist"),
    refusal(
        "DROP COLUMN that is the last",
        _ONLY,
        _remove("id"),
        PreconditionFailed,
        "is the only one of table .*: drop the table instead",
    ),
    *(
        refusal(
            f"DROP COLUMN {name} that a constraint uses",
            KEYED,
            _remove(name),
            PreconditionFailed,
            f"column {name} of table .* " + _CASCADE.format(using),
        )
        for name, using in (
            ("id", r"the primary key \(id\)"),
            ("name", r"UNIQUE\(name, v\)"),
            ("v", r"UNIQUE\(name, v\)"),
        )
    ),
    # RENAME COLUMN
    Behaviour(
        "RENAME COLUMN", ITEMS, _rename("V", "w"), rows=ITEMS.rows, columns=["id", "w", "name"]
    ),
    Behaviour(
        "RENAME COLUMN to another case", ITEMS, _rename("v", "V"), columns=["id", "V", "name"]
    ),
    Behaviour(
        "RENAME COLUMN keeps default and constraints",
        KEYED,
        _followed,
        result=(b"7", (("name", "new name"),)),
        rows=KEYED.rows,
    ),
    *(
        refusal(f"RENAME COLUMN to {new!r}", ITEMS, _rename("v", new), error, message)
        for new, error, message in (
            ("v", AlreadyExists, _TAKEN),
            ("ID", AlreadyExists, "column ID exists already"),
            ("rowid", BadRequest, _RESERVED),
            ("", BadRequest, "a column needs a name"),
        )
    ),
    refusal("RENAME COLUMN that does not exist", ITEMS, _rename("x", "y"), NotFound, _GONE),
    # SET DEFAULT
    Behaviour(
        "SET DEFAULT is for rows to come",
        ITEMS,
        lambda t: _default("V", "(5 + 1)")(t) or t.table.arrow_schema.field("v").metadata,
        result={b"default": b"(5 + 1)"},
        rows=ITEMS.rows,
    ),
    *(
        refusal(f"SET DEFAULT {text!r}", ITEMS, _default("v", text), BadRequest, _NO_EXPRESSION)
        for text in ("", "7,", "7; DROP TABLE t", "1 2", "FROM x", "7)", "7 AS x", "*", "?")
    ),
    refusal("SET DEFAULT of no column", ITEMS, _default("x", "1"), NotFound, _GONE),
    # SET and DROP NOT NULL
    Behaviour("SET and DROP NOT NULL", ITEMS, _not_null, result=((("id",), False), 1)),
    refusal(
        "SET NOT NULL over NULLs",
        ITEMS,
        lambda t: t.table.set_not_null(t.ctx, "v"),
        ConstraintViolation,
        r"NOT NULL constraint failed: t\.v",
    ),
    refusal(
        "SET NOT NULL of no column",
        ITEMS,
        lambda t: t.table.set_not_null(t.ctx, "x"),
        NotFound,
        _GONE,
    ),
    refusal(
        "DROP NOT NULL of no column",
        ITEMS,
        lambda t: t.table.drop_not_null(t.ctx, "x"),
        NotFound,
        _GONE,
    ),
    refusal(
        "DROP NOT NULL of the primary key",
        KEYED,
        lambda t: t.table.drop_not_null(t.ctx, "id"),
        PreconditionFailed,
        "column id of table .* is in the primary key, so it cannot be NULL",
    ),
    # SET DATA TYPE
    _retyped(pa.string(), "CAST(v AS VARCHAR) || '!'", ["10!", "20!", None]),
    _retyped(pa.int64(), "", [10, 20, None]),
    _retyped(pa.int8(), "v", [10, 20, None]),
    _retyped(pa.list_(pa.int32()), "[v, id]", [[10, 1], [20, 2], [None, 3]]),
    _retyped(pa.struct([("x", pa.int32())]), "{'x': t.v}", [{"x": 10}, {"x": 20}, {"x": None}]),
    _retyped(pa.float64(), "v / 4 -- a comment", [2.5, 5.0, None]),
    Behaviour(
        "TYPE keeps the constraints",
        KEYED,
        _retype("v", pa.int64()),
        rows=KEYED.rows,
        constraints=KEYED.constraints,
    ),
    *(
        refusal(f"TYPE USING {text}", ITEMS, _retype("name", pa.int32(), text), BadRequest)
        for text in (
            "CAST(name AS INTEGER)",
            "not SQL at all",
            "nothing + 1",
            "sum(v)",
            "(SELECT 1)",
            "unnest([1, 2])",
            "row_number() OVER ()",
            "1; SELECT 2",
            "v) AS x, (v",
        )
    ),
    refusal("TYPE of no column", ITEMS, _retype("x", pa.int8()), NotFound, _GONE),
    *(
        refusal(f"TYPE {kind} against {what}", KEYED, _retype("v", kind, text), error, message)
        for what, kind, text, error, message in (
            ("a CHECK", pa.int64(), "v - 19", ConstraintViolation, "CHECK constraint failed"),
            (
                "sense",
                pa.list_(pa.int8()),
                "[1]",
                PreconditionFailed,
                "column v of .* cannot become",
            ),
        )
    ),
    refusal(
        "TYPE against a key",
        KEYED,
        _retype("id", pa.int64(), "1"),
        ConstraintViolation,
        'Duplicate key "id: 1"',
    ),
    refusal(
        "TYPE against NOT NULL",
        KEYED,
        _retype("name", pa.string(), "NULL"),
        ConstraintViolation,
        r"NOT NULL constraint failed: t\.name",
    ),
    # ADD CONSTRAINT
    _constrained("CHECK (t.v > 1)", Constraints(checks=("(v > 1)",))),
    _constrained("constraint positive check(id > 0)", Constraints(checks=("(id > 0)",))),
    _constrained("UNIQUE (ID, v)", Constraints(unique=(("id", "v"),))),
    _constrained(
        'ADD CONSTRAINT "my key" PRIMARY KEY("id");',
        Constraints(not_null=("id",), primary_key=("id",)),
    ),
    Behaviour(
        "ADD a constraint that is there",
        KEYED,
        _constrain("UNIQUE (name, v)"),
        constraints=KEYED.constraints,
    ),
    *(
        refusal(f"ADD {text!r}", ITEMS, _constrain(text), error, message)
        for text, error, message in (
            ("CHECK (v > 10)", ConstraintViolation, "CHECK constraint failed on table t"),
            ("PRIMARY KEY (v)", ConstraintViolation, r"NOT NULL constraint failed: t\.v"),
            ("UNIQUE (nothing)", BadRequest, "which the table does not have"),
            ("FOREIGN KEY (v) REFERENCES x (y)", Unsupported, "foreign keys"),
            ("", BadRequest, "cannot be read"),
            ("v > 0", BadRequest, "cannot be read"),
            ("CHECK v > 0", BadRequest, "cannot be read"),
            ("UNIQUE ()", BadRequest, "cannot be read"),
            ("UNIQUE (a b)", BadRequest, "cannot be read"),
            ("CHECK (nothing > 0)", BadRequest, ""),
        )
    ),
    refusal(
        "ADD a second primary key",
        KEYED,
        _constrain("PRIMARY KEY (name)"),
        PreconditionFailed,
        "has a primary key already",
    ),
    refusal(
        "ADD a key that rows do not fulfil",
        SetUp("equal", ITEMS.columns, [(1, 10, "a"), (1, 10, "c")]),
        _constrain("UNIQUE (v)"),
        ConstraintViolation,
        'Duplicate key "v: 10" violates unique constraint of table t',
    ),
]
