"""Which signatures of functions DuckDB's client can call (airport §3.6, §9)."""

from __future__ import annotations

from typing import Literal, TypeAlias

import pyarrow as pa

from sparkport.catalog.functions import (
    FunctionSignature,
    Parameter,
    ParameterKind,
    ScalarFunction,
    TableFunction,
    TableInOutFunction,
)
from sparkport.catalog.names import folded
from sparkport.engine.types import refuse_unsupported
from sparkport.errors import BadRequest

__all__ = ["FunctionForm", "form_of", "refuse_unusable"]

FunctionForm: TypeAlias = Literal["scalar", "table", "in/out"]

_RESERVED_NAMES = frozenset({"auth_token", "secret", "ticket", "at_unit", "at_value", "headers"})
"""Options of `airport_take_flight`: the client takes them out of any table function's arguments.
"""


def form_of(function: ScalarFunction | TableFunction | TableInOutFunction) -> FunctionForm:
    if isinstance(function, ScalarFunction):
        return "scalar"
    return "in/out" if isinstance(function, TableInOutFunction) else "table"


def refuse_unusable(signature: FunctionSignature, form: FunctionForm) -> None:
    """Raises: BadRequest or Unsupported for a signature that the client cannot call correctly."""
    parameters = signature.parameters
    kinds = [parameter.kind for parameter in parameters]
    if len({folded(parameter.name) for parameter in parameters}) < len(parameters):
        raise BadRequest("two of its parameters have the same name")
    if form == "scalar" and any(kind is not ParameterKind.POSITIONAL for kind in kinds):
        raise BadRequest("a scalar function can have only positional parameters")
    if form == "scalar" and signature.return_type is None:
        raise BadRequest(
            "a scalar function needs an Arrow type as its return_type, or as its return annotation"
        )
    if form == "table" and ParameterKind.TABLE in kinds:
        raise BadRequest("a function with a table parameter must be a TableInOutFunction")
    if form == "in/out":
        _refuse_in_out(kinds)
    if signature.variadic and (not kinds or kinds[-1] is not ParameterKind.POSITIONAL):
        raise BadRequest("the variadic parameter must be the last one, and positional")
    for parameter in parameters:
        _refuse_parameter(parameter)
    if signature.return_type is not None:
        refuse_unsupported(pa.schema([pa.field("result", signature.return_type)]), "its result")


def _refuse_in_out(kinds: list[ParameterKind]) -> None:
    """Refuse two kinds of parameters that the client passes wrongly (airport §9.3, T41)."""
    if ParameterKind.NAMED in kinds:
        raise BadRequest(
            "beside a table parameter none can be named: DuckDB would pass NULL for it"
        )
    if ParameterKind.TABLE not in kinds or kinds.index(ParameterKind.TABLE) != len(kinds) - 1:
        raise BadRequest("the table parameter must be the last one, and there can be only one")


def _refuse_parameter(parameter: Parameter) -> None:
    if parameter.kind is ParameterKind.NAMED and parameter.type is None:
        raise BadRequest(f"the named parameter {parameter.name} must have a type")
    if parameter.kind is ParameterKind.NAMED and parameter.name.lower() in _RESERVED_NAMES:
        raise BadRequest(
            f"DuckDB's client keeps the named parameter {parameter.name} for itself: choose "
            f"another name"
        )
    if parameter.type is not None:
        refuse_unsupported(pa.schema([pa.field(parameter.name, parameter.type)]), "its parameters")
