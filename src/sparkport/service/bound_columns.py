"""Fitting a table's batches to the Arrow schema that the client has bound (airport §5.4).

The client reads columns by position and checks neither their number nor their types, so what is
sent must have every column of the bound schema in its place. Columns that were not asked for are of
type `null`, which costs no bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

import pyarrow as pa

from sparkport.engine.cache import Cache
from sparkport.engine.encodings import convert_array
from sparkport.engine.types import narrowed_schema, publishable_schema
from sparkport.errors import CatalogFault
from sparkport.wire.flight_data import BatchWriter, encode_schema, has_dictionaries

__all__ = ["Fit", "slices"]

_Columns: TypeAlias = list[tuple[int, pa.DataType | None] | None]

MESSAGE_BYTES = 1024 * 1024
"""How many bytes a message should hold.

gRPC copies each message, and waits for it to be sent before it takes the next. Messages of 1 to 2
MiB streamed faster than those of half or of several times that size (decision 0001 has the
figures).
"""


_SMALL_BYTES = 16 * 1024
"""Bytes of a batch whose message is remembered."""


class Fit:
    """Fits the batches of one scan. Not thread-safe."""

    def __init__(self, bound: pa.Schema, wanted: Sequence[int] | None, title: str) -> None:
        """`wanted` are positions in `bound`; None means all. `title` names the table in errors."""
        self._title = title
        self._wanted = frozenset(range(len(bound)) if wanted is None else wanted)
        self._bound = bound
        self._sent = _sent(bound, self._wanted)
        self.arrow_schema = self._sent.arrow_schema
        # Where the columns are in batches of this schema, as an earlier scan has found out.
        self._source, self._columns = self._sent.located

    @property
    def schema_message(self) -> bytes:
        """The message that opens the stream."""
        return self._sent.message

    def small_message(self, batch: pa.RecordBatch) -> bytes | None:
        """Return the message of a small batch; None for a larger one.

        The last is remembered: a catalog may yield the same batch for every scan of the same rows.
        """
        known = self._sent.small
        if known is not None and known[0] is batch:
            return known[1]
        if self._sent.has_dictionaries or batch.get_total_buffer_size() > _SMALL_BYTES:
            return None
        (message,) = self.writer().messages(self(batch))
        self._sent.small = batch, message
        return message

    def writer(self) -> BatchWriter:
        """Return a writer for the batches, which is for one stream."""
        return BatchWriter(self.arrow_schema, self._sent.has_dictionaries)

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Raises: CatalogFault when the batch lacks a wanted column, or has another type for it."""
        if self._source is None or not (
            batch.schema is self._source or batch.schema.equals(self._source)
        ):
            self._columns = [self._locate(batch.schema, index) for index in range(len(self._bound))]
            self._source = batch.schema
            self._sent.located = self._source, self._columns
        nulls = pa.nulls(batch.num_rows)
        arrays = []
        for index, column in enumerate(self._columns):
            if column is None:
                arrays.append(nulls)
                continue
            position, target = column
            array = batch.column(position)
            arrays.append(array if target is None else _sent_as(array, target, self._bound, index))
        return pa.RecordBatch.from_arrays(arrays, schema=self.arrow_schema)

    def _locate(self, source: pa.Schema, index: int) -> tuple[int, pa.DataType | None] | None:
        """A bound column's position in the batch, and the type to convert it to; None for nulls."""
        if index not in self._wanted:
            return None
        field = self._bound.field(index)
        positions = source.get_all_field_indices(field.name)
        if len(positions) != 1:
            problem = "no column" if not positions else "more than one column"
            raise CatalogFault(
                f"table {self._title}: its scan yields {problem} {field.name!r}, which it declares"
            )
        found = source.field(positions[0])
        if found.type == field.type:
            return positions[0], None
        published = publishable_schema(pa.schema([found]))
        if field.type in (published.field(0).type, narrowed_schema(published).field(0).type):
            # A dictionary, which is published as plain values (T33), or a wide decimal.
            return positions[0], field.type
        raise CatalogFault(
            f"table {self._title}: its scan yields column {field.name!r} as {found.type}, but "
            f"declares it as {field.type}"
        )


def _sent_as(array: pa.Array, target: pa.DataType, bound: pa.Schema, index: int) -> pa.Array:
    if pa.types.is_decimal(array.type):
        # Values that fit their type fit the narrow one. A check would take ten times as long.
        return array.cast(target, safe=False)
    return convert_array(array, target, bound.field(index).name, from_duckdb=False)


class _Sent:
    """What scans of the same columns of the same bound schema have in common. Thread-safe."""

    __slots__ = ("arrow_schema", "bound", "has_dictionaries", "located", "message", "small")

    def __init__(self, bound: pa.Schema, wanted: frozenset[int]) -> None:
        self.bound = bound
        self.arrow_schema: pa.Schema = pa.schema(
            [
                field if index in wanted else pa.field(field.name, pa.null())
                for index, field in enumerate(bound)
            ]
        )
        self.message = encode_schema(self.arrow_schema)
        self.has_dictionaries = has_dictionaries(self.arrow_schema)
        self.located: tuple[pa.Schema | None, _Columns] = (None, [])
        """The schema of batches, and the positions of the columns in it; replaced as a whole."""
        self.small: tuple[pa.RecordBatch, bytes] | None = None
        """The last small batch, and its message; replaced as a whole."""


_remembered: Cache[tuple[int, frozenset[int]], _Sent] = Cache(2_000)


def _sent(bound: pa.Schema, wanted: frozenset[int]) -> _Sent:
    """Arrow schemas are immutable, and the cache keeps them alive, so identity will do."""
    key = (id(bound), wanted)
    known = _remembered.find(key, None)
    if known is None or known.bound is not bound:
        known = _Sent(bound, wanted)
        _remembered.replace(key, known)
    return known


def slices(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Cut the batch into pieces of a size that is good to send."""
    if (
        # Quick, and at least `nbytes`: columns may share a buffer, which counts here only once.
        batch.get_total_buffer_size() * batch.num_columns <= 2 * MESSAGE_BYTES
        or batch.nbytes <= 2 * MESSAGE_BYTES
        or batch.num_rows <= 1
    ):
        yield batch
        return
    pieces = -(-batch.nbytes // MESSAGE_BYTES)
    rows = max(1, batch.num_rows // pieces)
    if rows > 64:
        rows -= rows % 64  # whole bytes of validity bitmaps need not be shifted
    for offset in range(0, batch.num_rows, rows):
        yield batch.slice(offset, rows)
