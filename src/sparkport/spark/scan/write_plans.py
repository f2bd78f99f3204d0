"""What a statement consists of that changes a table, by Spark's parser: nothing here runs it.

Strategy: as for queries (query_plans.py), there are closed lists of what a statement may consist
of, before its analysis and after it. The parser says where in the text each table is named, so that
other names can be put in their places: that of a working branch for the table that is changed, and
the version of a table that a transaction reads. The new text is parsed and checked again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from sparkport.errors import BadRequest, Unsupported
from sparkport.spark.iceberg.identifiers import Identifier, quoted
from sparkport.spark.scan.create_plans import CREATING
from sparkport.spark.scan.query_plans import (
    IDENTIFIER_CLAUSE,
    NamedRelation,
    QueryPlans,
    identifier_of,
    kind_of,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["ALLOWED", "ParsedWrite", "WritePlans", "described", "replaced_names"]

ALLOWED = f"INSERT INTO, INSERT OVERWRITE, UPDATE, DELETE, MERGE INTO, {CREATING}"

_LOGICAL = "org.apache.spark.sql.catalyst.plans.logical."
_STATEMENTS: Mapping[str, str] = {
    f"{_LOGICAL}InsertIntoStatement": "insert",
    f"{_LOGICAL}OverwriteByExpression": "overwrite",
    f"{_LOGICAL}UpdateTable": "update",
    f"{_LOGICAL}DeleteFromTable": "delete",
    f"{_LOGICAL}MergeIntoTable": "merge",
}
_WITH_CTE = f"{_LOGICAL}WithCTE"
_ALIAS = f"{_LOGICAL}SubqueryAlias"
_RELATION = "org.apache.spark.sql.catalyst.analysis.UnresolvedRelation"
_SPARKS_OWN = "__required_write_privileges__"
"""An option that Spark's parser gives to a table that is changed."""
_WRITTEN = frozenset(
    _LOGICAL + name
    for name in (
        *("AppendData", "OverwriteByExpression", "OverwritePartitionsDynamic"),
        *("DeleteFromTable", "MergeRows", "ReplaceData", "WriteDelta"),
    )
)
"""The nodes that a change may consist of after its analysis, apart from those of queries."""


@dataclass(frozen=True, slots=True, eq=False)
class ParsedWrite:
    """A statement that changes a table, before its analysis."""

    operation: str
    """insert, overwrite, update, delete or merge"""
    target: NamedRelation
    sources: Sequence[NamedRelation]
    """The tables and views that it reads, apart from the target of UPDATE, DELETE and MERGE."""
    columns: tuple[str, ...] | None
    """The columns that new rows get values for; None for all, or where there are no new rows."""
    assigned: tuple[str, ...] | None
    """The columns that are changed in rows that are there; None for all."""
    by_name: bool = False
    """Whether an INSERT takes its columns from the names of its query's columns."""
    has_default: bool = False
    """Whether DEFAULT may stand for a value."""
    reads_target: bool = True
    """Whether rows of the target decide what happens."""
    alias: str = ""
    """What must follow the name of another table that is put in the target's place."""


class WritePlans:
    """Parses and analyses statements that change tables. Thread-safe."""

    def __init__(self, plans: QueryPlans) -> None:
        self._plans = plans

    def is_write(self, parsed: Any) -> bool:
        """Whether a parsed plan is a statement that changes a table."""
        return kind_of(self.statement(parsed)) in _STATEMENTS

    def parsed_write(
        self, parsed: Any, session: SparkSession, current: tuple[str, ...], title: str, text: str
    ) -> ParsedWrite:
        """What a parsed statement changes and reads.

        `current` are the catalog and namespace for names without them. Raises: BadRequest for a
        statement that is not allowed, or that hides what it reads.
        """
        root = self.statement(parsed)
        operation = _STATEMENTS.get(kind_of(root))
        if kind_of(root) == IDENTIFIER_CLAUSE:
            raise _unnamed(title)
        if operation is None:
            raise BadRequest(
                f"{title} takes {ALLOWED}, and this is {described(text)}; queries are for spark_sql"
            )
        columns: tuple[str, ...] | None = None
        assigned: tuple[str, ...] | None = ()
        by_name, has_alias, reads_target = False, False, True
        match operation:
            case "insert" | "overwrite":
                target, reads = root.table(), [root.query()]
                reads_target = operation == "overwrite"  # INSERT INTO … REPLACE WHERE …
                if operation == "insert":
                    columns = _texts(root.userSpecifiedCols()) or None
                    if columns is not None:
                        columns += _fixed_partitions(root)
                    operation = "overwrite" if root.overwrite() else "insert"
                    by_name = bool(root.byName())
                has_alias = True  # its columns cannot be named with the table's name
            case "update":
                target, reads = root.table(), []
                assigned = tuple(_assigned(root.assignments()))
            case "delete":
                target, reads = root.table(), []
            case _:
                target, reads = root.targetTable(), [root.sourceTable()]
                columns, assigned = _merged_columns(root)
                if root.withSchemaEvolution():
                    raise BadRequest(
                        f"{title} changes rows, no columns: leave WITH SCHEMA EVOLUTION out, and "
                        "use ALTER TABLE"
                    )
        if kind_of(target) == _ALIAS:
            target, has_alias = target.child(), True
        if kind_of(target) != _RELATION:
            raise _unnamed(title)
        if any(option != _SPARKS_OWN for option in _texts(target.options().keySet())):
            raise BadRequest(f"{title}: a table takes no options here: leave WITH (…) out")
        reads += _each(root.subqueries())
        plain = [self._plans.without_common_tables(each) for each in reads]
        sources = self._plans.named_in(plain, session, current, title)
        if operation == "merge":
            sources = [_as_merged(each, root.sourceTable()) for each in sources]
        named = NamedRelation(identifier_of(target, session, current), target)
        alias = "" if has_alias else f" AS {quoted(named.identifier.name)}"
        return ParsedWrite(
            operation,
            named,
            sources,
            columns,
            assigned,
            by_name,
            re.search(r"\bdefault\b", text, re.IGNORECASE) is not None and self.has_default(root),
            reads_target,
            alias,
        )

    def has_default(self, parsed: Any) -> bool:
        """Whether DEFAULT may stand for a value in a parsed plan."""
        return any(name[-1].lower() == "default" for name in self._plans.names_in(parsed))

    def statement(self, parsed: Any) -> Any:
        """The node of the statement itself, without common tables."""
        plain = self._plans.without_common_tables(parsed)
        return plain.plan() if kind_of(plain) == _WITH_CTE else plain

    def tables(
        self,
        analysed: Any,
        title: str,
        unpublished: Mapping[str, Identifier] = MappingProxyType({}),
    ) -> list[Identifier]:
        """The tables that an analysed statement reads, also through views.

        `unpublished` are tables that no catalog has yet (query_plans.py). Raises: BadRequest for a
        plan that has anything but a change of one table and queries.
        """
        if kind_of(analysed) not in _WRITTEN:
            name = kind_of(analysed).rpartition(".")[2]
            raise Unsupported(f"{title} cannot do this: Spark makes {name} of the statement")
        return self._plans.relations(analysed, title, _WRITTEN, unpublished)


