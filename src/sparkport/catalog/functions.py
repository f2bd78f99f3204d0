"""Functions: scalar, table-valued, and table in/out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import pyarrow as pa

from sparkport.catalog.context import Context
from sparkport.catalog.scan import RecordReader, ScanOptions

__all__ = [
    "FunctionSignature",
    "Parameter",
    "ParameterKind",
    "ScalarFunction",
    "Stability",
    "TableFunction",
    "TableInOutFunction",
]


class Stability(str, Enum):
    """How far DuckDB may reuse a scalar function's result (airport §3.5)."""

    CONSISTENT = "consistent"
    CONSISTENT_WITHIN_QUERY = "consistent_within_query"
    VOLATILE = "volatile"


class ParameterKind(str, Enum):
    """How an argument is passed: by position, by name (`name := value`), or as a subquery."""

    POSITIONAL = "positional"
    NAMED = "named"
    TABLE = "table"


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a function. `type` None accepts any type."""

    name: str
    type: pa.DataType | None
    kind: ParameterKind = ParameterKind.POSITIONAL


@dataclass(frozen=True, slots=True)
class FunctionSignature:
    """Parameters in order, and the result's type (None for table functions, whose columns depend on the arguments).

    There may be no parameters at all. `variadic` is for other clients: DuckDB's has no notion of it (airport §15.3).
    """

    parameters: tuple[Parameter, ...] = ()
    return_type: pa.DataType | None = None
    variadic: bool = False


class _Function(ABC):
    @property
    @abstractmethod
    def name(self) -> str:
        """Never empty; looked up whatever the case of its letters."""

    @property
    def comment(self) -> str:
        """Documentation for users; empty if there is none."""
        return ""

    @property
    @abstractmethod
    def signature(self) -> FunctionSignature:
        """Parameters and result."""


class ScalarFunction(_Function):
    """One value for each row. Called from many threads at once."""

    stability: Stability = Stability.VOLATILE

    @abstractmethod
    def execute(self, ctx: Context, arguments: pa.RecordBatch) -> pa.Array:
        """Compute a whole batch: one column for each parameter in, as many values of `return_type` out.

        NULLs arrive as they are. Raises: BadRequest for arguments it cannot take.
        """


class TableFunction(_Function):
    """Rows from arguments."""

    @abstractmethod
    def schema_for_parameters(self, ctx: Context, parameters: Sequence[Any]) -> pa.Schema:
        """The Arrow schema of the result for these arguments, without computing it. Raises: BadRequest."""

    @abstractmethod
    def execute(self, ctx: Context, parameters: Sequence[Any], options: ScanOptions) -> RecordReader:
        """Compute the rows; as for `Table.scan`, the caller owns and closes the reader."""


class TableInOutFunction(_Function):
    """Rows from arguments and a subquery's rows; its last parameter is of kind TABLE."""

    @abstractmethod
    def schema_for_input(self, ctx: Context, parameters: Sequence[Any], arrow_schema: pa.Schema) -> pa.Schema:
        """The Arrow schema of the result for these arguments and this input. Raises: BadRequest."""

    @abstractmethod
    def process(self, ctx: Context, parameters: Sequence[Any], rows: RecordReader) -> RecordReader:
        """Compute rows from `rows`, batch by batch; what is yielded after their end closes the result."""
