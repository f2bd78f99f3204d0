"""Scans of any relation: Spark encodes rows as Arrow, Python workers send them on (route 3).

Nothing passes through the driver, so results may be of any size. Workers look at the rows only
where Spark's types are not the declared ones, or where the client did not ask for all columns.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO, TypeAlias

import pyarrow as pa

from sparkport.catalog import Context, Framer, Framing
from sparkport.catalog.scan import MessagePart
from sparkport.spark.iceberg.identifiers import quoted
from sparkport.spark.jvm.relay.jobs import Job, start_job
from sparkport.spark.jvm.relay.relay import Relay
from sparkport.spark.jvm.relay.sender import Outlet, Sender
from sparkport.spark.jvm.relay.tasks import Message, deliver, forwarded
from sparkport.spark.jvm.relay.workers import run_by_workers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["Convert", "scan_relation", "scan_relation_batches"]

Convert: TypeAlias = Callable[[pa.RecordBatch], pa.RecordBatch]
"""Converts a batch of Spark's types to the declared types, columns by name. It is pickled."""

_LARGE_MESSAGE = 4 * 1024 * 1024
"""A larger batch of Spark's is sent in several messages."""


def scan_relation(
    relay: Relay,
    ctx: Context,
    title: str,
    rows: DataFrame,
    framing: Framing,
    convert: Convert | None = None,
) -> Generator[bytes, None, None]:
    """The messages of a query, in any order unless the query has one.

    Closing the iterator stops the query. `rows` has at least the columns that `framing` wants.
    Without `convert` they have types that Arrow casts to the declared ones, where they differ.

    Raises: Conflict when a worker was lost; what Spark's errors are translated to.
    """
    ctx.report_route("relation")
    context = rows.sparkSession.sparkContext
    scan = relay.open(title, deterministic=False)

    def run() -> None:
        from pyspark import RDD

        wanted = _wanted(rows, framing.arrow_schema)
        task = _RelayTask(
            scan.outlet, framing, *_reading(wanted, framing.arrow_schema, convert), convert
        )
        _activate(wanted)
        # With adaptive execution this runs all stages of the query but the last.
        encoded = wanted._jdf.toArrowBatchRdd().toJavaRDD()
        scan.expect(encoded.getNumPartitions(), ordered=_is_ordered(wanted))
        run_by_workers(RDD(encoded, context, _EncodedBatches()), task)  # type: ignore[arg-type]

    def start() -> Job[None]:
        # Interrupted in the middle of a batch, Spark loses track of its memory: 0.3 MB for every
        # cancelled scan.
        return start_job(context, ctx, title, run, interrupt=False)

    with closing(forwarded(relay, scan, start, ctx)) as messages:
        yield from messages


def scan_relation_batches(
    relay: Relay,
    ctx: Context,
    title: str,
    rows: DataFrame,
    arrow_schema: pa.Schema,
    convert: Convert | None = None,
) -> Iterator[pa.RecordBatch]:
    """The rows of a query as batches of an Arrow schema, for use in this process.

    Raises: what `scan_relation` raises.
    """
    with closing(
        scan_relation(relay, ctx, title, rows, _BatchFraming(arrow_schema), convert)
    ) as messages:
        for message in messages:
            yield pa.ipc.read_record_batch(pa.py_buffer(message), arrow_schema)


def _wanted(rows: DataFrame, arrow_schema: pa.Schema) -> DataFrame:
    """Only the wanted columns; the others are of type `null` in the stream."""
    names = [field.name for field in arrow_schema if not pa.types.is_null(field.type)]
    # A batch knows its number of rows by its columns, so there must be one.
    names = names or rows.columns[:1]
    return rows if rows.columns == names else rows.select(*map(quoted, names))


def _activate(rows: DataFrame) -> None:
    """Plan with the settings of the query's session: a thread otherwise has the first session's."""
    session: Any = rows.sparkSession
    jvm = session._jvm
    jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(session._jsparkSession)


_KEEP_ORDER = frozenset({"Filter", "GlobalLimit", "LocalLimit", "Offset", "Project"})


def _is_ordered(rows: DataFrame) -> bool:
    """Whether the query ends with ORDER BY. It may sort by a column that it does not return."""
    plan = rows._jdf.queryExecution().optimizedPlan()
    while plan.nodeName() in _KEEP_ORDER:
        plan = plan.children().head()
    return bool(plan.nodeName() == "Sort")


def _reading(
    rows: DataFrame, arrow_schema: pa.Schema, convert: Convert | None
) -> tuple[bytes, bool]:
    """The Arrow schema to read Spark's batches with, and whether they can be sent unchanged.

    A batch does not tell its types, so types that look the same in memory are read as the declared
    ones.
    """
    from pyspark.sql.pandas.types import to_arrow_schema

    large = (
        rows.sparkSession.conf.get("spark.sql.execution.arrow.useLargeVarTypes", "false") == "true"
    )
    # Spark encodes timestamps as UTC, whatever the session's time zone is.
    made: pa.Schema = to_arrow_schema(rows.schema, prefers_large_types=large)
    if convert is not None:
        return made.serialize().to_pybytes(), False
    fields = []
    for field in made:
        position = arrow_schema.get_field_index(field.name)
        declared = arrow_schema.field(position) if position >= 0 else field
        fields.append(declared if _looks_like(field.type, declared.type) else field)
    read = pa.schema(fields)
    return read.serialize().to_pybytes(), read.equals(arrow_schema.remove_metadata())


