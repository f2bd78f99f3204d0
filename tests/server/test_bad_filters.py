"""Filters are hints: a part that is not understood costs no row and no error (airport §6.1).

Only text that is no filter at all, which DuckDB never sends, is refused, by the plan.
"""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from tests.server.catalogs import ListedTable, catalog_of, numbers
from tests.server.raw_client import endpoints_body, path

T = path("s", "t")
COLUMN = {
    "expression_class": "BOUND_COLUMN_REF",
    "type": "BOUND_COLUMN_REF",
    "return_type": {"id": "BIGINT", "type_info": None},
    "binding": {"table_index": 0, "column_index": 0},
    "depth": 0,
}


def constant(value, type_id="BIGINT"):
    held = {"type": {"id": type_id, "type_info": None}, "is_null": False, "value": value}
    return {"expression_class": "BOUND_CONSTANT", "type": "VALUE_CONSTANT", "value": held}


def less_than(value):
    sides = {"left": COLUMN, "right": constant(value)}
    return {"expression_class": "BOUND_COMPARISON", "type": "COMPARE_LESSTHAN", **sides}


def filters(*expressions, names=("id", "name", "value")):
    return json.dumps({"filters": list(expressions), "column_binding_names_by_index": list(names)})


def nested(depth: int, open_: str, close: str, inside: str = "0") -> str:
    return open_ * depth + inside + close * depth


def negated(depth: int) -> str:
    """NOT NOT … id < 1, written as text: Python cannot build it either."""
    opening = '{"expression_class":"BOUND_OPERATOR","type":"OPERATOR_NOT","children":['
    return (
        '{"filters":['
        + nested(depth, opening, "]}", json.dumps(less_than(1)))
        + '],"column_binding_names_by_index":["id","name","value"]}'
    )


@pytest.fixture
def client(serve):
    return serve(catalog_of(ListedTable("t", numbers(5))))


def test_a_filter_that_is_understood_is_applied(client):
    stream = client.scan(T, [1, 0], json_filters=filters(less_than(2)))

    assert stream.table["id"].to_pylist() == [0, 1]


NO_FILTER = {
    "not JSON": "{",
    "a number": "42",
    "null": "null",
    "nonsense in it": '{"filters": [nonsense]}',
    "a list": "[]",
    "filters of another kind": '{"filters": 1}',
    "names of another kind": json.dumps(
        {"filters": [less_than(2)], "column_binding_names_by_index": {"id": 0}}
    ),
}


@pytest.mark.parametrize("json_filters", NO_FILTER.values(), ids=NO_FILTER.keys())
def test_what_is_no_filter_is_refused_by_the_plan(client, json_filters):
    failure = client.action_failure("endpoints", endpoints_body(T, [0], json_filters=json_filters))

    assert failure.code == "INVALID_ARGUMENT"
    assert "json_filters" in failure.message


UNKNOWN = {
    "an empty object": "{}",
    "no names": json.dumps({"filters": [less_than(2)]}),
    "unknown class": filters({"expression_class": "BOUND_MAGIC", "type": "MAGIC"}),
    "unknown function": filters(
        {
            "expression_class": "BOUND_FUNCTION",
            "type": "BOUND_FUNCTION",
            "name": "nope",
            "children": [],
        }
    ),
    "unknown comparison": filters({**less_than(2), "type": "COMPARE_NOTHING"}),
    "a side is missing": filters(
        {"expression_class": "BOUND_COMPARISON", "type": "COMPARE_LESSTHAN", "left": COLUMN}
    ),
    "a side is a number": filters({**less_than(2), "right": 2}),
    "a column that does not exist": filters(
        {**less_than(2), "left": {**COLUMN, "binding": {"column_index": 99}}}
    ),
    "a negative column": filters(
        {**less_than(2), "left": {**COLUMN, "binding": {"column_index": -1}}}
    ),
    "a name that does not exist": filters(less_than(2), names=("nope", "name", "value")),
    "a constant of another type": filters(less_than("two")),
    "a constant too large": filters(less_than(10**100)),
    "a number of many digits": '{"filters":[' + "9" * 100_000 + "]}",
    "lone surrogate": '{"filters":["\\ud83e"],"column_binding_names_by_index":["\\ud83e"]}',
    "lists nested 10,000 deep": nested(10_000, "[", "]"),
    "objects nested 10,000 deep": nested(10_000, '{"filters":', "}"),
    "NOT nested 10,000 deep": negated(10_000),
    "NOT nested 900 deep": negated(900),
    "NaN": '{"filters":[NaN]}',
}


@pytest.mark.parametrize("json_filters", UNKNOWN.values(), ids=UNKNOWN.keys())
def test_a_filter_of_unknown_shape_costs_no_row(client, json_filters):
    stream = client.scan(T, [0], json_filters=json_filters)

    assert stream.table["id"].to_pylist() == [0, 1, 2, 3, 4]
    assert client.scan(T, [0], json_filters=filters(less_than(2))).table.num_rows == 2


def test_a_filter_of_50_megabytes_is_left_to_the_client(client):
    huge = filters(less_than(2), names=("id", "x" * 50_000_000))

    assert client.scan(T, [0], json_filters=huge).table.num_rows == 5


@pytest.mark.parametrize(
    "sent", [b"\xff\xfe", 42, None, []], ids=["not text", "number", "nil", "list"]
)
def test_a_filter_that_is_no_text_is_none_or_refused(client, sent):
    body = {"descriptor": T.serialize(), "parameters": {"json_filters": sent, "column_ids": [0]}}
    if sent in (None, b"\xff\xfe"):
        assert len(client.action("endpoints", body)) == 1
    else:
        assert client.action_failure("endpoints", body).code == "INVALID_ARGUMENT"


def test_a_filter_reads_columns_that_were_not_asked_for(serve):
    """The filter's columns are read for it, and have type null in the stream."""
    table = ListedTable("t", numbers(5))

    stream = serve(catalog_of(table)).scan(T, [1], json_filters=filters(less_than(2)))

    assert stream.table["name"].to_pylist() == ["n0", "n1"]
    assert stream.arrow_schema.types == [pa.null(), pa.string(), pa.null()]
    assert set(table.seen[0].columns or ()) == {"id", "name"}
