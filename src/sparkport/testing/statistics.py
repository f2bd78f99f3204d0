"""`column_statistics`, which DuckDB's optimiser trusts (airport §4.9)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from sparkport.testing.failures import ProtocolViolation
from sparkport.testing.objects import AttachedColumn, AttachedTable
from sparkport.testing.requests import pack
from sparkport.testing.session import Session
from sparkport.testing.types import difference, given_out

__all__ = ["ReportedStatistics", "column_statistics"]

_REQUIRED = ("min", "max", "has_not_null", "has_null", "distinct_count")
_MICROSECONDS = {"s": 1_000_000, "ms": 1_000, "us": 1, "ns": 1}


@dataclass(frozen=True, slots=True)
class ReportedStatistics:
    """The server's statistics of a column. The bounds are Arrow scalars, perhaps NULL."""

    minimum: pa.Scalar
    maximum: pa.Scalar
    has_null: bool
    has_not_null: bool
    distinct_count: int
    contains_unicode: bool
    max_string_length: int | None


def column_statistics(
    session: Session, table: AttachedTable, column: AttachedColumn, trace: str
) -> ReportedStatistics | None:
    """Ask for the statistics of a column; None for a nested type, whose answer is ignored."""
    body = pack(
        {
            "flight_descriptor": table.descriptor.serialize(),
            "column_name": column.field.name,
            "type": column.type,
        }
    )
    headers = session.headers.of_table(
        trace, None, session.transaction(), "column_statistics", twice=True
    )
    answer = session.answer("column_statistics", body, headers)
    where = f"column_statistics of {table.schema}.{table.name}.{column.name}"
    row = _Row(_one_row(answer, where), where)
    row.expect(_REQUIRED)
    return None if pa.types.is_nested(column.field.type) else row.read(column)


def _one_row(answer: bytes, where: str) -> pa.RecordBatch:
    try:
        batches = list(pa.ipc.open_stream(answer))
    except (pa.ArrowException, OSError) as error:
        raise ProtocolViolation("§4.9", f"{where}: the answer is no IPC stream: {error}") from error
    if len(batches) != 1 or batches[0].num_rows != 1:
        raise ProtocolViolation("§4.9", f"{where}: the answer is not one batch of one row")
    try:
        batches[0].validate(full=True)
    except (pa.ArrowInvalid, pa.ArrowIndexError) as error:
        raise ProtocolViolation("§4.9", f"{where}: the answer is not valid: {error}") from error
    return batches[0]


class _Row:
    def __init__(self, row: pa.RecordBatch, where: str) -> None:
        self._row = row
        self._where = where

    def expect(self, names: Sequence[str]) -> None:
        for name in names:
            if self._row.schema.names.count(name) != 1:
                raise ProtocolViolation("§4.9", f"{self._where}: the column {name} is missing")

    def read(self, column: AttachedColumn) -> ReportedStatistics:
        text = column.type in ("VARCHAR", "JSON")
        distinct = self._value("distinct_count")
        if not pa.types.is_integer(distinct.type):
            raise ProtocolViolation(
                "§4.9", f"{self._where}: distinct_count is {distinct.type}, not an integer"
            )
        if not 0 <= distinct.as_py() < 2**63:
            raise ProtocolViolation(
                "§4.9", f"{self._where}: the client cannot hold {distinct} as distinct_count"
            )
        unicode = (
            self._boolean("contains_unicode") if text and self._has("contains_unicode") else False
        )
        return ReportedStatistics(
            minimum=self._bound("min", column, text),
            maximum=self._bound("max", column, text),
            has_null=self._boolean("has_null"),
            has_not_null=self._boolean("has_not_null"),
            distinct_count=distinct.as_py(),
            # Missing means pure ASCII, which is wrong as soon as a value is not.
            contains_unicode=unicode,
            max_string_length=self._length() if text and self._has("max_string_length") else None,
        )

    def _bound(self, name: str, column: AttachedColumn, text: bool) -> pa.Scalar:
        value = self._value(name, nullable=not text)
        # The client converts the bounds by the types that they come with, unlike those of rows.
        told, due = (
            each.with_type(given_out(each.type))
            for each in (self._row.schema.field(name), column.field)
        )
        problem = difference(told, due)
        if problem is not None:
            raise ProtocolViolation("§4.9", f"{self._where}: {name} is {problem}")
        kind = value.type
        is_instant = pa.types.is_timestamp(kind) and bool(kind.tz) and value.is_valid
        if is_instant and abs(value.value) * _MICROSECONDS[kind.unit] >= 2**63:
            raise ProtocolViolation(
                "§4.9", f"{self._where}: {name} is not in the range of TIMESTAMPTZ"
            )
        return value

    def _boolean(self, name: str) -> bool:
        value = self._value(name)
        if not pa.types.is_boolean(value.type):
            raise ProtocolViolation("§4.9", f"{self._where}: {name} is {value.type}, not bool")
        return bool(value.as_py())

    def _length(self) -> int:
        value = self._value("max_string_length")
        if not pa.types.is_uint64(value.type):
            raise ProtocolViolation(
                "§4.9", f"{self._where}: max_string_length is {value.type}, not uint64"
            )
        if value.as_py() >= 2**32:
            raise ProtocolViolation("T28", f"{self._where}: the client takes {value} modulo 2^32")
        return int(value.as_py())

    def _has(self, name: str) -> bool:
        return name in self._row.schema.names

    def _value(self, name: str, nullable: bool = False) -> pa.Scalar:
        self.expect((name,))
        value = self._row.column(name)[0]
        if not nullable and not value.is_valid:
            raise ProtocolViolation("§4.9", f"{self._where}: {name} is NULL")
        return value
