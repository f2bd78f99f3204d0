"""Statistics of columns from the metadata of Iceberg's files.

DuckDB's optimiser relies on them, so a column's statistics say nothing that any of its files leaves
open (airport §4.9, T28). Files that lack a column, because it was added later, look like files that
were not measured: both tell nothing. Deleted rows still count. They only make bounds wider, and "no
NULL" stays true.

The number of distinct values is an estimate: it orders joins, and no answer depends on it. It is
known where an engine has counted (`CALL system.compute_table_stats`, ANALYZE in Trino): then the
metadata name a Puffin file with a sketch of each column, and its result.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from decimal import Decimal
from itertools import islice
from typing import Any, TypeAlias

import pyarrow as pa
from pyiceberg.types import BooleanType, DecimalType, DoubleType, FloatType, IcebergType, StringType

from sparkport.catalog.statistics import ColumnStatistics
from sparkport.engine.cache import Cache
from sparkport.engine.statistics import takes_statistics
from sparkport.errors import SparkportError
from sparkport.spark.iceberg.bounds import UNKNOWN, Bounds, stored_value
from sparkport.spark.iceberg.local_storage import local_path
from sparkport.spark.iceberg.manifests import (
    DATA,
    Manifest,
    ManifestEntry,
    is_remembered,
    read_manifest,
    read_manifest_list,
)
from sparkport.spark.iceberg.table_state import TableState
from sparkport.spark.iceberg.types.declared import decode, natural_type, order_preserving

__all__ = ["column_statistics", "statistics_of"]

_Key: TypeAlias = tuple[Any, ...]
_remembered: Cache[_Key, ColumnStatistics | None] = Cache(20_000)
_UNKNOWN: Any = object()
_MOST_FETCHED = 16
_SKETCH = "apache-datasketches-theta-v1"


def column_statistics(state: TableState, column: str) -> ColumnStatistics | None:
    """What is certain about a column in a table's snapshot; None where nothing is.

    Returns the same object for the same snapshot as long as it is cached. Raises: NotFound.
    """
    position = state.definition.expect(column, state.identifier)
    kind, field = state.schema.fields[position].field_type, state.definition.columns.field(position)
    snapshot = None if state.snapshot is None else state.snapshot.snapshot_id
    key = (
        state.metadata.table_uuid,
        snapshot,
        state.definition.field_ids[position],
        kind,
        field.type,
        _distinct_count(state, state.definition.field_ids[position]),
    )
    known: ColumnStatistics | None = _remembered.find(key, _UNKNOWN)
    if known is not _UNKNOWN:
        return known  # also cached: that nothing can be said
    entries = _data_files(state)
    return (
        None if entries is None else _remembered.add(key, statistics_of(state, entries, position))
    )


def statistics_of(
    state: TableState, entries: Iterable[ManifestEntry], position: int
) -> ColumnStatistics | None:
    """Statistics of the column at a position, from a snapshot's files; None if none are known."""
    kind, field = state.schema.fields[position].field_type, state.definition.columns.field(position)
    if not kind.is_primitive or not takes_statistics(field):
        return None
    field_id = state.definition.field_ids[position]
    files = [
        _in_file(entry, field_id, kind) for entry in entries if entry.content == DATA and entry.rows
    ]
    low, high = _extremes(files) if order_preserving(kind, field) else (None, None)
    found = ColumnStatistics(
        minimum=_shown(low, kind, field),
        maximum=_shown(high, kind, field),
        has_null=any(file.has_null for file in files),
        has_not_null=any(file.has_value for file in files),
        distinct_count=_distinct_count(state, field_id),
    )
    return None if found == ColumnStatistics() else found


def _distinct_count(state: TableState, field_id: int) -> int:
    """How many distinct values a column had when they were counted last; 0 where nobody has."""
    if state.snapshot is None:
        return 0
    sequence = state.snapshot.sequence_number or 0
    counts = [
        (blob.sequence_number, int(count))
        for file in state.metadata.statistics
        for blob in file.blob_metadata
        if blob.type == _SKETCH and blob.fields == [field_id] and blob.sequence_number <= sequence
        if (count := (blob.properties or {}).get("ndv", "")).isdecimal() and len(count) < 19
    ]
    return max(counts, default=(0, 0))[1]


