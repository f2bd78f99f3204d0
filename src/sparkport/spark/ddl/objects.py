"""DROP and RENAME of tables and views."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from sparkport.catalog import DropTableOptions
from sparkport.catalog.names import folded
from sparkport.errors import (
    AlreadyExists,
    CatalogFault,
    NotFound,
    SparkportError,
    Unsupported,
)
from sparkport.spark.ddl.names import expect_text, find_entry, name_lock
from sparkport.spark.iceberg.identifiers import Identifier
from sparkport.spark.jvm.errors import translated
from sparkport.spark.jvm.gateway import IcebergHandle
from sparkport.spark.lake import folders
from sparkport.spark.lake.directory import CatalogEntry, Kind
from sparkport.spark.lake.lake import Lake

__all__ = ["drop_table", "drop_view", "rename_table", "replace_table"]


def drop_table(lake: Lake, identifier: Identifier, options: DropTableOptions) -> None:
    """Drop a table or view, with its files.

    The files stay if the settings say so, or if other tables may use them, too.
    """
    entry = find_entry(lake, identifier)
    if entry is None:
        if options.ignore_not_found:
            return
        raise NotFound(f"table {identifier} does not exist")
    is_iceberg = entry.kind is Kind.ICEBERG and lake.gateway.iceberg_catalog is not None
    with translated(f"table {entry.identifier}"):
        if is_iceberg:
            _drop_iceberg_table(lake, entry, options)
        elif entry.kind is Kind.VIEW:
            drop_view(lake, entry)
        else:
            lake.catalog.drop(entry)
    lake.changed()


def _drop_iceberg_table(
    lake: Lake,
    entry: CatalogEntry,
    options: DropTableOptions,
    drop: Callable[[CatalogEntry], bool] | None = None,
) -> None:
    """Drop a table with its files, by the catalog's own drop or another one, which keeps files."""
    identifier = entry.identifier
    lake.changed()  # the listing must be fresh: another table may have files in the folder
    handle = None if lake.settings.keep_files else _readable(lake, identifier)
    is_own = handle is not None and folders.folder_is_own(lake, identifier, handle)
    is_purged = handle is not None and not is_own and _may_purge(lake, identifier, handle)
    # Asked for before: afterwards the name may be another table's.
    folder = "" if handle is None else str(handle.table.location()).rstrip("/")
    if handle is not None and is_purged and drop is None:
        is_dropped = lake.catalog.purge(entry, partial(_remove_named_files, lake, entry, handle))
    else:
        is_dropped = (drop or lake.catalog.drop)(entry)
        if handle is not None and is_purged:
            _remove_named_files(lake, entry, handle)
    if not is_dropped and not options.ignore_not_found:
        raise NotFound(f"table {identifier} does not exist")
    if handle is None:
        return
    # The table is dropped. Trouble with its files is only logged.
    if is_own:
        lake.attempt(
            f"the files of table {identifier}",
            lambda: folders.remove_folder(handle.table, folder),
        )
    elif is_purged:
        lake.attempt(
            f"the folder of table {identifier}", lambda: folders.remove_empty_folders(folder)
        )


def _remove_named_files(lake: Lake, entry: CatalogEntry, handle: IcebergHandle) -> None:
    lake.attempt(
        f"the files of table {entry.identifier}", lambda: folders.remove_named_files(lake, handle)
    )


def _readable(lake: Lake, identifier: Identifier) -> IcebergHandle | None:
    """The table as Iceberg has it; None if its metadata are damaged.

    Such a table can be dropped, but it cannot be known which files were its own.
    """
    try:
        lake.current(identifier)  # else Iceberg in the JVM would try for minutes to read it
    except Unsupported:
        pass  # it has columns that only Spark knows
    except (CatalogFault, NotFound):
        return None
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


def drop_view(lake: Lake, view: CatalogEntry) -> None:
    """Drop a view, with the files that describe it."""
    metadata = "" if lake.settings.keep_files else _metadata_of(lake, view)
    # After the drop, nothing names them any more.
    files = _files_of_view(lake, view, metadata) if metadata else []
    lake.catalog.drop(view)
    if files:
        folder = metadata.rsplit("/", 2)[0]
        lake.attempt(
            f"the files of view {view.identifier}",
            lambda: folders.remove_files(lake, view.identifier, files, folder),
        )


def _metadata_of(lake: Lake, view: CatalogEntry) -> str:
    """The location of a view's metadata; "" where it has none."""
    catalog = None if view.location else lake.gateway.iceberg_catalog
    if catalog is None:
        return view.location
    try:
        found = catalog.loadView(lake.gateway.iceberg_identifier(view.identifier))
        return str(found.operations().current().metadataFileLocation())
    except Exception:  # noqa: BLE001 - it is damaged, or another catalog's
        return ""


def _files_of_view(lake: Lake, view: CatalogEntry, metadata: str) -> list[str]:
    try:
        return folders.view_files(lake, view.identifier, metadata)
    except (SparkportError, OSError):
        return []


def rename_table(lake: Lake, identifier: Identifier, new_name: str) -> Identifier:
    """Rename a table; its files stay where they are. Raises: NotFound, AlreadyExists."""
    expect_text(new_name, "table")
    entry = find_entry(lake, identifier)
    if entry is None:
        raise NotFound(f"table {identifier} does not exist")
    renamed = Identifier(identifier.catalog, identifier.namespace, new_name)
    with name_lock(lake, renamed.schema_name, new_name):
        return _rename_table(lake, entry, renamed)


def _rename_table(lake: Lake, entry: CatalogEntry, renamed: Identifier) -> Identifier:
    if (
        folded(renamed.name) != folded(entry.identifier.name)
        and (known := find_entry(lake, renamed)) is not None
    ):
        raise AlreadyExists(f"table {known.identifier} exists already")
    if renamed == entry.identifier:
        return renamed
    lake.catalog.rename(entry, renamed)
    lake.changed()
    return renamed


def replace_table(lake: Lake, identifier: Identifier, replacement: Identifier) -> None:
    """Drop a table, and give its name to another one at the same moment.

    Raises: NotFound; Unsupported where the catalog, or the kind of the table, has no way to do so.
    """
    replaced, entry = (find_entry(lake, each) for each in (identifier, replacement))
    if replaced is None or entry is None:
        raise NotFound(f"table {identifier if replaced is None else replacement} does not exist")
    if replaced.kind is not Kind.ICEBERG or lake.gateway.iceberg_catalog is None:
        raise Unsupported(f"{replaced.identifier} is no table of Iceberg's, and stays where it is")

    def replace(dropped: CatalogEntry) -> bool:
        lake.catalog.replace(dropped, entry)
        return True

    with (
        name_lock(lake, identifier.schema_name, identifier.name),
        translated(f"table {replaced.identifier}"),
    ):
        _drop_iceberg_table(lake, replaced, DropTableOptions(), replace)
    lake.changed()
