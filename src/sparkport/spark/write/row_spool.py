"""Rows that wait until all rows of a statement have come, and are then read more than once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from sparkport.spark.iceberg.parquet_output import writing
from sparkport.spark.lake.staging import Staging
from sparkport.spark.write.key_groups import GROUP_BYTES

__all__ = ["RowSpool"]

_PIECE_BYTES = 64 * 1024 * 1024


class RowSpool:
    """Rows in pieces of about 64 MiB.

    All but the last are in the statement's folder. For one thread.
    """

    rows = 0
    """Number of rows."""

    def __init__(self, staging: Staging, columns: pa.Schema) -> None:
        self._staging = staging
        self._columns = columns
        self._written: list[str] = []
        self._last: list[pa.RecordBatch] = []
        self._bytes = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows.

        Raises: LimitExceeded when the storage is full; PermissionDenied, PreconditionFailed.
        """
        if batch.num_rows:
            self._last.append(batch)
            self.rows += batch.num_rows
            self._bytes += batch.nbytes
            if self._bytes >= _PIECE_BYTES:
                self._put_aside()

    def columns(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Some columns of all rows, in the order in which they came.

        Raises: LimitExceeded, PermissionDenied, PreconditionFailed for errors of the storage.
        """
        for number in range(self._count):
            yield from self._piece(number, names)

    def groups(
        self, names: Sequence[str]
    ) -> Iterator[tuple[pa.Table, Iterator[Sequence[pa.RecordBatch]]]]:
        """All rows, in the order in which they came, in groups of pieces.

        Of each group, some columns are in memory as a table; its pieces, none of which is empty,
        are read one by one. Raises: LimitExceeded, PermissionDenied, PreconditionFailed for errors
        of the storage.
        """
        first = 0
        group: list[pa.RecordBatch] = []
        for number in range(self._count):
            group += self._piece(number, names)
            if number + 1 == self._count or sum(batch.nbytes for batch in group) >= GROUP_BYTES:
                yield pa.Table.from_batches(group), map(self._piece, range(first, number + 1))
                first, group = number + 1, []

    @property
    def _count(self) -> int:
        return len(self._written) + bool(self._last)

    def _piece(self, number: int, names: Sequence[str] | None = None) -> Sequence[pa.RecordBatch]:
        if number == len(self._written):
            return (
                self._last if names is None else [batch.select(list(names)) for batch in self._last]
            )
        places = None if names is None else [self._columns.get_field_index(name) for name in names]
        options = pa.ipc.IpcReadOptions(included_fields=places)
        with (
            writing(self._staging.identifier),
            self._staging.storage.open(self._written[number]) as source,
        ):
            found = pa.ipc.open_stream(source, options=options).read_all()
        batches: Sequence[pa.RecordBatch] = (
            found if names is None else found.select(list(names))
        ).to_batches()
        return batches

    def _put_aside(self) -> None:
        location = self._staging.location(f"waiting-{len(self._written)}.arrow")
        options = pa.ipc.IpcWriteOptions(compression="lz4")
        with (
            writing(self._staging.identifier),
            self._staging.storage.create(location) as sink,
            # A stream, not a file: in a file, all batches would have to share their dictionaries.
            pa.ipc.new_stream(sink, self._columns, options=options) as writer,
        ):
            for batch in self._last:
                writer.write_batch(batch)
        self._written.append(location)
        self._last, self._bytes = [], 0
