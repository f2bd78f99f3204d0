"""The manifests of a snapshot that adds files to the one before, and replaces some.

Strategy: as Iceberg's Java does it. Added files get a manifest, data and deletes apart. A manifest
that names a replaced vector is written anew, with what it had and what is gone. When data files are
replaced, the manifests that name them become one. When there are very many manifests, small ones
are joined (`commit.manifest.min-count-to-merge`). The files of manifests are in memory after they
were read once, so that this needs no reading most of the time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from pyiceberg.io import FileIO

from sparkport.spark.iceberg.manifest_output import Status, added_entry, manifest_content
from sparkport.spark.iceberg.manifests import Manifest, ManifestEntry, read_manifest

__all__ = ["Added", "NextManifests", "Place", "can_join", "can_rewrite"]

_Vector: TypeAlias = tuple[str, int | None]
"""What tells delete vectors apart: the file, and the offset in it. Data files have none."""
_Line: TypeAlias = tuple[Status, ManifestEntry]
_VECTORS = "PUFFIN"
_COUNT_TO_MERGE, _USUAL_COUNT_TO_MERGE = "commit.manifest.min-count-to-merge", "100"
_BYTES, _USUAL_BYTES = "commit.manifest.target-size-bytes", str(8 * 1024 * 1024)
_MOST_FILES = 1000
"""Files of a manifest that small ones are joined to. More would take long to write."""


def can_join(properties: Mapping[str, str]) -> bool:
    """Whether a table's properties say in numbers when manifests are to be joined."""
    return all(properties.get(name, "0").isdecimal() for name in (_COUNT_TO_MERGE, _BYTES))


def can_rewrite(io: FileIO, manifests: Sequence[Manifest]) -> bool:
    """Whether delete manifests hold only what can be written again here: delete vectors.

    Raises: OSError, ValueError when they cannot be read.
    """
    return all(
        each.format == _VECTORS and not each.encrypted
        for manifest in manifests
        if manifest.holds_deletes
        for each in read_manifest(io, manifest)
    )


@dataclass(frozen=True, slots=True)
class Added:
    """What a snapshot does. Files are in Iceberg's JSON form of files."""

    files: Sequence[Mapping[str, Any]]
    vectors: Sequence[Mapping[str, Any]] = ()
    replaced: Sequence[Mapping[str, Any]] = ()
    """Vectors that are there no more, because `vectors` say the same and more, or because their
    data files are gone.
    """
    removed: Sequence[Mapping[str, Any]] = ()
    """Data files that are there no more, because their rows are in `files`."""


@dataclass(frozen=True, slots=True)
class Place:
    """Which snapshot manifests are written for, and where."""

    snapshot_id: int
    sequence_number: int
    first_row_id: int
    schema: Mapping[str, Any]
    spec_id: int
    """Of a spec without fields."""
    prefix: str
    """What the locations of new manifests begin with."""


