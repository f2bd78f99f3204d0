"""The columns that a filter reads, found in an Arrow schema and written as DuckDB sees them.

Strategy: they become c0, c1, … in DuckDB, so that no name needs quoting and none hides another that
differs in case. A column of another type than the client bound is not the column that the client
meant: filters over it are left to the client.
"""

from __future__ import annotations

import contextlib
import logging
from dataclasses import dataclass

import pyarrow as pa

from sparkport.catalog.filters.literals import Inexpressible, type_sql
from sparkport.catalog.filters.tree import ROWID, ColumnRef, Expression, Filter, walk
from sparkport.engine.databases import Check
from sparkport.engine.filters.session import NO_COLUMNS, Session

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Columns:
    """What DuckDB gets of each batch: the fields at `positions`, as those of `arrow_schema`."""

    positions: tuple[int, ...]
    arrow_schema: pa.Schema
    texts: dict[ColumnRef, str]
    names: dict[str, str]
    """The names of the fields of the batch, by their names in the SQL."""

    def text(self, column: ColumnRef) -> str:
        """The SQL of a column. Raises: Inexpressible unless there is exactly one, of the right
        type.
        """
        if column not in self.texts:
            raise Inexpressible(f"column {column.name}")
        return self.texts[column]

    def read_by(self, expression: Expression) -> dict[str, str]:
        """The fields that an expression reads, by their names in the SQL.

        A column that DuckDB sees by way of a cast has that for a name, so no name of a field.
        """
        references = [node for node in walk(expression) if isinstance(node, ColumnRef)]
        texts = [self.text(reference) for reference in references]
        return {text: self.names.get(text, "") for text in texts}

    def select(self, batch: pa.RecordBatch) -> pa.RecordBatch | None:
        """The batch as DuckDB sees it, without a copy; None if it has not the expected schema."""
        if not self.positions:
            return pa.record_batch([pa.nulls(batch.num_rows, pa.bool_())], schema=NO_COLUMNS)
        if max(self.positions) >= batch.num_columns:
            return None
        arrays = [batch.column(position) for position in self.positions]
        if any(
            array.type != kind for array, kind in zip(arrays, self.arrow_schema.types, strict=True)
        ):
            return None
        return pa.record_batch(arrays, schema=self.arrow_schema)


def find_columns(
    row_filter: Filter,
    arrow_schema: pa.Schema,
    rowid_column: str | None,
    check: Check | None = None,
) -> tuple[Columns, Session]:
    """The columns of the filter that DuckDB can read from such batches, and a session for them."""
    references = sorted(
        {
            node
            for part in row_filter.expressions
            for node in walk(part)
            if isinstance(node, ColumnRef)
        },
        key=repr,
    )
    found: dict[str, int] = {}
    for name in dict.fromkeys(reference.name for reference in references):
        position = _position(name, arrow_schema, rowid_column)
        if position is not None:
            found[name] = position
    columns, session = _read(references, found, arrow_schema, check)
    if found and not columns.texts:
        # Perhaps one column has an Arrow type that DuckDB does not know.
        found = {
            name: position
            for name, position in found.items()
            if any(_read(references, {name: position}, arrow_schema, check)[0].texts)
        }
        columns, session = _read(references, found, arrow_schema, check)
    return columns, session


def _position(name: str, arrow_schema: pa.Schema, rowid_column: str | None) -> int | None:
    named = arrow_schema.get_all_field_indices(name)
    if name == ROWID and rowid_column is not None:
        # `rowid` is the row id whatever its field is called (airport §6.2), unless there is a
        # column of that name too.
        if rowid_column != ROWID and named:
            return None
        named = arrow_schema.get_all_field_indices(rowid_column)
    if len(named) != 1 or pa.types.is_null(arrow_schema.field(named[0]).type):
        # Nulls stand for a column that was not asked for (airport §5.4); DuckDB 1.x takes them for
        # integers.
        return None
    return int(named[0])


def _read(
    references: list[ColumnRef], found: dict[str, int], arrow_schema: pa.Schema, check: Check | None
) -> tuple[Columns, Session]:
    names = {name: f"c{number}" for number, name in enumerate(found)}
    fields = [
        arrow_schema.field(position).with_name(names[name]) for name, position in found.items()
    ]
    narrow = pa.schema(fields) if fields else NO_COLUMNS
    session = Session(narrow, check)
    texts = _texts(references, names, session)
    fields_by_name = {
        names[name]: arrow_schema.field(position).name for name, position in found.items()
    }
    return Columns(tuple(found.values()), narrow, texts, fields_by_name), session


def _texts(
    references: list[ColumnRef], names: dict[str, str], session: Session
) -> dict[ColumnRef, str]:
    wanted: dict[ColumnRef, str] = {}
    for reference in references:
        if reference.name in names:
            with contextlib.suppress(Inexpressible):
                wanted[reference] = type_sql(reference.type)
    groups = [
        [names[reference.name], f"CAST(NULL AS {kind})"] for reference, kind in wanted.items()
    ]
    texts = {}
    for (reference, kind), types in zip(wanted.items(), session.types(groups), strict=True):
        name = names[reference.name]
        match types:
            case [actual, expected] if actual == expected:
                texts[reference] = name
            case [actual, expected] if _holds_the_same_values(str(actual), str(expected)):
                texts[reference] = f"CAST({name} AS {kind})"
            case _:
                logger.debug("column %s is not the %s that the filter reads", reference.name, kind)
    return texts


def _holds_the_same_values(actual: str, wanted: str) -> bool:
    """Whether a column is the client's in another encoding, so that a cast gives its values.

    The encodings are those of airport §13.3.
    """
    if wanted in {"HUGEINT", "UHUGEINT"}:
        return actual == "DECIMAL(38,0)"
    if wanted == "UUID":
        return actual == "VARCHAR"
    # A dictionary is text to the client (airport §13.2) and may be ENUM to DuckDB; the cast goes by
    # the label.
    return _is_text(actual) and _is_text(wanted)


def _is_text(type_name: str) -> bool:
    return type_name in {"VARCHAR", "JSON"} or type_name.startswith("ENUM(")
