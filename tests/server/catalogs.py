"""Catalogs to test with: plain lists of tables, some of which misbehave."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from sparkport.catalog import Catalog, Context, RecordReader, ScanOptions, Schema, Table

NUMBERS = pa.schema(
    [pa.field("id", pa.int64()), pa.field("name", pa.string()), pa.field("value", pa.float64())]
)


class ListedTable(Table):
    """An Arrow table that yields the columns and rows that are asked for."""

    def __init__(self, name: str, rows: pa.Table, comment: str = "") -> None:
        self._name = name
        self._comment = comment
        self.rows = rows
        self.seen: list[ScanOptions] = []

    @property
    def name(self) -> str:
        return self._name

    @property
    def comment(self) -> str:
        return self._comment

    @property
    def arrow_schema(self) -> pa.Schema:
        return self.rows.schema

    def scan(self, ctx: Context, options: ScanOptions) -> RecordReader:
        self.seen.append(options)
        selected = self.rows if options.columns is None else self.rows.select(list(options.columns))
        return selected.to_batches()


class ScriptedTable(Table):
    """A table whose scan is a function of the context and the options."""

    def __init__(
        self,
        name: str,
        arrow_schema: pa.Schema,
        scan: Callable[[Context, ScanOptions], Any] = lambda *_: (),
    ) -> None:
        self._name = name
        self._arrow_schema = arrow_schema
        self._scan = scan

    @property
    def name(self) -> str:
        return self._name

    @property
    def arrow_schema(self) -> pa.Schema:
        return self._arrow_schema

    def scan(self, ctx: Context, options: ScanOptions) -> RecordReader:
        reader: RecordReader = self._scan(ctx, options)
        return reader


class ListedSchema(Schema):
    def __init__(self, name: str, tables: Iterable[Table] = ()) -> None:
        self._name = name
        self.contents = list(tables)

    @property
    def name(self) -> str:
        return self._name

    def tables(self, ctx: Context) -> Sequence[Table]:
        return list(self.contents)


class ListedCatalog(Catalog):
    def __init__(self, name: str = "", schemas: Iterable[ListedSchema] = ()) -> None:
        self._name = name
        self.contents = list(schemas)

    @property
    def name(self) -> str:
        return self._name

    def schemas(self, ctx: Context) -> Sequence[Schema]:
        return list(self.contents)


def catalog_of(*tables: Table, name: str = "", schema: str = "s") -> ListedCatalog:
    """Return a catalog with a schema of these tables."""
    return ListedCatalog(name, [ListedSchema(schema, tables)])


def numbers(count: int = 3) -> pa.Table:
    ids = range(count)
    columns = {"id": ids, "name": [f"n{i}" for i in ids], "value": [i / 2 for i in ids]}
    return pa.table({name: list(values) for name, values in columns.items()}, NUMBERS)


class Endless:
    """A scan that goes on for ever, and notes how it ended."""

    def __init__(self, rows: int = 1000) -> None:
        self.batch = numbers(rows).to_batches()[0]
        self.started = threading.Event()
        self.closed = threading.Event()
        self.cancelled = threading.Event()
        self.yielded = 0

    def __call__(self, ctx: Context, _options: ScanOptions) -> Iterator[pa.RecordBatch]:
        ctx.on_cancel(self.cancelled.set)
        try:
            while True:
                self.started.set()
                self.yielded += 1
                yield self.batch
        except GeneratorExit:
            self.closed.set()
            raise


class Silent:
    """A scan that never yields; it waits until its caller goes away, or until it is released."""

    def __init__(self) -> None:
        self.started = threading.Event()
        self.cancelled = threading.Event()
        self.ended = threading.Event()

    def __call__(self, ctx: Context, _options: ScanOptions) -> Iterator[pa.RecordBatch]:
        ctx.on_cancel(self.cancelled.set)
        self.started.set()
        try:
            self.cancelled.wait()
            ctx.check()
            yield from ()
        finally:
            self.ended.set()