@dataclass(slots=True)
class NextManifests:
    """The manifests of a snapshot, and the content of those that must be written."""

    io: FileIO
    place: Place
    properties: Mapping[str, str]
    """The table's."""
    manifests: list[Manifest] = field(default_factory=list)
    """All of them, for the manifest list."""
    contents: dict[str, bytes] = field(default_factory=dict)
    entries: dict[Manifest, tuple[ManifestEntry, ...]] = field(default_factory=dict)
    """The live files of the new ones."""
    replaced: int = 0
    """How many manifests of the snapshot before were written anew, or joined."""

    @property
    def live(self) -> tuple[Manifest, ...]:
        """The manifests that have files, which is what readers look at."""
        return tuple(each for each in self.manifests if any(each.file_counts[:2]))

    def put(self, before: Sequence[Manifest], added: Added) -> None:
        """Make the manifests that follow those before. Raises: OSError, ValueError."""
        data = [each for each in before if not each.holds_deletes]
        deletes = [each for each in before if each.holds_deletes]
        files = list(self._new_files(added.files))
        vectors = [self._new(each) for each in added.vectors]
        replaced = {(each["file-path"], each["content-offset"]) for each in added.replaced}
        if added.removed:
            removed = {(each["file-path"], None) for each in added.removed}
            kept, lines = self._taken_apart(data, removed)
            self._put(kept, files, lines, holds_deletes=False)
            kept, lines = self._taken_apart(deletes, replaced)
            self._put(kept, vectors, lines, holds_deletes=True)
        else:
            self._put(data, files, holds_deletes=False)
            self._put(list(self._without(deletes, replaced)), vectors, holds_deletes=True)

    def _new_files(self, files: Sequence[Mapping[str, Any]]) -> Iterator[ManifestEntry]:
        first_row_id = self.place.first_row_id
        for described in files:
            yield self._new(described, first_row_id)
            first_row_id += described["record-count"]

    def _new(self, described: Mapping[str, Any], first_row_id: int | None = None) -> ManifestEntry:
        place = self.place
        return added_entry(described, place.snapshot_id, place.sequence_number, first_row_id)

    def _put(
        self,
        before: Sequence[Manifest],
        new: Sequence[ManifestEntry],
        more: Sequence[_Line] = (),
        *,
        holds_deletes: bool,
    ) -> None:
        added = [*((Status.ADDED, each) for each in new), *more]
        joined = self._to_join(before) if added else frozenset()
        kept = [each for each in before if each not in joined]
        lines = [*added, *self._existing([each for each in before if each in joined])]
        self.replaced += len(joined)
        if lines:
            self.manifests.append(self._written(lines, holds_deletes=holds_deletes))
        self.manifests += kept

    def _to_join(self, before: Sequence[Manifest]) -> Set[Manifest]:
        """The manifests that go into the new one: none, or many small ones."""
        properties = self.properties
        most = int(properties.get(_COUNT_TO_MERGE, _USUAL_COUNT_TO_MERGE))
        is_wanted = properties.get("commit.manifest-merge.enabled", "true").lower() != "false"
        if not is_wanted or len(before) + 1 < most:
            return frozenset()
        room, files = int(properties.get(_BYTES, _USUAL_BYTES)), _MOST_FILES
        found = set()
        for manifest in sorted(before, key=lambda each: each.length):
            room, files = room - manifest.length, files - sum(manifest.file_counts[:2])
            if room < 0 or files < 0:
                break
            is_own = manifest.snapshot_id == self.place.snapshot_id
            if manifest.spec_id == self.place.spec_id and not is_own and self._is_whole(manifest):
                found.add(manifest)
        return found if len(found) + 1 >= most else frozenset()

    def _is_whole(self, manifest: Manifest) -> bool:
        """Whether all that the manifest says of its files is known here."""
        return not any(each.encrypted for each in read_manifest(self.io, manifest))

    def _without(self, manifests: Sequence[Manifest], replaced: Set[_Vector]) -> Iterator[Manifest]:
        """Write manifests anew that name replaced vectors."""
        found = 0
        for manifest in manifests:
            gone = (
                sum(_vector_of(each) in replaced for each in read_manifest(self.io, manifest))
                if replaced
                else 0
            )
            if not gone:
                yield manifest
                continue
            found, self.replaced = found + gone, self.replaced + 1
            yield self._written(
                [
                    (Status.DELETED if _vector_of(each) in replaced else status, each)
                    for status, each in self._existing([manifest])
                ],
                holds_deletes=True,
            )
        if found != len(replaced):
            raise ValueError("the snapshot does not have the vectors that are replaced")

    def _taken_apart(
        self, manifests: Sequence[Manifest], gone: Set[_Vector]
    ) -> tuple[list[Manifest], list[_Line]]:
        """The manifests that name nothing that is gone, and the lines of the others."""
        kept: list[Manifest] = []
        lines: list[_Line] = []
        for manifest in manifests:
            if any(_vector_of(each) in gone for each in read_manifest(self.io, manifest)):
                lines += (
                    (Status.DELETED if _vector_of(each) in gone else status, each)
                    for status, each in self._existing([manifest])
                )
            else:
                kept.append(manifest)
        if sum(status is Status.DELETED for status, _ in lines) != len(gone):
            raise ValueError("the snapshot does not have the files that are replaced")
        self.replaced += len(manifests) - len(kept)
        return kept, lines

    def _existing(self, manifests: Sequence[Manifest]) -> Iterator[_Line]:
        for manifest in manifests:
            for each in read_manifest(self.io, manifest):
                of = manifest.snapshot_id if each.snapshot_id is None else each.snapshot_id
                yield Status.EXISTING, replace(each, snapshot_id=of)

    def _written(self, lines: Sequence[_Line], *, holds_deletes: bool) -> Manifest:
        place = self.place
        content = manifest_content(
            lines, place.snapshot_id, place.schema, place.spec_id, holds_deletes=holds_deletes
        )
        location = f"{place.prefix}-m{len(self.contents)}.avro"
        by_status = {
            status: [each for own, each in lines if own is status]
            for status in (Status.ADDED, Status.EXISTING, Status.DELETED)
        }
        live = [each for status, each in lines if status is not Status.DELETED]
        added, existing, deleted = map(len, by_status.values())
        rows = [sum(each.rows for each in every) for every in by_status.values()]
        made = Manifest(
            path=location,
            length=len(content),
            spec_id=place.spec_id,
            holds_deletes=holds_deletes,
            sequence_number=place.sequence_number,
            min_sequence_number=min(
                (each.sequence_number for each in live), default=place.sequence_number
            ),
            snapshot_id=place.snapshot_id,
            file_counts=(added, existing, deleted),
            row_counts=(rows[0], rows[1], rows[2]),
            first_row_id=None if holds_deletes else place.first_row_id,
            summaries=(),
            encrypted=False,
        )
        self.contents[location] = content
        self.entries[made] = tuple(live)
        return made


def _vector_of(entry: ManifestEntry) -> _Vector:
    return entry.path, entry.content_offset
