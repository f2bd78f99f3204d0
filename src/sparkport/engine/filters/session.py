"""A thread's use of the filter database: expressions over the current batch."""

from __future__ import annotations

import functools
import logging
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from sparkport.engine.databases import FILTERS, Check

if TYPE_CHECKING:
    import duckdb

logger = logging.getLogger(__name__)

_TIME_LIMIT = 10.0
"""Seconds for one batch. A filter that takes longer costs more than the rows that it saves."""

NO_COLUMNS = pa.schema([("c0", pa.bool_())])
"""In place of an empty schema, for filters without columns: DuckDB must see the row count.
"""


class Session:
    """Computes expressions over batches of one schema, for one thread at a time.

    Raises: whatever DuckDB raises, LimitExceeded, and what `check` raises. After an error for which
    `is_fatal` is true, the session must not be used again.
    """

    def __init__(self, arrow_schema: pa.Schema, check: Check | None = None) -> None:
        self._source = _Source(arrow_schema)
        self._check = check
        self._cursor = FILTERS.cursor()
        self._relations: dict[str, duckdb.DuckDBPyRelation] = {}

    def types(self, groups: list[list[str]]) -> list[list[Any]]:
        """The types that DuckDB binds expressions to. Groups that do not bind have none."""
        if not groups:
            return []
        try:
            # Planning costs more than anything else here, so all are planned at once if possible.
            together = list(
                self._project(", ".join(text for group in groups for text in group)).types
            )
        except Exception as error:
            if is_fatal(error):
                raise
            if len(groups) == 1:
                logger.debug("not bound by DuckDB", exc_info=True)
                return [[]]
            return [types for group in groups for types in self.types([group])]
        return [[together.pop(0) for _ in group] for group in groups]

    def compute(self, expression: str, batch: pa.RecordBatch) -> pa.Array:
        self._source.batch = batch
        try:
            with FILTERS.watched(self._cursor, self._check, _TIME_LIMIT):
                relation = self._relations.get(expression)
                if relation is None:
                    relation = self._project(expression)
                    if _can_reopen_streams():
                        self._relations[expression] = relation
                # Asked of the relation, not of the cursor, which would copy the rows once more.
                column = relation.to_arrow_table().column(0)
        finally:
            self._source.batch = None
        return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()

    def _project(self, expressions: str) -> duckdb.DuckDBPyRelation:
        return self._cursor.from_arrow(self._source).project(expressions)


def is_fatal(error: Exception) -> bool:
    """Whether an error has made the database useless; later sessions then open a new one."""
    import duckdb

    fatal = isinstance(error, duckdb.FatalException | duckdb.InternalException)
    if fatal:
        FILTERS.forget()
    return fatal


@functools.cache
def _can_reopen_streams() -> bool:
    """Whether a relation over an Arrow source reads it anew every time.

    DuckDB 1.4 takes the stream when it binds.
    """
    import duckdb

    major, minor = duckdb.__version__.split(".")[:2]
    return (int(major), int(minor)) >= (1, 5)


class _Source:
    """The current batch as an Arrow stream that can be opened again.

    So a relation outlives a batch.
    """

    def __init__(self, arrow_schema: pa.Schema) -> None:
        self._schema = arrow_schema
        self.batch: pa.RecordBatch | None = None

    def __arrow_c_schema__(self) -> object:
        return self._schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        batches = [] if self.batch is None else [self.batch]
        return pa.RecordBatchReader.from_batches(self._schema, batches).__arrow_c_stream__(
            requested_schema
        )
