"""Which tables a query reads, by Spark's own analysis of it: also in subqueries, common table expressions and views."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from sparkport.catalog import Context, Privilege
from sparkport.errors import PermissionDenied
from sparkport.spark.identifiers import Identifier

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["expect_names_readable", "expect_readable", "expect_unrestricted"]

_WITHOUT_TABLE = frozenset({"OneRowRelation", "LocalRelation", "Range", "CTERelationRef", "UnionLoopRef"})
"""Leaves of a plan that hold nothing but what is in the query."""


def expect_readable(ctx: Context, rows: DataFrame, spark_catalog: str, title: str) -> None:
    """Refuse a query about what the caller may not read. Views are looked through: what counts is what they read.

    Raises: PermissionDenied. What the caller may not even see is not named.
    """
    if ctx.access.everything:
        return
    if ctx.access.restricted:
        raise PermissionDenied(f"{title} is not for those who see only part of this catalog's tables")
    for table in _tables(rows):
        if table is None or table.catalog != spark_catalog:
            allowed = ctx.access.may(Privilege.READ)
        else:
            allowed = ctx.access.may(Privilege.READ, table.schema_name, table.name)
        if not allowed:
            raise _unreadable(title)


def expect_names_readable(ctx: Context, plan: Any, spark_catalog: str, namespace: tuple[str, ...], title: str) -> None:
    """Refuse a query that Spark could not analyse where what it says of that may tell of tables that the caller does not
    see: that they are not there, or which columns they have. `plan` is the query as it was parsed.

    Raises: PermissionDenied.
    """
    if ctx.access.everything or ctx.access.may(Privilege.READ):
        return
    for node in _nodes(plan, inner=True):
        if str(node.getClass().getSimpleName()) == "UnresolvedRelation":
            parts = tuple(map(str, _each(node.multipartIdentifier())))
            if parts[0] == spark_catalog and len(parts) > 1:
                parts = parts[1:]
            schema = ".".join(parts[:-1] or namespace)
            if not ctx.access.may(Privilege.READ, schema, parts[-1]):
                raise _unreadable(title)


def _unreadable(title: str) -> PermissionDenied:
    return PermissionDenied(f"{title} asks for a table that you have no permission to read, or that is not there")


def expect_unrestricted(ctx: Context, rows: DataFrame, identifier: Identifier) -> None:
    """Refuse a view that would show a caller what is kept from it. Raises: PermissionDenied."""
    if not ctx.access.restricted:
        return
    for table in _tables(rows):
        if table == identifier:  # whose rows go through the rules
            continue
        if table is None or ctx.access.restrictions(table.schema_name, table.name) is not None:
            raise PermissionDenied(f"{identifier} shows more of a table than you may see")


def _tables(rows: DataFrame) -> Iterator[Identifier | None]:
    """The tables that are read; None for what is none, such as files."""
    for node in _nodes(rows._jdf.queryExecution().analyzed()):
        kind = str(node.getClass().getSimpleName())
        if node.children().isEmpty() and kind not in _WITHOUT_TABLE:
            yield _identifier(kind, node)


def _nodes(plan: Any, *, inner: bool = False) -> Iterator[Any]:
    """All nodes of a plan and of the subqueries in it; before it is analysed, common table expressions are `inner`."""
    pending = [plan]
    while pending:
        node = pending.pop()
        yield node
        pending.extend([*_each(node.children()), *_each(node.subqueries())])
        if inner:
            pending.extend(_each(node.innerChildren()))


def _each(sequence: Any) -> Iterator[Any]:
    for index in range(sequence.length()):
        yield sequence.apply(index)


def _identifier(kind: str, node: Any) -> Identifier | None:
    match kind:
        case "DataSourceV2Relation" | "DataSourceV2ScanRelation":
            relation = node if kind == "DataSourceV2Relation" else node.relation()
            catalog, identifier = relation.catalog(), relation.identifier()
            if catalog.isDefined() and identifier.isDefined():
                found = identifier.get()
                return Identifier(str(catalog.get().name()), tuple(map(str, found.namespace())), str(found.name()))
        case "LogicalRelation" if node.catalogTable().isDefined():
            return _of_session_catalog(node.catalogTable().get().identifier())
        case "HiveTableRelation":
            return _of_session_catalog(node.tableMeta().identifier())
    return None  # files, for instance


def _of_session_catalog(identifier: Any) -> Identifier:
    catalog, database = identifier.catalog(), identifier.database()
    return Identifier(
        str(catalog.get()) if catalog.isDefined() else "spark_catalog",
        (str(database.get()) if database.isDefined() else "default",),
        str(identifier.table()),
    )
