"""CREATE, RENAME and DROP TABLE: the behaviours that all backends share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from sparkport.catalog import Constraints, CreateTableOptions, DropTableOptions, OnConflict
from sparkport.errors import AlreadyExists, BadRequest, NotFound, Unsupported
from sparkport.testing.contract.behaviours import Behaviour, Subject, one_column, refusal
from sparkport.testing.contract.changed_rows import ITEMS, KEYED

__all__ = ["MADE_TABLES"]

_Statement = Callable[[Subject], Any]
_OTHER = pa.schema([("n", pa.int8())])


def _create(name: str, columns: pa.Schema = ITEMS.columns, **options: Any) -> _Statement:
    return lambda t: t.schema.create_table(t.ctx, name, columns, CreateTableOptions(**options))


def _drop(name: str, **options: bool) -> _Statement:
    return lambda t: t.schema.drop_table(t.ctx, name, DropTableOptions(**options))


def _rename(name: str, new_name: str) -> _Statement:
    return lambda t: t.schema.rename_table(t.ctx, name, new_name)


def _described(t: Subject) -> Any:
    """What a table that is new says of itself."""
    constraints = Constraints(not_null=("ID",), checks=("(v > 1)",), unique=(("NAME", "v"),))
    columns = ITEMS.columns.append(pa.field("d", pa.uint8(), metadata={"default": "7"}))
    _create("made", columns, comment="of things", constraints=constraints)(t)
    made: Any = t.schema.table(t.ctx, "made")
    published = made.arrow_schema
    return (
        made.comment,
        published.names,
        [each.nullable for each in published][:-1],
        published.field("d").metadata,
        made.constraints,
    )


def _renamed(t: Subject) -> Any:
    before = t.read()
    _rename("t", "u")(t)
    gone = t.table is None
    _rename("u", "U")(t)
    _rename("U", "t")(t)
    return gone, t.read() == before


def _dropped(t: Subject) -> Any:
    _drop("t")(t)
    _drop("t", ignore_not_found=True)(t)
    return t.table


MADE_TABLES = [
    Behaviour(
        "CREATE TABLE",
        ITEMS,
        _described,
        result=(
            "of things",
            ["id", "v", "name", "d", "rowid"],
            [False, True, True, True],
            {b"default": b"7"},
            Constraints(not_null=("id",), checks=("(v > 1)",), unique=(("name", "v"),)),
        ),
    ),
    Behaviour(
        "CREATE TABLE IF NOT EXISTS",
        ITEMS,
        _create("T", _OTHER, on_conflict=OnConflict.IGNORE),
        rows=ITEMS.rows,
    ),
    Behaviour(
        "CREATE OR REPLACE TABLE",
        KEYED,
        _create("t", _OTHER, on_conflict=OnConflict.REPLACE),
        rows=[],
        columns=["n"],
        constraints=Constraints(),
    ),
    Behaviour("RENAME TABLE", KEYED, _renamed, result=(True, True), constraints=KEYED.constraints),
    Behaviour("DROP TABLE", ITEMS, lambda t: _dropped(t) is None, result=True),
    refusal(
        "CREATE TABLE that exists",
        ITEMS,
        _create("T"),
        AlreadyExists,
        r"table \w+\.t exists already",
    ),
    *(
        refusal(f"CREATE TABLE of {what}", ITEMS, _create("made", columns), error, message)
        for what, columns, error, message in (
            ("no column", pa.schema([]), BadRequest, "at least one column"),
            (
                "a column twice",
                pa.schema([("a", pa.int32()), ("A", pa.int32())]),
                BadRequest,
                "two columns called A",
            ),
            ("rowid", pa.schema([("RowId", pa.int32())]), BadRequest, "reserved for the row id"),
            (
                "a default that is none",
                one_column("a", pa.int32(), "1 +"),
                BadRequest,
                "not an SQL expression",
            ),
            (
                "a type that DuckDB lacks",
                one_column("d", pa.decimal256(50)),
                (BadRequest, Unsupported),
                "",
            ),
        )
    ),
    *(
        refusal(
            f"CREATE TABLE with {constraints}",
            ITEMS,
            _create("made", constraints=constraints),
            BadRequest,
        )
        for constraints in (
            Constraints(checks=("this is not SQL",)),
            Constraints(checks=("nothing > 0",)),
            Constraints(checks=("id > 0), CHECK (id < 9",)),
            Constraints(unique=(("nothing",),)),
            Constraints(primary_key=("nothing",)),
            Constraints(not_null=("nothing",)),
        )
    ),
    refusal(
        "DROP TABLE that does not exist",
        ITEMS,
        _drop("none"),
        NotFound,
        r"table \w+\.none does not exist",
    ),
    refusal(
        "RENAME TABLE that does not exist",
        ITEMS,
        _rename("none", "some"),
        NotFound,
        r"table \w+\.none does not exist",
    ),
    refusal("RENAME TABLE to no name", ITEMS, _rename("t", ""), BadRequest),
]
