"""Statements in Spark SQL that change tables of the lake, run by Spark.

Strategy: what a statement would touch is known and permitted before anything of it runs. It is
parsed, and its tables are looked up in the grants. In its place it then gets the name of a working
branch (write/spark_changes.py), is parsed and analysed again, and the tables that the analysis has
found are looked up. What runs is that very plan.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from sparkport.catalog import Context, Privilege
from sparkport.catalog.names import folded
from sparkport.engine.columns import default_of
from sparkport.errors import (
    BadRequest,
    ConstraintViolation,
    NotFound,
    NotWritable,
    SparkportError,
    Unsupported,
)
from sparkport.spark.functions.queries import expect_resolvable
from sparkport.spark.functions.query_sessions import QuerySessions
from sparkport.spark.iceberg.identifiers import Identifier
from sparkport.spark.iceberg.table_state import TableState
from sparkport.spark.jvm.errors import translated
from sparkport.spark.jvm.named_writes import run_named
from sparkport.spark.jvm.refused_rows import refused_rows
from sparkport.spark.jvm.relay.jobs import start_job
from sparkport.spark.lake.directory import Kind
from sparkport.spark.lake.lake import Lake
from sparkport.spark.lake.transactions import BRANCH_PREFIX
from sparkport.spark.scan.query_permissions import expect_readable
from sparkport.spark.scan.query_plans import NamedRelation, QueryPlans
from sparkport.spark.scan.write_plans import ParsedWrite, WritePlans, replaced_names
from sparkport.spark.write.commit import STATEMENT
from sparkport.spark.write.spark_changes import Outcome, SparkStatement, change_by_spark

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

__all__ = ["RunStatements", "Statement"]

_SUMMARY = "spark.sql.iceberg.snapshot-property."
_ICEBERGS_OWN = frozenset(
    b"_row_id _last_updated_sequence_number _file _pos _spec_id _partition _deleted".split()
)
_PART_OF_SPARK = 0.9
"""How much of a statement is done when Spark has done its part; then it is checked."""


@dataclass(frozen=True, slots=True, eq=False)
class Statement:
    """A statement as a caller sends it, whose unqualified names are in `namespace`."""

    title: str
    """How messages name it."""
    namespace: tuple[str, ...]
    text: str
    arguments: Mapping[str, Column] | list[Column]


class RunStatements:
    """Checks and runs the statements of a lake. Thread-safe."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._sessions = QuerySessions(lake)
        self._plans = QueryPlans(lake.spark)
        self._writes = WritePlans(self._plans)

    def is_write(self, statement: Statement) -> bool:
        """Whether a statement changes a table. Raises: BadRequest for one that cannot be parsed."""
        with translated(statement.title), self._sessions.opened(statement.namespace) as session:
            return self._writes.is_write(
                self._plans.parse(session, statement.text, statement.arguments)
            )

    def expect_allowed(self, ctx: Context, statement: Statement) -> ParsedWrite:
        """What a statement names, if the caller may run it.

        Raises: BadRequest, NotFound, NotWritable, PermissionDenied.
        """
        with translated(statement.title), self._sessions.opened(statement.namespace) as session:
            return self._allowed(ctx, statement, session)

    def run(self, ctx: Context, statement: Statement) -> tuple[ParsedWrite, Outcome]:
        """Run a statement, in the transaction of the context if it collects changes.

        Raises: as `expect_allowed`; Conflict, ConstraintViolation; what Spark raises. Then nothing
        has changed.
        """
        write = self.expect_allowed(ctx, statement)
        target = write.target.identifier

        def run(
            base: TableState, branch: str, summary: Mapping[str, str], begin: Callable[[], None]
        ) -> None:
            _expect_defaults(statement.title, write, base)
            _expect_columns(statement.title, write, base)
            with _as_written():
                self._run(ctx, statement, base, branch, summary, begin)

        return write, change_by_spark(
            self._lake, ctx, SparkStatement(target, write.operation, write.assigned, run)
        )

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
        with translated(title), self._sessions.opened(statement.namespace) as session:
            for name, value in summary.items():
                session.conf.set(f"{_SUMMARY}{name}", value)
            analysed = self._analysed(ctx, statement, session, base, branch)
        begin()

        def act() -> None:
            with refused_rows(base.identifier.name):
                run_named(session, analysed, summary[STATEMENT])

        job = start_job(lake.spark.sparkContext, ctx, title, act)
        ctx.on_cancel(job.cancel)

        def meanwhile() -> None:
            lake.relay.make_room()
            ctx.report_progress(_PART_OF_SPARK * job.fraction())

        try:
            job.result(meanwhile=meanwhile)
        except BaseException:
            job.stop()  # else it might commit to the branch after the branch was removed
            raise

    def _analysed(
        self,
        ctx: Context,
        statement: Statement,
        session: SparkSession,
        base: TableState,
        branch: str,
    ) -> Any:
        title = statement.title
        text = self._plans.with_values(session, statement.text, statement.arguments)
        given, statement = statement.text, replace(statement, text=text, arguments={})
        write = self._allowed(ctx, statement, session)
        if write.target.identifier != base.identifier:
            raise BadRequest(f"{title}: write the name of the table as it is")
        names = [(write.target.node, branch + write.alias), *self._pinned(ctx, write.sources)]
        text = replaced_names(text, names)
        parsed = self._plans.parse(session, text, {})
        current = (self._lake.gateway.catalog, *statement.namespace)
        renamed = self._writes.parsed_write(parsed, session, current, title, text)
        if renamed.target.identifier.sql != branch or _named(renamed) != _named(write):
            raise BadRequest(f"{title} cannot tell which table is changed: name it schema.table")
        try:
            with translated(title):
                analysed = self._plans.analyse(session, parsed)
        except SparkportError:
            expect_resolvable(self._lake, self._plans, ctx, session, write.sources, title)
            raise
        read = [
            each
            for each in self._writes.tables(analysed, title)
            if each != renamed.target.identifier
        ]
        expect_readable(ctx, self._lake, read, title)
        self._expect_current(ctx, title, set(read) - {each.identifier for each in write.sources})
        ctx.report_query(given, [f"{each.catalog}.{each}" for each in read])
        return analysed

    def _allowed(self, ctx: Context, statement: Statement, session: SparkSession) -> ParsedWrite:
        title, text = statement.title, statement.text
        current = (self._lake.gateway.catalog, *statement.namespace)
        expect_readable(ctx, self._lake, (), title)
        parsed = self._plans.parse(session, text, statement.arguments)
        write = self._writes.parsed_write(parsed, session, current, title, text)
        expect_readable(ctx, self._lake, [each.identifier for each in write.sources], title)
        self._expect_writable(ctx, title, write)
        return write

    def _expect_writable(self, ctx: Context, title: str, write: ParsedWrite) -> None:
        target = write.target.identifier
        if target.catalog != self._lake.gateway.catalog:
            raise BadRequest(f"{title} changes tables of this lake only, not of {target.catalog}")
        for privilege in (Privilege.WRITE, *([Privilege.READ] if write.reads_target else [])):
            ctx.access.require(privilege, target.schema_name, target.name, whole=True)
        entry = self._lake.entry(target)
        if entry is None:
            raise NotFound(f"table {target} does not exist")
        if entry.kind is Kind.VIEW:
            raise NotWritable(f"{target} is a view: change the tables that it reads")
        if entry.kind is not Kind.ICEBERG:
            raise NotWritable(
                f"table {target} is not an Iceberg table: change it where it was made"
            )

    def _pinned(self, ctx: Context, sources: Sequence[NamedRelation]) -> list[tuple[Any, str]]:
        """Other SQL for the tables of which the caller's transaction reads another state."""
        found = []
        for each in sources:
            other = None if each.is_dated else self._other_state(ctx, each.identifier)
            if other is None:
                continue
            if other.snapshot is None:
                raise Unsupported(
                    f"the transaction has read table {each.identifier} when it had no rows, which "
                    "Spark cannot read any more: begin another one"
                )
            sql = f"{each.identifier.sql} VERSION AS OF {other.snapshot.snapshot_id}"
            found.append((each.node, sql))
        return found

    def _expect_current(self, ctx: Context, title: str, tables: Set[Identifier]) -> None:
        """Refuse tables that only a view names, and of which the transaction reads another state.

        Raises: Unsupported.
        """
        for table in tables:
            if self._other_state(ctx, table) is not None:
                raise Unsupported(
                    f"{title} reads table {table} through a view, which does not see what the "
                    "transaction sees of it: write the view's query in its place"
                )

    def _other_state(self, ctx: Context, identifier: Identifier) -> TableState | None:
        """What the caller's transaction sees of a table, if that is not the present state."""
        lake = self._lake
        entry = lake.entry(identifier) if identifier.catalog == lake.catalog.name else None
        if entry is None or entry.kind is not Kind.ICEBERG:
            return None
        collecting = lake.transactions.collecting(ctx)
        reader = ctx.parent_transaction_id if collecting is None else collecting.id
        current = lake.current(identifier)
        seen = lake.transactions.seen(reader, current)
        return None if seen.snapshot == current.snapshot else seen


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


