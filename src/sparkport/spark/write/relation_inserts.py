"""INSERT into tables of other formats than Iceberg: staged as Parquet, added by one Spark job.

What is promised depends on the format. Nothing is added before all rows have come and Spark has
written its files, and when Spark refuses, the table is as it was. Where the format has commits of
its own, as Delta has, the rows appear at once. Files in folders (Parquet, ORC, CSV, JSON, …) appear
one after the other at the end of the job, and a server that dies at that moment may leave some of
them. Up to 128 MB of staged rows become a single file of a table without partitions, so they, too,
appear at once or not at all. There are no constraints, no row ids, and no transactions.

Spark may fail, or be cancelled, after it has added the rows. So its files, or Delta's commits, bear
the id of the statement, and the table is looked at before the client is told that nothing was
added.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pyarrow as pa

from sparkport.catalog import Context, DMLOptions, Operation, StagedWrite
from sparkport.errors import (
    BadRequest,
    Cancelled,
    CatalogFault,
    Conflict,
    NotWritable,
    StaleDescriptor,
    Unsupported,
)
from sparkport.spark.iceberg.data_format import DATA_SUFFIX
from sparkport.spark.iceberg.identifiers import Identifier, quoted
from sparkport.spark.iceberg.parquet_output import STAGED, ParquetOutput, writing
from sparkport.spark.jvm.errors import translated
from sparkport.spark.jvm.relay.jobs import start_job
from sparkport.spark.jvm.result_columns import presentable
from sparkport.spark.lake.directory import CatalogEntry, Kind
from sparkport.spark.lake.lake import Lake
from sparkport.spark.lake.other_formats import is_view, told_format
from sparkport.spark.lake.outcomes import OutcomeUnknown
from sparkport.spark.write.spark_writes import own_session
from sparkport.spark.write.staged_rows import staged_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

__all__ = ["stage_insert"]

_log = logging.getLogger(__name__)

_GROUP_ROWS = 131_072
_GROUP_BYTES = 32 * 1024 * 1024
_ONE_FILE_BYTES = 128 * 1024 * 1024
_NEWEST_COMMITS = 100
"""Among so many of the newest commits of a Delta table the statement's own is looked for."""


def stage_insert(
    lake: Lake,
    ctx: Context,
    entry: CatalogEntry,
    columns: pa.Schema,
    operation: Operation,
    options: DMLOptions,
) -> StagedWrite:
    """Begin a statement on a table that only Spark can write; `columns` are those the caller knows.

    Raises: NotWritable for views, for anything but an INSERT outside of transactions, and for
    columns that only Spark can write.
    """
    identifier = entry.identifier
    if is_view(lake, entry):
        raise NotWritable(f"{identifier} is a view: change the tables that it is made of")
    if operation is not Operation.INSERT:
        reason = (
            "only Spark can read it as it is, so they cannot be found by their ids; use Spark"
            if entry.kind is Kind.ICEBERG
            else f"{told_format(lake, entry)}, so they have no row ids; use Spark, or keep them in "
            "an Iceberg table"
        )
        raise NotWritable(f"rows of table {identifier} cannot be changed: {reason}")
    if lake.transactions.collecting(ctx) is not None:
        raise NotWritable(
            f"Spark adds rows to table {identifier} at once, so this INSERT cannot be part of a "
            "transaction: run it outside"
        )
    return _RelationInsert(
        lake, ctx, identifier, columns, _spark_columns(lake, identifier, columns), options
    )


def _spark_columns(lake: Lake, identifier: Identifier, columns: pa.Schema) -> StructType:
    """The columns as Spark has them.

    Raises: StaleDescriptor when the caller knows other columns; NotWritable.
    """
    found = lake.gateway.schema(identifier)
    if found.names != columns.names:
        lake.changed(identifier)
        raise StaleDescriptor(f"the columns of {identifier} have changed: attach the catalog again")
    for field in found.fields:
        if presentable(field.dataType) != field.dataType:
            raise NotWritable(
                f"table {identifier} cannot be written to from here: its column {field.name} is of "
                f"type {field.dataType.simpleString()}, which only Spark knows"
            )
    return found


