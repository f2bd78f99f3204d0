"""Filters as Spark SQL, for relations that only Spark can read.

Strategy: an expression is translated only if Spark and DuckDB evaluate it alike for every value, in
ANSI mode or not; `Filter.weaken` drops the rest (airport §6.1). A column is used only where Spark's
type holds DuckDB's values as they are: a value that is stored in another type, because Spark lacks
its own, has another order.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from typing_extensions import assert_never

from sparkport.catalog.filters import (
    BOOLEAN,
    ROWID,
    Between,
    Case,
    Cast,
    ColumnRef,
    Comparison,
    ComparisonKind,
    Conjunction,
    Constant,
    DuckType,
    Expression,
    Filter,
    Function,
    Lambda,
    LambdaParameter,
    Operator,
    OperatorKind,
    Unknown,
    type_of,
)
from sparkport.catalog.filters.literals import LARGEST_TEXT, Inexpressible
from sparkport.spark.iceberg.identifiers import quoted

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["spark_condition"]

_MOST_VALUES = 1_000
"""The limit of one IN: Spark plans longer lists more slowly than it reads a few rows in vain."""


def spark_condition(
    row_filter: Filter | None, relation: StructType, rowid_column: str | None = None
) -> str | None:
    """A WHERE condition that loses no row which the filter keeps; None if all rows are needed.

    `relation` has Spark's types of the columns, under the users' names; `rowid_column` holds the
    row id.
    """
    if row_filter is None or not row_filter.expressions:
        return None
    renderer = _Renderer(relation, rowid_column)
    parts = row_filter.weaken(renderer.can).expressions
    text = " AND ".join(renderer.text(part) for part in parts)
    return text if 0 < len(text) <= LARGEST_TEXT else None


class _Renderer:
    def __init__(self, relation: StructType, rowid_column: str | None) -> None:
        spellings = Counter(field.name.lower() for field in relation)
        # Spark does not tell names apart that differ only in case.
        self._types = {
            field.name: field.dataType.simpleString()
            for field in relation
            if spellings[field.name.lower()] == 1
        }
        self._rowid_column = rowid_column

    def can(self, expression: Expression) -> bool:
        if type_of(expression) != BOOLEAN:
            return False
        try:
            self.text(expression)
        except (Inexpressible, RecursionError):
            return False
        return True

    def text(self, expression: Expression) -> str:
        """The SQL. Raises: Inexpressible unless the expression surely means the same to Spark."""
        match expression:
            case ColumnRef():
                return self._column(expression)
            case Constant():
                return _constant(expression)
            case Comparison():
                _refuse_different(expression.left, expression.right)
                return self._compared(
                    expression.kind, self.text(expression.left), self.text(expression.right)
                )
            case Between():
                return self._between(expression)
            case Conjunction():
                if (
                    not all(type_of(child) == BOOLEAN for child in expression.children)
                    or not expression.children
                ):
                    raise Inexpressible("AND or OR of other than conditions")
                return f"({f' {expression.kind.value} '.join(map(self.text, expression.children))})"
            case Operator():
                return self._operator(expression)
            case Cast():
                return self._cast(expression)
            case Function():
                return self._function(expression)
            case Case() | Lambda() | LambdaParameter() | Unknown():
                raise Inexpressible(type(expression).__name__)
            case _:
                assert_never(expression)

    def _column(self, column: ColumnRef) -> str:
        if _spark_type(column.type) != self._stored(column):
            raise Inexpressible(f"column {column.name} is stored in another type")
        name = self._name(column)
        if column.type.id in _FLOATS:
            # Bounds of files leave NaN out and tell -0.0 from 0.0. Pruning by them would lose rows
            # for DuckDB, where NaN is the greatest number. No source looks through this function,
            # which changes nothing.
            return f"nanvl({name}, {name})"
        return name

    def _name(self, column: ColumnRef) -> str:
        if column.name in self._types:
            return quoted(column.name)
        assert self._rowid_column is not None
        return quoted(self._rowid_column)

    def _stored(self, column: ColumnRef) -> str:
        if column.name == ROWID and self._rowid_column is not None and ROWID not in self._types:
            return "bigint"
        if column.name not in self._types:
            raise Inexpressible(f"column {column.name} is missing or ambiguous")
        return self._types[column.name]

    def _compared(self, kind: ComparisonKind, left: str, right: str) -> str:
        match kind:
            case ComparisonKind.NOT_DISTINCT:
                return f"({left} <=> {right})"
            case ComparisonKind.DISTINCT:
                return f"(NOT ({left} <=> {right}))"
            case _:
                return f"({left} {kind.value} {right})"

    def _between(self, between: Between) -> str:
        _refuse_different(between.input, between.lower, between.upper)
        subject = self.text(between.input)
        above = (
            ComparisonKind.GREATER_OR_EQUAL if between.lower_inclusive else ComparisonKind.GREATER
        )
        below = ComparisonKind.LESS_OR_EQUAL if between.upper_inclusive else ComparisonKind.LESS
        lower = self._compared(above, subject, self.text(between.lower))
        return f"({lower} AND {self._compared(below, subject, self.text(between.upper))})"

    def _operator(self, operator: Operator) -> str:
        match operator.kind, operator.children:
            case OperatorKind.NOT, (child,) if type_of(child) == BOOLEAN:
                return f"(NOT {self.text(child)})"
            case OperatorKind.IS_NULL, (child,):
                return f"({self._tested(child)} IS NULL)"
            case OperatorKind.IS_NOT_NULL, (child,):
                return f"({self._tested(child)} IS NOT NULL)"
            case ((OperatorKind.IN | OperatorKind.NOT_IN), (needle, *values)) if (
                0 < len(values) <= _MOST_VALUES
            ):
                _refuse_different(needle, *values)
                return self._in(needle, values, negated=operator.kind is OperatorKind.NOT_IN)
            case OperatorKind.COALESCE, (_, *_):
                _refuse_different(*operator.children)
                return f"coalesce({', '.join(map(self.text, operator.children))})"
            case _:
                raise Inexpressible(f"{operator.kind.value} of {len(operator.children)}")

    def _tested(self, expression: Expression) -> str:
        """The operand of a NULL test: any column without parts, in whatever type it is stored."""
        if isinstance(expression, ColumnRef) and expression.type.id not in _NESTED:
            self._stored(expression)
            return self._name(expression)
        return self.text(expression)

    def _in(self, needle: Expression, values: list[Expression], *, negated: bool) -> str:
        subject = self.text(needle)
        kind = type_of(needle)
        if kind is not None and kind.id in _FLOATS:
            # Spark looks long lists up by hash, where -0.0 is not 0.0.
            text = f"({' OR '.join(f'{subject} = {self.text(value)}' for value in values)})"
            return f"(NOT {text})" if negated else text
        return f"({subject}{' NOT' if negated else ''} IN ({', '.join(map(self.text, values))}))"

    def _cast(self, cast: Cast) -> str:
        source = type_of(cast.child)
        if source is None or cast.type.id not in _WIDER.get(source.id, ()) or cast.type.alias:
            raise Inexpressible(f"a cast to {cast.type.id}")
        return f"CAST({self.text(cast.child)} AS {_spark_type(cast.type)})"

    def _function(self, function: Function) -> str:
        name = _FUNCTIONS.get(function.name)
        if (
            name is None
            or function.catalog not in {"", "system"}
            or function.has_data
            or len(function.children) != 2
        ):
            raise Inexpressible(f"function {function.name}")
        if any(
            kind is None or _spark_type(kind) != "string"
            for kind in map(type_of, function.children)
        ):
            raise Inexpressible(f"function {function.name} of other than text")
        return f"{name}({', '.join(map(self.text, function.children))})"


def _refuse_different(first: Expression, *others: Expression) -> None:
    """Refuse operands of different types: each engine would cast them by its own rules."""
    wanted = type_of(first)
    kinds = [type_of(other) for other in others]
    if wanted is None or any(kind is None or not kind.same_as(wanted) for kind in kinds):
        raise Inexpressible("a comparison of different types")


def _spark_type(kind: DuckType) -> str:
    """Spark's name of the type with the same values in the same order. Raises: Inexpressible."""
    if kind.alias:
        raise Inexpressible(f"type alias {kind.alias}")
    if kind.id == "DECIMAL":
        return f"decimal({kind.width},{kind.scale})"
    if kind.id not in _TYPES:
        raise Inexpressible(f"type {kind.id}")
    return _TYPES[kind.id]


