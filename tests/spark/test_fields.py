"""ALTER TABLE on fields of structs, on the lake: declared types, unions, keys of maps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from tests.spark.lake_tables import (
    CTX,
    changed_once,
    create,
    field,
    find,
    in_spark,
    insert,
    unchanged,
    values,
)

from sparkport.catalog import (
    AddFieldOptions,
    Constraints,
    RemoveFieldOptions,
)
from sparkport.errors import (
    BadRequest,
    PreconditionFailed,
    Unsupported,
)
from sparkport.spark import LakeCatalog

INNER = pa.struct([("x", pa.int16()), ("y", pa.string())])
NESTED = pa.schema(
    [
        ("s", pa.struct([("a", pa.int32()), ("deep", INNER)])),
        ("l", pa.list_(INNER)),
        ("m", pa.map_(pa.string(), INNER)),
        ("k", pa.map_(pa.struct([("p", pa.int32()), ("q", pa.int32())]), pa.int32())),
        ("u", pa.sparse_union([pa.field("num", pa.int32()), pa.field("str", pa.string())])),
    ]
)
_INNER = "named_struct('x', 1, 'y', 'a')"


@pytest.fixture
def nested(lake: LakeCatalog, namespace: str) -> Callable[[], Any]:
    create(lake, namespace, "t", NESTED, constraints=Constraints(checks=("(s.a > 0)",)))
    insert(
        lake,
        namespace,
        "t",
        f"(named_struct('a', 5, 'deep', {_INNER}), array({_INNER}), map('k', {_INNER}), map(), "
        "NULL)",
    )
    return lambda: find(lake, namespace, "t")


@pytest.mark.parametrize(
    ("path", "column", "expected"),
    [
        (["s"], "s", {"a": 5, "deep": {"x": 1, "y": "a"}, "new": None}),
        (["S", "DEEP"], "s", {"a": 5, "deep": {"x": 1, "y": "a", "new": None}}),
        (["l", "element"], "l", [{"x": 1, "y": "a", "new": None}]),
        (["m", "value"], "m", [("k", {"x": 1, "y": "a", "new": None})]),
    ],
)
def test_add_field(lake, namespace, nested, path, column, expected):
    before = nested().arrow_schema
    table = changed_once(
        nested, lambda t: t.add_field(CTX, path, field("new", pa.uint8()), AddFieldOptions())
    )
    assert values(table, column) == [expected]
    assert "uint8" in str(table.arrow_schema.field(column).type)
    changed_once(nested, lambda t: t.remove_field(CTX, [*path, "new"], RemoveFieldOptions()))
    assert nested().arrow_schema.equals(before)


def test_rename_and_remove_fields(lake, namespace, nested):
    changed_once(nested, lambda t: t.rename_field(CTX, ["s", "deep", "X"], "z"))
    changed_once(nested, lambda t: t.rename_field(CTX, ["l", "element", "y"], "Y"))
    changed_once(nested, lambda t: t.remove_field(CTX, ["m", "value", "x"], RemoveFieldOptions()))
    table = nested()
    assert values(table, "s", "l", "m") == [
        ({"a": 5, "deep": {"z": 1, "y": "a"}}, [{"x": 1, "Y": "a"}], [("k", {"y": "a"})])
    ]
    assert table.arrow_schema.field("s").type.field("deep").type.field("z").type == pa.int16()
    assert in_spark(lake, namespace, "t", "s.deep.z, l[0].Y, m['k'].y") == [(1, "a", "a")]


@pytest.mark.parametrize(
    ("path", "error", "problem"),
    [
        (["u", "num"], BadRequest, "u of table .* is not a struct but"),
        (["k", "key", "p"], Unsupported, r"k\.key of table .* is the key of a map"),
        (["s", "a"], PreconditionFailed, "column s of table .* cannot become"),
    ],
)
def test_fields_that_cannot_be_changed(lake, namespace, nested, path, error, problem):
    unchanged(nested, error, problem, lambda t: t.remove_field(CTX, path, RemoveFieldOptions()))
    unchanged(nested, error, problem, lambda t: t.rename_field(CTX, path, "other"))
