"""Columns in drafts of Iceberg: their schemas, and the properties for what Iceberg lacks."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField

from sparkport.catalog import Constraints
from sparkport.spark.iceberg.definition import (
    CONSTRAINTS_PROPERTY,
    DEFAULTS_PROPERTY,
    constraints_property,
    defaults_property,
)
from sparkport.spark.iceberg.types.declared import TYPES_PROPERTY, written_type_tags
from sparkport.spark.iceberg.types.java_spelling import loaded_schema
from sparkport.spark.iceberg.types.nested import inner_ids
from sparkport.spark.iceberg.types.type_tags import union_members, union_type_tag
from sparkport.spark.lake.lake import Lake

__all__ = ["assigned", "describe", "java_schema", "staged_schema"]


def describe(
    lake: Lake,
    transaction: Any,
    columns: pa.Schema,
    constraints: Constraints,
    type_tags: Mapping[int, str],
) -> None:
    """Have a transaction write the properties of these columns, by the ids of its own schema."""
    by_name = {each.name: each.field_id for each in staged_schema(lake, transaction).fields}
    ids = [by_name[name] for name in columns.names]
    wanted = {
        TYPES_PROPERTY: written_type_tags(type_tags) if type_tags else None,
        DEFAULTS_PROPERTY: defaults_property(list(columns), ids),
        CONSTRAINTS_PROPERTY: constraints_property(constraints, columns.names, ids),
    }
    present = dict(transaction.table().properties())
    changes = {name: text for name, text in wanted.items() if _differ(present.get(name), text)}
    if not changes:
        return
    update = transaction.updateProperties()
    for name, text in changes.items():
        if text is None:
            update.remove(name)
        else:
            update.set(name, text)
    update.commit()


def _differ(present: str | None, wanted: str | None) -> bool:
    try:
        return bool(json.loads(present or "null") != json.loads(wanted or "null"))
    except ValueError:
        return True


def staged_schema(lake: Lake, transaction: Any) -> Schema:
    """The columns as a transaction will leave them."""
    text = lake.gateway.jvm.org.apache.iceberg.SchemaParser.toJson(transaction.table().schema())
    return loaded_schema(str(text))


def java_schema(lake: Lake, schema: Schema) -> Any:
    """Convert a schema to an org.apache.iceberg.Schema."""
    return lake.gateway.jvm.org.apache.iceberg.SchemaParser.fromJson(schema.model_dump_json())


def assigned(
    ours: Sequence[NestedField], theirs: Sequence[NestedField], type_tags: Mapping[int, str]
) -> dict[int, str]:
    """Give the type tags of our fields the ids that Iceberg has given to the same fields."""
    own = [each for outer in ours for each in inner_ids(outer)]
    given = [each for outer in theirs for each in inner_ids(outer)]
    ids = dict(zip(own, given, strict=True))
    found = {}
    for field_id, type_tag in type_tags.items():
        members = union_members(type_tag)  # the only type tag that names ids
        found[ids[field_id]] = (
            type_tag if members is None else union_type_tag([ids[member] for member in members])
        )
    return found
