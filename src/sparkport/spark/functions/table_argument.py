"""Table functions about a table of the lake, which their first argument names."""

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
    """A table function whose first argument names a table: `table` or `schema.table`.

    A name without a schema is in the function's own schema.
    """

    columns: pa.Schema
    needs: Privilege = Privilege.READ
    """The privilege that the caller needs on the table."""

    def __init__(self, lake: Lake, namespace: tuple[str, ...]) -> None:
        self._lake = lake
        self._namespace = namespace

    @property
    def signature(self) -> FunctionSignature:
        return FunctionSignature((Parameter("table", pa.string()),))

    def schema_for_parameters(self, ctx: Context, parameters: Sequence[Any]) -> pa.Schema:
        self._state(ctx, parameters)  # report a wrong name before anything is planned
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
    """Read an argument as AT reads it: a version's number, a snapshot's id, a tag, or a timestamp.

    Raises: BadRequest.
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
        f"{function} takes a version as AT does: its number, the id of a snapshot or the name of a "
        "tag; or a TIMESTAMP"
    )
