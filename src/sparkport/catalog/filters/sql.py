"""Expressions as DuckDB SQL text that binds to what the client had bound.

Strategy: the tree is already bound, casts and all, so the text repeats it operator by operator and
leaves the binder nothing to decide: constants carry their types, functions are called by their
quoted name, and every expression stands in parentheses. `weaken.is_exact` decides whether the
result may be trusted.
"""

from __future__ import annotations

from collections.abc import Callable

from typing_extensions import assert_never

from sparkport.catalog.filters.functions import DECIMAL_ARITHMETIC
from sparkport.catalog.filters.literals import (
    LARGEST_TEXT,
    Inexpressible,
    constant_sql,
    quote_identifier,
    type_sql,
)
from sparkport.catalog.filters.tree import (
    Between,
    Case,
    Cast,
    ColumnRef,
    Comparison,
    Conjunction,
    Constant,
    Expression,
    Function,
    Lambda,
    LambdaParameter,
    Operator,
    OperatorKind,
    Unknown,
)

__all__ = ["Inexpressible", "render"]


def quoted_column(column: ColumnRef) -> str:
    return quote_identifier(column.name)


def render(expression: Expression, column: Callable[[ColumnRef], str] = quoted_column) -> str:
    """Write an expression as SQL; `column` writes a column, and may itself raise Inexpressible.

    Raises: Inexpressible if no text means exactly this expression.
    """
    return _Renderer(column).text(expression)


class _Renderer:
    def __init__(self, column: Callable[[ColumnRef], str]) -> None:
        self._column = column
        # The texts of the innermost lambda's LambdaParameters.
        self._frame: tuple[str, ...] = ()
        self._lambdas = 0

    def text(self, expression: Expression) -> str:
        text = self._parenthesised(expression)
        if len(text) > LARGEST_TEXT:
            raise Inexpressible("SQL of more than a megabyte")
        return text

    def _parenthesised(self, expression: Expression) -> str:
        match expression:
            case ColumnRef():
                return self._column(expression)
            case Constant():
                return constant_sql(expression)
            case Comparison():
                left, right = self.text(expression.left), self.text(expression.right)
                return f"({left} {expression.kind.value} {right})"
            case Between():
                return self._between(expression)
            case Conjunction():
                return (
                    f"({f' {expression.kind.value} '.join(self._several(expression.children, 1))})"
                )
            case Operator():
                return self._operator(expression)
            case Cast():
                keyword = "TRY_CAST" if expression.try_cast else "CAST"
                return f"{keyword}({self.text(expression.child)} AS {type_sql(expression.type)})"
            case Function():
                return self._function(expression)
            case Case():
                branches = " ".join(
                    f"WHEN {self.text(when)} THEN {self.text(then)}"
                    for when, then in expression.branches
                )
                if not branches:
                    raise Inexpressible("CASE without a branch")
                return f"(CASE {branches} ELSE {self.text(expression.otherwise)} END)"
            case LambdaParameter():
                if not 0 <= expression.index < len(self._frame):
                    raise Inexpressible("a lambda parameter outside of its lambda")
                return self._frame[expression.index]
            case Lambda():
                raise Inexpressible("a lambda that is not an argument")
            case Unknown():
                raise Inexpressible(expression.reason)
            case _:
                assert_never(expression)

    def _several(self, expressions: tuple[Expression, ...], least: int) -> list[str]:
        if len(expressions) < least:
            raise Inexpressible("an operand is missing")
        return [self.text(child) for child in expressions]

    def _between(self, between: Between) -> str:
        subject, lower, upper = (
            self.text(between.input),
            self.text(between.lower),
            self.text(between.upper),
        )
        if between.lower_inclusive and between.upper_inclusive:
            return f"({subject} BETWEEN {lower} AND {upper})"
        above = ">=" if between.lower_inclusive else ">"
        below = "<=" if between.upper_inclusive else "<"
        return f"({subject} {above} {lower} AND {subject} {below} {upper})"

    def _operator(self, operator: Operator) -> str:
        texts = self._several(operator.children, 1)
        first, rest = texts[0], texts[1:]
        match operator.kind:
            case OperatorKind.NOT if not rest:
                return f"(NOT {first})"
            case OperatorKind.IS_NULL if not rest:
                return f"({first} IS NULL)"
            case OperatorKind.IS_NOT_NULL if not rest:
                return f"({first} IS NOT NULL)"
            case OperatorKind.IN if rest:
                return f"({first} IN ({', '.join(rest)}))"
            case OperatorKind.NOT_IN if rest:
                return f"({first} NOT IN ({', '.join(rest)}))"
            case OperatorKind.COALESCE:
                return f"COALESCE({', '.join(texts)})"
            case OperatorKind.TRY if not rest:
                return f"TRY({first})"
            case OperatorKind.NULLIF if len(rest) == 1:
                return f"NULLIF({first}, {rest[0]})"
            case _:
                # The others are in the enum but are never sent: they become functions (airport
                # §6.5).
                raise Inexpressible(f"{operator.kind.value} of {len(texts)}")

    def _function(self, function: Function) -> str:
        if any(isinstance(child, Lambda) for child in function.children):
            return self._lambda_function(function)
        texts = self._several(function.children, 0)
        if function.name == "struct_pack":
            names = [name for name, _ in function.type.fields]
            if len(names) != len(texts) or not all(names):
                raise Inexpressible("struct_pack with other fields than its type")
            pairs = zip(names, texts, strict=True)
            members = (f"{quote_identifier(name)} := {text}" for name, text in pairs)
            return f"struct_pack({', '.join(members)})"
        call = f"{quote_identifier(function.name)}({', '.join(texts)})"
        if function.name in _TRUNCATIONS or (
            function.name in DECIMAL_ARITHMETIC and function.type.id == "DECIMAL"
        ):
            return f"CAST({call} AS {type_sql(function.type)})"
        return call

    def _lambda_function(self, function: Function) -> str:
        match function.children:
            case (subject, Lambda() as argument) if 1 <= argument.parameters <= 3:
                outer = self._frame
                subject_text = self.text(subject)
                captures = tuple(self._several(argument.captures, 0))
                # Each lambda has names of its own, so that a capture never means an inner
                # parameter.
                names = tuple(
                    f"p{self._lambdas}_{position}" for position in range(argument.parameters)
                )
                self._lambdas += 1
                self._frame = (*names, *captures)
                try:
                    body = self.text(argument.body)
                finally:
                    self._frame = outer
                parameters = ", ".join(names)
                call = quote_identifier(function.name)
                return f"{call}({subject_text}, lambda {parameters}: {body})"
            case _:
                raise Inexpressible(f"{function.name} with lambdas in other places")


_TRUNCATIONS = frozenset({"date_trunc", "datetrunc"})
"""DuckDB 1.4 truncates to DATE where 1.5 truncates to TIMESTAMP; the values are equal."""
