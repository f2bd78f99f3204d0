"""Python functions as SQL functions; their annotations are the signature."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from sparkport.catalog import (
    Context,
    FunctionSignature,
    Parameter,
    ParameterKind,
    RecordReader,
    ScalarFunction,
    ScanOptions,
    Stability,
    TableFunction,
    TableInOutFunction,
)
from sparkport.errors import BadRequest, CatalogFault

__all__ = ["PythonScalarFunction", "PythonTableFunction", "PythonTableInOutFunction", "signature_of"]


class _Described:
    """What all of them tell about themselves."""

    def __init__(self, function: Callable[..., Any], name: str, comment: str) -> None:
        self._function = function
        self._name = name
        self._comment = comment
        self._signature = signature_of(function)

    @property
    def name(self) -> str:
        return self._name

    @property
    def comment(self) -> str:
        return self._comment

    @property
    def signature(self) -> FunctionSignature:
        return self._signature


class PythonScalarFunction(_Described, ScalarFunction):
    """Arrays in, an array out."""

    def __init__(self, function: Callable[..., Any], name: str, comment: str, stability: Stability) -> None:
        super().__init__(function, name, comment)
        self.stability = stability
        if self._signature.return_type is None:
            raise BadRequest(f"the scalar function {name} needs an Arrow type as its return annotation")
        if any(parameter.kind is not ParameterKind.POSITIONAL for parameter in self._signature.parameters):
            raise BadRequest(f"the scalar function {name} can have only positional parameters")

    def execute(self, ctx: Context, arguments: pa.RecordBatch) -> pa.Array:
        result = self._function(*arguments.columns)
        if isinstance(result, pa.ChunkedArray):
            result = result.combine_chunks()
        if not isinstance(result, pa.Array):
            raise CatalogFault(f"function {self._name} returned {type(result).__name__}, not an Arrow array")
        return result


class PythonTableFunction(_Described, TableFunction):
    """Values in, batches out. `returns` is the Arrow schema, or a function of the arguments that tells it."""

    def __init__(
        self, function: Callable[..., Any], name: str, comment: str, returns: pa.Schema | Callable[..., pa.Schema]
    ) -> None:
        super().__init__(function, name, comment)
        self._returns = returns

    def schema_for_parameters(self, ctx: Context, parameters: Sequence[Any]) -> pa.Schema:
        return _result_schema(self._returns, self._signature, parameters)

    def execute(self, ctx: Context, parameters: Sequence[Any], options: ScanOptions) -> RecordReader:
        result: RecordReader = _call(self._function, self._signature, parameters)
        return result


class PythonTableInOutFunction(_Described, TableInOutFunction):
    """Values and a stream of batches in, batches out."""

    def __init__(
        self, function: Callable[..., Any], name: str, comment: str, returns: pa.Schema | Callable[..., pa.Schema]
    ) -> None:
        super().__init__(function, name, comment)
        self._returns = returns
        kinds = [parameter.kind for parameter in self._signature.parameters]
        if kinds[-1] is not ParameterKind.TABLE or ParameterKind.NAMED in kinds:
            # The client passes neither correctly (airport §9.3, T41).
            raise BadRequest(f"function {name}: the table parameter must be the last one, and none can be named")

    def schema_for_input(self, ctx: Context, parameters: Sequence[Any], arrow_schema: pa.Schema) -> pa.Schema:
        return _result_schema(self._returns, self._signature, [*parameters, arrow_schema])

    def process(self, ctx: Context, parameters: Sequence[Any], rows: RecordReader) -> RecordReader:
        result: RecordReader = self._function(*parameters, rows)
        return result


def signature_of(function: Callable[..., Any]) -> FunctionSignature:
    """The signature that annotations tell: Arrow types, `typing.Any`, or `pa.Table` for a subquery.

    Keyword-only parameters are passed by name (`name := value`). Raises: BadRequest.
    """
    annotations = inspect.get_annotations(function, eval_str=True)
    parameters: list[Parameter] = []
    for parameter in inspect.signature(function).parameters.values():
        annotation = annotations.get(parameter.name)
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise BadRequest(f"function {function.__name__}: DuckDB cannot pass *{parameter.name}, name each parameter")
        kind = ParameterKind.NAMED if parameter.kind is parameter.KEYWORD_ONLY else ParameterKind.POSITIONAL
        if annotation is pa.Table:
            parameters.append(Parameter(parameter.name, None, ParameterKind.TABLE))
        elif annotation is Any or isinstance(annotation, pa.DataType):
            parameters.append(Parameter(parameter.name, None if annotation is Any else annotation, kind))
        else:
            raise BadRequest(
                f"function {function.__name__}: annotate parameter {parameter.name} with an Arrow type such as pa.int64(), "
                "with typing.Any, or with pa.Table for a subquery"
            )
    returns = annotations.get("return")
    return FunctionSignature(tuple(parameters), returns if isinstance(returns, pa.DataType) else None)


def _call(function: Callable[..., Any], signature: FunctionSignature, values: Sequence[Any]) -> Any:
    positional, named = [], {}
    for parameter, value in zip(signature.parameters, values, strict=True):
        if parameter.kind is ParameterKind.NAMED:
            if value is not None:  # a named argument that was left out arrives as NULL (airport §4.7)
                named[parameter.name] = value
        else:
            positional.append(value)
    return function(*positional, **named)


def _result_schema(
    returns: pa.Schema | Callable[..., pa.Schema], signature: FunctionSignature, values: Sequence[Any]
) -> pa.Schema:
    return returns if isinstance(returns, pa.Schema) else _call(returns, signature, values)
