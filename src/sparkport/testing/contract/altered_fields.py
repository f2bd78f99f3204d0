"""ALTER TABLE on fields of structs: the behaviours that all backends share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from sparkport.catalog import AddFieldOptions, Constraints, RemoveFieldOptions
from sparkport.errors import AlreadyExists, BadRequest, NotFound, PreconditionFailed
from sparkport.testing.contract.behaviours import (
    Behaviour,
    SetUp,
    Subject,
    one_column,
    refusal,
)

__all__ = ["ALTERED_FIELDS"]

_Statement = Callable[[Subject], Any]
_INNER = pa.struct([("x", pa.int16()), ("y", pa.string())])


def _row(**inner: Any) -> tuple[Any, ...]:
    """A row whose structs hold these fields."""
    return ({"a": 5, "deep": inner}, [inner, None], [("k", inner)])


_NULLS = (None, None, None)
_NESTED = SetUp(
    "nested",
    pa.schema(
        [
            ("s", pa.struct([("a", pa.int32()), ("deep", _INNER)])),
            ("l", pa.list_(_INNER)),
            ("m", pa.map_(pa.string(), _INNER)),
        ]
    ),
    [_row(x=1, y="a"), _NULLS],
)
_KEY = SetUp("struct in a key", pa.schema([("s", _INNER)]), [], Constraints(unique=(("s",),)))
_LAST = SetUp("last field", pa.schema([("s", pa.struct([("a", pa.int32())]))]), [])


def _add(path: Sequence[str], name: str, **options: bool) -> _Statement:
    column = one_column(name, pa.uint8())
    return lambda t: t.table.add_field(t.ctx, path, column, AddFieldOptions(**options))


def _remove(path: Sequence[str], **options: bool) -> _Statement:
    return lambda t: t.table.remove_field(t.ctx, path, RemoveFieldOptions(**options))


def _rename(path: Sequence[str], new_name: str) -> _Statement:
    return lambda t: t.table.rename_field(t.ctx, path, new_name)


def _everywhere(*statements: _Statement) -> _Statement:
    def run(t: Subject) -> None:
        for statement in statements:
            statement(t)

    return run


_DEEP = (["S", "DEEP"], ["l", "element"], ["m", "value"])

ALTERED_FIELDS = [
    Behaviour(
        "add a field at any depth",
        _NESTED,
        _everywhere(*(_add(path, "new") for path in _DEEP)),
        rows=[_row(x=1, y="a", new=None), _NULLS],
    ),
    Behaviour(
        "rename a field at any depth",
        _NESTED,
        _everywhere(*(_rename([*path, "X"], "z") for path in _DEEP)),
        rows=[_row(z=1, y="a"), _NULLS],
    ),
    Behaviour(
        "remove a field at any depth",
        _NESTED,
        _everywhere(*(_remove([*path, "x"]) for path in _DEEP)),
        rows=[_row(y="a"), _NULLS],
    ),
    Behaviour(
        "add a field to the struct of a column, and fill it",
        _NESTED,
        _everywhere(_add(["s"], "new"), lambda t: t.insert(({"a": 1, "new": 2}, None, None))),
        rows=[
            ({"a": 5, "deep": {"x": 1, "y": "a"}, "new": None}, *_row(x=1, y="a")[1:]),
            _NULLS,
            ({"a": 1, "deep": None, "new": 2}, None, None),
        ],
    ),
    Behaviour(
        "add a field IF NOT EXISTS",
        _NESTED,
        _add(["s"], "A", if_field_not_exists=True),
        rows=_NESTED.rows,
    ),
    Behaviour(
        "remove a field IF EXISTS",
        _NESTED,
        _remove(["s", "q"], if_field_exists=True),
        rows=_NESTED.rows,
    ),
    *(
        refusal(f"add a field at {'.'.join(path)}", _NESTED, _add(path, name), error, message)
        for path, name, error, message in (
            (["s"], "A", AlreadyExists, r"field s\.a exists already in table"),
            (["s", "q"], "w", NotFound, r"field s\.q does not exist in table"),
            (["l", "wrong"], "w", NotFound, r"field l\.wrong does not exist"),
            ([], "w", BadRequest, "begins with a column"),
            (["s", "a"], "w", BadRequest, r"s\.a of table .* is not a struct but int32"),
            (["s"], "", BadRequest, "a field needs a name"),
        )
    ),
    *(
        refusal(f"{what} {'.'.join(path)}", _NESTED, statement, error, message)
        for path, error, message in (
            (["s"], BadRequest, "at least two parts"),
            (["s", "none"], NotFound, r"field s\.none does not exist"),
            (["s", "none", "x"], NotFound, r"field s\.none does not exist"),
            (["none", "x"], NotFound, "column none does not exist"),
            (["s", "a", "x"], BadRequest, r"s\.a of table .* is not a struct but int32"),
            (["l", "x"], BadRequest, "l of table .* is not a struct but list"),
            (["m", "value", "x", "z"], BadRequest, "is not a struct but int16"),
        )
        for what, statement in (
            ("remove the field", _remove(path)),
            ("rename the field", _rename(path, "other")),
        )
    ),
    *(
        refusal(f"rename a field to {new!r}", _NESTED, _rename(["s", "a"], new), error, message)
        for new, error, message in (
            ("a", AlreadyExists, r"field s\.a exists already"),
            ("DEEP", AlreadyExists, r"field s\.DEEP exists already"),
            ("", BadRequest, "a field needs a name"),
        )
    ),
    refusal(
        "remove the last field",
        _LAST,
        _remove(["s", "a"]),
        PreconditionFailed,
        "is the only one of its struct: remove the column instead",
    ),
    refusal(
        "remove a field of a column in a key",
        _KEY,
        _remove(["s", "x"]),
        PreconditionFailed,
        r"is in a key \(s\), so it keeps all its fields",
    ),
]
