"""The review of users' SQL expressions: what they may contain, and how much work they make.

Strategy: DuckDB's tree of the expression is walked. Nodes and functions that are not on a closed
list are refused, so a subquery, an aggregate, a window, a star, a table function or anything that a
new DuckDB brings needs no rule of its own.

For the rest a bound is computed for the bytes that are read and written for one row: a multiple of
the bytes of the row, and a fixed number. The bound is needed because DuckDB neither counts the
memory of values in the middle of an expression nor can be interrupted there: nine calls of
`replace` can make a gigabyte of one letter. An expression without such a bound, because it is a
product of two things that depend on the row, is refused too.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import lru_cache

from sparkport.catalog.names import folded
from sparkport.engine.constraints import allowed
from sparkport.engine.constraints.parsing import (
    Node,
    NotAnExpression,
    arguments_of,
    cast_of,
    literal_of,
    nodes,
    parse,
    root_of,
)
from sparkport.errors import BadRequest

__all__ = ["Effort", "review"]

_MOST_TIMES = 4_000
_MOST_BYTES = 100_000
_VALUE = 16
"""Bytes of a value of any type, and of a string without its letters."""
_PARAMETER = 256
"""Bytes of a caller's attribute; the issuer of its token limits its size."""
_MOST_WILDCARDS = 2
_CAST = 8
"""How many times larger a value can get as text or as a nested value."""


@dataclass(frozen=True, slots=True)
class Effort:
    """A bound for the bytes read and written per row: `times` the row's own, and `fixed` more."""

    times: int
    fixed: int


@lru_cache(maxsize=4096)
def review(
    expression: str,
    columns: tuple[str, ...] | None,
    *,
    parameters: bool = False,
    changing: bool = False,
) -> Effort:
    """Compute the effort of an expression over these columns; None if they are not yet known.

    `parameters` says whether `$name` may stand for a value; `changing` says whether the time and
    random values may be used.

    Raises: BadRequest, whose message says what the expression must not contain.
    """
    names = None if columns is None else frozenset(map(folded, columns))
    try:
        _, work = _Review(names, parameters, changing).visit(root_of(parse(expression)), {})
    except RecursionError as error:
        raise BadRequest("it is nested too deeply") from error
    if work.fixed > _MOST_BYTES or work.times(_ROW) > _MOST_TIMES:
        raise BadRequest("it can make too much work of one row")
    return Effort(work.times(_ROW), work.fixed)


_ROW = 0
"""Stands for the bytes of the row; higher numbers stand for those of a lambda's element."""


class _Size:
    """An upper bound of bytes: a known number, and multiples of sizes that only rows tell."""

    __slots__ = ("_unknown", "count", "fixed")

    def __init__(
        self, fixed: int = 0, unknown: Mapping[int, int] | None = None, count: _Size | None = None
    ) -> None:
        self.fixed = fixed
        self._unknown = unknown or {}
        self.count = count or self
        """How many elements it has, if it is a list."""

    @property
    def known(self) -> bool:
        return not self._unknown

    def times(self, unknown: int) -> int:
        return self._unknown.get(unknown, 0)

    def of(self, count: _Size) -> _Size:
        return _Size(self.fixed, self._unknown, count)

    def without(self, unknown: int) -> _Size:
        return _Size(
            self.fixed, {each: times for each, times in self._unknown.items() if each != unknown}
        )

    def __add__(self, other: _Size) -> _Size:
        names = self._unknown.keys() | other._unknown.keys()
        return _Size(
            self.fixed + other.fixed, {each: self.times(each) + other.times(each) for each in names}
        )

    def __mul__(self, factor: int) -> _Size:
        return _Size(
            self.fixed * factor, {each: times * factor for each, times in self._unknown.items()}
        )

    def for_each_of(self, other: _Size) -> _Size:
        """Multiply two bounds. Raises: BadRequest where neither is known before there are rows."""
        if self.known:
            return other * self.fixed
        if other.known:
            return self * other.fixed
        raise BadRequest("the work that it makes grows with the square of what is in a row")


_NOTHING = _Size()
_ONE = _Size(_VALUE)
_Scope = Mapping[bytes, _Size]
"""The sizes of the parameters of the enclosing lambdas."""


