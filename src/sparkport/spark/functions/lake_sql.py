"""SQL that any client of Flight SQL sends: Spark's dialect, on the tables of the lake.

Queries are checked as those of `spark_sql`, and changes as those of `spark_run`. A statement that
is no more than a scan or an INSERT of a table is left to the service, which does it without Spark's
engine, and needs no other permission than for that table.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from sparkport.catalog import (
    Context,
    Privilege,
    RecordReader,
    ScanOptions,
    SqlStatement,
    TableInsert,
    TableRead,
)
from sparkport.catalog.names import folded
from sparkport.errors import BadRequest, LimitExceeded, PermissionDenied
from sparkport.spark.functions.marker_types import MarkerTypes
from sparkport.spark.functions.pipelines import run_all
from sparkport.spark.functions.queries import Queries, Query, read_query
from sparkport.spark.functions.query_arguments import literal, marker_places
from sparkport.spark.functions.query_sessions import QuerySessions
from sparkport.spark.functions.run_statements import RunStatements
from sparkport.spark.functions.statements import Statement
from sparkport.spark.iceberg.identifiers import Identifier
from sparkport.spark.jvm.errors import translated
from sparkport.spark.lake.directory import Kind
from sparkport.spark.lake.lake import Lake
from sparkport.spark.scan.plain_plans import PlainPlan, assigned_markers, plain_insert, plain_read
from sparkport.spark.scan.query_plans import QueryPlans, begins_query
from sparkport.spark.scan.write_plans import ALLOWED, described

if TYPE_CHECKING:
    from pyspark.sql import Column

__all__ = ["LakeSql"]

_TITLE = "the statement"
_LONGEST = 1024 * 1024
_MOST_EXECUTIONS = 1_000
_DEFAULT_SCHEMAS = ("default", "main")


class LakeSql:
    """Analyses statements. Thread-safe."""

    def __init__(self, lake: Lake, queries: Queries, statements: RunStatements) -> None:
        self._lake = lake
        self._queries = queries
        self._statements = statements
        self._sessions = QuerySessions(lake)
        self._plans = QueryPlans(lake.spark)
        self._types = MarkerTypes(self._sessions, self._plans)

    def analyse(self, ctx: Context, text: str, parameters: pa.RecordBatch | None) -> SqlStatement:
        """Analyse a statement; see `SqlCatalog.analyse_sql`."""
        if len(text) > _LONGEST:
            raise LimitExceeded(
                f"a statement may have at most {_LONGEST} characters, and this one has "
                f"{len(text)}: ingest its values into a table, and join that"
            )
        namespace = self._namespace(ctx)
        current = (self._lake.gateway.catalog, *namespace)
        with translated(_TITLE), self._sessions.opened(namespace) as session:
            parsed = self._plans.parse(session, text, {})
            is_change = self._statements.is_change(parsed)
            find = plain_insert if is_change else plain_read
            plain = self._plain(ctx, find(parsed, session, current), is_change=is_change)
            columns = assigned_markers(parsed)
        if plain is not None:
            return _Plain(plain)
        if not is_change and not begins_query(text):
            raise BadRequest(
                f"{_TITLE} may be a query, {ALLOWED}, and this is {described(text)}: ATTACH this "
                "server in DuckDB for other statements, or write one of these"
            )
        self._expect_may(ctx, Privilege.SPARK_RUN if is_change else Privilege.SPARK_SQL)
        places, given = marker_places(text), 0 if parameters is None else parameters.num_columns
        count = len(places)
        if parameters is not None and given != count:
            raise BadRequest(f"{_TITLE} has {count} parameters, and {given} values were given")
        if parameters is not None and parameters.num_rows > _MOST_EXECUTIONS:
            raise LimitExceeded(
                f"{_TITLE} takes at most {_MOST_EXECUTIONS} rows of parameters, and there are "
                f"{parameters.num_rows}: ingest them into a table, and join or MERGE that"
            )
        if is_change:
            assigned = {at: columns[each] for at, each in enumerate(places) if each in columns}
            return self._change(ctx, namespace, text, parameters, count, assigned)
        return self._query(ctx, namespace, text, parameters, count)

    def _change(
        self,
        ctx: Context,
        namespace: tuple[str, ...],
        text: str,
        parameters: pa.RecordBatch | None,
        count: int,
        assigned: Mapping[int, str],
    ) -> SqlStatement:
        executions = _placeholders(count)[:1] if parameters is None else _executions(parameters)
        statements = [Statement(_TITLE, namespace, text, each) for each in executions]
        known: dict[int, pa.DataType] = {}
        if statements:
            write = self._statements.expect_allowed(ctx, statements[0])
            known = self._column_types(write.target.identifier, assigned)
        markers = self._markers(namespace, text, parameters, count, known)
        return _Change(self._lake, self._statements, statements, markers)

    def _column_types(
        self, identifier: Identifier, assigned: Mapping[int, str]
    ) -> dict[int, pa.DataType]:
        """The types of markers that are assigned to columns of a table."""
        if not assigned:
            return {}
        own = {
            folded(field.name): field.type
            for field in self._lake.current(identifier).definition.columns
        }
        return {at: own[folded(column)] for at, column in assigned.items() if folded(column) in own}

    def _query(
        self,
        ctx: Context,
        namespace: tuple[str, ...],
        text: str,
        parameters: pa.RecordBatch | None,
        count: int,
    ) -> SqlStatement:
        if parameters is None or not parameters.num_rows:
            model = self._without_values(ctx, namespace, text, count)
            queries = [model] if parameters is None else []
        else:
            keys = map(repr, parameters.to_pylist())
            queries = [
                self._queries.understand(ctx, namespace, _TITLE, text, each, key)
                for each, key in zip(_executions(parameters), keys, strict=True)
            ]
            model = queries[0]
            if any(each.arrow_schema.types != model.arrow_schema.types for each in queries):
                raise BadRequest(
                    f"{_TITLE} gives columns of other types for other rows of parameters: say the "
                    "type of each marker, as in CAST(? AS BIGINT)"
                )
        ctx.report_query(text, [f"{table.catalog}.{table}" for table in model.tables])
        markers = self._markers(namespace, text, parameters, count)
        return _Rows(self._lake, queries, model.arrow_schema, markers)

    def _without_values(
        self, ctx: Context, namespace: tuple[str, ...], text: str, count: int
    ) -> Query:
        """Analyse a query whose markers have no values yet."""
        first, *others = _placeholders(count)
        try:
            return self._queries.understand(ctx, namespace, _TITLE, text, first, count)
        except BadRequest:
            for each in others:  # LIMIT takes no NULL
                with suppress(BadRequest):
                    return self._queries.understand(ctx, namespace, _TITLE, text, each, (count,))
            raise

    def _markers(
        self,
        namespace: tuple[str, ...],
        text: str,
        parameters: pa.RecordBatch | None,
        count: int,
        known: Mapping[int, pa.DataType] | None = None,
    ) -> pa.Schema:
        """A field for each marker. Their types are those of the values, once there are some."""
        kinds = (
            self._types.of(namespace, text, count, known)
            if parameters is None
            else parameters.schema.types
        )
        return pa.schema([(f"parameter_{at}", kind) for at, kind in enumerate(kinds, 1)])

    def _plain(
        self, ctx: Context, plan: PlainPlan | None, *, is_change: bool
    ) -> TableRead | TableInsert | None:
        """What the service can do by itself; None for tables that only Spark can read."""
        if plan is None or plan.identifier.catalog != self._lake.gateway.catalog:
            return None
        schema, name = plan.identifier.schema_name, plan.identifier.name
        if not ctx.access.may(Privilege.LIST, schema, name):
            return None
        transaction = self._lake.transactions.collecting(ctx)
        if transaction is not None and plan.identifier in transaction.made:
            return None
        entry = self._lake.entry(plan.identifier)
        if entry is None or entry.kind is not Kind.ICEBERG:
            return None
        own = self._lake.seen(ctx, plan.identifier).definition.columns.names
        columns = tuple(own) if plan.columns is None else plan.columns
        if not set(columns) <= set(own) or len({*map(folded, columns)}) < len(columns):
            return None
        if is_change:
            return TableInsert(schema, name, columns) if plan.values == len(columns) else None
        return TableRead(schema, name, columns)

    def _namespace(self, ctx: Context) -> tuple[str, ...]:
        """Where names without a schema are: in `default` or `main`, or in the only schema."""
        namespaces = self._lake.catalog.listing().namespaces
        seen = {name: each for name, each in namespaces.items() if ctx.access.sees_schema(name)}
        for name in _DEFAULT_SCHEMAS:
            if name in seen:
                return seen[name].parts
        return next(iter(seen.values())).parts if len(seen) == 1 else ()

    def _expect_may(self, ctx: Context, privilege: Privilege) -> None:
        """Ask for the privilege that the function of that name needs, in any schema.

        Raises: PermissionDenied.
        """
        access = ctx.access
        if access.everything:
            return
        schemas = self._lake.catalog.listing().namespaces
        if not any(access.may(privilege, schema, privilege.value) for schema in schemas):
            raise PermissionDenied(
                f"you have no {privilege.value} permission in this catalog, and can read and fill "
                "single tables only: SELECT a, b FROM schema.table; INSERT INTO schema.table "
                "VALUES (?, ?)"
            )


def _executions(parameters: pa.RecordBatch) -> list[list[Column]]:
    """The values of each execution of a statement, as literals of Spark."""
    return [
        [literal(column[at]) for column in parameters.columns] for at in range(parameters.num_rows)
    ]


def _placeholders(count: int) -> list[list[Column]]:
    """Values with which a statement may be analysed before it gets its own."""
    from pyspark.sql import functions as sql

    return [[sql.lit(each) for _ in range(count)] for each in ((None, 1) if count else (None,))]


@dataclass(frozen=True, slots=True)
class _Plain(SqlStatement):
    """A scan or an INSERT, which the service does."""

    what: TableRead | TableInsert

    @property
    def plain(self) -> TableRead | TableInsert:
        return self.what

    @property
    def arrow_schema(self) -> None:
        return None

    @property
    def parameters(self) -> pa.Schema:
        return pa.schema([])

    def rows(self, ctx: Context) -> RecordReader:
        raise AssertionError("the service reads the table")

    def execute(self, ctx: Context) -> int:
        raise AssertionError("the service inserts the rows")


class _Rows(SqlStatement):
    """The rows of a query, for each row of parameters."""

    def __init__(
        self, lake: Lake, queries: Sequence[Query], arrow_schema: pa.Schema, markers: pa.Schema
    ) -> None:
        self._lake = lake
        self._queries = queries
        self._arrow_schema = arrow_schema
        self._markers = markers

    @property
    def arrow_schema(self) -> pa.Schema:
        return self._arrow_schema

    @property
    def parameters(self) -> pa.Schema:
        return self._markers

    def rows(self, ctx: Context) -> Iterator[pa.RecordBatch]:
        for query in self._queries:
            yield from read_query(self._lake, ctx, query, ScanOptions())

    def execute(self, ctx: Context) -> int:
        raise AssertionError("it is a query")


class _Change(SqlStatement):
    """A change, made once for each row of parameters."""

    def __init__(
        self,
        lake: Lake,
        statements: RunStatements,
        given: Sequence[Statement],
        markers: pa.Schema,
    ) -> None:
        self._lake = lake
        self._statements = statements
        self._given = given
        self._markers = markers

    @property
    def arrow_schema(self) -> None:
        return None

    @property
    def parameters(self) -> pa.Schema:
        return self._markers

    def rows(self, ctx: Context) -> RecordReader:
        raise AssertionError("it is a change")

    def execute(self, ctx: Context) -> int:
        done = run_all(self._lake, self._statements, ctx, self._given)
        return sum(each.outcome.changed for each in done)
