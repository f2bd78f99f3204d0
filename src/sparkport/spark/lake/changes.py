"""What a statement or a transaction does to the rows of a table, as a value.

A change can be committed on top of later states of the table, too.
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

__all__ = [
    "NO_ROWS",
    "HeldRows",
    "TableChange",
    "Located",
    "Location",
    "WrittenFile",
    "WrittenVector",
    "part_of",
]

NO_ROWS = pa.array([], pa.int64())


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A Parquet file that is not in any snapshot yet. Picklable."""

    path: str
    size: int
    rows: int
    spec_id: int = 0
    partition: tuple[Any, ...] | None = None
    """The values of the spec's fields, in their order and as Iceberg's files have them.

    None where the spec has no fields.
    """
    described: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)
    """The file in Iceberg's JSON form; empty where Java must read the file's footer itself."""
    without_bounds: tuple[int, ...] = ()
    """Ids of the columns for which Java must not keep bounds."""


@dataclass(frozen=True, slots=True, eq=False)
class HeldRows:
    """New rows of a small statement, which are written to a file when they are committed."""

    rows: pa.Table
    """With the columns of the table's data files."""
    with_row_ids: bool
    """Whether the rows bring along their `_row_id`."""


@dataclass(frozen=True, slots=True, eq=False)
class Located:
    """Rows of a data file."""

    part: FilePart
    positions: pa.Array
    """Ascending."""
    row_ids: pa.Array
    """In the order of `positions`."""
    spec_id: int = 0
    partition: Mapping[int, Any] = field(default_factory=dict)
    """The partition of the file, by the id of the partition field, as manifests have it."""
    replaced: tuple[ManifestEntry, ...] = ()
    """The delete files that a new delete vector of this file replaces."""
    sequence_number: int = 0
    """Number of the commit that added the file."""


@dataclass(frozen=True, slots=True)
class WrittenVector:
    """A delete vector that is in no snapshot yet: a blob of a Puffin file."""

    path: str
    described: Mapping[str, Any]
    """The vector in Iceberg's JSON form of files."""
    replaced: tuple[Mapping[str, Any], ...]
    """The delete files that this vector replaces, in Iceberg's JSON form of files."""


@dataclass(frozen=True, slots=True, eq=False)
class Location:
    """Where rows are in a state of a table; the files are in no particular order."""

    found: tuple[Located, ...]
    missing: pa.Array
    """Ids of rows that do not exist: they never did, or are deleted. Ascending."""


@dataclass(frozen=True, slots=True, eq=False)
class TableChange:
    """New rows, in files or not written yet, and removed rows.

    An updated row is both: removed, and a new row that keeps its id.
    """

    base: TableState
    """The state that the statement read."""
    files: tuple[WrittenFile, ...] = ()
    removed: pa.Array = field(default_factory=lambda: NO_ROWS)
    """Ids of rows of `base`, ascending and distinct."""
    location: Location | None = None
    """Where the removed rows are in `base`, all of them; None when that was not looked up."""
    gone: Mapping[str, pa.Array] = field(default_factory=dict)
    """Positions of rows in `files` that the same transaction removed again, by path of the file."""
    keys: Constraints = field(default_factory=Constraints)
    """The UNIQUE and PRIMARY KEY constraints that the change can violate."""
    held: tuple[HeldRows, ...] = ()
    """New rows that are in no file yet."""
    scratch: tuple[str, ...] = ()
    """Working branches that have `files`: the commit that adds the files removes the branches."""
    is_exact: bool = False
    """Whether it may be made only if nobody has changed a row of the table since `base`."""

    @property
    def identifier(self) -> Identifier:
        return self.base.identifier

    @property
    def is_empty(self) -> bool:
        return not self.adds_rows and not len(self.removed)

    @property
    def adds_rows(self) -> bool:
        return bool(self.files or self.held)

    @property
    def size(self) -> int:
        """The number of rows that are added or removed."""
        in_files = sum(each.rows for each in self.files)
        return in_files + sum(int(each.rows.num_rows) for each in self.held) + len(self.removed)


def part_of(file: WrittenFile) -> FilePart:
    """The part that reads a new file back."""
    return FilePart(file.path, file.rows, file.size, bytes=file.size)
