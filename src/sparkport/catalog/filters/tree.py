"""The filter of a scan as a typed tree, and the rules for reading it.

Strategy: the tree says what the client wrote, not how to run it. A backend translates what it
understands exactly and lets `Filter.weaken` drop the rest. The client applies every filter again
(airport §6.1), so a weaker filter is always right and a stronger filter loses rows. This module
imports no database.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

ROWID = "rowid"
"""The column name of the row id in a filter, whatever its Arrow field is called (airport §6.2)."""


@dataclass(frozen=True, slots=True)
class DuckType:
    """A DuckDB type as the client names it (airport §6.7).

    Members that do not belong to `id` keep their defaults. `fields` holds the members of STRUCT and
    UNION (without the union's hidden tag); an unnamed struct has empty names. `child` is the
    element of LIST and ARRAY, and for MAP a STRUCT of key and value.
    """

    id: str
    width: int = 0
    scale: int = 0
    size: int = 0
    child: DuckType | None = None
    fields: tuple[tuple[str, DuckType], ...] = ()
    values: tuple[str, ...] = ()
    alias: str = ""
    collation: str = ""

    def contains(self, *identifiers: str) -> bool:
        """Whether this type or a type nested in it has any of these ids."""
        if self.id in identifiers or (self.child is not None and self.child.contains(*identifiers)):
            return True
        return any(field.contains(*identifiers) for _, field in self.fields)

    def same_as(self, other: DuckType) -> bool:
        """Whether values compare alike: in a bound tree collations are functions (airport §6.5)."""
        return _plain(self) == _plain(other)


BOOLEAN = DuckType("BOOLEAN")


class ComparisonKind(Enum):
    EQUAL = "="
    NOT_EQUAL = "<>"
    LESS = "<"
    GREATER = ">"
    LESS_OR_EQUAL = "<="
    GREATER_OR_EQUAL = ">="
    DISTINCT = "IS DISTINCT FROM"
    NOT_DISTINCT = "IS NOT DISTINCT FROM"


class ConjunctionKind(Enum):
    AND = "AND"
    OR = "OR"


class OperatorKind(Enum):
    NOT = "OPERATOR_NOT"
    IS_NULL = "OPERATOR_IS_NULL"
    IS_NOT_NULL = "OPERATOR_IS_NOT_NULL"
    IN = "COMPARE_IN"
    NOT_IN = "COMPARE_NOT_IN"
    COALESCE = "OPERATOR_COALESCE"
    TRY = "OPERATOR_TRY"
    NULLIF = "OPERATOR_NULLIF"
    UNPACK = "OPERATOR_UNPACK"
    ARRAY_EXTRACT = "ARRAY_EXTRACT"
    ARRAY_SLICE = "ARRAY_SLICE"
    STRUCT_EXTRACT = "STRUCT_EXTRACT"
    ARRAY_CONSTRUCTOR = "ARRAY_CONSTRUCTOR"


@dataclass(frozen=True, slots=True)
class Interval:
    months: int
    days: int
    micros: int


Value: TypeAlias = (
    "bool | int | float | str | bytes | uuid.UUID | Interval | tuple[Constant, ...] | None"
)
"""The value of a constant, by type.

Integers (also DECIMAL, unscaled; DATE, in days; TIME and TIMESTAMP, in their unit since midnight or
the epoch; TIME WITH TIME ZONE, packed), floats, text (also ENUM, its label), bytes (BLOB; BIT and
BIGNUM in DuckDB's internal form, airport §13.1), UUID, Interval. LIST, ARRAY and STRUCT are tuples
of constants, MAP a tuple of STRUCT constants. UNION is a tuple with a constant per member, all NULL
but the chosen member (or all NULL).
"""


@dataclass(frozen=True, slots=True)
class ColumnRef:
    name: str
    type: DuckType


@dataclass(frozen=True, slots=True)
class Constant:
    type: DuckType
    value: Value
    tag: int = 0
    """The chosen member of a UNION; 0 for every other type."""


@dataclass(frozen=True, slots=True)
class Comparison:
    kind: ComparisonKind
    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True)
class Between:
    input: Expression
    lower: Expression
    upper: Expression
    lower_inclusive: bool
    upper_inclusive: bool


@dataclass(frozen=True, slots=True)
class Conjunction:
    kind: ConjunctionKind
    children: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Operator:
    kind: OperatorKind
    children: tuple[Expression, ...]
    type: DuckType


@dataclass(frozen=True, slots=True)
class Cast:
    child: Expression
    type: DuckType
    try_cast: bool = False


@dataclass(frozen=True, slots=True)
class Function:
    """A scalar function; operators such as `+` and `~~` are functions too (airport §6.5).

    `catalog` is `system` or empty for DuckDB's own functions. `has_data` says that the client
    attached state that the children do not show. Only functions known to put nothing but types
    there can be called again by name.
    """

    name: str
    children: tuple[Expression, ...]
    type: DuckType
    catalog: str = ""
    has_data: bool = False


@dataclass(frozen=True, slots=True)
class Case:
    branches: tuple[tuple[Expression, Expression], ...]
    otherwise: Expression
    type: DuckType


@dataclass(frozen=True, slots=True)
class Lambda:
    """The lambda of a list function. `parameters` is their number; `captures` come from outside."""

    body: Expression
    parameters: int
    captures: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class LambdaParameter:
    """In a lambda's body: the parameter at `index`; after the parameters, the captures in order."""

    index: int
    type: DuckType


@dataclass(frozen=True, slots=True)
class Unknown:
    """An expression that is not understood, of any value. `reason` is for logs."""

    reason: str


Expression: TypeAlias = (
    ColumnRef
    | Constant
    | Comparison
    | Between
    | Conjunction
    | Operator
    | Cast
    | Function
    | Case
    | Lambda
    | LambdaParameter
    | Unknown
)


@dataclass(frozen=True, slots=True)
class Filter:
    """What a scan should keep: rows for which all `expressions` are TRUE (airport §6.4).

    It is a hint. A table may ignore it, or apply a weaker filter. It must never drop a row that
    this filter keeps. `json` is the text as the client sent it, even when this filter was weakened.
    """

    expressions: tuple[Expression, ...]
    json: str = ""

    @property
    def columns(self) -> frozenset[str]:
        """The names of all columns that the filter reads, the row id as `rowid`."""
        return frozenset(
            node.name
            for expression in self.expressions
            for node in walk(expression)
            if isinstance(node, ColumnRef)
        )

    @property
    def conjuncts(self) -> tuple[Expression, ...]:
        """The expressions, with every AND at the top split. The filter implies each of them."""
        return tuple(part for expression in self.expressions for part in _flatten(expression))

    def weaken(self, can: Callable[[Expression], bool]) -> Filter:
        """Return the strongest filter made only of what `can` accepts, by airport §6.1.

        `can` is called for whole expressions that are not AND or OR. It must check everything
        inside them.
        """
        from sparkport.catalog.filters.weaken import weaken

        parts = (weaken(expression, can) for expression in self.expressions)
        return Filter(tuple(part for part in parts if part is not None), self.json)

    def sql(self) -> str | None:
        """DuckDB SQL that is TRUE for every row this filter keeps; None if no part is exact.

        Columns are quoted by name.
        """
        from sparkport.catalog.filters.sql import Inexpressible, render
        from sparkport.catalog.filters.weaken import is_exact

        texts = []
        for part in self.weaken(is_exact).conjuncts:
            try:
                texts.append(render(part))
            except Inexpressible:
                continue
        return " AND ".join(texts) if texts else None


def children_of(expression: Expression) -> tuple[Expression, ...]:
    """Return the direct operands, in order of evaluation."""
    match expression:
        case ColumnRef() | Constant() | LambdaParameter() | Unknown():
            return ()
        case Comparison():
            return (expression.left, expression.right)
        case Between():
            return (expression.input, expression.lower, expression.upper)
        case Conjunction() | Operator() | Function():
            return expression.children
        case Cast():
            return (expression.child,)
        case Case():
            return (
                *(part for branch in expression.branches for part in branch),
                expression.otherwise,
            )
        case Lambda():
            return (*expression.captures, expression.body)


def type_of(expression: Expression) -> DuckType | None:
    """Return the type of an expression's value; None for lambdas and unknown expressions."""
    match expression:
        case Comparison() | Between() | Conjunction():
            return BOOLEAN
        case Lambda() | Unknown():
            return None
        case Operator(kind=OperatorKind.NOT | OperatorKind.IS_NULL | OperatorKind.IS_NOT_NULL):
            return BOOLEAN
        case _:
            return expression.type


def walk(expression: Expression) -> Iterator[Expression]:
    """Yield the expression and everything inside it, without recursion."""
    pending = [expression]
    while pending:
        node = pending.pop()
        yield node
        pending.extend(children_of(node))


def _flatten(expression: Expression) -> Iterator[Expression]:
    if isinstance(expression, Conjunction) and expression.kind is ConjunctionKind.AND:
        for child in expression.children:
            yield from _flatten(child)
    else:
        yield expression


def _plain(kind: DuckType) -> DuckType:
    return DuckType(
        kind.id,
        kind.width,
        kind.scale,
        kind.size,
        None if kind.child is None else _plain(kind.child),
        tuple((name, _plain(field)) for name, field in kind.fields),
        kind.values,
        kind.alias,
    )
