"""Keys of many rows, in groups that fit into memory.

Strategy: keys that are compared with a table come in groups of consecutive rows; the table's keys
stream past each group. Keys that are compared with each other are divided by hashes, in a file, so
that equal keys are in the same group. Few keys are a single group, and nothing is written.
"""

from __future__ import annotations

import uuid
from collections.abc import Generator, Iterable, Iterator, Sequence
from itertools import chain

import pyarrow as pa
import pyarrow.compute as pc

from sparkport.engine.constraints.sandbox import comparison, quoted
from sparkport.spark.iceberg.identifiers import Identifier
from sparkport.spark.iceberg.parquet_output import writing
from sparkport.spark.lake.staging import StagingArea
from sparkport.spark.write.partition_spill import Spill

__all__ = ["GROUP_BYTES", "equal_together", "in_groups"]

GROUP_BYTES = 32 * 1024 * 1024
"""Bytes of keys in memory at a time. DuckDB's hash table for them takes several times as much."""
_PARTS = 256
"""Number of parts that keys are divided into: 8 GB of keys still make groups of the size above."""


def in_groups(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Gather rows into groups of about `GROUP_BYTES`, in their order. No group is empty."""
    group: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        if batch.num_rows:
            group.append(_plain(batch))
            size += batch.nbytes
        if size >= GROUP_BYTES:
            yield pa.Table.from_batches(group)
            group, size = [], 0
    if group:
        yield pa.Table.from_batches(group)


def equal_together(
    batches: Iterable[pa.RecordBatch], area: StagingArea, identifier: Identifier
) -> Generator[pa.Table, None, None]:
    """Gather rows, whose columns are a key, into groups so that equal keys are in the same group.

    Raises: LimitExceeded when the storage is full; PermissionDenied, PreconditionFailed.
    """
    groups = in_groups(batches)
    first, second = next(groups, None), next(groups, None)
    if first is None or second is None:
        yield from [first] if first is not None else ()
        return
    with writing(identifier):
        location = str(area.folder() / f"keys-{uuid.uuid4().hex}.arrow")
        spill = Spill(area.storage, location, first.schema)
    try:
        for group in chain((first, second), groups):
            with writing(identifier):
                spill.put(_divided(group))
        first = second = None
        for number in range(_PARTS):
            with writing(identifier):
                part = list(spill.take(str(number)))
            if part:
                yield pa.Table.from_batches(part)
    finally:
        spill.abandon()
        area.storage.delete(location)


def _divided(keys: pa.Table) -> Iterator[tuple[str, pa.Table]]:
    """Divide keys by DuckDB's hashes, which are equal for equal values, such as 0.0 and -0.0."""
    names = [f"k{number}" for number in range(keys.num_columns)]
    with comparison(keys=keys.rename_columns(names)) as connection:
        columns = ", ".join(map(quoted, names))
        query = f"SELECT CAST(hash({columns}) % {_PARTS} AS USMALLINT) AS part FROM keys"
        numbers = connection.sql(query).to_arrow_table().column(0).combine_chunks()
    order = pc.array_sort_indices(numbers)
    ordered = keys.take(order)
    start = 0
    # value_counts keeps the order in which values come.
    for counted in pc.value_counts(numbers.take(order)).to_pylist():
        yield str(counted["values"]), ordered.slice(start, counted["counts"])
        start += counted["counts"]


def _plain(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Decode dictionaries: a file can have only one for each column."""
    if not any(pa.types.is_dictionary(field.type) for field in batch.schema):
        return batch
    columns: Sequence[pa.Array] = [
        column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
        for column in batch.columns
    ]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)
