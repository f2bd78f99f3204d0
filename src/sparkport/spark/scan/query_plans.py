"""What a query consists of, by Spark's parser and its analysis: nothing here runs the query.

Strategy: there are two closed lists. Spark's analysis runs some things itself (procedures, EXECUTE
IMMEDIATE, subqueries that choose a version). So before it, the parsed plan must consist of nodes of
queries only, and all tables are known by name. After it, the analysed plan must again consist of
nodes of queries, and every leaf must be a table with a name, or hold only values of the query. A
node on neither list is refused, whatever a new Spark may call it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from sparkport.errors import BadRequest
from sparkport.spark.iceberg.identifiers import Identifier

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

__all__ = [
    "IDENTIFIER_CLAUSE",
    "NamedRelation",
    "QueryPlans",
    "begins_query",
    "identifier_of",
    "identifier_of_parts",
    "kind_of",
    "nodes_of",
    "relations_of",
]


@dataclass(frozen=True, slots=True, eq=False)
class NamedRelation:
    """A table or view that a query names."""

    identifier: Identifier
    node: Any
    """UnresolvedRelation"""
    is_dated: bool = False
    """Whether the query says at which time or version."""
    around: tuple[str, str] = ("", "")
    """What other SQL than a name needs before it and after it in this place."""


class QueryPlans:
    """Parses and analyses queries in sessions of one JVM. Thread-safe."""

    def __init__(self, spark: SparkSession) -> None:
        jvm: Any = spark._jvm
        analysis = jvm.org.apache.spark.sql.catalyst.analysis
        self._jvm = jvm
        self._to_seq = jvm.org.apache.spark.api.python.PythonUtils.toSeq
        self._to_map = jvm.org.apache.spark.api.python.PythonUtils.toScalaMap
        self._common_tables = analysis.CTESubstitution
        self._identifier_clauses = analysis.ResolveIdentifierClause(self._to_seq([]))
        self._without_commands = jvm.org.apache.spark.sql.execution.CommandExecutionMode.SKIP()
        self._dataset = jvm.org.apache.spark.sql.classic.Dataset
        self._every_node = _every_node(jvm)

    def parse(
        self, session: SparkSession, text: str, arguments: Mapping[str, Column] | list[Column]
    ) -> Any:
        """The plan as it was written, with arguments in place of their markers."""
        java_session: Any = session._jsparkSession
        parser = java_session.sessionState().sqlParser()
        if not arguments:
            return parser.parsePlan(text)
        return parser.parsePlanWithParameters(text, self._context(java_session, arguments))

    def with_values(
        self, session: SparkSession, text: str, arguments: Mapping[str, Column] | list[Column]
    ) -> str:
        """A text with literals in place of its markers, so that places in its plan are its own."""
        if not arguments:
            return text
        handler = self._jvm.org.apache.spark.sql.catalyst.parser.ParameterHandler
        context = self._context(session._jsparkSession, arguments)
        return str(handler.substituteParameters(text, context)._1())

    def _context(self, java_session: Any, arguments: Mapping[str, Column] | list[Column]) -> Any:
        """The arguments as Spark's parser takes them."""
        parsers = self._jvm.org.apache.spark.sql.catalyst.parser
        if not isinstance(arguments, list):
            return parsers.NamedParameterContext(self._literals(java_session, arguments))
        given = self._literals(java_session, {str(at): each for at, each in enumerate(arguments)})
        in_order = [given.apply(str(at)) for at in range(len(arguments))]
        return parsers.PositionalParameterContext(self._to_seq(in_order))

    def _literals(self, java_session: Any, arguments: Mapping[str, Column]) -> Any:
        columns: Mapping[str, Any] = arguments
        expressions = {
            name: java_session.expression(column._jc) for name, column in columns.items()
        }
        return java_session.resolveAndValidateParameters(self._to_map(expressions))

    def named_relations(
        self, parsed: Any, session: SparkSession, current: tuple[str, ...], title: str, text: str
    ) -> list[NamedRelation]:
        """The tables and views that a query names.

        `current` are the catalog and namespace for names without them. Raises: BadRequest for a
        text that is not a query, or that hides what it reads.
        """
        return self.named_in([self._common_tables.apply(parsed)], session, current, title, text)

    def without_common_tables(self, parsed: Any) -> Any:
        """A parsed plan in which the names of WITH are replaced by what they stand for."""
        return self._common_tables.apply(parsed)

    def named_in(
        self,
        plans: Sequence[Any],
        session: SparkSession,
        current: tuple[str, ...],
        title: str,
        text: str = "",
    ) -> list[NamedRelation]:
        """As `named_relations`, for parts of a statement, without common tables.

        `text` is empty where the whole is no query.
        """
        found = []
        pending = [(plan, False) for plan in plans]
        while pending:
            plan, is_dated = pending.pop()
            for node in nodes_of(plan, self._every_node):
                kind = kind_of(node)
                if kind not in _PARSED:
                    reads = " reads only" if text else ""
                    part = kind.rpartition(".")[2]
                    otherwise = f"{reads}: leave {part} out, which is no part of a query"
                    raise _refused(title, text, otherwise)
                if kind == IDENTIFIER_CLAUSE:
                    named = self._identifier_clauses.apply(node)
                    if kind_of(named) == kind:
                        raise _refused(
                            title,
                            text,
                            ": IDENTIFIER takes a text or a parameter here, no function",
                        )
                    pending.append((named, is_dated))
                elif kind == _TIME_TRAVEL:
                    if not node.subqueries().isEmpty():
                        raise BadRequest(
                            f"{title}: write the time of {_TIME_TRAVEL_SQL} as a value, not as a "
                            "subquery"
                        )
                    pending.append((node.relation(), True))
                elif kind == _UNRESOLVED_RELATION:
                    if not node.options().isEmpty():
                        raise BadRequest(
                            f"{title}: a table takes no options here: leave WITH (…) out"
                        )
                    identifier = identifier_of(node, session, current)
                    found.append(NamedRelation(identifier, node, is_dated))
        return found

    def names_in(self, parsed: Any) -> Iterator[tuple[str, ...]]:
        """The names of columns that a parsed plan uses, as they are written."""
        for node in nodes_of(parsed, self._every_node):
            for expression in _each(node.expressions()):
                for each in _each(expression.collect(self._every_node)):
                    if kind_of(each) == _UNRESOLVED_COLUMN:
                        yield tuple(map(str, _each(each.nameParts())))

    def analyse(self, session: SparkSession, plan: Any) -> Any:
        """The plan with all names resolved. Commands in it are not run.

        Raises: Spark's AnalysisException.
        """
        java_session: Any = session._jsparkSession
        return java_session.sessionState().executePlan(plan, self._without_commands).analyzed()

    def relations(
        self,
        analysed: Any,
        title: str,
        also: Set[str] = frozenset(),
        unpublished: Mapping[str, Identifier] = MappingProxyType({}),
    ) -> list[Identifier]:
        """The tables that an analysed query reads, also in subqueries, CTEs and views.

        `also` are classes of nodes that it may have, which queries have not; `unpublished` are
        tables that no catalog has yet, by the names that they have in the plan. Raises: BadRequest
        for a plan that is not a query, or reads anything but tables of a catalog.
        """
        found: dict[Identifier, None] = {}
        for node in nodes_of(analysed, self._every_node):
            kind = kind_of(node)
            if kind in _RELATIONS:
                identifier = _table(kind, node)
                if identifier is None and kind == _DATA_SOURCE_V2:
                    identifier = unpublished.get(str(node.table().name()))
                if identifier is None:
                    raise BadRequest(
                        f"{title} reads tables and views only, no files or sources without a name"
                    )
                found[identifier] = None
            elif kind not in _ANALYSED and kind not in also:
                raise BadRequest(
                    f"{title} reads only: {kind.rpartition('.')[2]} is nothing that a query may do"
                )
        return list(found)

    def present(self, analysed: Any) -> set[Identifier]:
        """The tables of which an analysed query reads the present version, also through views."""
        nodes = nodes_of(analysed, self._every_node)
        undated = [
            node
            for node in nodes
            if kind_of(node) == _DATA_SOURCE_V2 and node.timeTravelSpec().isEmpty()
        ]
        return {each for node in undated if (each := _table(_DATA_SOURCE_V2, node)) is not None}

    def aliases(self, analysed: Any) -> set[Identifier]:
        """The tables and views of catalogs that an analysed query names, and its views name."""
        found = set()
        for node in nodes_of(analysed, self._every_node):
            if kind_of(node) == _ALIAS:
                qualifier = tuple(map(str, _each(node.identifier().qualifier())))
                if qualifier:
                    found.add(Identifier(qualifier[0], qualifier[1:], str(node.alias())))
        return found

    def rows(self, session: SparkSession, analysed: Any) -> DataFrame:
        """The rows of an analysed plan, which is not analysed again."""
        from pyspark.sql import DataFrame

        return DataFrame(self._dataset.ofRows(session._jsparkSession, analysed), session)


