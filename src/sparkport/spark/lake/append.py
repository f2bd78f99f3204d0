"""Add data files to a table by one commit, without the JVM.

Strategy: an INSERT of a few rows is the statement that people wait for most often, and by
Iceberg's Java it took many times as long as its files and the swap (decision 0033). So the plain
case is written here: a table of format version 3 without partitions, whose catalog this server uses
by itself. It gets one manifest, one manifest list and one metadata file, which a store is sent at
the same time. Everything else is left to Java (`iceberg_commit.py`), also every hundredth commit:
Java then joins small manifests.
"""

from __future__ import annotations

import json
import logging
import threading
import time
import uuid
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from sparkport.spark.iceberg.deletion import delete_files, delete_java_files
from sparkport.spark.iceberg.identifiers import Identifier
from sparkport.spark.iceberg.locations import reachable, storage_at
from sparkport.spark.iceberg.manifest_output import (
    added_entries,
    manifest_content,
    manifest_list_content,
)
from sparkport.spark.iceberg.manifests import (
    Manifest,
    ManifestEntry,
    read_manifest_list,
    remember,
)
from sparkport.spark.iceberg.next_metadata import (
    appending_snapshot,
    metadata_folder,
    new_metadata_location,
    new_snapshot_id,
    with_snapshot,
)
from sparkport.spark.iceberg.parquet_output import writing
from sparkport.spark.iceberg.table_state import TableState
from sparkport.spark.lake.changes import TableChange
from sparkport.spark.lake.lake import Lake, WrittenMetadata
from sparkport.spark.lake.outcomes import Expected, OutcomeUnknown, was_made_despite
from sparkport.spark.lake.rest_commit import append_request
from sparkport.spark.lake.shared_catalog import NewMetadata, Refused

__all__ = ["Append", "begin_append"]

_log = logging.getLogger(__name__)

_VERSION = 3
_USUAL_COUNT_TO_MERGE = 100
_JAVA_ONLY = ("write.location-provider.impl", "encryption.key-id")


def begin_append(lake: Lake, change: TableChange) -> Append | None:
    """Begin to add a change's files to a table as it is now; None where Java must do it.

    Raises: NotFound, CatalogFault.
    """
    if len(change.removed) or change.gone or not change.files or not lake.catalog.takes_plain:
        return None
    state = lake.current(change.identifier)
    if state.metadata.format_version != _VERSION or not _is_plain(state, change):
        return None
    metadata = lake.metadata_json(state)
    try:
        kept = _kept_manifests(state, metadata)
    except (OSError, ValueError):  # Java says what is wrong
        return None
    return None if kept is None else Append(lake, state, metadata, kept)


def _is_plain(state: TableState, change: TableChange) -> bool:
    properties = state.metadata.properties
    spec = state.metadata.specs().get(state.metadata.default_spec_id)
    return (
        state.io is not None
        and spec is not None
        and not spec.fields
        and all(each.described and each.spec_id == spec.spec_id for each in change.files)
        and not any(name in properties for name in _JAVA_ONLY)
        and properties.get("write.metadata.compression-codec", "none") == "none"
        and properties.get("write.metadata.previous-versions-max", "1").isdecimal()
    )


def _kept_manifests(state: TableState, metadata: Mapping[str, Any]) -> tuple[Manifest, ...] | None:
    """The manifests that stay; None if Java must look at them. Raises: OSError, ValueError."""
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
    properties = state.metadata.properties
    most = int(properties.get("commit.manifest.min-count-to-merge", _USUAL_COUNT_TO_MERGE))
    is_merged = properties.get("commit.manifest-merge.enabled", "true").lower() != "false"
    return None if is_merged and len(data) + 1 >= most else manifests