def replaced_names(text: str, names: Sequence[tuple[Any, str]]) -> str:
    """A statement with other names in place of some of its tables.

    `names` has nodes of the parsed statement, each with the SQL that is put there. Raises:
    BadRequest for a table whose place is not known.
    """
    places = []
    for node, sql in names:
        origin = node.origin()
        start, stop, whole = origin.startIndex(), origin.stopIndex(), origin.sqlText()
        if not (start.isDefined() and stop.isDefined() and whole.isDefined()):
            raise BadRequest(f"write the name of table {sql} as it is")
        if str(whole.get()) != text:
            raise BadRequest("write names of tables as they are, without variables")
        places.append((int(start.get()), int(stop.get()), sql))
    for start, stop, sql in sorted(set(places), reverse=True):
        text = text[:start] + sql + text[stop + 1 :]
    return text


def _as_merged(named: NamedRelation, source: Any) -> NamedRelation:
    """A table that a MERGE reads. After USING there is a name or a query, but no name's version."""
    is_aliased = kind_of(source) == _ALIAS
    relation = source.child() if is_aliased else source
    if not relation.origin().equals(named.node.origin()):
        return named
    alias = "" if is_aliased else f" AS {quoted(named.identifier.name)}"
    return replace(named, around=("(SELECT * FROM ", f"){alias}"))


def _unnamed(title: str) -> BadRequest:
    return BadRequest(f"{title}: name the table that is changed as schema.table")


def described(text: str) -> str:
    """What kind of statement a text is, for messages: by its first word."""
    plain = re.sub(r"--[^\n]*|/\*.*?\*/", " ", text, flags=re.DOTALL)
    words = [word.upper() for word in re.findall(r"[A-Za-z]+", plain)]
    if not words:
        return "none"
    return f"{'an' if words[0][0] in 'AEIOU' else 'a'} {words[0]} statement"


def _merged_columns(root: Any) -> tuple[tuple[str, ...] | None, tuple[str, ...] | None]:
    """The columns that all INSERTs of a MERGE name, and those that its UPDATEs set."""
    columns: list[set[str]] = []
    assigned: set[str] | None = set()
    actions = [
        *_each(root.matchedActions()),
        *_each(root.notMatchedActions()),
        *_each(root.notMatchedBySourceActions()),
    ]
    for action in actions:
        match kind_of(action).rpartition(".")[2]:
            case "InsertAction":
                columns.append(set(_assigned(action.assignments())))
            case "UpdateAction" if assigned is not None:
                assigned.update(_assigned(action.assignments()))
            case "UpdateStarAction":
                assigned = None
    common = tuple(sorted(set.intersection(*columns))) if columns else None
    return common, None if assigned is None else tuple(sorted(assigned))


def _assigned(assignments: Any) -> list[str]:
    """The columns that get values: for a field inside of one, its column."""
    found = []
    for each in _each(assignments):
        parts = [str(part) for part in _each(each.key().nameParts())]
        found += parts  # an alias of the table among them does no harm
    return found


def _fixed_partitions(root: Any) -> tuple[str, ...]:
    """The columns that PARTITION (p = …) gives a value."""
    given = ((each._1(), each._2()) for each in _each(root.partitionSpec()))
    return tuple(str(name) for name, value in given if value.isDefined())


def _texts(sequence: Any) -> tuple[str, ...]:
    return tuple(map(str, _each(sequence)))


def _each(sequence: Any) -> list[Any]:
    iterator, found = sequence.iterator(), []
    while iterator.hasNext():
        found.append(iterator.next())
    return found
