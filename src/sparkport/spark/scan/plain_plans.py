"""Statements of SQL that are no more than a scan or an INSERT of a table, by Spark's parser.

They are recognised by their shape before the analysis. Whatever looks different is left to Spark.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sparkport.spark.iceberg.identifiers import Identifier
from sparkport.spark.scan.query_plans import identifier_of, kind_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["PlainPlan", "assigned_markers", "plain_insert", "plain_read"]

_LOGICAL = "org.apache.spark.sql.catalyst.plans.logical."
_ANALYSIS = "org.apache.spark.sql.catalyst.analysis."


@dataclass(frozen=True, slots=True)
class PlainPlan:
    """A table, and the columns that are read or get values, as they are written."""

    identifier: Identifier
    columns: tuple[str, ...] | None
    """None for all columns."""
    values: int = 0
    """How many values a new row is given."""


def plain_read(parsed: Any, session: SparkSession, current: tuple[str, ...]) -> PlainPlan | None:
    """What a parsed query reads, if it is `SELECT * FROM t`, `SELECT a, b FROM t` or `TABLE t`."""
    columns: tuple[str, ...] | None = None
    relation = parsed
    if kind_of(parsed) == f"{_LOGICAL}Project":
        relation, wanted = parsed.child(), _each(parsed.projectList())
        if [kind_of(each) for each in wanted] != [f"{_ANALYSIS}UnresolvedStar"]:
            names = [_column(each) for each in wanted]
            columns = tuple(name for name in names if name is not None)
            if len(columns) < len(names):
                return None
        elif wanted[0].target().isDefined():
            return None
    if kind_of(relation) != f"{_ANALYSIS}UnresolvedRelation" or not relation.options().isEmpty():
        return None
    return PlainPlan(identifier_of(relation, session, current), columns)


def plain_insert(parsed: Any, session: SparkSession, current: tuple[str, ...]) -> PlainPlan | None:
    """What a parsed statement adds to, if it is `INSERT INTO t [(a, b)] VALUES (?, ?)`."""
    if kind_of(parsed) != f"{_LOGICAL}InsertIntoStatement":
        return None
    query, target = parsed.query(), parsed.table()
    if kind_of(query) != f"{_ANALYSIS}UnresolvedInlineTable" or query.rows().size() != 1:
        return None
    values = _each(query.rows().apply(0))
    if any(kind_of(each) != f"{_ANALYSIS}PosParameter" for each in values):
        return None
    if kind_of(target) != f"{_ANALYSIS}UnresolvedRelation":
        return None
    if parsed.overwrite() or parsed.byName() or not parsed.partitionSpec().isEmpty():
        return None
    columns = tuple(map(str, _each(parsed.userSpecifiedCols())))
    return PlainPlan(identifier_of(target, session, current), columns or None, len(values))


def assigned_markers(parsed: Any) -> dict[int, str]:
    """The columns that markers of an UPDATE or MERGE are assigned to, by the markers' places."""
    match kind_of(parsed).removeprefix(_LOGICAL):
        case "UpdateTable":
            assignments = _each(parsed.assignments())
        case "MergeIntoTable":
            kinds = (
                parsed.matchedActions(),
                parsed.notMatchedActions(),
                parsed.notMatchedBySourceActions(),
            )
            actions = [action for each in kinds for action in _each(each)]
            named = [
                each for each in actions if kind_of(each).endswith(("InsertAction", "UpdateAction"))
            ]
            assignments = [each for action in named for each in _each(action.assignments())]
        case _:
            assignments = []
    return {
        int(each.value().pos()): str(each.key().nameParts().last())
        for each in assignments
        if kind_of(each.value()) == f"{_ANALYSIS}PosParameter"
    }


def _column(expression: Any) -> str | None:
    if kind_of(expression) != f"{_ANALYSIS}UnresolvedAttribute":
        return None
    parts = [str(each) for each in _each(expression.nameParts())]
    return parts[0] if len(parts) == 1 else None


def _each(sequence: Any) -> Sequence[Any]:
    return [sequence.apply(index) for index in range(sequence.size())]
