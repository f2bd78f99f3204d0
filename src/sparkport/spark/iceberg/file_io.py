"""The lake's storages as PyIceberg's file classes, for its readers and writers of Avro."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import cast

from pyiceberg.io import FileIO, InputFile, InputStream, OutputFile, OutputStream

from sparkport.spark.iceberg.locations import storage_at
from sparkport.spark.iceberg.storage import Storage

__all__ = ["StorageIO"]


class StorageIO(FileIO):
    """Reads and writes files wherever there is a storage for them.

    `settings` returns the properties of the storages as they are now: a catalog may give out
    credentials that expire. In another process they stay as they were when this was pickled.
    """

    def __init__(self, settings: Callable[[], Mapping[str, str]]) -> None:
        self._settings = settings

    @property
    def properties(self) -> dict[str, str]:  # type: ignore[override]
        return dict(self._settings())

    def __reduce__(self) -> tuple[Callable[[Mapping[str, str]], StorageIO], tuple[dict[str, str]]]:
        return _fixed, (self.properties,)

    def new_input(self, location: str) -> InputFile:
        """Raises: OSError when only Spark can reach the place."""
        return _Input(storage_at(location, self.properties), location)

    def new_output(self, location: str) -> OutputFile:
        """Raises: OSError when only Spark can reach the place."""
        return _Output(storage_at(location, self.properties), location)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        place = location if isinstance(location, str) else location.location
        storage_at(place, self.properties).delete(place)


def _fixed(properties: Mapping[str, str]) -> StorageIO:
    return StorageIO(lambda: properties)


class _Input(InputFile):
    def __init__(self, storage: Storage, location: str) -> None:
        super().__init__(location)
        self._storage = storage

    def __len__(self) -> int:
        return self._storage.size(self.location)

    def exists(self) -> bool:
        return self._storage.exists(self.location)

    def open(self, seekable: bool = True) -> InputStream:
        return cast(InputStream, self._storage.open_once(self.location))


class _Output(OutputFile):
    def __init__(self, storage: Storage, location: str) -> None:
        super().__init__(location)
        self._storage = storage

    def __len__(self) -> int:
        return self._storage.size(self.location)

    def exists(self) -> bool:
        return self._storage.exists(self.location)

    def to_input_file(self) -> InputFile:
        return _Input(self._storage, self.location)

    def create(self, overwrite: bool = False) -> OutputStream:
        if overwrite:
            self._storage.delete(self.location)
        return cast(OutputStream, self._storage.create(self.location))
