"""Table functions about one table of the lake, which is named by their first argument."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime
from typing import Any

import pyarrow as pa

from sparkport.catalog import (
    Context,
    FunctionSignature,
    Parameter,
    Privilege,
    TableFunction,
    TimePoint,
)
from sparkport.errors import BadRequest, NotFound, Unsupported
from sparkport.spark.functions.table_names import find_for
from sparkport.spark.iceberg.table_state import TableState
from sparkport.spark.lake.directory import Kind
from sparkport.spark.lake.lake import Lake

__all__ = ["FunctionOfTable", "expect_point"]


class FunctionOfTable(TableFunction):
    """A function of a table's name: `table` in its own schema, or `schema.table`."""

    columns: pa.Schema
    needs: Privilege = Privilege.READ
    """What the caller must have been granted on the table."""

    def __init__(self, lake: Lake, namespace: tuple[str, ...]) -> None:
        self._lake = lake
        self._namespace = namespace

    @property
    def signature(self) -> FunctionSignature:
        return FunctionSignature((Parameter("table", pa.string()),))

    def schema_for_parameters(self, ctx: Context, parameters: Sequence[Any]) -> pa.Schema:
        self._state(ctx, parameters)  # so that a wrong name is told before anything is planned
        return self.columns

    def _state(self, ctx: Context, parameters: Sequence[Any]) -> TableState:
        """The table as it is now. Raises: NotFound, PermissionDenied, Unsupported."""
        name = parameters[0]
        if name is None:
            raise NotFound(f"{self.name} needs the name of a table, such as {self.name}('orders')")
        entry = find_for(ctx, self._lake, self._namespace, str(name), self.needs)
        if entry is None:
            raise NotFound(f"table {name} does not exist")
        if entry.kind is not Kind.ICEBERG:
            raise Unsupported(
                f"{entry.identifier} is not an Iceberg table: {self.name} has nothing to do with it"
            )
        return self._lake.state(entry.identifier, entry.location)


def expect_point(value: Any, function: str) -> TimePoint:
    """What AT would make of a version: its number, a snapshot's id, a tag; or a moment. Raises:
    BadRequest.
    """
    match value:
        case bool():
            pass
        case int():
            return TimePoint("version", str(value))
        case str() if value.strip():
            return TimePoint("version", value)
        case datetime() | date():
            return TimePoint("timestamp", value.isoformat())
        case _:
            pass
    raise BadRequest(
        f"{function} takes a version as AT does: its number, the id of a snapshot or the name of a tag; or a TIMESTAMP"
    )
