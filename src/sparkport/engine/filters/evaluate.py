"""Exact evaluation of filters on Arrow batches, by DuckDB.

Strategy: DuckDB only computes a mask. The columns that the filter reads go in without a copy; the
rows are then taken in Arrow, so that types, dictionaries and metadata stay as they were. An error
costs only rows that are sent in vain (airport §6.1).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from sparkport.catalog.filters.literals import LARGEST_TEXT, Inexpressible, type_sql
from sparkport.catalog.filters.sql import render
from sparkport.catalog.filters.tree import Expression, Filter, Function, Lambda, children_of, walk
from sparkport.catalog.filters.weaken import is_exact
from sparkport.engine.constraints.allowed import ARITHMETIC
from sparkport.engine.constraints.review import review
from sparkport.engine.databases import Check
from sparkport.engine.filters.columns import Columns, find_columns
from sparkport.engine.filters.plain import is_plain
from sparkport.engine.filters.session import Session, is_fatal
from sparkport.errors import BadRequest, LimitExceeded, SparkportError

logger = logging.getLogger(__name__)

MOST_EXPRESSIONS = 500
"""How many expressions are evaluated per batch.

DuckDB plans about twenty constants in a millisecond: a longer IN costs more than its rows.
"""


@dataclass(frozen=True, slots=True)
class Condition:
    """A conjunct that is evaluated."""

    text: str
    """Its SQL over c0, c1, …"""
    columns: Mapping[str, str]
    """The fields of the batches that it reads, by their names in the SQL."""
    is_plain: bool
    """Whether DuckDB may apply it while it reads a file: see `plain.py`."""


class Evaluator:
    """Applies a filter to the batches of one scan; any number of threads may use it.

    `arrow_schema` is that of the batches, `rowid_column` the name of the field that holds the row
    id. `check`, called from another thread, raises when the result is no longer waited for. Nothing
    here raises: rows are kept where the filter cannot be evaluated.
    """

    def __init__(
        self,
        row_filter: Filter,
        arrow_schema: pa.Schema,
        rowid_column: str | None = None,
        check: Check | None = None,
    ) -> None:
        self._lock = threading.Lock()
        self._check = check
        self._idle: list[Session] = []
        self._rows_may_fail = False
        self._columns: Columns | None = None
        self._conditions: tuple[Condition, ...] = ()
        try:
            exact = row_filter.weaken(is_exact)
            if exact.expressions:
                self._columns, session = find_columns(exact, arrow_schema, rowid_column, check)
                self._conditions = tuple(_conditions(exact, self._columns, session))
                self._idle.append(session)
        except Exception as error:  # a filter is a hint: at worst all rows are sent
            logger.debug("filter not evaluated", exc_info=True)
            is_fatal(error)

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """The evaluated conjuncts; empty if every row is kept."""
        return self._conditions

    def mask(self, batch: pa.RecordBatch) -> pa.BooleanArray | None:
        """TRUE for the rows to keep, never NULL; None if every row is kept."""
        if self._columns is None or not self._conditions:
            return None
        try:
            selected = self._columns.select(batch)
            mask = None if selected is None else self._compute(selected)
        except Exception as error:  # a filter is a hint: at worst all rows are sent
            logger.debug("filter not evaluated on a batch", exc_info=True)
            if isinstance(error, LimitExceeded):
                self._conditions = ()  # nor is it evaluated on any other batch
            if is_fatal(error):
                with self._lock:
                    self._idle.clear()
            return None
        return mask if mask is not None and len(mask) == batch.num_rows else None

    def apply(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows to keep, in order, in a batch of the same schema."""
        mask = self.mask(batch)
        if mask is None or mask.true_count == batch.num_rows:
            return batch
        if mask.true_count == 0:
            return batch.slice(0, 0)
        try:
            return batch.filter(mask)
        except pa.ArrowException:
            # Arrow cannot filter every type.
            logger.debug("mask not applied to a batch", exc_info=True)
            return batch

    def _compute(self, batch: pa.RecordBatch) -> pa.BooleanArray | None:
        with self._lock:
            session = self._idle.pop() if self._idle else None
        if session is None:
            session = Session(batch.schema, self._check)
        mask = None if self._rows_may_fail else self._together(session, batch)
        if mask is None:
            mask = self._one_by_one(session, batch)
        # Not in a `finally`: a session after a fatal error is not used again.
        with self._lock:
            self._idle.append(session)
        return mask

    def _together(self, session: Session, batch: pa.RecordBatch) -> pa.BooleanArray | None:
        try:
            together = " AND ".join(condition.text for condition in self._conditions)
            return session.compute(f"({together}) IS TRUE", batch)
        except SparkportError:
            raise
        except Exception as error:
            if is_fatal(error):
                raise
            # Most likely a cast fails on some row, which another conjunct may exclude.
            self._rows_may_fail = True
            return None

    def _one_by_one(self, session: Session, batch: pa.RecordBatch) -> pa.BooleanArray | None:
        mask = None
        for condition in self._conditions:
            try:
                # A row on which the conjunct fails is kept.
                passed = session.compute(f"coalesce(TRY({condition.text} IS TRUE), true)", batch)
            except SparkportError:
                raise
            except Exception as error:
                if is_fatal(error):
                    raise
                logger.debug("conjunct not evaluated on a batch", exc_info=True)
                continue
            mask = passed if mask is None else pc.and_(mask, passed)
        return mask


def _conditions(row_filter: Filter, columns: Columns, session: Session) -> Iterator[Condition]:
    """The conjuncts as SQL that DuckDB binds to the functions that the client meant."""
    conjuncts, probes = [], []
    remaining = MOST_EXPRESSIONS
    for conjunct in row_filter.conjuncts:
        size = sum(1 for _ in walk(conjunct))
        if size > remaining:
            continue
        remaining -= size
        try:
            condition = render(conjunct, columns.text)
            for call in _outermost_calls(conjunct):
                review(render(call, columns.text), None)
            expected = list(_expected_types(conjunct, columns))
        except (Inexpressible, BadRequest):
            continue
        if sum(len(text) for text, _ in expected) <= LARGEST_TEXT:
            pairs = (text for call, kind in expected for text in (call, f"CAST(NULL AS {kind})"))
            probes.append([condition, *pairs])
            conjuncts.append(conjunct)
    for conjunct, (condition, *_), types in zip(
        conjuncts, probes, session.types(probes), strict=True
    ):
        if types and types[1::2] == types[2::2]:
            yield Condition(condition, columns.read_by(conjunct), is_plain(conjunct))


def _outermost_calls(expression: Expression) -> Iterator[Function]:
    """The outermost function calls, without those that are always quick and small."""
    if isinstance(expression, Function) and expression.name not in ARITHMETIC:
        yield expression
    else:
        for child in children_of(expression):
            yield from _outermost_calls(child)


def _expected_types(expression: Expression, columns: Columns) -> Iterator[tuple[str, str]]:
    """Function calls and the types that the client says they have.

    Another type would mean another overload.
    """
    # The type of a row, an unnamed struct, cannot be written; it has the types of its operands.
    if isinstance(expression, Function) and expression.name != "row":
        yield render(expression, columns.text), type_sql(expression.type)
    for child in children_of(expression):
        # Calls inside a lambda have no text outside of it.
        if not isinstance(child, Lambda):
            yield from _expected_types(child, columns)
