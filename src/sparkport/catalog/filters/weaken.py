"""The weakening of filters (airport §6.1), and what counts as exactly understood.

Strategy: a conjunct is kept whole or dropped whole, because under NOT, CASE, a comparison or a
function argument a wrong value can point either way. Only AND and OR at the top are monotonic:
their children may be weakened in turn.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from typing_extensions import assert_never

from sparkport.catalog.filters.functions import (
    CARRIERS,
    DECIMAL_ARITHMETIC,
    DIVISIONS,
    LAMBDA_FUNCTIONS,
    REVIEWED,
    TYPED_BY_DATA,
    UNSURE_ARGUMENTS,
    ZONE_FREE,
    ZONED,
    is_exact_cast,
)
from sparkport.catalog.filters.tree import (
    BOOLEAN,
    Between,
    Case,
    Cast,
    ColumnRef,
    Comparison,
    ComparisonKind,
    Conjunction,
    ConjunctionKind,
    Constant,
    DuckType,
    Expression,
    Function,
    Lambda,
    LambdaParameter,
    Operator,
    OperatorKind,
    Unknown,
    children_of,
    type_of,
    walk,
)


def weaken(expression: Expression, can: Callable[[Expression], bool]) -> Expression | None:
    """Return the strongest expression that is implied and made only of what `can` accepts.

    None means "any row".
    """
    if not isinstance(expression, Conjunction):
        return expression if can(expression) else None
    children = [weaken(child, can) for child in expression.children]
    known = tuple(child for child in children if child is not None)
    match expression.kind:
        case ConjunctionKind.OR if len(known) < len(children):
            return None
        case ConjunctionKind.OR | ConjunctionKind.AND:
            if not known:
                return None
            return known[0] if len(known) == 1 else Conjunction(expression.kind, known)
        case _:
            assert_never(expression.kind)


def is_exact(expression: Expression) -> bool:
    """Whether DuckDB on the server gives the client's value for every row."""
    return type_of(expression) == BOOLEAN and all(_is_exact_here(node) for node in walk(expression))


def _is_exact_here(node: Expression) -> bool:
    """Whether this node is exact if its children are."""
    match node:
        case ColumnRef() | Constant() | LambdaParameter():
            return True
        case Unknown():
            return False
        case Comparison():
            ordered = node.kind not in _EQUALITIES
            return _alike((node.left, node.right)) and not (ordered and _has_bits(node.left))
        case Between():
            return _alike(children_of(node)) and not _has_bits(node.input)
        case Conjunction():
            return all(type_of(child) == BOOLEAN for child in node.children)
        case Operator():
            return _is_exact_operator(node)
        case Cast():
            return _is_exact_cast(node)
        case Function():
            return _is_exact_function(node)
        case Case():
            results = (*(then for _, then in node.branches), node.otherwise)
            return all(type_of(when) == BOOLEAN for when, _ in node.branches) and _alike(
                results, node.type
            )
        case Lambda():
            # A lambda is fine by itself; `_is_exact_function` says which functions may have one.
            return True
        case _:
            assert_never(node)


def _is_exact_operator(operator: Operator) -> bool:
    match operator.kind:
        case OperatorKind.NOT:
            return all(type_of(child) == BOOLEAN for child in operator.children)
        case OperatorKind.IS_NULL | OperatorKind.IS_NOT_NULL:
            return True
        case OperatorKind.IN | OperatorKind.NOT_IN | OperatorKind.COALESCE:
            return _alike(operator.children)
        case OperatorKind.TRY:
            # Versions differ in what is an error, and TRY turns that into a value.
            return False
        case (
            OperatorKind.NULLIF
            | OperatorKind.UNPACK
            | OperatorKind.ARRAY_EXTRACT
            | OperatorKind.ARRAY_SLICE
            | OperatorKind.STRUCT_EXTRACT
            | OperatorKind.ARRAY_CONSTRUCTOR
        ):
            # In the enum but never sent (airport §6.4), so never reviewed.
            return False
        case _:
            assert_never(operator.kind)


def _is_exact_cast(cast: Cast) -> bool:
    source = type_of(cast.child)
    if source is None:
        return False
    if is_exact_cast(source, cast.type, cast.try_cast):
        return True
    match cast.child:
        case Constant(type=DuckType(id="VARCHAR"), value=str() as text) if not cast.try_cast:
            # A cast that the optimiser did not fold. An instant with its offset written needs no
            # session.
            pattern = _CONSTANT_TEXT.get(cast.type.id)
            return pattern is not None and pattern.fullmatch(text) is not None
        case _:
            return False


