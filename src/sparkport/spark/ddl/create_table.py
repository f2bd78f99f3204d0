"""CREATE TABLE."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from sparkport.catalog import Constraints, Context, CreateTableOptions, OnConflict
from sparkport.catalog.names import folded
from sparkport.engine.alterations import new_table
from sparkport.engine.columns import default_of
from sparkport.engine.types import publishable_schema
from sparkport.errors import AlreadyExists, BadRequest, NotFound, SparkportError, Unsupported
from sparkport.spark.ddl.names import expect_text, find_entry, name_lock
from sparkport.spark.iceberg.definition import COMMENT_PROPERTY, ICEBERGS_OWN
from sparkport.spark.iceberg.identifiers import Identifier, quoted
from sparkport.spark.iceberg.types.declared import (
    needs_decoding,
    spark_type,
    stored_schema,
    type_tags_in,
)
from sparkport.spark.iceberg.types.nested import inner_ids
from sparkport.spark.jvm.errors import translated
from sparkport.spark.lake import folders
from sparkport.spark.lake.directory import CatalogEntry, Kind
from sparkport.spark.lake.drafted_columns import (
    assigned,
    describe,
    java_schema,
    staged_schema,
)
from sparkport.spark.lake.java_metadata import JavaMetadata
from sparkport.spark.lake.lake import Lake
from sparkport.spark.lake.shared_catalog import Beaten, Refused
from sparkport.spark.lake.version_notes import SHORT_LOG

__all__ = ["Layout", "create_table", "draft_table", "expect_place", "proposed_table"]

_PROPERTIES: Mapping[str, str] = {
    "format-version": "3",  # the first with row ids
    "write.delete.mode": "merge-on-read",
    "write.update.mode": "merge-on-read",
    "write.merge.mode": "merge-on-read",
    **SHORT_LOG,
}
_ATTEMPTS = 10


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """What a statement in Spark SQL says of a new table, apart from its columns."""

    partitions: Callable[[Any], Any]
    """Makes an org.apache.iceberg.PartitionSpec for an org.apache.iceberg.Schema."""
    properties: Mapping[str, str]


def create_table(
    lake: Lake,
    ctx: Context,
    identifier: Identifier,
    arrow_schema: pa.Schema,
    options: CreateTableOptions,
) -> Identifier:
    """Create a table and return its name, or that of a table that exists and may differ in case.

    Raises: AlreadyExists, BadRequest, Unsupported.
    """
    expect_text(identifier.name, "table")
    with name_lock(lake, identifier.schema_name, identifier.name):
        return _create_table(lake, identifier, arrow_schema, options)


def _create_table(
    lake: Lake, identifier: Identifier, arrow_schema: pa.Schema, options: CreateTableOptions
) -> Identifier:
    known = expect_place(lake, identifier)
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
                make = _create_with_spark
            else:
                make = _create_with_iceberg if known is None else _replace_with_iceberg
            make(lake, identifier, columns, constraints, options)
    except AlreadyExists:
        if options.on_conflict is not OnConflict.IGNORE:
            raise
    lake.changed()
    return identifier


def expect_place(lake: Lake, identifier: Identifier) -> CatalogEntry | None:
    """The object that has this name, or None.

    Raises: NotFound when the schema does not exist, which Iceberg would not notice.
    """
    if lake.catalog.namespace(identifier.schema_name) is None:
        raise NotFound(f"schema {identifier.schema_name} does not exist")
    return find_entry(lake, identifier)


def _checked_columns(
    identifier: Identifier, arrow_schema: pa.Schema, constraints: Constraints
) -> tuple[pa.Schema, Constraints]:
    # An ENUM arrives as a dictionary without its members. It is kept as plain values, which is what
    # the client sees.
    return new_table(publishable_schema(arrow_schema), constraints, identifier.name)


def _create_with_iceberg(
    lake: Lake,
    identifier: Identifier,
    columns: pa.Schema,
    constraints: Constraints,
    options: CreateTableOptions,
) -> None:
    folder = folders.new_folder(lake, identifier)
    transaction = draft_table(lake, identifier, columns, constraints, options, folder)
    try:
        lake.catalog.create(identifier, proposed_table(lake, transaction))
    except SparkportError as error:
        if not _is_made(lake, identifier, transaction.table(), folder, error):
            raise


def _replace_with_iceberg(
    lake: Lake,
    identifier: Identifier,
    columns: pa.Schema,
    constraints: Constraints,
    options: CreateTableOptions,
) -> None:
    for attempt in range(_ATTEMPTS):
        transaction = draft_table(lake, identifier, columns, constraints, options, is_new=False)
        base = transaction.underlyingOps().current()
        try:
            return lake.catalog.swap(identifier, proposed_table(lake, transaction, base))
        except Refused as error:
            raise error.__cause__ or error from None
        except Beaten as error:
            if not error.is_certain or attempt == _ATTEMPTS - 1:
                raise


def draft_table(
    lake: Lake,
    identifier: Identifier,
    columns: pa.Schema,
    constraints: Constraints,
    options: CreateTableOptions,
    folder: str | None = None,
    *,
    is_new: bool = True,
    layout: Layout | None = None,
) -> Any:
    """An org.apache.iceberg.Transaction that creates or replaces a table. It is not committed.

    Raises: BadRequest for names of columns that Iceberg keeps for itself.
    """
    for name in columns.names:
        if folded(name) in ICEBERGS_OWN:
            raise BadRequest(
                f"table {identifier}: a column cannot be called {name}, which is Iceberg's own: "
                "choose another name"
            )
    stored, type_tags = stored_schema(columns)
    properties = {**_PROPERTIES, **lake.settings.table_properties}
    if layout is not None:
        properties |= layout.properties
    if options.comment:
        properties[COMMENT_PROPERTY] = options.comment
    catalog = lake.gateway.iceberg_catalog
    assert catalog is not None
    schema = java_schema(lake, stored)
    builder = catalog.buildTable(lake.gateway.iceberg_identifier(identifier), schema)
    if layout is not None:
        builder = builder.withPartitionSpec(layout.partitions(schema))
    if folder is not None:
        builder = builder.withLocation(folder)
        properties[folders.FOLDER_PROPERTY] = folder
    builder = builder.withProperties(properties)
    transaction = builder.createTransaction() if is_new else builder.replaceTransaction()
    present = dict(transaction.table().properties())
    if COMMENT_PROPERTY in present and not options.comment:
        transaction.updateProperties().remove(COMMENT_PROPERTY).commit()
    # A replaced table keeps its history, and the ids of columns whose names stay.
    theirs = staged_schema(lake, transaction).fields
    ids = {each for field in theirs for each in inner_ids(field)}
    old_type_tags = {
        each: type_tag for each, type_tag in type_tags_in(present).items() if each not in ids
    }
    type_tags = old_type_tags | assigned(stored.fields, theirs, type_tags)
    describe(lake, transaction, columns, constraints, type_tags)
    return transaction


def proposed_table(lake: Lake, transaction: Any, base: Any = None) -> JavaMetadata:
    iceberg, table = lake.gateway.jvm.org.apache.iceberg, transaction.table()
    after = table.operations().current()
    return JavaMetadata(iceberg, table.io(), base, after, transaction.commitTransaction)


def _is_made(
    lake: Lake, identifier: Identifier, table: Any, folder: str | None, error: SparkportError
) -> bool:
    """Whether a new org.apache.iceberg.Table exists in spite of an error: the answer was lost.

    If another table has its name, the files of the new one are removed.
    """
    try:
        found = lake.current(identifier).metadata
    except SparkportError:
        return False
    if str(found.table_uuid) == str(table.uuid()):
        return True
    # File systems spell the beginning of a location in several ways.
    if folder is not None and found.location.rstrip("/").endswith(folder[folder.rindex("/") :]):
        return True
    if folder is not None and isinstance(error, AlreadyExists):
        what = f"what is left of a table {identifier} that another server has made meanwhile"
        lake.attempt(what, lambda: folders.remove_folder(table, folder))
    return False


def _create_with_spark(
    lake: Lake,
    identifier: Identifier,
    columns: pa.Schema,
    constraints: Constraints,
    options: CreateTableOptions,
) -> None:
    """Create a table of the catalog's usual format, in a catalog that is not Iceberg's.

    Raises: Unsupported.
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
                f"column {column.name} of table {identifier} has a type or a default that this "
                "catalog cannot keep"
            )
        texts.append(f"{quoted(field.name)} {spark_type(field.field_type)}")
    comment = " COMMENT ?" if options.comment else ""
    lake.spark.sql(
        f"CREATE TABLE {identifier.sql} ({', '.join(texts)}){comment}",
        args=[options.comment] if comment else None,
    )
