"""Views: their queries are analysed under the rules for queries, and kept as text."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from sparkport.catalog import Context
from sparkport.errors import BadRequest
from sparkport.spark.ddl.new_views import NewView, ViewDefinition
from sparkport.spark.functions.created_columns import schema_text
from sparkport.spark.functions.statements import Statement
from sparkport.spark.functions.transaction_sources import TransactionSources
from sparkport.spark.lake.directory import CatalogEntry
from sparkport.spark.lake.lake import Lake
from sparkport.spark.scan.create_plans import ParsedCreation
from sparkport.spark.scan.query_plans import QueryPlans

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["ViewCreations"]

_COMMENT = "comment"


class ViewCreations:
    """Makes the new views of transactions. Thread-safe."""

    def __init__(self, lake: Lake, plans: QueryPlans, sources: TransactionSources) -> None:
        self._lake = lake
        self._plans = plans
        self._sources = sources

    def make(
        self,
        ctx: Context,
        statement: Statement,
        parsed: ParsedCreation,
        session: SparkSession,
        entry: CatalogEntry | None,
    ) -> NewView:
        """A view, which replaces the one of an entry. Raises: BadRequest, Unsupported."""
        title = statement.title
        identifier = parsed.target.identifier if entry is None else entry.identifier
        found = self._sources.analysed(ctx, session, statement.namespace, parsed.text, title)
        ctx.report_query(statement.text, [f"{each.catalog}.{each}" for each in found.read])
        named = {each.identifier for each in parsed.sources}
        if identifier in named | self._plans.aliases(found.plan):
            raise BadRequest(f"{title}: view {identifier} cannot read itself")
        rows = self._plans.rows(session, found.plan)
        if parsed.aliases and len(parsed.aliases) != len(rows.columns):
            raise BadRequest(
                f"{title}: view {identifier} names {len(parsed.aliases)} columns, and its query "
                f"has {len(rows.columns)}"
            )
        renamed = rows.toDF(*parsed.aliases) if parsed.aliases else rows
        plan = renamed._jdf.queryExecution().analyzed()
        columns = json.loads(schema_text(self._lake.gateway, identifier, plan))
        for field, comment in zip(columns["fields"], parsed.column_comments, strict=False):
            if comment:
                field["doc"] = comment
        iceberg = self._lake.gateway.jvm.org.apache.iceberg
        definition = ViewDefinition(
            parsed.text,
            statement.namespace,
            iceberg.SchemaParser.fromJson(json.dumps(columns)),
            rows.columns,
            {**parsed.properties, **({_COMMENT: parsed.comment} if parsed.comment else {})},
        )
        return NewView(self._lake, identifier, entry, definition)
