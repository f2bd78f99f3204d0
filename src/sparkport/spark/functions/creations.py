"""Statements that make tables and views from queries: CREATE and REPLACE TABLE AS, CREATE VIEW.

Strategy: none of Spark's own commands runs, which would publish at once what they make. Only the
query is Spark's: it is analysed under the rules for queries, and Spark appends its rows to a table
that is only drafted (ddl/new_tables.py). The caller's transaction keeps that until it is published.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from sparkport.catalog import Context, Privilege
from sparkport.catalog.names import folded
from sparkport.errors import (
    AlreadyExists,
    BadRequest,
    Conflict,
    NotFound,
    PermissionDenied,
    Unsupported,
)
from sparkport.spark.ddl.create_table import expect_place
from sparkport.spark.ddl.names import expect_text
from sparkport.spark.ddl.new_views import DroppedView
from sparkport.spark.functions.statements import Statement
from sparkport.spark.functions.table_creations import TableCreations
from sparkport.spark.functions.view_creations import ViewCreations
from sparkport.spark.iceberg.identifiers import Identifier
from sparkport.spark.lake.directory import CatalogEntry, Kind
from sparkport.spark.lake.lake import Lake
from sparkport.spark.lake.transaction import Transaction
from sparkport.spark.lake.unpublished import Unpublished
from sparkport.spark.scan.create_plans import ParsedCreation
from sparkport.spark.write.spark_changes import Outcome

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Creations"]


class Creations:
    """Runs the statements of a lake that make tables and views. Thread-safe."""

    def __init__(self, lake: Lake, tables: TableCreations, views: ViewCreations) -> None:
        self._lake = lake
        self._tables = tables
        self._views = views

    def expect_allowed(self, ctx: Context, title: str, parsed: ParsedCreation) -> None:
        """Check that the caller may make or drop what a statement makes or drops.

        Raises: BadRequest, NotFound, PermissionDenied.
        """
        self._expect_allowed(ctx, title, parsed, parsed.target.identifier)

    def _expect_allowed(
        self, ctx: Context, title: str, parsed: ParsedCreation, target: Identifier
    ) -> None:
        if target.catalog != self._lake.gateway.catalog:
            raise BadRequest(f"{title} changes this lake only, not catalog {target.catalog}")
        expect_text(target.name, "view" if parsed.is_view else "table")
        schema, name = target.schema_name, target.name
        if parsed.operation == "drop view":
            ctx.access.require(Privilege.ALTER, schema, name, whole=True)
            return
        needed = [Privilege.ALTER, *([] if parsed.is_view else [Privilege.WRITE])]
        for privilege in needed:
            if not ctx.access.may(privilege, schema, name):
                raise PermissionDenied(f"you have no {privilege.value} permission on {target}")
        if parsed.replaces and ctx.access.restrictions(schema, name) is not None:
            raise PermissionDenied(f"you see only part of {target}, and that takes all of it")

    def run(
        self,
        ctx: Context,
        transaction: Transaction,
        statement: Statement,
        parsed: ParsedCreation,
        session: SparkSession,
    ) -> Outcome:
        """Run an allowed statement, in a transaction that publishes what it makes.

        Raises: AlreadyExists, NotFound, Unsupported; what Spark raises. Then nothing is left of it.
        """
        title, lake = statement.title, self._lake
        if lake.gateway.iceberg_catalog is None:
            raise Unsupported(
                f"{title} cannot make tables or views in this catalog, which is not Iceberg's: "
                "make them in Spark"
            )
        entry = self._present(transaction, parsed)
        if entry is None and not parsed.creates:
            if parsed.if_exists:
                return Outcome()
            what = "view" if parsed.is_view else "table"
            raise NotFound(f"{what} {parsed.target.identifier} does not exist")
        if entry is not None:
            if parsed.if_missing:
                return Outcome()
            _expect_replaceable(parsed, entry)
            self._expect_allowed(ctx, title, parsed, entry.identifier)
            if entry.identifier in transaction.pending:
                raise Unsupported(
                    f"{title}: table {entry.identifier} was changed before in this transaction: "
                    "replace it first, or by itself"
                )
        if parsed.operation == "drop view":
            assert entry is not None
            self._add(ctx, transaction, DroppedView(lake, entry.identifier, entry))
            return Outcome()
        if parsed.is_view:
            view = self._views.make(ctx, statement, parsed, session, entry)
            self._add(ctx, transaction, view)
            return Outcome()
        add = partial(self._add, ctx, transaction)
        return self._tables.make(ctx, statement, parsed, session, entry, add)

    def _present(self, transaction: Transaction, parsed: ParsedCreation) -> CatalogEntry | None:
        """What has the name of a new object, in whatever case.

        Raises: AlreadyExists, Unsupported for what the same transaction has made; NotFound for a
        schema that does not exist.
        """
        target = parsed.target.identifier
        for each in transaction.made.values():
            known = each.identifier
            if known.namespace == target.namespace and folded(known.name) == folded(target.name):
                if parsed.if_missing and not isinstance(each, DroppedView):
                    return CatalogEntry(known, Kind.VIEW if each.is_view else Kind.ICEBERG)
                if parsed.replaces or isinstance(each, DroppedView) or not parsed.creates:
                    raise Unsupported(
                        f"{known} was made or dropped before in this transaction: make, replace or "
                        "drop it once"
                    )
                raise AlreadyExists(f"{known} was made before in this transaction")
        return expect_place(self._lake, target)

    def _add(self, ctx: Context, transaction: Transaction, made: Unpublished) -> None:
        """Have a transaction publish an object. Raises: Conflict, LimitExceeded."""
        with transaction.lock:
            if self._lake.transactions.collecting(ctx) is not transaction:
                raise Conflict(
                    f"the transaction that makes {made.identifier} ended meanwhile: run it again"
                )
            if made.identifier in transaction.made:
                raise Conflict(
                    f"another statement of the same transaction makes {made.identifier}, too"
                )
            self._lake.transactions.writes(transaction, ctx.quotas)
            transaction.made[made.identifier] = made


def _expect_replaceable(parsed: ParsedCreation, entry: CatalogEntry) -> None:
    """Raises: AlreadyExists for an object that is there and stays."""
    what = "view" if entry.kind is Kind.VIEW else "table"
    wanted = Kind.VIEW if parsed.is_view else Kind.ICEBERG
    if parsed.operation == "drop view":
        if entry.kind is not Kind.VIEW:
            raise BadRequest(f"{entry.identifier} is a table: drop it with DROP TABLE in DuckDB")
        return
    if not parsed.replaces:
        raise AlreadyExists(f"{what} {entry.identifier} exists already")
    if entry.kind is not wanted:
        raise AlreadyExists(
            f"{what} {entry.identifier} exists already, and cannot be replaced: drop it first"
        )
