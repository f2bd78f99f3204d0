"""From Python's parameters to SQL's: what annotations say, and how a call is put together again."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from sparkport.catalog import Arguments, Context, FunctionSignature, Parameter, ParameterKind, ScanOptions
from sparkport.errors import BadRequest

__all__ = ["Described", "RowCount", "describe"]


class RowCount(int):
    """Annotates the parameter by which a scalar function learns how many rows it computes."""


_INJECTED = (Context, ScanOptions, RowCount)
_TABLES = (pa.Table, pa.RecordBatch)


@dataclass(frozen=True, slots=True)
class Described:
    """A Python function and one SQL signature of it: one with optional parameters has several."""

    function: Callable[..., Any]
    signature: FunctionSignature
    takes: tuple[inspect.Parameter, ...]
    annotations: Mapping[str, Any]

    def takes_batches(self) -> bool:
        """Whether it is an in/out function that works batch by batch."""
        return any(self.annotations.get(each.name) is pa.RecordBatch for each in self.takes)

    def call(self, values: Sequence[Any], injected: Mapping[type, Any] | None = None, subquery: Any = None) -> Any:
        """Call the function with SQL's arguments, in the order of the signature, and what it wants to know besides."""
        remaining = iter(self._values(values))
        positional: list[Any] = []
        named: dict[str, Any] = {}
        omitted = False
        for parameter in self.takes:
            annotation = self.annotations.get(parameter.name)
            if parameter.kind is parameter.VAR_POSITIONAL:
                positional.extend(remaining)
                continue
            if annotation in _INJECTED:
                value = (injected or {})[annotation]
            elif annotation in _TABLES:
                value = subquery
            elif parameter.name in self._names():
                value = next(remaining)
                if value is None and parameter.kind is parameter.KEYWORD_ONLY:
                    continue  # a named argument that was left out arrives as NULL (airport §4.7)
            else:
                omitted = True
                continue
            if omitted or parameter.kind is parameter.KEYWORD_ONLY:
                named[parameter.name] = value
            else:
                positional.append(value)
        return self.function(*positional, **named)

    def values_by_name(self, values: Sequence[Any]) -> dict[str, Any]:
        """The arguments under the names of their parameters."""
        names = [each.name for each in self.signature.parameters if each.kind is not ParameterKind.TABLE]
        return dict(zip(names, self._values(values), strict=False))

    def _names(self) -> set[str]:
        return {parameter.name for parameter in self.signature.parameters}

    def _values(self, values: Sequence[Any]) -> Iterator[Any]:
        """Python's values, but Arrow's where the annotation asks for them."""
        for index, value in enumerate(values):
            parameter = self.signature.parameters[min(index, len(self.signature.parameters) - 1)]
            if self.annotations.get(parameter.name) is pa.Scalar and isinstance(values, Arguments):
                yield values.arrow.column(index)[0]
            else:
                yield value


def describe(function: Callable[..., Any], returns: pa.DataType | None = None) -> list[Described]:
    """The signatures that annotations tell, the longest first.

    A parameter is annotated with an Arrow type, with `typing.Any` (any type, as a Python value) or `pa.Scalar` (any type,
    as an Arrow scalar), or as a subquery with `pa.Table` (an iterator over all its batches) or `pa.RecordBatch` (one batch
    for each call). `*values` takes one or more. What comes after `*` is passed by name (`name := value`) and may be left out
    if it has a default; so may positional parameters at the end. `Context`, `ScanOptions` and `RowCount` are passed by the
    server, not by SQL.

    Raises: BadRequest.
    """
    annotations = inspect.get_annotations(function, eval_str=True)
    takes = tuple(inspect.signature(function).parameters.values())
    parameters: list[Parameter] = []
    optional = 0
    for parameter in takes:
        if annotations.get(parameter.name) in _INJECTED:
            continue
        parameters.append(_parameter(function, parameter, annotations))
        if parameter.kind not in (parameter.KEYWORD_ONLY, parameter.VAR_POSITIONAL):
            optional += parameter.default is not parameter.empty
    declared = annotations.get("return")
    if returns is None and isinstance(declared, pa.DataType):
        returns = declared
    variadic = any(parameter.kind is parameter.VAR_POSITIONAL for parameter in takes)
    required = [each for each in parameters if each.kind is not ParameterKind.NAMED]
    named = [each for each in parameters if each.kind is ParameterKind.NAMED]
    described = []
    for left_out in range(0 if variadic else optional, -1, -1):
        kept = required[: len(required) - left_out]
        signature = FunctionSignature((*kept, *named), returns, variadic)
        described.append(Described(function, signature, takes, annotations))
    return described[::-1]


def _parameter(function: Callable[..., Any], parameter: inspect.Parameter, annotations: Mapping[str, Any]) -> Parameter:
    annotation = annotations.get(parameter.name)
    if parameter.kind is parameter.VAR_KEYWORD:
        raise BadRequest(f"function {function.__name__}: DuckDB cannot pass **{parameter.name}, name each parameter")
    if annotation in _TABLES:
        return Parameter(parameter.name, None, ParameterKind.TABLE)
    kind = ParameterKind.NAMED if parameter.kind is parameter.KEYWORD_ONLY else ParameterKind.POSITIONAL
    if annotation is Any or annotation is pa.Scalar:
        return Parameter(parameter.name, None, kind)
    if isinstance(annotation, pa.DataType):
        return Parameter(parameter.name, annotation, kind)
    raise BadRequest(
        f"function {function.__name__}: annotate parameter {parameter.name} with an Arrow type such as pa.int64(), "
        "with typing.Any, or with pa.Table for a subquery"
    )
