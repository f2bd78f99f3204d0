"""Rows that Spark is to read: staged as Parquet, in the types that the table stores."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import GeographyType, GeometryType, IcebergType

from sparkport.errors import NotWritable
from sparkport.spark.iceberg.data_format import DATA_SUFFIX
from sparkport.spark.iceberg.parquet_output import (
    STAGED,
    ParquetOutput,
    file_schema,
    relabelled,
    writing,
)
from sparkport.spark.iceberg.table_state import TableState
from sparkport.spark.iceberg.types.nested import fields_inside
from sparkport.spark.lake.changes import WrittenFile
from sparkport.spark.lake.staging import Staging

__all__ = ["SourceWriter", "expect_written_types"]

_FILE_ROWS = 4_000_000


def expect_written_types(state: TableState) -> None:
    """Raises: NotWritable for a table with a column that neither Arrow nor Spark can write here."""
    for field in state.schema.fields:
        kind = _place_type(field.field_type)
        if kind is not None:
            raise NotWritable(
                f"no rows can be written to table {state.identifier} from here, only read and "
                f"deleted: its column {field.name} is of type {kind}; write them with an engine "
                "that has this type"
            )


@lru_cache(maxsize=1000)
def _place_type(kind: IcebergType) -> str | None:
    """The type of places on Earth that a type is, or has inside; None if there is none."""
    if isinstance(kind, GeometryType | GeographyType):
        return "geometry" if isinstance(kind, GeometryType) else "geography"
    inside = (_place_type(field.field_type) for field in fields_inside(kind))
    return next(filter(None, inside), None)


class SourceWriter:
    """Writes files where Spark's executors can read them, which are removed with the statement.

    They can be read back like data files, by field id.
    """

    def __init__(
        self, state: TableState, staging: Staging, names: Iterable[str], *, with_row_ids: bool
    ) -> None:
        """`names` are the stored names of the columns that the statement has."""
        wanted = set(names)
        columns = Schema(*(field for field in state.schema.fields if field.name in wanted))
        self._staging = staging
        self._columns = file_schema(columns, with_row_ids=with_row_ids)
        self._output: ParquetOutput | None = None
        self._files: list[WrittenFile] = []

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the files, without the row id."""
        return tuple(
            name
            for name in self._columns.names
            if name not in ("_row_id", "_last_updated_sequence_number")
        )

    def write(self, rows: pa.RecordBatch) -> None:
        """Add rows: stored columns by name, and `_row_id`.

        Raises: LimitExceeded when the storage is full; PermissionDenied, PreconditionFailed.
        """
        arrays = []
        for field in self._columns:
            position = rows.schema.get_field_index(field.name)
            array = rows.column(position) if position >= 0 else pa.nulls(rows.num_rows, field.type)
            arrays.append(relabelled(array, field.type))
        with writing(self._staging.identifier):
            if self._output is None:
                storage, location = self._staging.for_spark(f"{len(self._files)}{DATA_SUFFIX}")
                self._output = ParquetOutput(storage, location, self._columns, STAGED)
            self._output.write(pa.Table.from_arrays(arrays, schema=self._columns))
            if self._output.rows >= _FILE_ROWS:
                self._close()

    def finish(self) -> list[WrittenFile]:
        with writing(self._staging.identifier):
            self._close()
        return self._files

    def abort(self) -> None:
        """Close the file, which is removed with the folder. Never raises."""
        if self._output is not None:
            self._output.abandon()
            self._output = None

    def _close(self) -> None:
        if self._output is not None:
            output, self._output = self._output, None
            self._files.append(WrittenFile(output.location, output.close(), output.rows, 0))