def _looks_like(made: pa.DataType, declared: pa.DataType) -> bool:
    """Whether values of both types have the same bytes, and mean the same."""
    if isinstance(declared, pa.BaseExtensionType):
        return _looks_like(made, declared.storage_type)
    if pa.types.is_timestamp(made) and pa.types.is_timestamp(declared):
        return made.unit == declared.unit and (made.tz is None) == (declared.tz is None)
    if made.num_fields and made.id == declared.id and made.num_fields == declared.num_fields:
        if pa.types.is_struct(made) and [field.name for field in made] != [
            field.name for field in declared
        ]:
            return False
        children = range(made.num_fields)
        return all(
            _looks_like(made.field(index).type, declared.field(index).type) for index in children
        )
    return bool(made == declared)


class _EncodedBatches:
    """Reads the batches that Spark hands to a worker.

    PySpark's own readers take a stream that breaks off, because the query has failed, for one that
    has ended. The rows before that would then look like all of them.
    """

    def load_stream(self, stream: BinaryIO) -> Iterator[bytes]:
        while True:
            (length,) = _LENGTH.unpack(_exactly(stream, _LENGTH.size))
            if length == _END_OF_DATA:
                return
            yield _exactly(stream, length)


_LENGTH = struct.Struct("!i")
_END_OF_DATA = -1
"""From pyspark.serializers.SpecialLengths."""


def _exactly(stream: BinaryIO, size: int) -> bytes:
    data = stream.read(size)
    if len(data) < size:
        raise ConnectionResetError("the query has ended")
    return data


@dataclass(frozen=True, slots=True)
class _RelayTask:
    """What a worker runs. It is pickled by reference to this module, with only its fields."""

    outlet: Outlet
    framing: Framing
    arrow_schema: bytes
    """The schema to read Spark's batches with."""
    as_they_are: bool
    convert: Convert | None

    def __call__(self, index: int, encoded: Iterable[bytes]) -> Iterator[None]:
        framer = self.framing.open()
        arrow_schema = pa.ipc.read_schema(pa.py_buffer(self.arrow_schema))
        declared = self.framing.arrow_schema
        convert = self.convert or _Cast(declared)

        def messages(sender: Sender) -> Iterator[Message]:
            for message in encoded:
                sender.check()
                batch = pa.ipc.read_record_batch(pa.py_buffer(message), arrow_schema)
                rows = batch.num_rows
                if rows and self.as_they_are and len(message) <= _LARGE_MESSAGE:
                    yield framer.frame_encoded(message), rows
                    continue
                for parts in framer.frames(
                    batch if self.as_they_are else _with_nulls(convert(batch), declared)
                ):
                    yield parts, rows
                    rows = 0  # rows count once, however many messages they fill

        deliver(self.outlet, index, messages)
        return iter(())


def _with_nulls(batch: pa.RecordBatch, declared: pa.Schema) -> pa.RecordBatch:
    """Add the columns of NULLs, for which Spark was not asked."""
    nulls = pa.nulls(batch.num_rows)
    for field in declared:
        if pa.types.is_null(field.type):
            position = batch.schema.get_field_index(field.name)
            batch = (
                batch.append_column(field, nulls)
                if position < 0
                else batch.set_column(position, field, nulls)
            )
    return batch


class _Cast:
    """Casts to the declared types, where the caller gives no conversion."""

    def __init__(self, declared: pa.Schema) -> None:
        self._declared = declared

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        arrays, fields = [], []
        for field, array in zip(batch.schema, batch.columns, strict=True):
            position = self._declared.get_field_index(field.name)
            declared = self._declared.field(position) if position >= 0 else field
            if not (pa.types.is_null(declared.type) or field.type == declared.type):
                field, array = declared, array.cast(declared.type)
            fields.append(field)
            arrays.append(array)
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


class _BatchFraming(Framing):
    """Messages that are just batches of a known Arrow schema."""

    def __init__(self, arrow_schema: pa.Schema) -> None:
        self._arrow_schema = arrow_schema

    @property
    def arrow_schema(self) -> pa.Schema:
        return self._arrow_schema

    def open(self) -> Framer:
        return _BatchFramer(self._arrow_schema)

    def __reduce__(self) -> tuple[object, ...]:
        return _unpickled, (self._arrow_schema.serialize().to_pybytes(),)


def _unpickled(arrow_schema: bytes) -> _BatchFraming:
    return _BatchFraming(pa.ipc.read_schema(pa.py_buffer(arrow_schema)))


class _BatchFramer(Framer):
    def __init__(self, arrow_schema: pa.Schema) -> None:
        self._arrow_schema = arrow_schema

    def frames(self, batch: pa.RecordBatch) -> Iterator[list[MessagePart]]:
        if batch.num_rows:
            arrays = [batch.column(field.name) for field in self._arrow_schema]
            yield [pa.RecordBatch.from_arrays(arrays, schema=self._arrow_schema).serialize()]

    def frame_encoded(self, message: bytes | memoryview) -> list[MessagePart]:
        return [message]
