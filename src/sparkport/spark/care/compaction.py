"""Join small files of a table, and write files without the rows that were deleted from them.

Strategy: files are joined with others of their partition and of about their size, when there are
enough of these. So a row is written again only when the file that it is in has grown eightfold:
what is written in all grows with the logarithm of the table. A file of which many rows are deleted
is written anew by itself. Nothing is locked while rows are copied; the commit takes what others
have done meanwhile into account (replacement.py).
"""

from __future__ import annotations

import logging
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import pyarrow as pa

from sparkport.errors import BadRequest, NotFound, PreconditionFailed
from sparkport.spark.care.file_counts import is_small
from sparkport.spark.care.replacement import replace_files
from sparkport.spark.care.rewritten_rows import RESERVED_NAMES, rows_of, write_rows
from sparkport.spark.care.row_order import RowOrder, row_order
from sparkport.spark.iceberg.bounds import bounds_of_row_ids
from sparkport.spark.iceberg.plan import DataFile, plan_files
from sparkport.spark.iceberg.table_state import TableState, has_row_lineage
from sparkport.spark.lake.care_settings import CareSettings
from sparkport.spark.lake.changes import WrittenFile
from sparkport.spark.lake.lake import Lake
from sparkport.spark.lake.outcomes import OutcomeUnknown
from sparkport.spark.write.data_files import can_write

__all__ = [
    "Compacted",
    "Compaction",
    "compact",
    "compaction_need",
    "is_for_this_process",
    "order_of",
]

_log = logging.getLogger(__name__)

_FACTOR = 8
"""How much larger the files of a size class are than those of the class below; also how many files
of a class make it worth to join them, but for the lowest.
"""
_CLASSES = 3
"""The lowest class has files below the wanted size divided by so many factors."""
_MANY_DELETED = 0.2
"""The share of a file's rows that are deleted which makes it worth to write the file anew."""
_ROWS_OF_SMALL_FILES = 1000
"""Files of the lowest class are written anew for so many deleted rows, or for some files."""
_MOST_FILES = 2000
_MOST_SORTED = 64 * 1024 * 1024
"""Bytes of files whose rows are sorted together."""
_PAUSE_SECONDS = 0.02
"""How often the copying looks whether the machine is wanted, about."""

_Group: TypeAlias = "tuple[int, str]"
"""A partition spec, and the values of a partition."""


@dataclass(frozen=True, slots=True, eq=False)
class Compaction:
    """Files of a table that are worth to be written anew together."""

    state: TableState
    files: tuple[DataFile, ...]
    """In the order of their row ids."""
    why: str
    all_bytes: int
    """The size of all files that are worth it, of which `files` may be only some."""

    @property
    def bytes(self) -> int:
        return sum(each.entry.size for each in self.files)


@dataclass(frozen=True, slots=True)
class Compacted:
    """What was done."""

    files_before: int
    files_after: int
    bytes_before: int
    bytes_after: int
    rows: int
    """Rows that were copied."""


# ----------------------------------------------------------------------------- what is worth it


def compaction_need(state: TableState, settings: CareSettings) -> Compaction | None:
    """The next files of a table that are worth to be written anew; None if there are none.

    Only what is in memory is looked at, or manifests are read once. A table that only Spark can
    rewrite is not for this process (spark_compaction.py). Raises: PreconditionFailed when metadata
    files are missing or damaged.
    """
    files = _files(state)
    if files is None:
        return None
    if settings.sort.strip():
        settings = replace(settings, file_bytes=min(settings.file_bytes, _MOST_SORTED))
    groups = _groups(state, files).values()
    due = [each for group in groups if (each := _Due.of(group, settings)).files]
    if not due:
        return None
    small, deleted = (
        sum(len(each.small) for each in due),
        sum(len(each.deleted) for each in due),
    )
    reasons = [
        *([f"{small:,} small files"] if small else []),
        *([_of_deleted(deleted)] if deleted else []),
    ]
    total = sum(file.entry.size for each in due for file in each.files)
    chosen = tuple(_bin(due, settings.file_bytes))
    return Compaction(state, chosen, ", ".join(reasons), total)


def is_for_this_process(state: TableState) -> bool:
    """Whether this process can rewrite a table's files, and not only Spark.

    Raises: PreconditionFailed when metadata files are missing or damaged.
    """
    return _files(state) is not None


