"""Functions that Arrow's arrays lack."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["is_ascending", "take_values"]


def is_ascending(values: pa.Array, *, distinct: bool = False) -> bool:
    compare = pc.less if distinct else pc.less_equal
    return (
        len(values) < 2
        or compare(values.slice(0, len(values) - 1), values.slice(1)).false_count == 0
    )


def take_values(values: pa.Array, positions: pa.Array) -> pa.Array:
    """Do what `values.take(positions)` does, for every type."""
    try:
        return values.take(positions)
    except pa.ArrowNotImplementedError:  # string views and run-end encoded values, at any depth
        runs = list(_runs(positions.to_pylist()))
        return pa.concat_arrays(
            [values.slice(start, stop - start) for start, stop in runs] or [values.slice(0, 0)]
        )


def _runs(positions: Sequence[int]) -> Iterator[tuple[int, int]]:
    start = stop = -1
    for position in positions:
        if position != stop:
            if stop > start:
                yield start, stop
            start = position
        stop = position + 1
    if stop > start:
        yield start, stop