def _constant(constant: Constant) -> str:
    spark_type = _spark_type(constant.type)
    if constant.value is None:
        return f"CAST(NULL AS {spark_type})"
    match constant.value:
        case bool() if spark_type == "boolean":
            return "true" if constant.value else "false"
        case bool():
            raise Inexpressible("a boolean for another type")
        case int() if constant.type.id in _INTEGERS:
            return _INTEGERS[constant.type.id](constant.value)
        case int() if constant.type.id == "DECIMAL":
            return _decimal(constant.value, constant.type)
        case float() if constant.type.id in _FLOATS:
            # NaN and the infinities have a spelling only as text; narrowing what was a FLOAT is
            # exact.
            text = (
                "NaN"
                if math.isnan(constant.value)
                else repr(constant.value).replace("inf", "Infinity")
            )
            return f"CAST(CAST('{text}' AS double) AS {spark_type})"
        case str() if spark_type == "string":
            return _string(constant.value)
        case bytes() if spark_type == "binary":
            return f"X'{constant.value.hex()}'"
        case _:
            raise Inexpressible(f"a {type(constant.value).__name__} for {constant.type.id}")


def _within(bits: int, form: str) -> Callable[[int], str]:
    def text(value: int) -> str:
        if not -(2 ** (bits - 1)) <= value < 2 ** (bits - 1):
            raise Inexpressible("a number out of range")
        return form.format(value)

    return text


