"""Conjuncts that DuckDB may apply while it reads a file.

They compare columns with constants and with each other. So no row can make them fail, none takes
long, and no function is called: what a client's filter can do in a database that opens files is
bounded by this list. All others are evaluated on the rows that are read (`evaluate.py`).
"""

from __future__ import annotations

from sparkport.catalog.filters.tree import (
    Between,
    Cast,
    ColumnRef,
    Comparison,
    Conjunction,
    Constant,
    Expression,
    Operator,
    OperatorKind,
)

__all__ = ["is_plain"]

_OPERATORS = frozenset(
    {
        OperatorKind.NOT,
        OperatorKind.IS_NULL,
        OperatorKind.IS_NOT_NULL,
        OperatorKind.IN,
        OperatorKind.NOT_IN,
    }
)


def is_plain(expression: Expression) -> bool:
    """Whether an expression consists of comparisons of columns and constants."""
    match expression:
        case Conjunction(children=children):
            return all(map(is_plain, children))
        case Operator(kind=kind, children=(ColumnRef(), *constants)) if kind in _OPERATORS:
            return all(map(_is_constant, constants))
        case Operator(kind=OperatorKind.NOT, children=(child,)):
            return is_plain(child)
        case Comparison(left=ColumnRef(), right=other) | Comparison(left=other, right=ColumnRef()):
            return isinstance(other, ColumnRef) or _is_constant(other)
        case Between(input=ColumnRef(), lower=lower, upper=upper):
            return _is_constant(lower) and _is_constant(upper)
        case ColumnRef():
            return True
        case _:
            return False


def _is_constant(expression: Expression) -> bool:
    match expression:
        case Constant(type=kind, value=value):
            return kind.id not in _FLOATING or value != 0
        case Cast(child=Constant(value=value), type=kind) if kind.id in _FLOATING:
            return isinstance(value, int) and value != 0
        case Cast(child=child, type=kind):
            # A constant that cannot be cast fails before anything is read.
            return kind.id not in _FLOATING and _is_constant(child)
        case _:
            return False


_FLOATING = frozenset({"FLOAT", "DOUBLE"})
"""Measured with DuckDB 1.5: it looks for 0.0 in a Bloom filter, and does not find -0.0. So zeros of
these types are not compared by it.
"""
