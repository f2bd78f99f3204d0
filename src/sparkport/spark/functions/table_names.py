"""Find a table by a text: `table` in the function's own schema, or `schema.table`."""

from __future__ import annotations

from sparkport.catalog import Context, Privilege
from sparkport.catalog.names import folded
from sparkport.spark.lake.directory import CatalogEntry
from sparkport.spark.lake.lake import Lake

__all__ = ["find_for"]


def find_for(
    ctx: Context, lake: Lake, namespace: tuple[str, ...], name: str, *privileges: Privilege
) -> CatalogEntry | None:
    """The table or view of that name, as it is now; None if the caller sees none.

    The caller must have the privileges on all rows and columns. An exact name wins over a name that
    differs in case. Raises: PermissionDenied.
    """
    entry = _find(ctx, lake, namespace, name)
    if entry is not None:
        for privilege in privileges:
            ctx.access.require(
                privilege, entry.identifier.schema_name, entry.identifier.name, whole=True
            )
    return entry


def _find(ctx: Context, lake: Lake, namespace: tuple[str, ...], name: str) -> CatalogEntry | None:
    # A name with dots may be split at any of them; the function's own schema comes first.
    own = ".".join(namespace)
    cuts = [
        (own, name),
        *((name[:at], name[at + 1 :]) for at, char in enumerate(name) if char == "."),
    ]
    # A table that the caller may not see must not hide a table that it may see.
    for schema_name, table_name in cuts:
        parts = tuple(schema_name.split("."))
        if all((*parts, table_name)) and ctx.access.may(Privilege.LIST, schema_name, table_name):
            # Not from the listing, which may be older than the table.
            entry = lake.catalog.entry(parts, table_name)
            if entry is not None:
                return entry
    for schema_name, table_name in cuts:
        for each, there in lake.catalog.listing().namespaces.items():
            if folded(each) == folded(schema_name):
                for table in there.entries:
                    is_wanted = folded(table) == folded(table_name)
                    if is_wanted and ctx.access.may(Privilege.LIST, each, table):
                        return lake.catalog.entry(there.parts, table)
    return None
