"""The recording server's functions and actions that the recorded statements call."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sparkport.builder import CatalogBuilder
from sparkport.builder.catalog import SchemaBuilder
from sparkport.catalog import (
    Context,
    FunctionSignature,
    Parameter,
    ParameterKind,
    RecordReader,
    ScanOptions,
    TableFunction,
)
from sparkport.errors import AlreadyExists, SparkportError, Unauthenticated
from sparkport.memory import MemorySchema

WIDE = pa.schema([(f"result_{number}", pa.int32()) for number in range(20)])
LONG = pa.schema([("result", pa.string()), ("result2", pa.string())])
HUGE = pa.schema([("multiplier", pa.int64()), ("value", pa.string())])
RESULT = pa.schema([("result", pa.string())])


def add_functions(memory: MemorySchema) -> None:
    """The functions of the schema `utils`."""
    schema = SchemaBuilder(memory)
    _add_scalar_functions(schema)
    _add_table_functions(schema)
    _add_in_out_functions(schema)
    memory.add_table_function(NamedInTheMiddle())


def _add_scalar_functions(schema: SchemaBuilder) -> None:
    @schema.scalar_function
    def test_uppercase(a: pa.string()) -> pa.string():  # type: ignore[valid-type]
        return pc.utf8_upper(a)

    @schema.scalar_function
    def test_add(a: pa.int64(), b: pa.int64()) -> pa.int64():  # type: ignore[valid-type]
        return pc.add(a, b)

    @schema.scalar_function
    def test_any_type(a: Any) -> pa.string():  # type: ignore[valid-type]
        return a.cast(pa.string())

    @schema.scalar_function
    def test_no_op(a: pa.int64()) -> pa.int64():  # type: ignore[valid-type]
        return a

    @schema.scalar_function
    def test_time() -> pa.timestamp("us"):  # type: ignore[valid-type]
        return pa.scalar(datetime.datetime(2026, 11, 15, 20, 12, 54), pa.timestamp("us"))

    @schema.scalar_function
    def collatz(n: pa.int64()) -> pa.int64():  # type: ignore[valid-type]
        return pa.array(
            [None if each is None else len(_collatz(each)) for each in n.to_pylist()], pa.int64()
        )

    @schema.scalar_function
    def collatz_sequence(n: pa.int64()) -> pa.list_(pa.int64()):  # type: ignore[valid-type]
        return pa.array(
            [None if each is None else _collatz(each) for each in n.to_pylist()],
            pa.list_(pa.int64()),
        )


def _collatz(number: int) -> list[int]:
    steps = []
    while number != 1:
        number = number // 2 if number % 2 == 0 else 3 * number + 1
        steps.append(number)
    return steps


def _add_table_functions(schema: SchemaBuilder) -> None:
    @schema.table_function(returns=RESULT)
    def test_echo(input: pa.string()) -> pa.Table:  # type: ignore[valid-type]
        return pa.table([[input]], schema=RESULT)

    @schema.table_function(returns=RESULT)
    def test_repeat(input: pa.string(), count: pa.int32()) -> pa.Table:  # type: ignore[valid-type]
        return pa.table([[input] * count], schema=RESULT)

    @schema.table_function(returns=lambda input: pa.schema([("input", input.type)]))
    def test_dynamic_schema(input: pa.Scalar) -> pa.Table:
        return pa.table({"input": pa.array([input], input.type)})

    @schema.table_function(returns=WIDE)
    def test_wide(count: pa.int32()) -> pa.Table:  # type: ignore[valid-type]
        return _wide(count)

    @schema.table_function(returns=LONG)
    def test_long(input: pa.string()) -> Iterator[pa.RecordBatch]:  # type: ignore[valid-type]
        for start in range(0, 300_000, 3000):
            texts = pa.array(map(str, range(start, start + 3000)))
            yield pa.record_batch([texts, texts], schema=LONG)


def _wide(rows: int) -> pa.Table:
    return pa.table(
        [pa.array([number] * rows, pa.int32()) for number in range(len(WIDE))], schema=WIDE
    )


class NamedInTheMiddle(TableFunction):
    """Python cannot put a named parameter between two others, SQL can."""

    @property
    def name(self) -> str:
        return "test_dynamic_schema_named_parameters"

    @property
    def signature(self) -> FunctionSignature:
        return FunctionSignature(
            (
                Parameter("name", pa.string()),
                Parameter("location", pa.string(), ParameterKind.NAMED),
                Parameter("input", None),
                Parameter("city", pa.string()),
            )
        )

    def schema_for_parameters(self, ctx: Context, parameters: Sequence[Any]) -> pa.Schema:
        arrow: pa.RecordBatch = parameters.arrow  # type: ignore[attr-defined]
        return arrow.schema

    def execute(
        self, ctx: Context, parameters: Sequence[Any], options: ScanOptions
    ) -> RecordReader:
        return [parameters.arrow]  # type: ignore[attr-defined]


def _add_in_out_functions(schema: SchemaBuilder) -> None:
    @schema.table_function(returns=lambda input, rows: pa.schema([("input", pa.string()), *rows]))
    def test_table_in_out(input: pa.string(), rows: pa.Table) -> Iterator[pa.RecordBatch]:  # type: ignore[valid-type]
        for batch in rows:
            labels = pa.array([input] * batch.num_rows, pa.string())
            yield pa.record_batch([labels, *batch.columns], names=["input", *batch.schema.names])
        yield pa.record_batch({"input": ["last"], "name": ["row"]})

    @schema.table_function(returns=lambda rows: rows)
    def test_table_in_out_long(rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        yield from [rows] * 10

    @schema.table_function(returns=HUGE)
    def test_table_in_out_huge(rows: pa.Table) -> Iterator[pa.RecordBatch]:
        for _ in rows:
            yield from (_huge(number) for number in range(10))
        yield from (_huge(number) for number in range(10, 13))

    @schema.table_function(returns=WIDE)
    def test_table_in_out_wide(input: pa.string(), rows: pa.RecordBatch) -> pa.Table:  # type: ignore[valid-type]
        return _wide(rows.num_rows)


def _huge(number: int) -> pa.RecordBatch:
    return pa.record_batch([pa.array([number] * 5000), pa.array([str(number)] * 5000)], schema=HUGE)


# ----------------------------------------------------------------------------------------- actions


class Unavailable(SparkportError):
    code = "UNAVAILABLE"


def catalog_with_actions() -> CatalogBuilder:
    """Return a catalog with `echo` and other actions; `create_database` keeps a single name."""
    catalog = CatalogBuilder("cat")
    created: set[bytes] = set()

    @catalog.action
    def echo(ctx: Context, parameter: bytes) -> Iterator[bytes]:
        yield parameter
        yield b"second result"

    @catalog.action
    def create_database(ctx: Context, parameter: bytes) -> None:
        if parameter in created:
            raise AlreadyExists(f"Database {parameter.decode()} already exists")
        created.add(parameter)

    @catalog.action
    def generate_error(ctx: Context, parameter: bytes) -> None:
        kinds = {b"flight_unavailable": Unavailable, b"flight_unauthenticated": Unauthenticated}
        raise kinds.get(parameter, SparkportError)(f"Testing error: {parameter.decode()}")

    return catalog
