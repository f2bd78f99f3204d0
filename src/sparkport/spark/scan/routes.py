"""Reading the lake: which route a scan takes.

A plan that reads little is read in place; a plan that reads many bytes, files or rows, by Arrow
tasks on Spark. What only Spark can read is read as a relation. All routes give the same rows; only
time differs.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa

from sparkport.catalog import Context, Directly, Framing, ScanOptions
from sparkport.catalog.filters import Filter
from sparkport.catalog.rowid import ROWID_NAME
from sparkport.engine.cache import Cache
from sparkport.errors import BadRequest, Conflict
from sparkport.spark.iceberg.division import OPENING, divide
from sparkport.spark.iceberg.locations import for_workers, local_path
from sparkport.spark.iceberg.plan import FilePart, ScanPlan, plan_scan
from sparkport.spark.iceberg.read import read_parts, read_request
from sparkport.spark.iceberg.table_state import TableState
from sparkport.spark.jvm.relay.tasks import scan_tasks
from sparkport.spark.lake.lake import Lake
from sparkport.spark.scan.direct import direct_calls, qualifies
from sparkport.spark.scan.recent_rows import recent_rows
from sparkport.spark.scan.relation_scan import read_iceberg, read_iceberg_framed
from sparkport.spark.scan.streams import (
    NO_SNAPSHOT,
    FileSource,
    packed,
    parts_of,
    table_uuid,
    unpacked,
)

__all__ = [
    "FramedReader",
    "directly",
    "estimated_rows",
    "partitions",
    "planned_state",
    "read",
    "read_framed",
    "runs_in_place",
]

_log = logging.getLogger(__name__)

FramedReader: TypeAlias = Iterable[bytes | pa.RecordBatch]

_ROW_ID_BYTES = 8
_FILTERED = 4


def partitions(lake: Lake, ctx: Context, state: TableState, options: ScanOptions) -> list[bytes]:
    """Divide a scan into streams; none when there are no rows."""
    carried = _may_see_all(ctx, state)
    key = (state, _names(state, options), options.filter, carried)
    known = _divided.find(key, None)
    if known is None:
        known = _divide(lake, state, options, carried=carried)
        _divided.add(key, known, sum(map(len, known)))
    return known


def _divide(lake: Lake, state: TableState, options: ScanOptions, *, carried: bool) -> list[bytes]:
    plan = _plan(state, options)
    if not plan.readable or _is_for_spark(lake, plan.parts):
        return packed(state, [()], FileSource.SPARK, carried=carried)
    return packed(state, _streams(lake, plan, options), FileSource.PLAN, carried=carried)


def directly(lake: Lake, ctx: Context, state: TableState, options: ScanOptions) -> Directly | None:
    """What DuckDB may read by itself, and the streams of the rest.

    None where the server should read everything.
    """
    # Filters are not pushed into such reads, so a scan that a filter makes small is better read
    # here.
    if not lake.settings.direct or options.filter is not None:
        return None
    plan = _plan(state, options)
    if not plan.readable or plan.bytes <= lake.settings.in_place_bytes:
        return None
    left = _left(lake, state, plan, options)
    direct = [part for part in plan.parts if part not in left.parts]
    if not direct:
        return None
    calls = direct_calls(direct, lake.settings.endpoints)
    streams = _streams(lake, left, options)
    rest = packed(state, streams, FileSource.REST_OF_PLAN, carried=_may_see_all(ctx, state))
    return Directly(tuple(calls), tuple(rest))


def _may_see_all(ctx: Context, state: TableState) -> bool:
    return ctx.access.shows(state.identifier.schema_name, state.identifier.name)


def _left(lake: Lake, state: TableState, plan: ScanPlan, options: ScanOptions) -> ScanPlan:
    """The part of a plan that the server has to read when DuckDB reads what it can."""
    names = _names(state, options)
    parts = [
        part for part in plan.parts if not qualifies(state, part, names, state.file_properties)
    ]
    return ScanPlan(
        tuple(parts), sum(part.rows for part in parts), sum(part.bytes for part in parts), True
    )


def _streams(lake: Lake, plan: ScanPlan, options: ScanOptions) -> list[tuple[FilePart, ...]]:
    if not plan.parts:
        return []
    # Rows count too: a scan of only row ids reads nothing, and still sends them.
    weight = max(plan.bytes, 0 if options.filter else plan.rows * _ROW_ID_BYTES)
    most = min(lake.settings.endpoints, weight // lake.settings.endpoint_bytes)
    return divide(plan, max(1, most))


def planned_state(lake: Lake, state: TableState, partition: bytes) -> TableState:
    """The state that a part of a scan was planned on.

    Raises: Conflict when it is gone; BadRequest.
    """
    stream = unpacked(state, partition)
    own = NO_SNAPSHOT if state.snapshot is None else state.snapshot.snapshot_id
    planned = (stream.table_uuid, stream.snapshot_id, stream.schema_id)
    if planned == (table_uuid(state), own, state.schema.schema_id):
        return state
    known = lake.current(state.identifier)
    schema = known.metadata.schema_by_id(stream.schema_id)
    snapshot = (
        None
        if stream.snapshot_id == NO_SNAPSHOT
        else known.metadata.snapshot_by_id(stream.snapshot_id)
    )
    gone = snapshot is None and stream.snapshot_id != NO_SNAPSHOT
    if gone and stream.source is FileSource.CARRIED:
        # Its version was forgotten meanwhile. The stream has its files, which are still there.
        snapshot, gone = known.snapshot, False
    if table_uuid(known) != stream.table_uuid or schema is None or gone:
        raise Conflict(
            f"table {state.identifier} has changed since the query was planned: run it again"
        )
    return lake.states.at(known, snapshot, schema)


def estimated_rows(state: TableState) -> int | None:
    """The number of rows in the snapshot's summary."""
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
    """The rows as batches, read in this process where possible.

    Raises: BadRequest; what the routes raise.
    """
    wanted = _wanted(lake, state, options)
    if wanted.parts is not None:
        return _limited(_in_place(lake, ctx, state, options, wanted.parts), options)
    return _limited(read_iceberg(lake, ctx, state, _names(state, options), options.filter), options)


