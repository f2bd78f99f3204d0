"""Sorted sets of positions or row ids, as Arrow arrays and as roaring bitmaps.

There is no loop in Python, so sets may have millions of members.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

__all__ = ["among", "array_of", "between", "bitmap_of", "numbers_of"]


def numbers_of(values: pa.Array) -> Sequence[int]:
    """The numbers of an int64 array without NULLs; nothing is copied."""
    if not len(values):
        return ()
    numbers: Any = memoryview(values.buffers()[1]).cast("q")[
        values.offset : values.offset + len(values)
    ]
    return numbers  # type: ignore[no-any-return]  # a memoryview is a sequence


def between(values: pa.Array, lower: int | None, upper: int | None) -> pa.Array:
    """Those of ascending int64 values that are in a range, ends included; None is no limit."""
    numbers = numbers_of(values)
    first = 0 if lower is None else bisect_left(numbers, lower)
    end = len(numbers) if upper is None else bisect_left(numbers, upper + 1, first)
    return values.slice(first, max(0, end - first))


def among(values: pa.Array, members: pa.Array) -> pa.Array:
    """A mask of int64 values: TRUE for those that are among ascending members.

    Arrow makes a hash table of the members at each call: only those near the values are put in it.
    """
    ends = pc.min_max(values)
    near = between(members, ends["min"].as_py(), ends["max"].as_py())
    return pc.is_in(values, value_set=near)


def bitmap_of(values: pa.Array) -> BitMap64:
    """A bitmap of int64 values, none of them NULL or negative."""
    if not len(values):
        return BitMap64()
    numbers = array("Q")
    numbers.frombytes(values.buffers()[1].slice(8 * values.offset, 8 * len(values)))
    return BitMap64(numbers)


def array_of(values: BitMap64) -> pa.Array:
    """The members as int64, ascending."""
    return pa.Array.from_buffers(pa.int64(), len(values), [None, pa.py_buffer(values.to_array())])
