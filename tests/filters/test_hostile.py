"""Hostile filter JSON: it must neither raise, take long, reach SQL, nor lose a row."""

import copy
import json
import random
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.filters.plans import kept_by
from tests.filters.test_corpus import VERSIONS, batch, cases, recorded
from tests.filters.test_decode import column, constant, type_node

from sparkport.catalog.filters import Unknown
from sparkport.engine.filters import Evaluator
from sparkport.errors import BadRequest
from sparkport.wire.filters import LARGEST_JSON, decode_filter

MUTATIONS = settings(
    max_examples=150, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)


def evaluate(text: str | bytes, rows: pa.RecordBatch) -> pa.RecordBatch:
    decoded = decode_filter(text)
    return rows if decoded is None else Evaluator(decoded, rows.schema).apply(rows)


def document(*nodes, names=("a", "b")) -> str:
    return json.dumps({"filters": nodes, "column_binding_names_by_index": names})


def nested(levels: int) -> str:
    opening = '{"type": "OPERATOR_NOT", "return_type": {"id": "BOOLEAN"}, "children": ['
    inner = json.dumps(column(0, "BOOLEAN"))
    return (
        '{"filters": ['
        + opening * levels
        + inner
        + "]}" * levels
        + '], "column_binding_names_by_index": ["a"]}'
    )


FLAGS = pa.record_batch({"a": [True, False, None], "b": pa.array([1, 2, 3], pa.int32())})


@pytest.mark.parametrize("levels", [0, 1, 50])
def test_nesting_that_people_write_is_evaluated(levels):
    assert evaluate(nested(levels), FLAGS).column("a").to_pylist() == [levels % 2 == 0]


@pytest.mark.timeout(20)
@pytest.mark.parametrize("levels", [120, 200, 350, 1000, 10_000, 200_000])
def test_nesting_that_nobody_writes_keeps_all_rows(levels):
    assert evaluate(nested(levels), FLAGS) is FLAGS


@pytest.mark.timeout(20)
@pytest.mark.parametrize("opening", ["[", '{"a":', '{"filters":[', '{"filters":[{"value":'])
def test_brackets_without_end_are_refused_or_ignored(opening):
    try:
        decoded = decode_filter(opening * 200_000)
    except BadRequest:
        return
    assert decoded is None or all(isinstance(part, Unknown) for part in decoded.expressions)


@pytest.mark.timeout(20)
def test_deeply_nested_types_and_values_are_unknown():
    kind: dict[str, Any] = type_node("INTEGER")
    value: dict[str, Any] = {"is_null": False, "value": 1}
    for _ in range(150):
        kind = {"id": "LIST", "type_info": {"child_type": kind}}
        value = {"is_null": False, "value": {"children": [value]}}
    deep = {"type": "VALUE_CONSTANT", "value": {**value, "type": kind}}
    node = {"type": "OPERATOR_IS_NULL", "return_type": type_node("BOOLEAN"), "children": [deep]}

    assert evaluate(document(node), FLAGS) is FLAGS


@pytest.mark.timeout(100)
def test_fifty_megabytes_are_not_read():
    decoded = decode_filter(
        '{"filters": ["' + "x" * 50_000_000
    )  # not even parsed: that would be an error

    assert decoded is not None
    assert [type(part) for part in decoded.expressions] == [Unknown]


@pytest.mark.timeout(100)
def test_the_largest_filter_that_is_read_does_not_take_long():
    numbers = [column(1)] + [constant(5)] * 140_000
    text = document(
        {"type": "COMPARE_IN", "return_type": type_node("BOOLEAN"), "children": numbers}
    )
    assert len(text) < LARGEST_JSON

    assert evaluate(text, FLAGS) is FLAGS


