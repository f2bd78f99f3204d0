"""Queries in Spark SQL that clients send: they read, and do nothing else.

Strategy: what a query would touch is known and permitted before anything of it runs. It is parsed
in a session of its own and checked to be a query. Its tables are looked up in the grants. It is
analysed, which runs nothing, and the tables that the analysis has found are looked up again. The
rows are those of that very plan.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from sparkport.catalog import Context, ScanOptions
from sparkport.engine.cache import Cache
from sparkport.engine.types import refuse_unsupported
from sparkport.spark.functions.query_sessions import QuerySessions
from sparkport.spark.functions.transaction_sources import TransactionSources
from sparkport.spark.iceberg.identifiers import Identifier, quoted
from sparkport.spark.jvm.errors import translated
from sparkport.spark.jvm.relay.relations import scan_relation_batches
from sparkport.spark.jvm.result_columns import presented
from sparkport.spark.lake.lake import Lake
from sparkport.spark.scan.query_permissions import expect_readable
from sparkport.spark.scan.query_plans import NamedRelation, QueryPlans
from sparkport.spark.scan.spark_filters import spark_condition
from sparkport.spark.scan.write_plans import replaced_names

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

__all__ = ["Queries", "Query", "read_query"]

_MOST_QUERIES = 256
_REMEMBERED_SECONDS = 60.0


@dataclass(frozen=True, slots=True, eq=False)
class Query:
    """A query that Spark has analysed; nothing of it has run."""

    title: str
    """How messages name it."""
    rows: DataFrame
    arrow_schema: pa.Schema
    named: Sequence[Identifier] = ()
    """The tables and views that the query names."""
    tables: Sequence[Identifier] = ()
    """The tables that the query reads, also through views."""


class Queries:
    """Analyses the queries of a lake. Thread-safe."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._sessions = QuerySessions(lake)
        self._plans = QueryPlans(lake.spark)
        self._sources = TransactionSources(lake, self._sessions, self._plans)
        self._known: Cache[Hashable, Query] = Cache(
            _MOST_QUERIES, _REMEMBERED_SECONDS, kept_by_use=False
        )

    def understand(
        self,
        ctx: Context,
        namespace: tuple[str, ...],
        title: str,
        text: str,
        arguments: Mapping[str, Column] | list[Column],
        key: Hashable,
    ) -> Query:
        """Analyse a query, whose unqualified names are in `namespace`.

        `key` stands for its arguments. Raises: BadRequest for a text that is not a query;
        PermissionDenied, in the same words, for tables that the caller may not read and, unless it
        may do everything, for tables that do not exist; what else Spark finds wrong.
        """
        # The steps of a scan share a trace id, so that it reads what was planned.
        remembered = (ctx.trace_id, ctx.principal, namespace, text, key)
        known = self._known.find(remembered, None) if ctx.trace_id else None
        if known is None:
            known = self._understood(ctx, namespace, title, text, arguments)
            self._known.replace(remembered, known)
        else:
            expect_readable(ctx, self._lake, [*known.named, *known.tables], title)
        return known

    def _understood(
        self,
        ctx: Context,
        namespace: tuple[str, ...],
        title: str,
        text: str,
        arguments: Mapping[str, Column] | list[Column],
    ) -> Query:
        expect_readable(ctx, self._lake, (), title)
        with translated(title), self._sessions.opened(namespace) as session:
            parsed, relations = self._parsed(session, namespace, title, text, arguments)
            named = [each.identifier for each in relations]
            expect_readable(ctx, self._lake, named, title)
            instead = self._sources.substitution(ctx, session, relations, title)
            if instead.names:
                text = self._plans.with_values(session, text, arguments)
                _, before = self._parsed(session, namespace, title, text, {})
                instead = self._sources.substitution(ctx, session, before, title)
                text = replaced_names(text, instead.names)
                parsed, relations = self._parsed(session, namespace, title, text, {})
                instead.expect_same(before, relations, title)
            analysed, tables = self._sources.checked(
                ctx, session, parsed, relations, instead, title
            )
            self._sources.expect_current(ctx, analysed, title)
            rows, arrow_schema = presented(self._plans.rows(session, analysed))
        refuse_unsupported(arrow_schema, title)
        return Query(title, rows, arrow_schema, named, tables)

    def _parsed(
        self,
        session: SparkSession,
        namespace: tuple[str, ...],
        title: str,
        text: str,
        arguments: Mapping[str, Column] | list[Column],
    ) -> tuple[Any, list[NamedRelation]]:
        parsed = self._plans.parse(session, text, arguments)
        current = (self._lake.gateway.catalog, *namespace)
        return parsed, self._plans.named_relations(parsed, session, current, title, text)


def read_query(
    lake: Lake, ctx: Context, query: Query, options: ScanOptions
) -> Iterator[pa.RecordBatch]:
    """Run a query on Spark and stream its rows. Raises: what Spark's errors are translated to."""
    names = query.arrow_schema.names if options.columns is None else list(options.columns)
    names = names or query.arrow_schema.names[:1]
    with translated(query.title):
        rows = query.rows
        condition = spark_condition(options.filter, rows.schema)
        if condition is not None:
            rows = rows.where(condition)
        rows = rows.select(*map(quoted, names))
    arrow_schema = pa.schema([query.arrow_schema.field(name) for name in names])
    yield from scan_relation_batches(lake.relay, ctx, query.title, rows, arrow_schema)
