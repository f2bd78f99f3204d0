"""Which rows of data files are deleted, from the delete manifests of a snapshot."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

from pyiceberg.io import FileIO

from sparkport.spark.iceberg.data_format import DATA_FORMAT
from sparkport.spark.iceberg.manifests import (
    EQUALITY_DELETES,
    Manifest,
    ManifestEntry,
    read_manifest,
)
from sparkport.spark.iceberg.parts import DeleteVector

__all__ = ["Removals"]

_PATH_FIELD = 2147483546
"""The reserved field id of the data file's path in position deletes."""

_Partition: TypeAlias = "tuple[int, tuple[tuple[int, Any], ...]]"


@dataclass(frozen=True, slots=True, eq=False)
class Removals:
    """Delete files by what they apply to: one data file, or all files of a partition."""

    vectors: dict[str, ManifestEntry]
    files: dict[str, list[ManifestEntry]]
    """Position deletes of one data file."""
    partition_files: dict[_Partition, list[ManifestEntry]]
    """Position deletes of several data files of a partition."""
    others: dict[_Partition | None, list[ManifestEntry]]
    """What only Spark applies: equality deletes, under None if they are for the whole table."""
    encrypted: bool

    @classmethod
    def of(cls, io: FileIO, manifests: Iterable[Manifest]) -> Removals:
        """Raises: OSError, ValueError."""
        found = cls(
            {},
            defaultdict(list),
            defaultdict(list),
            defaultdict(list),
            any(each.encrypted for each in manifests),
        )
        for manifest in manifests:
            for entry in () if manifest.encrypted else read_manifest(io, manifest):
                found._add(entry, manifest.spec_id)
        return found

    def vector(self, data: ManifestEntry) -> DeleteVector | None:
        """The delete vector of a data file, if it has one.

        A file has one at most, and it replaces all position deletes (Iceberg's specification,
        deletion vectors).
        """
        entry = self.vectors.get(data.path)
        if entry is None or entry.sequence_number < data.sequence_number:
            return None
        assert entry.content_offset is not None
        assert entry.content_length is not None
        return DeleteVector(entry.path, entry.content_offset, entry.content_length, entry.rows)

    def position_files(self, data: ManifestEntry, spec_id: int) -> tuple[str, ...]:
        """The position delete files that may name rows of this data file."""
        entries = self._position_entries(data, spec_id)
        return tuple(entry.path for entry in entries)

    def replaced(self, data: ManifestEntry, spec_id: int) -> tuple[ManifestEntry, ...]:
        """The delete files that a new vector of this file replaces: those about no other file."""
        entry = self.vectors.get(data.path)
        if entry is not None:
            return (entry,)
        return tuple(
            entry
            for entry in self._position_entries(data, spec_id)
            if _only_path(entry) is not None
        )

    def understood(self, data: ManifestEntry, spec_id: int) -> bool:
        """Whether everything that deletes rows of this file can be read here."""
        for key in (None, _partition(data, spec_id)) if self.others else ():
            # Equality deletes do not apply to files that were added with them.
            if any(
                entry.sequence_number > data.sequence_number for entry in self.others.get(key, ())
            ):
                return False
        return all(
            entry.format == DATA_FORMAT and not entry.encrypted
            for entry in self._position_entries(data, spec_id)
        )

    def _position_entries(self, data: ManifestEntry, spec_id: int) -> list[ManifestEntry]:
        if not self.files and not self.partition_files:
            return []
        of_file = self.files.get(data.path, ())
        of_partition = (
            self.partition_files.get(_partition(data, spec_id), ()) if self.partition_files else ()
        )
        return [
            entry
            for entry in (*of_file, *of_partition)
            if entry.sequence_number >= data.sequence_number
        ]

    def _add(self, entry: ManifestEntry, spec_id: int) -> None:
        if entry.content == EQUALITY_DELETES:
            self.others[_partition(entry, spec_id) if entry.partition else None].append(entry)
        elif (
            entry.format == "PUFFIN"
            and entry.referenced_data_file
            and entry.content_offset is not None
        ):
            self.vectors[entry.referenced_data_file] = entry
        elif (path := _only_path(entry)) is not None:
            self.files[path].append(entry)
        else:
            self.partition_files[_partition(entry, spec_id)].append(entry)


def _only_path(entry: ManifestEntry) -> str | None:
    """The data file that position deletes are about; None if there may be several.

    It is named, or both bounds of the path are equal to it.
    """
    if entry.referenced_data_file:
        return entry.referenced_data_file
    lower, upper = entry.lower_bounds.get(_PATH_FIELD), entry.upper_bounds.get(_PATH_FIELD)
    return lower.decode() if lower is not None and lower == upper else None


def _partition(entry: ManifestEntry, spec_id: int) -> _Partition:
    return spec_id, tuple(sorted(entry.partition.items()))
