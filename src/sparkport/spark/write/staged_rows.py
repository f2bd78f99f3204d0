"""Rows that were staged as Parquet, as a DataFrame of Spark.

Spark reads files of this machine by itself. Files in an object store are opened in its Python
workers, by the lake's storages: Java may have no file system for them. The properties of the
storage, with their secrets, are in the function that the workers get. Plans, the event log and
Spark's pages only name that function. It travels like the tasks of Iceberg in the JVM that write
these rows to the table, and that carry the same properties; so nobody learns of them in this way
who would not learn of them anyhow. Scans are different: their workers are connected to the server,
which hands over properties when a task starts. A job of Spark's engine has no such connection.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from sparkport.spark.iceberg.identifiers import quoted
from sparkport.spark.iceberg.locations import local_path, open_parquet

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructField, StructType

__all__ = ["staged_rows"]

_BATCH_ROWS = 10_000
"""As many as Spark itself puts into a batch."""


def staged_rows(
    session: SparkSession,
    locations: Sequence[str],
    properties: Mapping[str, str],
    columns: StructType | None = None,
) -> DataFrame:
    """The rows of these files; `columns` are Spark's types, where the files alone do not tell them.

    Raises: OSError.
    """
    paths = [local_path(location) for location in locations]
    if None not in paths:
        reader = session.read if columns is None else session.read.schema(columns)
        return reader.parquet(*(f"file:{path}" for path in paths))  # Hadoop's form, not a URL
    from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

    if columns is None:
        with open_parquet(locations[0], properties) as file:
            found = [each.with_nullable(True) for each in file.schema_arrow]
        columns = from_arrow_schema(pa.schema(found), prefer_timestamp_ntz=True)
    # One partition for each file. Spark would also divide a table of their names in its own way.
    numbers = session.range(0, len(locations), 1, len(locations))
    plain = _without_intervals(columns)
    read = _ReadStaged(tuple(locations), properties, to_arrow_schema(plain))
    return _mapped(numbers, read, plain).selectExpr(*map(_selected, columns.fields))


def _mapped(numbers: DataFrame, read: _ReadStaged, columns: StructType) -> DataFrame:
    """Do what `mapInArrow` does. That asks for pandas, which it does not use."""
    from pyspark.sql import DataFrame
    from pyspark.sql.udf import UserDefinedFunction
    from pyspark.util import PythonEvalType

    kind = PythonEvalType.SQL_MAP_ARROW_ITER_UDF
    function = UserDefinedFunction(read, columns, name="staged rows", evalType=kind)
    java: Any = numbers._jdf
    column: Any = function(numbers["id"])
    return DataFrame(java.mapInArrow(column._jc, False, None), numbers.sparkSession)


def _without_intervals(columns: StructType) -> StructType:
    """The columns as they come from the workers, with the microseconds of intervals as numbers.

    Spark takes a NULL for zero when it gets an interval from Arrow.
    """
    from pyspark.sql.types import LongType, StructField, StructType

    return StructType(
        [
            StructField(each.name, LongType() if _is_interval(each) else each.dataType)
            for each in columns.fields
        ]
    )


def _selected(column: StructField) -> str:
    name = quoted(column.name)
    if not _is_interval(column):
        return name
    kind = column.dataType.simpleString()
    return f"CAST(INTERVAL '0.000001' SECOND * {name} AS {kind}) AS {name}"


def _is_interval(column: StructField) -> bool:
    from pyspark.sql.types import DayTimeIntervalType

    return isinstance(column.dataType, DayTimeIntervalType)


@dataclass(frozen=True, slots=True)
class _ReadStaged:
    """What a worker runs. It is pickled by reference to this module, with only its fields."""

    locations: tuple[str, ...] = field(repr=False)
    properties: Mapping[str, str] = field(repr=False)
    columns: pa.Schema = field(repr=False)

    def __call__(self, numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                yield from self._read(self.locations[number])

    def _read(self, location: str) -> Iterator[pa.RecordBatch]:
        with open_parquet(location, self.properties) as file:
            for rows in file.iter_batches(_BATCH_ROWS, columns=self.columns.names):
                arrays = [rows.column(each.name).cast(each.type) for each in self.columns]
                yield pa.RecordBatch.from_arrays(arrays, schema=self.columns)
