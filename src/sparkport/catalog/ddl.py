"""Changes of the catalog itself: schemas, tables, columns."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

import pyarrow as pa

from sparkport.catalog.constraints import Constraints
from sparkport.catalog.context import Context
from sparkport.catalog.interfaces import Catalog, Schema, Table
from sparkport.errors import Unsupported

__all__ = [
    "AddColumnOptions",
    "AddFieldOptions",
    "CreateSchemaOptions",
    "CreateTableOptions",
    "DropSchemaOptions",
    "DropTableOptions",
    "DynamicCatalog",
    "DynamicSchema",
    "DynamicTable",
    "OnConflict",
    "RemoveColumnOptions",
    "RemoveFieldOptions",
    "ReplacingSchema",
    "UnalterableTable",
]


class OnConflict(str, Enum):
    """What CREATE does when the object exists: fail, keep the object, or replace it."""

    ERROR = "error"
    IGNORE = "ignore"
    REPLACE = "replace"


@dataclass(frozen=True, slots=True)
class CreateSchemaOptions:
    """Documentation of the new schema."""

    comment: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DropSchemaOptions:
    """`ignore_not_found`: a missing schema is no error. `cascade`: also drop its tables."""

    ignore_not_found: bool = False
    cascade: bool = False


@dataclass(frozen=True, slots=True)
class CreateTableOptions:
    """The parts of CREATE TABLE other than its columns.

    `constraints` merges the contract's index lists (`NotNullConstraints`, `UniqueConstraints`) and
    the client's name lists. Its NOT NULL columns are also `nullable=False` in the Arrow schema
    given to `create_table`.
    """

    on_conflict: OnConflict = OnConflict.ERROR
    comment: str = ""
    constraints: Constraints = field(default_factory=Constraints)


@dataclass(frozen=True, slots=True)
class DropTableOptions:
    """`ignore_not_found`: a missing table is no error."""

    ignore_not_found: bool = False


@dataclass(frozen=True, slots=True)
class AddColumnOptions:
    """`if_column_not_exists`: an existing column is no error."""

    if_column_not_exists: bool = False
    ignore_not_found: bool = False


@dataclass(frozen=True, slots=True)
class RemoveColumnOptions:
    """`if_column_exists`: a missing column is no error. `cascade`: also drop its constraints."""

    if_column_exists: bool = False
    ignore_not_found: bool = False
    cascade: bool = False


@dataclass(frozen=True, slots=True)
class AddFieldOptions:
    """`if_field_not_exists`: an existing field is no error."""

    if_field_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class RemoveFieldOptions:
    """`if_field_exists`: a missing field is no error."""

    if_field_exists: bool = False
    cascade: bool = False


class DynamicCatalog(Catalog):
    """A catalog whose schemas can be created and dropped.

    A change is durable when the method returns.
    """

    @abstractmethod
    def create_schema(self, ctx: Context, name: str, options: CreateSchemaOptions) -> Schema:
        """Create a schema. Raises: AlreadyExists."""

    @abstractmethod
    def drop_schema(self, ctx: Context, name: str, options: DropSchemaOptions) -> None:
        """Drop a schema.

        Raises: NotFound unless `ignore_not_found`; SchemaNotEmpty while it has tables, unless
        `cascade`.
        """


class DynamicSchema(Schema):
    """A schema whose tables can be created and dropped.

    A change is durable when the method returns.
    """

    @abstractmethod
    def create_table(
        self, ctx: Context, name: str, arrow_schema: pa.Schema, options: CreateTableOptions
    ) -> Table:
        """Create a table from an Arrow schema without a row id.

        The returned table has a row id if its rows can be changed. With `on_conflict` IGNORE an
        existing table is returned.

        Raises: AlreadyExists when the table exists and `on_conflict` is ERROR.
        """

    @abstractmethod
    def drop_table(self, ctx: Context, name: str, options: DropTableOptions) -> None:
        """Drop a table. Raises: NotFound unless `ignore_not_found`."""

    @abstractmethod
    def rename_table(self, ctx: Context, name: str, new_name: str) -> Table:
        """Rename a table. Raises: NotFound, AlreadyExists."""


class ReplacingSchema(DynamicSchema):
    """A schema in which a table can take the place of another one at one moment.

    Without it, clients that replace a table rename both, one after the other.
    """

    @abstractmethod
    def replace_table(self, ctx: Context, name: str, replacement: str) -> None:
        """Give table `replacement` the name of table `name`, which is dropped.

        All of it is done, or none, and nobody finds no table of that name in between.

        Raises: NotFound; Unsupported, before anything is done, where that cannot be promised.
        """


class DynamicTable(Table):
    """A table whose columns can be changed.

    A change is durable when the method returns, and keeps the rows. Existing columns are named as
    the table spells them, even where a new column of that name is asked for. A method that the
    table cannot offer raises Unsupported; the methods outside the contract do so by default. Every
    method raises NotFound for a column or field that does not exist, AlreadyExists for a new name
    that does, and Conflict when the table was changed meanwhile.
    """

    @abstractmethod
    def add_column(self, ctx: Context, column_schema: pa.Schema, options: AddColumnOptions) -> None:
        """Add the only field of `column_schema` as the last column; existing rows get NULL."""

    @abstractmethod
    def remove_column(self, ctx: Context, name: str, options: RemoveColumnOptions) -> None:
        """Remove a column.

        Raises: PreconditionFailed when it is the last column, or, without `cascade`, when a
        constraint uses it.
        """

    def rename_column(self, ctx: Context, old_name: str, new_name: str) -> None:
        """Rename a column."""
        raise _cannot(self, "rename a column")

    def set_default(self, ctx: Context, column: str, expression: str) -> None:
        """Set the default, DuckDB SQL, published as field metadata `default` (airport §3.6)."""
        raise _cannot(self, "set a default")

    def set_not_null(self, ctx: Context, column: str) -> None:
        """Forbid NULLs in a column. Raises: ConstraintViolation when it holds NULLs."""
        raise _cannot(self, "set NOT NULL")

    def drop_not_null(self, ctx: Context, column: str) -> None:
        """Allow NULLs in a column."""
        raise _cannot(self, "drop NOT NULL")

    def change_column_type(self, ctx: Context, column_schema: pa.Schema, expression: str) -> None:
        """Change a column to the only field of `column_schema`.

        `expression` is DuckDB SQL that computes the new values.
        """
        raise _cannot(self, "change the type of a column")

    def add_field(
        self, ctx: Context, path: Sequence[str], column_schema: pa.Schema, options: AddFieldOptions
    ) -> None:
        """Add the only field of `column_schema` to the struct at `path`."""
        raise _cannot(self, "add a field")

    def remove_field(self, ctx: Context, path: Sequence[str], options: RemoveFieldOptions) -> None:
        """Remove the field at `path`, whose first element is the column."""
        raise _cannot(self, "remove a field")

    def rename_field(self, ctx: Context, path: Sequence[str], new_name: str) -> None:
        """Rename the field at `path`."""
        raise _cannot(self, "rename a field")

    def add_constraint(self, ctx: Context, constraint: str) -> None:
        """Add a constraint, given as SQL. Raises: ConstraintViolation when rows violate it."""
        raise _cannot(self, "add a constraint")


class UnalterableTable(Table):
    """A table whose columns cannot be changed, and that says why."""

    @abstractmethod
    def why_unalterable(self, ctx: Context) -> str:
        """The reason and the remedy, as in "it is a view; make it anew"."""


def _cannot(table: Table, what: str) -> Unsupported:
    return Unsupported(f"table {table.name} does not support this change: it cannot {what}")
