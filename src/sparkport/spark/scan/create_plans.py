"""What a statement consists of that makes a table or a view, by Spark's parser: nothing is made.

Strategy: as for changes of tables (write_plans.py). Only the query of a statement is ever analysed
by Spark. What else the statement says is read from its nodes, and each clause is on a closed list.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sparkport.errors import BadRequest
from sparkport.spark.iceberg.identifiers import Identifier
from sparkport.spark.scan.query_plans import (
    NamedRelation,
    QueryPlans,
    identifier_of_parts,
    kind_of,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["CREATING", "CreatePlans", "ParsedCreation"]

CREATING = "CREATE TABLE AS, CREATE OR REPLACE TABLE AS, CREATE VIEW and DROP VIEW"

_LOGICAL = "org.apache.spark.sql.catalyst.plans.logical."
_STATEMENTS: Mapping[str, str] = {
    f"{_LOGICAL}CreateTableAsSelect": "create table as",
    f"{_LOGICAL}ReplaceTableAsSelect": "replace table as",
    f"{_LOGICAL}views.CreateIcebergView": "create view",
    f"{_LOGICAL}views.DropIcebergView": "drop view",
}
_UNRESOLVED_NAME = "org.apache.spark.sql.catalyst.analysis.UnresolvedIdentifier"
_RESOLVED_NAME = "org.apache.spark.sql.catalyst.analysis.ResolvedIdentifier"
_TRANSFORMS = frozenset(
    [
        *("identity", "bucket", "truncate", "year", "years", "month", "months"),
        *("day", "days", "date", "hour", "hours", "date_hour"),
    ]
)
_LOCATED = ("write.data.path", "write.metadata.path", "write.object-storage.path")
_REFUSED = frozenset(
    {
        *(*_LOCATED, "write.folder-storage.path", "location", "provider", "external", "owner"),
        *("format-version", "gc.enabled", "write.location-provider.impl", "is_managed_location"),
        *("write.delete.mode", "write.update.mode", "write.merge.mode", "comment"),
        *("write.metadata.delete-after-commit.enabled", "write.metadata.previous-versions-max"),
    }
)
"""Properties that Sparkport sets itself, or that would send files elsewhere."""
_OWN = "sparkport."


@dataclass(frozen=True, slots=True, eq=False)
class ParsedCreation:
    """A statement that makes or drops a table or a view, before its analysis."""

    operation: str
    """create table as, replace table as, create view or drop view"""
    target: NamedRelation
    sources: Sequence[NamedRelation] = ()
    query: Any = None
    """The plan of the query, as it was written."""
    text: str = ""
    """The query of a view, as it was written."""
    partitioning: Sequence[Any] = ()
    """org.apache.spark.sql.connector.expressions.Transform objects"""
    comment: str = ""
    properties: Mapping[str, str] = field(default_factory=dict)
    aliases: Sequence[str] = ()
    """The names of a view's columns, if they are not those of its query."""
    column_comments: Sequence[str | None] = ()
    if_missing: bool = False
    """IF NOT EXISTS: an object that is there stays as it is."""
    if_exists: bool = False
    """IF EXISTS: an object that is not there is no error."""
    replaces: bool = False
    """OR REPLACE: an object that is there is replaced."""
    creates: bool = True
    """Whether an object that is not there is made."""

    @property
    def is_view(self) -> bool:
        return self.operation.endswith("view")


