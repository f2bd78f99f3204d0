"""Reading the lake: which route a scan takes.

In place, where the plan reads little; by Arrow tasks on Spark, where it reads much; as any
relation, where only Spark can read it. All three give the same rows; only time differs.
"""

from __future__ import annotations

import logging
import struct
import time
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import TypeAlias
from uuid import UUID

import pyarrow as pa

from sparkport.catalog import Context, Directly, Framing, ScanOptions
from sparkport.catalog.filters import Filter
from sparkport.catalog.rowid import ROWID_NAME
from sparkport.errors import BadRequest, Conflict
from sparkport.spark.iceberg.plan import FilePart, ScanPlan, divide, plan_scan
from sparkport.spark.iceberg.read import read_parts, read_request
from sparkport.spark.iceberg.table_state import TableState
from sparkport.spark.jvm.relay.tasks import scan_tasks
from sparkport.spark.lake.lake import Lake
from sparkport.spark.scan.direct import direct_calls, qualifies
from sparkport.spark.scan.relation_scan import read_iceberg, read_iceberg_framed

__all__ = [
    "FramedReader",
    "directly",
    "estimated_rows",
    "partitions",
    "planned_state",
    "read",
    "read_framed",
]

_log = logging.getLogger(__name__)

FramedReader: TypeAlias = Iterable[bytes | pa.RecordBatch]

_PARTITION = struct.Struct("<16sqiHH?")
"""The table's uuid, the snapshot, the schema, which part, of how many, whether only of what DuckDB
cannot read itself.
"""
_NO_SNAPSHOT = -1
_ROW_ID_BYTES = 8
_FILTERED = 4


def partitions(lake: Lake, state: TableState, options: ScanOptions) -> list[bytes]:
    """Divide a scan into streams; none when there are no rows."""
    plan = _plan(state, options)
    if plan.readable and not plan.parts:
        return []
    return _packed(state, _streams(lake, plan, options) if plan.readable else 1)


def directly(lake: Lake, state: TableState, options: ScanOptions) -> Directly | None:
    """What DuckDB may read by itself, and the streams of the rest; None where the server had better
    read everything.
    """
    plan = _plan(state, options)
    # Filters are not pushed into such reads, so what a filter makes small is better read here.
    if not (lake.settings.direct and plan.readable and options.filter is None):
        return None
    if plan.bytes <= lake.settings.in_place_bytes:
        return None
    left = _left(lake, state, plan, options)
    direct = [part for part in plan.parts if part not in left.parts]
    if not direct:
        return None
    calls = direct_calls(direct, lake.settings.endpoints)
    return Directly(
        tuple(calls),
        tuple(_packed(state, _streams(lake, left, options), left=True)) if left.parts else (),
    )


def _left(lake: Lake, state: TableState, plan: ScanPlan, options: ScanOptions) -> ScanPlan:
    """What of a plan the server has to read, when DuckDB reads what it can."""
    names = _names(state, options)
    parts = [part for part in plan.parts if not qualifies(state, part, names, lake.file_properties)]
    return ScanPlan(
        tuple(parts), sum(part.rows for part in parts), sum(part.bytes for part in parts), True
    )


