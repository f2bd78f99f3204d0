"""Find out whether a commit was made, when the catalog did not confirm it.

Strategy: an answer can be lost. A client of the catalog that asks again is then told that another
writer was faster, although that writer was itself. So whenever the catalog does not say yes, the
table is looked at. A commit is recognised by the snapshot that it adds, or else by a property that
it sets, in the present metadata or in those that were replaced meanwhile. A commit is tried again,
or its files removed, only if it is certainly not there.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Set
from dataclasses import dataclass
from typing import Any

from sparkport.errors import CatalogFault
from sparkport.spark.iceberg.table_state import TableState
from sparkport.spark.lake.lake import Lake
from sparkport.spark.lake.shared_catalog import Beaten, Refused

__all__ = ["Expected", "OutcomeUnknown", "marked", "was_made_despite"]

_log = logging.getLogger(__name__)

_COMMIT_PROPERTY = "sparkport.commit"
"""Table property: the id of the last commit of a Sparkport server that made no snapshot."""
_PAUSES = (0.0, 0.2, 1.0)
"""Seconds to wait before each look at the table."""


class OutcomeUnknown(CatalogFault):
    """The change may have been made, so its files must stay."""


def marked(lake: Lake, base: Any, after: Any) -> Any:
    """Make new org.apache.iceberg.TableMetadata recognisable, with a property if need be."""
    if after.lastSequenceNumber() != base.lastSequenceNumber() or after.changes().isEmpty():
        return after
    builder = lake.gateway.jvm.org.apache.iceberg.TableMetadata.buildFrom(after)
    return builder.setProperties({_COMMIT_PROPERTY: uuid.uuid4().hex}).build()


@dataclass(frozen=True, slots=True)
class Expected:
    """By what a commit is recognised."""

    snapshots: Set[int]
    """Ids of the snapshots that it adds."""
    sequence_number: int
    mark: str | None = None
    """The property that it sets if it adds none."""

    @classmethod
    def of(cls, after: Any) -> Expected:
        """What tells org.apache.iceberg.TableMetadata that are to be committed."""
        return cls(
            {int(each.snapshot().snapshotId()) for each in after.changes() if _adds_snapshot(each)},
            int(after.lastSequenceNumber()),
            after.properties().get(_COMMIT_PROPERTY),
        )


def was_made_despite(
    error: BaseException, lake: Lake, base: TableState, expected: Expected
) -> bool:
    """Whether a commit on top of `base` was made although it ended with an error.

    False when another writer was faster. Raises: OutcomeUnknown when it cannot be found out; the
    error, when the commit was certainly not made.
    """
    if isinstance(error, Beaten) and error.is_certain:
        return False
    is_made = _looked_up(lake, base, expected)
    if is_made:
        _log.warning(
            "table %s: a commit was made although the catalog did not say so", base.identifier
        )
        return True
    if is_made is None or not isinstance(error, Beaten | Refused):
        _log.warning(
            "table %s: nobody knows whether a commit was made", base.identifier, exc_info=error
        )
        raise OutcomeUnknown(
            f"the catalog did not say whether the change of table {base.identifier} was made: look "
            "at the table before you try again"
        ) from error
    if isinstance(error, Refused):
        raise error.__cause__ or error
    return False


def _looked_up(lake: Lake, base: TableState, expected: Expected) -> bool | None:
    """Whether the table has, or has had, what a commit was to make of it; None when unknown."""
    for pause in _PAUSES:
        time.sleep(pause)
        try:
            return _is_there(lake, base, expected)
        except Exception:  # noqa: BLE001 - then the outcome is unknown
            _log.warning(
                "table %s: it cannot be seen whether a commit was made",
                base.identifier,
                exc_info=True,
            )
    return None


def _is_there(lake: Lake, base: TableState, expected: Expected) -> bool:
    """Whether the commit is in the table's log.

    Raises: LookupError; what keeps the catalog or the storage from answering.
    """
    now = lake.current(base.identifier)
    if now.metadata.table_uuid != base.metadata.table_uuid:
        raise LookupError("the table is another one now")
    added, number, mark = expected.snapshots, expected.sequence_number, expected.mark
    # Others may have committed on top, and may even have expired the snapshot. The metadata in
    # between still show it.
    for location in (
        now.metadata_location,
        *(entry.metadata_file for entry in reversed(now.metadata.metadata_log)),
    ):
        if location == base.metadata_location:
            return False
        metadata = lake.state(base.identifier, location).metadata
        numbers = {
            snapshot.snapshot_id: snapshot.sequence_number for snapshot in metadata.snapshots
        }
        if added & numbers.keys() or (
            not added and mark and metadata.properties.get(_COMMIT_PROPERTY) == mark
        ):
            return True
        # A number is given only once: another snapshot has this commit's.
        if added and number and number in numbers.values():
            return False
    raise LookupError("what is known of the table does not reach back so far")


def _adds_snapshot(change: Any) -> bool:
    """Whether an org.apache.iceberg.MetadataUpdate adds a snapshot."""
    return str(change.getClass().getSimpleName()) == "AddSnapshot"
