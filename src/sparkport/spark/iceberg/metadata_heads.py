"""The first part of a metadata file, enough to tell whether a commit changed what users see.

Strategy: a table of a thousand commits has a thousand metadata files, each of which lists up to a
thousand snapshots. The members that matter here come before those lists, so reading stops there.
Metadata files never change, so the result is cached by location.
"""

from __future__ import annotations

import codecs
import hashlib
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import IO, Any, TypeAlias

from sparkport.engine.cache import Cache
from sparkport.errors import CatalogFault, NotFound, PreconditionFailed
from sparkport.spark.iceberg.identifiers import Identifier
from sparkport.spark.iceberg.locations import local_path
from sparkport.spark.iceberg.table_state import SHAPING, has_row_lineage

__all__ = ["Commit", "Log", "MetadataHead", "MetadataHeads", "digest_of", "number_in_name"]

Open: TypeAlias = Callable[[Identifier, str], IO[bytes]]
"""Opens a metadata file.

Raises: NotFound, PreconditionFailed when it is gone; OSError, SparkportError.
"""

_CHUNK = 64 * 1024
_READERS = 8
"""How many files of an object store are read at once."""
_MOST = 100_000
_UNKNOWN: Any = object()
_NUMBERED = re.compile(r"(?:^|/)(v?)([0-9]+)(?:-[^/]*)?(?:\.gz)?\.metadata\.json(?:\.gz)?$")


@dataclass(frozen=True, slots=True)
class MetadataHead:
    """What a table shows: where two are equal, users see the same rows, columns and constraints."""

    snapshot_id: int | None
    schema: int | str
    """The id of the schema; for metadata without one, the columns themselves."""
    has_row_ids: bool
    shape: tuple[bytes | None, ...]
    """A digest of each property that changes what users see (`SHAPING`)."""


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit, known by the metadata file that it wrote."""

    milliseconds: int
    location: str


@dataclass(frozen=True, slots=True)
class Log:
    """What a metadata file tells about the commits before it."""

    commits: tuple[Commit, ...]
    """The oldest first; the last is the commit that wrote this metadata."""
    shown: tuple[tuple[int, int], ...]
    """Which snapshot became current when: milliseconds and id.

    It goes back no further than the oldest snapshot that has not expired.
    """


class MetadataHeads:
    """The heads of metadata files, and how many changes led to each. Thread-safe."""

    def __init__(self, open_metadata: Open) -> None:
        self._open = open_metadata
        # Kept without a time limit: counting the changes of a long history is slow.
        self._heads: Cache[tuple[str, str], MetadataHead | None] = Cache(_MOST, math.inf)
        self.numbers: Cache[tuple[str, str], int] = Cache(_MOST, math.inf)
        """How many changes had been made, by table uuid and location of the metadata file."""

    def of(
        self, table: Identifier, uuid: str, locations: Sequence[str], check: Callable[[], None]
    ) -> dict[str, MetadataHead | None]:
        """The heads by location; None for files that are gone.

        Raises: CatalogFault when the storage does not answer.
        """
        found: dict[str, MetadataHead | None] = {}
        missing = []
        for location in locations:
            known = self._heads.find((uuid, location), _UNKNOWN)
            if known is _UNKNOWN:
                missing.append(location)
            else:
                found[location] = known
        for location, head in self._read(table, missing, check):
            self._heads.add((uuid, location), head)
            found[location] = head
        return found

    def _read(
        self, table: Identifier, locations: Sequence[str], check: Callable[[], None]
    ) -> Iterator[tuple[str, MetadataHead | None]]:
        if len(locations) < _READERS or local_path(locations[0]) is not None:
            for location in locations:
                check()
                yield location, self._head(table, location)
            return
        with ThreadPoolExecutor(_READERS, "metadata") as readers:
            try:
                for location, head in zip(
                    locations,
                    readers.map(lambda each: self._head(table, each), locations),
                    strict=True,
                ):
                    check()
                    yield location, head
            finally:
                readers.shutdown(wait=False, cancel_futures=True)

    def _head(self, table: Identifier, location: str) -> MetadataHead | None:
        try:
            with self._open(table, location) as source:
                return _head(dict(_members(source, _WANTED)))
        except (NotFound, PreconditionFailed):
            return None
        except (OSError, EOFError, ValueError, KeyError, TypeError) as error:
            raise CatalogFault(f"old metadata of table {table} cannot be read") from error

    def note(self, uuid: str, location: str, metadata: Mapping[str, Any]) -> None:
        """Remember the head of metadata that were just written."""
        self._heads.add((uuid, location), _head(metadata))

    def properties(self, table: Identifier, location: str) -> Mapping[str, str]:
        """All properties in a metadata file; none if it is gone. Raises: CatalogFault."""
        try:
            with self._open(table, location) as source:
                return dict(_members(source, _WANTED)).get("properties") or {}
        except (NotFound, PreconditionFailed):
            return {}
        except (OSError, EOFError, ValueError, KeyError, TypeError) as error:
            raise CatalogFault(f"old metadata of table {table} cannot be read") from error

    def log(self, table: Identifier, commit: Commit) -> Log | None:
        """What an older commit's metadata tells about those before it; None if it is gone.

        Raises: CatalogFault.
        """
        try:
            with self._open(table, commit.location) as source:
                metadata = json.loads(source.read())
            before = [
                Commit(each["timestamp-ms"], each["metadata-file"])
                for each in metadata.get("metadata-log") or ()
            ]
            shown = [
                (each["timestamp-ms"], each["snapshot-id"])
                for each in metadata.get("snapshot-log") or ()
            ]
        except (NotFound, PreconditionFailed):
            return None
        except (OSError, EOFError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise CatalogFault(f"old metadata of table {table} cannot be read") from error
        return Log((*before, commit), tuple(shown))


def _head(metadata: Mapping[str, Any]) -> MetadataHead:
    properties = metadata.get("properties") or {}
    snapshot_id = metadata.get("current-snapshot-id")
    schema = metadata.get("current-schema-id")
    return MetadataHead(
        None if snapshot_id in (None, -1) else int(snapshot_id),
        json.dumps(metadata["schema"]) if schema is None else int(schema),
        has_row_lineage(int(metadata["format-version"])),
        tuple(digest_of(properties.get(name)) for name in SHAPING),
    )


_WANTED = frozenset({"format-version", "current-schema-id", "properties", "current-snapshot-id"})
"""Iceberg's own library writes these before the lists that grow with the table."""


