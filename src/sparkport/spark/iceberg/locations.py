"""Locations of files: which storage holds them, and how a data file is opened.

A new kind of storage is a class in a file of its own, and a line in `_STORAGES`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.parquet as pq

from sparkport.engine.cache import Cache
from sparkport.spark.iceberg.local_storage import LocalStorage, local_path
from sparkport.spark.iceberg.object_storage import AzureStorage, GcsStorage
from sparkport.spark.iceberg.s3_storage import S3Storage
from sparkport.spark.iceberg.storage import Storage, scheme_of

__all__ = [
    "ANY_SCHEME",
    "for_workers",
    "is_pattern",
    "local_path",
    "open_parquet",
    "reachable",
    "register",
    "remembered_footer",
    "storage_at",
]

ANY_SCHEME = "*"
"""Stands for all schemes that no storage is registered for."""

_STORAGES: dict[str, type[Storage]] = {
    "": LocalStorage,
    "file": LocalStorage,
    **dict.fromkeys(("s3", "s3a", "s3n"), S3Storage),
    **dict.fromkeys(("gs", "gcs"), GcsStorage),
    **dict.fromkeys(("abfs", "abfss", "wasb", "wasbs"), AzureStorage),
}


def register(scheme: str, storage: type[Storage]) -> None:
    """Have a storage class serve a scheme, in this process."""
    _STORAGES[scheme.lower()] = storage


def reachable(path: str, properties: Mapping[str, str]) -> bool:
    """Whether files at a location can be read in this process, without Spark's engine."""
    storage = _storage(path)
    return storage is not None and storage.reaches(path)


def for_workers(path: str) -> bool:
    """Whether Spark's workers can read files at a location by themselves, and not only Spark."""
    storage = _storage(path)
    return storage is not None and storage.for_workers


def storage_at(location: str, properties: Mapping[str, str]) -> Storage:
    """The storage that holds a file. Raises: OSError when only Spark can reach the location."""
    storage = _storage(location)
    if storage is None:
        raise OSError(f"there is no storage for {scheme_of(location)}: only Spark reads it")
    return storage(properties)


def _storage(location: str) -> type[Storage] | None:
    return _STORAGES.get(scheme_of(location)) or _STORAGES.get(ANY_SCHEME)


def is_pattern(path: str) -> bool:
    """Whether DuckDB would take a path for a pattern, and so read other files."""
    return any(sign in path for sign in "*?[")


@contextmanager
def open_parquet(
    path: str, properties: Mapping[str, str], size: int | None = None
) -> Iterator[pq.ParquetFile]:
    """Open a data file, for a `with` statement. `size` is its size in bytes, where that is known.

    Raises: OSError, MissingFile among them; ArrowInvalid for a file that is not Parquet.
    """
    storage = storage_at(path, properties)
    # Measured: with a memory map, buffering ahead costs a copy and gains nothing.
    ahead = not storage.is_local
    known = remembered_footer(path, size)
    file = pq.ParquetFile(
        _opened(storage, path, size),
        metadata=known and known[0],
        pre_buffer=ahead,
        coerce_int96_timestamp_unit="us",
    )
    if ahead and size and known is None:
        weight = _FOOTER_IN_MEMORY * file.metadata.serialized_size
        _footers.add((path, size), (file.metadata, file.schema_arrow), weight)
    try:
        yield file
    finally:
        # A thread that reads ahead may still be at work. Arrow closes the file after the last user.
        file.close(force=not ahead)


def remembered_footer(path: str, size: int | None) -> tuple[pq.FileMetaData, pa.Schema] | None:
    """The footer of a file that was read from a store lately, with its schema."""
    return _footers.find((path, size), None)


def _opened(storage: Storage, path: str, size: int | None) -> pa.NativeFile:
    if storage.is_local or not size or size > _SMALL:
        return storage.open(path, size)
    content = _small_files.find((path, size), None)
    if content is None:
        content = _small_files.add((path, size), storage.read(path, 0, size), size)
    return pa.BufferReader(content)


_SMALL = 128 * 1024
"""Bytes of a file that is remembered as a whole: the few rows of a small statement."""
_FOOTER_IN_MEMORY = 4
"""How many times larger a footer is in memory than in its file, about."""
_footers: Cache[tuple[str, int | None], tuple[pq.FileMetaData, pa.Schema]] = Cache(32 * 1024 * 1024)
_small_files: Cache[tuple[str, int | None], bytes] = Cache(16 * 1024 * 1024)
"""What was fetched from stores, by location and size. Data files never change."""
