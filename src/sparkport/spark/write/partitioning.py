"""Divide rows by the partition that they belong to.

Strategy: every row gets a small number that stands for its partition. Sorted by that number, the
rows of a partition are a slice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias
from urllib.parse import quote_plus

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.partitioning import PartitionField
from pyiceberg.transforms import VoidTransform
from pyiceberg.types import IcebergType, NestedField, StructType, UnknownType

from sparkport.spark.iceberg.table_state import TableState
from sparkport.spark.iceberg.transforms import Labels, transform_of

__all__ = ["Partitioning", "Values", "partitioning_of"]

Values: TypeAlias = tuple[Any, ...]
"""Values of a partition spec's fields, in their order.

They are as in Iceberg's files: a date, for instance, is a number of days.
"""
_LONGEST_NAME = 200
"""Most bytes of a folder's name; file systems take 255."""


@dataclass(frozen=True, slots=True, eq=False)
class _Field:
    field: PartitionField
    kind: IcebergType
    """The type of the column."""
    path: tuple[str, ...]
    """The names that lead to the column, outermost first; empty for a dropped column."""
    apply: Callable[[pa.Array], Labels]

    def labels(self, rows: pa.Table) -> Labels:
        column = (rows.column(self.path[0]) if self.path else rows.column(0)).combine_chunks()
        return self.apply(pc.struct_field(column, self.path[1:]) if len(self.path) > 1 else column)

    def folder(self, value: Any) -> str:
        shown = self.field.transform.to_human_string(self.kind, value)
        return f"{quote_plus(self.field.name, safe='')}={quote_plus(shown, safe='')}"


@dataclass(frozen=True, slots=True, eq=False)
class Partitioning:
    """How a table's rows are divided."""

    fields: tuple[_Field, ...]

    def split(self, rows: pa.Table) -> Iterator[tuple[Values, pa.Table]]:
        """Yield the rows of each partition, in their order. The tables share memory."""
        numbers, partitions = self._numbered(rows)
        if numbers is None:
            yield partitions[0], rows
            return
        together = rows.combine_chunks().take(pc.array_sort_indices(numbers))
        counts = {each["values"]: each["counts"] for each in pc.value_counts(numbers).to_pylist()}
        start = 0
        for number, values in enumerate(partitions):
            yield values, together.slice(start, counts[number])
            start += counts[number]

    def _numbered(self, rows: pa.Table) -> tuple[pa.Array | None, list[Values]]:
        """For each row the number of its partition, and all partitions by number.

        The numbers are None when there is a single partition.
        """
        numbers: pa.Array | None = None
        partitions: list[Values] = [()]
        for field in self.fields:
            labels = field.labels(rows)
            if len(labels.values) == 1:
                partitions = [(*values, labels.values[0]) for values in partitions]
            elif numbers is None:
                numbers = labels.numbers
                partitions = [(*partitions[0], value) for value in labels.values]
            else:
                count = len(labels.values)
                pairs = pc.dictionary_encode(pc.add(pc.multiply(numbers, count), labels.numbers))
                numbers = pairs.indices.cast(pa.int64())
                partitions = [
                    (*partitions[pair // count], labels.values[pair % count])
                    for pair in pairs.dictionary.to_pylist()
                ]
        return numbers, partitions

    def folder(self, values: Values) -> str:
        """The folder of a partition's files, as Spark names it; "" where the name is impossible."""
        try:
            names = [field.folder(value) for field, value in zip(self.fields, values, strict=True)]
        except (OverflowError, ValueError):  # years that Python's dates do not have
            return ""
        return "" if any(len(name) > _LONGEST_NAME for name in names) else "/".join(names)


def partitioning_of(state: TableState) -> Partitioning | None:
    """How new rows of a table are divided; None where only Spark can tell."""
    columns = {each.field_id: (each, path) for each, path in _columns(state.schema.fields, ())}
    found = []
    for field in state.metadata.spec().fields:
        column, path = columns.get(field.source_id, (None, ()))
        kind = UnknownType() if column is None else column.field_type
        apply = transform_of(field.transform, kind)
        if apply is None or (column is None and not isinstance(field.transform, VoidTransform)):
            return None
        found.append(_Field(field, kind, path, apply))
    return Partitioning(tuple(found))


def _columns(
    fields: tuple[NestedField, ...], inside: tuple[str, ...]
) -> Iterator[tuple[NestedField, tuple[str, ...]]]:
    for field in fields:
        path = (*inside, field.name)
        yield field, path
        if isinstance(field.field_type, StructType):
            yield from _columns(field.field_type.fields, path)
