"""Statements in Spark SQL that change tables of the lake, run by Spark.

Strategy: what a statement would touch is known and permitted before anything of it runs. It is
parsed, and its tables are looked up in the grants. It is analysed, and the tables that the
analysis has found are looked up. Only then a working branch is made (write/spark_changes.py). Its
name is put in the place of the table's, and the statement is parsed, analysed and looked up again.
What runs is that very plan.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sparkport.catalog import Context, Privilege
from sparkport.catalog.names import folded
from sparkport.engine.columns import default_of
from sparkport.errors import (
    BadRequest,
    Conflict,
    ConstraintViolation,
    NotFound,
    NotWritable,
    SparkportError,
)
from sparkport.spark.functions.awaited_jobs import run_job
from sparkport.spark.functions.column_defaults import ColumnDefaults
from sparkport.spark.functions.creations import Creations
from sparkport.spark.functions.query_sessions import QuerySessions
from sparkport.spark.functions.statements import Statement
from sparkport.spark.functions.table_creations import TableCreations
from sparkport.spark.functions.transaction_sources import TransactionSources
from sparkport.spark.functions.view_creations import ViewCreations
from sparkport.spark.iceberg.definition import ICEBERGS_OWN
from sparkport.spark.iceberg.identifiers import Identifier
from sparkport.spark.iceberg.table_state import TableState
from sparkport.spark.jvm.errors import translated
from sparkport.spark.jvm.named_writes import run_named
from sparkport.spark.jvm.refused_rows import refused_rows
from sparkport.spark.lake.directory import Kind
from sparkport.spark.lake.lake import Lake
from sparkport.spark.lake.transaction import BRANCH_PREFIX, Transaction
from sparkport.spark.scan.create_plans import CreatePlans, ParsedCreation
from sparkport.spark.scan.query_permissions import expect_readable, expect_resolvable
from sparkport.spark.scan.query_plans import QueryPlans
from sparkport.spark.scan.write_plans import ParsedWrite, WritePlans, replaced_names
from sparkport.spark.write.commit import STATEMENT
from sparkport.spark.write.spark_changes import Outcome, SparkStatement, change_by_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["RunStatements"]

_SUMMARY = "spark.sql.iceberg.snapshot-property."
_PART_OF_SPARK = 0.9
"""How much of a statement is done when Spark has done its part; then it is checked."""


class RunStatements:
    """Checks and runs the statements of a lake. Thread-safe."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._sessions = QuerySessions(lake)
        self._plans = QueryPlans(lake.spark)
        self._writes = WritePlans(self._plans)
        self._defaults = ColumnDefaults(lake.spark, self._writes)
        self._creates = CreatePlans(self._plans)
        self._sources = TransactionSources(lake, self._sessions, self._plans)
        self._tables = TableCreations(lake, self._plans, self._creates, self._sources)
        views = ViewCreations(lake, self._plans, self._sources)
        self._creations = Creations(lake, self._tables, views)

    def is_change(self, parsed: Any) -> bool:
        """Whether a parsed plan changes, makes or drops something, and is no query."""
        return self._writes.is_write(parsed) or self._creates.is_creation(parsed)

    def makes_objects(self, statement: Statement) -> bool:
        """Whether a statement makes or drops a table or a view. Raises: BadRequest."""
        with self._session(statement) as session:
            return self._creates.is_creation(
                self._plans.parse(session, statement.text, statement.arguments)
            )

    def expect_all_allowed(self, ctx: Context, statements: Sequence[Statement]) -> None:
        """Check that the caller may run statements one after the other. Raises: as one of them."""
        made: set[Identifier] = set()
        for each in statements:
            found = self.expect_allowed(ctx, each, made)
            if isinstance(found, ParsedCreation):
                made.add(found.target.identifier)

    def expect_allowed(
        self, ctx: Context, statement: Statement, made: Set[Identifier] = frozenset()
    ) -> ParsedWrite | ParsedCreation:
        """What a statement names, if the caller may run it.

        `made` are tables that statements before it will have made. Raises: BadRequest, NotFound,
        NotWritable, PermissionDenied.
        """
        transaction = self._lake.transactions.collecting(ctx)
        made = {*made, *(() if transaction is None else transaction.made)}
        with self._session(statement) as session:
            return self._allowed(ctx, statement, session, made)

    def run(
        self, ctx: Context, statement: Statement
    ) -> tuple[ParsedWrite | ParsedCreation, Outcome]:
        """Run a statement, in the transaction of the context if it collects changes.

        One that makes or drops something must be in such a transaction. Raises: as
        `expect_allowed`; Conflict, ConstraintViolation; what Spark raises. Then nothing has
        changed.
        """
        write = self.expect_allowed(ctx, statement)
        target = write.target.identifier
        transaction = self._lake.transactions.collecting(ctx)
        if isinstance(write, ParsedCreation) or (
            transaction is not None and target in transaction.made
        ):
            return write, self._make(ctx, statement, transaction)

        def check(base: TableState) -> None:
            _expect_values(write, base)
            _expect_columns(statement.title, write, base)
            with _as_written(), self._session(statement) as session:
                self._analysed(ctx, statement, session, base, target.sql)

        def run(
            base: TableState, branch: str, summary: Mapping[str, str], begin: Callable[[], None]
        ) -> None:
            with _as_written():
                self._run(ctx, statement, base, branch, summary, begin)

        return write, change_by_spark(
            self._lake, ctx, SparkStatement(target, write.operation, write.assigned, check, run)
        )

    def _make(self, ctx: Context, statement: Statement, transaction: Transaction | None) -> Outcome:
        """Make or drop a table or a view, or insert into a table that the transaction has made."""
        if transaction is None:
            raise Conflict(f"{statement.title}: the transaction ended meanwhile: run it again")
        title, current = statement.title, (self._lake.gateway.catalog, *statement.namespace)
        with self._session(statement) as session:
            # Parsed anew: its nodes belong to the session.
            statement = self._with_values(session, statement)
            found = self._allowed(ctx, statement, session, transaction.made.keys())
            if isinstance(found, ParsedCreation):
                return self._creations.run(ctx, transaction, statement, found, session)

            def read_again(text: str) -> tuple[Any, ParsedWrite]:
                parsed = self._plans.parse(session, text, statement.arguments)
                again = self._writes.parsed_write(parsed, session, current, title, text)
                if again.target.identifier != found.target.identifier:
                    raise BadRequest(f"{title}: write the name of the table as it is")
                return self._writes.statement(parsed), again

            return self._tables.insert(ctx, transaction, statement, found, session, read_again)

    def _run(
        self,
        ctx: Context,
        statement: Statement,
        base: TableState,
        branch: str,
        summary: Mapping[str, str],
        begin: Callable[[], None],
    ) -> None:
        """Have Spark carry out a statement on a branch of its table."""
        title, lake = statement.title, self._lake
        with self._session(statement) as session:
            for name, value in summary.items():
                session.conf.set(f"{_SUMMARY}{name}", value)
            analysed = self._analysed(ctx, statement, session, base, branch)
        begin()

        def act() -> None:
            with refused_rows(base.identifier.name):
                run_named(session, analysed, summary[STATEMENT])

        run_job(lake, ctx, title, act, _PART_OF_SPARK)

    @contextmanager
    def _session(self, statement: Statement) -> Iterator[SparkSession]:
        with (
            translated(statement.title),
            self._sessions.opened(statement.namespace) as session,
        ):
            yield session

    def _analysed(
        self,
        ctx: Context,
        statement: Statement,
        session: SparkSession,
        base: TableState,
        branch: str,
    ) -> Any:
        title = statement.title
        given, statement = statement.text, self._with_values(session, statement)
        write = self._allowed(ctx, statement, session)
        if isinstance(write, ParsedCreation) or write.target.identifier != base.identifier:
            raise BadRequest(f"{title}: write the name of the table as it is")
        instead = self._sources.substitution(ctx, session, write.sources, title)
        names = [(write.target.node, branch + write.alias), *instead.names]
        text = replaced_names(statement.text, names)
        parsed = self._plans.parse(session, text, {})
        current = (self._lake.gateway.catalog, *statement.namespace)
        renamed = self._writes.parsed_write(parsed, session, current, title, text)
        if renamed.target.identifier.sql != branch:
            raise BadRequest(f"{title} cannot tell which table is changed: name it schema.table")
        instead.expect_same(write.sources, renamed.sources, title)
        parsed = self._defaults.filled(session, parsed, renamed, base, title)
        try:
            with translated(title):
                analysed = self._plans.analyse(session, parsed)
        except SparkportError:
            published = [each for each in renamed.sources if each.identifier not in instead.views]
            expect_resolvable(self._lake, self._plans, ctx, session, published, title)
            raise
        read = [
            each
            for each in self._writes.tables(analysed, title, instead.unpublished)
            if each != renamed.target.identifier
        ]
        expect_readable(ctx, self._lake, read, title)
        if branch != base.identifier.sql:  # the first analysis is of the table itself
            self._sources.expect_current(ctx, analysed, title)
        ctx.report_query(given, [f"{each.catalog}.{each}" for each in read])
        return analysed

    def _with_values(self, session: SparkSession, statement: Statement) -> Statement:
        """The statement with its values in place of its markers: its plan then has its places."""
        text = self._plans.with_values(session, statement.text, statement.arguments)
        return replace(statement, text=text, arguments={})

    def _allowed(
        self,
        ctx: Context,
        statement: Statement,
        session: SparkSession,
        made: Set[Identifier] = frozenset(),
    ) -> ParsedWrite | ParsedCreation:
        title, text = statement.title, statement.text
        current = (self._lake.gateway.catalog, *statement.namespace)
        expect_readable(ctx, self._lake, (), title)
        parsed = self._plans.parse(session, text, statement.arguments)
        if self._creates.is_creation(parsed):
            creation = self._creates.parsed(parsed, session, current, title, text)
            read = [each.identifier for each in creation.sources]
            expect_readable(ctx, self._lake, read, title)
            self._creations.expect_allowed(ctx, title, creation)
            return creation
        write = self._writes.parsed_write(parsed, session, current, title, text)
        expect_readable(ctx, self._lake, [each.identifier for each in write.sources], title)
        self._expect_writable(ctx, title, write, made)
        return write

    def _expect_writable(
        self, ctx: Context, title: str, write: ParsedWrite, made: Set[Identifier]
    ) -> None:
        target = write.target.identifier
        if target.catalog != self._lake.gateway.catalog:
            raise BadRequest(f"{title} changes tables of this lake only, not of {target.catalog}")
        for privilege in (Privilege.WRITE, *([Privilege.READ] if write.reads_target else [])):
            ctx.access.require(privilege, target.schema_name, target.name, whole=True)
        if target in made:
            return
        entry = self._lake.entry(target)
        if entry is None:
            raise NotFound(f"table {target} does not exist")
        if entry.kind is Kind.VIEW:
            raise NotWritable(f"{target} is a view: change the tables that it reads")
        if entry.kind is not Kind.ICEBERG:
            raise NotWritable(
                f"table {target} is not an Iceberg table: change it where it was made"
            )


