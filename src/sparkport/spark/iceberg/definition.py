"""What users see of an Iceberg table, and how that is kept in its properties.

Iceberg stores columns, their order and NOT NULL. Declared types, defaults and constraints are kept
in properties under `sparkport.`, by field id, so that they survive a renaming by any engine.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyiceberg.schema import Schema

from sparkport.catalog import Constraints, rowid_field
from sparkport.catalog.names import folded
from sparkport.catalog.rowid import ROWID_NAME
from sparkport.engine.columns import DEFAULT, default_of, expect_column, find_column
from sparkport.engine.constraints.expressions import renamed_in, used_columns
from sparkport.errors import SparkportError
from sparkport.spark.iceberg.identifiers import Identifier
from sparkport.spark.iceberg.types.declared import declared_fields

__all__ = [
    "COMMENT_PROPERTY",
    "CONSTRAINTS_PROPERTY",
    "DEFAULTS_PROPERTY",
    "ICEBERGS_OWN",
    "Definition",
    "constraints_property",
    "define",
    "defaults_property",
]

CONSTRAINTS_PROPERTY = "sparkport.constraints"
DEFAULTS_PROPERTY = "sparkport.defaults"
COMMENT_PROPERTY = "comment"
"""Spark's own property for the comment of a table."""
ICEBERGS_OWN = frozenset(
    b"_row_id _last_updated_sequence_number _file _pos _spec_id _partition _deleted".split()
)
"""Columns that Iceberg gives every table, folded. Spark reads no table that has one of its own."""


@dataclass(frozen=True, slots=True, eq=False)
class Definition:
    """Columns and constraints of a table. One object serves as long as they do not change."""

    columns: pa.Schema
    """Without the row id; NOT NULL columns are not nullable."""
    field_ids: tuple[int, ...]
    """Iceberg's ids of the columns."""
    arrow_schema: pa.Schema
    """As published: with the row id last (airport §16 T7), unless a column has its name."""
    constraints: Constraints
    comment: str
    shows_row_id: bool
    """Whether `rowid` is the row id, and not a column of that name."""

    def position(self, name: str) -> int | None:
        """The position of a column, by name as DuckDB compares names; None if there is none."""
        return find_column(self.columns, name)

    def expect(self, name: str, table: Identifier) -> int:
        """The position of a column. Raises: NotFound."""
        return expect_column(self.columns, name, table)


def define(schema: Schema, properties: Mapping[str, str]) -> Definition:
    """What users see of a table. Raises: Unsupported for a column that cannot be shown."""
    ids = tuple(field.field_id for field in schema.fields)
    defaults = _object(properties.get(DEFAULTS_PROPERTY))
    fields = []
    for field_id, field in zip(ids, declared_fields(schema, properties), strict=True):
        default = defaults.get(str(field_id))
        if isinstance(default, str):
            field = field.with_metadata({**(field.metadata or {}), DEFAULT: default.encode()})
        fields.append(field)
    columns = pa.schema(fields)
    # A column made by another engine may be called rowid; then the row id is not published.
    shows_row_id = not any(folded(name) == folded(ROWID_NAME) for name in columns.names)
    return Definition(
        columns,
        ids,
        columns.append(rowid_field()) if shows_row_id else columns,
        _constraints(columns, ids, _object(properties.get(CONSTRAINTS_PROPERTY))),
        properties.get(COMMENT_PROPERTY, ""),
        shows_row_id,
    )


def defaults_property(fields: Sequence[pa.Field], field_ids: Sequence[int]) -> str | None:
    """The defaults of columns as the property keeps them; None when there are none."""
    defaults = {
        str(field_id): default_of(field)
        for field, field_id in zip(fields, field_ids, strict=True)
        if default_of(field)
    }
    return json.dumps(defaults) if defaults else None


def constraints_property(
    constraints: Constraints, names: Sequence[str], field_ids: Sequence[int]
) -> str | None:
    """Constraints as the property keeps them; None when there are none. NOT NULL is Iceberg's
    own.
    """
    ids = dict(zip(names, field_ids, strict=True))
    kept = {
        "checks": [
            {
                "sql": check,
                "columns": {name: ids[name] for name in sorted(used_columns(check, list(names)))},
            }
            for check in constraints.checks
        ],
        "unique": [[ids[name] for name in key] for key in constraints.unique],
        "primary_key": [ids[name] for name in constraints.primary_key],
    }
    return json.dumps(kept) if any(kept.values()) else None


def _constraints(
    columns: pa.Schema, field_ids: Sequence[int], kept: Mapping[str, Any]
) -> Constraints:
    """The stored constraints that still apply: another engine may have dropped columns."""
    names = dict(zip(field_ids, columns.names, strict=True))
    keys = [key for key in kept.get("unique", ()) if all(each in names for each in key)]
    primary_key = kept.get("primary_key", ())
    return Constraints(
        not_null=tuple(field.name for field in columns if not field.nullable),
        checks=tuple(
            text for check in kept.get("checks", ()) if (text := _check(check, names)) is not None
        ),
        unique=tuple(tuple(names[each] for each in key) for key in keys),
        primary_key=tuple(names[each] for each in primary_key)
        if all(each in names for each in primary_key)
        else (),
    )


def _check(check: Mapping[str, Any], names: Mapping[int, str]) -> str | None:
    """A CHECK with the columns' present names; None if a column is gone.

    None, too, if it cannot be rewritten with certainty.
    """
    text = str(check["sql"])
    for old, field_id in check["columns"].items():
        new = names.get(field_id)
        if new is None:
            return None
        if new != old:
            try:
                text = renamed_in(text, old, new)
            except SparkportError:
                return None
    return text


def _object(text: str | None) -> Mapping[str, Any]:
    """A property's JSON object; an empty one if the text is something else."""
    try:
        value = json.loads(text) if text else {}
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
