"""Files in the memory of this process: `memory:/a/b`. The least that a storage can be."""

from __future__ import annotations

import io
import threading
import time
from collections.abc import Callable, Mapping
from typing import ClassVar

import pyarrow as pa

from sparkport.spark.iceberg.storage import MissingFile, Storage

__all__ = ["MemoryStorage"]


class MemoryStorage(Storage):
    """All of them have the same files."""

    files: ClassVar[dict[str, bytes]] = {}
    times: ClassVar[dict[str, float]] = {}
    """When each file was written; a test may change that."""
    _lock: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, properties: Mapping[str, str]) -> None:
        pass

    def open(self, location: str, size: int | None = None) -> pa.NativeFile:
        return pa.BufferReader(self._content(location))

    def create(self, location: str) -> pa.NativeFile:
        with self._lock:
            if location in self.files:
                raise FileExistsError(location)
            self.files[location] = b""
            self.times[location] = time.time()
        return pa.PythonFile(_Sink(lambda content: self.files.update({location: content})), "w")

    def make_durable(self, location: str) -> None:
        pass

    def files_below(self, folder: str) -> list[str]:
        start = f"{folder.rstrip('/')}/"
        return sorted(location for location in list(self.files) if location.startswith(start))

    def delete(self, location: str) -> None:
        self.files.pop(location, None)

    def size(self, location: str) -> int:
        return len(self._content(location))

    def modified(self, location: str) -> float:
        self._content(location)
        return self.times.get(location, 0.0)

    def _content(self, location: str) -> bytes:
        try:
            return self.files[location]
        except KeyError:
            raise MissingFile(location) from None


class _Sink(io.BytesIO):
    """Hands over what was written when it is closed."""

    def __init__(self, keep: Callable[[bytes], None]) -> None:
        super().__init__()
        self._keep = keep

    def close(self) -> None:
        if not self.closed:
            self._keep(self.getvalue())
        super().close()
