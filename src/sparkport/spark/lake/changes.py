"""What a statement, or a whole transaction, does to the rows of a table: a value that fits any
later state of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from sparkport.catalog import Constraints
from sparkport.spark.iceberg.identifiers import Identifier
from sparkport.spark.iceberg.manifests import ManifestEntry
from sparkport.spark.iceberg.parts import FilePart
from sparkport.spark.iceberg.table_state import TableState

__all__ = ["NO_ROWS", "TableChange", "Located", "Location", "WrittenFile", "part_of"]

NO_ROWS = pa.array([], pa.int64())


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A Parquet file that no snapshot knows yet. Picklable."""

    path: str
    size: int
    rows: int
    spec_id: int = 0
    partition: tuple[Any, ...] | None = None
    """Values of the spec's fields, in their order, as Iceberg's files have them; None where the
    spec has no fields.
    """
    described: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)
    """As Iceberg's JSON of files has it; empty where Java must look into the file itself."""
    without_bounds: tuple[int, ...] = ()
    """Ids of the columns of which Java must then keep no bounds."""


@dataclass(frozen=True, slots=True, eq=False)
class Located:
    """Rows of one data file."""

    part: FilePart
    positions: pa.Array
    """Ascending."""
    row_ids: pa.Array
    """In the same order."""
    spec_id: int = 0
    partition: Mapping[int, Any] = field(default_factory=dict)
    """Of the file, by the partition field's id, as manifests have it."""
    replaced: tuple[ManifestEntry, ...] = ()
    """The delete files that a new delete vector of this file takes the place of."""
    sequence_number: int = 0
    """Of the commit that added the file."""


@dataclass(frozen=True, slots=True, eq=False)
class Location:
    """Where rows are in one state of a table, in no particular order of files."""

    found: tuple[Located, ...]
    missing: pa.Array
    """The ids of rows that are not there: never made, or deleted. Ascending."""


@dataclass(frozen=True, slots=True, eq=False)
class TableChange:
    """New files, and rows that are gone; an updated row is both, and its file brings its id
    along.
    """

    base: TableState
    """What the statement has seen."""
    files: tuple[WrittenFile, ...] = ()
    removed: pa.Array = field(default_factory=lambda: NO_ROWS)
    """The ids of rows of `base`, ascending and distinct."""
    location: Location | None = None
    """Where the removed rows are in `base`, all of them; None when nobody has looked."""
    gone: Mapping[str, pa.Array] = field(default_factory=dict)
    """Positions of rows in `files` that were removed again by the same transaction, by the file's
    path.
    """
    keys: Constraints = field(default_factory=Constraints)
    """The UNIQUE and PRIMARY KEY constraints that it can break."""

    @property
    def identifier(self) -> Identifier:
        return self.base.identifier

    @property
    def is_empty(self) -> bool:
        return not self.files and not len(self.removed)


def part_of(file: WrittenFile) -> FilePart:
    """A new file, to be read back."""
    return FilePart(file.path, file.rows, file.size, bytes=file.size)
