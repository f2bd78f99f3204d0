"""INSERT, UPDATE and DELETE: the behaviours that all backends share."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from sparkport.catalog import Constraints, DMLOptions, Operation
from sparkport.errors import BadRequest, ConstraintViolation, NotFound
from sparkport.testing.contract.behaviours import Behaviour, SetUp, Subject, refusal

__all__ = ["CHANGED_ROWS", "ITEMS", "KEYED"]

_COLUMNS = pa.schema([("id", pa.int64()), ("v", pa.int32()), ("name", pa.string())])
ITEMS = SetUp("items", _COLUMNS, [(1, 10, "a"), (2, 20, "b"), (3, None, None)])
KEYED = SetUp(
    "keyed",
    _COLUMNS,
    [(1, 10, "a"), (2, 20, "b"), (3, None, "c")],
    Constraints(
        not_null=("id", "name"),
        checks=("(v > id)",),
        unique=(("name", "v"),),
        primary_key=("id",),
    ),
)


def _raw(operation: Operation, **columns: Any) -> Any:
    """A batch as it is, with row ids that need not exist."""
    batch = pa.RecordBatch.from_pydict(columns)
    return lambda t: t.write(operation, [batch])


def _aborted(t: Subject) -> None:
    batch = pa.RecordBatch.from_pylist([{"id": 4, "v": 40, "name": "d"}], schema=_COLUMNS)
    write = t.table.stage(t.ctx, Operation.INSERT, DMLOptions())
    write.apply(batch)
    write.abort()
    write.abort()


_INT64 = pa.int64()
_TWICE = "row \\d+ of table .* is updated twice by one statement"
_NONE = "row id 77 does not exist in table"

CHANGED_ROWS = [
    Behaviour(
        "INSERT gives back the rows as they are stored",
        ITEMS,
        lambda t: t.insert((4, None, "d"), (5, 50, None), returning=True),
        result=[(4, None, "d"), (5, 50, None)],
        rows=[*ITEMS.rows, (4, None, "d"), (5, 50, None)],
    ),
    Behaviour(
        "INSERT takes columns in any order",
        ITEMS,
        _raw(
            Operation.INSERT,
            name=["d"],
            v=pa.array([40], pa.int32()),
            id=[4],
        ),
        rows=[*ITEMS.rows, (4, 40, "d")],
    ),
    Behaviour(
        "UPDATE changes the columns that it names, of rows in any order",
        ITEMS,
        lambda t: t.update({"name": ["z", "x"], "rowid": [2, 0]}, returning=True),
        result=[(3, None, "z"), (1, 10, "x")],
        rows=[(1, 10, "x"), (2, 20, "b"), (3, None, "z")],
    ),
    Behaviour(
        "UPDATE of several batches is one statement",
        ITEMS,
        lambda t: t.update({"v": [1], "rowid": [1]}, {"v": [2, 3], "rowid": [0, 2]}),
        result=3,
        rows=[(1, 2, "a"), (2, 1, "b"), (3, 3, None)],
    ),
    Behaviour(
        "UPDATE may swap the values of a key",
        KEYED,
        lambda t: t.update({"id": [2, 1], "rowid": [0, 1]}),
        result=2,
        rows=[(2, 10, "a"), (1, 20, "b"), (3, None, "c")],
    ),
    Behaviour(
        "DELETE gives back the rows as they were",
        ITEMS,
        lambda t: t.delete(2, 0, returning=True),
        result=[(3, None, None), (1, 10, "a")],
        rows=[(2, 20, "b")],
    ),
    Behaviour(
        "DELETE counts a row once that is named twice",
        ITEMS,
        lambda t: t.delete(1, 1, 0, 1),
        result=2,
        rows=[(3, None, None)],
    ),
    Behaviour("an aborted statement leaves nothing behind", ITEMS, _aborted, rows=list(ITEMS.rows)),
    Behaviour(
        "row ids survive UPDATE, and are not given again",
        ITEMS,
        lambda t: (
            (before := t.row_ids)
            and t.update({"v": [1], "rowid": [1]})
            and t.delete(2)
            and t.insert((4, 4, "d"))
            and (t.row_ids[:2] == before[:2], t.row_ids[2] > before[2])
        ),
        result=(True, True),
    ),
    refusal(
        "UPDATE of a row twice in one batch",
        ITEMS,
        lambda t: t.update({"v": [1, 2, 3], "rowid": [0, 1, 0]}),
        BadRequest,
        _TWICE,
    ),
    refusal(
        "UPDATE of a row twice in two batches",
        ITEMS,
        lambda t: t.update({"v": [1, 2], "rowid": [0, 1]}, {"v": [1], "rowid": [1]}),
        BadRequest,
        _TWICE,
    ),
    refusal(
        "UPDATE of a row twice with RETURNING",
        ITEMS,
        lambda t: t.update({"v": [1, 2], "rowid": [0, 0]}, returning=True),
        BadRequest,
        _TWICE,
    ),
    refusal(
        "UPDATE of a row that does not exist",
        ITEMS,
        _raw(Operation.UPDATE, name=["x"], rowid=[77]),
        NotFound,
        _NONE,
    ),
    refusal(
        "DELETE of a row that does not exist",
        ITEMS,
        _raw(Operation.DELETE, rowid=[77]),
        NotFound,
        _NONE,
    ),
    refusal(
        "DELETE of a negative row id",
        ITEMS,
        _raw(Operation.DELETE, rowid=[-1]),
        NotFound,
        "row id -1 does not exist",
    ),
    refusal(
        "UPDATE of the row NULL",
        ITEMS,
        _raw(Operation.UPDATE, name=["x"], rowid=pa.array([None], _INT64)),
        BadRequest,
        "NULL is not a row id",
    ),
    refusal(
        "DELETE of a row id that is no integer",
        ITEMS,
        _raw(Operation.DELETE, rowid=["x"]),
        BadRequest,
        "row ids of table .* are of type int64",
    ),
    refusal(
        "DELETE without row ids",
        ITEMS,
        _raw(Operation.DELETE, id=[1]),
        BadRequest,
        "needs the column rowid",
    ),
    refusal(
        "INSERT of too few columns",
        ITEMS,
        _raw(Operation.INSERT, id=[1]),
        BadRequest,
        "has 3 columns, but 1 were given",
    ),
    refusal(
        "INSERT of another type",
        ITEMS,
        _raw(Operation.INSERT, id=["1"], v=pa.array([1], pa.int32()), name=["x"]),
        BadRequest,
        "column id of table .* is int64, not string",
    ),
    refusal(
        "UPDATE of a column that does not exist",
        ITEMS,
        lambda t: t.write(
            Operation.UPDATE, [pa.RecordBatch.from_pydict({"c": [1], "rowid": t.row_ids[:1]})]
        ),
        NotFound,
        "column c does not exist in table",
    ),
    refusal(
        "UPDATE of no column",
        ITEMS,
        lambda t: t.update({"rowid": [0]}),
        BadRequest,
        "must give the same columns in every batch",
    ),
    refusal(
        "UPDATE of one column, then of another",
        ITEMS,
        lambda t: t.update({"v": [1], "rowid": [0]}, {"name": ["x"], "rowid": [1]}),
        BadRequest,
        "must give the same columns in every batch",
    ),
    refusal(
        "INSERT of NULL where it is forbidden",
        KEYED,
        lambda t: t.insert((4, 40, None)),
        ConstraintViolation,
        "NOT NULL constraint failed: t\\.name",
    ),
    refusal(
        "UPDATE to NULL where it is forbidden",
        KEYED,
        lambda t: t.update({"id": [None], "rowid": [0]}),
        ConstraintViolation,
        "NOT NULL constraint failed: t\\.id",
    ),
    refusal(
        "INSERT against a CHECK",
        KEYED,
        lambda t: t.insert((4, 3, "d")),
        ConstraintViolation,
        "CHECK constraint failed on table t .*v = 3",
    ),
    refusal(
        "UPDATE against a CHECK that uses another column too",
        KEYED,
        lambda t: t.update({"v": [30, 2], "rowid": [0, 1]}),
        ConstraintViolation,
        "CHECK constraint failed on table t",
    ),
    refusal(
        "INSERT of a key that the table has",
        KEYED,
        lambda t: t.insert((4, 40, "d"), (2, 20, "e")),
        ConstraintViolation,
        'Duplicate key "id: 2" violates primary key constraint of table t',
    ),
    refusal(
        "INSERT of a key twice",
        KEYED,
        lambda t: t.insert((4, 40, "d"), (5, 40, "d")),
        ConstraintViolation,
        'Duplicate key "name: d, v: 40" violates unique constraint of table t',
    ),
    refusal(
        "UPDATE to a key of another row",
        KEYED,
        lambda t: t.update({"id": [2], "rowid": [0]}),
        ConstraintViolation,
        'Duplicate key "id: 2" violates primary key constraint of table t',
    ),
    refusal(
        "UPDATE of a part of a key to that of another row",
        KEYED,
        lambda t: t.update({"v": [20, 20], "name": ["b", "a"], "rowid": [0, 2]}),
        ConstraintViolation,
        'Duplicate key "name: b, v: 20" violates unique constraint of table t',
    ),
]
