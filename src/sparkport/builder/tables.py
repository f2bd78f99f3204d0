"""Read-only tables made of what Python programs have: datasets, files, functions."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.dataset as ds

from sparkport.catalog import (
    Constraints,
    Context,
    FileReference,
    FunctionCall,
    PartitionedTable,
    RecordReader,
    Reference,
    ScanOptions,
    Table,
    TableRef,
)
from sparkport.engine.types import refuse_unsupported
from sparkport.errors import BadRequest, NotFound
from sparkport.memory import MemoryTable

__all__ = [
    "DatasetTable",
    "FunctionTable",
    "ReferencedTable",
    "ScanFunction",
    "TableSource",
    "parquet_dataset",
    "table_of",
]

ScanFunction: TypeAlias = Callable[[Context, ScanOptions], RecordReader]
"""A scan as a plain function; its contract is that of `Table.scan`."""

TableSource: TypeAlias = (
    pa.Table
    | pa.RecordBatch
    | pa.Schema
    | ds.Dataset
    | str
    | Path
    | Table
    | ScanFunction
    | Reference
    | Sequence[Reference]
)
"""What a table can be made of; `SchemaBuilder.table` explains it."""

_MAX_PARTITIONS = 4
_BATCH_ROWS = 131_072


class _DescribedTable(Table):
    """The name, comment and columns that all these tables share."""

    def __init__(self, name: str, arrow_schema: pa.Schema, comment: str) -> None:
        refuse_unsupported(arrow_schema, f"table {name}")
        self._name = name
        self._arrow_schema = arrow_schema
        self._comment = comment

    @property
    def name(self) -> str:
        return self._name

    @property
    def comment(self) -> str:
        return self._comment

    @property
    def arrow_schema(self) -> pa.Schema:
        return self._arrow_schema


class DatasetTable(_DescribedTable, PartitionedTable):
    """An Arrow dataset, read in parallel by fragments. Only the wanted columns are read."""

    def __init__(self, name: str, dataset: ds.Dataset, comment: str = "") -> None:
        super().__init__(name, dataset.schema, comment)
        self._dataset = dataset
        self._fragments = list(dataset.get_fragments())

    def partitions(self, ctx: Context, options: ScanOptions) -> Sequence[bytes]:
        """Ranges of fragments: the list of files is fixed when the dataset is made."""
        count = len(self._fragments)
        parts = min(count, _MAX_PARTITIONS)
        bounds = [count * part // parts for part in range(parts + 1)] if parts else []
        return [json.dumps(pair).encode() for pair in pairwise(bounds)]

    def scan(self, ctx: Context, options: ScanOptions) -> Iterator[pa.RecordBatch]:
        first, last = (
            json.loads(options.partition) if options.partition else (0, len(self._fragments))
        )
        for number, fragment in enumerate(self._fragments[first:last], 1):
            scanner = fragment.scanner(
                schema=self._dataset.schema,
                columns=None if options.columns is None else list(options.columns),
                batch_size=options.batch_size or _BATCH_ROWS,
                # A slow client must not make the server read far ahead.
                batch_readahead=2,
                fragment_readahead=1,
            )
            for batch in scanner.to_batches():
                ctx.check()
                ctx.report_progress((number - 1) / (last - first))
                yield batch


class FunctionTable(_DescribedTable):
    """A table whose scan is a Python function."""

    def __init__(
        self, name: str, arrow_schema: pa.Schema, scan: ScanFunction, comment: str = ""
    ) -> None:
        super().__init__(name, arrow_schema, comment)
        self._scan = scan

    def scan(self, ctx: Context, options: ScanOptions) -> RecordReader:
        return self._scan(ctx, options)


class ReferencedTable(_DescribedTable, TableRef):
    """A table that DuckDB reads by itself."""

    def __init__(
        self, name: str, arrow_schema: pa.Schema, references: Sequence[Reference], comment: str = ""
    ) -> None:
        super().__init__(name, arrow_schema, comment)
        self._references = tuple(references)

    def references(self, ctx: Context, options: ScanOptions) -> Sequence[Reference]:
        return self._references


def parquet_dataset(path: str | Path) -> ds.Dataset:
    """A dataset of a Parquet file, or of all those below a folder. Raises: NotFound, BadRequest."""
    try:
        return ds.dataset(str(path), format="parquet", partitioning="hive")
    except FileNotFoundError as error:
        raise NotFound(f"there is no Parquet file or folder {path}") from error
    except (pa.ArrowException, OSError) as error:
        raise BadRequest(f"{path} cannot be read as Parquet: {error}") from error


def table_of(
    name: str,
    source: Any,
    comment: str,
    arrow_schema: pa.Schema | None,
    constraints: Constraints | None,
) -> Table:
    """Make a table of any source. Raises: BadRequest, NotFound, Unsupported."""
    if isinstance(source, Table):
        return source
    if isinstance(source, pa.RecordBatch):
        source = pa.Table.from_batches([source])
    if isinstance(source, pa.Table | pa.Schema):
        return MemoryTable(name, source, comment=comment, constraints=constraints or Constraints())
    if constraints is not None:
        raise BadRequest(f"table {name} is read-only, so it can have no constraints")
    if isinstance(source, str | Path):
        source = parquet_dataset(source)
    if isinstance(source, FileReference | FunctionCall):
        source = [source]
    if isinstance(source, Sequence):
        if arrow_schema is None:
            raise BadRequest(f"table {name} is read by DuckDB itself, so say its arrow_schema")
        return ReferencedTable(name, arrow_schema, source, comment)
    if isinstance(source, ds.Dataset):
        return DatasetTable(name, source, comment)
    if callable(source):
        if arrow_schema is None:
            raise BadRequest(f"table {name} is a scan function, so say its arrow_schema")
        return FunctionTable(name, arrow_schema, source, comment)
    raise BadRequest(f"table {name}: a {type(source).__name__} cannot be served as a table")