def _can_rewrite(state: TableState) -> bool:
    """Whether this process can rewrite files of a table, if they are all of the usual kind."""
    return (
        state.snapshot is not None
        and has_row_lineage(state.metadata.format_version)
        and state.snapshot.first_row_id is not None  # else it was upgraded, and not changed since
        and not RESERVED_NAMES & {each.name for each in state.schema.fields}
        and can_write(state)
    )


def _files(state: TableState) -> tuple[DataFile, ...] | None:
    """All files; None where they are not for this process."""
    if not _can_rewrite(state):
        return None
    files = plan_files(state)
    if files is None:
        return None
    columns, specs = state.schema.field_ids, state.metadata.specs()
    lost = {
        spec_id: {each.field_id for each in spec.fields if each.source_id not in columns}
        for spec_id, spec in specs.items()
    }
    for each in files:
        entry = each.entry
        if each.part.position_deletes or each.part.first_row_id is None:
            return None
        # Iceberg does not know the types of dropped columns any more, so it finds no such file.
        if any(entry.partition.get(field_id) is not None for field_id in lost[entry.spec_id]):
            return None
    return files


def _of_deleted(files: int) -> str:
    return f"{files:,} file{'s' if files > 1 else ''} of which many rows are deleted"


def _groups(state: TableState, files: Sequence[DataFile]) -> dict[_Group, list[DataFile]]:
    """Files that may become one, by partition. Those of an old spec are divided anew anyway."""
    found: dict[_Group, list[DataFile]] = defaultdict(list)
    current = state.metadata.default_spec_id
    for each in files:
        entry = each.entry
        values = repr(entry.partition) if entry.spec_id == current else ""
        found[entry.spec_id, values].append(each)
    return found


@dataclass(frozen=True, slots=True, eq=False)
class _Due:
    """Files of a group that are worth to be written anew."""

    small: list[DataFile]
    """In the order of their row ids."""
    deleted: list[DataFile]
    """Others, of which many rows are deleted."""

    @classmethod
    def of(cls, group: Sequence[DataFile], settings: CareSettings) -> _Due:
        classes = [_size_class(each, settings) for each in group]
        counts = Counter(each for each in classes if each is not None)
        enough = min(_FACTOR, settings.small_files)
        worth = [
            each
            for each, count in counts.items()
            if count >= (enough if each else settings.small_files)
        ]
        highest = max(worth, default=-1)
        small = [each is not None and each <= highest for each in classes]
        deleted = _many_deleted(group, classes)
        pairs = list(zip(group, small, strict=True))
        return cls(
            sorted((file for file, is_small in pairs if is_small), key=_first_row_id),
            [file for file, is_small in pairs if not is_small and file.part.path in deleted],
        )

    @property
    def files(self) -> list[DataFile]:
        return [*self.deleted, *self.small]


def _size_class(file: DataFile, settings: CareSettings) -> int | None:
    """The size class of a file, from 0; None for a large one."""
    if not is_small(file.entry, settings):
        return None
    size = file.entry.size
    bound, found = settings.file_bytes / _FACTOR**_CLASSES, 0
    while size >= bound:
        bound, found = bound * _FACTOR, found + 1
    return found


def _many_deleted(group: Sequence[DataFile], classes: Sequence[int | None]) -> set[str]:
    """The paths of files with many deleted rows. Small ones are left until there are some."""
    found: set[str] = set()
    waiting: dict[str, int] = {}
    for file, size_class in zip(group, classes, strict=True):
        rows = 0 if file.part.vector is None else file.part.vector.rows
        if rows and rows >= _MANY_DELETED * file.part.rows:
            if size_class == 0:
                waiting[file.part.path] = rows
            else:
                found.add(file.part.path)
    if len(waiting) >= _FACTOR or sum(waiting.values()) >= _ROWS_OF_SMALL_FILES:
        found |= waiting.keys()
    return found


def _first_row_id(file: DataFile) -> int:
    """The lowest row id of a file, as far as it is known."""
    bounds = bounds_of_row_ids(file.entry, file.part.may_hold_row_ids)
    known = bounds.lower if isinstance(bounds.lower, int) else file.part.first_row_id
    return -1 if known is None else known


