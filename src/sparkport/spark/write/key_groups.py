"""Keys of many rows, in groups that fit into memory.

Strategy: what is compared with a table comes in groups of consecutive rows; the table's keys stream
past each of them. What is compared with each other is divided by hashes, in a file, so that equal
keys meet in one group. Few keys are one group, and nothing is written.
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
"""Of keys that are in memory at once; DuckDB's hash table of them takes several times as much."""
_PARTS = 256
"""Into which keys are divided: 8 GB of them are still groups of the size above."""


def in_groups(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """The same rows, in the same order; each group has some."""
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
    """The same rows, of columns that are a key, in groups such that those with equal keys are in
    the same.

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
    """By DuckDB's hashes, which are the same for what it takes for equal: 0.0 and -0.0, for
    instance.
    """
    names = [f"k{number}" for number in range(keys.num_columns)]
    with comparison(keys=keys.rename_columns(names)) as connection:
        query = f"SELECT CAST(hash({', '.join(map(quoted, names))}) % {_PARTS} AS USMALLINT) AS part FROM keys"
        numbers = connection.sql(query).to_arrow_table().column(0).combine_chunks()
    order = pc.array_sort_indices(numbers)
    ordered = keys.take(order)
    start = 0
    for counted in pc.value_counts(
        numbers.take(order)
    ).to_pylist():  # in the order in which they come
        yield str(counted["values"]), ordered.slice(start, counted["counts"])
        start += counted["counts"]


def _plain(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Without dictionaries, of which a file can have only one for each column."""
    if not any(pa.types.is_dictionary(field.type) for field in batch.schema):
        return batch
    columns: Sequence[pa.Array] = [
        column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
        for column in batch.columns
    ]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)
