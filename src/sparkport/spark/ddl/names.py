"""Names of schemas and tables, compared as DuckDB compares them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager

from sparkport.catalog.names import folded
from sparkport.errors import BadRequest, PreconditionFailed
from sparkport.spark.iceberg.identifiers import Identifier
from sparkport.spark.lake.directory import CatalogEntry, Namespace
from sparkport.spark.lake.lake import Lake

__all__ = ["expect_one", "expect_text", "find_entry", "find_namespace", "name_lock"]


def expect_one(names: Sequence[str], what: str) -> None:
    """Raises: PreconditionFailed for several names of which DuckDB would take one for another."""
    if len(names) > 1:
        raise PreconditionFailed(
            f"the {what} {', '.join(names[:-1])} and {names[-1]} have names that differ only in "
            "case, which DuckDB cannot tell apart: rename all but one in Spark"
        )


def name_lock(lake: Lake, *names: str) -> AbstractContextManager[None]:
    """Hold a lock of this server on a name while an object is given it.

    Names that differ only in case are equal for DuckDB, but the catalog would take both.
    """
    return lake.locked(("name", *map(folded, names)))


def expect_text(name: str, what: str) -> None:
    """Raises: BadRequest for a text that cannot be a name."""
    if not name:
        raise BadRequest(f"a {what} needs a name")
    if "\0" in name:
        raise BadRequest(f"the name of a {what} contains a NUL character")


def find_namespace(lake: Lake, name: str) -> Namespace | None:
    """The namespace of that name, or else of a name that differs only in case."""
    namespaces = lake.catalog.listing().namespaces
    return namespaces.get(name) or next(
        (each for own, each in namespaces.items() if folded(own) == folded(name)), None
    )


def find_entry(lake: Lake, identifier: Identifier) -> CatalogEntry | None:
    """The table or view of that name, or else of a name that differs only in case."""
    found = lake.entry(identifier)
    if found is not None:
        return found
    namespace = lake.catalog.listing().namespaces.get(identifier.schema_name)
    entries = {} if namespace is None else namespace.entries
    return next(
        (each for name, each in entries.items() if folded(name) == folded(identifier.name)), None
    )
