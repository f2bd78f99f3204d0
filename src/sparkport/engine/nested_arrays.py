"""Nested arrays taken apart and put together again, without the values below a NULL."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import lib

__all__ = ["list_array", "null_mask", "struct_children", "union_tags", "used_elements"]

_Step: TypeAlias = Callable[[pa.Array], pa.Array]
_VIEWS = frozenset({lib.Type_LIST_VIEW, lib.Type_LARGE_LIST_VIEW})


def null_mask(array: pa.Array) -> pa.Array | None:
    """A mask of the NULLs for pyarrow's constructors; None if there are none."""
    return array.is_null() if array.null_count else None


def struct_children(structs: pa.Array) -> list[pa.Array]:
    """The fields of structs, with NULL below every NULL, where the values are arbitrary."""
    children = [structs.field(position) for position in range(structs.type.num_fields)]
    if not structs.null_count:
        return children
    if not any(pa.types.is_union(child.type) for child in children):
        return list(structs.flatten())
    # A union has no NULLs of its own: then `flatten` crashes the whole process (pyarrow 26).
    rows = pc.if_else(structs.is_valid(), pa.arange(0, len(structs)), pa.scalar(None, pa.int64()))
    return [child.take(rows) for child in children]


def union_tags(unions: pa.Array) -> pa.Array:
    """The type codes of a sparse union. pyarrow's own `type_codes` ignores the start of a slice."""
    return pa.Array.from_buffers(
        pa.int8(), len(unions), [None, unions.buffers()[1]], offset=unions.offset
    )


def used_elements(offsets: pa.Array, elements: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Where each list begins, and the elements that the lists use."""
    if len(offsets) == 0:
        return pa.array([0], offsets.type), elements.slice(0, 0)
    first, last = offsets[0].as_py(), offsets[-1].as_py()
    return pc.subtract(offsets, first), elements.slice(first, last - first)


def list_array(array: pa.Array, values: _Step | None, target: pa.DataType) -> pa.Array:
    """Convert lists of any layout to the target's layout; `values` converts their elements.

    Raises: ValueError or an Arrow error for a list of another size than the target's.
    """
    if array.type.id in _VIEWS:
        return _from_view(array, values, target)
    return _from_offsets(array, values, target)


def _from_offsets(array: pa.Array, values: _Step | None, target: pa.DataType) -> pa.Array:
    if pa.types.is_fixed_size_list(array.type):
        size, count = array.type.list_size, len(array)
        elements = array.values.slice(array.offset * size, count * size)
        offsets = pa.array([position * size for position in range(count + 1)], pa.int64())
    else:
        offsets, elements = used_elements(array.offsets, array.values)
    elements, mask = _apply(values, elements), null_mask(array)
    match target.id:
        case lib.Type_LIST:
            return pa.ListArray.from_arrays(
                offsets.cast(pa.int32()), elements, type=target, mask=mask
            )
        case lib.Type_LARGE_LIST:
            return pa.LargeListArray.from_arrays(
                offsets.cast(pa.int64()), elements, type=target, mask=mask
            )
        case lib.Type_LIST_VIEW | lib.Type_LARGE_LIST_VIEW:
            starts = offsets.slice(0, len(array))
            return _view(starts, pc.subtract(offsets.slice(1), starts), elements, target, mask)
        case _ if pa.types.is_fixed_size_list(array.type):
            return pa.FixedSizeListArray.from_arrays(elements, type=target, mask=mask)
        case _:
            any_size = pa.large_list(target.value_field)
            lists = pa.LargeListArray.from_arrays(
                offsets.cast(pa.int64()), elements, type=any_size, mask=mask
            )
            return lists.cast(target)


def _from_view(array: pa.Array, values: _Step | None, target: pa.DataType) -> pa.Array:
    elements = _apply(values, array.values)
    if target.id in _VIEWS:
        return _view(array.offsets, array.sizes, elements, target, null_mask(array))
    views = _view(
        array.offsets,
        array.sizes,
        elements,
        pa.large_list_view(target.value_field),
        null_mask(array),
    )
    # A cast would go wrong at the offsets of NULLs (pyarrow 26).
    ends = pc.cumulative_sum(pc.list_value_length(views).fill_null(0))
    offsets = pa.concat_arrays([pa.array([0], pa.int64()), ends.cast(pa.int64())])
    any_size = pa.large_list(target.value_field)
    return pa.LargeListArray.from_arrays(
        offsets, views.flatten(), type=any_size, mask=null_mask(array)
    ).cast(target)


def _view(
    starts: pa.Array, sizes: pa.Array, elements: pa.Array, target: pa.DataType, mask: pa.Array
) -> pa.Array:
    kind, integer = (
        (pa.ListViewArray, pa.int32())
        if target.id == lib.Type_LIST_VIEW
        else (pa.LargeListViewArray, pa.int64())
    )
    # Adding 0 copies: Arrow takes no mask together with offsets that are a slice.
    starts, sizes = (
        pc.add(starts.cast(integer), 0).cast(integer),
        pc.add(sizes.cast(integer), 0).cast(integer),
    )
    return kind.from_arrays(starts, sizes, elements, type=target, mask=mask)


def _apply(step: _Step | None, array: pa.Array) -> pa.Array:
    return array if step is None else step(array)
