"""A table in memory: Arrow data with a history."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TypeVar

import pyarrow as pa

from sparkport.catalog import (
    AddColumnOptions,
    AddFieldOptions,
    ColumnStatistics,
    ConstrainedTable,
    Constraints,
    Context,
    DMLOptions,
    DynamicSchemaTable,
    DynamicTable,
    Operation,
    PartitionedTable,
    RecordReader,
    RemoveColumnOptions,
    RemoveFieldOptions,
    ScanOptions,
    SchemaRequest,
    StagedTable,
    StagedWrite,
    StatisticsTable,
    TimePoint,
)
from sparkport.engine import alterations, field_alterations
from sparkport.engine.alterations import Alteration
from sparkport.engine.constraints.enforce import enforce
from sparkport.engine.databases import Check
from sparkport.errors import BadRequest, Conflict, NotFound
from sparkport.memory import ddl
from sparkport.memory.changes import SegmentChange
from sparkport.memory.commit import KeyCheck, add_to_transaction, commit_change, install
from sparkport.memory.definition import Definition, TableName, define
from sparkport.memory.fields import with_new_fields
from sparkport.memory.ledger import Ledger
from sparkport.memory.merging import merged_neighbours
from sparkport.memory.scan import divide, read_partition, scan_version
from sparkport.memory.segments import Segment, count_rows, segments_of
from sparkport.memory.settings import MemorySettings
from sparkport.memory.statistics import statistics_of
from sparkport.memory.versions import History, Version
from sparkport.memory.write import stage

__all__ = ["MemoryTable"]

_UNLOCKED_ATTEMPTS = 3
_Alteration = TypeVar("_Alteration", bound=Alteration)


class MemoryTable(
    StagedTable,
    PartitionedTable,
    DynamicSchemaTable,
    DynamicTable,
    ConstrainedTable,
    StatisticsTable,
):
    """Rows as immutable Arrow arrays, in versions that share what did not change.

    Readers take no lock and see one version. Writers are optimistic, and fail with Conflict when
    another statement changed the same rows first. A table works by itself, or in a `MemorySchema`
    of a `MemoryCatalog`, which adds transactions.
    """

    def __init__(
        self,
        name: str,
        data: pa.Table | pa.Schema,
        *,
        comment: str = "",
        constraints: Constraints | None = None,
        settings: MemorySettings | None = None,
    ) -> None:
        """Make a table of `data`, of which only small batches are copied.

        Raises: BadRequest; ConstraintViolation when the data do not fulfil the constraints.
        """
        if not name:
            raise BadRequest("a table needs a name")
        columns = data if isinstance(data, pa.Schema) else data.schema
        definition = define(*alterations.new_table(columns, constraints or Constraints(), name))
        segments: list[Segment] = []
        if isinstance(data, pa.Table):
            segments = segments_of(data.to_batches(), 0)
            segments = merged_neighbours(segments, range(len(segments)))
            enforce(
                name, definition.constraints, data, lambda names: data.slice(0, 0).select(names)
            )
        self._name = name
        self._comment = comment
        self._schema_name = ""
        self._key = secrets.token_bytes(8)
        self._next_row_id = count_rows(segments)
        self.dropped = False
        self._settings = settings
        self.ledger = Ledger(settings or MemorySettings())
        nbytes = sum(segment.nbytes for segment in segments)
        first = Version(
            0, self.ledger.settings.now(), 0, definition, tuple(segments), nbytes=nbytes
        )
        self.history = History(first, self.ledger.settings)

    @property
    def name(self) -> str:
        return self._name

    @property
    def title(self) -> TableName:
        """The table's name for messages."""
        return TableName(self._schema_name, self._name)

    @property
    def comment(self) -> str:
        return self._comment

    @property
    def arrow_schema(self) -> pa.Schema:
        return self.current.definition.arrow_schema

    @property
    def constraints(self) -> Constraints:
        return self.current.definition.constraints

    @property
    def current(self) -> Version:
        """The latest committed version."""
        return self.history.current

    def scan(self, ctx: Context, options: ScanOptions) -> RecordReader:
        if options.partition is not None:
            return read_partition(ctx, self.history, self._key, options, self.title)
        return scan_version(ctx, self._version(ctx, options.time_point), options)

    def partitions(self, ctx: Context, options: ScanOptions) -> Sequence[bytes]:
        version = self._version(ctx, options.time_point)
        self.history.pin(version)
        return divide(version, self._key, self._settings or self.ledger.settings)

    def estimated_rows(self, ctx: Context, options: ScanOptions) -> int:
        return self._version(ctx, options.time_point).rows

    def schema_for_request(self, ctx: Context, request: SchemaRequest) -> pa.Schema:
        return self._version(ctx, request.time_point).definition.arrow_schema

    @property
    def offers_statistics(self) -> bool:
        # Without transactions, the scan that follows may read a later version.
        settings = self._settings or self.ledger.settings
        return (
            settings.statistics
            and self.ledger.has_transactions
            and self.current.rows >= settings.statistics_rows
        )

    def column_statistics(self, ctx: Context, column: str) -> ColumnStatistics | None:
        version = self.ledger.lasting_version_for(ctx, self)
        position = None if version is None else version.definition.position(column)
        return (
            None if version is None or position is None else statistics_of(ctx, version, position)
        )

    def stage(self, ctx: Context, operation: Operation, options: DMLOptions) -> StagedWrite:
        self.expect_present()
        if ctx.transaction_id is not None and self.ledger.has_transactions:
            self.ledger.transactions.use_active(ctx.transaction_id)
        return stage(self, ctx, operation, options, self._version(ctx, None))

    def add_column(self, ctx: Context, column_schema: pa.Schema, options: AddColumnOptions) -> None:
        self._alter(
            ctx,
            lambda now: alterations.add_column(now, self.title, column_schema, options),
            ddl.with_new_column,
        )

    def remove_column(self, ctx: Context, name: str, options: RemoveColumnOptions) -> None:
        self._alter(
            ctx,
            lambda now: alterations.remove_column(now, self.title, name, options),
            ddl.without_column,
        )

    def rename_column(self, ctx: Context, name: str, new_name: str) -> None:
        self._alter(ctx, lambda now: alterations.rename_column(now, self.title, name, new_name))

    def set_default(self, ctx: Context, column: str, expression: str) -> None:
        self._alter(ctx, lambda now: alterations.set_default(now, self.title, column, expression))

    def set_not_null(self, ctx: Context, column: str) -> None:
        self._alter(ctx, lambda now: alterations.set_not_null(now, self.title, column))

    def drop_not_null(self, ctx: Context, column: str) -> None:
        self._alter(ctx, lambda now: alterations.drop_not_null(now, self.title, column))

    def change_column_type(self, ctx: Context, column_schema: pa.Schema, expression: str) -> None:
        self._alter(
            ctx,
            lambda now: alterations.change_column_type(now, self.title, column_schema, expression),
            partial(ddl.with_new_type, table=self.title),
        )

    def add_field(
        self, ctx: Context, path: Sequence[str], column_schema: pa.Schema, options: AddFieldOptions
    ) -> None:
        self._alter(
            ctx,
            lambda now: field_alterations.add_field(now, self.title, path, column_schema, options),
            with_new_fields,
        )

    def remove_field(self, ctx: Context, path: Sequence[str], options: RemoveFieldOptions) -> None:
        self._alter(
            ctx,
            lambda now: field_alterations.remove_field(now, self.title, path, options),
            with_new_fields,
        )

    def rename_field(self, ctx: Context, path: Sequence[str], new_name: str) -> None:
        self._alter(
            ctx,
            lambda now: field_alterations.rename_field(now, self.title, path, new_name),
            with_new_fields,
        )

    def add_constraint(self, ctx: Context, constraint: str) -> None:
        self._alter(ctx, lambda now: alterations.add_constraint(now, self.title, constraint))

    def _alter(
        self,
        ctx: Context,
        validate: Callable[[Definition], _Alteration | None],
        rows: Callable[[Version, _Alteration, Check], ddl.Segments] = ddl.same_rows,
    ) -> None:
        """Validate a change and make its result the current version.

        The rows are computed without the lock; when other commits get in between too often, under
        it.
        """

        def altered(version: Version) -> ddl.Altered | None:
            change = validate(version.definition)
            if change is None:
                return None
            return ddl.altered(change, rows(version, change, ctx.check), self.title, ctx.check)

        self.ledger.expect_no_pending(ctx, self)
        for _ in range(_UNLOCKED_ATTEMPTS):
            version = self.current
            result = altered(version)
            with self.locked():
                if self.current is version:
                    self._replace(ctx, result)
                    return
        with self.locked():
            self._replace(ctx, altered(self.current))

    def _replace(self, ctx: Context, altered: ddl.Altered | None) -> None:
        if self.dropped:
            raise NotFound(f"table {self.title} does not exist")
        if altered is None:
            return
        (version,) = install(self.ledger, [(self, altered.definition, altered.segments, None)])
        # DuckDB binds the next statement of the same transaction to the new columns.
        for transaction_id in (ctx.transaction_id, ctx.parent_transaction_id):
            self.ledger.show(transaction_id, {self: version})

    # What the other modules of this package use.

    def commit(
        self, ctx: Context, base: Version, change: SegmentChange, keys: KeyCheck | None
    ) -> None:
        """Commit a statement that saw `base`, into its transaction where it has one."""
        if ctx.transaction_id is not None and self.ledger.has_transactions:
            transaction = self.ledger.transactions.use_active(ctx.transaction_id)
            add_to_transaction(ctx, self, transaction, base, change, keys)
        else:
            version = commit_change(self, base, change, keys)
            self.ledger.show(ctx.parent_transaction_id, {self: version})

    @contextmanager
    def locked(self) -> Iterator[Ledger]:
        """Hold the lock of the ledger. The ledger may be replaced while this waits for the lock."""
        while True:
            ledger = self.ledger
            with ledger.lock:
                if ledger is self.ledger:
                    yield ledger
                    return

    def reserve(self, rows: int) -> int:
        """Reserve row ids, which are never given again, and return the first.

        Called under the lock.
        """
        first = self._next_row_id
        self._next_row_id += rows
        return first

    def expect_present(self) -> None:
        """Raises: Conflict when the table has been dropped."""
        if self.dropped:
            raise Conflict(f"table {self.title} was dropped meanwhile")

    def move_to(self, ledger: Ledger, schema_name: str) -> None:
        """Make the table part of a schema. Raises: BadRequest when it is in another one already."""
        if self._schema_name not in ("", schema_name):
            raise BadRequest(f"table {self._name} is in schema {self._schema_name} already")
        self._schema_name = schema_name
        if ledger is not self.ledger:
            with ledger.lock, self.locked():
                self.history.move_to(self._settings or ledger.settings, ledger.sequence)
                self.ledger = ledger

    def rename(self, name: str) -> None:
        """SegmentChange the name. Called under the lock, by the schema."""
        self._name = name

    def _version(self, ctx: Context, time_point: TimePoint | None) -> Version:
        if time_point is not None and not time_point.is_latest:
            return self.history.at(time_point, self.title)
        return self.ledger.version_for(ctx, self)
