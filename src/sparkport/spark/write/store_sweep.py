"""Remove what dead servers have left in an object store.

Strategy: a note of a table is a hint, not an order. A file is removed when the table is in the
catalog, with the same uuid; when it is found in the table's own places, under a name that bears the
ids of the dead server and of this table; and when no snapshot of the table leads to it. A branch is
removed when its name bears the id of the server. What cannot be settled stays, with the note, and
is reported.

Before a file is removed, the sweep itself commits to the table. So a commit that the dead server
has asked for, and that only now gets through, is not made: the table has changed.
"""

from __future__ import annotations

import json
import logging
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence

from sparkport.spark.iceberg.deletion import delete_files
from sparkport.spark.iceberg.locations import local_path, storage_at
from sparkport.spark.iceberg.storage import MissingFile, Storage
from sparkport.spark.iceberg.table_state import TableState
from sparkport.spark.lake.folders import may_collect
from sparkport.spark.lake.heading import Heading, places_of
from sparkport.spark.lake.iceberg_commit import Draft, alter
from sparkport.spark.lake.lake import Lake
from sparkport.spark.lake.lease import LEASE, PROBE, StoreClock, held_by_the_dead
from sparkport.spark.lake.store_folder import ID_DIGITS, ROWS, TABLES, Store, table_digits
from sparkport.spark.lake.transaction import BRANCH_PREFIX
from sparkport.spark.write.leftovers import (
    NAMED_BY_SPARK,
    files_of,
    plain,
    report,
    state_of,
    states_of,
)
from sparkport.spark.write.publish import drop_branch
from sparkport.spark.write.unmade_commits import manifests_of_unmade
from sparkport.spark.write.unmade_objects import remove_unmade

__all__ = ["sweep_store"]

_log = logging.getLogger(__name__)

_SWEPT_PROPERTY = "sparkport.swept"
"""Table property: the id of the last server whose files were removed after its death."""


def sweep_store(lake: Lake) -> None:
    """Remove what dead servers have left, as far as it concerns this lake's catalog.

    Raises: OSError when the store cannot be read or written.
    """
    store = lake.staging.store
    if store is None:
        return
    storage = store.storage()
    clock = StoreClock(storage, store.root)
    for server, files in _by_server(storage.files_below(store.root), store.root).items():
        try:
            if not server:
                _remove_probes(storage, files, clock)
            elif leases := [each for each in files if _name(each).startswith(LEASE)]:
                with held_by_the_dead(storage, leases, lake.staging.root, clock) as is_dead:
                    if is_dead:
                        _Dead(lake, store, storage, server).sweep(files, leases)
        except MissingFile:
            continue  # it has ended, or another server is sweeping
        except Exception:  # noqa: BLE001 - one of many; the others do not depend on it
            _log.warning("what a server has left is kept for now", exc_info=True)


def _by_server(files: Sequence[str], root: str) -> Mapping[str, list[str]]:
    """The files in the folder of each server; "" has those that are in no folder."""
    found: dict[str, list[str]] = defaultdict(list)
    for file in files:
        server, slash, _ = file[len(root) + 1 :].partition("/")
        if not slash:
            found[""].append(file)
        elif re.fullmatch(f"[0-9a-f]{{{ID_DIGITS}}}", server):
            found[server].append(file)
    return found


def _remove_probes(storage: Storage, files: Sequence[str], clock: StoreClock) -> None:
    """Remove what servers have written to learn the time, and could not remove."""
    for file in files:
        if _name(file).startswith(PROBE) and clock.is_old(file):
            storage.delete(file)


