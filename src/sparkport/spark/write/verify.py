"""Whether a change can be made to a state of its table: what it has read must still be so."""

from __future__ import annotations

from collections.abc import Sequence

from pyroaring import BitMap64

from sparkport.errors import Conflict, NotFound
from sparkport.spark.iceberg.positions import array_of, bitmap_of
from sparkport.spark.iceberg.table_state import TableState
from sparkport.spark.lake.changes import NO_ROWS, Location, TableChange
from sparkport.spark.write.locate import changed_since, divided, locate, same_snapshot

__all__ = ["changed_by_others", "found_together", "verified", "verify_columns"]


def found_together(changes: Sequence[TableChange], now: TableState) -> list[Location | None]:
    """Where the removed rows of several changes are now; None where they are known already.

    All are looked for at once, because each search goes through the list of the table's files.
    Raises: what `locate` raises.
    """
    moved = [each.removed for each in changes if not _is_located(each, now)]
    every = array_of(BitMap64.union(*map(bitmap_of, moved))) if moved else NO_ROWS
    found = iter(divided(locate(now, every, now.file_properties), moved))
    return [None if _is_located(each, now) else next(found) for each in changes]


def _is_located(change: TableChange, now: TableState) -> bool:
    return change.location is not None and same_snapshot(change.base, now)


def verified(change: TableChange, now: TableState, found: Location | None = None) -> Location:
    """Where the removed rows are now.

    They are looked for only if the table has changed since the statement found them, and if they
    were not `found` now. Raises: Conflict when others have changed the rows or the columns;
    NotFound.
    """
    verify_columns(change, now)
    if change.location is not None and _is_located(change, now):
        return change.location
    location = locate(now, change.removed, now.file_properties) if found is None else found
    row = changed_since(change.base, now, location, now.file_properties, change.location)
    if row is not None:
        raise changed_by_others(change, f"row {row}")
    if len(location.missing):
        raise NotFound(
            f"row id {location.missing[0].as_py()} does not exist in table {change.identifier}"
        )
    return location


def changed_by_others(change: TableChange, what: str) -> Conflict:
    return Conflict(
        f"{what} of table {change.identifier} was changed by somebody else meanwhile; nothing was "
        "changed: run it again"
    )


def verify_columns(change: TableChange, now: TableState) -> None:
    """Raises: Conflict when the table was created anew meanwhile, or has other columns."""
    title = f"table {change.identifier}"
    if now.metadata.table_uuid != change.base.metadata.table_uuid:
        raise Conflict(
            f"{title} was dropped and created anew while the statement ran; nothing was changed"
        )
    if now.definition is not change.base.definition:
        raise Conflict(
            f"{title} was altered while the statement ran; nothing was changed: run it again"
        )
