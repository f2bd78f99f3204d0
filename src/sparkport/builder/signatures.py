"""From Python's parameters to SQL's: what annotations say, and how a call is made from SQL."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa

from sparkport.catalog import (
    Arguments,
    Context,
    FunctionSignature,
    Parameter,
    ParameterKind,
    ScanOptions,
)
from sparkport.engine.signatures import refuse_unusable
from sparkport.errors import BadRequest, Unsupported

__all__ = ["DescribedFunction", "RowCount", "describe"]


class RowCount(int):
    """Annotates the parameter that tells a scalar function how many rows it computes."""


_INJECTED = (Context, ScanOptions, RowCount)
_TABLES = (pa.Table, pa.RecordBatch)


class DescribedFunction:
    """A Python function and one of its SQL signatures; optional parameters make several."""

    def __init__(
        self,
        function: Callable[..., Any],
        signature: FunctionSignature,
        takes: Sequence[inspect.Parameter],
        annotations: Mapping[str, Any],
    ) -> None:
        self.signature = signature
        self.takes_batches = any(annotations.get(each.name) is pa.RecordBatch for each in takes)
        self.function = function
        names = [parameter.name for parameter in signature.parameters]
        self._steps = list(_steps(takes, annotations, names))
        self._wants_scalars = {name for name in names if annotations.get(name) is pa.Scalar}
        # Most functions take their arguments as they come; a batch must not cost more than
        # necessary.
        self.takes_all_in_order = all(
            step.kind in ("value", "rest") and not step.by_name for step in self._steps
        ) and (len(self._steps) == len(takes) and not self._wants_scalars)

    def call(
        self,
        values: Sequence[Any],
        injected: Mapping[type, Any] | None = None,
        subquery: Any = None,
    ) -> Any:
        """Call the function with SQL's arguments, in their order, and what the server passes."""
        if self.takes_all_in_order:
            return self.function(*values)
        remaining = iter(self._values(values))
        positional: list[Any] = []
        named: dict[str, Any] = {}
        for step in self._steps:
            match step.kind:
                case "rest":
                    positional.extend(remaining)
                    continue
                case "injected":
                    value = (injected or {})[step.annotation]
                case "subquery":
                    value = subquery
                case _:
                    value = next(remaining)
                    if (
                        value is None and step.only_by_name
                    ):  # a named argument that was left out (airport §4.7)
                        if step.required:
                            raise BadRequest(
                                f"the argument {step.name} is missing: pass it by name"
                            )
                        continue
            if step.by_name:
                named[step.name] = value
            else:
                positional.append(value)
        return self.function(*positional, **named)

    def values_by_name(self, values: Sequence[Any]) -> dict[str, Any]:
        """The arguments under the names of their parameters."""
        names = [
            each.name for each in self.signature.parameters if each.kind is not ParameterKind.TABLE
        ]
        return dict(zip(names, self._values(values), strict=False))

    def _values(self, values: Sequence[Any]) -> Iterator[Any]:
        """Arrow scalars as Python values, unless the annotation asks for Arrow's."""
        last = len(self.signature.parameters) - 1
        for index, value in enumerate(values):
            wanted = self.signature.parameters[min(index, last)].name in self._wants_scalars
            yield (
                values.arrow.column(index)[0] if wanted and isinstance(values, Arguments) else value
            )


@dataclass(frozen=True, slots=True)
class _Step:
    """Where a Python parameter gets its value from."""

    name: str
    kind: Literal["value", "rest", "injected", "subquery"]
    annotation: Any
    by_name: bool
    only_by_name: bool
    required: bool


def _steps(
    takes: Sequence[inspect.Parameter], annotations: Mapping[str, Any], names: Sequence[str]
) -> Iterator[_Step]:
    """Yield a step for each parameter of the signature.

    Parameters that come after a left-out parameter are passed by name.
    """
    left_out = False
    for parameter in takes:
        annotation = annotations.get(parameter.name)
        kind: Literal["value", "rest", "injected", "subquery"] = "value"
        if parameter.kind is parameter.VAR_POSITIONAL:
            kind = "rest"
        elif _is_one_of(annotation, _INJECTED):
            kind = "injected"
        elif _is_one_of(annotation, _TABLES):
            kind = "subquery"
        elif parameter.name not in names:
            left_out = True
            continue
        only_by_name = parameter.kind is parameter.KEYWORD_ONLY
        required = parameter.default is parameter.empty
        yield _Step(
            parameter.name, kind, annotation, left_out or only_by_name, only_by_name, required
        )


def _is_one_of(annotation: Any, classes: Sequence[Any]) -> bool:
    """Compare by identity: Arrow types compare themselves with whatever they are given."""
    return any(annotation is each for each in classes)