class _Dead:
    """A server that has died, and its folder in the store."""

    def __init__(self, lake: Lake, store: Store, storage: Storage, server: str) -> None:
        self._lake = lake
        self._store = store
        self._storage = storage
        self._server = server
        self._folder = f"{store.root}/{server}"

    def sweep(self, files: Sequence[str], leases: Sequence[str]) -> None:
        """Remove all that can be removed; the folder goes last. Raises: OSError."""
        rows = [each for each in files if each.startswith(f"{self._folder}/{ROWS}/")]
        left = delete_files(rows, self._store.properties())
        for note in files:
            if note.startswith(f"{self._folder}/{TABLES}/"):
                if self._is_settled(note):
                    self._storage.delete(note)
                else:
                    left.append(note)
        if not left:
            for lease in leases:
                self._storage.delete(lease)

    def _is_settled(self, note: str) -> bool:
        try:
            with self._storage.open_once(note) as source:
                heading = Heading.noted(json.loads(source.read()))
            if heading.identifier.catalog != self._lake.catalog.name:
                return False
            state = state_of(heading, self._lake)
            return self._is_gone(heading) if state is None else self._is_clean(heading, state)
        except Exception:  # noqa: BLE001 - one of many; the others do not depend on it
            _log.warning(
                "what a server has left of a table is kept for now: it cannot be looked at",
                exc_info=True,
            )
            return False

    def _is_gone(self, heading: Heading) -> bool:
        """Whether nothing is left of a table that is not found.

        No file is removed, as its owner is not known.
        """
        if any(local_path(place) is not None for place in heading.places):
            raise ValueError("a table of this warehouse is not in a folder of this machine")
        if not heading.metadata and heading.places:  # there was none when the statement began
            unmade = [self._is_unmade(heading, each) for each in heading.places]
            return all(unmade)
        left = self._found(heading.places, heading.uuid, self._lake.file_properties)
        if left:
            self._report(heading, left, "and the table is not found: remove what nobody needs")
        return not left

    def _is_unmade(self, heading: Heading, folder: str) -> bool:
        """Remove the folder of a table or view that was not made; whether nothing remains."""
        own = re.search(rf"-({self._server}{table_digits(heading.uuid)}[0-9a-f]+)$", folder)
        return own is not None and remove_unmade(self._lake, heading.identifier, folder, own[1])

    def _is_clean(self, heading: Heading, state: TableState) -> bool:
        """Remove what the server has left of a table; whether nothing remains to be done."""
        branches = [each for each in state.metadata.refs if self._has_made(each)]
        for branch in branches:
            drop_branch(self._lake, state.identifier, branch)
        if branches:
            state = self._lake.current(state.identifier)
        self._abort_uploads(state)
        unknown = self._unknown(state)
        if not unknown:
            return True
        if not may_collect(state.metadata.properties):
            self._report(heading, unknown, "and its property gc.enabled does not let files go")
            return False
        alter(self._lake, state.identifier, self._mark)
        state = self._lake.current(state.identifier)
        unknown = self._unknown(state)
        left = delete_files(unknown, state.file_properties)
        _log.info(
            "table %s: removed %d files of a server that has died",
            state.identifier,
            len(unknown) - len(left),
        )
        return not left

    def _has_made(self, branch: str) -> bool:
        return branch.startswith(f"{BRANCH_PREFIX}{self._server}")

    def _unknown(self, state: TableState) -> list[str]:
        """Files of the server in the table's places that no snapshot leads to. Raises: OSError."""
        uuid, metadata = str(state.metadata.table_uuid), state.metadata
        places = places_of(metadata.properties, metadata.location)
        found = set(self._found(places, uuid, state.file_properties))
        # A table may be registered twice, and the tables have gone different ways since.
        states = states_of(uuid, map(plain, places), self._lake)
        for each in (state, *states) if found else ():
            found -= files_of(each, found)
        if len(states) > 1:
            return sorted(found)
        unmade = manifests_of_unmade(self._lake, state, lambda file: self._wrote(file, uuid))
        return sorted(found | unmade)

    def _found(self, places: Sequence[str], uuid: str, properties: Mapping[str, str]) -> list[str]:
        """Files whose names bear the ids of the server and the table. Raises: OSError."""
        return [
            file
            for place in dict.fromkeys(places)
            for file in storage_at(place, properties).files_below(place)
            if self._wrote(file, uuid)
        ]

    def _abort_uploads(self, state: TableState) -> None:
        """End what the server had begun to upload. Raises: OSError."""
        uuid, properties = str(state.metadata.table_uuid), state.file_properties
        for place in places_of(state.metadata.properties, state.metadata.location):
            storage_at(place, properties).abort_uploads(place, lambda file: self._wrote(file, uuid))

    def _wrote(self, file: str, uuid: str) -> bool:
        """Whether the name of a file bears the ids of the server and the table."""
        statement = rf"{self._server}{table_digits(uuid)}[0-9a-f]{{{ID_DIGITS}}}"
        own = rf"(.*-)?{statement}-[0-9a-f]{{16}}(-deletes)?\.[a-z]+"
        by_spark = NAMED_BY_SPARK.format(id=statement)
        return re.fullmatch(f"({own})|({by_spark})", _name(file)) is not None

    def _mark(self, draft: Draft) -> bool:
        draft.transaction.updateProperties().set(_SWEPT_PROPERTY, self._server).commit()
        return True

    def _report(self, heading: Heading, names: Sequence[str], why: str) -> None:
        report(f"the note of server {self._server}", heading, names, why)


def _name(location: str) -> str:
    return location.rpartition("/")[2]
