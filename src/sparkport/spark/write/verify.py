"""Whether a change can be made to a state of its table: what it has read must still be so."""

from __future__ import annotations

from collections.abc import Sequence

from pyiceberg.table.snapshots import Operation
from pyroaring import BitMap64

from sparkport.errors import Conflict, NotFound
from sparkport.spark.iceberg.positions import array_of, bitmap_of
from sparkport.spark.iceberg.table_state import TableState
from sparkport.spark.lake.changes import NO_ROWS, Location, TableChange
from sparkport.spark.lake.history import ancestors_of
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
    if change.is_exact and not _has_same_rows(change.base, now):
        raise changed_by_others(change, "a row")
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


def _has_same_rows(base: TableState, now: TableState) -> bool:
    """Whether all commits since an earlier state have only moved rows to other files."""
    if base.snapshot is None or now.snapshot is None:
        return base.snapshot is now.snapshot
    line = ancestors_of(now.metadata, now.snapshot.snapshot_id)
    if base.snapshot.snapshot_id not in line:
        return False
    newer = set(line[: line.index(base.snapshot.snapshot_id)])
    return all(
        each.summary is not None and each.summary.operation is Operation.REPLACE
        for each in now.metadata.snapshots
        if each.snapshot_id in newer
    )


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
