"""Permissions for Spark queries: each table is checked in the catalog that serves it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from sparkport.catalog import Access, Context, Privilege
from sparkport.errors import PermissionDenied, SparkportError
from sparkport.spark.iceberg.identifiers import Identifier
from sparkport.spark.jvm.errors import translated
from sparkport.spark.scan.query_plans import NamedRelation, QueryPlans, relations_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sparkport.spark.lake.lake import Lake

__all__ = [
    "expect_readable",
    "expect_resolvable",
    "expect_served_whole",
    "expect_unrestricted",
    "unreadable",
]


def expect_readable(ctx: Context, lake: Lake, tables: Iterable[Identifier], title: str) -> None:
    """Refuse a query on tables that the caller may not read, or of catalogs not served here.

    Raises: PermissionDenied. The message does not name what the caller may not even see.
    """
    if ctx.access.restricted:
        raise PermissionDenied(
            f"{title} is not for those who see only part of this catalog's tables"
        )
    for table in tables:
        served = _accesses(ctx, lake, table.catalog)
        if any(each.everything or _may_read(each, table) for each in served):
            continue
        if not served and ctx.access.everything:
            raise PermissionDenied(
                f"{title} asks for {table}, whose Spark catalog {table.catalog} is not served "
                "here: serve it as well"
            )
        raise unreadable(title)


def unreadable(title: str) -> PermissionDenied:
    """The message for hidden tables and for absent ones, which are not told apart."""
    return PermissionDenied(
        f"{title} asks for a table that you have no permission to read, or that is not there"
    )


def expect_resolvable(
    lake: Lake,
    plans: QueryPlans,
    ctx: Context,
    session: SparkSession,
    relations: Sequence[NamedRelation],
    title: str,
) -> None:
    """Check that all that a query names exists and may be read, before showing an error.

    Raises: PermissionDenied.
    """
    if ctx.access.everything:
        return
    for each in relations:
        try:
            with translated(title):
                analysed = plans.analyse(session, each.node)
                tables = plans.relations(analysed, title)
        except SparkportError as error:
            raise unreadable(title) from error
        expect_readable(ctx, lake, tables, title)


def expect_unrestricted(ctx: Context, lake: Lake, rows: DataFrame, identifier: Identifier) -> None:
    """Refuse a view that would show a caller hidden rows or columns. Raises: PermissionDenied."""
    if not any(access.restricted for access in _all_accesses(ctx, lake)):
        return
    for table in relations_of(rows):
        if table == identifier:  # its rows go through the rules
            continue
        if table is None or any(
            access.restrictions(table.schema_name, table.name) is not None
            for access in _accesses(ctx, lake, table.catalog)
        ):
            raise PermissionDenied(f"{identifier} shows more of a table than you may see")


def expect_served_whole(ctx: Context, lake: Lake, title: str) -> None:
    """Refuse a function with its definer's rights to callers who see only part of some table.

    Raises: PermissionDenied.
    """
    if any(access.restricted for access in _all_accesses(ctx, lake)):
        raise PermissionDenied(f"{title} may show more of a table than you may see")


def _may_read(access: Access, table: Identifier) -> bool:
    return not access.restricted and access.may(Privilege.READ, table.schema_name, table.name)


def _accesses(ctx: Context, lake: Lake, spark_catalog: str) -> list[Access]:
    """The caller's permissions in the catalogs that serve a catalog of the lake's session."""
    if spark_catalog == lake.gateway.catalog:
        return [ctx.access]
    return [access for catalog, access in _lakes(ctx, lake) if catalog == spark_catalog]


def _all_accesses(ctx: Context, lake: Lake) -> list[Access]:
    return [ctx.access, *(access for _, access in _lakes(ctx, lake))]


def _lakes(ctx: Context, lake: Lake) -> Iterator[tuple[str, Access]]:
    """Spark catalogs served from the lake's session or an equal one, with the caller's rights."""
    for catalog, access in ctx.served():
        spark: Any = getattr(catalog, "spark", None)
        name: Any = getattr(catalog, "spark_catalog", None)
        if spark is not None and isinstance(name, str) and _agree_on(spark, lake.spark, name):
            yield name, access


def _agree_on(one: SparkSession, other: SparkSession, catalog: str) -> bool:
    """Whether a catalog name means the same catalog in two sessions."""
    return one is other or _settings(one, catalog) == _settings(other, catalog)


def _settings(session: SparkSession, catalog: str) -> dict[str, str]:
    prefix = f"spark.sql.catalog.{catalog}."
    return {
        key: value for key, value in session.conf.getAll.items() if f"{key}.".startswith(prefix)
    }