@pytest.mark.timeout(20)
def test_sql_that_doubles_with_every_level_is_not_built():
    node = column(1)
    for _ in range(90):
        node = {
            "type": "COMPARE_BETWEEN",
            "input": node,
            "lower": constant(1),
            "upper": constant(2),
        }

    assert evaluate(document(node), FLAGS) is FLAGS


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "digits", ["9" * 1_000_000, "-" + "9" * 5000, "1" + "0" * 30, str(2**64), str(2**63)]
)
def test_numbers_out_of_range_keep_all_rows(digits):
    comparison = {"type": "COMPARE_EQUAL", "left": column(1), "right": constant("@@")}

    assert evaluate(document(comparison).replace('"@@"', digits), FLAGS) is FLAGS


@pytest.mark.parametrize("value", [True, None, 1.0, "1", [1], {"upper": 0, "lower": 1}, 1e400])
def test_values_of_another_json_type_keep_all_rows(value):
    assert (
        evaluate(
            document({"type": "COMPARE_EQUAL", "left": column(1), "right": constant(value)}), FLAGS
        )
        is FLAGS
    )


def test_lone_surrogates_keep_all_rows():
    rows = pa.record_batch({"a": ["x", "y"]})
    comparison = {
        "type": "COMPARE_EQUAL",
        "left": column(0, "VARCHAR"),
        "right": constant("\ud800", "VARCHAR"),
    }

    assert evaluate(document(comparison), rows) is rows
    assert evaluate(document(comparison, names=("\ud800",)), rows) is rows


INJECTIONS = [
    "a' OR '1'='1",
    'a" OR "1"="1',
    "'; DROP TABLE t; --",
    '"; DROP TABLE t; --',
    "x'); SELECT error('reached'); --",
    "/* */ --",
    "\\' OR 1=1",
    "$$ OR 1=1 $$",
    "{0}{name}%s$1?",
    "a\nb\r\t\u2028",
    "\0",
    "",
    "(SELECT 1)",
    "read_text('/etc/passwd')",
]


@pytest.mark.parametrize("text", INJECTIONS)
def test_text_constants_are_only_text(text):
    rows = pa.record_batch({"a": [text, "another"]})
    comparison = {
        "type": "COMPARE_EQUAL",
        "left": column(0, "VARCHAR"),
        "right": constant(text, "VARCHAR"),
    }

    assert evaluate(document(comparison), rows).to_pydict() == {"a": [text]}


@pytest.mark.parametrize("name", [name for name in INJECTIONS if name])
def test_column_names_are_only_names(name):
    rows = pa.record_batch({name: pa.array([1, 2], pa.int32()), "other": [1, 2]})
    comparison = {"type": "COMPARE_EQUAL", "left": column(0), "right": constant(1)}
    text = document(comparison, names=(name,))

    assert evaluate(text, rows).num_rows == 1
    decoded = decode_filter(text)
    assert decoded is not None
    if "\0" not in name:
        with duckdb.connect() as connection:
            connection.execute(f'CREATE TABLE t ("{name.replace(chr(34), chr(34) * 2)}" INTEGER)')
            assert connection.execute(
                f"SELECT count(*) FROM t WHERE {decoded.sql()}"
            ).fetchone() == (0,)


@pytest.mark.parametrize("text", INJECTIONS)
@pytest.mark.parametrize(
    "place", ["type", "alias", "function", "catalog", "enum", "field", "collation", "decimal"]
)
def test_names_of_types_and_functions_reach_no_sql(place, text):
    kinds = {
        "type": {"id": text, "type_info": None},
        "alias": {"id": "INTEGER", "type_info": {"alias": text}},
        "enum": {"id": "ENUM", "type_info": {"values": ["x", text]}},
        "field": {
            "id": "STRUCT",
            "type_info": {"child_types": [{"first": text, "second": type_node("DATE")}]},
        },
        "collation": {"id": "VARCHAR", "type_info": {"collation": text}},
        "decimal": {"id": "DECIMAL", "type_info": {"width": text, "scale": text}},
    }
    subject: dict[str, Any] = column(1)
    if place in kinds:
        subject = {"type": "OPERATOR_CAST", "child": subject, "return_type": kinds[place]}
    else:
        names = (
            {"name": text, "catalog_name": ""}
            if place == "function"
            else {"name": "abs", "catalog_name": text}
        )
        subject = {
            "type": "BOUND_FUNCTION",
            "children": [subject],
            "return_type": type_node("INTEGER"),
            **names,
        }
    # A column of integers is never NULL, whatever the filter is, so no row may go.
    node = {
        "type": "OPERATOR_IS_NOT_NULL",
        "return_type": type_node("BOOLEAN"),
        "children": [subject],
    }

    assert evaluate(document(node), FLAGS).num_rows == 3


