"""INSERT, UPDATE and DELETE as DuckDB sends them: DoExchange, in lockstep (airport §7)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from sparkport.catalog import DMLOptions, Operation
from sparkport.catalog.names import own_spellings
from sparkport.catalog.rowid import ROWID_NAME
from sparkport.engine.encodings import Converter
from sparkport.engine.types import extension_metadata
from sparkport.errors import CatalogFault, SparkportError
from sparkport.service import scan
from sparkport.service.calls import Call
from sparkport.service.first_messages import Opening
from sparkport.service.objects import PublishedTable
from sparkport.service.statements import Statement
from sparkport.wire.flight_data import (
    BatchReader,
    BatchWriter,
    decode_flight_data,
    encode_metadata,
    encode_schema,
)
from sparkport.wire.write import encode_total_changed

if TYPE_CHECKING:
    from sparkport.service.service import Service

__all__ = ["exchange"]


def exchange(
    service: Service, call: Call, opening: Opening, messages: Iterator[bytes]
) -> Iterator[bytes]:
    """Run one statement. The last message counts the changed rows, after the commit (T21)."""
    operation, returning = call.headers.write_operation, call.headers.returning
    ctx, bound = scan.bind(service, call, opening.named, None)
    reader = BatchReader(opening.schema_message)
    statement = Statement(ctx, bound, operation, reader.arrow_schema, DMLOptions(returning))
    try:
        answer = _Answer(bound, operation, reader.arrow_schema) if returning else None
        # Before any batch is read: the client sends none until it has this (T15).
        yield encode_schema(answer.arrow_schema if answer is not None else pa.schema([]))
        failure: SparkportError | None = None
        for message in messages:
            if failure is not None:
                continue
            try:
                batch = reader.read(decode_flight_data(message))
                if batch is None:
                    continue
                returned = statement.apply(statement.received(batch))
                if answer is not None and returned is not None:
                    yield from answer.messages(returned)
            except SparkportError as error:
                if returning:
                    raise
                # Without RETURNING the client looks only at the end, and an error during its writes
                # loses its type. So the error is held back until the client has sent everything
                # (airport §7.6). That may be much, and what has been staged does not wait for it.
                failure = error
                statement.abort()
        if failure is not None:
            raise failure
        changed = statement.commit()
    except BaseException:
        statement.abort()
        raise
    yield encode_metadata(encode_total_changed(changed))


def _typed_as(field: pa.Field, known: pa.Field | None) -> pa.Field:
    return (
        field
        if known is None
        else pa.field(field.name, known.type, metadata=extension_metadata(known))
    )


class _Answer:
    """Makes the answers of RETURNING: a batch for each received batch."""

    def __init__(self, bound: PublishedTable, operation: Operation, received: pa.Schema) -> None:
        self._title = bound.title
        self._rowid = bound.rowid_name
        if operation is Operation.UPDATE:
            # Read by position against what the client has sent (airport §7.4, T17), but with the
            # types that the client knows the columns by. Under some settings it sends others, such
            # as UUIDs as text, and would take that for a UUID.
            known = {
                ROWID_NAME if field.name == bound.rowid_name else field.name: field
                for field in bound.arrow_schema
            }
            self._names = list(map(own_spellings(known), received.names))
            fields = zip(received, self._names, strict=True)
            self.arrow_schema = pa.schema(
                [_typed_as(field, known.get(name)) for field, name in fields]
            )
        else:
            # Found by name. The row id cannot be asked for, and tables need not know it after
            # INSERT.
            self._names = bound.column_names
            self.arrow_schema = pa.schema([bound.arrow_schema.field(name) for name in self._names])
        self._writer = BatchWriter(self.arrow_schema)
        self._source: pa.Schema | None = None
        self._positions: list[int] = []
        self._converter: Converter | None = None

    def messages(self, returned: pa.RecordBatch) -> Iterator[bytes]:
        """Raises: CatalogFault when the table did not return all its columns."""
        if self._source is None or not returned.schema.equals(self._source):
            self._locate(returned.schema)
        batch = returned.select(self._positions)
        yield from self._writer.messages(
            batch if self._converter is None else self._converter.convert(batch)
        )

    def _locate(self, source: pa.Schema) -> None:
        """Find the columns once: all answers of a table have the same."""
        # The client's name for the row id, whatever the table's is (airport §7.2).
        names = [ROWID_NAME if name == self._rowid else name for name in source.names]
        try:
            self._positions = [names.index(name) for name in self._names]
        except ValueError as error:
            raise CatalogFault(
                f"table {self._title} did not return all its columns for RETURNING"
            ) from error
        pairs = zip(self._positions, self.arrow_schema.names, strict=True)
        selected = pa.schema([source.field(index).with_name(name) for index, name in pairs])
        converter = Converter(selected, self.arrow_schema, from_duckdb=False)
        self._source, self._converter = source, None if converter.keeps_columns else converter
