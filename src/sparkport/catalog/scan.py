"""Reading: what a scan is asked for, and the capabilities that refine it."""

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

Whoever receives a reader iterates it at most once and closes it (`close()`, where it has one) when
done or cancelled; generators thus see GeneratorExit at their `yield` and can free what they hold.
"""


@dataclass(frozen=True, slots=True)
class TimePoint:
    """A point in a table's history. `unit` is one of "timestamp", "version", "snapshot", always
    lower case.

    `value` is text as the user gave it: "2024-01-15T10:30:00Z" and "2024-01-15
    10:30:00[.ffffff][+00]" both occur (airport §5.9, §15.3); a timestamp without zone is UTC.
    """

    unit: Literal["timestamp", "version", "snapshot"]
    value: str


@dataclass(frozen=True, slots=True)
class ScanOptions:
    """What a scan is asked for. Every field is a wish that a table may answer with more: more
    columns, more rows.
    """

    columns: tuple[str, ...] | None = None
    """Names of the columns that will be used; None means all. A superset may be yielded, in any
    order. May be empty: then only the number of rows matters."""
    filter: Filter | None = None
    """Rows that do not match it need not be yielded. Unless the table says `applies_filters`, the
    service evaluates it on the batches, so a table can ignore it or use it only to skip work."""
    limit: int = 0
    """At most so many rows are wanted; 0 means all."""
    batch_size: int = 0
    """A hint; 0 means that the table chooses."""
    time_point: TimePoint | None = None
    """Where in history to read; None means now."""
    partition: bytes | None = None
    """One of the values that `PartitionedTable.partitions` returned; None means the whole table."""


@dataclass(frozen=True, slots=True)
class SchemaRequest:
    """For which parameters, time and columns a dynamic Arrow schema is wanted."""

    parameters: tuple[Any, ...] = ()
    time_point: TimePoint | None = None
    columns: tuple[str, ...] | None = None


class DynamicSchemaTable(Table):
    """A table whose Arrow schema depends on the request, for instance on the point in time."""

    @abstractmethod
    def schema_for_request(self, ctx: Context, request: SchemaRequest) -> pa.Schema:
        """The Arrow schema that a scan with the same time point yields; the row id field included.

        Raises: NotFound when there is no such point in time; BadRequest when its text cannot be
        read.
        """


class PartitionedTable(Table):
    """A table that can be read in parallel, each partition by its own stream."""

    @abstractmethod
    def partitions(self, ctx: Context, options: ScanOptions) -> Sequence[bytes]:
        """Divide the scan into disjoint parts; an empty sequence means that there are no rows.

        Each value comes back as `ScanOptions.partition`, to any thread, perhaps never, perhaps
        after the table has changed: pin the version to be read in it, so that all parts read the
        same one. It is signed on its way, so the client can read it but not alter it; keep it
        small.
        """

    def as_planned(self, ctx: Context, partition: bytes) -> Table:
        """The table with the columns it had when it was divided, for a stream that begins after
        they were changed.

        By default it is this one; when its columns have changed since, the client is told to run
        the query again.
        """
        return self


MessagePart: TypeAlias = bytes | memoryview | pa.Buffer
"""A piece of a message; joined in order they are the message, and `socket.sendmsg` takes them as
they are.
"""


class Framer(ABC):
    """Makes the messages of batches. Not thread-safe; nothing is remembered from one batch to the
    next.
    """

    @abstractmethod
    def frames(self, batch: pa.RecordBatch) -> Iterator[list[MessagePart]]:
        """The messages of a batch, each in parts; none for a batch without rows.

        The batch is as `Table.scan` would yield it. The same batch always makes the same number of
        messages.

        Raises: CatalogFault when it lacks a wanted column, or has it with another type.
        """

    @abstractmethod
    def frame_encoded(self, message: bytes | memoryview) -> list[MessagePart]:
        """The message of a batch that is encoded already: an Arrow IPC record batch message, from
        its continuation marker to the end of its body, whose columns are those of
        `Framing.arrow_schema`. It is not looked into.

        Raises: CatalogFault when it is no such message.
        """


class Framing(ABC):
    """How the rows of one scan become messages for its client, wherever that is done.

    Made by the service. It can be pickled, so that other processes can make messages, and used by
    any thread.
    """

    @property
    @abstractmethod
    def arrow_schema(self) -> pa.Schema:
        """Of the stream: every column in its place, those that nobody asked for with type
        `null`.
        """

    @abstractmethod
    def open(self) -> Framer: ...


class FramedTable(Table):
    """A table whose rows are made into messages by others, such as the workers of a cluster, and
    only passed on here.

    It applies filters itself: the service does not look into messages.
    """

    applies_filters = True

    @abstractmethod
    def scan_framed(
        self, ctx: Context, options: ScanOptions, framing: Framing
    ) -> Iterable[bytes | pa.RecordBatch]:
        """Read rows for a client, instead of `scan`: messages that `framing` has made, or batches,
        or some of each.

        Messages are passed on as they are. What holds for the reader of `scan` holds for this one
        too.

        Raises: what `scan` raises.
        """