def relations_of(rows: DataFrame) -> Iterator[Identifier | None]:
    """The tables that a DataFrame reads; None for other sources, such as files."""
    jvm: Any = rows.sparkSession._jvm
    for node in nodes_of(rows._jdf.queryExecution().analyzed(), _every_node(jvm)):
        kind = kind_of(node)
        if kind in _RELATIONS:
            yield _table(kind, node)
        elif kind not in _ANALYSED:
            yield None


def nodes_of(plan: Any, every_node: Any) -> Iterator[Any]:
    """All nodes of a plan and of its subqueries, by one call into the JVM."""
    return _each(plan.collectWithSubqueries(every_node))


def _every_node(jvm: Any) -> Any:
    """A Scala partial function that accepts every node, and returns it."""
    return jvm.scala.PartialFunction.fromFunction(getattr(jvm.scala.Predef, "$conforms")())


def _each(sequence: Any) -> Iterator[Any]:
    iterator = sequence.iterator()
    while iterator.hasNext():
        yield iterator.next()


def kind_of(node: Any) -> str:
    return str(node.getClass().getName())


# ------------------------------------------------------------------------------------- which table


def identifier_of(node: Any, session: SparkSession, current: tuple[str, ...]) -> Identifier:
    """The table that Spark will look for."""
    return identifier_of_parts(tuple(map(str, _each(node.multipartIdentifier()))), session, current)


