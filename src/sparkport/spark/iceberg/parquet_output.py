"""Parquet files for Iceberg's tables: with field ids, in the layout that every engine reads."""

from __future__ import annotations

import errno
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType, UnknownType

from sparkport.errors import LimitExceeded, PermissionDenied, PreconditionFailed
from sparkport.spark.iceberg.data_format import FIELD_ID
from sparkport.spark.iceberg.identifiers import Identifier
from sparkport.spark.iceberg.storage import Storage
from sparkport.spark.iceberg.types.declared import natural_type

__all__ = [
    "LAST_UPDATED",
    "ROW_ID",
    "STAGED",
    "ParquetOutput",
    "ParquetStyle",
    "file_schema",
    "relabelled",
    "style_of",
    "writing",
]

ROW_ID = pa.field("_row_id", pa.int64(), metadata={FIELD_ID: "2147483540"})
LAST_UPDATED = pa.field(
    "_last_updated_sequence_number", pa.int64(), metadata={FIELD_ID: "2147483539"}
)
"""Iceberg's own columns, for rows that were moved from another file.

NULL means: assigned by the commit that adds this file.
"""

_GROUP_ROWS = 1024 * 1024
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_FORBIDDEN = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})


# ----------------------------------------------------------------------------------------- columns


def file_schema(schema: Schema, *, with_row_ids: bool) -> pa.Schema:
    """The columns of a data file: stored types, with ids at every depth; row ids come last."""
    fields = [
        _in_file(each) for each in schema.fields if not isinstance(each.field_type, UnknownType)
    ]
    return pa.schema([*fields, ROW_ID, LAST_UPDATED] if with_row_ids else fields)


def _in_file(field: NestedField) -> pa.Field:
    return pa.field(
        field.name,
        _type_in_file(field.field_type),
        nullable=not field.required,
        metadata={FIELD_ID: str(field.field_id)},
    )


def _type_in_file(kind: IcebergType) -> pa.DataType:
    """A column's Arrow type, with an id for every field inside: Iceberg finds columns by ids."""
    match kind:
        case StructType():
            return pa.struct([_in_file(field) for field in kind.fields])
        case ListType():
            return pa.list_(_in_file(kind.element_field))
        case MapType():
            return pa.map_(_in_file(kind.key_field), _in_file(kind.value_field))
        case _:
            return natural_type(kind)


def relabelled(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    """View an array under a type of equal layout: other names and ids inside, or an extension."""
    if array.type.equals(wanted, check_metadata=True):
        return array
    _, values = array.__arrow_c_array__()
    return pa.Array._import_from_c_capsule(wanted.__arrow_c_schema__(), values)


# ------------------------------------------------------------------------------------------- files


@dataclass(frozen=True, slots=True)
class ParquetStyle:
    """How a table's properties want its files written."""

    compression: str = "zstd"
    level: int | None = None
    """None is the codec's default; for zstd that is 1."""
    page_bytes: int = 1024 * 1024
    dictionary_bytes: int = 1024 * 1024
    page_rows: int = 20_000


STAGED = ParquetStyle("lz4")
"""For files that Spark reads once, in the same statement."""

_CODECS = {
    "zstd": "zstd",
    "snappy": "snappy",
    "gzip": "gzip",
    "brotli": "brotli",
    "lz4_raw": "lz4",
    "uncompressed": "none",
}
"""Iceberg's names of codecs, and Arrow's."""


def style_of(properties: Mapping[str, str]) -> ParquetStyle | None:
    """The style that a table's properties ask for; None where only Spark can write it."""
    compression = _CODECS.get(properties.get("write.parquet.compression-codec", "zstd").lower())
    if compression is None or any(
        name.startswith("write.parquet.bloom-filter-enabled.") for name in properties
    ):
        return None
    usual, level = ParquetStyle(), properties.get("write.parquet.compression-level")
    try:
        return ParquetStyle(
            compression,
            int(level) if level and compression in _LEVELLED else None,
            int(properties.get("write.parquet.page-size-bytes", usual.page_bytes)),
            int(properties.get("write.parquet.dict-size-bytes", usual.dictionary_bytes)),
            int(properties.get("write.parquet.page-row-limit", usual.page_rows)),
        )
    except ValueError:
        return None


_LEVELLED = frozenset({"zstd", "gzip", "brotli"})


class ParquetOutput:
    """A file that is being written. For one thread at a time.

    The caller closes it, also after an error.
    """

    def __init__(
        self, storage: Storage, location: str, columns: pa.Schema, style: ParquetStyle
    ) -> None:
        """Raises: OSError."""
        self.location = location
        self.rows = 0
        self._storage = storage
        self._sink = storage.create(location)
        try:
            self._writer = pq.ParquetWriter(
                self._sink,
                columns,
                compression=style.compression,
                compression_level=style.level,
                data_page_size=style.page_bytes,
                dictionary_pagesize_limit=style.dictionary_bytes,
                max_rows_per_page=style.page_rows,
                write_page_index=True,
                store_schema=False,
                store_decimal_as_integer=True,  # as Iceberg's specification asks
            )
        except BaseException:
            self._sink.close()
            raise

    @property
    def metadata(self) -> pq.FileMetaData:
        """The footer. Only for a finished file."""
        return self._writer.writer.metadata

    @property
    def bytes_written(self) -> int:
        return int(self._sink.tell())

    def write(self, rows: pa.Table) -> None:
        """Add a row group, or several if there are very many rows.

        Raises: OSError, pa.ArrowException.
        """
        self._writer.write_table(rows, row_group_size=_GROUP_ROWS)
        self.rows += rows.num_rows

    def finish(self) -> int:
        """Close the file, make it durable, and return its size. Raises: OSError."""
        size = self.close()
        self._storage.make_durable(self.location)
        return size

    def close(self) -> int:
        """Close the file and return its size.

        Enough for a file that is removed with its statement. Raises: OSError.
        """
        self._writer.close()
        size = self.bytes_written
        self._sink.close()
        return size

    def abandon(self) -> None:
        """Close it as far as possible, whatever state it is in."""
        for close in (self._writer.close, self._sink.close):
            with suppress(OSError, pa.ArrowException, ValueError):
                close()


@contextmanager
def writing(identifier: Identifier) -> Iterator[None]:
    """Turn storage errors into errors for the user who writes to a table.

    Raises: LimitExceeded when the storage is full; PermissionDenied; PreconditionFailed.
    """
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise LimitExceeded(
                f"the storage of table {identifier} is full; nothing was changed: ask the "
                f"administrator for room"
            ) from error
        if error.errno in _FORBIDDEN or "ACCESS_DENIED" in str(error):  # the code of object stores
            raise PermissionDenied(
                f"the server is not allowed to write files of table {identifier}: ask the "
                f"administrator for access"
            ) from error
        raise PreconditionFailed(
            f"the storage of table {identifier} does not take new files; nothing was changed: try "
            f"again later"
        ) from error
