"""Functions: scalar, table-valued, and table in/out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import pyarrow as pa

from sparkport.catalog.access import Privilege
from sparkport.catalog.context import Context
from sparkport.catalog.scan import RecordReader, ScanOptions

__all__ = [
    "Arguments",
    "BatchwiseInOutFunction",
    "FunctionSignature",
    "NullHandling",
    "Parameter",
    "ParameterKind",
    "PartitionedTableFunction",
    "ScalarFunction",
    "Stability",
    "TableFunction",
    "TableInOutFunction",
]


class Stability(str, Enum):
    """When DuckDB may reuse a scalar function's result (airport §3.5)."""

    CONSISTENT = "consistent"
    CONSISTENT_WITHIN_QUERY = "consistent_within_query"
    VOLATILE = "volatile"


class NullHandling(str, Enum):
    """Whether a scalar function is called for NULLs."""

    PASS = "pass"  # noqa: S105 - no password
    """The function gets NULLs, but no constant NULL: DuckDB then returns NULL (airport §9.1)."""
    PROPAGATE = "propagate"
    """A row with a NULL argument has the result NULL. The function gets only the other rows."""


class ParameterKind(str, Enum):
    """How an argument is passed: by position, by name (`name := value`), or as a subquery."""

    POSITIONAL = "positional"
    NAMED = "named"
    TABLE = "table"


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a function. `type` None accepts any type.

    A named parameter must have a type: DuckDB's client would read another argument's type for it.
    """

    name: str
    type: pa.DataType | None
    kind: ParameterKind = ParameterKind.POSITIONAL


@dataclass(frozen=True, slots=True)
class FunctionSignature:
    """Parameters in order, and the type of the result.

    The type is None for table functions, whose columns depend on the arguments. There may be no
    parameters. With `variadic` the last parameter stands for one or more values. DuckDB's client
    does not know variadic functions (airport §15.3), so it sees overloads with up to eight values.
    """

    parameters: tuple[Parameter, ...] = ()
    return_type: pa.DataType | None = None
    variadic: bool = False


class Arguments(tuple[Any, ...]):
    """The arguments of a call, as Python values in the order of the parameters.

    A named argument that was left out is None. `arrow` holds the arguments as a row of Arrow
    values: for the type of an argument whose parameter accepts any.
    """

    arrow: pa.RecordBatch

    def __new__(cls, values: Iterable[Any], arrow: pa.RecordBatch) -> Arguments:
        made = super().__new__(cls, values)
        made.arrow = arrow
        return made


class _Function(ABC):
    time_limit: float | None = 600.0
    """Seconds for a batch, or for `schema_for_…`; None means no limit.

    After that the call fails, and the function is interrupted.
    """
    privilege: Privilege = Privilege.READ
    """The privilege that a caller needs on the function to see and call it."""
    interruptible: bool = True
    """Whether Python may raise an exception inside the function.

    It does so when the function has ignored `ctx` for seconds after its caller left, or its time is
    up. False is for code that cannot be interrupted safely.
    """

    @property
    @abstractmethod
    def name(self) -> str:
        """Never empty; looked up whatever the case of its letters. As `comment` and `signature`, it
        may be a plain attribute of the class: `name = "gross"`.
        """

    @property
    def comment(self) -> str:
        """Documentation for users; empty if there is none."""
        return ""

    @property
    @abstractmethod
    def signature(self) -> FunctionSignature:
        """Parameters and result."""


class ScalarFunction(_Function):
    """A function that returns a value for each row. Called from many threads at once."""

    stability: Stability = Stability.VOLATILE
    null_handling: NullHandling = NullHandling.PASS

    @abstractmethod
    def execute(
        self, ctx: Context, arguments: pa.RecordBatch
    ) -> pa.Array | pa.ChunkedArray | pa.RecordBatch | pa.Scalar:
        """Compute a batch: a column for each parameter in, a value of `return_type` per row out.

        The result may also be a batch of that column, or an Arrow scalar for all rows. A function
        without parameters finds the number of values wanted in `arguments.num_rows`.

        Raises: BadRequest for arguments that it does not accept.
        """


class TableFunction(_Function):
    """A function that returns rows.

    `parameters` are `Arguments`; callers in Python may pass any sequence of values.
    """

    applies_filters: bool = False
    """Whether `execute` applies `ScanOptions.filter` itself, as in `Table`."""

    @abstractmethod
    def schema_for_parameters(self, ctx: Context, parameters: Sequence[Any]) -> pa.Schema:
        """Return the Arrow schema of the result without computing it. Raises: BadRequest."""

    @abstractmethod
    def execute(
        self, ctx: Context, parameters: Sequence[Any], options: ScanOptions
    ) -> RecordReader:
        """Compute the rows. The caller owns and closes the reader, as in `Table.scan`."""

    def estimated_rows(self, ctx: Context, parameters: Sequence[Any]) -> int | None:
        """Estimate the number of rows for DuckDB's plans; None when it is not known."""
        return None


class PartitionedTableFunction(TableFunction):
    """A table function whose rows are computed in parallel, each partition in its own stream."""

    @abstractmethod
    def partitions(
        self, ctx: Context, parameters: Sequence[Any], options: ScanOptions
    ) -> Sequence[bytes]:
        """Divide the work into disjoint parts, as `PartitionedTable.partitions` does.

        Each value comes back as `ScanOptions.partition`.
        """


class TableInOutFunction(_Function):
    """A function that computes rows from a subquery's rows. Its last parameter is of kind TABLE."""

    @abstractmethod
    def schema_for_input(
        self, ctx: Context, parameters: Sequence[Any], arrow_schema: pa.Schema
    ) -> pa.Schema:
        """Return the result's Arrow schema for these arguments and input. Raises: BadRequest."""

    @abstractmethod
    def process(self, ctx: Context, parameters: Sequence[Any], rows: RecordReader) -> RecordReader:
        """Compute rows from `rows`, batch by batch, and yield any last rows after their end.

        It runs in a thread of its own, which waits in `rows` until the client sends more.
        """


class BatchwiseInOutFunction(TableInOutFunction):
    """An in/out function that works on each batch alone and adds nothing at the end.

    It is faster than other in/out functions, because it needs no thread of its own.
    """

    @abstractmethod
    def process_batch(
        self, ctx: Context, parameters: Sequence[Any], batch: pa.RecordBatch
    ) -> RecordReader:
        """Compute rows from a batch."""

    def process(
        self, ctx: Context, parameters: Sequence[Any], rows: RecordReader
    ) -> Iterator[pa.RecordBatch]:
        for batch in rows:
            yield from self.process_batch(ctx, parameters, batch)