class Append:
    """Files that are being added to a table. For one thread."""

    def __init__(
        self,
        lake: Lake,
        state: TableState,
        metadata: Mapping[str, Any],
        kept: tuple[Manifest, ...],
    ) -> None:
        self._lake = lake
        self.state = state
        """The state that the files are added to."""
        self._metadata = metadata
        self._kept = kept
        self._proposed: _PlainMetadata | None = None
        self.made: TableState | None = None
        """The table after the commit, if that is known without asking the catalog."""
        self._is_unknown = False

    def add(self, change: TableChange, summary: Mapping[str, str]) -> None:
        """Put the change's files into a new snapshot. Nothing is written yet."""
        metadata, described = self._metadata, [each.described for each in change.files]
        folder, snapshot_id, commit_id = metadata_folder(metadata), *_ids(metadata)
        (schema,) = (
            each
            for each in metadata["schemas"]
            if each["schema-id"] == metadata["current-schema-id"]
        )
        spec_id = metadata["default-spec-id"]
        manifest = manifest_content(described, snapshot_id, schema, spec_id)
        place = f"{folder}/{commit_id}-m0.avro"
        list_place = f"{folder}/snap-{snapshot_id}-1-{commit_id}.avro"
        counts = {
            "manifests-created": "1",
            "manifests-kept": str(len(self._kept)),
            "manifests-replaced": "0",
        }
        snapshot = appending_snapshot(
            metadata,
            snapshot_id,
            list_place,
            described,
            {**summary, **counts},
            time.time_ns() // 1_000_000,
        )
        added = Manifest(
            path=place,
            length=len(manifest),
            spec_id=spec_id,
            holds_deletes=False,
            sequence_number=snapshot["sequence-number"],
            min_sequence_number=snapshot["sequence-number"],
            snapshot_id=snapshot_id,
            file_counts=(len(described), 0, 0),
            row_counts=(snapshot["added-rows"], 0, 0),
            first_row_id=snapshot["first-row-id"],
            summaries=(),
            encrypted=False,
        )
        manifests = (added, *self._kept)
        after = with_snapshot(metadata, snapshot, self.state.metadata_location)
        self._proposed = _PlainMetadata(
            identifier=self.state.identifier,
            base=metadata,
            replaced=self.state.metadata_location,
            after=after,
            text=json.dumps(after),
            snapshot=snapshot,
            files={place: manifest, list_place: manifest_list_content(manifests, snapshot)},
            properties=self.state.file_properties,
            remembered=(list_place, manifests, added_entries(described, added)),
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
        lake.keep_written(identifier, WrittenMetadata(location, proposed.text, proposed.after))

    def forget(self) -> None:
        """Remove the files of a change that was not made."""
        if self._proposed is not None and not self._is_unknown:
            delete_files(list(self._proposed.files), self.state.file_properties)


def _ids(metadata: Mapping[str, Any]) -> tuple[int, str]:
    return new_snapshot_id(metadata), str(uuid.uuid4())


@dataclass(frozen=True, slots=True, eq=False)
class _PlainMetadata(NewMetadata):
    """New metadata as JSON, with the files that they refer to and that are not written yet."""

    identifier: Identifier
    base: Mapping[str, Any]
    replaced: str
    after: Mapping[str, Any]
    snapshot: Mapping[str, Any]
    files: Mapping[str, bytes]
    properties: Mapping[str, str]
    text: str
    """`after` as it is written."""
    remembered: tuple[str, tuple[Manifest, ...], tuple[ManifestEntry, ...]]
    """The manifest list, its manifests and the files of the first of them."""
    written: list[str] = field(default_factory=list)
    """The locations that `write` has returned."""
    is_stored: threading.Event = field(default_factory=threading.Event)
    """Set when `files` are written. They may be a table's then, and stay."""

    @property
    def before(self) -> str:
        return self.replaced

    def write(self) -> str:
        location = new_metadata_location(metadata_folder(self.after), self.before)
        self._write({location: self.text.encode()})
        self.written.append(location)
        return location

    def _write(self, more: Mapping[str, bytes]) -> None:
        """Write `files`, unless that was done, and more: in a store all at once.

        If one cannot be written, none stays. Raises: LimitExceeded when the storage is full;
        PermissionDenied, PreconditionFailed.
        """
        contents = {**({} if self.is_stored.is_set() else self.files), **more}
        if not contents:
            return

        def write(each: tuple[str, bytes]) -> None:
            location, content = each
            storage_at(location, self.properties).write(location, content)

        try:
            with writing(self.identifier):
                if all(storage_at(each, self.properties).is_local for each in contents):
                    for each in contents.items():
                        write(each)
                else:
                    first, *others = contents.items()
                    # Waits for all at its end: what is removed below is not written after that.
                    with ThreadPoolExecutor(len(others) or 1, "sparkport-commit") as threads:
                        started = [threads.submit(write, each) for each in others]
                        write(first)
                    for done in started:
                        done.result()
        except BaseException:
            delete_files(contents, self.properties)
            raise
        self.is_stored.set()

    def remove(self, location: str) -> None:
        if delete_files([location], self.properties):
            _log.warning("metadata that no table has were not removed")

    def remove_outdated(self) -> None:
        properties = self.after.get("properties", {})
        if properties.get("write.metadata.delete-after-commit.enabled", "").lower() != "true":
            return
        kept = {each["metadata-file"] for each in self.after["metadata-log"]}
        gone = [each["metadata-file"] for each in self.base.get("metadata-log", ())]
        if delete_java_files([each for each in gone if each not in kept], self.properties):
            _log.warning("outdated metadata were not removed")

    def request(self) -> Mapping[str, Any]:
        try:
            self._write({})
        except Exception as error:
            raise Refused from error
        return append_request(self.base, self.snapshot)

    def publish(self) -> None:
        raise NotImplementedError("a catalog that only the JVM knows gets metadata of the JVM")
