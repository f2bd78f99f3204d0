"""Python functions as SQL functions; their annotations are the signature."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa

from sparkport.builder.signatures import DescribedFunction, RowCount
from sparkport.catalog import (
    BatchwiseInOutFunction,
    Context,
    FunctionSignature,
    NullHandling,
    ParameterKind,
    PartitionedTableFunction,
    RecordReader,
    ScalarFunction,
    ScanOptions,
    Stability,
    TableFunction,
    TableInOutFunction,
)
from sparkport.catalog.names import folded
from sparkport.errors import AlreadyExists, BadRequest, CatalogFault

__all__ = [
    "FunctionOptions",
    "Returns",
    "PythonScalarFunction",
    "python_table_function",
    "refuse_repeated",
]

_Any: TypeAlias = ScalarFunction | TableFunction | TableInOutFunction

Returns: TypeAlias = pa.Schema | Callable[..., pa.Schema]
"""The columns of a result, or a function that makes them from the arguments, passed by name."""


@dataclass(frozen=True, slots=True)
class FunctionOptions:
    """What a decorator says about a function, beside the function itself."""

    name: str
    comment: str
    time_limit: float | None = 600.0
    interruptible: bool = True


class _PythonFunction:
    """The name, comment and signature that all kinds of Python functions share."""

    def __init__(self, described: DescribedFunction, options: FunctionOptions) -> None:
        self._described = described
        self._options = options
        self.time_limit = options.time_limit
        self.interruptible = options.interruptible

    @property
    def name(self) -> str:
        return self._options.name

    @property
    def comment(self) -> str:
        return self._options.comment

    @property
    def signature(self) -> FunctionSignature:
        return self._described.signature


class PythonScalarFunction(_PythonFunction, ScalarFunction):
    """A scalar function: arrays in, an array out."""

    def __init__(
        self,
        described: DescribedFunction,
        options: FunctionOptions,
        stability: Stability,
        null_handling: NullHandling,
    ) -> None:
        super().__init__(described, options)
        self.stability = stability
        self.null_handling = null_handling

    def execute(self, ctx: Context, arguments: pa.RecordBatch) -> Any:
        described = self._described
        if described.takes_all_in_order:
            return described.function(*arguments.columns)
        return described.call(arguments.columns, {Context: ctx, RowCount: arguments.num_rows})


class PythonTableFunction(_PythonFunction, TableFunction):
    """A table function: values in, batches out."""

    def __init__(
        self, described: DescribedFunction, options: FunctionOptions, returns: Returns
    ) -> None:
        super().__init__(described, options)
        self._returns = returns

    def schema_for_parameters(self, ctx: Context, parameters: Sequence[Any]) -> pa.Schema:
        return _result_schema(self._returns, self._described.values_by_name(parameters))

    def execute(
        self, ctx: Context, parameters: Sequence[Any], options: ScanOptions
    ) -> RecordReader:
        return _batches(
            self._described.call(parameters, {Context: ctx, ScanOptions: options}), self.name
        )


class PartitionedPythonFunction(PythonTableFunction, PartitionedTableFunction):
    """A table function that runs in several parts, which another function names."""

    def __init__(
        self,
        described: DescribedFunction,
        options: FunctionOptions,
        returns: Returns,
        divide: Callable[..., Iterable[bytes]],
    ) -> None:
        super().__init__(described, options, returns)
        self._divide = divide

    def partitions(
        self, ctx: Context, parameters: Sequence[Any], options: ScanOptions
    ) -> Sequence[bytes]:
        return list(_by_name(self._divide, self._described.values_by_name(parameters)))


class PythonTableInOutFunction(_PythonFunction, TableInOutFunction):
    """An in/out function: values and a stream of batches in, batches out."""

    def __init__(
        self, described: DescribedFunction, options: FunctionOptions, returns: Returns
    ) -> None:
        super().__init__(described, options)
        self._returns = returns

    def schema_for_input(
        self, ctx: Context, parameters: Sequence[Any], arrow_schema: pa.Schema
    ) -> pa.Schema:
        values = self._described.values_by_name(parameters)
        return _result_schema(
            self._returns, values | {self.signature.parameters[-1].name: arrow_schema}
        )

    def process(self, ctx: Context, parameters: Sequence[Any], rows: RecordReader) -> RecordReader:
        return _batches(self._described.call(parameters, {Context: ctx}, rows), self.name)


class PythonBatchwiseFunction(PythonTableInOutFunction, BatchwiseInOutFunction):
    """An in/out function that is called batch by batch: values and one batch in, batches out."""

    def process_batch(
        self, ctx: Context, parameters: Sequence[Any], batch: pa.RecordBatch
    ) -> RecordReader:
        return _batches(self._described.call(parameters, {Context: ctx}, batch), self.name)

    def process(
        self, ctx: Context, parameters: Sequence[Any], rows: RecordReader
    ) -> Iterator[pa.RecordBatch]:
        return BatchwiseInOutFunction.process(self, ctx, parameters, rows)


def python_table_function(
    described: DescribedFunction,
    options: FunctionOptions,
    returns: Returns,
    partitions: Callable[..., Iterable[bytes]] | None,
) -> TableFunction | TableInOutFunction:
    """Make the kind of function that the signature asks for. Raises: BadRequest."""
    if not isinstance(returns, pa.Schema) and (not callable(returns) or isinstance(returns, type)):
        raise BadRequest(
            f"function {options.name}: returns= must be an Arrow schema, or a function that tells "
            f"it"
        )
    takes_rows = any(
        parameter.kind is ParameterKind.TABLE for parameter in described.signature.parameters
    )
    if partitions is not None:
        if takes_rows:
            raise BadRequest(
                f"function {options.name}: a function with a table parameter cannot be partitioned"
            )
        return PartitionedPythonFunction(described, options, returns, partitions)
    if not takes_rows:
        return PythonTableFunction(described, options, returns)
    form = PythonBatchwiseFunction if described.takes_batches else PythonTableInOutFunction
    return form(described, options, returns)


def refuse_repeated(made: Sequence[_Any], known: Sequence[_Any]) -> None:
    """Raises: AlreadyExists for a function that another, of equal name and arguments, hides."""
    for function in made:
        types = [parameter.type for parameter in function.signature.parameters]
        for other in known:
            if folded(other.name) == folded(function.name) and types == [
                each.type for each in other.signature.parameters
            ]:
                raise AlreadyExists(
                    f"function {function.name} exists already with the same arguments"
                )


def _batches(result: Any, name: str) -> RecordReader:
    """A reader of what a function returned: batches, a table, a single batch, or None."""
    if result is None:
        return ()
    if isinstance(result, pa.RecordBatch):
        return (result,)
    if isinstance(result, pa.Table):
        batches: list[pa.RecordBatch] = result.to_batches()
        return batches
    if not isinstance(result, Iterable):
        raise CatalogFault(
            f"function {name} returned {type(result).__name__}, which yields no batches"
        )
    return result


def _result_schema(returns: Returns, values: Mapping[str, Any]) -> pa.Schema:
    return returns if isinstance(returns, pa.Schema) else _by_name(returns, values)


def _by_name(function: Callable[..., Any], values: Mapping[str, Any]) -> Any:
    """Call a function with those of the arguments that it names.

    A function that names others gets all of them, in order.
    """
    parameters = inspect.signature(function).parameters.values()
    names = [
        each.name for each in parameters if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
    ]
    if all(name in values for name in names):
        keeps_all = any(each.kind is each.VAR_KEYWORD for each in parameters)
        return function(**(values if keeps_all else {name: values[name] for name in names}))
    return function(*values.values())