_NOT_WRITTEN = re.compile(rf"\.`?branch_{BRANCH_PREFIX}\w+`?| \(line \d+, position \d+\)$")


@contextmanager
def _as_written() -> Iterator[None]:
    """Leave the working branch out of messages, and positions, which are not those of the caller's.

    Errors of syntax come before, and have their positions.
    """
    try:
        yield
    except SparkportError as error:
        error.message = _NOT_WRITTEN.sub("", error.message)
        error.args = (error.message,)
        raise


def _expect_values(write: ParsedWrite, base: TableState) -> None:
    """Refuse to leave out a column without a default that takes no NULL.

    Raises: ConstraintViolation.
    """
    given = None if write.columns is None else {folded(name) for name in write.columns}
    own = {folded(each.name) for each in base.definition.columns}
    if given is None or (write.operation != "merge" and not given <= own):
        return  # Spark says which column the table does not have
    rules = base.definition.constraints
    without_null = {folded(name) for name in (*rules.not_null, *rules.primary_key)}
    for column in base.definition.columns:
        if folded(column.name) in without_null - given and not default_of(column):
            message = f"NOT NULL constraint failed: {base.identifier.name}.{column.name}"
            raise ConstraintViolation(message, without_values=message)


def _expect_columns(title: str, write: ParsedWrite, base: TableState) -> None:
    """Refuse to set Iceberg's own columns, which Spark would not do, but say that it had.

    Raises: NotFound.
    """
    columns = {folded(column.name) for column in base.definition.columns}
    for name in write.assigned or ():
        if folded(name) in ICEBERGS_OWN and folded(name) not in columns:
            raise NotFound(f"{title}: table {base.identifier} has no column {name}")