def _streams(lake: Lake, plan: ScanPlan, options: ScanOptions) -> int:
    # Rows count too: a scan of row ids alone reads nothing, and still sends them.
    weight = max(plan.bytes, 0 if options.filter else plan.rows * _ROW_ID_BYTES)
    return len(
        divide(plan, max(1, min(lake.settings.endpoints, weight // lake.settings.endpoint_bytes)))
    )


def _packed(state: TableState, count: int, *, left: bool = False) -> list[bytes]:
    snapshot = _NO_SNAPSHOT if state.snapshot is None else state.snapshot.snapshot_id
    own = (_uuid(state), snapshot, state.schema.schema_id)
    return [_PARTITION.pack(*own, index, count, left) for index in range(count)]


def planned_state(lake: Lake, state: TableState, partition: bytes) -> TableState:
    """The state that a part of a scan was planned on. Raises: Conflict when that is gone;
    BadRequest.
    """
    if len(partition) != _PARTITION.size:
        raise BadRequest(f"the partition is not one of table {state.identifier}")
    uuid, snapshot_id, schema_id, *_ = _PARTITION.unpack(partition)
    own = _NO_SNAPSHOT if state.snapshot is None else state.snapshot.snapshot_id
    if (uuid, snapshot_id, schema_id) == (_uuid(state), own, state.schema.schema_id):
        return state
    known = lake.current(state.identifier)
    schema = known.metadata.schema_by_id(schema_id)
    snapshot = None if snapshot_id == _NO_SNAPSHOT else known.metadata.snapshot_by_id(snapshot_id)
    gone = snapshot is None and snapshot_id != _NO_SNAPSHOT
    if _uuid(known) != uuid or schema is None or gone:
        raise Conflict(
            f"table {state.identifier} has changed since the query was planned: run it again"
        )
    return lake.states.at(known, snapshot, schema)


def estimated_rows(state: TableState) -> int | None:
    """What the snapshot's summary says."""
    if state.snapshot is None:
        return 0
    summary = state.snapshot.summary
    try:
        counts = {} if summary is None else summary.additional_properties
        return max(0, int(counts["total-records"]) - int(counts["total-position-deletes"]))
    except (KeyError, ValueError):
        return None


def read(
    lake: Lake, ctx: Context, state: TableState, options: ScanOptions
) -> Iterator[pa.RecordBatch]:
    """The rows as batches, read in this process where that can be. Raises: BadRequest; what the
    routes raise.
    """
    plan, parts = _wanted_parts(lake, state, options)
    if plan.readable:
        return _limited(_in_place(lake, ctx, state, options, parts), options)
    return _limited(read_iceberg(lake, ctx, state, _names(state, options), options.filter), options)


def read_framed(
    lake: Lake, ctx: Context, state: TableState, options: ScanOptions, framing: Framing
) -> Iterator[bytes | pa.RecordBatch]:
    """The rows for a client, by the route that suits the plan. Raises: BadRequest; what the routes
    raise.
    """
    plan, parts = _wanted_parts(lake, state, options)
    if not plan.readable:
        return read_iceberg_framed(
            lake, ctx, state, _names(state, options), options.filter, framing
        )
    if sum(part.bytes for part in parts) <= lake.settings.in_place_bytes:
        return _in_place(lake, ctx, state, options, parts)
    return _on_spark(lake, ctx, state, options, parts, framing)


def _in_place(
    lake: Lake, ctx: Context, state: TableState, options: ScanOptions, parts: Sequence[FilePart]
) -> Iterator[pa.RecordBatch]:
    ctx.report_route("in_place")
    with _logged(ctx, state, "in place", parts) as log:
        expected = sum(part.rows for part in parts)
        request = read_request(
            state,
            _names(state, options),
            options.filter,
            batch_rows=options.batch_size or _batch_rows(lake, options),
            properties=lake.file_properties,
        )
        for batch in read_parts(request, parts, ctx.check, use_threads=True):
            log.rows += batch.num_rows
            ctx.report_progress(log.rows / max(1, expected))
            yield batch


def _on_spark(
    lake: Lake,
    ctx: Context,
    state: TableState,
    options: ScanOptions,
    parts: Sequence[FilePart],
    framing: Framing,
) -> Iterator[bytes]:
    request = read_request(
        state,
        _names(state, options),
        options.filter,
        batch_rows=_batch_rows(lake, options),
        properties=lake.file_properties,
    )
    share = _share(options.partition)
    rows, size = sum(part.rows for part in parts), sum(part.bytes for part in parts)
    # One task for each core that this stream's share of the cluster has: each reads several files.
    tasks = max(1, lake.spark.sparkContext.defaultParallelism // share)
    groups = divide(ScanPlan(tuple(parts), rows, size, True), tasks)
    ctx.report_route("spark_tasks")
    with _logged(ctx, state, f"{len(groups)} Spark tasks", parts) as log:
        for message in scan_tasks(
            lake.spark, lake.relay, ctx, f"table {state.identifier}", request, groups, framing, rows
        ):
            log.messages += 1
            yield message


def _batch_rows(lake: Lake, options: ScanOptions) -> int:
    """A filter is evaluated batch by batch, each at some cost, and leaves less of them."""
    return lake.settings.batch_rows * (_FILTERED if options.filter else 1)


def _plan(state: TableState, options: ScanOptions) -> ScanPlan:
    return _remembered_plan(state, _names(state, options), options.filter)


@lru_cache(maxsize=256)
def _remembered_plan(
    state: TableState, columns: tuple[str, ...], row_filter: Filter | None
) -> ScanPlan:
    """The streams of a scan are planned one after the other, and all alike. States are compared by
    identity.
    """
    return plan_scan(state, columns, row_filter)


def _wanted_parts(
    lake: Lake, state: TableState, options: ScanOptions
) -> tuple[ScanPlan, Sequence[FilePart]]:
    """What one stream reads: all, or its share. Raises: BadRequest."""
    plan = _plan(state, options)
    if options.partition is None or not plan.readable:
        return plan, plan.parts
    *_, index, count, left = _PARTITION.unpack(options.partition)
    groups = divide(_left(lake, state, plan, options) if left else plan, count)
    if index >= len(groups):
        raise BadRequest(f"the partition is not one of table {state.identifier}")
    return plan, groups[index]


def _names(state: TableState, options: ScanOptions) -> tuple[str, ...]:
    """The columns to read; where none is wanted, one that tells how many rows there are at the
    least cost.
    """
    definition = state.definition
    if options.columns is None:
        return tuple(definition.arrow_schema.names)
    return options.columns or (
        ROWID_NAME if definition.has_row_ids else definition.columns.names[0],
    )


def _share(partition: bytes | None) -> int:
    return 1 if partition is None else int(_PARTITION.unpack(partition)[4])


def _uuid(state: TableState) -> bytes:
    return UUID(str(state.metadata.table_uuid)).bytes


def _limited(batches: Iterator[pa.RecordBatch], options: ScanOptions) -> Iterator[pa.RecordBatch]:
    left = options.limit
    for batch in batches:
        if options.limit <= 0:
            yield batch
            continue
        yield batch.slice(0, left)
        left -= batch.num_rows
        if left <= 0:
            return


class _logged:  # noqa: N801 - reads as a verb
    """Says in the log how a scan was done, whether it ended or was broken off."""

    def __init__(
        self, ctx: Context, state: TableState, route: str, parts: Sequence[FilePart]
    ) -> None:
        self._ctx, self._state, self._route, self._parts = ctx, state, route, parts
        self._began = time.monotonic()
        self.rows = 0
        self.messages = 0

    def __enter__(self) -> _logged:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        _log.info(
            "trace %s: scan of %s by route %s: %d files, %d bytes, %s, %.0f ms%s",
            self._ctx.trace_id,
            self._state.identifier,
            self._route,
            len(self._parts),
            sum(part.bytes for part in self._parts),
            f"{self.messages} messages" if self.messages else f"{self.rows} rows",
            (time.monotonic() - self._began) * 1000,
            "" if kind is None else ", broken off",
        )