def _named(write: ParsedWrite) -> list[Identifier]:
    return sorted((each.identifier for each in write.sources), key=str)


def _expect_defaults(title: str, write: ParsedWrite, base: TableState) -> None:
    """Refuse to leave a value to the default of a column, which Spark does not know.

    Raises: BadRequest; ConstraintViolation for NULL, which is the default otherwise.
    """
    given = None if write.columns is None else {folded(name) for name in write.columns}
    rules = base.definition.constraints
    without_null = {folded(name) for name in (*rules.not_null, *rules.primary_key)}
    for column in base.definition.columns:
        is_left_out = given is not None and folded(column.name) not in given
        if is_left_out and not default_of(column) and folded(column.name) in without_null:
            message = f"NOT NULL constraint failed: {base.identifier.name}.{column.name}"
            raise ConstraintViolation(message, without_values=message)
        if default_of(column) and (is_left_out or write.by_name or write.has_default):
            raise BadRequest(
                f"{title}: Spark does not know the default of column {column.name} of table "
                f"{base.identifier}: list the columns, and give this one a value, too, other than "
                "DEFAULT"
            )


def _expect_columns(title: str, write: ParsedWrite, base: TableState) -> None:
    """Refuse to set Iceberg's own columns, which Spark would not do, but say that it had.

    Raises: NotFound.
    """
    columns = {folded(column.name) for column in base.definition.columns}
    for name in write.assigned or ():
        if folded(name) in _ICEBERGS_OWN and folded(name) not in columns:
            raise NotFound(f"{title}: table {base.identifier} has no column {name}")