def identifier_of_parts(
    parts: tuple[str, ...], session: SparkSession, current: tuple[str, ...]
) -> Identifier:
    """What a name stands for: a first part that is a catalog's name means the catalog."""
    catalog, namespace = current[0], current[1:]
    if len(parts) == 1:
        return Identifier(catalog, namespace, parts[0])
    is_session_catalog = parts[0].lower() == _SESSION_CATALOG
    if is_session_catalog or session.conf.get(f"spark.sql.catalog.{parts[0]}", None) is not None:
        return Identifier(
            _SESSION_CATALOG if is_session_catalog else parts[0], parts[1:-1], parts[-1]
        )
    return Identifier(catalog, parts[:-1], parts[-1])


def _table(kind: str, node: Any) -> Identifier | None:
    if kind == _DATA_SOURCE_V2:
        catalog, identifier = node.catalog(), node.identifier()
        if not (catalog.isDefined() and identifier.isDefined()):
            return None
        found = identifier.get()
        return Identifier(
            str(catalog.get().name()), tuple(map(str, found.namespace())), str(found.name())
        )
    if kind == _HIVE:
        return _of_session_catalog(node.tableMeta().identifier())
    described = node.catalogTable()
    return _of_session_catalog(described.get().identifier()) if described.isDefined() else None


