"""Change the rows of a table by one commit, without the JVM.

Strategy: small statements are those that people wait for most often, and by Iceberg's Java they
took many times as long as their files and the swap (decisions 0033, 0036). So the plain cases are
written here: data files and delete vectors for a table of format version 3 without partitions,
whose catalog this server uses by itself. It gets new manifests, a manifest list and a metadata
file, which a store is sent at the same time. Everything else is left to Java (`iceberg_commit.py`).
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping, Sequence, Set
from typing import Any

from sparkport.spark.iceberg.deletion import delete_files
from sparkport.spark.iceberg.locations import reachable
from sparkport.spark.iceberg.manifest_output import manifest_list_content
from sparkport.spark.iceberg.manifests import (
    Manifest,
    read_manifest,
    read_manifest_list,
    remember,
)
from sparkport.spark.iceberg.next_manifests import (
    Added,
    NextManifests,
    Place,
    can_join,
    can_rewrite,
)
from sparkport.spark.iceberg.next_metadata import (
    SnapshotCounts,
    longest_log,
    metadata_folder,
    metadata_json,
    new_snapshot_id,
    next_snapshot,
    with_snapshot,
)
from sparkport.spark.iceberg.table_state import TableState
from sparkport.spark.lake.changes import TableChange, WrittenVector
from sparkport.spark.lake.lake import Lake, WrittenMetadata
from sparkport.spark.lake.outcomes import Expected, OutcomeUnknown, was_made_despite
from sparkport.spark.lake.plain_metadata import PlainMetadata
from sparkport.spark.lake.version_log import number_of, remember_number
from sparkport.spark.lake.version_notes import history_to_keep
from sparkport.spark.lake.version_timeline import HISTORY, VERSION

__all__ = ["PlainCommit", "begin_plain"]

_VERSION = 3
_JAVA_ONLY = ("write.location-provider.impl", "encryption.key-id")
_MOST_FILES = 5000
"""Files of the manifests that are written anew when data files are replaced."""


def begin_plain(
    lake: Lake, change: TableChange, replaced: Set[str] = frozenset()
) -> PlainCommit | None:
    """Begin to make a change of a table as it is now; None where Java must do it.

    `replaced` are the paths of data files whose rows the change has in others. Raises: NotFound,
    CatalogFault.
    """
    is_empty = change.is_empty and not replaced
    if is_empty or change.gone or not lake.catalog.takes_plain:
        return None
    state = lake.current(change.identifier)
    rewrites = bool(len(change.removed) or replaced)
    if state.metadata.format_version != _VERSION or not _is_plain(state, change, rewrites):
        return None
    metadata = lake.metadata_json(state)
    try:
        before = _manifests(state, metadata, rewrites)
        if before is not None and replaced and not _are_few(state, before, replaced):
            return None
    except (OSError, ValueError):  # Java says what is wrong
        return None
    return None if before is None else PlainCommit(lake, state, metadata, before)


def _is_plain(state: TableState, change: TableChange, rewrites: bool) -> bool:
    properties, specs = state.metadata.properties, state.metadata.specs()
    spec = specs.get(state.metadata.default_spec_id)
    return (
        state.io is not None
        and spec is not None
        and not spec.fields
        # Rows that are removed may be in files of another spec.
        and (not rewrites or len(specs) == 1)
        and all(each.described and each.spec_id == spec.spec_id for each in change.files)
        and not any(name in properties for name in _JAVA_ONLY)
        and properties.get("write.metadata.compression-codec", "none") == "none"
        and properties.get("write.metadata.previous-versions-max", "1").isdecimal()
        and can_join(properties)
    )


def _manifests(
    state: TableState, metadata: Mapping[str, Any], rewrites: bool
) -> tuple[Manifest, ...] | None:
    """The manifests of a state; None if Java must look at them. Raises: OSError, ValueError."""
    assert state.io is not None
    if not reachable(metadata_folder(metadata), state.file_properties):
        return None
    if state.snapshot is None:
        return ()
    if not state.snapshot.manifest_list:
        return None
    manifests = read_manifest_list(state.io, state.snapshot.manifest_list)
    data = [each for each in manifests if not each.holds_deletes]
    # Of a table that was upgraded, the manifests get their first row ids with the next commit.
    if any(each.encrypted for each in manifests) or any(each.first_row_id is None for each in data):
        return None
    return None if rewrites and not can_rewrite(state.io, manifests) else manifests


def _are_few(state: TableState, manifests: Sequence[Manifest], replaced: Set[str]) -> bool:
    """Whether the manifests that name some data files can be written anew quickly."""
    assert state.io is not None
    files = 0
    for each in manifests:
        if not each.holds_deletes:
            entries = read_manifest(state.io, each)
            if any(entry.path in replaced for entry in entries):
                if any(entry.encrypted for entry in entries):
                    return False
                files += len(entries)
    return files <= _MOST_FILES


class PlainCommit:
    """A change that is being made to a table. For one thread."""

    def __init__(
        self,
        lake: Lake,
        state: TableState,
        metadata: Mapping[str, Any],
        before: tuple[Manifest, ...],
    ) -> None:
        self._lake = lake
        self.state = state
        """The state that the change is made to."""
        self._metadata = metadata
        self._before = before
        self._proposed: PlainMetadata | None = None
        self.made: TableState | None = None
        """The table after the commit, if that is known without asking the catalog."""
        self._is_unknown = False

    def add(
        self,
        change: TableChange,
        vectors: Sequence[WrittenVector],
        summary: Mapping[str, str],
        removed: Sequence[Mapping[str, Any]] = (),
        without: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        """Put files and vectors, which are written, into a new snapshot, which is not yet.

        Where files are `removed`, with their vectors (`without`), the table shows the same rows as
        before. All are in Iceberg's JSON form.
        """
        assert self.state.io is not None
        metadata, io = self._metadata, self.state.io
        folder, snapshot_id = metadata_folder(metadata), new_snapshot_id(metadata)
        commit_id, files = uuid.uuid4(), [each.described for each in change.files]
        (schema,) = (
            each
            for each in metadata["schemas"]
            if each["schema-id"] == metadata["current-schema-id"]
        )
        place = Place(
            snapshot_id=snapshot_id,
            sequence_number=metadata["last-sequence-number"] + 1,
            first_row_id=metadata["next-row-id"],
            schema=schema,
            spec_id=metadata["default-spec-id"],
            prefix=f"{folder}/{commit_id}",
        )
        described = [each.described for each in vectors]
        replaced = [*(old for each in vectors for old in each.replaced), *without]
        manifests = NextManifests(io, place, self.state.metadata.properties)
        manifests.put(self._before, Added(files, described, replaced, removed))
        list_place = f"{folder}/snap-{snapshot_id}-1-{commit_id}.avro"
        counts = {
            "manifests-created": str(len(manifests.contents)),
            "manifests-kept": str(len(self._before) - manifests.replaced),
            "manifests-replaced": str(manifests.replaced),
        }
        version = {VERSION: str(number_of(self._lake, self.state) + (not removed))}
        snapshot = next_snapshot(
            metadata,
            snapshot_id,
            list_place,
            _counted(files, described, replaced, removed),
            {**summary, **version, **counts},
            time.time_ns() // 1_000_000,
        )
        history = history_to_keep(self._lake, self.state, longest_log(metadata))
        noted = {} if history is None else {HISTORY: history}
        after = with_snapshot(metadata, snapshot, self.state.metadata_location, noted)
        text, snapshots = metadata_json(after, self._lake.snapshots_text(self.state))
        content = manifest_list_content(manifests.manifests, snapshot)
        self._proposed = PlainMetadata(
            identifier=self.state.identifier,
            base=metadata,
            replaced=self.state.metadata_location,
            after=after,
            text=text,
            snapshots=snapshots,
            snapshot=snapshot,
            files={**manifests.contents, list_place: content},
            properties=self.state.file_properties,
            remembered=(list_place, manifests.live, manifests.entries),
        )

    def commit(self) -> bool:
        """Make the change; False when another writer was faster.

        Raises: OutcomeUnknown when it cannot be found out whether the change was made; what the
        catalog raises, when the change was certainly not made.
        """
        proposed = self._proposed
        assert proposed is not None, "nothing was added"
        try:
            self._lake.catalog.swap(self.state.identifier, proposed)
        except BaseException as error:  # noqa: BLE001 - an interrupt, too, leaves it open
            expected = Expected(
                {proposed.snapshot["snapshot-id"]}, proposed.snapshot["sequence-number"]
            )
            try:
                return was_made_despite(error, self._lake, self.state, expected)
            except OutcomeUnknown:
                self._is_unknown = True
                raise
        self._lake.attempt(f"keeping what table {self.state.identifier} is now", self._keep)
        return True

    def _keep(self) -> None:
        """Remember what was written, so that nobody reads it back."""
        proposed, lake, identifier = self._proposed, self._lake, self.state.identifier
        assert proposed is not None
        remember(*proposed.remembered)
        if not proposed.written:
            return  # the catalog writes metadata by itself
        location = proposed.written[-1]
        self.made = lake.states.add_next(self.state, location, proposed.after)
        lake.metadata_heads.note(str(self.made.metadata.table_uuid), location, proposed.after)
        remember_number(lake, self.made, int(proposed.snapshot["summary"][VERSION]))
        written = WrittenMetadata(location, proposed.text, proposed.after, proposed.snapshots)
        lake.keep_written(identifier, written)

    def forget(self) -> None:
        """Remove the files of a change that was not made."""
        if not self._is_unknown and self._proposed is not None:
            delete_files(self._proposed.files, self.state.file_properties)


def _counted(
    files: Sequence[Mapping[str, Any]],
    vectors: Sequence[Mapping[str, Any]],
    replaced: Sequence[Mapping[str, Any]],
    removed: Sequence[Mapping[str, Any]],
) -> SnapshotCounts:
    return SnapshotCounts(
        files=len(files),
        rows=sum(each["record-count"] for each in files),
        bytes=sum(each["file-size-in-bytes"] for each in files)
        # Of a file that holds several, each counts with its own bytes.
        + sum(each["content-size-in-bytes"] for each in vectors),
        vectors=len(vectors),
        deleted_rows=sum(each["record-count"] for each in vectors),
        replaced=len(replaced),
        replaced_rows=sum(each["record-count"] for each in replaced),
        replaced_bytes=sum(each["content-size-in-bytes"] for each in replaced),
        removed_files=len(removed),
        removed_rows=sum(each["record-count"] for each in removed),
        removed_bytes=sum(each["file-size-in-bytes"] for each in removed),
    )
