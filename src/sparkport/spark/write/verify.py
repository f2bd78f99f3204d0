"""Whether a change can be made to a state of its table: what it has read must still be so."""

from __future__ import annotations

from sparkport.errors import Conflict, NotFound
from sparkport.spark.iceberg.table_state import TableState
from sparkport.spark.lake.changes import Location, TableChange
from sparkport.spark.write.locate import changed_since, locate, same_snapshot

__all__ = ["changed_by_others", "verified", "verify_columns"]


def verified(change: TableChange, now: TableState) -> Location:
    """Where the removed rows are now.

    They are looked for only if the table has changed since the statement found them. Raises:
    Conflict when others have changed the rows or the columns; NotFound.
    """
    verify_columns(change, now)
    if change.location is not None and same_snapshot(change.base, now):
        return change.location
    location = locate(now, change.removed, now.file_properties)
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