def read_framed(
    lake: Lake, ctx: Context, state: TableState, options: ScanOptions, framing: Framing
) -> Iterator[bytes | pa.RecordBatch]:
    """The rows for a client, by the route that suits the plan.

    Raises: BadRequest; what the routes raise.
    """
    wanted = _wanted(lake, state, options)
    if wanted.parts is None or _is_for_spark(lake, wanted.parts):
        return read_iceberg_framed(
            lake, ctx, state, _names(state, options), options.filter, framing
        )
    if runs_in_place(wanted.parts, options.filter, lake.settings.in_place_bytes):
        return _in_place(lake, ctx, state, options, wanted.parts)
    return _on_spark(lake, ctx, state, options, wanted, framing)


def runs_in_place(parts: Sequence[FilePart], row_filter: Filter | None, most_bytes: int) -> bool:
    """Whether reading parts in this process takes no longer than reading so many bytes.

    Files cost their opening, but for those that are opened by several threads: local ones, with a
    filter. Filtered rows cost their evaluation, however few bytes they have.
    """
    opened = sum(
        bool(part.bytes) and (row_filter is None or local_path(part.path) is None) for part in parts
    )
    rows = sum(part.rows for part in parts) if row_filter is not None else 0
    return max(sum(part.bytes for part in parts), rows) + opened * OPENING <= most_bytes


def _is_for_spark(lake: Lake, parts: Sequence[FilePart]) -> bool:
    """Whether files are too large for this process, and such that Spark's workers have no storage
    for them.
    """
    return sum(part.bytes for part in parts) > lake.settings.in_place_bytes and not all(
        for_workers(part.path) for part in parts
    )


def _in_place(
    lake: Lake, ctx: Context, state: TableState, options: ScanOptions, parts: Sequence[FilePart]
) -> Iterator[pa.RecordBatch]:
    ctx.report_route("in_place")
    scanning = lake.transactions.scanning(ctx.transaction_id, state)
    with scanning, _logged(ctx, state, "in place", parts) as log:
        expected = sum(part.rows for part in parts)
        names, rows = _names(state, options), options.batch_size or _batch_rows(lake, options)

        def read() -> Iterator[pa.RecordBatch]:
            request = read_request(
                state, names, options.filter, batch_rows=rows, properties=state.file_properties
            )
            return read_parts(request, parts, ctx.check, use_threads=True)

        few = options.filter is None
        for batch in recent_rows((state, names, rows, tuple(parts)), read) if few else read():
            log.rows += batch.num_rows
            ctx.report_progress(log.rows / max(1, expected))
            yield batch


