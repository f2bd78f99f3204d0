"""Rows in new files that the table had before: updated ones, and some that were only copied.

Where a table is changed by copy-on-write, Spark writes whole files anew. Rows keep their ids then,
and those that the statement has not touched keep the number of the commit that wrote their values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from sparkport.spark.iceberg.manifests import ROW_ID_FIELD
from sparkport.spark.iceberg.positions import among
from sparkport.spark.lake.changes import TableChange, part_of
from sparkport.spark.write.reserved_columns import LAST_UPDATED_FIELD, ReservedColumns

__all__ = ["KeptRows", "kept_rows"]


@dataclass(frozen=True, slots=True)
class KeptRows:
    """The rows of a change's new files that are not new."""

    count: int = 0
    copied: Mapping[str, pa.Array] = field(default_factory=dict)
    """The positions of those that are as they were, by the path of the file."""

    @property
    def updated(self) -> int:
        return self.count - sum(map(len, self.copied.values()))


def kept_rows(change: TableChange) -> KeptRows:
    """The rows that a change removes and adds again.

    Raises: OSError, ArrowInvalid when files are missing or damaged.
    """
    if not len(change.removed):
        return KeptRows()
    columns = ReservedColumns(change.base, change.base.file_properties)
    count, copied = 0, {}
    for file in change.files:
        part = part_of(file)
        if not columns.has(part, ROW_ID_FIELD):
            continue
        places = [
            pc.add(pc.indices_nonzero(among(ids, change.removed)).cast("int64"), start)
            for start, ids in columns.row_ids(part, change.removed)
        ]
        kept = pa.concat_arrays([pa.array([], pa.int64()), *places])
        count += len(kept)
        same = kept.filter(columns.at(part, LAST_UPDATED_FIELD, kept).is_valid())
        if len(same):
            copied[file.path] = same
    return KeptRows(count, copied)
