"""The filter JSON of DuckDB 1.4, 1.5 and 2.0 (airport §6) as a filter tree.

Strategy: dispatch on `type`, which all versions write alike, and only then look where that version
puts the operands (airport §6.9). A node of an undefined shape becomes `Unknown` in its place; only
text that is no filter at all is an error.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection
from typing import Any

from sparkport.catalog.filters import (
    ROWID,
    Between,
    Case,
    Cast,
    ColumnRef,
    Comparison,
    ComparisonKind,
    Conjunction,
    ConjunctionKind,
    Expression,
    Filter,
    Function,
    Lambda,
    LambdaParameter,
    Operator,
    OperatorKind,
    Unknown,
)
from sparkport.catalog.names import own_spellings
from sparkport.errors import BadRequest
from sparkport.wire.filter_values import (
    NotUnderstood,
    bool_member,
    decode_constant,
    decode_type,
    int_member,
    list_member,
    object_of,
    text_member,
)

LARGEST_JSON = 16 * 1024 * 1024
"""Characters. A longer filter is not read; the client applies it alone."""

DEEPEST_EXPRESSION = 100
"""Expressions nested deeper are not understood. Python's JSON reader allows about three times that.
"""

MOST_EXPRESSIONS = 20_000
"""Expressions in one filter; those that come after are not understood."""

LONGEST_INTEGER = 40
"""Digits. No integer in a filter has more; to read a million of them takes Python very long."""


def decode_filter(text: str | bytes, columns: Collection[str] = ()) -> Filter | None:
    """Decode the filter of a scan; None for the empty text (airport §5.2) and for an empty list.

    The filter spells columns as `columns`, those of the table, whatever their case was when sent.

    Raises: BadRequest if the text is not JSON or not of the shape of airport §6.2.
    """
    source = _source(text)
    if not source.strip():
        return None
    if len(source) > LARGEST_JSON:
        return Filter((Unknown("filter too large"),), source)
    try:
        document = _document(source)
    except RecursionError:
        return Filter((Unknown("filter nested too deeply"),), source)
    except ValueError as error:
        raise BadRequest(f"json_filters is not JSON: {error}") from error
    if not isinstance(document, dict):
        raise BadRequest("json_filters is not a JSON object")
    filters = document.get("filters")
    names = document.get("column_binding_names_by_index")
    if not isinstance(filters, list | None):
        raise BadRequest("filters in json_filters is not a list")
    if not isinstance(names, list | None):
        raise BadRequest("column_binding_names_by_index in json_filters is not a list")
    if not filters:
        return None
    own = own_spellings(columns)
    spelled = names and [
        own(name) if isinstance(name, str) and name != ROWID else name for name in names
    ]
    decoder = _Decoder(spelled)
    return Filter(tuple(decoder.expression(node, 0, None) for node in filters), source)


def _source(text: str | bytes) -> str:
    if isinstance(text, str):
        return text
    try:
        return text.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadRequest("json_filters is not UTF-8") from error


def _document(source: str) -> Any:
    try:
        return json.loads(source, parse_int=_parse_integer)
    except ValueError:
        # DuckDB 2.0 writes NAN where 1.x wrote NaN (airport §6.2). Neither is JSON; Python reads
        # NaN only.
        repaired = _BARE_FLOAT.sub(lambda match: "NaN" if match[1] else match[0], source)
        return json.loads(repaired, parse_int=_parse_integer)


def _parse_integer(digits: str) -> int | None:
    # Where an integer is needed, None counts as not understood.
    return int(digits) if len(digits) <= LONGEST_INTEGER else None


class _Decoder:
    """Decodes the nodes of a filter.

    In the methods, `parameters` is the number of parameters of the lambda around a node; None
    outside of lambdas.
    """

    def __init__(self, names: list[Any] | None) -> None:
        self._names = names
        self._remaining = MOST_EXPRESSIONS

    def expression(self, node: Any, depth: int, parameters: int | None) -> Expression:
        self._remaining -= 1
        if self._remaining < 0:
            return Unknown("too many expressions")
        if depth > DEEPEST_EXPRESSION:
            return Unknown("expression nested too deeply")
        try:
            kind = text_member(node, "type")
            decode = _DECODERS.get(kind)
            if decode is None:
                return Unknown(f"expression of type {kind[:40]}")
            return decode(self, node, depth + 1, parameters)
        except NotUnderstood as reason:
            return Unknown(str(reason))

    def column(self, node: Any, depth: int, parameters: int | None) -> Expression:
        if int_member(node, "depth", 0) != 0:
            raise NotUnderstood("column of an outer query")
        return ColumnRef(self._column_name(node), decode_type(node.get("return_type")))

    def constant(self, node: Any, depth: int, parameters: int | None) -> Expression:
        return decode_constant(node.get("value"))

    def comparison(self, node: Any, depth: int, parameters: int | None) -> Expression:
        left, right = self._operands(node, ("left", "right"), depth, parameters)
        return Comparison(_COMPARISONS[node["type"]], left, right)

    def between(self, node: Any, depth: int, parameters: int | None) -> Expression:
        subject, lower, upper = self._operands(node, ("input", "lower", "upper"), depth, parameters)
        flags = node if "input" in node else object_of(node.get("function_data"))
        return Between(
            subject,
            lower,
            upper,
            bool_member(flags, "lower_inclusive", False),
            bool_member(flags, "upper_inclusive", False),
        )

    def conjunction(self, node: Any, depth: int, parameters: int | None) -> Expression:
        kind = ConjunctionKind.AND if node["type"] == "CONJUNCTION_AND" else ConjunctionKind.OR
        children = self._children(node, depth, parameters)
        if not children:
            raise NotUnderstood("conjunction of nothing")
        return Conjunction(kind, children)

    def operator(self, node: Any, depth: int, parameters: int | None) -> Expression:
        children = self._children(node, depth, parameters)
        return Operator(OperatorKind(node["type"]), children, decode_type(node.get("return_type")))

    def cast(self, node: Any, depth: int, parameters: int | None) -> Expression:
        (child,) = self._operands(node, ("child",), depth, parameters)
        flags = node if "child" in node else object_of(node.get("function_data"))
        return Cast(
            child, decode_type(node.get("return_type")), bool_member(flags, "try_cast", False)
        )

    def case(self, node: Any, depth: int, parameters: int | None) -> Expression:
        branches = tuple(
            (
                self.expression(object_of(check).get("when_expr"), depth, parameters),
                self.expression(check.get("then_expr"), depth, parameters),
            )
            for check in list_member(node, "case_checks")
        )
        otherwise = self.expression(node.get("else_expr"), depth, parameters)
        return Case(branches, otherwise, decode_type(node.get("return_type")))

    def function(self, node: Any, depth: int, parameters: int | None) -> Expression:
        catalog, name = _qualified_name(node)
        data = node.get("function_data")
        has_data = data is not None or bool_member(node, "has_serialize", False)
        kind = decode_type(node.get("return_type"))
        if isinstance(data, dict) and "lambda_expr" in data:
            return Function(
                name, self._lambda_arguments(node, data, depth, parameters), kind, catalog, has_data
            )
        return Function(name, self._children(node, depth, parameters), kind, catalog, has_data)

    def reference(self, node: Any, depth: int, parameters: int | None) -> Expression:
        if parameters is None:
            raise NotUnderstood("reference outside of a lambda")
        index = int_member(node, "index", 0)
        if index < 0:
            raise NotUnderstood("negative reference")
        # Inside a lambda the parameters come last first, then the captures.
        position = parameters - 1 - index if index < parameters else index
        return LambdaParameter(position, decode_type(node.get("return_type")))

    def _column_name(self, node: Any) -> str:
        if self._names is None:
            # Airport §6.8: without the list of names, the alias is the name.
            name: Any = text_member(node, "alias")
        else:
            index = int_member(object_of(node.get("binding")), "column_index", 0)
            if not 0 <= index < len(self._names):
                raise NotUnderstood("binding to no column of the table")
            name = self._names[index]
        if not isinstance(name, str) or not name:
            raise NotUnderstood("column without a name")
        return name

    def _operands(
        self, node: Any, names: tuple[str, ...], depth: int, parameters: int | None
    ) -> tuple[Expression, ...]:
        """Decode the operands: by name as in 1.x, or as children in 2.0."""
        if names[0] in node:
            return tuple(self.expression(node.get(name), depth, parameters) for name in names)
        children = self._children(node, depth, parameters)
        if len(children) != len(names):
            raise NotUnderstood("another number of operands")
        return children

    def _children(self, node: Any, depth: int, parameters: int | None) -> tuple[Expression, ...]:
        return tuple(
            self.expression(child, depth, parameters) for child in list_member(node, "children")
        )

    def _lambda_arguments(
        self, node: Any, data: Any, depth: int, parameters: int | None
    ) -> tuple[Expression, ...]:
        children = list_member(node, "children")
        if (
            len(children) > 1
            and isinstance(children[1], dict)
            and children[1].get("type") == "LAMBDA"
        ):
            # 2.0 leaves the lambda among the children; its body is equal to that in the data.
            children = [children[0], *children[2:]]
        if not children or bool_member(data, "has_initial", False):
            raise NotUnderstood("lambda function with an initial value")
        subject, *captures = (self.expression(child, depth, parameters) for child in children)
        own = 2 if bool_member(data, "has_index", False) else 1
        body = self.expression(data["lambda_expr"], depth, own)
        return (subject, Lambda(body, own, tuple(captures)))


def _qualified_name(node: Any) -> tuple[str, str]:
    if "qname" not in node:
        return text_member(node, "catalog_name", ""), text_member(node, "name")
    path = list_member(node["qname"], "path")
    if not path or not all(isinstance(part, str) for part in path):
        raise NotUnderstood("function without a name")
    return (path[0] if len(path) > 1 else ""), path[-1]


# Strings are matched first, closed or not: nothing inside them is matched, and no text takes long.
_BARE_FLOAT = re.compile(
    r'"(?:[^"\\]|\\.)*"?|(?<![\w.])-?(nan)(?![\w.])', re.IGNORECASE | re.DOTALL
)

_COMPARISONS = {
    "COMPARE_EQUAL": ComparisonKind.EQUAL,
    "COMPARE_NOTEQUAL": ComparisonKind.NOT_EQUAL,
    "COMPARE_LESSTHAN": ComparisonKind.LESS,
    "COMPARE_GREATERTHAN": ComparisonKind.GREATER,
    "COMPARE_LESSTHANOREQUALTO": ComparisonKind.LESS_OR_EQUAL,
    "COMPARE_GREATERTHANOREQUALTO": ComparisonKind.GREATER_OR_EQUAL,
    "COMPARE_DISTINCT_FROM": ComparisonKind.DISTINCT,
    "COMPARE_NOT_DISTINCT_FROM": ComparisonKind.NOT_DISTINCT,
}

_DECODERS: dict[str, Callable[[_Decoder, Any, int, int | None], Expression]] = {
    "BOUND_COLUMN_REF": _Decoder.column,
    "VALUE_CONSTANT": _Decoder.constant,
    **dict.fromkeys(_COMPARISONS, _Decoder.comparison),
    "COMPARE_BETWEEN": _Decoder.between,
    "CONJUNCTION_AND": _Decoder.conjunction,
    "CONJUNCTION_OR": _Decoder.conjunction,
    **dict.fromkeys((kind.value for kind in OperatorKind), _Decoder.operator),
    "OPERATOR_CAST": _Decoder.cast,
    "BOUND_FUNCTION": _Decoder.function,
    "CASE_EXPR": _Decoder.case,
    "BOUND_REF": _Decoder.reference,
}
