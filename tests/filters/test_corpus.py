"""Every corpus case and recorded filter: nothing lost, nothing raised, nearly everything exact."""

import functools
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.filters.plans import kept_by

from sparkport.catalog.filters import Filter, Unknown, walk
from sparkport.engine.filters import Evaluator
from sparkport.wire.filters import decode_filter

CORPUS = Path(__file__).parent / "corpus"
VERSIONS = ("1.4", "1.5", "2.0")

UNKNOWABLE = {
    "id ^ 2 = 16",  # the last digit of a power depends on the platform's libm
    "i32 IN (SELECT 1)",  # the filter refers to the result of a join
    "try(id // (id - 5)) = 1",  # which divisions are errors depends on version and settings
}


@functools.cache
def cases(version: str) -> tuple[dict[str, Any], ...]:
    return tuple(json.loads((CORPUS / f"duckdb-{version}.json").read_text("utf-8"))["cases"])


@functools.cache
def batch() -> pa.RecordBatch:
    with pa.ipc.open_file(CORPUS / "data.arrow") as reader:
        (only,) = reader.read_all().combine_chunks().to_batches()
    return only


@functools.cache
def evaluated(version: str) -> tuple[tuple[dict[str, Any], Evaluator, list[int]], ...]:
    results = []
    for case in cases(version):
        row_filter = decode_filter(json.dumps(case["json_filters"])) or Filter(())
        evaluator = Evaluator(row_filter, batch().schema)
        results.append((case, evaluator, kept_by(evaluator.apply(batch()))))
    return tuple(results)


@pytest.mark.parametrize("version", VERSIONS)
def test_no_row_that_the_client_keeps_is_lost(version):
    lost = {case["sql"]: set(case["keep"]) - set(kept) for case, _, kept in evaluated(version)}

    assert {sql: rows for sql, rows in lost.items() if rows} == {}


@pytest.mark.parametrize("version", VERSIONS)
def test_nearly_every_case_keeps_exactly_what_the_client_keeps(version):
    steady = [(case, kept) for case, _, kept in evaluated(version) if not case["volatile"]]
    inexact = {case["sql"] for case, kept in steady if kept != case["keep"]}
    ratio = 1 - len(inexact) / len(steady)

    assert ratio >= 0.95, (
        f"DuckDB {version}: {ratio:.1%} of {len(steady)} exact, not: {sorted(inexact)}"
    )
    assert inexact <= UNKNOWABLE, f"DuckDB {version}: {ratio:.1%} of {len(steady)} exact"


@pytest.mark.parametrize("version", VERSIONS)
def test_volatile_functions_are_never_evaluated(version):
    volatile = [
        (case["sql"], evaluator, kept)
        for case, evaluator, kept in evaluated(version)
        if case["volatile"]
    ]

    assert [sql for sql, _, _ in volatile] == [
        "id < 10 OR random() < 0",
        "id < 100 AND random() < 2",
    ]
    assert not any(
        "random" in condition.text
        for _, evaluator, _ in volatile
        for condition in evaluator.conditions
    )
    assert [len(kept) for _, _, kept in volatile] == [240, 100]


@pytest.mark.parametrize("version", VERSIONS)
def test_slices_of_a_batch_keep_their_share_of_the_rows(version):
    for case, evaluator, kept in evaluated(version):
        pieces = [batch().slice(start, 37) for start in range(0, 240, 37)]

        assert [row for piece in pieces for row in kept_by(evaluator.apply(piece))] == kept, case[
            "sql"
        ]


@pytest.mark.parametrize("version", VERSIONS)
def test_rows_leave_with_the_schema_they_came_with(version):
    for case, evaluator, _ in evaluated(version):
        assert evaluator.apply(batch()).schema.equals(batch().schema, check_metadata=True), case[
            "sql"
        ]


@functools.cache
def recorded() -> list[Any]:
    return json.loads((CORPUS / "recorded.json").read_text("utf-8"))


def test_every_recorded_filter_decodes_without_unknown_parts():
    unknown = {}
    for query in recorded():
        decoded = decode_filter(query["json_filters"])
        for expression in decoded.expressions if decoded is not None else ():
            reasons = [node.reason for node in walk(expression) if isinstance(node, Unknown)]
            if reasons:
                unknown[query["sql"]] = reasons

    assert unknown == {}


def test_recorded_filters_without_expressions_are_none():
    empty = [
        query
        for query in recorded()
        if not query["json_filters"] or '"filters":[]' in query["json_filters"]
    ]

    assert empty
    assert [decode_filter(query["json_filters"]) for query in empty] == [None] * len(empty)


def test_raw_text_travels_with_the_filter():
    for query in recorded():
        decoded = decode_filter(query["json_filters"].encode("utf-8"))

        assert decoded is None or decoded.json == query["json_filters"]
