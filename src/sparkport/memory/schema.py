"""A schema in memory, with tables and functions of any kind."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import pyarrow as pa

from sparkport.catalog import (
    Context,
    CreateTableOptions,
    DropTableOptions,
    OnConflict,
    ReplacingSchema,
    ScalarFunction,
    Table,
    TableFunction,
    TableInOutFunction,
)
from sparkport.catalog.names import folded
from sparkport.engine.types import publishable_schema
from sparkport.errors import AlreadyExists, BadRequest, NotFound, Unsupported
from sparkport.memory.ledger import Ledger
from sparkport.memory.settings import MemorySettings
from sparkport.memory.table import MemoryTable

__all__ = ["MemorySchema"]


class MemorySchema(ReplacingSchema):
    """A schema of tables and functions of any kind; CREATE TABLE makes a `MemoryTable`.

    Thread-safe: every change replaces the lists of objects as a whole, so readers need no lock.
    """

    def __init__(
        self,
        name: str,
        *,
        comment: str = "",
        tags: Mapping[str, str] | None = None,
        settings: MemorySettings | None = None,
    ) -> None:
        if not name:
            raise BadRequest("a schema needs a name")
        self._name = name
        self._comment = comment
        self._tags = dict(tags or {})
        self._ledger = Ledger(settings or MemorySettings())
        self._tables: dict[bytes, Table] = {}
        self._scalar_functions: tuple[ScalarFunction, ...] = ()
        self._table_functions: tuple[TableFunction | TableInOutFunction, ...] = ()
        self.dropped = False

    @property
    def name(self) -> str:
        return self._name

    @property
    def comment(self) -> str:
        return self._comment

    @property
    def tags(self) -> Mapping[str, str]:
        return self._tags

    def tables(self, ctx: Context) -> Sequence[Table]:
        return tuple(self._tables.values())

    def table(self, ctx: Context, name: str) -> Table | None:
        table = self._tables.get(folded(name))
        return table if table is not None and table.name == name else None

    def scalar_functions(self, ctx: Context) -> Sequence[ScalarFunction]:
        return self._scalar_functions

    def table_functions(self, ctx: Context) -> Sequence[TableFunction | TableInOutFunction]:
        return self._table_functions

    def add_table(self, table: Table) -> None:
        """Add a table of any kind. A `MemoryTable` takes part in the catalog's transactions.

        Raises: AlreadyExists; BadRequest when it is in another schema already.
        """
        with self._locked() as ledger:
            self._expect_free(table.name)
            self._place(table)
            ledger.catalog_changed()

    def add_scalar_function(self, function: ScalarFunction) -> None:
        """Add a function. Functions with the same name are overloads."""
        with self._locked() as ledger:
            self._scalar_functions = (*self._scalar_functions, function)
            ledger.catalog_changed()

    def add_table_function(self, function: TableFunction | TableInOutFunction) -> None:
        """Add a function. Functions with the same name are overloads."""
        with self._locked() as ledger:
            self._table_functions = (*self._table_functions, function)
            ledger.catalog_changed()

    def create_table(
        self, ctx: Context, name: str, arrow_schema: pa.Schema, options: CreateTableOptions
    ) -> Table:
        if options.on_conflict is not OnConflict.REPLACE and (
            known := self._tables.get(folded(name))
        ):
            return self._conflict(known, options)
        # An ENUM arrives as a dictionary without its members. It is kept as plain values, which is
        # what the client sees.
        columns = publishable_schema(arrow_schema)
        table = MemoryTable(name, columns, comment=options.comment, constraints=options.constraints)
        with self._locked() as ledger:
            if self.dropped:
                raise NotFound(f"schema {self._name} does not exist")
            known = self._tables.get(folded(name))
            if known is not None:
                if options.on_conflict is not OnConflict.REPLACE:
                    return self._conflict(known, options)
                self._remove(known)
            self._place(table)
            ledger.catalog_changed()
        return table

    def drop_table(self, ctx: Context, name: str, options: DropTableOptions) -> None:
        with self._locked() as ledger:
            table = self._tables.get(folded(name))
            if table is None:
                if options.ignore_not_found:
                    return
                raise NotFound(f"table {self._name}.{name} does not exist")
            self._remove(table)
            ledger.catalog_changed()

    def rename_table(self, ctx: Context, name: str, new_name: str) -> Table:
        if not new_name:
            raise BadRequest("a table needs a name")
        with self._locked() as ledger:
            table = self._tables.get(folded(name))
            if table is None:
                raise NotFound(f"table {self._name}.{name} does not exist")
            if not isinstance(table, MemoryTable):
                raise Unsupported(f"table {self._name}.{name} cannot be renamed")
            if folded(new_name) != folded(name):
                self._expect_free(new_name)
            # In one step, and in the same place: no reader finds the table under neither name, or
            # under both.
            table.rename(new_name)
            self._tables = {folded(each.name): each for each in self._tables.values()}
            ledger.catalog_changed()
            return table

    def replace_table(self, ctx: Context, name: str, replacement: str) -> None:
        with self._locked() as ledger:
            replaced, table = (self._tables.get(folded(each)) for each in (name, replacement))
            for each, wanted in ((replaced, name), (table, replacement)):
                if each is None:
                    raise NotFound(f"table {self._name}.{wanted} does not exist")
            if replaced is None or not isinstance(table, MemoryTable):
                raise Unsupported(f"table {self._name}.{replacement} cannot be renamed")
            self._remove(replaced)
            table.rename(replaced.name)
            self._tables = {folded(each.name): each for each in self._tables.values()}
            ledger.catalog_changed()

    # What the catalog uses, under its lock.

    def move_to(self, ledger: Ledger) -> None:
        """Make the schema part of a catalog, with all its tables.

        Raises: BadRequest when it is part of a catalog already.
        """
        with self._locked() as before:
            if before.has_transactions:
                raise BadRequest(f"schema {self._name} is in a catalog already")
            for table in self._tables.values():
                if isinstance(table, MemoryTable):
                    table.move_to(ledger, self._name)
            self._ledger = ledger

    def clear(self) -> None:
        """Drop all objects of the schema, as it is dropped itself."""
        self.dropped = True
        for table in self._tables.values():
            self._remove(table)

    @contextmanager
    def _locked(self) -> Iterator[Ledger]:
        """Hold the lock of the ledger. The ledger may be replaced while this waits for the lock."""
        while True:
            ledger = self._ledger
            with ledger.lock:
                if ledger is self._ledger:
                    yield ledger
                    return

    def _conflict(self, known: Table, options: CreateTableOptions) -> Table:
        if options.on_conflict is OnConflict.IGNORE:
            return known
        raise AlreadyExists(f"table {self._name}.{known.name} exists already")

    def _expect_free(self, name: str) -> None:
        if not name:
            raise BadRequest("a table needs a name")
        if (known := self._tables.get(folded(name))) is not None:
            raise AlreadyExists(f"table {self._name}.{known.name} exists already")

    def _place(self, table: Table) -> None:
        if isinstance(table, MemoryTable):
            table.move_to(self._ledger, self._name)
        self._tables = {**self._tables, folded(table.name): table}

    def _remove(self, table: Table) -> None:
        if isinstance(table, MemoryTable):
            table.dropped = True
        self._tables = {key: each for key, each in self._tables.items() if each is not table}