def _of_session_catalog(identifier: Any) -> Identifier:
    catalog, database = identifier.catalog(), identifier.database()
    return Identifier(
        str(catalog.get()) if catalog.isDefined() else _SESSION_CATALOG,
        (str(database.get()) if database.isDefined() else "default",),
        str(identifier.table()),
    )


_SESSION_CATALOG = "spark_catalog"


# --------------------------------------------------------------------------------- what is allowed


def _classes(package: str, names: str) -> frozenset[str]:
    return frozenset(f"org.apache.spark.sql.{package}.{name}" for name in names.split())


_UNRESOLVED_RELATION = "org.apache.spark.sql.catalyst.analysis.UnresolvedRelation"
_UNRESOLVED_COLUMN = "org.apache.spark.sql.catalyst.analysis.UnresolvedAttribute"
IDENTIFIER_CLAUSE = "org.apache.spark.sql.catalyst.analysis.PlanWithUnresolvedIdentifier"
_TIME_TRAVEL = "org.apache.spark.sql.catalyst.analysis.RelationTimeTravel"
_TIME_TRAVEL_SQL = "TIMESTAMP AS OF"
_DATA_SOURCE_V2 = "org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation"
_ALIAS = "org.apache.spark.sql.catalyst.plans.logical.SubqueryAlias"
_HIVE = "org.apache.spark.sql.catalyst.catalog.HiveTableRelation"
_RELATIONS = frozenset(
    {_DATA_SOURCE_V2, _HIVE, "org.apache.spark.sql.execution.datasources.LogicalRelation"}
)

_IN_BOTH = _classes(
    "catalyst.plans.logical",
    "Aggregate CTERelationDef CTERelationRef Distinct Except Filter Generate GlobalLimit "
    "Intersect Join LateralJoin"
    " LimitAll LocalLimit LocalRelation Offset OneRowRelation Project RepartitionByExpression "
    "Sample Sort SubqueryAlias"
    " Union WithCTE",
) | _classes("catalyst.expressions", "PipeOperator")

_PARSED = (
    _IN_BOTH
    | {_UNRESOLVED_RELATION, IDENTIFIER_CLAUSE, _TIME_TRAVEL}
    | _classes("catalyst.plans.logical", "Pivot Unpivot UnresolvedHint WithWindowDefinition")
    | _classes(
        "catalyst.analysis",
        "UnresolvedHaving UnresolvedInlineTable UnresolvedSubqueryColumnAliases "
        "UnresolvedTVFAliases"
        " UnresolvedTableValuedFunction",
    )
)
"""The nodes that a query may consist of before its analysis."""

_ANALYSED = (
    _IN_BOTH
    | _classes(
        "catalyst.plans.logical",
        "Expand Range RebalancePartitions Repartition ResolvedHint UnionLoop UnionLoopRef View "
        "Window",
    )
    | _classes("catalyst.analysis", "ResolvedInlineTable SQLFunctionNode")
)
"""The nodes that a query may consist of after its analysis, apart from tables."""


def _refused(title: str, text: str, otherwise: str) -> BadRequest:
    """The error for a refused statement.

    The message names a statement by its first word; `otherwise` says what is wrong with a query.
    """
    if not text or begins_query(text):
        return BadRequest(f"{title}{otherwise}")
    return BadRequest(
        f"{title} reads only, and this is a {_first_word(text)} statement: write a SELECT"
    )


def begins_query(text: str) -> bool:
    """Whether a statement is a query by its first word."""
    return _first_word(text) in _BEGIN_QUERIES


def _first_word(text: str) -> str:
    words = re.findall(r"[A-Za-z]+", _without_comments(text))
    return words[0].upper() if words else "this"


_BEGIN_QUERIES = frozenset({"SELECT", "WITH", "FROM", "TABLE", "VALUES", "MAP", "REDUCE"})


def _without_comments(text: str) -> str:
    return re.sub(r"--[^\n]*|/\*.*?\*/", " ", text, flags=re.DOTALL)
