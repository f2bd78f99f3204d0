"""The order in which rows are written when files are joined: `day, customer DESC`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from sparkport.errors import BadRequest
from sparkport.spark.iceberg.table_state import TableState
from sparkport.spark.iceberg.types.declared import natural_type

__all__ = ["RowOrder", "expect_sort", "row_order"]

_ITEM = re.compile(
    r'\s*(?:"(?P<double>(?:[^"]|"")+)"|`(?P<back>(?:[^`]|``)+)`|(?P<plain>[^\W\d][\w$]*))'
    r"(?:\s+(?P<direction>ASC|DESC))?(?:\s+NULLS\s+LAST)?\s*(?P<end>,|$)",
    re.IGNORECASE,
)
_RUN_BYTES = 256 * 1024 * 1024
"""Rows that are sorted at a time, in memory."""
_STEP = 65_536


@dataclass(frozen=True, slots=True)
class RowOrder:
    """Columns by their stored names, and whether their values ascend. NULLs come last."""

    keys: tuple[tuple[str, bool], ...]

    def applied(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows in this order; of very many, as many at a time as memory has room for."""
        if not self.keys:
            yield from batches
            return
        run: list[pa.RecordBatch] = []
        size = 0
        for batch in batches:
            run.append(batch)
            size += batch.nbytes
            if size >= _RUN_BYTES:
                yield from self._sorted(run)
                run, size = [], 0
        yield from self._sorted(run)

    def _sorted(self, run: Sequence[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if not run:
            return
        rows = pa.Table.from_batches(run).combine_chunks()
        indices = _sort_indices([rows.column(name) for name, _ in self.keys], self.keys)
        for start in range(0, len(indices), _STEP):
            yield from rows.take(indices.slice(start, _STEP)).combine_chunks().to_batches()


def expect_sort(state: TableState, text: str) -> None:
    """Check an order for a table. Raises: BadRequest."""
    row_order(state, text)


def row_order(state: TableState, text: str) -> RowOrder:
    """The order that a text such as `day, "my customer" DESC` means for a table.

    Names are compared as elsewhere, without regard to case. An empty text is no order. Raises:
    BadRequest for what is no order, names no column, or one whose values have no order.
    """
    keys: dict[str, bool] = {}
    for name, ascends in _items(text):
        position = state.definition.position(name)
        if position is None:
            raise BadRequest(f"sort: table {state.identifier} has no column {name}")
        stored = state.schema.fields[position]
        if stored.name in keys:
            raise BadRequest(f"sort: column {name} is named twice")
        try:
            _sort_indices([pa.chunked_array([], natural_type(stored.field_type))], [("", True)])
        except (pa.ArrowException, TypeError) as error:
            raise BadRequest(
                f"sort: column {name} of table {state.identifier} has values without an order: "
                "name columns of numbers, texts or times"
            ) from error
        keys[stored.name] = ascends
    return RowOrder(tuple(keys.items()))


def _items(text: str) -> Iterator[tuple[str, bool]]:
    """The names of columns in a text, and whether their values ascend."""
    start = 0
    while text.strip():
        found = _ITEM.match(text, start)
        if found is None:
            raise BadRequest("sort names columns, such as 'day, customer DESC'")
        double, back, plain = found.group("double", "back", "plain")
        name = plain or (double or "").replace('""', '"') or back.replace("``", "`")
        yield name, (found["direction"] or "").upper() != "DESC"
        if found["end"] != ",":
            return
        start = found.end()


def _sort_indices(columns: Sequence[pa.ChunkedArray], keys: Sequence[tuple[str, bool]]) -> pa.Array:
    arrays = [_storage(column) for column in columns]
    names = [str(number) for number in range(len(arrays))]
    sort_keys = [
        (name, "ascending" if ascends else "descending")
        for name, (_, ascends) in zip(names, keys, strict=True)
    ]
    return pc.sort_indices(pa.table(arrays, names), sort_keys=sort_keys)


def _storage(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The values without an extension type, which Arrow does not sort."""
    kind = column.type
    if not isinstance(kind, pa.BaseExtensionType):
        return column
    return pa.chunked_array([each.storage for each in column.chunks], kind.storage_type)
