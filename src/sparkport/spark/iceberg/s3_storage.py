"""Files in S3: Arrow reads and writes them, and single requests do what takes Arrow several."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import pyarrow as pa

from sparkport.spark.iceberg.object_storage import ObjectStorage, Properties
from sparkport.spark.iceberg.s3_requests import S3Requests, s3_requests
from sparkport.spark.iceberg.s3_settings import S3Settings, s3_file_system

__all__ = ["S3Storage"]

_SMALL = 1024 * 1024
"""Bytes of a file that is read whole, by one request, whatever of it is wanted."""
_ONCE = 8 * 1024 * 1024
"""Bytes that are read at first of a file of unknown size that will be read from end to end."""


class S3Storage(ObjectStorage):
    """Files of S3, and of whatever talks like it."""

    def open(self, location: str, size: int | None = None) -> pa.NativeFile:
        if size is None or not 0 < size <= _SMALL or (asked := self._asked(location)) is None:
            return super().open(location)
        requests, key = asked
        return pa.BufferReader(self._read(requests, location, key))

    def open_once(self, location: str) -> pa.NativeFile:
        if (asked := self._asked(location)) is None:
            return super().open_once(location)
        requests, key = asked
        with self._telling(location):
            found = requests.read(key, 0, _ONCE)
        if found.size > len(found.content):
            return super().open_once(location)
        return pa.BufferReader(found.content)

    def read(self, location: str, offset: int, length: int) -> bytes:
        if min(offset, length - 1) < 0 or (asked := self._asked(location)) is None:
            return super().read(location, offset, length)
        requests, key = asked
        with self._telling(location):
            found = requests.read(key, offset, length)
        if len(found.content) < length:
            raise ValueError("the file is too short")
        return found.content

    def delete(self, location: str) -> None:
        if (asked := self._asked(location)) is None:
            super().delete(location)
            return
        requests, key = asked
        with self._telling(location):
            requests.delete(key)

    def delete_all(self, locations: Iterable[str]) -> None:
        left: dict[str, list[str]] = {}
        for location in locations:
            left.setdefault(_bucket_and_key(location)[0], []).append(location)
        for every in left.values():
            if len(every) == 1 or (asked := self._asked(every[0])) is None:
                super().delete_all(every)
                continue
            with self._telling(every[0]):
                asked[0].delete_all([_bucket_and_key(each)[1] for each in every])

    def _read(self, requests: S3Requests, location: str, key: str) -> bytes:
        with self._telling(location):
            return requests.read(key).content

    def _asked(self, location: str) -> tuple[S3Requests, str] | None:
        """Who asks for a file, and the file's key; None where only Arrow can."""
        bucket, key = _bucket_and_key(location)
        requests = _requests(bucket, self._properties)
        return (requests, key) if requests is not None and key else None

    def _at(self, location: str) -> tuple[Any, str]:
        bucket, key = _bucket_and_key(location)
        return _file_system(bucket, self._properties), f"{bucket}/{key}" if key else bucket


def _bucket_and_key(location: str) -> tuple[str, str]:
    bucket, _, key = location.partition("://")[2].partition("/")
    return bucket, key


@lru_cache(maxsize=256)
def _requests(bucket: str, properties: Properties) -> S3Requests | None:
    return s3_requests(bucket, S3Settings.of(dict(properties)))


@lru_cache(maxsize=256)
def _file_system(bucket: str, properties: Properties) -> Any:
    return s3_file_system(bucket, S3Settings.of(dict(properties)))
