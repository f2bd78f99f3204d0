"""Statements that make tables and views from queries: CREATE and REPLACE TABLE AS, CREATE VIEW.

Strategy: none of Spark's own commands runs, which would publish at once what they make. Only the
query is Spark's: it is analysed under the rules for queries, and Spark appends its rows to a table
that is only drafted (ddl/new_tables.py). The caller's transaction keeps that until it is published.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from sparkport.catalog import Constraints, Context, Privilege
from sparkport.catalog.names import folded
from sparkport.catalog.rowid import ROWID_NAME
from sparkport.engine.alterations import new_table
from sparkport.engine.types import publishable_schema
from sparkport.errors import (
    AlreadyExists,
    BadRequest,
    Conflict,
    NotFound,
    PermissionDenied,
    Unsupported,
)
from sparkport.spark.ddl.create_table import Layout, expect_place
from sparkport.spark.ddl.names import expect_text
from sparkport.spark.ddl.new_tables import NewTable
from sparkport.spark.ddl.new_views import DroppedView, NewView, ViewDefinition
from sparkport.spark.functions.statements import Statement
from sparkport.spark.functions.transaction_sources import TransactionSources
from sparkport.spark.iceberg.identifiers import Identifier
from sparkport.spark.iceberg.types.declared import declared_fields
from sparkport.spark.iceberg.types.java_spelling import loaded_schema
from sparkport.spark.jvm.errors import translated
from sparkport.spark.jvm.relay.jobs import start_job
from sparkport.spark.lake.directory import CatalogEntry, Kind
from sparkport.spark.lake.lake import Lake
from sparkport.spark.lake.transactions import Transaction
from sparkport.spark.lake.unpublished import Unpublished
from sparkport.spark.scan.create_plans import CreatePlans, ParsedCreation
from sparkport.spark.scan.query_plans import QueryPlans, kind_of
from sparkport.spark.scan.write_plans import ParsedWrite, replaced_names
from sparkport.spark.write.commit import summary_of
from sparkport.spark.write.spark_changes import Outcome

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Creations"]

_SUMMARY = "spark.sql.iceberg.snapshot-property."
_COMMENT = "comment"
_ALIAS = "org.apache.spark.sql.catalyst.plans.logical.SubqueryAlias"


class Creations:
    """Runs the statements of a lake that make tables and views. Thread-safe."""

    def __init__(self, lake: Lake, plans: QueryPlans, sources: TransactionSources) -> None:
        self._lake = lake
        self._plans = plans
        self._sources = sources
        self._creates = CreatePlans(plans)
        logical = lake.gateway.jvm.org.apache.spark.sql.catalyst.plans.logical
        self._inserts = logical.InsertIntoStatement

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
        if entry is None and (parsed.operation == "drop view" or not parsed.creates):
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
            self._make_view(ctx, transaction, statement, parsed, session, entry)
            return Outcome()
        return self._make_table(ctx, transaction, statement, parsed, session, entry)

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

    # -------------------------------------------------------------------------------------- tables

    def _make_table(
        self,
        ctx: Context,
        transaction: Transaction,
        statement: Statement,
        parsed: ParsedCreation,
        session: SparkSession,
        entry: CatalogEntry | None,
    ) -> Outcome:
        title = statement.title
        plan = self._query(ctx, statement, parsed, session)
        identifier = parsed.target.identifier if entry is None else entry.identifier
        columns = self._columns(identifier, plan)
        made = NewTable(
            self._lake,
            identifier,
            None if entry is None else self._lake.current(identifier),
            columns,
            parsed.comment,
            Layout(self._partitions(title, parsed, columns), parsed.properties),
        )
        try:
            rows, files = self._fill(
                ctx,
                f"spark_run {parsed.operation}",
                title,
                session,
                made,
                lambda relation: self._inserted(session, relation, plan),
            )
            self._add(ctx, transaction, made)
        except BaseException:
            made.discard()
            raise
        return Outcome(inserted=rows, files=files)

    def _query(
        self, ctx: Context, statement: Statement, parsed: ParsedCreation, session: SparkSession
    ) -> Any:
        """The analysed query of a statement, in which all tables are permitted."""
        title, current = statement.title, (self._lake.gateway.catalog, *statement.namespace)
        instead = self._sources.substitution(ctx, session, parsed.sources, title)
        text = replaced_names(statement.text, instead.names)
        again = self._creates.parsed(
            self._plans.parse(session, text, statement.arguments), session, current, title, text
        )
        instead.expect_same(parsed.sources, again.sources, title)
        if again.target.identifier != parsed.target.identifier:
            raise BadRequest(f"{title}: write the name of the table as it is")
        plan, read = self._sources.checked(ctx, session, again.query, again.sources, instead, title)
        ctx.report_query(statement.text, [f"{each.catalog}.{each}" for each in read])
        return plan

    def _columns(self, identifier: Identifier, plan: Any) -> pa.Schema:
        """The columns of a table for the rows of a plan. Raises: BadRequest, Unsupported."""
        columns = pa.schema(declared_fields(loaded_schema(self._schema_text(identifier, plan)), {}))
        for name in columns.names:
            if name.lower() == ROWID_NAME:
                raise BadRequest(
                    f"table {identifier}: a column cannot be called rowid, which is the row's "
                    "identity; choose another name"
                )
        return new_table(publishable_schema(columns), Constraints(), identifier.name)[0]

    def _schema_text(self, identifier: Identifier, plan: Any) -> str:
        gateway = self._lake.gateway
        fields = plan.schema().asNullable()
        names = [str(name) for name in fields.fieldNames()]
        if len({folded(name) for name in names}) < len(names) or not all(names):
            raise BadRequest(
                f"the columns of {identifier} need names that differ, not only in case: give them "
                "with AS"
            )
        convert = gateway.jvm.org.apache.iceberg.spark.SparkSchemaUtil.convert
        for each in fields.fields():
            if str(each.dataType().typeName()) == "void":
                raise BadRequest(
                    f"column {each.name()} of {identifier} has no type: write CAST(NULL AS …)"
                )
            try:
                convert(each.dataType())
            except Exception as error:
                raise Unsupported(
                    f"column {each.name()} of {identifier} cannot have type "
                    f"{each.dataType().sql()}, which Iceberg does not have: cast it"
                ) from error
        return str(gateway.jvm.org.apache.iceberg.SchemaParser.toJson(convert(fields)))

    def _partitions(
        self, title: str, parsed: ParsedCreation, columns: pa.Schema
    ) -> Callable[[Any], Any]:
        """Makes the partitions that a statement asks for. Raises: BadRequest."""
        gateway: Any = self._lake.spark.sparkContext._gateway
        jvm = self._lake.gateway.jvm
        for each in parsed.partitioning:
            for reference in each.references():
                path = [str(part) for part in reference.fieldNames()]
                if path[0] not in columns.names:
                    raise BadRequest(
                        f"{title}: PARTITIONED BY names column {'.'.join(path)}, which the query "
                        "does not have"
                    )
        transforms = gateway.new_array(
            jvm.org.apache.spark.sql.connector.expressions.Transform, len(parsed.partitioning)
        )
        for index, each in enumerate(parsed.partitioning):
            transforms[index] = each
        make = jvm.org.apache.iceberg.spark.Spark3Util.toPartitionSpec
        return lambda schema: make(schema, transforms)

    def _inserted(self, session: SparkSession, relation: Any, plan: Any) -> Any:
        jvm = self._lake.gateway.jvm
        append = jvm.org.apache.spark.sql.catalyst.plans.logical.AppendData.byPosition
        empty = jvm.org.apache.spark.api.python.PythonUtils.toScalaMap({})
        return self._plans.analyse(session, append(relation, plan, empty))

    def insert(
        self,
        ctx: Context,
        statement: Statement,
        write: ParsedWrite,
        made: Unpublished,
        session: SparkSession,
        read_again: Callable[[str], tuple[Any, ParsedWrite]],
    ) -> Outcome:
        """Insert into a table that the same transaction has made.

        `read_again` parses the statement with other names in it. Raises: Unsupported for other
        changes of such a table; what Spark raises.
        """
        title, target = statement.title, write.target.identifier
        if not isinstance(made, NewTable):
            raise Unsupported(f"{title}: {target} is a view: change the tables that it reads")
        if write.operation != "insert":
            raise Unsupported(
                f"{title}: table {target} was made in this transaction, and takes only INSERT "
                "before that is committed"
            )
        instead = self._sources.substitution(ctx, session, write.sources, title)
        root, again = read_again(replaced_names(statement.text, instead.names))
        instead.expect_same(write.sources, again.sources, title)

        def plan(relation: Any) -> Any:
            parts = list(_each(root.productIterator()))
            analysed = self._plans.analyse(session, self._inserts(relation, *parts[1:]))
            name = kind_of(analysed).rpartition(".")[2]
            if name != "AppendData":
                raise Unsupported(f"{title} cannot do this: Spark makes {name} of the statement")
            read = self._sources.expect_permitted(ctx, analysed.query(), instead, title)
            ctx.report_query(statement.text, [f"{each.catalog}.{each}" for each in read])
            return analysed

        with self._lake.locked(("spark_run", target)):
            rows, files = self._fill(ctx, "spark_run insert", title, session, made, plan)
        return Outcome(inserted=rows, files=files)

    def _fill(
        self,
        ctx: Context,
        operation: str,
        title: str,
        session: SparkSession,
        made: NewTable,
        plan: Callable[[Any], Any],
    ) -> tuple[int, int]:
        """Have Spark append to a table, by a plan for its relation; how many rows and files."""
        before = made.snapshots
        summary = made.summary(summary_of(ctx, operation, made.staging))
        with made.filling() as table:
            with translated(title):
                for name, value in summary.items():
                    session.conf.set(f"{_SUMMARY}{name}", value)
                analysed = plan(self._sources.relation(table))
            self._await(ctx, title, lambda: self._plans.rows(session, analysed))
            ctx.check()
        return made.counted(before)

    def _await(self, ctx: Context, title: str, action: Callable[[], Any]) -> None:
        job = start_job(self._lake.spark.sparkContext, ctx, title, action)
        ctx.on_cancel(job.cancel)

        def meanwhile() -> None:
            self._lake.relay.make_room()
            ctx.report_progress(job.fraction())

        job.result(meanwhile=meanwhile)

    # --------------------------------------------------------------------------------------- views

    def _make_view(
        self,
        ctx: Context,
        transaction: Transaction,
        statement: Statement,
        parsed: ParsedCreation,
        session: SparkSession,
        entry: CatalogEntry | None,
    ) -> None:
        title = statement.title
        identifier = parsed.target.identifier if entry is None else entry.identifier
        found = self._sources.analysed(ctx, session, statement.namespace, parsed.text, title)
        ctx.report_query(statement.text, [f"{each.catalog}.{each}" for each in found.read])
        if any(each.identifier == identifier for each in parsed.sources) or self._names(
            found.plan, identifier
        ):
            raise BadRequest(f"{title}: view {identifier} cannot read itself")
        rows = self._plans.rows(session, found.plan)
        if parsed.aliases and len(parsed.aliases) != len(rows.columns):
            raise BadRequest(
                f"{title}: view {identifier} names {len(parsed.aliases)} columns, and its query "
                f"has {len(rows.columns)}"
            )
        named = rows.toDF(*parsed.aliases) if parsed.aliases else rows
        text = self._schema_text(identifier, named._jdf.queryExecution().analyzed())
        schema = loaded_schema(text)
        for field, comment in zip(schema.fields, parsed.column_comments, strict=False):
            field.doc = comment
        iceberg = self._lake.gateway.jvm.org.apache.iceberg
        properties = {**parsed.properties, **({_COMMENT: parsed.comment} if parsed.comment else {})}
        definition = ViewDefinition(
            parsed.text,
            statement.namespace,
            iceberg.SchemaParser.fromJson(schema.model_dump_json()),
            rows.columns,
            properties,
        )
        self._add(ctx, transaction, NewView(self._lake, identifier, entry, definition))

    def _names(self, plan: Any, identifier: Identifier) -> bool:
        """Whether a plan reads a view, through whatever other views."""
        wanted = [identifier.catalog, *identifier.namespace, identifier.name]
        for node in self._plans.nodes(plan):
            if kind_of(node) == _ALIAS:
                alias = node.identifier()
                if [*map(str, _each(alias.qualifier().iterator())), str(alias.name())] == wanted:
                    return True
        return False


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


def _each(iterator: Any) -> Iterator[Any]:
    while iterator.hasNext():
        yield iterator.next()
