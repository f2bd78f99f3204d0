"""ALTER TABLE on fields of structs: compute the altered columns.

Struct arrays are composed anew from their children; no value is copied.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from sparkport.engine.databases import Check
from sparkport.engine.field_alterations import FieldAlteration
from sparkport.engine.types import fields_of
from sparkport.memory.ddl import Segments, with_values
from sparkport.memory.versions import Version

__all__ = ["with_new_fields"]


def with_new_fields(version: Version, change: FieldAlteration, check: Check | None) -> Segments:
    """The rows with the changed struct. A field that is new is NULL in every row."""
    old = (segment.columns[change.position] for segment in version.segments)
    return with_values(
        version, change, (_rebuilt(each, change.field.type, change.steps, change) for each in old)
    )


def _rebuilt(
    array: pa.Array, wanted: pa.DataType, steps: Sequence[int], change: FieldAlteration
) -> pa.Array:
    """The array in the wanted type; `steps` lead to the struct that is changed."""
    if not steps:
        children = [
            pa.nulls(len(array), field.type) if source is None else array.field(source)
            for field, source in zip(wanted, change.sources, strict=True)
        ]
        return pa.StructArray.from_arrays(children, fields=list(wanted), mask=_mask(array))
    step, kind = steps[0], fields_of(wanted)[steps[0]].type

    def inner(child: pa.Array) -> pa.Array:
        return _rebuilt(child, kind, steps[1:], change)

    if pa.types.is_struct(wanted):
        children = [array.field(index) for index in range(wanted.num_fields)]
        children[step] = inner(children[step])
        return pa.StructArray.from_arrays(children, fields=list(wanted), mask=_mask(array))
    if pa.types.is_map(wanted):
        keys, items = array.keys, array.items
        keys, items = (inner(keys), items) if step == 0 else (keys, inner(items))
        return pa.MapArray.from_arrays(
            _whole(array.offsets), keys, items, type=wanted, mask=_mask(array)
        )
    if pa.types.is_fixed_size_list(wanted):
        size = wanted.list_size
        values = inner(array.values.slice(array.offset * size, len(array) * size))
        return pa.FixedSizeListArray.from_arrays(values, type=wanted, mask=_mask(array))
    form = pa.LargeListArray if pa.types.is_large_list(wanted) else pa.ListArray
    return form.from_arrays(
        _whole(array.offsets), inner(array.values), type=wanted, mask=_mask(array)
    )


def _mask(array: pa.Array) -> pa.Array | None:
    return array.is_null() if array.null_count else None


def _whole(offsets: pa.Array) -> pa.Array:
    """Copy the offsets: Arrow takes no null mask together with offsets that are a slice."""
    return pc.add(offsets, pa.scalar(0, offsets.type))
