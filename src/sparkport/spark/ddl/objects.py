"""CREATE and DROP of schemas, tables and views; names are compared as DuckDB does."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager

import pyarrow as pa

from sparkport.catalog import (
    Constraints,
    Context,
    CreateSchemaOptions,
    CreateTableOptions,
    DropSchemaOptions,
    DropTableOptions,
    OnConflict,
)
from sparkport.catalog.names import folded
from sparkport.engine.alterations import new_table
from sparkport.engine.columns import default_of
from sparkport.engine.types import publishable_schema
from sparkport.errors import (
    AlreadyExists,
    BadRequest,
    NotFound,
    SchemaNotEmpty,
    SparkportError,
    Unsupported,
)
from sparkport.spark.iceberg.definition import COMMENT_PROPERTY
from sparkport.spark.iceberg.identifiers import Identifier, quoted
from sparkport.spark.iceberg.types.declared import (
    needs_decoding,
    spark_type,
    stored_schema,
    tokens_in,
)
from sparkport.spark.jvm.errors import translated
from sparkport.spark.jvm.gateway import IcebergHandle
from sparkport.spark.lake import folders
from sparkport.spark.lake.directory import Entry, Kind, Namespace
from sparkport.spark.lake.iceberg_commit import (
    assigned,
    describe,
    inner_ids,
    java_schema,
    staged_schema,
)
from sparkport.spark.lake.lake import Lake

__all__ = ["create_schema", "create_table", "drop_schema", "drop_table", "rename_table"]

_PROPERTIES: Mapping[str, str] = {
    "format-version": "3",  # the first with row ids
    "write.delete.mode": "merge-on-read",
    "write.update.mode": "merge-on-read",
    "write.merge.mode": "merge-on-read",
    "write.metadata.previous-versions-max": "1000",  # so many changes can be travelled to
}
_PRIVATE = frozenset({"comment", "exists", "location", "owner"})
"""Properties of a namespace that cannot be tags."""


# ----------------------------------------------------------------------------------------- schemas


def create_schema(lake: Lake, name: str, options: CreateSchemaOptions) -> None:
    """A name with dots is a nested namespace; as in Spark, those around it need not exist. Raises:
    AlreadyExists.
    """
    parts = tuple(name.split("."))
    _expect_text(name, "schema")
    if not all(parts):
        raise BadRequest(
            f"the name of schema {name} has an empty part: there must be a name on either side of a dot"
        )
    for tag in options.tags:
        if tag.lower() in _PRIVATE:
            raise BadRequest(f"a schema cannot have a tag called {tag}: the name is taken by Spark")
    properties = {
        **options.tags,
        **({COMMENT_PROPERTY: options.comment} if options.comment else {}),
    }
    with _naming(lake, name):
        if (known := _namespace(lake, name)) is not None:
            raise AlreadyExists(f"schema {'.'.join(known.parts)} exists already")
        with translated(f"schema {name}"):
            lake.gateway.create_namespace(parts, properties)
        lake.changed()


def drop_schema(lake: Lake, name: str, options: DropSchemaOptions) -> None:
    """Raises: NotFound, SchemaNotEmpty."""
    if not name:
        raise BadRequest("a schema needs a name")
    found = _namespace(lake, name)
    if found is None:
        if options.ignore_not_found:
            return
        raise NotFound(f"schema {name} does not exist")
    shown = ".".join(found.parts)
    inner = sorted(
        each for each in lake.directory.contents().namespaces if each.startswith(f"{shown}.")
    )
    if found.entries and not options.cascade:
        raise SchemaNotEmpty(f"schema {shown} still contains tables: drop them first")
    if inner and not options.cascade:
        raise SchemaNotEmpty(f"schema {shown} still contains schema {inner[0]}: drop it first")
    # The deepest first.
    for each in [*sorted(inner, key=lambda inside: -inside.count(".")), shown]:
        _drop_namespace(lake, each)


def _drop_namespace(lake: Lake, name: str) -> None:
    namespace = lake.directory.contents().namespaces.get(name)
    if namespace is None:
        return
    for entry in namespace.entries.values():
        drop_table(lake, entry.identifier, DropTableOptions(ignore_not_found=True))
    with translated(f"schema {name}"):
        lake.gateway.drop_namespace(namespace.parts)
    lake.changed()
    folder = folders.namespace_folder(lake, namespace.parts)
    if folder is not None:
        lake.quietly(
            f"the folder of schema {name}", lambda: folders.remove_empty_folders(lake, folder)
        )


def _namespace(lake: Lake, name: str) -> Namespace | None:
    namespaces = lake.directory.contents().namespaces
    return namespaces.get(name) or next(
        (each for own, each in namespaces.items() if folded(own) == folded(name)), None
    )


def _naming(lake: Lake, *names: str) -> AbstractContextManager[None]:
    """Two names that differ only in case are one for DuckDB, and the catalog would take both."""
    return lake.locked(("name", *map(folded, names)))


def _expect_text(name: str, what: str) -> None:
    if not name:
        raise BadRequest(f"a {what} needs a name")
    if "\0" in name:
        raise BadRequest(f"the name of a {what} contains a NUL character")


# ------------------------------------------------------------------------------------ CREATE TABLE


def create_table(
    lake: Lake,
    ctx: Context,
    identifier: Identifier,
    arrow_schema: pa.Schema,
    options: CreateTableOptions,
) -> Identifier:
    """What the table is called: one that exists may differ in case. Raises: AlreadyExists,
    BadRequest, Unsupported.
    """
    _expect_text(identifier.name, "table")
    with _naming(lake, identifier.schema_name, identifier.name):
        return _create_table(lake, identifier, arrow_schema, options)


def _create_table(
    lake: Lake, identifier: Identifier, arrow_schema: pa.Schema, options: CreateTableOptions
) -> Identifier:
    known = _expect_place(lake, identifier)
    if known is not None:
        if options.on_conflict is OnConflict.IGNORE:
            return known.identifier
        if options.on_conflict is OnConflict.ERROR:
            raise AlreadyExists(f"table {known.identifier} exists already")
        if known.kind is not Kind.ICEBERG:
            what = "view" if known.kind is Kind.VIEW else "table"
            raise AlreadyExists(
                f"{what} {known.identifier} exists already, and cannot be replaced: drop it first"
            )
        identifier = known.identifier
    columns, constraints = _checked_columns(identifier, arrow_schema, options.constraints)
    try:
        with translated(f"table {identifier}"):
            if lake.gateway.iceberg_catalog is None:
                _create_with_spark(lake, identifier, columns, constraints, options)
            else:
                _create_with_iceberg(
                    lake, identifier, columns, constraints, options, is_new=known is None
                )
    except AlreadyExists:
        if options.on_conflict is not OnConflict.IGNORE:
            raise
    lake.changed()
    return identifier


def _checked_columns(
    identifier: Identifier, arrow_schema: pa.Schema, constraints: Constraints
) -> tuple[pa.Schema, Constraints]:
    # An ENUM arrives without its members, as a dictionary: it is kept as plain values, as the
    # client sees it.
    return new_table(publishable_schema(arrow_schema), constraints, identifier.name)


def _create_with_iceberg(
    lake: Lake,
    identifier: Identifier,
    columns: pa.Schema,
    constraints: Constraints,
    options: CreateTableOptions,
    *,
    is_new: bool,
) -> None:
    stored, tokens = stored_schema(columns)
    properties = {**_PROPERTIES, **lake.settings.table_properties}
    if options.comment:
        properties[COMMENT_PROPERTY] = options.comment
    catalog = lake.gateway.iceberg_catalog
    assert catalog is not None
    builder = catalog.buildTable(
        lake.gateway.iceberg_identifier(identifier), java_schema(lake, stored)
    )
    folder = folders.new_folder(lake, identifier) if is_new else None
    if folder is not None:
        builder = builder.withLocation(folder)
        properties[folders.FOLDER_PROPERTY] = folder
    builder = builder.withProperties(properties)
    transaction = builder.createTransaction() if is_new else builder.replaceTransaction()
    present = dict(transaction.table().properties())
    if COMMENT_PROPERTY in present and not options.comment:
        transaction.updateProperties().remove(COMMENT_PROPERTY).commit()
    # A table that is replaced keeps the ids of columns that are called as before, and its history.
    theirs = staged_schema(lake, transaction).fields
    ids = {each for field in theirs for each in inner_ids(field)}
    old_tokens = {each: token for each, token in tokens_in(present).items() if each not in ids}
    describe(
        lake,
        transaction,
        columns,
        constraints,
        old_tokens | assigned(stored.fields, theirs, tokens),
    )
    try:
        with translated(f"table {identifier}"):
            transaction.commitTransaction()
    except SparkportError as error:
        if not is_new or not _is_made(
            lake, identifier, str(transaction.table().uuid()), folder, error
        ):
            raise


def _is_made(
    lake: Lake, identifier: Identifier, uuid: str, folder: str | None, error: SparkportError
) -> bool:
    """Whether a new table is there all the same, and only the answer was lost; if another one is,
    ours leaves nothing.
    """
    try:
        handle = lake.gateway.iceberg(identifier)
    except SparkportError:
        return False
    if handle is None:
        return False
    place = (
        str(handle.table.location()).rstrip("/").rpartition("/")[2]
    )  # file systems spell the rest in several ways
    if str(handle.metadata.uuid()) == uuid or (
        folder is not None and folder.rpartition("/")[2] == place
    ):
        return True
    if folder is not None and isinstance(error, AlreadyExists):
        what = f"what is left of a table {identifier} that another server has made meanwhile"
        lake.quietly(what, lambda: folders.remove_folder(handle.table.io(), folder))
    return False


def _create_with_spark(
    lake: Lake,
    identifier: Identifier,
    columns: pa.Schema,
    constraints: Constraints,
    options: CreateTableOptions,
) -> None:
    """In a catalog that is not Iceberg's: a table of whatever format is usual there. Raises:
    Unsupported.
    """
    if options.on_conflict is OnConflict.REPLACE:
        raise Unsupported(f"table {identifier} cannot be replaced in this catalog: drop it first")
    if constraints:
        raise Unsupported(
            f"table {identifier} cannot have constraints: this catalog does not keep them"
        )
    stored, _ = stored_schema(columns)
    texts = []
    for field, column in zip(stored.fields, columns, strict=True):
        if needs_decoding(field.field_type, column) or default_of(column):
            raise Unsupported(
                f"column {column.name} of table {identifier} has a type or a default that this catalog cannot keep"
            )
        texts.append(f"{quoted(field.name)} {spark_type(field.field_type)}")
    comment = " COMMENT ?" if options.comment else ""
    lake.spark.sql(
        f"CREATE TABLE {identifier.sql} ({', '.join(texts)}){comment}",
        args=[options.comment] if comment else None,
    )


# ------------------------------------------------------------------------ DROP TABLE, RENAME TABLE


def drop_table(lake: Lake, identifier: Identifier, options: DropTableOptions) -> None:
    """Tables go with their files, unless the settings say otherwise, or the files may be somebody
    else's.
    """
    entry = _entry(lake, identifier)
    if entry is None:
        if options.ignore_not_found:
            return
        raise NotFound(f"table {identifier} does not exist")
    with translated(f"table {entry.identifier}"):
        if entry.kind is Kind.ICEBERG:
            _drop_iceberg_table(lake, entry.identifier, options)
        elif entry.kind is Kind.VIEW:
            _drop_view(lake, entry)
        else:
            lake.spark.sql(f"DROP TABLE {entry.identifier.sql}")
    lake.changed()


def _drop_iceberg_table(lake: Lake, identifier: Identifier, options: DropTableOptions) -> None:
    catalog = lake.gateway.iceberg_catalog
    if catalog is None:
        lake.spark.sql(f"DROP TABLE {identifier.sql}")
        return
    lake.changed()  # whether another table has files in the folder must not be told from memory
    handle = None if lake.settings.keep_files else _readable(lake, identifier)
    is_own = handle is not None and folders.folder_is_own(lake, identifier, handle)
    is_purged = handle is not None and not is_own and _may_purge(lake, identifier, handle)
    if (
        not catalog.dropTable(lake.gateway.iceberg_identifier(identifier), is_purged)
        and not options.ignore_not_found
    ):
        raise NotFound(f"table {identifier} does not exist")
    if handle is None:
        return
    folder = str(handle.table.location()).rstrip("/")
    # It is dropped; what goes wrong with its files is for the log.
    if is_own:
        lake.quietly(
            f"the files of table {identifier}",
            lambda: folders.remove_folder(handle.table.io(), folder),
        )
    elif is_purged:
        lake.quietly(
            f"the folder of table {identifier}", lambda: folders.remove_empty_folders(lake, folder)
        )


def _readable(lake: Lake, identifier: Identifier) -> IcebergHandle | None:
    """None for a table whose metadata are damaged: it can be dropped, but nobody knows which files
    were its own.
    """
    try:
        return lake.gateway.iceberg(identifier)
    except NotFound:
        raise
    except SparkportError:
        return None


def _may_purge(lake: Lake, identifier: Identifier, handle: IcebergHandle) -> bool:
    try:
        return folders.places_hold_all(lake, identifier, handle)
    except SparkportError:
        return False


def _drop_view(lake: Lake, view: Entry) -> None:
    files: list[str] = []
    if view.location and not lake.settings.keep_files:
        # Dropped, it does not tell any more.
        files = _files_of_view(lake, view)
    lake.spark.sql(f"DROP VIEW {view.identifier.sql}")
    if files:
        folder = view.location.rsplit("/", 2)[0]
        lake.quietly(
            f"the files of view {view.identifier}",
            lambda: folders.remove_files(lake, files, folder),
        )


def _files_of_view(lake: Lake, view: Entry) -> list[str]:
    try:
        return folders.view_files(lake, view.identifier, view.location)
    except SparkportError:
        return []


def rename_table(lake: Lake, identifier: Identifier, new_name: str) -> Identifier:
    """What it is called now; its files stay where they are. Raises: NotFound, AlreadyExists."""
    _expect_text(new_name, "table")
    entry = _entry(lake, identifier)
    if entry is None:
        raise NotFound(f"table {identifier} does not exist")
    renamed = Identifier(identifier.catalog, identifier.namespace, new_name)
    with _naming(lake, renamed.schema_name, new_name):
        return _rename_table(lake, entry, renamed)


def _rename_table(lake: Lake, entry: Entry, renamed: Identifier) -> Identifier:
    if (
        folded(renamed.name) != folded(entry.identifier.name)
        and (known := _entry(lake, renamed)) is not None
    ):
        raise AlreadyExists(f"table {known.identifier} exists already")
    if renamed == entry.identifier:
        return renamed
    catalog = lake.gateway.iceberg_catalog
    with translated(f"table {renamed}"):
        if entry.kind is Kind.ICEBERG and catalog is not None:
            names = lake.gateway.iceberg_identifier
            catalog.renameTable(names(entry.identifier), names(renamed))
        else:
            kind = "VIEW" if entry.kind is Kind.VIEW else "TABLE"
            target = ".".join(map(quoted, (*renamed.namespace, renamed.name)))
            lake.spark.sql(f"ALTER {kind} {entry.identifier.sql} RENAME TO {target}")
    lake.changed()
    return renamed


def _expect_place(lake: Lake, identifier: Identifier) -> Entry | None:
    """What is there under that name. Raises: NotFound when the schema is not there: Iceberg would
    not miss it.
    """
    if lake.directory.contents().namespaces.get(identifier.schema_name) is None:
        raise NotFound(f"schema {identifier.schema_name} does not exist")
    return _entry(lake, identifier)


def _entry(lake: Lake, identifier: Identifier) -> Entry | None:
    found = lake.entry(identifier)
    if found is not None:
        return found
    namespace = lake.directory.contents().namespaces.get(identifier.schema_name)
    entries = {} if namespace is None else namespace.entries
    return next(
        (each for name, each in entries.items() if folded(name) == folded(identifier.name)), None
    )