class CreatePlans:
    """Reads statements that make tables and views. Thread-safe."""

    def __init__(self, plans: QueryPlans) -> None:
        self._plans = plans

    def is_creation(self, parsed: Any) -> bool:
        """Whether a parsed plan is a statement that makes or drops a table or a view."""
        return kind_of(self._plans.without_common_tables(parsed)) in _STATEMENTS

    def parsed(
        self, parsed: Any, session: SparkSession, current: tuple[str, ...], title: str, text: str
    ) -> ParsedCreation:
        """What a statement for which `is_creation` makes, and what it reads.

        `current` are the catalog and namespace for names without them. Raises: BadRequest for a
        clause that is not allowed, or a statement that hides what it reads.
        """
        root = self._plans.without_common_tables(parsed)
        operation = _STATEMENTS[kind_of(root)]
        if operation == "drop view":
            target = _target(root.child(), session, current, title)
            return ParsedCreation(operation, target, if_exists=bool(root.ifExists()), creates=False)
        if operation == "create view":
            return self._view(root, session, current, title)
        sources = self._plans.named_in([root.query()], session, current, title, text)
        is_new = operation == "create table as"
        specified = root.tableSpec()
        _expect_clauses(title, root, specified)
        return ParsedCreation(
            operation,
            _target(root.name(), session, current, title),
            sources,
            root.query(),
            partitioning=_partitioning(title, root.partitioning()),
            comment=_optional(specified.comment()) or "",
            properties=_properties(title, specified.properties()),
            if_missing=is_new and bool(root.ignoreIfExists()),
            replaces=not is_new,
            creates=is_new or bool(root.orCreate()),
        )

    def _view(
        self, root: Any, session: SparkSession, current: tuple[str, ...], title: str
    ) -> ParsedCreation:
        text = str(root.queryText())
        # By itself, so that its names have their places in this text.
        query = self._plans.parse(session, text, {})
        sources = self._plans.named_relations(query, session, current, title, text)
        return ParsedCreation(
            "create view",
            _target(root.child(), session, current, title),
            sources,
            query,
            text,
            comment=_optional(root.comment()) or "",
            properties=_properties(title, root.properties()),
            aliases=tuple(map(str, _each(root.columnAliases()))),
            column_comments=tuple(_optional(each) for each in _each(root.columnComments())),
            if_missing=bool(root.allowExisting()),
            replaces=bool(root.replace()),
        )


def _target(
    node: Any, session: SparkSession, current: tuple[str, ...], title: str
) -> NamedRelation:
    kind = kind_of(node)
    if kind == _UNRESOLVED_NAME:
        parts = tuple(map(str, _each(node.nameParts())))
        return NamedRelation(identifier_of_parts(parts, session, current), node)
    if kind == _RESOLVED_NAME:
        name = node.identifier()
        catalog, namespace = str(node.catalog().name()), tuple(map(str, name.namespace()))
        return NamedRelation(Identifier(catalog, namespace, str(name.name())), node)
    raise BadRequest(f"{title}: name what is made as schema.name, without IDENTIFIER")


def _expect_clauses(title: str, root: Any, specified: Any) -> None:
    """Raises: BadRequest for a clause of CREATE TABLE that is not allowed."""
    provider = _optional(specified.provider())
    if provider is not None and provider.lower() != "iceberg":
        raise BadRequest(f"{title} makes Iceberg tables only: write USING iceberg, or leave it out")
    options = specified.optionExpression().options()
    clauses = {
        "LOCATION": specified.location().isDefined(),
        "OPTIONS": not options.isEmpty() or not root.writeOptions().isEmpty(),
        "ROW FORMAT and STORED AS": specified.serde().isDefined(),
        "DEFAULT COLLATION": specified.collation().isDefined(),
        "EXTERNAL": bool(specified.external()),
        "constraints": not specified.constraints().isEmpty(),
    }
    for clause, is_there in clauses.items():
        if is_there:
            raise BadRequest(
                f"{title}: a table takes no {clause} here, as the server decides where and how its "
                "files are kept: leave that out"
            )


def _partitioning(title: str, transforms: Any) -> list[Any]:
    found = list(_each(transforms))
    for each in found:
        if str(each.name()).lower() not in _TRANSFORMS:
            raise BadRequest(
                f"{title}: PARTITIONED BY takes columns, and bucket, truncate, years, months, days "
                f"and hours of them, and not {each.name()}"
            )
    return found


def _properties(title: str, given: Any) -> dict[str, str]:
    found = {str(each._1()): str(each._2()) for each in _each(given)}
    for name in found:
        plain = name.lower().removeprefix("option.")
        if plain in _REFUSED or plain.startswith((_OWN, "spark.")):
            raise BadRequest(
                f"{title}: property {name} is the server's to set: leave it out of TBLPROPERTIES"
            )
    return found


def _optional(option: Any) -> str | None:
    return str(option.get()) if option.isDefined() else None


def _each(sequence: Any) -> Iterator[Any]:
    iterator = sequence.iterator()
    while iterator.hasNext():
        yield iterator.next()
