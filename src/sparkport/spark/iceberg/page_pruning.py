"""Which rows of a row group may match a condition, by the bounds of the columns' pages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise

from pyiceberg.types import IcebergType

from sparkport.spark.iceberg.bounds import Bounds, bounds_in_pages
from sparkport.spark.iceberg.conditions import Condition
from sparkport.spark.iceberg.data_file import DataFile
from sparkport.spark.iceberg.page_index import pages_of
from sparkport.spark.iceberg.pages import Span

__all__ = ["spans_that_may_match"]


def spans_that_may_match(
    file: DataFile,
    group: int,
    condition: Condition,
    columns: Mapping[int, tuple[int, IcebergType]],
    bounds_in_group: Callable[[int], Bounds],
) -> list[Span] | None:
    """The rows that may match, in ascending spans; None where that is not known.

    `columns` are leaf columns and their types by field id. Raises: OSError.
    """
    pages = pages_of(file, group, [leaf for leaf, _ in columns.values()])
    if pages is None:
        return None
    metadata = file.metadata.row_group(group)
    bounds = {
        field_id: (each, known)
        for (field_id, (leaf, kind)), each in zip(columns.items(), pages, strict=True)
        if each.bounds is not None
        and (known := bounds_in_pages(metadata.column(leaf).statistics, kind, each.bounds))
    }
    spans: list[Span] = []
    cuts = {start for each, _ in bounds.values() for start in each.starts}
    for first, end in pairwise(sorted({*cuts, metadata.num_rows})):

        def bounds_of(field_id: int, row: int = first) -> Bounds:
            if field_id not in bounds:
                return bounds_in_group(field_id)
            each, known = bounds[field_id]
            return known[each.page_of(row)]

        if not condition.may_match(bounds_of):
            continue
        if spans and spans[-1][1] == first:
            spans[-1] = spans[-1][0], end
        else:
            spans.append((first, end))
    return spans if bounds else None
