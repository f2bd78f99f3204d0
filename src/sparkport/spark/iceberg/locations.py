"""Places of files: which of them this process can read, and how."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import pyarrow.parquet as pq

__all__ = ["is_pattern", "local_path", "open_parquet", "reachable", "read_range"]

_REMOTE = frozenset({"s3", "s3a", "s3n", "gs", "gcs", "abfs", "abfss", "wasb", "wasbs"})
"""Object stores that Arrow reads by itself. HDFS is not among them: it needs Java in the
process.
"""


def reachable(path: str, properties: Mapping[str, str]) -> bool:
    """Whether files at such places can be read without Spark. `properties` are those of PyIceberg's
    file systems.
    """
    return local_path(path) is not None or _scheme(path) in _REMOTE


def local_path(path: str) -> str | None:
    """The path of a local file; None if it is elsewhere. Nothing is decoded: Hadoop's paths are not
    URLs.
    """
    scheme = _scheme(path)
    if not scheme:
        return path
    if scheme != "file":
        return None
    rest = path[len("file:") :]
    if not rest.startswith("//"):
        return rest
    host, slash, place = rest[2:].partition("/")
    return slash + place if host in {"", "localhost"} else None


def is_pattern(path: str) -> bool:
    """Whether DuckDB would take a path for a pattern, which names other files as well, or only
    others.
    """
    return any(sign in path for sign in "*?[")


def open_parquet(path: str, properties: Mapping[str, str]) -> pq.ParquetFile:
    """Raises: OSError, FileNotFoundError among them; ArrowInvalid for what is not Parquet."""
    options: dict[str, Any] = {"coerce_int96_timestamp_unit": "us"}
    local = local_path(path)
    if local is not None:
        # Measured: with a memory map, buffering ahead costs a copy and gains nothing.
        return pq.ParquetFile(local, memory_map=True, pre_buffer=False, **options)
    return pq.ParquetFile(_open(path, properties), pre_buffer=True, **options)


def read_range(path: str, offset: int, length: int, properties: Mapping[str, str]) -> bytes:
    """Raises: OSError; ValueError if the file ends before that."""
    local = local_path(path)
    with open(local, "rb") if local is not None else _open(path, properties) as source:
        source.seek(offset)
        content: bytes = source.read(length)
    if len(content) != length:
        raise ValueError("the file is too short")
    return content


def _scheme(path: str) -> str:
    scheme, colon, _ = path.partition(":")
    return scheme.lower() if colon and "/" not in scheme else ""


def _open(path: str, properties: Mapping[str, str]) -> Any:
    return _file_io(tuple(sorted(properties.items()))).new_input(path).open()


@functools.lru_cache(maxsize=32)
def _file_io(properties: tuple[tuple[str, str], ...]) -> Any:
    # Imported late: workers that read local files start sooner without it.
    from pyiceberg.io.pyarrow import PyArrowFileIO

    return PyArrowFileIO(dict(properties))
