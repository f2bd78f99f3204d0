"""The constraints of CREATE TABLE, which arrive in seven lists of three kinds (airport §4.12)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import pyarrow as pa

from sparkport.catalog.constraints import Constraints
from sparkport.errors import BadRequest
from sparkport.wire.packing import Fields

__all__ = ["merge_constraints", "parse_key", "with_not_null"]


def merge_constraints(fields: Fields, arrow_schema: pa.Schema) -> Constraints:
    """Collect all constraints of the request, by column name as the Arrow schema spells it.

    The order of a composite primary key is lost on the wire, so its columns come in table order.

    Raises: BadRequest for an index or name that is no column, for text that is no key, for two
    primary keys.
    """
    columns = _Columns(arrow_schema)
    unique: list[tuple[str, ...]] = [
        (columns.at(index),) for index in fields.unsigned_integers("unique_constraints")
    ]
    unique += [(columns.named(name),) for name in fields.texts("unique_columns")]
    primary_keys = [
        columns.all_named(names)
        for names in (fields.texts("primary_key_columns"), fields.texts("multi_key_primary_keys"))
        if names
    ]
    for text in fields.texts("extra_constraints"):
        is_primary, names = parse_key(text)
        (primary_keys if is_primary else unique).append(columns.all_named(names))
    if len(set(primary_keys)) > 1:
        raise BadRequest("create_table: a table can have only one primary key")
    primary_key = primary_keys[0] if primary_keys else ()

    not_null = {columns.at(index) for index in fields.unsigned_integers("not_null_constraints")}
    not_null.update(primary_key, (field.name for field in arrow_schema if not field.nullable))
    return Constraints(
        not_null=columns.in_order(not_null),
        checks=tuple(dict.fromkeys(fields.texts("check_constraints"))),
        unique=tuple(dict.fromkeys(unique)),
        primary_key=primary_key,
    )


def with_not_null(arrow_schema: pa.Schema, names: Sequence[str]) -> pa.Schema:
    """Return the Arrow schema with the named columns made not nullable."""
    required = set(names)
    return pa.schema(
        [field.with_nullable(False) if field.name in required else field for field in arrow_schema],
        arrow_schema.metadata,
    )


class _Columns:
    """The columns that constraints may name, found as in DuckDB without regard to ASCII case."""

    def __init__(self, arrow_schema: pa.Schema) -> None:
        self._names: list[str] = arrow_schema.names
        self._positions: dict[bytes, int] = {}
        for position, name in enumerate(self._names):
            if not name:
                raise BadRequest(f"create_table: column {position + 1} has no name")
            if self._positions.setdefault(_folded(name), position) != position:
                raise BadRequest(f"create_table: there are two columns called {name}")

    def at(self, index: int) -> str:
        if index >= len(self._names):
            raise BadRequest(
                f"create_table: a constraint is on column number {index}, but the last one is "
                f"number {len(self._names) - 1}"
            )
        return self._names[index]

    def named(self, name: str) -> str:
        position = self._positions.get(_folded(name))
        if position is None:
            raise BadRequest(
                f"create_table: a constraint is on the column {name}, which the table does not have"
            )
        return self._names[position]

    def all_named(self, names: Iterable[str]) -> tuple[str, ...]:
        return self.in_order({self.named(name) for name in names})

    def in_order(self, names: Iterable[str]) -> tuple[str, ...]:
        return tuple(sorted(names, key=lambda name: self._positions[_folded(name)]))


def _folded(name: str) -> bytes:
    return name.encode().lower()  # `bytes.lower` changes ASCII letters only


_KEY = re.compile(
    r"\s*(?P<kind>UNIQUE|PRIMARY\s+KEY)\s*\((?P<columns>.*)\)\s*", re.IGNORECASE | re.DOTALL
)
_NEXT_NAME = re.compile(
    r'\s*(?:"(?P<quoted>(?:[^"]|"")+)"|(?P<plain>[^\W\d][\w$]*))\s*(?P<comma>,)?'
)


def parse_key(text: str) -> tuple[bool, tuple[str, ...]]:
    """Parse `UNIQUE(id, "odd ""name")` or `PRIMARY KEY(…)`.

    Returns whether it is a primary key, and the columns. Raises: BadRequest.
    """
    key = _KEY.fullmatch(text)
    if key is None:
        raise _unreadable(text)
    columns, names, position, more = key["columns"], [], 0, True
    while more:
        name = _NEXT_NAME.match(columns, position)
        if name is None:
            raise _unreadable(text)
        names.append(name["plain"] or name["quoted"].replace('""', '"'))
        position, more = name.end(), name["comma"] is not None
    if position != len(columns):
        raise _unreadable(text)
    return key["kind"].upper() != "UNIQUE", tuple(names)


def _unreadable(text: str) -> BadRequest:
    return BadRequest(
        f"create_table: the constraint {text[:100]!r} cannot be read; it must be UNIQUE(column, …)"
    )
