"""What a column was declared as, in a word that a table property keeps beside Iceberg's own type
(decision 0008).

Only what Iceberg's type does not tell by itself has a type_tag. It belongs to a field id, also of a
field inside another, so it follows a column that is renamed, by whichever engine.
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
"""The table property: a JSON object from field ids to type tags. Tables of other engines do not have
it.
"""

GEOMETRY = "geometry"
INTERVAL = "interval"


def type_tags_in(properties: Mapping[str, str]) -> dict[int, str]:
    """The type tags of a table by field id. What cannot be read is left out: its columns show what
    Iceberg says of them.
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
    """The text of the property."""
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
"""By type tag: the Arrow type that is published, and how its values are kept."""


def type_tag_of(data_type: pa.DataType) -> str | None:
    """The type tag of a type that is not nested; None where Iceberg's own type says it all."""
    if data_type == pa.month_day_nano_interval():
        return INTERVAL
    if isinstance(data_type, pa.BaseExtensionType) and extension_form(data_type) is None:
        return type_tag_of(data_type.storage_type)  # what DuckDB, too, takes it for
    type_tag = _type_tag(data_type)
    return None if storage_of(type_tag) is None else type_tag


def declared_by(type_tag: str) -> pa.DataType | None:
    """The Arrow type that a type tag of a type without parts stands for; None if it is not one."""
    found = _found(type_tag)
    return None if found is None else found[0]


def storage_of(type_tag: str) -> Storage | None:
    """How the values of that type are kept; None if it is not such a type tag."""
    found = _found(type_tag)
    return None if found is None else found[1]


_ZONED = re.compile(r"timestamp\[(s|ms|us|ns), tz=(.+)\]", re.DOTALL)


def _found(type_tag: str) -> tuple[pa.DataType, Storage] | None:
    return _STORAGES.get(type_tag) or _zoned(type_tag)


@lru_cache(maxsize=1024)
def _zoned(type_tag: str) -> tuple[pa.DataType, Storage] | None:
    """There are too many zones for the table."""
    match = _ZONED.fullmatch(type_tag)
    declared = None if match is None else pa.timestamp(*match.groups())
    storage = None if declared is None else storage_for(declared)
    return None if declared is None or storage is None else (declared, storage)


# -------------------------------------------------------------------------------- types with parts

_ARRAY = re.compile(r"array\[([1-9][0-9]{0,9})\]")
_UNION = re.compile(r"union\[([0-9]+(?:,[0-9]+)*)\]")


def array_type_tag(size: int) -> str:
    """Of a list whose size is fixed."""
    return f"array[{size}]"


def list_size(type_tag: str | None) -> int | None:
    """The size that all lists have; None for lists of any size."""
    match = _ARRAY.fullmatch(type_tag or "")
    return int(match[1]) if match and int(match[1]) < 2**31 else None


def union_type_tag(members: list[int]) -> str:
    """Of a struct that keeps a union. The ids of the members in the order of the tags, whatever is
    done to the struct.
    """
    return f"union[{','.join(map(str, members))}]"


def union_members(type_tag: str | None) -> tuple[int, ...] | None:
    """The field ids of the members of a union; None if it is none."""
    match = _UNION.fullmatch(type_tag or "")
    return tuple(map(int, match[1].split(","))) if match else None


_EXTENSION_NAME, _EXTENSION_METADATA = b"ARROW:extension:name", b"ARROW:extension:metadata"


def geometry_type_tag(field: pa.Field) -> str | None:
    """Of a field that pyarrow takes for bytes, and whose metadata says that they are a geometry;
    None for all others.
    """
    metadata = extension_metadata(field) or {}
    if metadata.get(_EXTENSION_NAME) != b"geoarrow.wkb":
        return None
    description = metadata.get(_EXTENSION_METADATA, b"").decode("utf-8", "replace")
    return f"{GEOMETRY} {description}" if description else GEOMETRY


def geometry_metadata(type_tag: str | None) -> dict[bytes, bytes] | None:
    """The metadata that such a field has; None if it is none."""
    name, _, description = (type_tag or "").partition(" ")
    if name != GEOMETRY:
        return None
    return {_EXTENSION_NAME: b"geoarrow.wkb", _EXTENSION_METADATA: description.encode()}
