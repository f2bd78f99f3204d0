"""What a filter implies for single columns, to skip files and row groups without matching rows.

Strategy: the filter becomes a weaker condition made of ranges, sets and NULL tests of columns, by
the rules of airport §6.1: a part that is not understood is left out of an AND and makes an OR
unknown; nothing under NOT is used. The condition is then checked against bounds. PyIceberg's
evaluators are not used: NaN is the greatest number in DuckDB, and bounds from before a promotion
are shorter than they expect.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import pyarrow as pa
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    StringType,
    TimestampType,
    TimestamptzType,
)
from typing_extensions import assert_never

from sparkport.catalog.filters import (
    BOOLEAN,
    ROWID,
    Between,
    Cast,
    ColumnRef,
    Comparison,
    ComparisonKind,
    Conjunction,
    ConjunctionKind,
    Constant,
    Expression,
    Filter,
    Function,
    Operator,
    OperatorKind,
)
from sparkport.spark.iceberg.bounds import Value
from sparkport.spark.iceberg.conditions import (
    NOTHING,
    Condition,
    Nullness,
    OneOf,
    Range,
    all_of,
    any_of,
)
from sparkport.spark.iceberg.manifests import ROW_ID_FIELD

__all__ = ["PrunableColumn", "condition_of", "prunable_columns"]


@dataclass(frozen=True, slots=True)
class PrunableColumn:
    """A column as filters name it: its Iceberg field, and the type that users see."""

    field_id: int
    stored: IcebergType
    declared: pa.DataType


def prunable_columns(
    arrow_schema: pa.Schema,
    field_ids: tuple[int, ...],
    kinds: Mapping[int, IcebergType],
    *,
    has_row_ids: bool,
) -> dict[str, PrunableColumn]:
    """The columns of a table by the names that filters use."""
    columns = {
        field.name: PrunableColumn(field_id, kinds[field_id], field.type)
        for field, field_id in zip(arrow_schema, field_ids, strict=True)
    }
    if has_row_ids:
        columns[ROWID] = PrunableColumn(ROW_ID_FIELD, LongType(), pa.int64())
    return columns


def condition_of(row_filter: Filter, columns: Mapping[str, PrunableColumn]) -> Condition | None:
    """A condition that holds for every row which the filter keeps; None if none is known."""
    return all_of([_condition(expression, columns) for expression in row_filter.expressions])


def _condition(expression: Expression, columns: Mapping[str, PrunableColumn]) -> Condition | None:
    match _with_plain_constants(expression):
        case Conjunction(kind=ConjunctionKind.AND, children=children):
            return all_of([_condition(child, columns) for child in children])
        case Conjunction(kind=ConjunctionKind.OR, children=children):
            return any_of([_condition(child, columns) for child in children])
        case ColumnRef(type=kind) as column if kind == BOOLEAN:
            return _comparison(column, ComparisonKind.EQUAL, Constant(BOOLEAN, True), columns)
        case Operator(kind=OperatorKind.NOT, children=(ColumnRef(type=kind) as column,)) if (
            kind == BOOLEAN
        ):
            return _comparison(column, ComparisonKind.EQUAL, Constant(BOOLEAN, False), columns)
        case Operator(
            kind=OperatorKind.IS_NULL | OperatorKind.IS_NOT_NULL as kind,
            children=(ColumnRef() as column,),
        ):
            known = columns.get(column.name)
            return None if known is None else Nullness(known.field_id, kind is OperatorKind.IS_NULL)
        case Comparison(left=ColumnRef() as column, right=Constant() as constant) as comparison:
            return _comparison(column, comparison.kind, constant, columns)
        case Comparison(left=Constant() as constant, right=ColumnRef() as column) as comparison:
            return _comparison(
                column, _MIRRORED.get(comparison.kind, comparison.kind), constant, columns
            )
        case (
            Between(
                input=ColumnRef() as column, lower=Constant() as lower, upper=Constant() as upper
            ) as between
        ):
            above = (
                ComparisonKind.GREATER_OR_EQUAL
                if between.lower_inclusive
                else ComparisonKind.GREATER
            )
            below = ComparisonKind.LESS_OR_EQUAL if between.upper_inclusive else ComparisonKind.LESS
            return all_of(
                [
                    _comparison(column, above, lower, columns),
                    _comparison(column, below, upper, columns),
                ]
            )
        case Operator(kind=OperatorKind.IN, children=(ColumnRef() as column, *constants)):
            return _one_of(column, constants, columns)
        case (
            Function(
                children=(ColumnRef() as column, Constant(value=str() as pattern) as constant)
            ) as function
        ):
            return _prefix(function, column, pattern, constant, columns)
        case _:
            return None


def _with_plain_constants(expression: Expression) -> Expression:
    """Replace each cast of a constant to a wider type by a constant of that type."""
    match expression:
        case Comparison():
            return replace(
                expression, left=_widened(expression.left), right=_widened(expression.right)
            )
        case Between():
            return replace(
                expression, lower=_widened(expression.lower), upper=_widened(expression.upper)
            )
        case Operator(kind=OperatorKind.IN):
            return replace(expression, children=tuple(map(_widened, expression.children)))
        case _:
            return expression


def _widened(expression: Expression) -> Expression:
    match expression:
        case Cast(child=Constant(value=int() as value) as constant, type=target) if not isinstance(
            value, bool
        ):
            source = constant.type
            if source.id in _INTEGERS and target.id in _INTEGERS and value in _INTEGERS[target.id]:
                return Constant(target, value)
            scale = source.scale if source.id == "DECIMAL" else 0
            if (
                source.id in {*_INTEGERS, "DECIMAL"}
                and target.id == "DECIMAL"
                and target.scale >= scale
            ):
                scaled = value * 10 ** (target.scale - scale)
                return Constant(target, scaled) if abs(scaled) < 10**target.width else expression
    return expression


def _comparison(
    reference: ColumnRef,
    kind: ComparisonKind,
    constant: Constant,
    columns: Mapping[str, PrunableColumn],
) -> Condition | None:
    column = columns.get(reference.name)
    if column is None or not constant.type.same_as(reference.type):
        return None
    if constant.value is None:
        match kind:
            case ComparisonKind.NOT_DISTINCT:
                return Nullness(column.field_id, True)
            case ComparisonKind.DISTINCT:
                return Nullness(column.field_id, False)
            case _:
                return NOTHING
    value = _value(constant, column)
    if value is None:
        return None
    match kind:
        case ComparisonKind.EQUAL | ComparisonKind.NOT_DISTINCT:
            return Range(column.field_id, value, value)
        case ComparisonKind.LESS:
            return Range(column.field_id, None, value, upper_open=True)
        case ComparisonKind.LESS_OR_EQUAL:
            return Range(column.field_id, None, value)
        case ComparisonKind.GREATER:
            return Range(column.field_id, value, None, lower_open=True)
        case ComparisonKind.GREATER_OR_EQUAL:
            return Range(column.field_id, value, None)
        case ComparisonKind.NOT_EQUAL:
            return Nullness(column.field_id, False)
        case ComparisonKind.DISTINCT:
            return None
        case _:
            assert_never(kind)


def _one_of(
    reference: ColumnRef, constants: list[Expression], columns: Mapping[str, PrunableColumn]
) -> Condition | None:
    column = columns.get(reference.name)
    values = []
    for constant in constants:
        if column is None or not isinstance(constant, Constant):
            return None
        if constant.value is None:
            continue  # NULL equals nothing
        value = _value(constant, column) if constant.type.same_as(reference.type) else None
        if value is None:
            return None
        values.append(value)
    return None if column is None else OneOf(column.field_id, tuple(sorted(set(values))))


def _prefix(
    function: Function,
    reference: ColumnRef,
    pattern: str,
    constant: Constant,
    columns: Mapping[str, PrunableColumn],
) -> Condition | None:
    if function.catalog not in {"", "system"} or reference.type.id != "VARCHAR":
        return None
    if function.name == "~~":
        # LIKE has no escape character unless the query names one; then it is another function
        # (airport §6.5).
        ends = [end for end in (pattern.find("%"), pattern.find("_")) if end >= 0]
        pattern = pattern[: min(ends)] if ends else pattern
    elif function.name not in {"prefix", "starts_with", "^@"}:
        return None
    column = columns.get(reference.name)
    start = None if column is None else _value(Constant(constant.type, pattern), column)
    if column is None or not isinstance(start, bytes) or not start:
        return None
    # No byte of UTF-8 is 0xFF, so the last one can always be incremented.
    return Range(column.field_id, start, start[:-1] + bytes([start[-1] + 1]), upper_open=True)


def _value(constant: Constant, column: PrunableColumn) -> Value | None:
    """The constant in the order of the stored values; None where the two orders may differ."""
    identifier, value, stored, declared = (
        constant.type.id,
        constant.value,
        column.stored,
        column.declared,
    )
    match value, stored:
        case bool(), BooleanType() if identifier == "BOOLEAN" and pa.types.is_boolean(declared):
            return int(value)
        case bool(), _:
            return None
        case int(), IntegerType() | LongType() if identifier in _INTEGERS and pa.types.is_integer(
            declared
        ):
            return value
        case int(), DecimalType(scale=0) if identifier in _INTEGERS:
            return value
        case int(), DecimalType() if identifier == "DECIMAL" and pa.types.is_decimal(declared):
            return value if constant.type.scale == stored.scale == declared.scale else None
        case int(), DateType() if identifier == "DATE" and pa.types.is_date32(declared):
            return value
        case int(), TimestampType() | TimestamptzType() if (
            identifier in _MICROS and pa.types.is_timestamp(declared)
        ):
            zoned = identifier == "TIMESTAMP WITH TIME ZONE"
            if zoned is not isinstance(stored, TimestamptzType) or abs(value) == 2**63 - 1:
                return None
            return value * _MICROS[identifier]
        case float(), FloatType() | DoubleType() if identifier in {
            "FLOAT",
            "DOUBLE",
        } and pa.types.is_floating(declared):
            return None if math.isnan(value) else value
        case str(), StringType() if identifier == "VARCHAR" and _is_text(declared):
            return _utf8(value)
        case bytes(), BinaryType() if identifier == "BLOB" and _is_binary(declared):
            return value
        case _:
            return None


def _utf8(text: str) -> bytes | None:
    try:
        return text.encode()
    except UnicodeEncodeError:
        return None


def _is_text(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    )


def _is_binary(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind)
    )


_SIZES = {"TINYINT": 8, "SMALLINT": 16, "INTEGER": 32, "BIGINT": 64, "HUGEINT": 128}
_INTEGERS = {
    **{name: range(-(2 ** (bits - 1)), 2 ** (bits - 1)) for name, bits in _SIZES.items()},
    **{f"U{name}": range(2**bits) for name, bits in _SIZES.items()},
}
"""The values of each integer type."""

_MICROS = {
    "TIMESTAMP": 1,
    "TIMESTAMP_MS": 1000,
    "TIMESTAMP_S": 1_000_000,
    "TIMESTAMP WITH TIME ZONE": 1,
}

_MIRRORED = {
    ComparisonKind.LESS: ComparisonKind.GREATER,
    ComparisonKind.LESS_OR_EQUAL: ComparisonKind.GREATER_OR_EQUAL,
    ComparisonKind.GREATER: ComparisonKind.LESS,
    ComparisonKind.GREATER_OR_EQUAL: ComparisonKind.LESS_OR_EQUAL,
}
