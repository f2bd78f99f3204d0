"""What a statement reads in a transaction that has changed it, or made it, and not published it.

Strategy: in the text of the statement, other SQL is put in place of the table's name: the version
that the transaction reads, or for what no catalog has yet the name of a temporary view. That view
is in the session of this one statement. In the analysed plan a table that is not published has no
catalog, but a secret name, by which the permissions find the name that it will have.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sparkport.catalog import Context
from sparkport.catalog.names import folded
from sparkport.errors import BadRequest, NotFound, SparkportError, Unsupported
from sparkport.spark.ddl.new_tables import NewTable
from sparkport.spark.ddl.new_views import NewView
from sparkport.spark.functions.query_sessions import QuerySessions
from sparkport.spark.iceberg.identifiers import Identifier, quoted
from sparkport.spark.iceberg.table_state import TableState
from sparkport.spark.jvm.errors import translated
from sparkport.spark.lake.directory import Kind
from sparkport.spark.lake.lake import Lake
from sparkport.spark.lake.transaction import Transaction
from sparkport.spark.scan.query_permissions import expect_readable, expect_resolvable
from sparkport.spark.scan.query_plans import NamedRelation, QueryPlans
from sparkport.spark.scan.write_plans import replaced_names

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Substitution", "TransactionSources"]

_MOST_VIEWS = 50
"""How deep views of one transaction may read each other."""


@dataclass(frozen=True, slots=True)
class Substitution:
    """What is read in place of the tables that a statement names."""

    names: Sequence[tuple[Any, str]] = ()
    """Nodes of the parsed statement, each with the SQL that is put there."""
    views: Mapping[Identifier, Identifier] = field(default_factory=dict)
    """What temporary views stand for."""
    unpublished: Mapping[str, Identifier] = field(default_factory=dict)
    """Tables that no catalog has yet, by the names that they have in plans."""

    def expect_same(
        self, before: Sequence[NamedRelation], after: Sequence[NamedRelation], title: str
    ) -> None:
        """Check that a statement with other names still names the same tables.

        Raises: BadRequest.
        """
        there = [self.views.get(each.identifier, each.identifier) for each in after]
        if sorted(map(str, there)) != sorted(str(each.identifier) for each in before):
            raise BadRequest(f"{title} cannot tell which tables are read: name them schema.table")


class TransactionSources:
    """Finds what statements of a lake read. Thread-safe."""

    def __init__(self, lake: Lake, sessions: QuerySessions, plans: QueryPlans) -> None:
        self._lake = lake
        self._sessions = sessions
        self._plans = plans
        java_session: Any = lake.spark._jsparkSession
        self._manager = java_session.sessionState().catalogManager()
        self._source = lake.gateway.jvm.org.apache.iceberg.spark.source
        self._relations = (
            lake.gateway.jvm.org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation
        )

    def relation(self, table: Any) -> Any:
        """The node of a plan for an org.apache.iceberg.Table that no catalog has."""
        # The catalog has the functions that partitions need, such as bucket. There is no name.
        options, manager = self._lake.gateway.jvm.scala.Option, self._manager
        catalog = options.apply(manager.catalog(self._lake.gateway.catalog))
        return self._relations.create(self._source.SparkTable(table), catalog, options.apply(None))

    def substitution(
        self,
        ctx: Context,
        session: SparkSession,
        sources: Sequence[NamedRelation],
        title: str,
        depth: int = 0,
    ) -> Substitution:
        """What a statement in the session reads in place of these tables.

        Raises: NotFound, Unsupported.
        """
        transaction = self._lake.transactions.collecting(ctx)
        names: list[tuple[Any, str]] = []
        views: dict[Identifier, Identifier] = {}
        unpublished: dict[str, Identifier] = {}
        known: dict[Identifier, str] = {}
        for each in sources:
            identifier = each.identifier
            if transaction is None or identifier not in transaction.made:
                names += self._pinned(ctx, each)
                continue
            if each.is_dated:
                raise Unsupported(
                    f"{title}: {identifier} was made in this transaction and has no other version"
                )
            if identifier not in known:
                plan, inside = self._made(ctx, transaction, identifier, title, depth)
                unpublished |= inside
                known[identifier] = name = _view_name(identifier, sources)
                self._plans.rows(session, plan).createOrReplaceTempView(quoted(name))
                views[self._named(session, name)] = identifier
            names.append((each.node, quoted(known[identifier])))
        return Substitution(names, views, unpublished)

    def _named(self, session: SparkSession, name: str) -> Identifier:
        """What a name without a schema is taken for, before it is known to be a temporary view."""
        java_session: Any = session._jsparkSession
        namespace = java_session.sessionState().catalogManager().currentNamespace()
        return Identifier(self._lake.gateway.catalog, tuple(map(str, namespace)), name)

    def _made(
        self,
        ctx: Context,
        transaction: Transaction,
        identifier: Identifier,
        title: str,
        depth: int,
    ) -> tuple[Any, Mapping[str, Identifier]]:
        """The plan of what a transaction has made, and what that reads of it."""
        made = transaction.made[identifier]
        if isinstance(made, NewTable):
            return self.relation(made.present_table()), {made.token: identifier}
        if not isinstance(made, NewView):
            raise NotFound(f"view {identifier} does not exist: this transaction has dropped it")
        if depth >= _MOST_VIEWS:
            raise BadRequest(f"{title}: view {identifier} reads too many views")
        definition = made.definition
        with self._sessions.opened(definition.namespace) as session:
            found = self.analysed(
                ctx, session, definition.namespace, definition.text, title, depth + 1
            )
            rows = self._plans.rows(session, found.plan)
            names = [str(each.name()) for each in definition.schema.columns()]
            return rows.toDF(*names)._jdf.queryExecution().analyzed(), found.unpublished

    def analysed(
        self,
        ctx: Context,
        session: SparkSession,
        namespace: tuple[str, ...],
        text: str,
        title: str,
        depth: int = 0,
    ) -> AnalysedQuery:
        """Analyse the query of a view, after its tables are permitted; and look at them again.

        Raises: BadRequest, PermissionDenied; what Spark finds wrong.
        """
        current = (self._lake.gateway.catalog, *namespace)
        parsed = self._plans.parse(session, text, {})
        sources = self._plans.named_relations(parsed, session, current, title, text)
        expect_readable(ctx, self._lake, [each.identifier for each in sources], title)
        instead = self.substitution(ctx, session, sources, title, depth)
        text = replaced_names(text, instead.names)
        parsed = self._plans.parse(session, text, {})
        again = self._plans.named_relations(parsed, session, current, title, text)
        instead.expect_same(sources, again, title)
        plan, read = self.checked(ctx, session, parsed, again, instead, title)
        return AnalysedQuery(plan, read, instead.unpublished)

    def checked(
        self,
        ctx: Context,
        session: SparkSession,
        query: Any,
        sources: Sequence[NamedRelation],
        instead: Substitution,
        title: str,
    ) -> tuple[Any, list[Identifier]]:
        """Analyse a query whose names are permitted, and check the tables that it reads.

        Returns the plan, and the tables. Raises: BadRequest, PermissionDenied; what Spark finds
        wrong.
        """
        try:
            with translated(title):
                plan = self._plans.analyse(session, query)
        except SparkportError:
            named = [each for each in sources if each.identifier not in instead.views]
            expect_resolvable(self._lake, self._plans, ctx, session, named, title)
            raise
        return plan, self.expect_permitted(ctx, plan, instead, title)

    def expect_permitted(
        self, ctx: Context, plan: Any, instead: Substitution, title: str
    ) -> list[Identifier]:
        """The tables that an analysed query reads. Raises: BadRequest, PermissionDenied."""
        read = self._plans.relations(plan, title, unpublished=instead.unpublished)
        expect_readable(ctx, self._lake, read, title)
        return read

    def expect_current(self, ctx: Context, plan: Any, title: str) -> None:
        """Refuse to read the present state of what the transaction has in another state.

        The names in a statement are replaced; those in views that are published are not. Raises:
        Unsupported.
        """
        transaction = self._lake.transactions.collecting(ctx)
        hidden: set[Identifier] = set()
        if transaction is not None and transaction.made:
            hidden = self._plans.aliases(plan) & transaction.made.keys()
        present = self._plans.present(plan) - hidden
        hidden |= {each for each in present if self._other_state(ctx, each) is not None}
        if hidden:
            raise Unsupported(
                f"{title} reads {min(map(str, hidden))} through a view, which does not see what "
                "the transaction sees of it: write the view's query in its place"
            )

    def _pinned(self, ctx: Context, source: NamedRelation) -> list[tuple[Any, str]]:
        """Other SQL for a table of which the caller's transaction reads another state."""
        identifier = source.identifier
        other = None if source.is_dated else self._other_state(ctx, identifier)
        if other is None:
            return []
        if other.snapshot is None:
            raise Unsupported(
                f"the transaction has read table {identifier} when it had no rows, which Spark "
                "cannot read any more: begin another one"
            )
        before, after = source.around
        version = f"VERSION AS OF {other.snapshot.snapshot_id}"
        return [(source.node, f"{before}{identifier.sql} {version}{after}")]

    def seen(self, ctx: Context, current: TableState) -> TableState:
        """The state of a table that the caller's transaction reads."""
        collecting = self._lake.transactions.collecting(ctx)
        reader = ctx.parent_transaction_id if collecting is None else collecting.id
        return self._lake.transactions.seen(reader, current)

    def _other_state(self, ctx: Context, identifier: Identifier) -> TableState | None:
        """What the caller's transaction sees of a table, if that is not the present state."""
        lake = self._lake
        if identifier.catalog != lake.catalog.name:
            return None
        entry = lake.entry(identifier)
        if entry is None or entry.kind is not Kind.ICEBERG:
            return None
        current = lake.current(identifier)
        seen = self.seen(ctx, current)
        return None if seen.snapshot == current.snapshot else seen


@dataclass(frozen=True, slots=True, eq=False)
class AnalysedQuery:
    """A query of which nothing has run."""

    plan: Any
    read: Sequence[Identifier]
    """The tables that it reads, also through views."""
    unpublished: Mapping[str, Identifier]
    """Those of them that no catalog has yet, by the names that they have in the plan."""


def _view_name(identifier: Identifier, sources: Sequence[NamedRelation]) -> str:
    """The name of a temporary view.

    It is the table's own, so that its columns can be named with it, unless that could be taken for
    another table of the statement.
    """
    alike = {
        each.identifier
        for each in sources
        if folded(each.identifier.name) == folded(identifier.name)
    }
    if alike == {identifier}:
        return identifier.name
    return f"sparkport_{'_'.join(identifier.namespace)}_{identifier.name}"
