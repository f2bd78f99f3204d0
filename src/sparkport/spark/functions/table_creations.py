"""Tables from queries: Spark appends the rows of a query to a table that is only drafted."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from sparkport.catalog import Constraints, Context
from sparkport.catalog.rowid import ROWID_NAME
from sparkport.engine.alterations import new_table
from sparkport.engine.types import publishable_schema
from sparkport.errors import BadRequest, Conflict, Unsupported
from sparkport.spark.ddl.create_table import Layout
from sparkport.spark.ddl.new_tables import NewTable
from sparkport.spark.functions.awaited_jobs import run_job
from sparkport.spark.functions.created_columns import schema_text
from sparkport.spark.functions.statements import Statement
from sparkport.spark.functions.transaction_sources import TransactionSources
from sparkport.spark.iceberg.identifiers import Identifier
from sparkport.spark.iceberg.types.declared import declared_fields
from sparkport.spark.iceberg.types.java_spelling import loaded_schema
from sparkport.spark.jvm.errors import translated
from sparkport.spark.jvm.named_writes import run_named
from sparkport.spark.lake.directory import CatalogEntry
from sparkport.spark.lake.lake import Lake
from sparkport.spark.lake.transaction import Transaction
from sparkport.spark.scan.create_plans import CreatePlans, ParsedCreation
from sparkport.spark.scan.query_plans import QueryPlans, kind_of
from sparkport.spark.scan.write_plans import ParsedWrite, replaced_names
from sparkport.spark.write.commit import summary_of
from sparkport.spark.write.leftovers import remove_files_by_spark
from sparkport.spark.write.spark_changes import Outcome

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["TableCreations"]

_SUMMARY = "spark.sql.iceberg.snapshot-property."


class TableCreations:
    """Makes and fills the new tables of transactions. Thread-safe."""

    def __init__(
        self, lake: Lake, plans: QueryPlans, creates: CreatePlans, sources: TransactionSources
    ) -> None:
        self._lake = lake
        self._plans = plans
        self._creates = creates
        self._sources = sources
        logical = lake.gateway.jvm.org.apache.spark.sql.catalyst.plans.logical
        self._inserts = logical.InsertIntoStatement
        self._append = logical.AppendData.byPosition

    def make(
        self,
        ctx: Context,
        statement: Statement,
        parsed: ParsedCreation,
        session: SparkSession,
        entry: CatalogEntry | None,
        add: Callable[[NewTable], None],
    ) -> Outcome:
        """Make a table, which replaces the one of an entry, and `add` it to a transaction.

        A table that replaces another has only what the statement says: no constraint, default or
        comment of the old one stays, as in Spark. Its versions stay, so do its properties, and the
        grants, which go by name.

        Raises: BadRequest, Unsupported; what Spark raises. Then nothing is left of it.
        """
        title = statement.title
        identifier = parsed.target.identifier if entry is None else entry.identifier
        # Before the query is analysed: what others change from here on is noticed.
        replaced = None if entry is None else self._lake.current(identifier)
        seen = None if replaced is None else self._sources.seen(ctx, replaced)
        plan, read = self._query(ctx, statement, parsed, session)
        columns = self._columns(identifier, plan)
        made = NewTable(
            self._lake,
            identifier,
            replaced,
            columns,
            parsed.comment,
            Layout(self._partitions(title, parsed, columns), parsed.properties),
            seen if identifier in read else None,
        )
        try:
            rows, files = self._fill(
                ctx,
                f"spark_run {parsed.operation}",
                title,
                session,
                made,
                lambda relation: self._appended(session, relation, plan),
            )
            add(made)
        except BaseException:
            made.discard()
            raise
        return Outcome(inserted=rows, files=files)

    def _query(
        self, ctx: Context, statement: Statement, parsed: ParsedCreation, session: SparkSession
    ) -> tuple[Any, list[Identifier]]:
        """The analysed query of a statement, and the tables that it reads: all are permitted."""
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
        self._sources.expect_current(ctx, plan, title)
        ctx.report_query(statement.text, [f"{each.catalog}.{each}" for each in read])
        return plan, read

    def _columns(self, identifier: Identifier, plan: Any) -> pa.Schema:
        """The columns of a table for the rows of a plan. Raises: BadRequest, Unsupported.

        They have the types of Iceberg. A type that only Sparkport declares, such as UTINYINT, is
        that of the values which Spark reads.
        """
        text = schema_text(self._lake.gateway, identifier, plan)
        columns = pa.schema(declared_fields(loaded_schema(text), {}))
        for name in columns.names:
            if name.lower() == ROWID_NAME:
                raise BadRequest(
                    f"table {identifier}: a column cannot be called rowid, which is the row's "
                    "identity; choose another name"
                )
        return new_table(publishable_schema(columns), Constraints(), identifier.name)[0]

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

    def _appended(self, session: SparkSession, relation: Any, plan: Any) -> Any:
        empty = self._lake.gateway.jvm.org.apache.spark.api.python.PythonUtils.toScalaMap({})
        return self._plans.analyse(session, self._append(relation, plan, empty))

    def insert(
        self,
        ctx: Context,
        transaction: Transaction,
        statement: Statement,
        write: ParsedWrite,
        session: SparkSession,
        read_again: Callable[[str], tuple[Any, ParsedWrite]],
    ) -> Outcome:
        """Insert into a table that the same transaction has made.

        `read_again` parses the statement with other names in it. Raises: Unsupported for other
        changes of such a table; what Spark raises.
        """
        title, target = statement.title, write.target.identifier
        made = transaction.made[target]
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
            iterator = root.productIterator()
            parts = [iterator.next() for _ in range(root.productArity())]
            analysed = self._plans.analyse(session, self._inserts(relation, *parts[1:]))
            name = kind_of(analysed).rpartition(".")[2]
            if name != "AppendData":
                raise Unsupported(f"{title} cannot do this: Spark makes {name} of the statement")
            read = self._sources.expect_permitted(ctx, analysed.query(), instead, title)
            self._sources.expect_current(ctx, analysed.query(), title)
            ctx.report_query(statement.text, [f"{each.catalog}.{each}" for each in read])
            return analysed

        with self._lake.locked(("spark_run", target)):
            rows, files = self._fill(ctx, "spark_run insert", title, session, made, plan)
        with transaction.lock:
            if transaction.made.get(target) is not made:
                remove = partial(remove_files_by_spark, self._lake, target, made.staging.id)
                self._lake.attempt("files for a table that was published", remove)
                raise Conflict(f"the transaction that makes {target} ended meanwhile: run it again")
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
            made.staging.will_run_spark()
            run_job(self._lake, ctx, title, lambda: run_named(session, analysed, made.staging.id))
            ctx.check()
        return made.counted(before)
