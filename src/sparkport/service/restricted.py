"""Tables of which a caller sees only part: some of the rows, or masked values.

The caller gets a table of its own in place of the catalog's. It offers no finished messages, no
files to read directly, no statistics and no constraints, so there is no way around it. The client's
filter is evaluated after the rules, on what they have left. Only conditions that cannot fail, on
columns that are not masked, are passed on to the table, to save it work.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pyarrow as pa

from sparkport.catalog import (
    Context,
    DMLOptions,
    DynamicSchemaTable,
    Filter,
    Operation,
    PartitionedTable,
    Restrictions,
    ScanOptions,
    SchemaRequest,
    StagedTable,
    StagedWrite,
    Table,
    find_rowid_column,
)
from sparkport.catalog.filters.tree import (
    Between,
    ColumnRef,
    Comparison,
    Conjunction,
    Constant,
    Expression,
    Operator,
    OperatorKind,
    walk,
)
from sparkport.engine.discretion import discreet
from sparkport.engine.visibility import Visibility
from sparkport.errors import NotFound, PermissionDenied, Unsupported
from sparkport.service.closing import closing_reader

__all__ = ["as_seen"]


def as_seen(ctx: Context, schema_name: str, table: Table) -> Table:
    """The table as the caller may see it: the catalog's own where nothing is withheld."""
    if isinstance(table, _RestrictedTable):
        return table
    restrictions = ctx.access.restrictions(schema_name, table.name)
    if restrictions is None:
        return table
    if isinstance(table, PartitionedTable):
        return _RestrictedPartitionedTable(table, restrictions)
    return _RestrictedTable(table, restrictions)


class _RestrictedTable(DynamicSchemaTable, StagedTable):
    applies_filters = False

    def __init__(self, table: Table, restrictions: Restrictions) -> None:
        self._table = table
        self._restrictions = restrictions

    @property
    def name(self) -> str:
        return self._table.name

    @property
    def comment(self) -> str:
        return self._table.comment

    @property
    def arrow_schema(self) -> pa.Schema | None:
        own = self._table.arrow_schema
        return None if own is None else self._visibility(own).arrow_schema

    def schema_for_request(self, ctx: Context, request: SchemaRequest) -> pa.Schema:
        return self._visibility(self._columns_at(ctx, request)).arrow_schema

    def scan(self, ctx: Context, options: ScanOptions) -> Iterator[pa.RecordBatch]:
        visibility = self._visibility(
            self._columns_at(ctx, SchemaRequest(time_point=options.time_point))
        )
        with (
            discreet(False, f"table {self.name}", reading=True),
            closing_reader(self._table.scan(ctx, _passed_on(options, visibility))) as batches,
        ):
            for batch in batches:
                yield visibility.rows(batch, ctx.check)

    def estimated_rows(self, ctx: Context, options: ScanOptions) -> int | None:
        # How many rows there are is for those who see them all.
        return (
            None
            if self._restrictions.row_filters
            else self._table.estimated_rows(ctx, replace(options, filter=None))
        )

    def stage(self, ctx: Context, operation: Operation, options: DMLOptions) -> StagedWrite:
        """Begin a statement.

        Raises: NotWritable; PermissionDenied for a table that cannot tell rows before it changes
        them.
        """
        if not isinstance(self._table, StagedTable):
            raise PermissionDenied(
                f"you see only part of table {self.name}, and could change what you do not see"
            )
        visibility = self._visibility(self._columns_at(ctx, SchemaRequest()))
        return _RestrictedWrite(ctx, self._table, operation, options, visibility)

    def _columns_at(self, ctx: Context, request: SchemaRequest) -> pa.Schema:
        own = self._table.arrow_schema if request.time_point is None else None
        if own is not None:
            return own
        if not isinstance(self._table, DynamicSchemaTable):
            raise Unsupported(f"table {self.name} has no history: query it without AT")
        return self._table.schema_for_request(ctx, request)

    def _visibility(self, columns: pa.Schema) -> Visibility:
        return Visibility.of(self._restrictions, columns, self.name)


class _RestrictedPartitionedTable(_RestrictedTable, PartitionedTable):
    def partitions(self, ctx: Context, options: ScanOptions) -> Sequence[bytes]:
        assert isinstance(self._table, PartitionedTable)
        visibility = self._visibility(
            self._columns_at(ctx, SchemaRequest(time_point=options.time_point))
        )
        return self._table.partitions(ctx, _passed_on(options, visibility))

    def as_planned(self, ctx: Context, partition: bytes) -> Table:
        assert isinstance(self._table, PartitionedTable)
        planned = self._table.as_planned(ctx, partition)
        return self if planned is self._table else type(self)(planned, self._restrictions)