class _Review:
    """Reviews one expression.

    A visit returns the size of the value, and of all that is read and written to compute it.
    """

    def __init__(self, columns: Collection[bytes] | None, parameters: bool, changing: bool) -> None:
        self._columns = columns
        self._parameters = parameters
        self._changing = changing
        self._lambdas = 0

    def visit(self, node: Node, scope: _Scope) -> tuple[_Size, _Size]:
        """Return the size and the work of a node. Raises: BadRequest."""
        match node["class"]:
            case "CONSTANT":
                return _Size(_VALUE + len(str(literal_of(node) or ""))), _NOTHING
            case "COLUMN_REF":
                return self._reference(node["column_names"], scope), _NOTHING
            case "PARAMETER" if self._parameters and not node["identifier"].isdigit():
                return _Size(_PARAMETER), _NOTHING
            case "COMPARISON":
                return self._at_once((node["left"], node["right"]), scope)
            case "BETWEEN":
                return self._at_once((node["input"], node["lower"], node["upper"]), scope)
            case "CONJUNCTION":
                return self._at_once(node["children"], scope)
            case "OPERATOR" if node["type"] in _TESTS:
                return self._at_once(node["children"], scope)
            case "OPERATOR" if node["type"] in _ACCESSES:
                return self._summed(node["children"], scope)
            case "CASE":
                checks = node["case_checks"]
                branches = [each[part] for each in checks for part in ("when_expr", "then_expr")]
                return self._summed([*branches, node["else_expr"]], scope)
            case "COLLATE":
                return self._grown(_CAST, [node["child"]], scope)
            case "CAST":
                return self._cast(node, scope)
            case "LAMBDA":  # outside of a function that takes a lambda this is JSON's arrow
                _expect_path(node["expr"])
                return self._summed((node["lhs"], node["expr"]), scope)
            case "FUNCTION":
                return self._function(node, scope)
            case "STAR" | "PARAMETER" | "POSITIONAL_REFERENCE":
                raise NotAnExpression("it has no single value")
            case other:
                raise BadRequest(f"it must be computed from one row, without {other.lower()}")

    def _reference(self, path: list[str], scope: _Scope) -> _Size:
        name = folded(path[0])
        if name in scope:
            return scope[name]
        known = self._columns is None or name in self._columns or len(path) > 1
        if known and self._columns != frozenset():
            return _Size(_VALUE, {_ROW: 1})
        # Where no column has that name, DuckDB takes some words for functions.
        if path[0].lower() not in allowed.CHANGING_WORDS:
            raise BadRequest(f"there is no column {path[0]} that it could use")
        if not self._changing:
            raise BadRequest(f"{path[0]} is not the same every time")
        return _ONE

    def _cast(self, node: Node, scope: _Scope) -> tuple[_Size, _Size]:
        kind = cast_of(node)
        if kind.elements > _MOST_BYTES // _VALUE:
            raise BadRequest("it casts to a type of too many elements")
        value, before = self.visit(node["child"], scope)
        if kind.is_plain:
            return _ONE, before + _ONE
        size = (_ONE + value) * _CAST + _ONE * kind.elements
        return size, before + (_NOTHING if node["child"]["class"] == "CONSTANT" else value + size)

    def _function(self, node: Node, scope: _Scope) -> tuple[_Size, _Size]:
        name, arguments = node["function_name"].lower(), arguments_of(node)
        if (
            node["filter"]
            or node["order_bys"]["orders"]
            or node["distinct"]
            or node["export_state"]
        ):
            raise BadRequest("it must be computed from one row, without aggregates")
        if node["catalog"] and node["catalog"].lower() != "system":
            raise BadRequest(f"{node['function_name']} is not a function of DuckDB itself")
        if name in allowed.CHANGING:
            if not self._changing:
                raise BadRequest(f"{node['function_name']} is not the same every time")
            return self._at_once(arguments, scope)
        if name not in allowed.ALLOWED:
            raise BadRequest(f"the function {node['function_name']} cannot be used here")
        if name in allowed.LAMBDAS:
            return self._lambda_function(name, arguments, scope)
        if name in allowed.ARITHMETIC:
            return self._at_once(arguments, scope)
        visits = [self.visit(each, scope) for each in arguments]
        sizes = [size for size, _ in visits]
        read = sum(sizes, _NOTHING)
        size = self._result(name, arguments, sizes, read, scope)
        before = sum((work for _, work in visits), _NOTHING) * allowed.MACROS.get(name, 1)
        return size, before + read + size

    def _result(
        self, name: str, arguments: list[Node], sizes: list[_Size], read: _Size, scope: _Scope
    ) -> _Size:
        if name in allowed.PATTERNS and len(sizes) > 1 and not sizes[1].known:
            raise BadRequest(f"the pattern of {name} must be written out")
        if name in allowed.LIKES:
            for each in arguments[1:]:
                _expect_few_wildcards(name, each)
            return _ONE
        if name in allowed.PATHS:
            for each in arguments[1:]:
                _expect_path(each)
            return read
        if name in allowed.INSERTING and len(sizes) > allowed.INSERTING[name]:
            inserted = sizes[allowed.INSERTING[name]]
            if name == "concat_ws":
                return read + inserted * len(sizes)
            return read + sizes[0].for_each_of(_letters(inserted))
        if name in allowed.PATTERNS:
            return _ONE + read * allowed.PATTERNS[name]
        if name in allowed.COUNTED and len(sizes) > 1:
            count = self._count(arguments[allowed.COUNTED[name]], scope)
            return (
                _ONE
                + read
                + (_letters(sizes[0]).for_each_of(count) if name == "repeat" else count * 4)
            )
        if name in allowed.PRODUCTS and len(sizes) > 1:
            return sizes[0].for_each_of(sizes[1])
        if name in allowed.FIXED:
            return _ONE
        return (_ONE + read) * allowed.GROWING.get(name, 1)

    def _count(self, node: Node, scope: _Scope) -> _Size:
        """A bound for the value of a whole number. Raises: BadRequest where there is none."""
        literal = literal_of(node)
        if isinstance(literal, int):
            return _Size(abs(literal))
        if node["class"] == "CAST":
            return self._count(node["child"], scope)
        if node["class"] == "FUNCTION":
            name, arguments = node["function_name"].lower(), arguments_of(node)
            if name in allowed.LENGTHS:
                return self.visit(arguments[0], scope)[0]
            if name in {"+", "-", "greatest", "least"}:
                return sum((self._count(each, scope) for each in arguments), _NOTHING)
        raise BadRequest(
            "how often something is repeated must be a number that is written out, or a length"
        )

    def _lambda_function(
        self, name: str, arguments: list[Node], scope: _Scope
    ) -> tuple[_Size, _Size]:
        if len(arguments) != 2 or arguments[1]["class"] != "LAMBDA":
            raise BadRequest(f"{name} needs a list and a lambda")
        elements, before = self.visit(arguments[0], scope)
        self._lambdas += 1
        own = self._lambdas
        parameters = {
            folded(each["column_names"][0]): _Size(_VALUE, {own: 1})
            for each in nodes(arguments[1]["lhs"])
            if each.get("class") == "COLUMN_REF"
        }
        value, inside = self.visit(arguments[1]["expr"], {**scope, **parameters})
        size = elements + _for_all(
            elements, own, value if name.endswith(("transform", "apply")) else _NOTHING
        )
        return size.of(elements.count), before + elements + _for_all(
            elements, own, inside + _ONE
        ) + size

    def _at_once(self, operands: Collection[Node], scope: _Scope) -> tuple[_Size, _Size]:
        """The size and work of a small value that takes no longer for longer operands."""
        return _ONE, sum((self.visit(each, scope)[1] for each in operands), _ONE)

    def _summed(self, operands: Collection[Node], scope: _Scope) -> tuple[_Size, _Size]:
        return self._grown(1, operands, scope)

    def _grown(self, factor: int, operands: Collection[Node], scope: _Scope) -> tuple[_Size, _Size]:
        visits = [self.visit(each, scope) for each in operands]
        size = sum((size for size, _ in visits), _ONE) * factor
        return size, sum((work for _, work in visits), size)


