"""Statements of SQL that are no more than a scan or an INSERT of a table.

They are done as for DuckDB: with the caller's permissions on the table, row filters and masks, by
the table's own scan in several streams, and by the ordinary INSERT.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from sparkport.catalog import (
    Context,
    Privilege,
    RecordReader,
    SqlStatement,
    TableInsert,
    TableRead,
)
from sparkport.errors import CatalogFault
from sparkport.service.ingest import insert_rows
from sparkport.service.objects import PublishedTable, find_table
from sparkport.service.plan import Wanted, tickets
from sparkport.service.sql_transactions import Entered

if TYPE_CHECKING:
    from sparkport.service.service import Service

__all__ = ["PlainInsert", "PlainRead", "plain_statement"]


def plain_statement(
    entered: Entered, plain: TableRead | TableInsert, parameters: pa.RecordBatch | None
) -> SqlStatement:
    """The statement that does what a catalog says that its statement is.

    Raises: NotFound, PermissionDenied; CatalogFault for columns that the table does not have.
    """
    bound = find_table(entered.ctx, entered.registered, plain.schema, plain.table)
    positions = [bound.arrow_schema.get_field_index(name) for name in plain.columns]
    if not positions or min(positions) < 0 or len(set(positions)) < len(positions):
        raise CatalogFault(f"a statement names other columns than table {bound.title} has")
    if isinstance(plain, TableRead):
        return PlainRead(entered, bound, tuple(positions))
    return PlainInsert(entered, bound, tuple(positions), parameters)


class PlainRead(SqlStatement):
    """A scan of some columns of a table."""

    def __init__(self, entered: Entered, bound: PublishedTable, positions: tuple[int, ...]) -> None:
        """Raises: PermissionDenied."""
        bound.require(entered.ctx, Privilege.READ)
        self._entered = entered
        self._bound = bound
        self._positions = positions

    @property
    def arrow_schema(self) -> pa.Schema:
        return self._bound.only(self._positions).arrow_schema

    @property
    def parameters(self) -> pa.Schema:
        return pa.schema([])

    def tickets(self, service: Service) -> list[bytes]:
        """Signed tickets for the streams of the scan: at least one, which may be empty."""
        wanted = Wanted(self._positions, alone=True)
        return tickets(service, self._entered.ctx, self._bound, wanted)

    def rows(self, ctx: Context) -> RecordReader:
        raise AssertionError("its tickets are read")

    def execute(self, ctx: Context) -> int:
        raise AssertionError("it is a query")


class PlainInsert(SqlStatement):
    """An INSERT of the rows of its parameters."""

    def __init__(
        self,
        entered: Entered,
        bound: PublishedTable,
        positions: tuple[int, ...],
        parameters: pa.RecordBatch | None,
    ) -> None:
        """Raises: PermissionDenied."""
        bound.require(entered.ctx, Privilege.WRITE)
        self._entered = entered
        self._bound = bound
        self._columns = bound.only(positions).arrow_schema
        self._rows = parameters

    @property
    def arrow_schema(self) -> None:
        return None

    @property
    def parameters(self) -> pa.Schema:
        return self._columns

    def rows(self, ctx: Context) -> RecordReader:
        raise AssertionError("it is a change")

    def execute(self, ctx: Context) -> int:
        if self._rows is None:
            return 0
        rows = self._rows.rename_columns(self._columns.names)
        return insert_rows(self._entered, self._bound, rows.schema, [rows], ctx)
