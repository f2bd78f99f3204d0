"""`upsert` and `merge_delete`: rows of a subquery, merged into a table by a key.

They are for what DuckDB's client refuses: MERGE, and INSERT … ON CONFLICT. The call bears no
transaction id (airport §2.2), so it is committed by itself, even after `lake_begin()`.

A subquery that fails midway looks to the server like a subquery that has ended (airport §16 T22):
the rows sent until then are merged. When the call is repeated, it merges all rows.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import pyarrow as pa

from sparkport.catalog import (
    Context,
    FunctionSignature,
    Parameter,
    ParameterKind,
    Privilege,
    RecordReader,
    TableInOutFunction,
)
from sparkport.catalog.names import folded
from sparkport.catalog.quotas import StagedBytes, bytes_of
from sparkport.engine.constraints.compute import computed_values
from sparkport.engine.constraints.expressions import column_types
from sparkport.engine.constraints.sandbox import quoted
from sparkport.engine.constraints.validate import parse_constraint
from sparkport.engine.encodings import convert_array
from sparkport.engine.gathered import BlockSize, Gathered
from sparkport.engine.type_table import form
from sparkport.errors import BadRequest, NotFound, NotWritable
from sparkport.spark.functions.table_names import find_for
from sparkport.spark.iceberg.table_state import TableState
from sparkport.spark.lake.directory import Kind
from sparkport.spark.lake.lake import Lake
from sparkport.spark.write.key_groups import equal_together
from sparkport.spark.write.matching import first_repeated, shown_key
from sparkport.spark.write.merging import Target, delete_matching, upsert_rows
from sparkport.spark.write.row_spool import RowSpool
from sparkport.spark.write.source import expect_written_types

__all__ = ["merging_functions"]

_GATHERED = BlockSize(rows=65_536, bytes=32 * 1024 * 1024)
"""Bytes of rows that are converted together. DuckDB sends 2048 rows at a time."""


def merging_functions(lake: Lake, namespace: tuple[str, ...]) -> list[TableInOutFunction]:
    """The functions for tables of a schema."""
    return [Upsert(lake, namespace), MergeDelete(lake, namespace)]


class _MergingFunction(TableInOutFunction):
    """A function whose arguments are a table's name, the names of the key's columns, and rows."""

    time_limit = None
    interruptible = False
    columns: pa.Schema

    def __init__(self, lake: Lake, namespace: tuple[str, ...]) -> None:
        self._lake = lake
        self._namespace = namespace

    @property
    def signature(self) -> FunctionSignature:
        return FunctionSignature(
            (
                Parameter("table", pa.string()),
                Parameter("key", pa.string()),
                Parameter("rows", None, ParameterKind.TABLE),
            )
        )

    def schema_for_input(
        self, ctx: Context, parameters: Sequence[Any], arrow_schema: pa.Schema
    ) -> pa.Schema:
        state = self._state(ctx, parameters)
        self._incoming(ctx, state, self._key(state, parameters), arrow_schema)
        return self.columns

    def process(
        self, ctx: Context, parameters: Sequence[Any], rows: RecordReader
    ) -> Iterator[pa.RecordBatch]:
        state = self._state(ctx, parameters)
        key = self._key(state, parameters)
        counts = self._merged(ctx, state, key, self._converted(ctx, state, key, rows))
        ctx.report_write(self.name, f"{state.identifier.catalog}.{state.identifier}", sum(counts))
        yield pa.RecordBatch.from_arrays(
            [pa.array([each], pa.int64()) for each in counts], schema=self.columns
        )

    @abstractmethod
    def _merged(
        self, ctx: Context, state: TableState, key: tuple[str, ...], rows: Iterator[pa.RecordBatch]
    ) -> Sequence[int]:
        """Change the table, and return the counts that are reported."""

    @abstractmethod
    def _taken(
        self, state: TableState, key: tuple[str, ...], arrow_schema: pa.Schema
    ) -> dict[str, int]:
        """For each column of the table that the rows have, its position. Raises: BadRequest."""

    @contextmanager
    def _spooled(
        self, ctx: Context, state: TableState, rows: Iterator[pa.RecordBatch]
    ) -> Iterator[tuple[RowSpool | None, pa.Schema]]:
        """Spool all rows: yields the spool, or None without rows, and their columns.

        The rows count as staged by the caller. Raises: LimitExceeded, also when the storage is
        full; PermissionDenied, PreconditionFailed.
        """
        staging, staged = self._lake.staging.begin(state.identifier, state), StagedBytes(ctx.quotas)
        spool: RowSpool | None = None
        columns = pa.schema([])
        try:
            for batch in rows:
                if spool is None:
                    spool, columns = RowSpool(staging, batch.schema), batch.schema
                staged.add(bytes_of(batch))
                spool.add(batch)
            yield spool, columns
        finally:
            staged.close()
            staging.discard()

    def _converted(
        self, ctx: Context, state: TableState, key: tuple[str, ...], rows: RecordReader
    ) -> Iterator[pa.RecordBatch]:
        incoming: _Incoming | None = None
        for batch in _gathered(rows):
            if incoming is None:
                incoming = self._incoming(ctx, state, key, batch.schema)
            yield incoming.convert(batch)

    def _incoming(
        self, ctx: Context, state: TableState, key: tuple[str, ...], arrow_schema: pa.Schema
    ) -> _Incoming:
        for name in key:
            if not any(folded(given) == folded(name) for given in arrow_schema.names):
                raise BadRequest(
                    f"{self.name} needs column {name}, which is of the key, among the columns of "
                    "its rows"
                )
        taken = self._taken(state, key, arrow_schema)
        fields = [state.definition.columns.field(name).remove_metadata() for name in taken]
        return _Incoming.of(
            arrow_schema, list(taken.values()), pa.schema(fields), from_duckdb=ctx.from_duckdb
        )

    def _state(self, ctx: Context, parameters: Sequence[Any]) -> TableState:
        """The table as it is now. Raises: NotFound, PermissionDenied, NotWritable."""
        name = parameters[0]
        if not name:
            raise NotFound(
                f"{self.name} needs the name of a table, such as {self.name}('orders', 'id', "
                "(SELECT …))"
            )
        entry = find_for(
            ctx, self._lake, self._namespace, str(name), Privilege.WRITE, Privilege.READ
        )
        if entry is None:
            raise NotFound(f"table {name} does not exist")
        if entry.kind is not Kind.ICEBERG:
            raise NotWritable(
                f"{entry.identifier} is not an Iceberg table: its rows cannot be found again by a "
                "key"
            )
        state = self._lake.state(entry.identifier, entry.location)
        if not state.has_row_ids:
            raise NotWritable(
                f"table {entry.identifier} has no row ids: upgrade it to version 3 of Iceberg's "
                "format, or change it in Spark"
            )
        return state

    def _key(self, state: TableState, parameters: Sequence[Any]) -> tuple[str, ...]:
        """The columns of the key as the table spells them. Raises: BadRequest, NotFound."""
        text = parameters[1]
        try:
            (names,) = parse_constraint(f"UNIQUE ({text or ''})").unique
        except BadRequest as error:
            raise BadRequest(
                f"the key {text!r} of {self.name} cannot be read: name its columns, such as 'id' "
                f"or 'year, \"order no\"'"
            ) from error
        columns = state.definition.columns
        key = tuple(
            columns.field(state.definition.expect(name, state.identifier)).name for name in names
        )
        return tuple(dict.fromkeys(key))


class Upsert(_MergingFunction):
    """Updates the rows whose keys exist, and inserts the others."""

    columns = pa.schema([("inserted", pa.int64()), ("updated", pa.int64())])

    @property
    def name(self) -> str:
        return "upsert"

    @property
    def comment(self) -> str:
        return (
            "Update the rows of a table that have the key of one of the given rows, "
            "and insert the others, by one commit. "
            "Columns are found by name; one that is not given keeps its value, or gets its default."
        )

    def _taken(
        self, state: TableState, key: tuple[str, ...], arrow_schema: pa.Schema
    ) -> dict[str, int]:
        expect_written_types(state)
        taken: dict[str, int] = {}
        for position, given in enumerate(arrow_schema.names):
            place = state.definition.position(given)
            if place is None:
                raise BadRequest(
                    f"table {state.identifier} has no column {given}: leave it out of the rows "
                    f"for {self.name}"
                )
            name = state.definition.columns.field(place).name
            if name in taken:
                raise BadRequest(f"the rows for {self.name} have column {name} twice")
            taken[name] = position
        return taken

    def _merged(
        self, ctx: Context, state: TableState, key: tuple[str, ...], rows: Iterator[pa.RecordBatch]
    ) -> Sequence[int]:
        with self._spooled(ctx, state, map(partial(self._without_null, state, key), rows)) as (
            spool,
            columns,
        ):
            if spool is None:
                return 0, 0
            self._expect_distinct(state, spool.columns(key))
            ctx.check()  # a caller who has gone away must not find the change made
            target = Target(state.identifier, state.definition, key, tuple(columns.names))
            counts = upsert_rows(self._lake, ctx, target, spool)
            return counts.inserted, counts.updated

    def _without_null(
        self, state: TableState, key: tuple[str, ...], rows: pa.RecordBatch
    ) -> pa.RecordBatch:
        for name in key:
            if rows.column(name).null_count:
                raise BadRequest(
                    f"column {name} is NULL in a row for {self.name}: it is of the key of table "
                    f"{state.identifier}, and NULL equals nothing"
                )
        return rows

    def _expect_distinct(self, state: TableState, keys: Iterator[pa.RecordBatch]) -> None:
        for group in equal_together(keys, self._lake.staging, state.identifier):
            place = first_repeated(group)
            if place is not None:
                raise BadRequest(
                    f'the key "{shown_key(group, place)}" is in more than one row for '
                    f"{self.name}: which one should table {state.identifier} get?"
                )


class MergeDelete(_MergingFunction):
    """Deletes the rows whose keys are among the given ones."""

    columns = pa.schema([("deleted", pa.int64())])

    @property
    def name(self) -> str:
        return "merge_delete"

    @property
    def comment(self) -> str:
        return (
            "Delete the rows of a table that have the key of one of the given rows, by one commit."
        )

    def _taken(
        self, state: TableState, key: tuple[str, ...], arrow_schema: pa.Schema
    ) -> dict[str, int]:
        taken: dict[str, int] = {}
        for name in key:
            found = [
                place
                for place, given in enumerate(arrow_schema.names)
                if folded(given) == folded(name)
            ]
            if len(found) > 1:
                raise BadRequest(f"the rows for {self.name} have column {name} twice")
            taken[name] = found[0]
        return taken

    def _merged(
        self, ctx: Context, state: TableState, key: tuple[str, ...], rows: Iterator[pa.RecordBatch]
    ) -> Sequence[int]:
        # NULL equals nothing, and its presence would keep files from being skipped.
        with self._spooled(ctx, state, (batch.drop_null() for batch in rows)) as (keys, _):
            if keys is None:
                return (0,)
            ctx.check()  # a caller who has gone away must not find the change made
            target = Target(state.identifier, state.definition, key, key)
            return (delete_matching(self._lake, ctx, target, keys),)


def _gathered(rows: RecordReader) -> Iterator[pa.RecordBatch]:
    gathered = Gathered(_GATHERED)
    for batch in rows:
        for block in gathered.add(batch):
            yield from block.joined().batches
    yield from gathered.take().joined().batches


_Step: TypeAlias = Callable[[pa.Array], pa.Array]


@dataclass(frozen=True, slots=True)
class _Incoming:
    """Converts the rows of a subquery to the table's columns.

    DuckDB casts the values of an INSERT; here the server must.
    """

    positions: tuple[int, ...]
    target: pa.Schema
    steps: tuple[_Step, ...]

    @staticmethod
    def of(
        source: pa.Schema, positions: Sequence[int], target: pa.Schema, *, from_duckdb: bool
    ) -> _Incoming:
        """Prepare the conversion. Raises: BadRequest for a type that cannot be converted at all."""
        given = pa.schema(
            [source.field(position).with_name(str(position)) for position in positions]
        )
        kinds = zip(column_types(given), column_types(target), strict=True)
        steps = []
        for field, wanted, (own, other) in zip(given, target, kinds, strict=True):
            # A type has several encodings, and a UHUGEINT may even look like another type (airport
            # §13.1).
            is_same = own == other or form(wanted.type) == "uhugeint"
            step = _encoding(wanted, from_duckdb) if is_same else _cast(wanted)
            step(pa.nulls(0, field.type))
            steps.append(step)
        return _Incoming(tuple(positions), target, tuple(steps))

    def convert(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Convert a batch. Raises: BadRequest, which names the column and the value."""
        arrays = [
            step(batch.column(place))
            for step, place in zip(self.steps, self.positions, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self.target)


def _encoding(wanted: pa.Field, from_duckdb: bool) -> _Step:
    return lambda array: convert_array(array, wanted.type, wanted.name, from_duckdb=from_duckdb)


def _cast(wanted: pa.Field) -> _Step:
    def step(array: pa.Array) -> pa.Array:
        rows = pa.RecordBatch.from_arrays([array], names=[wanted.name])
        return next(iter(computed_values([rows], quoted(wanted.name), wanted, "rows")))

    return step