class _RelationInsert(StagedWrite):
    """Stages rows as a file in the statement's folder, and has Spark add them to the table."""

    def __init__(
        self,
        lake: Lake,
        ctx: Context,
        identifier: Identifier,
        columns: pa.Schema,
        spark_columns: StructType,
        options: DMLOptions,
    ) -> None:
        self._lake = lake
        self._ctx = ctx
        self._identifier = identifier
        self._columns = columns
        self._spark_columns = spark_columns
        self._returning = options.returning
        self._staging = lake.staging.begin(identifier)
        self._open = True
        self._gathered: list[pa.RecordBatch] = []
        self._rows = self._rows_gathered = self._bytes_gathered = self._bytes = 0
        self._output: ParquetOutput | None = None

    def apply(self, batch: pa.RecordBatch) -> pa.RecordBatch | None:
        if not self._open:
            raise Conflict(f"the statement on table {self._identifier} has ended already")
        if batch.schema.types != self._columns.types:
            raise BadRequest(f"table {self._identifier} has columns of other types than were given")
        if batch.num_rows:
            self._gathered.append(batch)
            self._rows += batch.num_rows
            self._rows_gathered += batch.num_rows
            self._bytes_gathered += batch.nbytes
        if self._rows_gathered >= _GROUP_ROWS or self._bytes_gathered >= _GROUP_BYTES:
            self._write()
        return batch if self._returning else None

    def held_bytes(self, batch: pa.RecordBatch) -> int:
        return 0  # there is never more than a group of them

    def commit(self) -> int:
        if not self._open:
            raise Conflict(f"the statement on table {self._identifier} has ended already")
        self._open = False
        try:
            if self._rows:
                self._finish()
                self._add()
        finally:
            self._forget()
        return self._rows

    def abort(self) -> None:
        self._open = False
        self._forget()

    def _write(self) -> None:
        rows = pa.Table.from_batches(self._gathered)
        self._gathered, self._rows_gathered, self._bytes_gathered = [], 0, 0
        arrays = [_as_staged(column) for column in rows.columns]
        staged = pa.Table.from_arrays(arrays, names=self._columns.names)
        with writing(self._identifier):
            if self._output is None:
                storage, location = self._staging.for_spark(f"rows{DATA_SUFFIX}")
                self._output = ParquetOutput(storage, location, staged.schema, STAGED)
            self._output.write(staged)

    def _finish(self) -> None:
        if self._gathered:
            self._write()
        if self._output is not None:
            with writing(self._identifier):
                self._bytes = self._output.close()

    def _add(self) -> None:
        self._ctx.check()
        job = start_job(
            self._lake.spark.sparkContext, self._ctx, f"table {self._identifier}", self._insert
        )
        self._ctx.on_cancel(job.cancel)
        try:
            job.result(meanwhile=self._lake.relay.make_room)
        except Exception as error:  # noqa: BLE001 - raised again, unless the rows are there
            self._expect_added(error)
        else:
            self._lake.attempt(f"the files of table {self._identifier}", self._refresh)
        self._lake.changed(self._identifier)

    def _refresh(self) -> None:
        """Have the lake's session list the table's files again: another session added some."""
        self._lake.spark.catalog.refreshTable(self._identifier.sql)

    def _expect_added(self, error: Exception) -> None:
        """Raises: the error, if nothing was added; OutcomeUnknown, if some or unknown rows were."""
        added = self._added()
        if added == 0 or (added is None and not isinstance(error, Cancelled | CatalogFault)):
            raise error
        if added != self._rows:
            told = (
                "nobody knows whether they are there"
                if added is None
                else f"only {added} of them are there"
            )
            raise OutcomeUnknown(
                f"Spark was stopped while it added {self._rows} rows to table {self._identifier}, "
                f"and {told}: look at the table before you try again"
            ) from error
        _log.warning(
            "table %s: Spark has added the rows of a statement, and failed then", self._identifier
        )

    def _added(self) -> int | None:
        """How many rows of this statement the table has; None where its format does not tell."""
        for look in (self._added_to_delta, self._added_files):
            try:
                return look()
            except Exception:  # noqa: BLE001 - it has another format, or Spark has gone
                _log.debug("table %s cannot be looked at", self._identifier, exc_info=True)
        return None

    def _added_to_delta(self) -> int:
        """Ask Delta's log, where the statement has left its id. Its files bear names of their own.

        Raises: SparkportError for another format.
        """
        query = f"DESCRIBE HISTORY {self._identifier.sql} LIMIT {_NEWEST_COMMITS}"
        commits = self._lake.collected(f"table {self._identifier}", query)
        own = [each for each in commits if each["userMetadata"] == self._staging.id]
        return sum(int(each["operationMetrics"]["numOutputRows"]) for each in own)

    def _added_files(self) -> int:
        """Count rows in files whose names bear the id of the statement. Raises: SparkportError."""
        self._refresh()
        query = (
            f"SELECT count(*) FROM {self._identifier.sql} WHERE contains(_metadata.file_name, ?)"
        )
        ((count,),) = self._lake.collected(f"table {self._identifier}", query, [self._staging.id])
        return int(count)

    def _insert(self) -> None:
        rows = self._staged()
        if self._bytes <= _ONE_FILE_BYTES:
            rows = rows.coalesce(1)
        # By position, which tables of every version of Spark's interface take; partition columns
        # come last.
        rows.write.insertInto(self._identifier.sql)

    def _staged(self) -> DataFrame:
        with translated(f"table {self._identifier}"):
            settings = {
                # What marks files, and commits of Delta, as those of this statement.
                "mapreduce.output.basename": f"part-{self._staging.id}",
                "spark.databricks.delta.commitInfo.userMetadata": self._staging.id,
                # Rows say themselves to which partition of a Hive table they belong.
                "hive.exec.dynamic.partition.mode": "nonstrict",
            }
            session = own_session(self._lake.spark, settings)
            assert self._output is not None
            properties, columns = self._lake.file_properties, self._spark_columns
            rows = staged_rows(session, [self._output.location], properties, columns)
            return rows.select(*(quoted(name) for name in self._spark_columns.names))

    def _forget(self) -> None:
        self._gathered = []
        if self._output is not None:
            self._output.abandon()
        self._staging.discard()


def _as_staged(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Convert values to what Spark reads from Parquet: day intervals are numbers there."""
    if _has_durations(column.type):
        if not pa.types.is_duration(column.type):
            raise Unsupported(
                "intervals inside of lists, maps and structs cannot be written from here: use Spark"
            )
        return column.cast(pa.duration("us")).cast(pa.int64())
    return column


def _has_durations(kind: pa.DataType) -> bool:
    if pa.types.is_duration(kind):
        return True
    return any(_has_durations(kind.field(index).type) for index in range(kind.num_fields))
