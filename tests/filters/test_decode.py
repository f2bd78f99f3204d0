"""The envelope and the expressions of the filter JSON (airport §6.2 to §6.5, §6.8, §6.9)."""

import json
from typing import Any

import pytest

from sparkport.catalog.filters import (
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
    Function,
    Lambda,
    LambdaParameter,
    Operator,
    OperatorKind,
    Unknown,
)
from sparkport.errors import BadRequest
from sparkport.wire.filters import decode_filter

INTEGER = DuckType("INTEGER")


def type_node(identifier: str) -> dict[str, Any]:
    return {"id": identifier, "type_info": None}


def constant(value, identifier: str = "INTEGER") -> dict[str, Any]:
    return {
        "type": "VALUE_CONSTANT",
        "value": {"type": type_node(identifier), "is_null": False, "value": value},
    }


def column(index: int = 0, identifier: str = "INTEGER") -> dict[str, Any]:
    binding = {"table_index": 3, "column_index": index}
    return {
        "type": "BOUND_COLUMN_REF",
        "alias": "misleading",
        "return_type": type_node(identifier),
        "binding": binding,
    }


def decode(*nodes: dict[str, Any]) -> Any:
    """The expressions of a filter on the columns a and b; for a single node, its expression."""
    decoded = decode_text(
        json.dumps({"filters": nodes, "column_binding_names_by_index": ["a", "b"]})
    )
    return decoded if len(nodes) > 1 else decoded[0]


def decode_text(text: str) -> Any:
    decoded = decode_filter(text)
    assert decoded is not None
    return decoded.expressions


@pytest.mark.parametrize("text", ["", b"", "  \n", "{}", '{"filters": []}', '{"filters": null}'])
def test_no_filter_is_none(text):
    assert decode_filter(text) is None


@pytest.mark.parametrize(
    "text",
    [
        "no JSON",
        "[]",
        "5",
        '"filters"',
        "null",
        '{"filters": {}}',
        '{"filters": "x"}',
        '{"filters": [], "column_binding_names_by_index": 5}',
        '{"filters": [',
        b"\xff\xfe",
        "{'filters': []}",
        "\0",
    ],
)
def test_what_is_no_filter_document_is_a_bad_request(text):
    with pytest.raises(BadRequest):
        decode_filter(text)


def test_columns_are_resolved_by_binding_and_not_by_alias():
    assert decode(column(1)) == ColumnRef("b", INTEGER)


def test_a_binding_to_no_column_is_unknown():
    assert isinstance(decode(column(2)), Unknown)
    assert isinstance(decode(column(-1)), Unknown)


def test_without_names_the_alias_is_the_column():
    node = {"type": "BOUND_COLUMN_REF", "alias": "a", "return_type": type_node("INTEGER")}

    assert decode_text(json.dumps({"filters": [node]})) == (ColumnRef("a", INTEGER),)


def test_missing_members_have_their_defaults():
    five = {"type": "VALUE_CONSTANT", "value": {"type": {"id": "INTEGER"}, "value": 5}}
    node = {"type": "COMPARE_EQUAL", "left": {**column(), "binding": {}}, "right": five}

    assert decode(node) == Comparison(
        ComparisonKind.EQUAL, ColumnRef("a", INTEGER), Constant(INTEGER, 5)
    )


@pytest.mark.parametrize("kind", ["COMPARE_EQUAL", "COMPARE_LESSTHAN", "COMPARE_NOT_DISTINCT_FROM"])
def test_comparisons_have_sides_or_children(kind):
    old = {
        "expression_class": "BOUND_COMPARISON",
        "type": kind,
        "left": column(),
        "right": constant(1),
    }
    new = {
        "expression_class": "BOUND_FUNCTION",
        "type": kind,
        "children": [column(), constant(1)],
        "qname": {"path": ["="]},
    }

    first, second = decode(old, new)

    assert first == second
    assert isinstance(first, Comparison)


def test_casts_have_a_child_or_children():
    old = {
        "type": "OPERATOR_CAST",
        "child": column(),
        "return_type": type_node("BIGINT"),
        "try_cast": True,
    }
    new = {
        "type": "OPERATOR_CAST",
        "children": [column()],
        "return_type": type_node("BIGINT"),
        "function_data": {"try_cast": True},
    }

    assert decode(old, new) == (Cast(ColumnRef("a", INTEGER), DuckType("BIGINT"), True),) * 2


def test_between_says_which_ends_it_includes():
    node = {
        "type": "COMPARE_BETWEEN",
        "input": column(),
        "lower": constant(1),
        "upper": constant(2),
        "upper_inclusive": True,
    }

    assert decode(node) == Between(
        ColumnRef("a", INTEGER), Constant(INTEGER, 1), Constant(INTEGER, 2), False, True
    )