class _RestrictedWrite(StagedWrite):
    """A statement of a caller who sees only part of the table.

    It changes only rows that the caller sees, into rows that the caller sees.
    """

    def __init__(
        self,
        ctx: Context,
        table: StagedTable,
        operation: Operation,
        options: DMLOptions,
        visibility: Visibility,
    ) -> None:
        self._check = ctx.check
        self._operation = operation
        self._returning = options.returning
        self._visibility = visibility
        self._title = table.name
        # The rows as they become, or as they were, tell whether the caller sees them.
        asks = operation is not Operation.INSERT or options.returning
        self._write = table.stage(ctx, operation, replace(options, returning=asks))
        self._before: StagedWrite | None = None
        if operation is Operation.UPDATE and visibility.filtered_by:
            try:
                # A deletion that is never committed: it returns the rows as they were.
                self._before = table.stage(ctx, Operation.DELETE, DMLOptions(returning=True))
            except BaseException:
                self._write.abort()
                raise

    def apply(self, batch: pa.RecordBatch) -> pa.RecordBatch | None:
        if self._operation is Operation.UPDATE:
            masked = sorted(set(self._visibility.masks).intersection(batch.schema.names))
            if masked:
                # For RETURNING the client sends all columns, as it has read them (airport §7.4).
                raise PermissionDenied(
                    f"column {masked[0]} of table {self._title} is masked for you: UPDATE cannot "
                    f"set it, nor have RETURNING"
                )
        if self._operation is Operation.INSERT:
            self._expect_visible(batch)
        try:
            if self._before is not None:
                self._expect_visible(
                    self._before.apply(batch.select([find_rowid_column(batch.schema)]))
                )
            changed = self._write.apply(batch)
        except NotFound as error:
            if self._operation is Operation.INSERT:
                raise
            # rows that do not exist must look like rows that are withheld
            raise self._unseen() from error
        if self._operation is not Operation.INSERT:
            self._expect_visible(changed)
        return (
            self._visibility.masked(changed, self._check)
            if self._returning and changed is not None
            else None
        )

    def held_bytes(self, batch: pa.RecordBatch) -> int:
        before = (
            0
            if self._before is None
            else self._before.held_bytes(batch.select([find_rowid_column(batch.schema)]))
        )
        return self._write.held_bytes(batch) + before

    def commit(self) -> int:
        self._forget_before()
        return self._write.commit()

    def abort(self) -> None:
        self._forget_before()
        self._write.abort()

    def _forget_before(self) -> None:
        if self._before is not None:
            self._before.abort()
            self._before = None

    def _expect_visible(self, rows: pa.RecordBatch | None) -> None:
        keep = None if rows is None else self._visibility.keep(rows, self._check)
        if keep is not None and keep.true_count != len(keep):
            raise self._unseen()

    def _unseen(self) -> PermissionDenied:
        return PermissionDenied(
            f"the {self._operation.value.upper()} is about rows of table {self._title} that you "
            f"do not see"
        )


def _passed_on(options: ScanOptions, visibility: Visibility) -> ScanOptions:
    """What the table itself is asked for."""
    row_filter = None
    if options.filter is not None:
        row_filter = options.filter.weaken(lambda expression: _harmless(expression, visibility))
    # The service evaluates the client's filter afterwards, so it asks for the filter's columns
    # anyway.
    return replace(
        options, columns=visibility.needed_for(options.columns), filter=_some(row_filter), limit=0
    )


def _some(row_filter: Filter | None) -> Filter | None:
    # Without the text that the client sent: it tells what was left out.
    return (
        replace(row_filter, json="") if row_filter is not None and row_filter.expressions else None
    )


_CANNOT_FAIL = frozenset(
    {
        OperatorKind.NOT,
        OperatorKind.IS_NULL,
        OperatorKind.IS_NOT_NULL,
        OperatorKind.IN,
        OperatorKind.NOT_IN,
    }
)


def _harmless(expression: Expression, visibility: Visibility) -> bool:
    """Whether a condition tells nothing of rows or values that the caller does not see.

    It must not fail, and must not read masked columns.
    """
    for node in walk(expression):
        match node:
            case ColumnRef():
                if not visibility.shows(node.name):
                    return False
            case Operator():
                if node.kind not in _CANNOT_FAIL:
                    return False
            case Constant() | Comparison() | Between() | Conjunction():
                pass
            case _:
                return False
    return True