def _bin(due: Sequence[_Due], most_bytes: int) -> Iterator[DataFile]:
    """Files for one commit: of one group after the other, those with the most files first."""
    taken, size = 0, 0
    for group in sorted(due, key=lambda each: -len(each.deleted) - len(each.small)):
        some: list[DataFile] = []
        for file in (*group.deleted, *group.small):
            if taken and (taken >= _MOST_FILES or size + file.entry.size > most_bytes):
                break
            some.append(file)
            taken, size = taken + 1, size + file.entry.size
        if len(some) > 1 or group.deleted:  # a single small file would stay what it is
            yield from sorted(some, key=_first_row_id)


# --------------------------------------------------------------------------------------- doing it


def compact(
    lake: Lake,
    need: Compaction,
    settings: CareSettings,
    pause: Callable[[], None],
    report: Callable[[float], None],
) -> Compacted | None:
    """Write files anew; None when the table has changed so much meanwhile that nothing was done.

    `pause` is called often, while nothing is locked; it may wait, or raise to end it. `report` is
    told how far it is, between 0 and 1. Rows, their ids and the numbers of their commits stay.
    Whatever happens, no new file is left that no snapshot leads to, but for those of a server that
    is killed, which the next one removes. Raises: what `pause` raises; PreconditionFailed when
    files are missing or damaged, or the table has lost a column that it is sorted by; LimitExceeded
    when the storage is full; PermissionDenied; OutcomeUnknown.
    """
    state = need.state
    order = order_of(state, settings)
    copying = _Copying(need, pause, report)
    staging = lake.staging.begin(state.identifier, state)
    is_made: bool | None = False
    written: list[WrittenFile] = []
    try:
        rows = order.applied(rows_of(state, need.files, lake.settings.batch_rows, copying.read))
        written += write_rows(state, staging, copying.counted(rows))
        copying.expect_all()
        pause()
        is_made = replace_files(lake, state, need.files, written, staging)
    except OutcomeUnknown:
        is_made = None
        raise
    except PreconditionFailed:
        if not _is_gone(lake, state):  # else its files are gone, too
            raise
        _log.info("table %s: it was dropped while its files were joined", state.identifier)
    finally:
        staging.end(is_made)
    if not is_made:
        return None
    after = sum(each.size for each in written)
    return Compacted(len(need.files), len(written), need.bytes, after, copying.rows)


def order_of(state: TableState, settings: CareSettings) -> RowOrder:
    """The order in which a table's rows are written. Raises: PreconditionFailed."""
    try:
        return row_order(state, settings.sort)
    except BadRequest as error:
        raise PreconditionFailed(
            f"files of table {state.identifier} are not joined: {error.message}; call set_care "
            "with another sort"
        ) from error


def _is_gone(lake: Lake, state: TableState) -> bool:
    try:
        now = lake.current(state.identifier)
    except NotFound:
        return True
    return bool(now.metadata.table_uuid != state.metadata.table_uuid)


class _Copying:
    """Counts what is copied, and makes room for others."""

    def __init__(
        self, need: Compaction, pause: Callable[[], None], report: Callable[[float], None]
    ) -> None:
        self.rows = 0
        self._need = need
        self._pause = pause
        self._report = report
        self._bytes = need.bytes
        self._read = 0
        self._looked = float("-inf")

    def read(self, size: int) -> None:
        """Take note that so many bytes more are read. Raises: what `pause` raises."""
        self._read += size
        self._report(self._read / max(self._bytes, 1))
        if time.monotonic() - self._looked >= _PAUSE_SECONDS:
            self._pause()
            self._looked = time.monotonic()

    def counted(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        self.read(0)
        for batch in batches:
            self.rows += batch.num_rows
            yield batch

    def expect_all(self) -> None:
        """Raises: PreconditionFailed when there are other rows than the metadata say."""
        parts = [each.part for each in self._need.files]
        expected = sum(each.rows - (each.vector.rows if each.vector else 0) for each in parts)
        if self.rows != expected:
            raise PreconditionFailed(
                f"files of table {self._need.state.identifier} have {self.rows} rows where its "
                f"metadata say {expected}: restore the files, or roll the table back"
            )
