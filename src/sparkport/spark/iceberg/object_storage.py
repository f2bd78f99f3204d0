"""Files in object stores, through Arrow's file systems, which PyIceberg sets up."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from sparkport.spark.iceberg.storage import MissingFile, Storage, scheme_of

if TYPE_CHECKING:
    from pyarrow.fs import FileInfo, FileSystem

__all__ = ["SCHEMES", "ObjectStorage"]

SCHEMES = ("s3", "s3a", "s3n", "gs", "gcs", "abfs", "abfss", "wasb", "wasbs")
"""Object stores that Arrow reads by itself. HDFS is not among them: it needs Java."""

_BUFFER_BYTES = 1024 * 1024


class ObjectStorage(Storage):
    """Files of an object store.

    A closed file is durable. There are no folders, and renaming copies the file.
    """

    def __init__(self, properties: Mapping[str, str]) -> None:
        self._properties = tuple(sorted(properties.items()))

    def open(self, location: str) -> pa.NativeFile:
        system, path = self._at(location)
        try:
            return system.open_input_file(path)
        except FileNotFoundError as error:
            raise MissingFile(location) from error

    def create(self, location: str) -> pa.NativeFile:
        if self.exists(location):
            raise FileExistsError(location)
        system, path = self._at(location)
        return system.open_output_stream(path, buffer_size=_BUFFER_BYTES)

    def make_durable(self, location: str) -> None:
        """Nothing to do: a file is durable once it is closed."""

    def rename(self, location: str, target: str) -> None:
        self.size(location)
        system, path = self._at(location)
        system.move(path, self._at(target)[1])

    def files_below(self, folder: str) -> list[str]:
        from pyarrow.fs import FileSelector, FileType

        system, path = self._at(folder.rstrip("/"))
        found = system.get_file_info(FileSelector(path, allow_not_found=True, recursive=True))
        start = folder.rstrip("/")[: -len(path)]
        return sorted(f"{start}{each.path}" for each in found if each.type == FileType.File)

    def delete(self, location: str) -> None:
        system, path = self._at(location)
        with suppress(FileNotFoundError):
            system.delete_file(path)

    def size(self, location: str) -> int:
        from pyarrow.fs import FileType

        system, path = self._at(location)
        found: FileInfo = system.get_file_info(path)
        if found.type == FileType.NotFound:
            raise MissingFile(location)
        if found.type == FileType.Directory:
            raise IsADirectoryError(location)
        return int(found.size)

    def modified(self, location: str) -> float:
        from pyarrow.fs import FileType

        system, path = self._at(location)
        found: FileInfo = system.get_file_info(path)
        if found.type != FileType.File or found.mtime_ns is None:
            raise MissingFile(location)
        return float(found.mtime_ns) / 1e9

    def _at(self, location: str) -> tuple[FileSystem, str]:
        """The file system, and the path with the bucket.

        Nothing is decoded: a name may have any character.
        """
        path = location.partition("://")[2]
        return _file_system(scheme_of(location), path.partition("/")[0], self._properties), path


@lru_cache(maxsize=256)
def _file_system(scheme: str, bucket: str, properties: tuple[tuple[str, str], ...]) -> Any:
    # Imported late: workers that read local files start sooner without it.
    from pyiceberg.io.pyarrow import PyArrowFileIO

    return PyArrowFileIO(dict(properties)).fs_by_scheme(scheme, bucket)