def _is_exact_function(function: Function) -> bool:
    if function.catalog not in {"", "system"} or function.name not in REVIEWED:
        return False
    if not function.children:
        return False
    if function.has_data and function.name not in TYPED_BY_DATA:
        return False
    lambdas = any(isinstance(child, Lambda) for child in function.children)
    if lambdas != (function.name in LAMBDA_FUNCTIONS):
        return False
    types = [kind for child in function.children if (kind := type_of(child)) is not None]
    if any(kind.contains(*UNSURE_ARGUMENTS) for kind in types):
        return False
    involved = (*types, function.type)
    if function.name not in ZONE_FREE and any(kind.contains(*ZONED) for kind in involved):
        return False
    if function.name not in CARRIERS and any(kind.contains("TIMESTAMP_NS") for kind in types):
        return False
    if function.name in _JSON_FUNCTIONS and types[0].id != "VARCHAR":
        return False
    if {"INTERVAL"} < {kind.id for kind in types} & {"INTERVAL", "FLOAT", "DOUBLE"}:
        # Fractions of months become days and microseconds by different roundings.
        return False
    if function.name in {"greatest", "least"}:
        return _alike(function.children) and not _has_bits(function.children[0])
    if function.name in DECIMAL_ARITHMETIC and function.type.id == "DECIMAL":
        scales = [kind.scale for kind in types]
        scale = sum(scales) if function.name in {"*", "multiply"} else max(scales)
        return all(kind.id == "DECIMAL" for kind in types) and scale == function.type.scale
    if function.name in DIVISIONS:
        return len(function.children) == 2 and _is_certainly_not_zero(function.children[1])
    if function.name == "round" and len(function.children) > 1:
        # Rounding left of the point overflows in one version and not in another.
        match function.children[1]:
            case Constant(value=int() as digits):
                return 0 <= digits <= 15
            case _:
                return False
    return True


def _is_certainly_not_zero(divisor: Expression) -> bool:
    match divisor:
        case Constant(type=DuckType(id=identifier), value=bool() | int() | float() as value):
            return identifier in _NUMBERS and value != 0
        case Cast(
            child=Constant(type=DuckType(id=identifier), value=int() as value),
            type=DuckType(id=target),
        ):
            # Only from integers: a fraction may be rounded to zero on the way.
            return identifier in _INTEGERS and target in _NUMBERS and value != 0
        case _:
            return False


def _alike(expressions: tuple[Expression, ...], wanted: DuckType | None = None) -> bool:
    """Whether all have the same type, so that binding them again adds no cast."""
    types = [type_of(expression) for expression in expressions]
    first = wanted or (types[0] if types else None)
    return first is not None and all(kind is not None and kind.same_as(first) for kind in types)


def _has_bits(expression: Expression) -> bool:
    """Whether it has type BIT, which 1.x orders by its bytes and 2.0 by its bits."""
    kind = type_of(expression)
    return kind is None or kind.contains("BIT")


_EQUALITIES = frozenset(
    {
        ComparisonKind.EQUAL,
        ComparisonKind.NOT_EQUAL,
        ComparisonKind.DISTINCT,
        ComparisonKind.NOT_DISTINCT,
    }
)

_JSON_FUNCTIONS = frozenset(name for name in REVIEWED if name.startswith("json_")) | {"->>"}
"""Functions whose result for values that are not text has changed between versions."""

_INTEGERS = frozenset(
    f"{sign}{size}INT" for sign in ("", "U") for size in ("TINY", "SMALL", "BIG", "HUGE")
) | frozenset({"INTEGER", "UINTEGER"})

_NUMBERS = _INTEGERS | {"DECIMAL", "FLOAT", "DOUBLE"}

_DAY, _CLOCK, _OFFSET = (
    r"\d{4}-\d\d-\d\d",
    r"\d\d:\d\d(:\d\d(\.\d{1,6})?)?",
    r"(Z|[+-]\d\d(:\d\d)?)",
)

_PERIOD = r"-?\d{1,6} (year|month|day|hour|minute|second)s?"

_CONSTANT_TEXT = {
    "TIMESTAMP WITH TIME ZONE": re.compile(f"{_DAY}[ T]{_CLOCK}{_OFFSET}", re.ASCII),
    "TIME WITH TIME ZONE": re.compile(f"{_CLOCK}[+-]\\d\\d(:\\d\\d)?", re.ASCII),
    "TIMESTAMP_NS": re.compile(f"{_DAY}([ T]{_CLOCK})?", re.ASCII),
    "DECIMAL": re.compile(r"-?\d{1,38}(\.\d{1,38})?", re.ASCII),
    "BIT": re.compile("[01]+"),
    "BIGNUM": re.compile(r"-?\d{1,1000}", re.ASCII),
    "INTERVAL": re.compile(f"{_PERIOD}( {_PERIOD})*", re.ASCII),
}
