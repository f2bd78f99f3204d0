"""Catalog, Schema, Table: what a server serves.

Everything here is called from many threads at once, and must allow it. Methods return `None` for
"there is no such thing" and an empty sequence for "there are none"; they raise errors of
`sparkport.errors`, whose messages are shown to the user, or anything else, which is logged and
shown as "internal error" with a trace id.

What these classes have as properties, a subclass may have as plain attributes:

    class Primes(Table):
        name = "primes"
        comment = "The first of them"
        arrow_schema = pa.schema([("n", pa.int64())])

        def scan(self, ctx, options):
            yield pa.record_batch({"n": [2, 3, 5]}, schema=self.arrow_schema)

An attribute that is known only when the object is made gets a value in the class (`name = ""`) and
its own in `__init__`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from sparkport.catalog.context import Context

if TYPE_CHECKING:
    from sparkport.catalog.functions import ScalarFunction, TableFunction, TableInOutFunction
    from sparkport.catalog.scan import RecordReader, ScanOptions

__all__ = ["Catalog", "CatalogVersion", "Schema", "Table", "VersionedCatalog"]


class Table(ABC):
    """Rows with an Arrow schema. All that is asked of a read-only table; more is declared by
    further base classes. `name`, `comment` and `arrow_schema` may be plain attributes of a class.
    """

    applies_filters: bool = False
    """Whether `scan` applies `ScanOptions.filter` itself; if not, the service filters its rows."""

    @property
    @abstractmethod
    def name(self) -> str:
        """Never empty; unique in its schema, ignoring case."""

    @property
    def comment(self) -> str:
        """Documentation for users; empty if there is none."""
        return ""

    @property
    @abstractmethod
    def arrow_schema(self) -> pa.Schema | None:
        """The columns, with the row id field where there is one (see `find_rowid_column`).

        None means that the columns depend on the request: then the table is a `DynamicSchemaTable`.
        Return the same object until something changes: the service caches by identity.
        """

    @abstractmethod
    def scan(self, ctx: Context, options: ScanOptions) -> RecordReader:
        """Read rows.

        The caller owns the reader, iterates it once and closes it. Each batch has at least the
        columns asked for, found by name, with exactly the types of `arrow_schema`. A generator is
        the natural form. It is closed when the client cancels. Code that blocks between batches can
        use `ctx.on_cancel`.

        Raises: NotFound for a time point that does not exist; Unsupported for a time point where
        there is no history.
        """

    def estimated_rows(self, ctx: Context, options: ScanOptions) -> int | None:
        """Estimate the number of rows of a scan for the client's plans; None when not known.

        Must be cheap: the listing tells it too, for each table. DuckDB uses it only for tables that
        it first sees while it plans: with AT, and for flights (airport §5.7).
        """
        return None


class Schema(ABC):
    """A named set of tables and functions. `name`, `comment` and `tags` may be plain attributes of
    a class.
    """

    @property
    @abstractmethod
    def name(self) -> str:
        """Never empty; unique in its catalog, ignoring case."""

    @property
    def comment(self) -> str:
        """Documentation for users; empty if there is none."""
        return ""

    @property
    def tags(self) -> Mapping[str, str]:
        """Further metadata for users."""
        return {}

    @abstractmethod
    def tables(self, ctx: Context) -> Sequence[Table]:
        """The tables that the caller may see."""

    def table(self, ctx: Context, name: str) -> Table | None:
        """Return the table of that name, exactly as spelled; None if there is none."""
        return next((table for table in self.tables(ctx) if table.name == name), None)

    def scalar_functions(self, ctx: Context) -> Sequence[ScalarFunction]:
        """The scalar functions that the caller may see; equal names make overloads."""
        return ()

    def table_functions(self, ctx: Context) -> Sequence[TableFunction | TableInOutFunction]:
        """The table and in/out functions that the caller may see; equal names make overloads."""
        return ()


class Catalog(ABC):
    """What one ATTACH shows: a set of schemas. `name` may be a plain attribute of a class."""

    @property
    def name(self) -> str:
        """The name for ATTACH, printable ASCII; empty for a server's only catalog."""
        return ""

    @abstractmethod
    def schemas(self, ctx: Context) -> Sequence[Schema]:
        """The schemas that the caller may see; the first is the default schema of some clients."""

    def schema(self, ctx: Context, name: str) -> Schema | None:
        """Return the schema of that name, exactly as spelled; None if there is none."""
        return next((schema for schema in self.schemas(ctx) if schema.name == name), None)


@dataclass(frozen=True, slots=True)
class CatalogVersion:
    """A number that rises with every change of the catalog's objects.

    It also rises with changes of the rows of tables that offer statistics. `fixed` promises that it
    never rises.
    """

    number: int
    fixed: bool = False


class VersionedCatalog(Catalog):
    """A catalog that knows when its objects change, even if another server changes them.

    For any other catalog the server counts the changes that it makes itself.
    """

    @abstractmethod
    def version(self, ctx: Context) -> CatalogVersion:
        """Return the current version. Must be cheap: called for every statement (airport §3.8)."""
