"""Reading: the options of a scan, and the capabilities that refine it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import pyarrow as pa

from sparkport.catalog.context import Context
from sparkport.catalog.filters import Filter
from sparkport.catalog.interfaces import Table

__all__ = [
    "LATEST",
    "DynamicSchemaTable",
    "FramedTable",
    "Framer",
    "Framing",
    "MessagePart",
    "PartitionedTable",
    "RecordReader",
    "ScanOptions",
    "SchemaRequest",
    "TimePoint",
]

RecordReader: TypeAlias = Iterable[pa.RecordBatch]
"""Anything that yields record batches; `pa.RecordBatchReader` is one.

The receiver of a reader iterates it at most once and closes it (`close()`, where it has one) when
done or cancelled. A generator then sees GeneratorExit at its `yield` and can free what it holds.
"""


LATEST = "latest"
"""The name of the version that is the present, on every backend."""


@dataclass(frozen=True, slots=True)
class TimePoint:
    """A point in a table's history. `unit` is "timestamp", "version" or "snapshot", in lower case.

    `value` is text as the user gave it: "2024-01-15T10:30:00Z" and "2024-01-15
    10:30:00[.ffffff][+00]" both occur (airport §5.9, §15.3); a timestamp without zone is UTC.
    The version "latest" is the present. The service asks for that without a time point.
    """

    unit: Literal["timestamp", "version", "snapshot"]
    value: str

    @property
    def is_latest(self) -> bool:
        """Whether this is the present, which has no history to be looked up in."""
        return self.unit != "timestamp" and self.value.strip() == LATEST


@dataclass(frozen=True, slots=True)
class ScanOptions:
    """The options of a scan. A table may always yield more: more columns, more rows."""

    columns: tuple[str, ...] | None = None
    """Names of the columns that will be used; None means all.

    A table may yield more, in any order. Empty means that only the number of rows matters.
    """
    filter: Filter | None = None
    """Rows that do not match it need not be yielded.

    Unless the table has `applies_filters`, the service applies the filter to the batches. So a
    table can ignore it, or use it only to skip work.
    """
    limit: int = 0
    """At most this many rows are wanted; 0 means all."""
    batch_size: int = 0
    """A hint; 0 means that the table chooses."""
    time_point: TimePoint | None = None
    """The point in history to read; None means now."""
    partition: bytes | None = None
    """A value that `PartitionedTable.partitions` returned; None means the whole table."""


@dataclass(frozen=True, slots=True)
class SchemaRequest:
    """The parameters, time and columns for which a dynamic Arrow schema is wanted."""

    parameters: tuple[Any, ...] = ()
    time_point: TimePoint | None = None
    columns: tuple[str, ...] | None = None


class DynamicSchemaTable(Table):
    """A table whose Arrow schema depends on the request, for instance on the point in time."""

    @abstractmethod
    def schema_for_request(self, ctx: Context, request: SchemaRequest) -> pa.Schema:
        """Return the Arrow schema of a scan with this time point, including the row id field.

        Raises: NotFound when there is no such point in time; BadRequest when its text cannot be
        read.
        """


class PartitionedTable(Table):
    """A table that can be read in parallel, each partition by its own stream."""

    @abstractmethod
    def partitions(self, ctx: Context, options: ScanOptions) -> Sequence[bytes]:
        """Divide the scan into disjoint parts; an empty sequence means that there are no rows.

        Each value comes back as `ScanOptions.partition`: in any thread, perhaps never, perhaps
        after the table has changed. Put the version to be read into it, so that all parts read the
        same version. It is signed, so the client can read it but not alter it. Keep it small.
        """

    def as_planned(self, ctx: Context, partition: bytes) -> Table:
        """Return the table with the columns it had when it was divided into partitions.

        For a stream that begins after the columns have changed. The default returns this table;
        then the client is told to run the query again.
        """
        return self


MessagePart: TypeAlias = bytes | memoryview | pa.Buffer
"""A piece of a message. The pieces joined in order are the message; `socket.sendmsg` takes them."""


class Framer(ABC):
    """Encodes batches as messages. Not thread-safe, but keeps nothing from batch to batch."""

    @abstractmethod
    def frames(self, batch: pa.RecordBatch) -> Iterator[list[MessagePart]]:
        """Yield the messages of a batch, each in parts; none for a batch without rows.

        The batch is as `Table.scan` would yield it. A batch always makes the same number of
        messages.

        Raises: CatalogFault when it lacks a wanted column, or has it with another type.
        """

    @abstractmethod
    def frame_encoded(self, message: bytes | memoryview) -> list[MessagePart]:
        """Frame an encoded Arrow IPC record batch message, without decoding it.

        `message` extends from its continuation marker to the end of its body. Its columns are those
        of `Framing.arrow_schema`.

        Raises: CatalogFault when it is no such message.
        """


class Framing(ABC):
    """How the rows of a scan become messages for its client, in whichever process.

    Made by the service. It can be pickled, so that other processes can make messages. Any thread
    may use it.
    """

    @property
    @abstractmethod
    def arrow_schema(self) -> pa.Schema:
        """The stream's columns, all in place; a column that was not asked for has type `null`."""

    @abstractmethod
    def open(self) -> Framer: ...


class FramedTable(Table):
    """A table whose rows arrive as messages, for instance from the workers of a cluster.

    The server only passes them on. The table applies filters itself: the service does not look into
    messages.
    """

    applies_filters = True

    @abstractmethod
    def scan_framed(
        self, ctx: Context, options: ScanOptions, framing: Framing
    ) -> Iterable[bytes | pa.RecordBatch]:
        """Read rows for a client: messages that `framing` has made, or batches, or both.

        Called instead of `scan`. Messages are passed on as they are. The reader is iterated and
        closed as that of `scan` is.

        Raises: what `scan` raises.
        """