def _for_all(elements: _Size, own: int, each: _Size) -> _Size:
    """The sum of a size over the elements of a list."""
    return elements * each.times(own) + elements.count.for_each_of(each.without(own))


def _letters(text: _Size) -> _Size:
    return _Size(max(text.fixed - _VALUE, 1), text._unknown)


def _expect_few_wildcards(name: str, node: Node) -> None:
    pattern = _written(node)
    if pattern is None:
        raise BadRequest("the pattern of LIKE must be written out")
    if name in {"~~", "!~~"} and "_" not in pattern:
        return  # DuckDB looks for one part after the other
    any_number = "*" if name == "~~~" else "%"
    if pattern.rstrip(any_number).count(any_number) > _MOST_WILDCARDS:
        raise BadRequest(
            f"the pattern of LIKE has more than {_MOST_WILDCARDS} wildcards: use regexp_matches"
        )


def _expect_path(node: Node) -> None:
    path = _written(node)
    if path is None or ".." in path:
        raise BadRequest("a path into JSON must be written out, and must not look at every depth")


def _written(node: Node) -> str | None:
    """The text written in a constant, perhaps in pieces, without attributes of the caller."""
    match node["class"]:
        case "CONSTANT":
            return str(literal_of(node) or "")
        case "PARAMETER":
            return ""
        case "CAST":
            return _written(node["child"])
        case "FUNCTION" if node["function_name"] in {"||", "list_value"}:
            pieces = [_written(each) for each in arguments_of(node)]
            return None if None in pieces else "".join(piece or "" for piece in pieces)
        case _:
            return None


_TESTS = frozenset(
    {"OPERATOR_NOT", "OPERATOR_IS_NULL", "OPERATOR_IS_NOT_NULL", "COMPARE_IN", "COMPARE_NOT_IN"}
)
_ACCESSES = frozenset(
    {
        *("OPERATOR_COALESCE", "OPERATOR_NULLIF", "OPERATOR_TRY"),
        *("ARRAY_EXTRACT", "ARRAY_SLICE", "STRUCT_EXTRACT", "ARRAY_CONSTRUCTOR"),
    }
)
