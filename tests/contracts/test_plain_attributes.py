"""What a catalog, its schemas, tables and functions tell about themselves may be plain attributes
of a class. That mypy takes them is checked by `make check`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import sparkport as sp
from sparkport.catalog import (
    FunctionSignature,
    Parameter,
    RecordReader,
    ScalarFunction,
    TableFunction,
)
from sparkport.testing import DuckDBClient


class Primes(sp.Table):
    name = "primes"
    comment = "The first of them"
    arrow_schema = pa.schema([("n", pa.int64())])

    def scan(self, ctx: sp.Context, options: sp.ScanOptions) -> RecordReader:
        yield pa.record_batch({"n": [2, 3, 5]}, schema=self.arrow_schema)


class Named(Primes):
    """One whose name is only known when it is made."""

    name = ""

    def __init__(self, name: str) -> None:
        self.name = name


class Doubled(ScalarFunction):
    name = "doubled"
    comment = "Twice as much"
    signature = FunctionSignature((Parameter("n", pa.int64()),), pa.int64())

    def execute(self, ctx: sp.Context, arguments: pa.RecordBatch) -> pa.Array:
        return pc.multiply(arguments.column(0), 2)


class Upto(TableFunction):
    name = "upto"
    signature = FunctionSignature((Parameter("n", pa.int64()),))
    columns = pa.schema([("i", pa.int64())])

    def schema_for_parameters(self, ctx: sp.Context, parameters: Sequence[Any]) -> pa.Schema:
        return self.columns

    def execute(
        self, ctx: sp.Context, parameters: Sequence[Any], options: sp.ScanOptions
    ) -> RecordReader:
        yield pa.record_batch({"i": list(range(parameters[0]))}, schema=self.columns)


class Numbers(sp.Schema):
    name = "numbers"
    comment = "All kinds of them"

    def tables(self, ctx: sp.Context) -> Sequence[sp.Table]:
        return [Primes(), Named("others")]

    def scalar_functions(self, ctx: sp.Context) -> Sequence[ScalarFunction]:
        return [Doubled()]

    def table_functions(self, ctx: sp.Context) -> Sequence[TableFunction]:
        return [Upto()]


class Maths(sp.Catalog):
    name = "maths"

    def schemas(self, ctx: sp.Context) -> Sequence[sp.Schema]:
        return [Numbers()]


def test_everything_that_is_plain_is_served():
    with (
        sp.Server(Maths(), "grpc://127.0.0.1:0") as server,
        DuckDBClient(server.location, "maths") as client,
    ):
        described = {each.name: each.description for each in client.schemas().values()}
        assert described == {"numbers": "All kinds of them"}
        tables = client.tables("numbers")
        assert {each: tables[each].comment for each in tables} == {
            "primes": "The first of them",
            "others": "The first of them",
        }
        assert client.scan("numbers", "others").to_pylist() == [{"n": 2}, {"n": 3}, {"n": 5}]
        assert client.call("numbers", "doubled", [pa.array([1, 2])]).to_pylist() == [2, 4]
        assert client.table_function("numbers", "upto", 2).to_pylist() == [{"i": 0}, {"i": 1}]


def test_a_name_must_still_be_given():
    class Nameless(sp.Table):
        arrow_schema = pa.schema([("n", pa.int64())])

        def scan(self, ctx: sp.Context, options: sp.ScanOptions) -> RecordReader:
            return iter(())

    with pytest.raises(TypeError, match="name"):
        Nameless()  # type: ignore[abstract]