def _on_spark(
    lake: Lake,
    ctx: Context,
    state: TableState,
    options: ScanOptions,
    wanted: _Wanted,
    framing: Framing,
) -> Iterator[bytes]:
    parts = wanted.parts or ()
    request = read_request(
        state,
        _names(state, options),
        options.filter,
        batch_rows=_batch_rows(lake, options),
    )
    rows, size = sum(part.rows for part in parts), sum(part.bytes for part in parts)
    # One task for each core in this stream's share of the cluster: each reads several files.
    tasks = max(1, lake.spark.sparkContext.defaultParallelism // wanted.streams)
    groups = divide(ScanPlan(tuple(parts), rows, size, True), tasks)
    ctx.report_route("spark_tasks")
    scanning = lake.transactions.scanning(ctx.transaction_id, state)
    with scanning, _logged(ctx, state, f"{len(groups)} Spark tasks", parts) as log:
        for message in scan_tasks(
            *(lake.spark, lake.relay, ctx, f"table {state.identifier}", request, groups, framing),
            rows=rows,
            properties=lambda: state.file_properties,
        ):
            log.messages += 1
            yield message


def _batch_rows(lake: Lake, options: ScanOptions) -> int:
    """A filter is evaluated batch by batch, at some cost for each, and leaves fewer rows."""
    return lake.settings.batch_rows * (_FILTERED if options.filter else 1)


def _plan(state: TableState, options: ScanOptions) -> ScanPlan:
    """The plan of a scan.

    It is cached, because `directly` and `partitions` ask for the same plan, and so does every
    stream that does not carry its files. States are compared by identity.
    """
    key = (state, _names(state, options), options.filter)
    known = _plans.find(key, None)
    return _plans.add(key, plan_scan(*key)) if known is None else known


_plans: Cache[tuple[TableState, tuple[str, ...], Filter | None], ScanPlan] = Cache(
    256, unused_seconds=60.0
)
_divided: Cache[tuple[TableState, tuple[str, ...], Filter | None, bool], list[bytes]] = Cache(
    8 * 1024 * 1024, unused_seconds=60.0
)
"""The streams of scans, with or without their files, as `partitions` returns them."""


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What one stream of a scan reads."""

    parts: Sequence[FilePart] | None
    """None where only Spark can read the table."""
    streams: int = 1
    """How many streams share the cluster."""


def _wanted(lake: Lake, state: TableState, options: ScanOptions) -> _Wanted:
    """What a scan reads: all of its plan, or one stream. Raises: BadRequest."""
    if options.partition is None:
        plan = _plan(state, options)
        return _Wanted(plan.parts if plan.readable else None)
    stream = unpacked(state, options.partition)
    if stream.source is FileSource.SPARK:
        return _Wanted(None, stream.count)
    if stream.source is FileSource.CARRIED:
        return _Wanted(parts_of(state, stream), stream.count)
    plan = _plan(state, options)
    if not plan.readable:
        return _Wanted(None, stream.count)
    if stream.source is FileSource.REST_OF_PLAN:
        plan = _left(lake, state, plan, options)
    groups = divide(plan, stream.count)
    if stream.index >= len(groups):
        raise BadRequest(f"the partition is not one of table {state.identifier}")
    return _Wanted(groups[stream.index], stream.count)


def _names(state: TableState, options: ScanOptions) -> tuple[str, ...]:
    """The columns to read; where none is wanted, the cheapest that tells the number of rows."""
    definition = state.definition
    if options.columns is None:
        return tuple(definition.arrow_schema.names)
    return options.columns or (
        ROWID_NAME if definition.shows_row_id else definition.columns.names[0],
    )


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
    """Logs how a scan was done, whether it ended or was broken off."""

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