def test_conjunctions_operators_and_cases_keep_their_order():
    check = {
        "type": "OPERATOR_IS_NULL",
        "children": [column()],
        "return_type": type_node("BOOLEAN"),
    }
    flag = column(1, "BOOLEAN")
    both = {"type": "CONJUNCTION_AND", "children": [check, flag]}
    case = {
        "type": "CASE_EXPR",
        "case_checks": [{"when_expr": check, "then_expr": flag}],
        "else_expr": both,
        "return_type": type_node("BOOLEAN"),
    }
    is_null = Operator(OperatorKind.IS_NULL, (ColumnRef("a", INTEGER),), BOOLEAN)
    b = ColumnRef("b", BOOLEAN)

    assert decode(case) == Case(
        ((is_null, b),), Conjunction(ConjunctionKind.AND, (is_null, b)), BOOLEAN
    )


def test_functions_are_named_by_name_or_by_path():
    rest = {"type": "BOUND_FUNCTION", "children": [column()], "return_type": type_node("INTEGER")}
    old = {
        **rest,
        "name": "abs",
        "catalog_name": "system",
        "schema_name": "main",
        "has_serialize": False,
    }
    new = {**rest, "qname": {"path": ["system", "main", "abs"]}, "has_serialize": False}
    bare = {**rest, "qname": {"path": ["abs"]}}

    absolute = Function("abs", (ColumnRef("a", INTEGER),), INTEGER, "system")
    assert decode(old, new) == (absolute, absolute)
    assert decode(bare) == Function("abs", (ColumnRef("a", INTEGER),), INTEGER, "")


def test_lambda_parameters_are_counted_from_the_front():
    def reference(index):
        return {"type": "BOUND_REF", "index": index, "return_type": type_node("INTEGER")}

    body = {"type": "COMPARE_GREATERTHAN", "left": reference(1), "right": reference(2)}
    node = {
        "type": "BOUND_FUNCTION",
        "name": "list_filter",
        "children": [column(), column(1)],
        "return_type": type_node("INTEGER"),
        "function_data": {"lambda_expr": body, "has_index": True},
    }
    first, capture = LambdaParameter(0, INTEGER), LambdaParameter(2, INTEGER)
    argument = Lambda(
        Comparison(ComparisonKind.GREATER, first, capture), 2, (ColumnRef("b", INTEGER),)
    )

    assert decode(node) == Function(
        "list_filter", (ColumnRef("a", INTEGER), argument), INTEGER, "", True
    )


def test_references_outside_of_lambdas_are_unknown():
    assert isinstance(
        decode({"type": "BOUND_REF", "index": 0, "return_type": type_node("INTEGER")}), Unknown
    )


@pytest.mark.parametrize(
    "kind", ["BOUND_SUBQUERY", "BOUND_AGGREGATE", "VALUE_PARAMETER", "LAMBDA", "SOMETHING_NEW", ""]
)
def test_other_expressions_are_unknown_where_they_stand(kind):
    decoded = decode({"type": "CONJUNCTION_OR", "children": [column(1, "BOOLEAN"), {"type": kind}]})

    assert isinstance(decoded, Conjunction)
    assert [type(child) for child in decoded.children] == [ColumnRef, Unknown]


@pytest.mark.parametrize("token", ["NaN", "NAN", "-nan", "Infinity", "-Infinity"])
def test_floats_that_json_does_not_have_are_read(token):
    text = json.dumps(
        {"filters": [constant("NaN: @", "VARCHAR"), constant("@@", "DOUBLE")]}
    ).replace('"@@"', token)

    text_constant, number = decode_text(text)

    assert text_constant == Constant(DuckType("VARCHAR"), "NaN: @")
    assert repr(number.value) == {"infinity": "inf", "-infinity": "-inf"}.get(token.lower(), "nan")


def test_types_carry_all_their_parts():
    info = {
        "type": "STRUCT_TYPE_INFO",
        "child_types": [
            {
                "first": "d",
                "second": {"id": "DECIMAL", "type_info": {"width": 10, "scale": 2, "alias": ""}},
            },
            {
                "first": "e",
                "second": {"id": "ENUM", "type_info": {"values_count": 1, "values": ["x"]}},
            },
            {"first": "s", "second": {"id": "VARCHAR", "type_info": {"collation": "NOCASE"}}},
            {"first": "j", "second": {"id": "VARCHAR", "type_info": {"alias": "JSON"}}},
            {
                "first": "a",
                "second": {
                    "id": "ARRAY",
                    "type_info": {"size": 3, "child_type": type_node("DATE")},
                },
            },
        ],
    }
    kind = decode({**column(), "return_type": {"id": "STRUCT", "type_info": info}}).type

    assert kind == DuckType(
        "STRUCT",
        fields=(
            ("d", DuckType("DECIMAL", 10, 2)),
            ("e", DuckType("ENUM", values=("x",))),
            ("s", DuckType("VARCHAR", collation="NOCASE")),
            ("j", DuckType("VARCHAR", alias="JSON")),
            ("a", DuckType("ARRAY", size=3, child=DuckType("DATE"))),
        ),
    )
