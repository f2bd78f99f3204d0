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
    """How far DuckDB may reuse a scalar function's result (airport §3.5)."""

    CONSISTENT = "consistent"
    CONSISTENT_WITHIN_QUERY = "consistent_within_query"
    VOLATILE = "volatile"


class NullHandling(str, Enum):
    """What a scalar function sees of NULLs."""

    PASS = "pass"  # noqa: S105 - no password
    """NULLs are passed to it. A constant NULL is not: DuckDB makes the result NULL without calling
    (airport §9.1).
    """
    PROPAGATE = "propagate"
    """A row with a NULL among its arguments has the result NULL; the function sees only the other
    rows.
    """


class ParameterKind(str, Enum):
    """How an argument is passed: by position, by name (`name := value`), or as a subquery."""

    POSITIONAL = "positional"
    NAMED = "named"
    TABLE = "table"


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a function. `type` None accepts any type; a named parameter must have one
    (DuckDB's client would read another argument's type for it).
    """

    name: str
    type: pa.DataType | None
    kind: ParameterKind = ParameterKind.POSITIONAL


@dataclass(frozen=True, slots=True)
class FunctionSignature:
    """Parameters in order, and the result's type (None for table functions, whose columns depend on
    the arguments).

    There may be no parameters at all. With `variadic` the last one stands for one or more values.
    DuckDB's client has no notion of that (airport §15.3), so it is shown overloads with up to eight
    of them.
    """

    parameters: tuple[Parameter, ...] = ()
    return_type: pa.DataType | None = None
    variadic: bool = False


class Arguments(tuple[Any, ...]):
    """The arguments of a call, as Python values in the order of the parameters; a named one that
    was left out is None.

    `arrow` holds the same in one row of Arrow values, for those who want to know the type of an
    argument whose parameter accepts any.
    """

    arrow: pa.RecordBatch

    def __new__(cls, values: Iterable[Any], arrow: pa.RecordBatch) -> Arguments:
        made = super().__new__(cls, values)
        made.arrow = arrow
        return made


class _Function(ABC):
    time_limit: float | None = 600.0
    """Seconds that the function may take for one batch, or for telling its columns; then the call
    fails, and the function is interrupted. None lets it take as long as it likes."""
    privilege: Privilege = Privilege.READ
    """What a caller needs to have been granted on the function, to see and call it."""
    interruptible: bool = True
    """Whether Python may raise an exception in the midst of it, once its caller has been gone for
    seconds or its time is up, and it has not looked at `ctx`. False for code that could not bear
    that."""

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
    """One value for each row. Called from many threads at once."""

    stability: Stability = Stability.VOLATILE
    null_handling: NullHandling = NullHandling.PASS

    @abstractmethod
    def execute(
        self, ctx: Context, arguments: pa.RecordBatch
    ) -> pa.Array | pa.ChunkedArray | pa.RecordBatch | pa.Scalar:
        """Compute a whole batch: one column for each parameter in, as many values of `return_type`
        out.

        The result may also be a batch of that one column, or one Arrow scalar for all rows. A
        function without parameters learns from `arguments.num_rows` how many values are wanted.

        Raises: BadRequest for arguments it cannot take.
        """


class TableFunction(_Function):
    """Rows from arguments. Where it is given `Arguments`, any sequence of values will do for those
    who call it directly.
    """

    applies_filters: bool = False
    """As for `Table`: True when `execute` needs no help with `ScanOptions.filter`."""

    @abstractmethod
    def schema_for_parameters(self, ctx: Context, parameters: Sequence[Any]) -> pa.Schema:
        """The Arrow schema of the result for these arguments, without computing it. Raises:
        BadRequest.
        """

    @abstractmethod
    def execute(
        self, ctx: Context, parameters: Sequence[Any], options: ScanOptions
    ) -> RecordReader:
        """Compute the rows; as for `Table.scan`, the caller owns and closes the reader."""

    def estimated_rows(self, ctx: Context, parameters: Sequence[Any]) -> int | None:
        """About how many rows there will be, for DuckDB's plans; None when that is not known."""
        return None


class PartitionedTableFunction(TableFunction):
    """A table function whose rows can be computed in parallel, each partition in its own stream."""

    @abstractmethod
    def partitions(
        self, ctx: Context, parameters: Sequence[Any], options: ScanOptions
    ) -> Sequence[bytes]:
        """Divide the work into disjoint parts; each value comes back as `ScanOptions.partition`
        (see PartitionedTable).
        """


class TableInOutFunction(_Function):
    """Rows from arguments and a subquery's rows; its last parameter is of kind TABLE."""

    @abstractmethod
    def schema_for_input(
        self, ctx: Context, parameters: Sequence[Any], arrow_schema: pa.Schema
    ) -> pa.Schema:
        """The Arrow schema of the result for these arguments and this input. Raises: BadRequest."""

    @abstractmethod
    def process(self, ctx: Context, parameters: Sequence[Any], rows: RecordReader) -> RecordReader:
        """Compute rows from `rows`, batch by batch; what is yielded after their end closes the
        result.

        It runs in a thread of its own, which waits in `rows` until the client sends more.
        """


class BatchwiseInOutFunction(TableInOutFunction):
    """An in/out function that needs no more than one batch at a time, and has nothing to say at the
    end.

    It is faster than a general one, because it needs no thread of its own.
    """

    @abstractmethod
    def process_batch(
        self, ctx: Context, parameters: Sequence[Any], batch: pa.RecordBatch
    ) -> RecordReader:
        """Compute rows from one batch."""

    def process(
        self, ctx: Context, parameters: Sequence[Any], rows: RecordReader
    ) -> Iterator[pa.RecordBatch]:
        for batch in rows:
            yield from self.process_batch(ctx, parameters, batch)
