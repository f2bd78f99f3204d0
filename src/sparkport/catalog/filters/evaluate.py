"""Exact evaluation of filters on Arrow batches, by DuckDB.

Strategy: DuckDB only computes a mask. The columns the filter reads go in without a copy, renamed c0, c1, …, so that no
name needs quoting and no two are equal but for case; the rows are then taken in Arrow, so that types, dictionaries and
metadata leave as they came. Whatever goes wrong costs only rows that are sent in vain (airport §6.1).
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from sparkport.catalog.filters.database import can_reopen_streams, forget_database, open_cursor
from sparkport.catalog.filters.literals import Inexpressible, type_sql
from sparkport.catalog.filters.sql import render
from sparkport.catalog.filters.tree import ROWID, ColumnRef, Expression, Filter, Function, Lambda, children_of
from sparkport.catalog.filters.weaken import is_exact

if TYPE_CHECKING:
    from collections.abc import Iterator

    import duckdb

logger = logging.getLogger(__name__)


class Evaluator:
    """Applies a filter to the batches of one scan; made once per scan, used by any number of threads.

    `arrow_schema` is that of the batches, `rowid_column` the name of the field that holds the row id. Nothing here
    raises: what cannot be evaluated keeps its rows.
    """

    def __init__(self, row_filter: Filter, arrow_schema: pa.Schema, rowid_column: str | None = None) -> None:
        self._idle: list[_Session] = []
        self._lock = threading.Lock()
        self._tolerant = False
        self._positions: tuple[int, ...] = ()
        self._fields = pa.schema([])
        self._conditions: tuple[str, ...] = ()
        try:
            self._prepare(row_filter, arrow_schema, rowid_column)
        except Exception:  # noqa: BLE001 - a filter is a hint: at worst all rows are sent
            logger.debug("filter not evaluated", exc_info=True)

    @property
    def conditions(self) -> tuple[str, ...]:
        """The SQL of the conjuncts that are evaluated, over c0, c1, …; empty if every row is kept."""
        return self._conditions

    def mask(self, batch: pa.RecordBatch) -> pa.BooleanArray | None:
        """TRUE for the rows to keep, never NULL; None if every row is kept."""
        if not self._conditions:
            return None
        columns = self._columns_of(batch)
        if columns is None:
            return None
        session: _Session | None = None
        try:
            session = self._take_session()
            mask = self._evaluate(session, columns)
        except Exception as error:  # noqa: BLE001 - a filter is a hint: at worst all rows are sent
            logger.debug("filter not evaluated on a batch", exc_info=True)
            _after_failure(error)
            return None
        with self._lock:
            self._idle.append(session)
        return mask if mask is None or len(mask) == batch.num_rows else None

    def apply(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows to keep, in order, with the batch's own schema."""
        mask = self.mask(batch)
        if mask is None:
            return batch
        kept = mask.true_count
        if kept == batch.num_rows:
            return batch
        if kept == 0:
            return batch.slice(0, 0)
        try:
            return batch.filter(mask)
        except pa.ArrowException:
            # Arrow cannot filter every type (run-end encoded, some views).
            logger.debug("filter not applied to a batch", exc_info=True)
            return batch

    def _prepare(self, row_filter: Filter, arrow_schema: pa.Schema, rowid_column: str | None) -> None:
        exact = row_filter.weaken(is_exact)
        positions = _positions(exact, arrow_schema, rowid_column)
        order = {name: number for number, name in enumerate(positions)}
        self._positions = tuple(positions.values())
        fields = [arrow_schema.field(position).with_name(f"c{n}") for n, position in enumerate(self._positions)]
        casts = _casts(exact, fields, order)
        # A conjunct over a column that DuckDB cannot read must not take the others down.
        readable = [number for number in range(len(fields)) if number in casts]
        names = {number: f"c{place}" for place, number in enumerate(readable)}
        self._positions = tuple(self._positions[number] for number in readable)
        self._fields = pa.schema([fields[number].with_name(names[number]) for number in readable])

        def column(reference: ColumnRef) -> str:
            number = order.get(reference.name)
            if number is None or number not in casts:
                raise Inexpressible(f"column {reference.name}")
            target = casts[number].get(reference.type)
            if target is None:
                raise Inexpressible(f"column {reference.name} has another type")
            return target.format(names[number])

        session = self._take_session()
        conditions = []
        for conjunct in exact.conjuncts:
            try:
                condition = render(conjunct, column)
                checks = _checks(conjunct, column)
                if session.binds(condition, checks):
                    conditions.append(condition)
            except Inexpressible:
                continue
        self._conditions = tuple(conditions)
        with self._lock:
            self._idle.append(session)

    def _take_session(self) -> _Session:
        with self._lock:
            if self._idle:
                return self._idle.pop()
        return _Session(self._fields)

    def _columns_of(self, batch: pa.RecordBatch) -> pa.RecordBatch | None:
        if self._positions and self._positions[-1] >= batch.num_columns and max(self._positions) >= batch.num_columns:
            return None
        arrays = [batch.column(position) for position in self._positions]
        if any(array.type != wanted for array, wanted in zip(arrays, self._fields.types, strict=True)):
            return None
        if not arrays:
            # DuckDB must still see how many rows there are.
            return pa.record_batch([pa.nulls(batch.num_rows)], schema=_NO_COLUMNS)
        return pa.record_batch(arrays, schema=self._fields)

    def _evaluate(self, session: _Session, columns: pa.RecordBatch) -> pa.BooleanArray | None:
        if not self._tolerant:
            try:
                return session.compute(f"({' AND '.join(self._conditions)}) IS TRUE", columns)
            except Exception as error:  # noqa: BLE001 - tried again below
                _raise_if_fatal(error)
                # Most likely a cast that fails on some row, which the other conjuncts may well exclude.
                self._tolerant = True
        masks = []
        for condition in self._conditions:
            try:
                # A row on which the conjunct fails is kept.
                masks.append(session.compute(f"coalesce(TRY({condition} IS TRUE), true)", columns))
            except Exception as error:  # noqa: BLE001 - this conjunct is left to the client
                _raise_if_fatal(error)
                logger.debug("conjunct not evaluated on a batch", exc_info=True)
        if not masks:
            return None
        result = masks[0]
        for mask in masks[1:]:
            result = pc.and_(result, mask)
        return result
