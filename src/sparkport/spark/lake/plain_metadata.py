"""New metadata of a table that are written without the JVM, as a catalog wants them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from sparkport.spark.iceberg.deletion import delete_files, delete_java_files
from sparkport.spark.iceberg.identifiers import Identifier
from sparkport.spark.iceberg.locations import storage_at
from sparkport.spark.iceberg.manifests import Manifest, ManifestEntry
from sparkport.spark.iceberg.next_metadata import metadata_folder, new_metadata_location
from sparkport.spark.iceberg.parquet_output import writing
from sparkport.spark.lake.rest_commit import append_request
from sparkport.spark.lake.shared_catalog import NewMetadata, Refused

__all__ = ["PlainMetadata"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, eq=False)
class PlainMetadata(NewMetadata):
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
    snapshots: str
    """The part of the text that lists the snapshots."""
    remembered: tuple[str, tuple[Manifest, ...], Mapping[Manifest, tuple[ManifestEntry, ...]]]
    """The manifest list, its manifests, and the files of the new ones."""
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
                storages = [storage_at(each, self.properties) for each in contents]
                if all(storage.is_local for storage in storages):
                    storages[0].write_all(contents)
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
        before, after = self.base.get("properties", {}), self.after.get("properties", {})
        changed = {name: each for name, each in after.items() if before.get(name) != each}
        return append_request(self.base, self.snapshot, changed)

    def publish(self) -> None:
        raise NotImplementedError("a catalog that only the JVM knows gets metadata of the JVM")
