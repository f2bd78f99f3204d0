"""Remove what servers that have died have left: branches, and files that no table knows.

Strategy: a journal is a hint, not an order. A file is removed when the journal's table is in the
catalog, with the same uuid; when the file is below the table's own places, and bears the id of the
statement; and when no snapshot of the table leads to it. The folder of a table that was to be made
goes when it bears the id of the statement, and nothing in the catalog is in it. A branch is removed
when its name shows that a Sparkport server made it. All else that a journal names stays, with the
journal, and is reported. In an object store there are no journals, and the same rules
(store_sweep.py).
"""

from __future__ import annotations

import json
import logging
import re
from dataclasses import dataclass, field
from pathlib import Path

from sparkport.spark.iceberg.deletion import delete_java_files
from sparkport.spark.iceberg.locations import reachable, storage_at
from sparkport.spark.lake import staging_folder
from sparkport.spark.lake.heading import Heading, places_of
from sparkport.spark.lake.lake import Lake
from sparkport.spark.lake.liveness import taken_over
from sparkport.spark.lake.staging import WRITTEN_BY
from sparkport.spark.lake.staging_folder import JournalFile
from sparkport.spark.lake.transaction import BRANCH_PREFIX
from sparkport.spark.write.leftovers import files_by_spark, files_of, is_below, report, state_of
from sparkport.spark.write.publish import drop_branch
from sparkport.spark.write.store_sweep import sweep_store
from sparkport.spark.write.unmade_commits import manifests_of_unmade
from sparkport.spark.write.unmade_objects import remove_unmade

__all__ = ["sweep"]

_log = logging.getLogger(__name__)


def sweep(root: Path, lake: Lake) -> None:
    """Remove what dead servers have left, as far as it concerns this lake's catalog.

    Raises: PreconditionFailed when others could have put something there.
    """
    if lake.staging.store is not None:
        lake.attempt("sweeping the store", lambda: _sweep_store(lake))
    for folder in staging_folder.server_folders(root):
        with taken_over(folder) as is_dead:
            if is_dead:
                _sweep_folder(folder, lake)


def _sweep_store(lake: Lake) -> None:
    try:
        sweep_store(lake)
    except OSError:
        if not lake.catalog.chooses_folders:
            raise
        # It gives out keys for the files of its tables, and the server has none of its own.
        lake.staging.store = None
        _log.warning(
            "the warehouse cannot be listed with the server's own keys: statements are noted in a "
            "folder of this machine; set `staging` to choose it"
        )


def _sweep_folder(folder: Path, lake: Lake) -> None:
    for file in staging_folder.journals_in(folder):
        try:
            journal = _Journal.read(file)
            if journal is None or (
                journal.heading.identifier.catalog == lake.catalog.name
                and _is_settled(journal, lake)
            ):
                file.remove()
        except Exception:  # noqa: BLE001 - one of many; the others do not depend on it
            _log.warning(
                "what a statement has left is kept for now: it cannot be looked at", exc_info=True
            )
    if staging_folder.journals_in(folder):
        staging_folder.remove_folders_in(folder)
    else:
        staging_folder.remove_folder(folder)


@dataclass(frozen=True, slots=True)
class _Journal:
    """What a statement has noted in its journal."""

    statement: str
    heading: Heading
    files: list[str] = field(default_factory=list)
    branches: list[str] = field(default_factory=list)
    by_spark: list[str] = field(default_factory=list)
    """The statement's own id, if Spark may have written files for it."""
    folders: list[str] = field(default_factory=list)
    """The folder of a table or view that the statement was to make."""

    @classmethod
    def read(cls, file: JournalFile) -> _Journal | None:
        """Read a journal; None if it ends before anything was written."""
        found: _Journal | None = None
        for line in file.lines():
            note = json.loads(line)
            if "table" in note:
                found = cls(file.statement, Heading.noted(note))
            elif found is not None:
                found.files.extend([note["file"]] if "file" in note else [])
                found.branches.extend([note["branch"]] if "branch" in note else [])
                found.by_spark.extend([file.statement] if WRITTEN_BY in note else [])
                found.folders.extend([note["folder"]] if "folder" in note else [])
        return found

    def report(self, names: list[str], why: str) -> None:
        report(f"journal {self.statement}", self.heading, names, why)


def _is_settled(journal: _Journal, lake: Lake) -> bool:
    """Remove what a statement has left; whether nothing remains to be done."""
    state = state_of(journal.heading, lake)
    if state is None:
        return _is_without_trace(journal, lake)
    branches = [branch for branch in journal.branches if branch.startswith(BRANCH_PREFIX)]
    for branch in branches:
        drop_branch(lake, state.identifier, branch)
    state = lake.current(state.identifier)
    files = set(journal.files)
    for statement in journal.by_spark if state.io is not None else ():
        files |= files_by_spark(state, statement)
    unknown = files - files_of(state, files)
    places = places_of(state.metadata.properties, state.metadata.location)
    own = {
        file
        for file in unknown
        if _bears(file, journal.statement) and any(is_below(lake, file, each) for each in places)
    }
    foreign = unknown - own
    own |= manifests_of_unmade(lake, state, lambda file: _bears(file, journal.statement))
    left = delete_java_files(own, state.file_properties)
    _log.info(
        "table %s: removed %d files of a statement that was cut off", state.identifier, len(own)
    )
    others = sorted([*foreign, *(set(journal.branches) - set(branches))])
    if others:
        journal.report(others, "which are not the table's own, or not the statement's")
    return not (others or left)


def _is_without_trace(journal: _Journal, lake: Lake) -> bool:
    """Whether a table that is not found was dropped with its files.

    No file is removed, as its owner is not known.
    """
    heading = journal.heading
    if not heading.metadata and journal.folders:  # there was none when the statement began
        left = [
            folder
            for folder in dict.fromkeys(journal.folders)
            if not remove_unmade(lake, heading.identifier, folder, journal.statement)
        ]
        if left:
            journal.report(left, "which are not the statement's, or cannot be removed")
        return not left
    if not _is_gone(heading, lake):
        journal.report([*journal.files, *journal.branches], "and the table is not found")
        return False
    left = [
        file
        for file in journal.files
        if not reachable(file, lake.file_properties)
        or storage_at(file, lake.file_properties).exists(file)
    ]
    if left:
        journal.report(left, "and the table was dropped: remove by hand what nobody needs")
    return not left


def _bears(location: str, statement: str) -> bool:
    return (
        re.fullmatch("[0-9a-f]{32}", statement) is not None
        and statement in location.rpartition("/")[2]
    )


def _is_gone(heading: Heading, lake: Lake) -> bool:
    """Whether a table that is not found was dropped with its files, and is not just elsewhere."""
    place = heading.metadata
    if not place or not reachable(place, lake.file_properties):
        return False
    return not storage_at(place, lake.file_properties).exists(place)