def expression_paths(node, path=()):
    if isinstance(node, dict) and "expression_class" in node:
        yield path
    for key, child in (
        node.items()
        if isinstance(node, dict)
        else enumerate(node)
        if isinstance(node, list)
        else ()
    ):
        yield from expression_paths(child, (*path, key))


def all_paths(node, path=()):
    yield path
    for key, child in (
        node.items()
        if isinstance(node, dict)
        else enumerate(node)
        if isinstance(node, list)
        else ()
    ):
        yield from all_paths(child, (*path, key))


def replaced(node, path, value):
    node = copy.deepcopy(node)
    target = node
    for key in path[:-1]:
        target = target[key]
    target[path[-1]] = value
    return node


def removed(node, path):
    node = copy.deepcopy(node)
    target = node
    for key in path[:-1]:
        target = target[key]
    del target[path[-1]]
    return node


JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(
        [
            "INTEGER",
            "VARCHAR",
            "STRUCT",
            "BOUND_FUNCTION",
            "OPERATOR_NOT",
            "COMPARE_IN",
            "a' OR 1=1 --",
        ]
    ),
    st.lists(st.integers(), max_size=3),
    st.dictionaries(
        st.sampled_from(["type", "id", "value", "children", "type_info"]), st.none(), max_size=3
    ),
)


@pytest.mark.parametrize("version", VERSIONS)
@MUTATIONS
@given(data=st.data())
def test_mutated_filters_raise_nothing_but_bad_request(version, data):
    case = data.draw(st.sampled_from(cases(version)))
    tree = case["json_filters"]
    for _ in range(data.draw(st.integers(1, 3))):
        path = data.draw(st.sampled_from([path for path in all_paths(tree) if path]))
        tree = (
            removed(tree, path)
            if data.draw(st.booleans())
            else replaced(tree, path, data.draw(JUNK))
        )
    try:
        result = evaluate(json.dumps(tree), batch())
    except BadRequest:
        return
    assert result.num_rows <= 240
    assert result.schema == batch().schema


@MUTATIONS
@given(data=st.data())
def test_mutated_recordings_raise_nothing_but_bad_request(data):
    tree = json.loads(
        data.draw(
            st.sampled_from(
                [query["json_filters"] for query in recorded() if query["json_filters"]]
            )
        )
    )
    path = data.draw(st.sampled_from([path for path in all_paths(tree) if path]))
    try:
        decode_filter(json.dumps(replaced(tree, path, data.draw(JUNK))))
        decode_filter(json.dumps(removed(tree, path)))
    except BadRequest:
        return


@pytest.mark.parametrize("version", VERSIONS)
def test_a_part_that_becomes_unknown_never_costs_a_row(version):
    choice = random.Random(version)
    for case in cases(version):
        paths = list(expression_paths(case["json_filters"]["filters"]))
        for path in choice.sample(paths, min(3, len(paths))):
            unknown = {"expression_class": "BOUND_NEW", "type": "SOMETHING_NEW"}
            tree = {
                **case["json_filters"],
                "filters": replaced(case["json_filters"]["filters"], path, unknown),
            }
            kept = kept_by(evaluate(json.dumps(tree), batch()))

            assert set(case["keep"]) <= set(kept), (case["sql"], path)


@MUTATIONS
@given(st.text())
def test_any_text_is_a_filter_or_a_bad_request(text):
    try:
        decode_filter(text)
    except BadRequest:
        return


@MUTATIONS
@given(st.binary())
def test_any_bytes_are_a_filter_or_a_bad_request(data):
    try:
        decode_filter(data)
    except BadRequest:
        return
