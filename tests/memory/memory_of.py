"""What versions of a table hold in memory, found out from their arrays."""

from __future__ import annotations

from collections.abc import Iterable

from sparkport.memory import MemoryTable
from sparkport.memory.versions import Version


def promised(table: MemoryTable) -> list[Version]:
    """The versions that can be travelled to."""
    oldest = table.history._oldest
    return [version for version in table.history._versions if version.number >= oldest]


def values_of(versions: Iterable[Version]) -> set[int]:
    """The addresses of all values, of versions whose columns are int64 without NULLs."""
    return {
        address
        for version in versions
        for segment in version.segments
        for column in segment.columns
        for first in [column.buffers()[1].address + 8 * column.offset]
        for address in range(first, first + 8 * len(column), 8)
    }


def buffer_bytes(versions: Iterable[Version]) -> int:
    """Bytes of the buffers behind all columns, each counted once and as a whole."""
    buffers = {
        buffer.address: buffer.size
        for version in versions
        for segment in version.segments
        for column in segment.columns
        for buffer in column.buffers()
        if buffer is not None
    }
    return sum(buffers.values())