def _data_files(state: TableState) -> list[ManifestEntry] | None:
    """The snapshot's files; None if they cannot be read here, and then the scan reports why."""
    if state.snapshot is None:
        return []
    if state.io is None or not state.snapshot.manifest_list:
        return None
    try:
        manifests = [
            each
            for each in read_manifest_list(state.io, state.snapshot.manifest_list)
            if not each.holds_deletes
        ]
        if any(manifest.encrypted for manifest in manifests) or _cost_too_much(manifests):
            return None
        return [entry for manifest in manifests for entry in read_manifest(state.io, manifest)]
    except (OSError, ValueError, EOFError, KeyError):
        return None


def _cost_too_much(manifests: Sequence[Manifest]) -> bool:
    """Whether many manifests would have to be fetched from a store.

    DuckDB asks before each query. One that needs a few files is not to wait for all manifests.
    """
    away = (each for each in manifests if local_path(each.path) is None and not is_remembered(each))
    return len(list(islice(away, _MOST_FETCHED + 1))) > _MOST_FETCHED


# ---------------------------------------------------------------------------------- from the files


def _in_file(entry: ManifestEntry, field_id: int, kind: IcebergType) -> Bounds:
    """The bounds of a column in one file.

    A NaN as upper bound means that the file holds a NaN; as lower bound, that it holds nothing
    else.
    """
    values, nulls = entry.value_counts.get(field_id), entry.null_counts.get(field_id)
    if values != entry.rows or not 0 <= (nulls or 0) <= values:
        return UNKNOWN
    if nulls == values:
        return Bounds(None, None, has_null=True, has_value=False)
    lower, upper = (
        None if data is None else stored_value(kind, data)
        for data in (entry.lower_bounds.get(field_id), entry.upper_bounds.get(field_id))
    )
    if isinstance(kind, FloatType | DoubleType):
        nans = entry.nan_counts.get(field_id)
        if nans is None:
            lower = upper = None  # the writer left NaN out of the bounds, or let it spoil them
        elif nans:
            upper = math.nan
            lower = math.nan if nulls is not None and nans == values - nulls else lower
    return Bounds(lower, upper, has_null=nulls != 0)


def _extremes(files: Sequence[Bounds]) -> tuple[Any, Any]:
    """The least and the greatest bound over all files; None where a file lacks it."""
    with_values = [file for file in files if file.has_value]
    lowers, uppers = [file.lower for file in with_values], [file.upper for file in with_values]
    low = None if not lowers or None in lowers else min(lowers, key=_order)
    high = None if not uppers or None in uppers else max(uppers, key=_order)
    if low is not None and high is not None and _order(low) > _order(high):
        return None, None  # the metadata is damaged
    return None if low is not None and _is_nan(low) else low, high


def _order(value: Any) -> tuple[bool, Any]:
    """A sort key in DuckDB's order: NaN is above all other numbers."""
    return (True, 0) if _is_nan(value) else (False, value)


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


# ------------------------------------------------------------------------------- as users see them


def _shown(bound: Any, kind: IcebergType, field: pa.Field) -> pa.Scalar | None:
    """A bound as users see values of the column; None if the declared type cannot hold it.

    Another engine may have written such a value.
    """
    if bound is None:
        return None
    try:
        return decode(_stored(bound, kind), kind, field)[0]
    except (SparkportError, pa.ArrowException, ValueError, OverflowError):
        return None


def _stored(bound: Any, kind: IcebergType) -> pa.Array:
    natural = natural_type(kind)
    match kind:
        case BooleanType():
            return pa.array([bool(bound)], natural)
        case StringType():
            return pa.array([bound.decode()], natural)
        case DecimalType():
            # Arithmetic would round to the precision of the thread's decimal context.
            return pa.array(
                [Decimal((bound < 0, tuple(map(int, str(abs(bound)))), -kind.scale))], natural
            )
        case _ if pa.types.is_temporal(natural):
            return pa.array([bound], pa.int32() if natural.bit_width == 32 else pa.int64()).view(
                natural
            )
        case _:
            return pa.array([bound], natural)
