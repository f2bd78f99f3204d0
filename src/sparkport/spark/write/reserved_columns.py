"""Iceberg's own columns of data files: the ids of rows, and the commits that wrote them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.types import LongType

from sparkport.spark.iceberg.bounds import bounds_in_row_group
from sparkport.spark.iceberg.locations import open_parquet
from sparkport.spark.iceberg.manifests import ROW_ID_FIELD
from sparkport.spark.iceberg.parts import FilePart
from sparkport.spark.iceberg.positions import between
from sparkport.spark.iceberg.projection import file_fields
from sparkport.spark.iceberg.table_state import TableState

__all__ = ["LAST_UPDATED_FIELD", "ReservedColumns"]

_Keeps: TypeAlias = Callable[[pq.RowGroupMetaData, int], bool]
"""Whether to read a row group; its second argument is the position of the group's first row."""

LAST_UPDATED_FIELD = 2147483539
"""The reserved field id of `_last_updated_sequence_number`, where a file holds it."""


class ReservedColumns:
    """Reads Iceberg's own columns of data files, without the others."""

    def __init__(self, state: TableState, properties: Mapping[str, str]) -> None:
        self.properties = properties
        self._settings = tuple(sorted(properties.items()))
        self._name_mapping = state.metadata.properties.get("schema.name-mapping.default")

    def has(self, part: FilePart, field_id: int) -> bool:
        return self._leaf(part, field_id) is not None

    def row_ids(self, part: FilePart, ids: pa.Array) -> Iterator[tuple[int, pa.Array]]:
        """The row ids of a file in steps, each with its position.

        Row groups without wanted ids are skipped.
        """
        leaf = self._leaf(part, ROW_ID_FIELD)
        assert leaf is not None

        def may_match(group: pq.RowGroupMetaData, _: int) -> bool:
            bounds = bounds_in_row_group(group.column(leaf).statistics, LongType())
            return bounds.has_null or len(between(ids, bounds.lower, bounds.upper)) > 0

        small = part.rows <= _SMALL
        steps = (
            [(0, _small_column(part.path, part.size, leaf, self._settings))]
            if small
            else self._read(part, leaf, may_match)
        )
        for start, own in steps:
            if own.null_count and part.first_row_id is not None:
                first = part.first_row_id + start
                own = pc.coalesce(own, pa.arange(first, first + len(own)))
            yield start, own

    def row_ids_at(self, part: FilePart, positions: pa.Array) -> pa.Array:
        """The ids of the rows at ascending positions; NULL for a row that has none."""
        own = self.at(part, ROW_ID_FIELD, positions) if part.may_hold_row_ids else None
        if part.first_row_id is None:
            return pa.nulls(len(positions), pa.int64()) if own is None else own
        by_position = pc.add(positions, part.first_row_id)
        return by_position if own is None else pc.coalesce(own, by_position)

    def at(self, part: FilePart, field_id: int, positions: pa.Array) -> pa.Array:
        """The values at ascending positions; NULLs where the file lacks the column."""
        leaf = self._leaf(part, field_id)
        if leaf is None:
            return pa.nulls(len(positions), pa.int64())

        def holds_some(group: pq.RowGroupMetaData, start: int) -> bool:
            return len(between(positions, start, start + group.num_rows - 1)) > 0

        return _joined(
            [
                values.take(pc.subtract(between(positions, start, start + len(values) - 1), start))
                for start, values in self._read(part, leaf, holds_some)
            ]
        )

    def _leaf(self, part: FilePart, field_id: int) -> int | None:
        leaves = _reserved_leaves(part.path, part.size, self._name_mapping, self._settings)
        return leaves.get(field_id)

    def _read(self, part: FilePart, leaf: int, keeps: _Keeps) -> Iterator[tuple[int, pa.Array]]:
        with open_parquet(part.path, self.properties, part.size) as file:
            yield from _column(file, leaf, keeps)


def _column(file: pq.ParquetFile, leaf: int, keeps: _Keeps) -> Iterator[tuple[int, pa.Array]]:
    """The values of some row groups in steps, each with its position."""
    start = 0
    for index in range(file.metadata.num_row_groups):
        group = file.metadata.row_group(index)
        position, start = start, start + group.num_rows
        if not keeps(group, position):
            continue
        for batch in file.reader.iter_batches(
            _STEP, row_groups=[index], column_indices=[leaf], use_threads=False
        ):
            yield position, batch.column(0)
            position += batch.num_rows


@functools.lru_cache(maxsize=1024)
def _small_column(
    path: str, size: int, leaf: int, properties: tuple[tuple[str, str], ...]
) -> pa.Array:
    """All values of a column of a small file, cached: small changes read them often."""
    with open_parquet(path, dict(properties), size) as file:
        return _joined([values for _, values in _column(file, leaf, lambda *_: True)])


@functools.lru_cache(maxsize=10_000)
def _reserved_leaves(
    path: str, size: int, name_mapping: str | None, properties: tuple[tuple[str, str], ...]
) -> Mapping[int, int]:
    """Which leaf columns of a file are Iceberg's own, by field id; cached."""
    with open_parquet(path, dict(properties), size) as file:
        fields = file_fields(file.schema_arrow, name_mapping)
    return {
        each.field_id: each.leaves[0]
        for each in fields
        if each.field_id in {ROW_ID_FIELD, LAST_UPDATED_FIELD}
    }


_SMALL = 8192
"""Most rows of a file whose ids are cached."""
_STEP = 1024 * 1024
"""Rows that are examined at a time."""


def _joined(arrays: list[pa.Array]) -> pa.Array:
    return pa.concat_arrays(arrays) if arrays else pa.array([], pa.int64())
