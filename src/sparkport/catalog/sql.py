"""SQL that a catalog runs itself, for clients that send statements instead of reading tables."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import pyarrow as pa

from sparkport.catalog.context import Context
from sparkport.catalog.scan import RecordReader

__all__ = ["SqlCatalog", "SqlDialect", "SqlStatement", "TableInsert", "TableRead"]


@dataclass(frozen=True, slots=True)
class SqlDialect:
    """What drivers and the programs above them must know to write statements."""

    identifier_quote: str = '"'
    """What stands around names that are no plain words."""
    nulls_are_smallest: bool = False
    """Whether ORDER BY takes NULL for smaller than all values. Otherwise it comes last."""
    creates_schemas: bool = False
    """Whether schemas are created and dropped by statements."""
    creates_tables: bool = False
    """Whether tables are created, with columns and types, and dropped by statements."""


@dataclass(frozen=True, slots=True)
class TableRead:
    """A query that gives columns of a table as they are, of all its rows."""

    schema: str
    table: str
    columns: tuple[str, ...]
    """The columns in the order of the query, each once."""


@dataclass(frozen=True, slots=True)
class TableInsert:
    """A change that adds the rows of its parameters to a table, as they are."""

    schema: str
    table: str
    columns: tuple[str, ...]
    """The columns that the markers are values of, in their order. Others have their defaults."""


class SqlStatement(ABC):
    """A statement of SQL that was analysed and is allowed. Nothing of it has run.

    Used by a single thread. Either `rows` or `execute` is called, and at most once.
    """

    @property
    def plain(self) -> TableRead | TableInsert | None:
        """What the statement does, if that is no more than a scan or an INSERT of a table.

        The service then does it as it does for DuckDB, with the caller's permissions on the table,
        its row filters and masks. It calls neither `rows` nor `execute`, nor the properties below.
        """
        return None

    @property
    @abstractmethod
    def arrow_schema(self) -> pa.Schema | None:
        """The columns of its rows; None for a statement that changes something."""

    @property
    @abstractmethod
    def parameters(self) -> pa.Schema:
        """A field for each marker `?`, in order."""

    @abstractmethod
    def rows(self, ctx: Context) -> RecordReader:
        """Run a query.

        The caller owns the reader, iterates it once and closes it. Each batch has the columns of
        `arrow_schema`, in its order. In a transaction (`Context.transaction_id`) the query sees the
        transaction's own changes.
        """

    @abstractmethod
    def execute(self, ctx: Context) -> int:
        """Make a change, all of it or, when it raises, none; return how many rows were changed.

        The result is -1 where the number is not known. In a transaction
        (`Context.transaction_id`) others see the change when that is committed; otherwise the
        change is durable when the method returns. What it reports by `Context.report_write` is
        what the audit log has of it.

        Raises: ConstraintViolation, Conflict.
        """


class SqlCatalog(ABC):
    """A Catalog that is also an SqlCatalog runs SQL; other catalogs run none.

    Called from many threads at once.
    """

    @property
    def dialect(self) -> SqlDialect:
        """The kind of SQL that it runs. All kinds have joins, subqueries, GROUP BY and UNION."""
        return SqlDialect()

    @abstractmethod
    def analyse_sql(
        self, ctx: Context, text: str, parameters: pa.RecordBatch | None = None
    ) -> SqlStatement:
        """Analyse a statement, and check that the caller may run it.

        `parameters` has a column for each marker, in order, whatever its name. Without parameters
        all markers are NULL: a statement is analysed so when it is prepared. Of a change with many
        rows of parameters, each row is one execution, and all or none of them are done. Of a query
        with many rows of parameters, the rows of each execution follow each other.

        A query is analysed when it is planned and again when its rows are read. Both contexts have
        the same `trace_id`.

        Raises: BadRequest for a statement that is not valid, and for another number of parameters
        than markers; NotFound, PermissionDenied, Unsupported.
        """
