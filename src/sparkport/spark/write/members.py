"""Changes of one table that are made by one commit: which of them can be, and as what.

Strategy: each change is checked against the state that all are put on top of, and against those
before it: no row may be changed twice, no key be added twice. A change that fails leaves with its
own error. The others are joined into one change.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from sparkport.catalog import Context
from sparkport.errors import Conflict, ConstraintViolation, SparkportError
from sparkport.spark.iceberg.table_state import TableState
from sparkport.spark.jvm.errors import translated
from sparkport.spark.lake.changes import NO_ROWS, Located, Location, TableChange
from sparkport.spark.lake.staging import Staging
from sparkport.spark.write.keys import KeyCheck, have_apart_keys
from sparkport.spark.write.verify import changed_by_others, found_together, verified

__all__ = ["Member", "accepted", "all_of", "fail_all", "joined", "joined_summary"]

_MOST_ROWS = 122_880
"""Rows of a change that is made together with others: ids and keys may have to be compared."""
_NOWHERE = Location((), NO_ROWS)


@dataclass(slots=True, eq=False)
class Member:
    """A change that is ready, and what becomes of it."""

    ctx: Context
    change: TableChange
    keys: KeyCheck
    staging: Staging
    summary: Mapping[str, str]
    location: Location = _NOWHERE
    """Where the removed rows are, in the state that it was checked against last."""
    objection: Exception | None = None
    """Why it cannot be made together with the others, if these are made."""
    made: TableState | None = None
    """The table after the commit."""
    error: Exception | None = None

    @property
    def is_settled(self) -> bool:
        return self.made is not None or self.error is not None

    @property
    def is_small(self) -> bool:
        """Whether it can be made together with others."""
        return self.change.size <= _MOST_ROWS and self.keys.is_small and not self.change.is_exact

    def outcome(self) -> tuple[TableState, Location]:
        """The table after the commit, and where the removed rows were. Raises: its error."""
        if self.error is not None:
            raise self.error
        assert self.made is not None
        return self.made, self.location


def fail_all(members: Sequence[Member], error: Exception) -> None:
    """Have the thread of each change raise an error.

    Each gets an object of its own, because a thread changes what it raises.
    """
    for each in members:
        each.error = error
        if len(members) > 1:
            with suppress(Exception):  # a class that cannot be made anew
                each.error = copy.copy(error)
                each.error.__cause__ = error


def accepted(members: Sequence[Member], now: TableState) -> list[Member]:
    """Those of the changes that can be made to a state together.

    A change that cannot be made to it gets its error. One that only another of them is in the way
    of gets an objection, which counts if the others are made.
    """
    places: Sequence[Location | None] = [None] * len(members)
    if len(members) > 1:
        with suppress(SparkportError):  # each of them meets the error by itself, then
            places = found_together([each.change for each in members], now)
    for each, place in zip(members, places, strict=True):
        each.objection = None
        try:
            with translated(f"table {each.change.identifier}"):
                each.ctx.check()
                each.location = verified(each.change, now, place)
                each.keys.against(now)
        except Exception as error:  # noqa: BLE001 - the change's own thread raises it
            each.error = error
    found = [each for each in members if each.error is None]
    if len(found) < 2:
        return found
    keys_apart = _have_apart_keys(found)
    apart: list[Member] = []
    removed: set[int] = set()
    for each in found:
        own = set(each.change.removed.to_pylist())
        try:
            if removed & own:
                raise changed_by_others(each.change, f"row {min(removed & own)}")
            if not keys_apart:
                each.keys.against_new([other.keys for other in apart])
        except (Conflict, ConstraintViolation) as error:
            each.objection = error
        else:
            removed |= own
            apart.append(each)
    return apart


def _have_apart_keys(members: Sequence[Member]) -> bool:
    """Whether no key is added twice, by one comparison of all."""
    try:
        have_apart_keys([each.keys for each in members])
    except ConstraintViolation:
        return False
    return True


def all_of(members: Sequence[Member]) -> TableChange:
    """What all changes do, as far as it decides how a commit begins."""
    first = members[0].change
    if len(members) == 1:
        return first
    files = tuple(file for each in members for file in each.change.files)
    held = tuple(rows for each in members for rows in each.change.held)
    removed = pa.concat_arrays([each.change.removed for each in members])
    scratch = tuple(branch for each in members for branch in each.change.scratch)
    return replace(first, files=files, held=held, removed=removed, location=None, scratch=scratch)


def joined(members: Sequence[Member], now: TableState) -> TableChange:
    """One change for those that were accepted, with the locations of removed rows."""
    if len(members) == 1:
        return replace(members[0].change, location=members[0].location)
    found: dict[str, list[Located]] = {}
    for member in members:
        for each in member.location.found:
            found.setdefault(each.part.path, []).append(each)
    location = Location(tuple(map(_united, found.values())), NO_ROWS)
    return replace(all_of(members), base=now, location=location)


def _united(located: Sequence[Located]) -> Located:
    """Rows of the same file, in which all are."""
    if len(located) == 1:
        return located[0]
    positions = pa.concat_arrays([each.positions for each in located])
    row_ids = pa.concat_arrays([each.row_ids for each in located])
    order = pc.array_sort_indices(positions)
    return replace(located[0], positions=positions.take(order), row_ids=row_ids.take(order))


def joined_summary(members: Sequence[Member]) -> Mapping[str, str]:
    """What the summary of the snapshot says: of several statements a JSON list of each value."""
    if len(members) == 1:
        return members[0].summary
    names = dict.fromkeys(name for each in members for name in each.summary)
    return {name: json.dumps([each.summary.get(name) for each in members]) for name in names}
