"""Files on this machine, and on file systems mounted on it."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

import pyarrow as pa

from sparkport.spark.iceberg.storage import MissingFile, Storage, scheme_of

__all__ = ["LocalStorage", "local_path", "remove_empty_folders"]

_MISSING = (FileNotFoundError, NotADirectoryError)


def local_path(location: str) -> str | None:
    """The path of a local file; None if it is elsewhere.

    Nothing is decoded: Hadoop's paths are not URLs.
    """
    scheme = scheme_of(location)
    if not scheme:
        return location
    if scheme != "file":
        return None
    rest = location[len("file:") :]
    if not rest.startswith("//"):
        return rest
    host, slash, place = rest[2:].partition("/")
    return slash + place if host in {"", "localhost"} else None


class LocalStorage(Storage):
    """Local files, read as memory maps. `/a`, `file:/a` and `file:///a` are one place."""

    is_local = True

    def __init__(self, properties: Mapping[str, str] | None = None) -> None:
        """Local files need no properties."""

    @classmethod
    def reaches(cls, location: str) -> bool:
        return local_path(location) is not None

    def open(self, location: str, size: int | None = None) -> pa.NativeFile:
        with _missing(location):
            return pa.memory_map(_path(location))

    def open_once(self, location: str) -> pa.NativeFile:
        # Measured: a manifest takes less than half the time that it takes as a memory map.
        with _missing(location):
            return pa.OSFile(_path(location))

    def read(self, location: str, offset: int, length: int) -> bytes:
        if min(offset, length) < 0:
            raise ValueError("a range begins in the file, and does not go backwards")
        with _missing(location), open(_path(location), "rb") as source:
            source.seek(offset)
            content = source.read(length)
        if len(content) != length or (not length and offset > self.size(location)):
            raise ValueError("the file is too short")
        return content

    def create(self, location: str) -> pa.NativeFile:
        path = _path(location)
        _make_folder(os.path.dirname(path))
        # Arrow has no way to refuse to overwrite.
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666))
        return pa.OSFile(path, "wb")

    def make_durable(self, location: str) -> None:
        path = _path(location)
        with _missing(location):
            _synchronise(path)
        _synchronise(os.path.dirname(path) or ".")

    def write_all(self, contents: Mapping[str, bytes]) -> None:
        for location, content in contents.items():
            with self.create(location) as sink:
                sink.write(content)
        paths = list(map(_path, contents))
        # A folder is made durable once: each time waits for the disk.
        for path in (*paths, *dict.fromkeys(os.path.dirname(each) or "." for each in paths)):
            _synchronise(path)

    def files_below(self, folder: str) -> list[str]:
        top = _path(folder).rstrip("/") or "/"
        start, found = folder.rstrip("/"), []
        for here, _, names in os.walk(top, onerror=_expect_missing):
            inside = here[len(top) :].strip("/")
            found += ["/".join(filter(None, (start, inside, name))) for name in names]
        return sorted(found)

    def delete(self, location: str) -> None:
        with suppress(*_MISSING):
            os.unlink(_path(location))

    def size(self, location: str) -> int:
        with _missing(location):
            found = os.stat(_path(location))
        if stat.S_ISDIR(found.st_mode):
            raise IsADirectoryError(location)
        return found.st_size

    def modified(self, location: str) -> float:
        with _missing(location):
            return os.stat(_path(location)).st_mtime

    def resolved(self, location: str) -> str:
        return os.path.realpath(_path(location))


def remove_empty_folders(path: str) -> bool:
    """Remove a folder that has nothing but empty folders in it; whether it is gone.

    Raises: OSError.
    """
    try:
        with os.scandir(path) as entries:
            inside = list(entries)
    except _MISSING:
        return True
    for entry in inside:
        if not entry.is_dir(follow_symlinks=False) or not remove_empty_folders(entry.path):
            return False
    with suppress(*_MISSING):
        os.rmdir(path)
    return True


def _path(location: str) -> str:
    path = local_path(location)
    if path is None:
        raise OSError(f"{location} is not on this machine")
    return path


@contextmanager
def _missing(location: str) -> Iterator[None]:
    try:
        yield
    except _MISSING as error:
        raise MissingFile(location) from error


def _expect_missing(error: OSError) -> None:
    if not isinstance(error, _MISSING):
        raise error


def _make_folder(path: str) -> None:
    """Make a folder and its parents, so that they survive a power cut."""
    parent = os.path.dirname(path)
    if path and not os.path.isdir(path) and parent != path:
        _make_folder(parent)
        with suppress(FileExistsError):
            os.mkdir(path)
            _synchronise(parent or ".")


def _synchronise(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