def describe(
    function: Callable[..., Any],
    name: str,
    form: Literal["scalar", "table"],
    returns: pa.DataType | None = None,
) -> list[DescribedFunction]:
    """The signatures that a function's annotations make, the longest first.

    `name` is the function's name in SQL. A parameter is annotated with an Arrow type, with
    `typing.Any` (any type, as a Python value) or `pa.Scalar` (any type, as an Arrow scalar), or as
    a subquery with `pa.Table` (an iterator over all its batches) or `pa.RecordBatch` (one batch for
    each call). `*values` takes one or more. What comes after `*` is passed by name (`name :=
    value`) and may be left out if it has a default; so may positional parameters at the end.
    `Context`, `ScanOptions` and `RowCount` are passed by the server, not by SQL.

    Raises: BadRequest, Unsupported.
    """
    try:
        signature = inspect.signature(function, eval_str=True)
    except (NameError, AttributeError, SyntaxError, TypeError, ValueError) as error:
        raise BadRequest(f"function {name}: its annotations cannot be read: {error}") from error
    takes = tuple(signature.parameters.values())
    annotations = {each.name: each.annotation for each in takes}
    values = [
        _parameter(name, each) for each in takes if not _is_one_of(each.annotation, _INJECTED)
    ]
    if returns is None and isinstance(signature.return_annotation, pa.DataType):
        returns = signature.return_annotation
    variadic = any(each.kind is each.VAR_POSITIONAL for each in takes)
    positional = [each for each in values if each.kind is ParameterKind.POSITIONAL]
    others = [each for each in values if each.kind is not ParameterKind.POSITIONAL]
    if not variadic and any(each.kind is ParameterKind.TABLE for each in values):
        # The place of the subquery matters, unless it is passed by name in Python.
        others, positional = _around_subquery(values, takes)
    optional = 0 if variadic else _optional(takes, positional)
    described = []
    for kept in range(len(positional), len(positional) - optional - 1, -1):
        parameters = (*positional[:kept], *others)
        made = FunctionSignature(tuple(values) if variadic else parameters, returns, variadic)
        _refuse(name, form, made, takes)
        described.append(DescribedFunction(function, made, takes, annotations))
    return described


def _around_subquery(
    values: Sequence[Parameter], takes: Sequence[inspect.Parameter]
) -> tuple[list[Parameter], list[Parameter]]:
    """The subquery and what follows it, and the values before it, in SQL's order."""
    by_name = {each.name for each in takes if each.kind is each.KEYWORD_ONLY}
    tables = [each for each in values if each.kind is ParameterKind.TABLE]
    first = next(index for index, each in enumerate(values) if each.kind is ParameterKind.TABLE)
    if len(tables) == 1 and tables[0].name in by_name:
        return tables, [each for each in values if each is not tables[0]]
    return list(values[first:]), list(values[:first])


def _optional(takes: Sequence[inspect.Parameter], positional: Sequence[Parameter]) -> int:
    names = {each.name for each in positional if each.kind is ParameterKind.POSITIONAL}
    return sum(
        each.default is not each.empty
        for each in takes
        if each.name in names and each.kind is not each.KEYWORD_ONLY
    )


def _refuse(
    name: str,
    form: Literal["scalar", "table"],
    signature: FunctionSignature,
    takes: Sequence[inspect.Parameter],
) -> None:
    """Raises: BadRequest, Unsupported for a function that could not be called."""
    takes_rows = any(each.kind is ParameterKind.TABLE for each in signature.parameters)
    for parameter in takes:
        told = {
            "scalar": (Context, RowCount),
            "table": (Context,) if takes_rows else (Context, ScanOptions),
        }[form]
        if _is_one_of(parameter.annotation, _INJECTED) and not _is_one_of(
            parameter.annotation, told
        ):
            raise BadRequest(
                f"function {name}: there is no {parameter.annotation.__name__} for parameter "
                f"{parameter.name}"
            )
    try:
        refuse_unusable(signature, "in/out" if takes_rows and form == "table" else form)
    except (BadRequest, Unsupported) as error:
        raise type(error)(f"function {name}: {error.message}") from error


def _parameter(name: str, parameter: inspect.Parameter) -> Parameter:
    annotation = parameter.annotation
    if parameter.kind is parameter.VAR_KEYWORD:
        raise BadRequest(
            f"function {name}: DuckDB cannot pass **{parameter.name}, name each parameter"
        )
    if _is_one_of(annotation, _TABLES):
        return Parameter(parameter.name, None, ParameterKind.TABLE)
    kind = (
        ParameterKind.NAMED
        if parameter.kind is parameter.KEYWORD_ONLY
        else ParameterKind.POSITIONAL
    )
    if annotation is Any or annotation is pa.Scalar:
        return Parameter(parameter.name, None, kind)
    if isinstance(annotation, pa.DataType):
        return Parameter(parameter.name, annotation, kind)
    raise BadRequest(
        f"function {name}: annotate parameter {parameter.name} with an Arrow type such as "
        f"pa.int64(), "
        "with typing.Any, or with pa.Table for a subquery"
    )
