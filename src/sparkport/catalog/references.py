"""Tables that DuckDB reads by itself: the server only says where (airport §5.8)."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.fs as fs

from sparkport.catalog.context import Context
from sparkport.catalog.interfaces import Table
from sparkport.catalog.scan import PartitionedTable, RecordReader, ScanOptions
from sparkport.errors import CatalogFault, Unsupported

__all__ = ["Directly", "DirectTable", "FileReference", "FunctionCall", "Reference", "TableRef"]


@dataclass(frozen=True, slots=True)
class FileReference:
    """A file that DuckDB opens itself.

    Parquet files are read by DuckDB's own reader, with all its file systems and secrets (`s3://…`,
    `https://…`, paths). Arrow IPC files and streams must be URIs that Arrow's file systems know
    (`file:///…`), and hold exactly the table's columns.
    """

    format: Literal["parquet", "ipc-file", "ipc-stream"]
    uri: str


@dataclass(frozen=True, slots=True)
class FunctionCall:
    """A call of a DuckDB table function, such as `read_parquet`, `read_csv` or `iceberg_scan`.

    The client must have loaded the function's extension. Each argument must fit an Arrow value.
    """

    function: str
    arguments: tuple[Any, ...] = ()
    named_arguments: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if any(name.startswith("arg_") for name in self.named_arguments):
            raise CatalogFault(
                "a named argument cannot begin with arg_: that is how positional ones are sent"
            )


Reference: TypeAlias = FileReference | FunctionCall


class TableRef(Table):
    """A table whose rows never pass through the server.

    DuckDB matches columns by name and requires exactly the types that `arrow_schema` declares. A
    column that a source lacks reads as NULL, and DuckDB applies the filters. The table can have no
    row id: DuckDB would fail with an internal error (T40).
    """

    @abstractmethod
    def references(self, ctx: Context, options: ScanOptions) -> Sequence[Reference]:
        """Return what DuckDB must read: all rows together, without overlap; empty means no rows."""

    def scan(self, ctx: Context, options: ScanOptions) -> RecordReader:
        """Read the files here, for clients other than DuckDB. Raises: Unsupported."""
        for reference in self.references(ctx, options):
            if isinstance(reference, FunctionCall):
                raise Unsupported(
                    f"table {self.name} can be read only by DuckDB, "
                    f"which calls {reference.function}"
                )
            yield from _read(ctx, reference, options, self.arrow_schema)


@dataclass(frozen=True, slots=True)
class Directly:
    """A scan of which DuckDB reads some rows itself, and the server sends the others."""

    references: tuple[Reference, ...]
    partitions: tuple[bytes, ...] = ()
    """The other rows; each value comes back as `ScanOptions.partition`."""


class DirectTable(PartitionedTable):
    """A table of which DuckDB may read some rows itself where that is better."""

    @abstractmethod
    def directly(self, ctx: Context, options: ScanOptions) -> Directly | None:
        """Divide a scan into rows that DuckDB reads itself and rows that the server sends.

        Together they are all rows, without overlap. None means that the server sends all of them.
        As with `TableRef`, columns are matched by name and exact type. Not called when the row id
        is wanted (T40).
        """


def _read(
    ctx: Context, reference: FileReference, options: ScanOptions, arrow_schema: pa.Schema | None
) -> Iterator[pa.RecordBatch]:
    read = _parquet if reference.format == "parquet" else _ipc
    try:
        filesystem, path = (
            fs.FileSystem.from_uri(reference.uri)
            if "://" in reference.uri
            else (fs.LocalFileSystem(), reference.uri)
        )
        for batch in read(filesystem, path, reference, options, arrow_schema):
            ctx.check()
            yield batch
    except (pa.ArrowException, OSError) as error:
        raise CatalogFault("a file of this table cannot be read by the server") from error


def _parquet(
    filesystem: fs.FileSystem,
    path: str,
    _: FileReference,
    options: ScanOptions,
    arrow_schema: pa.Schema | None,
) -> Iterator[pa.RecordBatch]:
    # With the table's own columns: a column that the file lacks reads as NULL, as in DuckDB.
    dataset = ds.dataset(path, arrow_schema, format="parquet", filesystem=filesystem)
    yield from dataset.to_batches(
        columns=None if options.columns is None else list(options.columns)
    )


def _ipc(
    filesystem: fs.FileSystem,
    path: str,
    reference: FileReference,
    _: ScanOptions,
    __: pa.Schema | None,
) -> Iterator[pa.RecordBatch]:
    with filesystem.open_input_file(path) as source:
        if reference.format == "ipc-stream":
            yield from pa.ipc.open_stream(source)
        else:
            opened = pa.ipc.open_file(source)
            yield from (opened.get_batch(index) for index in range(opened.num_record_batches))
