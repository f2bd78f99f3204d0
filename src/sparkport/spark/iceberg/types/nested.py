"""The fields inside of nested types."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType

__all__ = ["fields_inside", "inner_ids"]


def fields_inside(kind: IcebergType) -> Sequence[NestedField]:
    """The fields that a nested type consists of; none for other types."""
    match kind:
        case StructType():
            return kind.fields
        case ListType():
            return (kind.element_field,)
        case MapType():
            return (kind.key_field, kind.value_field)
        case _:
            return ()


def inner_ids(outer: NestedField) -> Iterator[int]:
    """The id of a field, and of all fields inside it."""
    yield outer.field_id
    for inner in fields_inside(outer.field_type):
        yield from inner_ids(inner)