def digest_of(text: str | None) -> bytes | None:
    """A digest of a property, as heads have it."""
    return None if text is None else hashlib.blake2b(text.encode(), digest_size=12).digest()


def number_in_name(commits: Sequence[Commit]) -> int | None:
    """The number in the name of the oldest metadata file; None where files have no numbers.

    The file of the creation has number 0.
    """
    found = []
    for commit in commits:
        match = _NUMBERED.search(commit.location)
        if match is None:
            return None
        # Hadoop's catalog begins to count with 1.
        found.append(int(match[2]) - bool(match[1]))
    return found[0] if found == list(range(found[0], found[0] + len(found))) else None


def _members(source: IO[bytes], wanted: frozenset[str]) -> Iterator[tuple[str, Any]]:
    """The members of a JSON object, until all wanted ones have been read.

    Raises: ValueError for a text that is not a JSON object.
    """
    text = _Text(source)
    missing = set(wanted)
    text.expect("{")
    while missing and text.next() != "}":
        name = text.value()
        text.expect(":")
        value = text.value()
        yield name, value
        missing.discard(name)
        if text.next() == ",":
            text.expect(",")


class _Text:
    """JSON text that is read only as far as it is used."""

    def __init__(self, source: IO[bytes]) -> None:
        self._source = source
        self._decoder = json.JSONDecoder()
        self._characters = codecs.getincrementaldecoder("utf-8")()
        self._text = ""
        self._at = 0

    def next(self) -> str:
        """The next character that is not white space, without passing it.

        Raises: ValueError at the end.
        """
        while True:
            while self._at < len(self._text):
                if not self._text[self._at].isspace():
                    return self._text[self._at]
                self._at += 1
            if not self._more(_CHUNK):
                raise ValueError("the text ends too early")

    def expect(self, character: str) -> None:
        if self.next() != character:
            raise ValueError(f"{character} is missing")
        self._at += 1

    def value(self) -> Any:
        """Read the next value.

        A value that ends where the text read so far ends may go on, so it is read again with more
        text.
        """
        self.next()
        size = _CHUNK
        while True:
            try:
                value, end = self._decoder.raw_decode(self._text, self._at)
            except ValueError:
                if not self._more(size):
                    raise
            else:
                length = end - self._at
                if end < len(self._text) or not self._more(size):
                    self._at += length
                    return value
            size *= 2

    def _more(self, size: int) -> bool:
        read = self._source.read(size)
        self._text = self._text[self._at :] + self._characters.decode(read, final=not read)
        self._at = 0
        return bool(read)
