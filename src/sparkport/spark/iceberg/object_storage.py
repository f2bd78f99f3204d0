"""Files in object stores, through Arrow's file systems.

What they need to know is set by the names of Iceberg's FileIO (`s3.endpoint`, `gcs.oauth2.token`,
`adls.sas-token.ACCOUNT`). Only the modules beside this one know what Arrow calls it.
"""

from __future__ import annotations

import errno
import re
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from sparkport.spark.iceberg.azure_file_system import azure_file_system, azure_path
from sparkport.spark.iceberg.gcs_file_system import gcs_file_system
from sparkport.spark.iceberg.storage import MissingFile, Storage, WrongSetting

if TYPE_CHECKING:
    from pyarrow.fs import FileInfo, FileSystem

__all__ = ["AzureStorage", "GcsStorage", "ObjectStorage", "Properties"]

Properties = tuple[tuple[str, str], ...]

_BUFFER_BYTES = 1024 * 1024
_DELETERS = 8
_ONCE = 4 * 1024 * 1024
"""Bytes of a file of Google's that is read as a whole."""
_SECRET = re.compile(r"(?i)(secret|key|token|password|credential|connection-string)")
_SIGNED = re.compile(r"(?i)\b(sig|signature|x-amz-signature|x-amz-security-token)=[^&\s'\"]+")


class ObjectStorage(Storage):
    """Files of an object store.

    A closed file is durable. There are no folders, and renaming copies the file. A file of the same
    name is replaced: names are never used twice, so nobody asks whether there is one.
    """

    def __init__(self, properties: Mapping[str, str]) -> None:
        self._properties: Properties = tuple(sorted(properties.items()))

    def open(self, location: str, size: int | None = None) -> pa.NativeFile:
        with self._telling(location):
            system, path = self._at(location)
            return system.open_input_file(path)

    def create(self, location: str) -> pa.NativeFile:
        with self._telling(location):
            system, path = self._at(location)
            return system.open_output_stream(path, buffer_size=_BUFFER_BYTES)

    def make_durable(self, location: str) -> None:
        """Nothing to do: a file is durable once it is closed."""

    def files_below(self, folder: str) -> list[str]:
        from pyarrow.fs import FileSelector, FileType

        folder = folder.rstrip("/")
        with self._telling(folder):
            system, path = self._at(folder)
            found = system.get_file_info(FileSelector(path, allow_not_found=True, recursive=True))
        return sorted(
            folder + each.path[len(path) :] for each in found if each.type == FileType.File
        )

    def delete(self, location: str) -> None:
        with suppress(FileNotFoundError), self._telling(location):
            system, path = self._at(location)
            system.delete_file(path)

    def delete_all(self, locations: Iterable[str]) -> None:
        every = list(locations)
        if len(every) < 2:
            super().delete_all(every)
            return
        with ThreadPoolExecutor(min(_DELETERS, len(every)), "sparkport-delete") as deleters:
            list(deleters.map(self.delete, every))

    def size(self, location: str) -> int:
        return int(self._info(location).size)

    def modified(self, location: str) -> float:
        return float(self._info(location).mtime_ns or 0) / 1e9

    def _info(self, location: str) -> FileInfo:
        from pyarrow.fs import FileType

        with self._telling(location):
            system, path = self._at(location)
            found: FileInfo = system.get_file_info(path)
        if found.type == FileType.NotFound:
            raise MissingFile(location)
        if found.type == FileType.Directory:
            raise IsADirectoryError(errno.EISDIR, "this is a folder", location)
        return found

    @abstractmethod
    def _at(self, location: str) -> tuple[FileSystem, str]:
        """The file system, which is made once, and the path with the bucket.

        Nothing is decoded: a name may have any character. Raises: OSError.
        """

    @contextmanager
    def _telling(self, location: str) -> Iterator[None]:
        """Raise errors of the store as OSError, without what is secret in their texts."""
        try:
            yield
        except FileNotFoundError as error:
            raise MissingFile(location) from error
        except WrongSetting:
            raise
        except OSError as error:
            text = str(error)
            if (cleaned := self._without_secrets(text)) == text:
                raise
            raise OSError(cleaned) from None
        except (pa.ArrowException, ValueError) as error:
            # Settings that Arrow does not take: an endpoint that is no address, for instance.
            raise OSError(self._without_secrets(str(error))) from None

    def _without_secrets(self, text: str) -> str:
        for name, value in self._properties:
            if len(value) > 3 and _SECRET.search(name):
                text = text.replace(value, "…")
        return _SIGNED.sub(r"\1=…", text)


class GcsStorage(ObjectStorage):
    """Files of Google Cloud Storage.

    Whoever asks PyArrow anything about a file of `open` for the first time lets no other thread run
    until the store answers: PyArrow asks whether the file is closed, and Arrow then asks the store
    for all of it. Streams do not have this, so what is read from its beginning is a stream.
    """

    def open_once(self, location: str) -> pa.NativeFile:
        content = self._beginning(location, _ONCE + 1)
        return pa.BufferReader(content) if len(content) <= _ONCE else super().open_once(location)

    def read(self, location: str, offset: int, length: int) -> bytes:
        if offset or not 0 <= length <= _ONCE:
            return super().read(location, offset, length)
        content = self._beginning(location, length)
        if len(content) < length:
            raise ValueError("the file is too short")
        return content

    def _at(self, location: str) -> tuple[FileSystem, str]:
        return _gcs(self._properties), location.partition("://")[2]

    def _beginning(self, location: str, length: int) -> bytes:
        with self._telling(location):
            system, path = self._at(location)
            with system.open_input_stream(path, compression=None) as source:
                content: bytes = source.read(length)
        return content


class AzureStorage(ObjectStorage):
    """Files of Azure's Blob Storage and Data Lake Storage."""

    def _at(self, location: str) -> tuple[FileSystem, str]:
        host, path = azure_path(location)
        return _azure(host, self._properties), path


@lru_cache(maxsize=64)
def _gcs(properties: Properties) -> Any:
    return gcs_file_system(dict(properties))


@lru_cache(maxsize=64)
def _azure(host: str, properties: Properties) -> Any:
    return azure_file_system(host, dict(properties))