def _timestamp_ntz(micros: int) -> str:
    """A timestamp by its calendar date: given a number, Spark applies the session's time zone."""
    try:
        moment = datetime(1970, 1, 1) + timedelta(microseconds=micros)
    except OverflowError:
        raise Inexpressible("a time outside of the years 1 to 9999") from None
    return f"TIMESTAMP_NTZ '{moment.isoformat(' ', 'microseconds')}'"


def _decimal(value: int, kind: DuckType) -> str:
    if abs(value) >= 10**kind.width:
        raise Inexpressible("a decimal out of range")
    digits = f"{abs(value):0{kind.scale + 1}d}"
    whole, fraction = digits[: len(digits) - kind.scale], digits[len(digits) - kind.scale :]
    text = f"{'-' if value < 0 else ''}{whole}{'.' if fraction else ''}{fraction}"
    return f"CAST('{text}' AS {_spark_type(kind)})"


def _string(text: str) -> str:
    if _PLAIN_TEXT.fullmatch(text):
        return f"'{text}'"
    # The meaning of a backslash in a literal depends on Spark's settings.
    try:
        return f"CAST(X'{text.encode('utf-8').hex()}' AS string)"
    except UnicodeEncodeError:
        raise Inexpressible("text with a lone surrogate") from None


_PLAIN_TEXT = re.compile(r"[A-Za-z0-9 _.,:@+-]*")

_FLOATS = frozenset({"FLOAT", "DOUBLE"})

_NESTED = frozenset({"STRUCT", "LIST", "ARRAY", "MAP", "UNION", "VARIANT", "GEOMETRY", "NULL"})

_TYPES = {
    "BOOLEAN": "boolean",
    "TINYINT": "tinyint",
    "SMALLINT": "smallint",
    "INTEGER": "int",
    "BIGINT": "bigint",
    "FLOAT": "float",
    "DOUBLE": "double",
    "VARCHAR": "string",
    "BLOB": "binary",
    "DATE": "date",
    "TIMESTAMP": "timestamp_ntz",
    "TIMESTAMP WITH TIME ZONE": "timestamp",
}

_INTEGERS: dict[str, Callable[[int], str]] = {
    "TINYINT": _within(8, "{}Y"),
    "SMALLINT": _within(16, "{}S"),
    "INTEGER": _within(32, "{}"),
    "BIGINT": _within(64, "{}L"),
    "DATE": _within(32, "date_from_unix_date({})"),
    "TIMESTAMP": _timestamp_ntz,
    "TIMESTAMP WITH TIME ZONE": _within(64, "timestamp_micros({}L)"),
}

_WIDER: dict[str, tuple[str, ...]] = {
    "TINYINT": ("SMALLINT", "INTEGER", "BIGINT", "DOUBLE"),
    "SMALLINT": ("INTEGER", "BIGINT", "DOUBLE"),
    "INTEGER": ("BIGINT", "DOUBLE"),
    "FLOAT": ("DOUBLE",),
}
"""Casts that lose nothing."""

_FUNCTIONS = {
    "prefix": "startswith",
    "starts_with": "startswith",
    "^@": "startswith",
    "suffix": "endswith",
    "ends_with": "endswith",
    "contains": "contains",
}
"""The functions that LIKE becomes (airport §6.5)."""
