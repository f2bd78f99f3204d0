"""CREATE SCHEMA and DROP SCHEMA."""

from __future__ import annotations

from sparkport.catalog import CreateSchemaOptions, DropSchemaOptions, DropTableOptions
from sparkport.errors import AlreadyExists, BadRequest, NotFound, SchemaNotEmpty
from sparkport.spark.ddl.names import expect_text, find_namespace, name_lock
from sparkport.spark.ddl.objects import drop_table
from sparkport.spark.iceberg.definition import COMMENT_PROPERTY
from sparkport.spark.lake import folders
from sparkport.spark.lake.lake import Lake

__all__ = ["create_schema", "drop_schema"]

_PRIVATE = frozenset({"comment", "exists", "location", "owner"})
"""Properties of a namespace that cannot be tags."""


def create_schema(lake: Lake, name: str, options: CreateSchemaOptions) -> None:
    """Create a schema. A name with dots is a nested namespace.

    As in Spark, the outer namespaces need not exist. Raises: AlreadyExists.
    """
    parts = tuple(name.split("."))
    expect_text(name, "schema")
    if not all(parts):
        raise BadRequest(
            f"the name of schema {name} has an empty part: there must be a name on either side of "
            "a dot"
        )
    for tag in options.tags:
        if tag.lower() in _PRIVATE:
            raise BadRequest(f"a schema cannot have a tag called {tag}: the name is taken by Spark")
    properties = {
        **options.tags,
        **({COMMENT_PROPERTY: options.comment} if options.comment else {}),
    }
    with name_lock(lake, name):
        if (known := find_namespace(lake, name)) is not None:
            raise AlreadyExists(f"schema {'.'.join(known.parts)} exists already")
        lake.catalog.create_namespace(parts, properties)
        lake.changed()


def drop_schema(lake: Lake, name: str, options: DropSchemaOptions) -> None:
    """Drop a schema. Raises: NotFound, SchemaNotEmpty."""
    if not name:
        raise BadRequest("a schema needs a name")
    found = find_namespace(lake, name)
    if found is None:
        if options.ignore_not_found:
            return
        raise NotFound(f"schema {name} does not exist")
    shown = ".".join(found.parts)
    inner = sorted(
        each for each in lake.catalog.listing().namespaces if each.startswith(f"{shown}.")
    )
    if found.entries and not options.cascade:
        raise SchemaNotEmpty(f"schema {shown} still contains tables: drop them first")
    if inner and not options.cascade:
        raise SchemaNotEmpty(f"schema {shown} still contains schema {inner[0]}: drop it first")
    # The innermost first.
    for each in [*sorted(inner, key=lambda inside: -inside.count(".")), shown]:
        _drop_namespace(lake, each)


def _drop_namespace(lake: Lake, name: str) -> None:
    namespace = lake.catalog.namespace(name)
    if namespace is None:
        return
    for entry in namespace.entries.values():
        drop_table(lake, entry.identifier, DropTableOptions(ignore_not_found=True))
    lake.catalog.drop_namespace(namespace.parts)
    lake.changed()
    folder = folders.namespace_folder(lake, namespace.parts)
    if folder is not None:
        lake.attempt(f"the folder of schema {name}", lambda: folders.remove_empty_folders(folder))
