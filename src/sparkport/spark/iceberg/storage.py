"""Storage: what the lake does with files, whatever kind of place they are in.

A place is named by its location: a path, or a scheme and what the scheme wants (`file:/a/b`,
`s3://bucket/a/b`). Each kind of place has a class of its own, which `locations.py` lists by scheme.
All files of the lake are read and written through it: data files, delete vectors, metadata,
manifests, and what is staged or spilled while a statement runs.

Java does its part by its own means: it writes metadata and manifests, and removes what it wrote for
a commit that failed, and the folder of a table that was dropped.

Three kinds of files are handled elsewhere. They are on this machine by their nature:

- the locks and journals of a server's staging folder, which need permissions, locks and appending
  (`lake/staging_folder.py`, `lake/liveness.py`);
- the database, the lock and the jars of an embedded lake (`jvm/session/`);
- whatever DuckDB reads by itself, which gets the path of a local file (`local_path`).
"""

from __future__ import annotations

import errno
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar

import pyarrow as pa

__all__ = ["MissingFile", "Storage", "scheme_of"]


class MissingFile(FileNotFoundError):
    """There is no file at a location. Every storage says so by this error alone."""

    def __init__(self, location: str) -> None:
        super().__init__(errno.ENOENT, "there is no such file", location)

    def __reduce__(self) -> tuple[type[MissingFile], tuple[str]]:
        return MissingFile, (str(self.filename),)


class Storage(ABC):
    """Files of one kind of place. Thread-safe and picklable: Spark's workers use it, too.

    A file is written once, from its beginning to its end, and never changed. All methods raise
    OSError when the storage does not answer or does not allow it.
    """

    is_local: ClassVar[bool] = False
    """Whether a read costs no journey over a network."""

    @abstractmethod
    def __init__(self, properties: Mapping[str, str]) -> None:
        """`properties` are PyIceberg's: endpoints, credentials and the like. Costs nothing."""

    @classmethod
    def reaches(cls, location: str) -> bool:
        """Whether the place is one that this process can get at, as far as its name tells."""
        return True

    @abstractmethod
    def open(self, location: str) -> pa.NativeFile:
        """A file to read at random places; the caller closes it. What was read stays valid.

        Raises: MissingFile.
        """

    def open_once(self, location: str) -> pa.NativeFile:
        """A file of which nothing is read twice; otherwise as `open`. Raises: MissingFile."""
        return self.open(location)

    def read(self, location: str, offset: int, length: int) -> bytes:
        """A range of a file, all of it. Raises: MissingFile; ValueError if the file ends before."""
        if min(offset, length) < 0:
            raise ValueError("a range begins in the file, and does not go backwards")
        with self.open(location) as source:
            if offset + length > source.size():
                raise ValueError("the file is too short")
            content: bytes = source.read_at(length, offset)
        return content

    @abstractmethod
    def create(self, location: str) -> pa.NativeFile:
        """A new file to write to, with the folders that it needs; it is whole when it is closed.

        Nothing is overwritten: names of files are never used twice. An object store looks before
        it writes; two who create a file at once are told apart only by the local storage.

        Raises: FileExistsError.
        """

    @abstractmethod
    def make_durable(self, location: str) -> None:
        """See to it that a file that was closed survives a power cut."""

    def write(self, location: str, content: bytes) -> None:
        """Create a file in one go, and make it durable. Raises: FileExistsError."""
        with self.create(location) as sink:
            sink.write(content)
        self.make_durable(location)

    @abstractmethod
    def rename(self, location: str, target: str) -> None:
        """Give a file another name, and the folders that it needs. What had that name is replaced.

        Where the storage is local others see the one or the other file at any time; object stores
        copy. `make_durable` works on the new name. Raises: MissingFile.
        """

    @abstractmethod
    def files_below(self, folder: str) -> list[str]:
        """The locations of all files in a folder and below it, sorted, in the spelling of
        `folder`; none if it is not there.
        """

    @abstractmethod
    def delete(self, location: str) -> None:
        """Remove a file. One that is not there is no error."""

    @abstractmethod
    def size(self, location: str) -> int:
        """In bytes. Raises: MissingFile; IsADirectoryError where there are folders."""

    def exists(self, location: str) -> bool:
        """Raises: IsADirectoryError for a folder, where there are any."""
        try:
            self.size(location)
        except MissingFile:
            return False
        return True

    def resolved(self, location: str) -> str:
        """The place that a location, of a file or a folder, leads to once links are followed."""
        return location


def scheme_of(location: str) -> str:
    """In lower case; "" for a path."""
    scheme, colon, _ = location.partition(":")
    return scheme.lower() if colon and "/" not in scheme else ""
