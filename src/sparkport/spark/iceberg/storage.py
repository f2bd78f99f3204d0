"""Storage: what the lake does with files, whatever kind of place they are in.

A place is named by its location: a path, or a scheme and what the scheme wants (`file:/a/b`,
`s3://bucket/a/b`). Each kind of place has a class of its own, which `locations.py` lists by scheme.
All files of the lake are read and written through it: data files, delete vectors, metadata,
manifests, and what is staged or spilled while a statement runs.

Java does its part by its own means: it writes metadata and manifests of all but plain INSERTs, and
removes what it wrote for a commit that failed, and the folder of a table that was dropped.

Three kinds of files are handled elsewhere. They are on this machine by their nature:

- the locks and journals of a server's staging folder, which need permissions, locks and appending
  (`lake/staging_folder.py`, `lake/liveness.py`);
- the database, the lock and the jars of an embedded lake (`jvm/session/`);
- whatever DuckDB reads by itself, which gets the path of a local file (`local_path`).
"""

from __future__ import annotations

import errno
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import ClassVar

import pyarrow as pa

__all__ = ["MissingFile", "Storage", "WrongSetting", "scheme_of"]


class MissingFile(FileNotFoundError):
    """There is no file at a location. Every storage reports that by this error alone."""

    def __init__(self, location: str) -> None:
        super().__init__(errno.ENOENT, "there is no such file", location)

    def __reduce__(self) -> tuple[type[MissingFile], tuple[str]]:
        return MissingFile, (str(self.filename),)


class WrongSetting(OSError):
    """A setting of a storage is wrong, or cannot be kept to. The text says what to set."""


class Storage(ABC):
    """Files of one kind of place. Thread-safe and picklable: Spark's workers use it, too.

    A file is written once, from its beginning to its end, and never changed. All methods raise
    OSError when the storage does not answer or does not allow it.
    """

    is_local: ClassVar[bool] = False
    """Whether reads stay on this machine, without a network."""
    for_workers: ClassVar[bool] = True
    """Whether it is of use in Spark's workers, too."""

    @abstractmethod
    def __init__(self, properties: Mapping[str, str]) -> None:
        """`properties` are those of Iceberg's FileIO: endpoints, credentials and the like.

        Nothing is opened.
        """

    @classmethod
    def reaches(cls, location: str) -> bool:
        """Whether this process can reach a location, as far as its name tells."""
        return True

    @abstractmethod
    def open(self, location: str, size: int | None = None) -> pa.NativeFile:
        """Open a file for reading at any position; the caller closes it.

        Bytes that were read stay valid. A caller that knows the file's size says it: it may save
        requests. Raises: MissingFile.
        """

    def open_once(self, location: str) -> pa.NativeFile:
        """Open a file of which nothing is read twice; the caller closes it. Raises: MissingFile."""
        return self.open(location)

    def read(self, location: str, offset: int, length: int) -> bytes:
        """Read a range of a file. Raises: MissingFile; ValueError if the file ends before."""
        if min(offset, length) < 0:
            raise ValueError("a range begins in the file, and does not go backwards")
        with self.open(location) as source:
            if offset + length > source.size():
                raise ValueError("the file is too short")
            content: bytes = source.read_at(length, offset)
        return content

    @abstractmethod
    def create(self, location: str) -> pa.NativeFile:
        """Create a file to write to, and its folders; the file is complete when it is closed.

        Names of files are never used twice. A storage that can tell without asking for it raises
        FileExistsError; an object store replaces the file.
        """

    @abstractmethod
    def make_durable(self, location: str) -> None:
        """Make sure that a closed file survives a power cut."""

    def write(self, location: str, content: bytes) -> None:
        """Create a file with this content, and make it durable. As for `create`."""
        with self.create(location) as sink:
            sink.write(content)
        self.make_durable(location)

    def write_all(self, contents: Mapping[str, bytes]) -> None:
        """Create several files, and make them durable. As for `create`."""
        for location, content in contents.items():
            self.write(location, content)

    @abstractmethod
    def files_below(self, folder: str) -> list[str]:
        """The locations of all files in and below a folder, sorted, in the spelling of `folder`.

        Empty if the folder does not exist.
        """

    @abstractmethod
    def delete(self, location: str) -> None:
        """Remove a file. A file that does not exist is no error."""

    def delete_all(self, locations: Iterable[str]) -> None:
        """Remove files, with as few requests as there can be. None of them needs to exist."""
        for location in locations:
            self.delete(location)

    def abort_uploads(self, folder: str, is_wanted: Callable[[str], bool]) -> None:
        """End uploads that were begun below a folder and never completed, of the wanted names.

        Stores that speak S3 keep what was sent of them, and list it among no files.
        """

    @abstractmethod
    def size(self, location: str) -> int:
        """The size in bytes. Raises: MissingFile; IsADirectoryError where there are folders."""

    @abstractmethod
    def modified(self, location: str) -> float:
        """When a file was written, in seconds by the clock of the storage. Raises: MissingFile.

        Times of one storage can be compared with each other, and not with this machine's clock.
        """

    def exists(self, location: str) -> bool:
        """Whether there is a file. Raises: IsADirectoryError for a folder, where there are any."""
        try:
            self.size(location)
        except MissingFile:
            return False
        return True

    def resolved(self, location: str) -> str:
        """The location of a file or folder once links are followed."""
        return location


def scheme_of(location: str) -> str:
    """The scheme in lower case; "" for a path."""
    scheme, colon, _ = location.partition(":")
    return scheme.lower() if colon and "/" not in scheme else ""
