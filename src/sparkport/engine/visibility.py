"""What a caller sees of a table's rows: row filters and masks, computed by DuckDB per batch.

A client's filter is a hint. A rule is not: a rule that cannot be applied shows nothing, and is an
error.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from sparkport.catalog.access import Restrictions
from sparkport.catalog.filters.tree import ROWID
from sparkport.catalog.names import folded
from sparkport.engine.constraints.compute import packs_booleans
from sparkport.engine.constraints.expressions import column_types, expect_rule, used_columns
from sparkport.engine.constraints.review import Effort
from sparkport.engine.constraints.sandbox import in_small_chunks, quoted, sandbox
from sparkport.engine.databases import Check
from sparkport.engine.encodings import convert_array
from sparkport.errors import BadRequest, PermissionDenied

__all__ = ["Visibility"]

_log = logging.getLogger(__name__)


_MOST_KNOWN = 10_000
_known: dict[tuple[int, str, str], Visibility] = {}
_lock = threading.Lock()


class Visibility:
    """What a caller sees of a table with these columns. Thread-safe."""

    def __init__(self, restrictions: Restrictions, columns: pa.Schema, table: str) -> None:
        """Raises: PermissionDenied when the table lacks columns that the rules need."""
        self._table = table
        self._columns = columns
        self._values = {
            name: list(each) if isinstance(each, tuple) else each
            for name, each in restrictions.values.items()
        }
        try:
            names = {folded(name): name for name in columns.names}
            if len(names) < len(columns):
                raise BadRequest(
                    "two of its columns differ only in case, so that a rule may mean either"
                )
            self.masks = {names[folded(name)]: text for name, text in restrictions.masks.items()}
            self._conditions = restrictions.row_filters
            self.filtered_by = _columns_of(self._conditions, tuple(columns.names))
            self._used_by_masks = {
                name: _columns_of((text,), tuple(columns.names))
                for name, text in self.masks.items()
            }
            self._types = (
                dict(zip(columns.names, column_types(columns), strict=True)) if self.masks else {}
            )
            nothing = pa.RecordBatch.from_pylist([], columns)
            self._keep(nothing)
            self._shown(pa.Table.from_batches([nothing]), self.masks)
        except (KeyError, BadRequest, duckdb.Error) as error:
            raise self._inapplicable(error) from error
        self.arrow_schema = _with_nullable(columns, self.masks)
        """The columns as the caller sees them: masked columns are nullable."""

    @classmethod
    def of(cls, restrictions: Restrictions, columns: pa.Schema, table: str) -> Visibility:
        """Make a Visibility, or return the one made before of the same columns object.

        Raises: PermissionDenied.
        """
        key = (id(columns), table, repr(restrictions))
        with _lock:
            known = _known.get(key)
        # A Visibility keeps its columns alive, so an equal id means the same columns.
        if known is None or known._columns is not columns:
            known = cls(restrictions, columns, table)
            with _lock:
                _known[key] = known
                while len(_known) > _MOST_KNOWN:
                    del _known[next(iter(_known))]
        return known

    def shows(self, name: str) -> bool:
        """Whether the caller sees the unmasked values of the column of exactly that name."""
        return name not in self.masks and (name == ROWID or name in self._columns.names)

    def needed_for(self, columns: Sequence[str] | None) -> tuple[str, ...] | None:
        """The columns that must be read to show these; None means all."""
        if columns is None:
            return None
        wanted = {*columns, *self.filtered_by}
        for name in columns:
            wanted.update(self._used_by_masks.get(name, ()))
        return tuple(name for name in self._columns.names if name in wanted)

    def rows(self, batch: pa.RecordBatch, check: Check | None = None) -> pa.RecordBatch:
        """The rows that the caller sees, with masked values.

        Raises: PermissionDenied; LimitExceeded; what `check` raises.
        """
        keep = self.keep(batch, check)
        return self.masked(batch if keep is None else batch.filter(keep), check)

    def keep(self, batch: pa.RecordBatch, check: Check | None = None) -> pa.BooleanArray | None:
        """TRUE for each row that the caller sees, never NULL; None if it sees all.

        Raises: PermissionDenied; LimitExceeded; what `check` raises.
        """
        try:
            return self._keep(batch, check)
        except (duckdb.Error, BadRequest) as error:
            raise self._inapplicable(error) from error

    def masked(self, batch: pa.RecordBatch, check: Check | None = None) -> pa.RecordBatch:
        """All rows of the batch, with masked values.

        Raises: PermissionDenied; LimitExceeded; what `check` raises.
        """
        names = [name for name in self.masks if name in batch.schema.names]
        if not names:
            return batch
        try:
            shown = self._shown(pa.Table.from_batches([batch]), names, check)
        except (duckdb.Error, BadRequest) as error:
            raise self._inapplicable(error) from error
        fields = _with_nullable(batch.schema, names)
        arrays = [
            shown.get(field.name, batch.column(index)) for index, field in enumerate(batch.schema)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=fields)

    def _keep(self, batch: pa.RecordBatch, check: Check | None = None) -> pa.BooleanArray | None:
        if not self._conditions:
            return None
        condition = " AND ".join(f"(\n{text}\n)" for text in self._conditions)
        rows = pa.Table.from_batches([batch]).select(
            list(self.filtered_by) or batch.schema.names[:1]
        )
        # As a number: without loss, DuckDB sends booleans in a type of its own.
        kept = self._compute(
            f"CAST(CASE WHEN {condition} THEN 1 ELSE 0 END AS TINYINT)",
            self._conditions,
            rows,
            check,
        )
        if len(kept) != batch.num_rows:
            raise BadRequest("a row filter does not give one truth value for each row")
        return pc.equal(kept, 1)

    def _shown(
        self, rows: pa.Table, names: Iterable[str], check: Check | None = None
    ) -> dict[str, pa.Array]:
        shown = {}
        for name in names:
            needed = list(self._used_by_masks[name]) or [name]
            text = f"CAST((\n{self.masks[name]}\n) AS {self._types[name]})"
            values = self._compute(text, (self.masks[name],), rows.select(needed), check)
            if len(values) != rows.num_rows:
                raise BadRequest("a mask does not give one value for each row")
            target = self._columns.field(name).type
            shown[name] = convert_array(values, target, name, from_duckdb=packs_booleans())
        return shown

    def _compute(
        self, expression: str, reviewed: Sequence[str], rows: pa.Table, check: Check | None
    ) -> pa.Array:
        query = f"SELECT {expression} AS value FROM rows AS {quoted(self._table)}"
        efforts = [expect_rule(text, "a rule", self._columns.names) for text in reviewed]
        effort = Effort(sum(each.times for each in efforts), sum(each.fixed for each in efforts))
        with sandbox(check, rows=in_small_chunks(rows, effort)) as connection:
            (statement,) = connection.extract_statements(query)
            # An attribute that the caller does not have is NULL, which equals nothing.
            values: dict[str, Any] = {
                name: self._values.get(name) for name in statement.named_parameters
            }
            column = connection.sql(query, params=values).to_arrow_table().column(0)
        return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)

    def _inapplicable(self, error: Exception) -> PermissionDenied:
        _log.warning(
            "the rules about table %s cannot be applied: %s",
            self._table,
            str(error).splitlines()[:1],
        )
        return PermissionDenied(
            f"what you may see of table {self._table} cannot be told for this version of it: ask "
            f"its administrator"
        )


@lru_cache(maxsize=1024)
def _columns_of(expressions: tuple[str, ...], columns: tuple[str, ...]) -> tuple[str, ...]:
    """The columns that the expressions use. Raises: BadRequest."""
    for text in expressions:
        expect_rule(text, "a rule", columns)
    used = {name for text in expressions for name in used_columns(text, columns)}
    return tuple(name for name in columns if name in used)


def _with_nullable(columns: pa.Schema, names: Collection[str]) -> pa.Schema:
    fields = [field.with_nullable(True) if field.name in names else field for field in columns]
    return pa.schema(fields, metadata=columns.metadata)
