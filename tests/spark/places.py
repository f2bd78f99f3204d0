"""Where the lakes of tests are: a kind of catalog over a kind of store."""

from __future__ import annotations

import re
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

from sparkport.spark.jvm.session.embedded import need_jars
from sparkport.spark.jvm.session.jars import AWS, POSTGRES, SQLITE
from sparkport.spark.jvm.session.source import LakeSource

__all__ = ["BUCKETS", "Folders", "Place", "need_every_jar", "path_of"]

BUCKETS: dict[str, Path] = {}
"""The folders in which a server of this process keeps the objects of its buckets."""


_METADATA = "SELECT metadata_location FROM iceberg_tables WHERE table_name = ?"


class Place(ABC):
    """Has any number of lakes, which share nothing."""

    is_read_directly = True
    """Whether DuckDB reads files there by itself; from S3 it takes an extension, httpfs."""

    options: Mapping[str, str] = {}
    """What others need to read files there, by the names of Iceberg's Java."""

    @abstractmethod
    def source(self, name: str) -> LakeSource:
        """The source of a lake, by its name. It is empty when it is asked for first."""

    @abstractmethod
    def folder(self, name: str) -> Path:
        """Where the files of a lake can be seen."""

    @abstractmethod
    def metadata(self, name: str, table: str) -> str:
        """The location of the metadata of a table, by its last name, as the catalog has it now."""


class Folders(Place):
    """Lakes in folders of this machine, with their catalogs in SQLite."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def source(self, name: str) -> LakeSource:
        return LakeSource(warehouse=str(self.folder(name)))

    def folder(self, name: str) -> Path:
        return self._root / name

    def metadata(self, name: str, table: str) -> str:
        with closing(sqlite3.connect(self.folder(name) / "catalog.db")) as catalog:
            return str(catalog.execute(_METADATA, (table,)).fetchone()[0])


def path_of(location: str) -> Path:
    """Where a file or folder of a table can be seen, whatever holds it."""
    bucket, _, key = location.removeprefix("s3://").partition("/")
    return BUCKETS[bucket] / key if "s3://" in location else Path(re.sub("^file:/+", "/", location))


def need_every_jar() -> None:
    """Have Spark start with the jars of all places: it cannot get others later."""
    need_jars((SQLITE, POSTGRES, AWS))
