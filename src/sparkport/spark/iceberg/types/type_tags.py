"""Type tags: the declared types of columns, in a table property (decision 0008).

A column has a type tag only if Iceberg's type does not tell the declared type by itself. It belongs
to a field id, also of a field inside another, so it follows a column that any engine renames.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import lru_cache

import pyarrow as pa

from sparkport.engine.type_table import ROWS, extension_form
from sparkport.engine.types import extension_metadata
from sparkport.spark.iceberg.types.stored_values import Storage, storage_for

__all__ = [
    "GEOMETRY",
    "INTERVAL",
    "TYPES_PROPERTY",
    "array_type_tag",
    "declared_by",
    "geometry_metadata",
    "geometry_type_tag",
    "list_size",
    "storage_of",
    "type_tag_of",
    "type_tags_in",
    "union_members",
    "union_type_tag",
    "written_type_tags",
]

TYPES_PROPERTY = "sparkport.types"
"""The table property: a JSON object from field ids to type tags.

Tables of other engines do not have it.
"""

GEOMETRY = "geometry"
INTERVAL = "interval"


def type_tags_in(properties: Mapping[str, str]) -> dict[int, str]:
    """The type tags of a table by field id.

    Those that cannot be read are left out: their columns show Iceberg's type.
    """
    try:
        found = json.loads(properties.get(TYPES_PROPERTY, "{}"))
    except ValueError:
        return {}
    if not isinstance(found, dict):
        return {}
    return {
        int(key): type_tag
        for key, type_tag in found.items()
        if key.isascii() and key.isdigit() and isinstance(type_tag, str)
    }


def written_type_tags(type_tags: Mapping[int, str]) -> str:
    """The type tags as the text of the property."""
    return json.dumps(
        {str(field_id): type_tags[field_id] for field_id in sorted(type_tags)},
        separators=(",", ":"),
    )


# ----------------------------------------------------------------------------- types without parts


def _type_tag(declared: pa.DataType) -> str:
    return extension_form(declared) or str(declared)


_STORAGES: Mapping[str, tuple[pa.DataType, Storage]] = {
    _type_tag(declared): (declared, storage)
    for row in ROWS
    if row.iceberg
    for declared in row.arrow
    if (storage := storage_for(declared)) is not None
}
"""The published Arrow type, and how its values are stored, by type tag."""


def type_tag_of(data_type: pa.DataType) -> str | None:
    """The type tag of a type that is not nested; None where Iceberg's type tells it."""
    if data_type == pa.month_day_nano_interval():
        return INTERVAL
    if isinstance(data_type, pa.BaseExtensionType) and extension_form(data_type) is None:
        return type_tag_of(data_type.storage_type)  # DuckDB takes it for that, too
    type_tag = _type_tag(data_type)
    return None if storage_of(type_tag) is None else type_tag


def declared_by(type_tag: str) -> pa.DataType | None:
    """The Arrow type of a type tag; None if the tag is not that of a type without parts."""
    found = _found(type_tag)
    return None if found is None else found[0]


def storage_of(type_tag: str) -> Storage | None:
    """How values of the type are stored; None if the tag is not that of a type without parts."""
    found = _found(type_tag)
    return None if found is None else found[1]


_ZONED = re.compile(r"timestamp\[(s|ms|us|ns), tz=(.+)\]", re.DOTALL)


def _found(type_tag: str) -> tuple[pa.DataType, Storage] | None:
    return _STORAGES.get(type_tag) or _zoned(type_tag)


@lru_cache(maxsize=1024)
def _zoned(type_tag: str) -> tuple[pa.DataType, Storage] | None:
    """A timestamp with any time zone: too many for a table."""
    match = _ZONED.fullmatch(type_tag)
    declared = None if match is None else pa.timestamp(*match.groups())
    storage = None if declared is None else storage_for(declared)
    return None if declared is None or storage is None else (declared, storage)


# -------------------------------------------------------------------------------- types with parts

_ARRAY = re.compile(r"array\[([1-9][0-9]{0,9})\]")
_UNION = re.compile(r"union\[([0-9]+(?:,[0-9]+)*)\]")


def array_type_tag(size: int) -> str:
    """The type tag of a list of fixed size."""
    return f"array[{size}]"


def list_size(type_tag: str | None) -> int | None:
    """The size that all lists have; None for lists of any size."""
    match = _ARRAY.fullmatch(type_tag or "")
    return int(match[1]) if match and int(match[1]) < 2**31 else None


def union_type_tag(members: list[int]) -> str:
    """The type tag of a struct that stores a union.

    It has the ids of the members in the order of the union, whatever is done to the struct.
    """
    return f"union[{','.join(map(str, members))}]"


def union_members(type_tag: str | None) -> tuple[int, ...] | None:
    """The field ids of a union's members; None if the type tag is not that of a union."""
    match = _UNION.fullmatch(type_tag or "")
    return tuple(map(int, match[1].split(","))) if match else None


_EXTENSION_NAME, _EXTENSION_METADATA = b"ARROW:extension:name", b"ARROW:extension:metadata"


def geometry_type_tag(field: pa.Field) -> str | None:
    """The type tag of a field of bytes whose metadata says geometry; None for other fields."""
    metadata = extension_metadata(field) or {}
    if metadata.get(_EXTENSION_NAME) != b"geoarrow.wkb":
        return None
    description = metadata.get(_EXTENSION_METADATA, b"").decode("utf-8", "replace")
    return f"{GEOMETRY} {description}" if description else GEOMETRY


def geometry_metadata(type_tag: str | None) -> dict[bytes, bytes] | None:
    """The metadata of a geometry's field; None if the type tag is not that of a geometry."""
    name, _, description = (type_tag or "").partition(" ")
    if name != GEOMETRY:
        return None
    return {_EXTENSION_NAME: b"geoarrow.wkb", _EXTENSION_METADATA: description.encode()}
