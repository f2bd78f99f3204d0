"""New metadata of a table, built by Iceberg in the JVM."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sparkport.spark.iceberg.next_metadata import new_metadata_location
from sparkport.spark.lake.rest_commit import commit_request
from sparkport.spark.lake.shared_catalog import NewMetadata

__all__ = ["JavaMetadata"]

_log = logging.getLogger(__name__)

_EXTENSION = ".metadata.json"


@dataclass(frozen=True, slots=True, eq=False)
class JavaMetadata(NewMetadata):
    """Metadata that a transaction of Iceberg has built and not committed."""

    iceberg: Any
    """The package org.apache.iceberg."""
    io: Any
    """The org.apache.iceberg.io.FileIO of the table."""
    base: Any | None
    """The org.apache.iceberg.TableMetadata these were made from; None for a new table."""
    after: Any
    """The new org.apache.iceberg.TableMetadata."""
    commit: Callable[[], None]
    """Has the JVM commit the new metadata."""
    written: list[str] = field(default_factory=list)
    """The locations that `write` has returned."""

    @property
    def location(self) -> str:
        """Where the metadata were written; empty when the JVM's client of the catalog did it."""
        return self.written[-1] if self.written else ""

    @property
    def before(self) -> str:
        return "" if self.base is None else str(self.base.metadataFileLocation())

    def write(self) -> str:
        """Write the file where Iceberg would, under a name like Iceberg's."""
        codec = str(self.after.property("write.metadata.compression-codec", "none"))
        parser = self.iceberg.TableMetadataParser
        extension = _EXTENSION if codec == "none" else str(parser.getFileExtension(codec))
        folder = self.after.property("write.metadata.path", None)
        place = f"{self.after.location()}/metadata" if folder is None else str(folder).rstrip("/")
        output = self.io.newOutputFile(new_metadata_location(place, self.before, extension))
        parser.overwrite(self.after, output)
        self.written.append(str(output.location()))
        return self.location

    def text(self) -> str:
        """The metadata as JSON, as in the file."""
        return str(self.iceberg.TableMetadataParser.toJson(self.after))

    def as_loaded(self) -> Any:
        """The org.apache.iceberg.TableMetadata that a reader of the file would have."""
        builder = self.iceberg.TableMetadata.buildFrom(self.after).discardChanges()
        return builder.withMetadataLocation(self.location).build()

    def remove(self, location: str) -> None:
        try:
            self.io.deleteFile(location)
        except Exception:  # noqa: BLE001 - nothing refers to it
            _log.warning("metadata that no table has were not removed", exc_info=True)

    def remove_outdated(self) -> None:
        if self.base is None:
            return
        try:
            self.iceberg.CatalogUtil.deleteRemovedMetadataFiles(self.io, self.base, self.after)
        except Exception:  # noqa: BLE001 - the table has other metadata already
            _log.warning("outdated metadata were not removed", exc_info=True)

    def request(self) -> Mapping[str, Any]:
        return commit_request(self.iceberg, self.base, self.after)

    def publish(self) -> None:
        self.commit()
