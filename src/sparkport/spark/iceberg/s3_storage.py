"""Files in S3: Arrow reads and writes them, and single requests do what takes Arrow several."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

import pyarrow as pa

from sparkport.spark.iceberg.object_storage import ObjectStorage, Properties
from sparkport.spark.iceberg.s3_requests import S3Answer, S3Requests, s3_requests
from sparkport.spark.iceberg.s3_settings import S3Settings, s3_file_system
from sparkport.spark.iceberg.storage import WrongSetting

__all__ = ["S3Storage"]

_SMALL = 1024 * 1024
"""Bytes of a file that is read whole, by one request, whatever of it is wanted."""
_ONCE = 8 * 1024 * 1024
"""Bytes that are read at first of a file of unknown size that will be read from end to end."""


class S3Storage(ObjectStorage):
    """Files of S3, and of whatever talks like it."""

    def open(self, location: str, size: int | None = None) -> pa.NativeFile:
        if size is not None and 0 < size <= _SMALL and (found := self._read(location)) is not None:
            return pa.BufferReader(found.content)
        try:
            return super().open(location)
        except OSError:
            self._read(location, 0, 1)  # says more: Arrow asks for no more than a head
            raise

    def open_once(self, location: str) -> pa.NativeFile:
        found = self._read(location, 0, _ONCE)
        if found is None or found.size > len(found.content):
            return super().open_once(location)
        return pa.BufferReader(found.content)

    def read(self, location: str, offset: int, length: int) -> bytes:
        found = self._read(location, offset, length) if min(offset, length - 1) >= 0 else None
        if found is None:
            return super().read(location, offset, length)
        if len(found.content) < length:
            raise ValueError("the file is too short")
        return found.content

    def create(self, location: str) -> pa.NativeFile:
        bucket = _bucket_and_key(location)[0]
        if _settings(bucket, self._properties).encryption:
            raise WrongSetting(
                "files are written without s3.sse.type: set the encryption as the default of the "
                "bucket, and s3.sse.type to none"
            )
        return super().create(location)

    def size(self, location: str) -> int:
        found = self._read(location, 0, 1)
        return super().size(location) if found is None else found.size

    def modified(self, location: str) -> float:
        found = self._read(location, 0, 1)
        # Of an empty file there is no first byte, and the answer does not say when it was written.
        if found is None or not found.modified:
            return super().modified(location)
        return found.modified

    def delete(self, location: str) -> None:
        if (requests := self._requests(location)) is None:
            super().delete(location)
            return
        with self._telling(location):
            requests.delete(_bucket_and_key(location)[1])

    def delete_all(self, locations: Iterable[str]) -> None:
        by_bucket: dict[str, list[str]] = {}
        for location in locations:
            by_bucket.setdefault(_bucket_and_key(location)[0], []).append(location)
        for every in by_bucket.values():
            if len(every) == 1 or (requests := self._requests(every[0])) is None:
                super().delete_all(every)
                continue
            with self._telling(every[0]):
                requests.delete_all([_bucket_and_key(each)[1] for each in every])

    def abort_uploads(self, folder: str, is_wanted: Callable[[str], bool]) -> None:
        start = folder.rstrip("/")
        if (requests := self._requests(start)) is None:
            return
        key = _bucket_and_key(start)[1]
        with self._telling(folder):
            for upload in requests.uploads(f"{key}/"):
                if is_wanted(f"{start[: -len(key)]}{upload.key}"):
                    requests.abort(upload)

    def _read(self, location: str, start: int = 0, length: int | None = None) -> S3Answer | None:
        """Bytes of a file, by one request; None where only Arrow can ask for them."""
        if (requests := self._requests(location)) is None:
            return None
        with self._telling(location):
            return requests.read(_bucket_and_key(location)[1], start, length)

    def _requests(self, location: str) -> S3Requests | None:
        bucket, key = _bucket_and_key(location)
        with self._telling(location):
            return _requests(bucket, self._properties) if key else None

    def _at(self, location: str) -> tuple[Any, str]:
        bucket, key = _bucket_and_key(location)
        return _file_system(bucket, self._properties), f"{bucket}/{key}" if key else bucket


def _bucket_and_key(location: str) -> tuple[str, str]:
    bucket, _, key = location.partition("://")[2].partition("/")
    return bucket, key


@lru_cache(maxsize=256)
def _settings(bucket: str, properties: Properties) -> S3Settings:
    return S3Settings.of(dict(properties), bucket)


@lru_cache(maxsize=256)
def _requests(bucket: str, properties: Properties) -> S3Requests | None:
    return s3_requests(bucket, _settings(bucket, properties))


@lru_cache(maxsize=256)
def _file_system(bucket: str, properties: Properties) -> Any:
    return s3_file_system(bucket, _settings(bucket, properties))
