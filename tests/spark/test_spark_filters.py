"""Filters in Spark SQL keep exactly the rows that DuckDB keeps, or more where Spark may differ."""

import math
import random
import struct
from decimal import Decimal
from typing import Any

import pyarrow as pa
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
    Filter,
    Function,
    Operator,
    OperatorKind,
    Unknown,
)
from sparkport.engine.filters import Evaluator
from sparkport.spark.scan.spark_filters import spark_condition

AND, OR = ConjunctionKind.AND, ConjunctionKind.OR
DECIMAL = DuckType("DECIMAL", width=10, scale=2)
TYPES = {
    "o": (BOOLEAN, pa.bool_(), "boolean"),
    "y": (DuckType("TINYINT"), pa.int8(), "tinyint"),
    "h": (DuckType("SMALLINT"), pa.int16(), "smallint"),
    "i": (DuckType("INTEGER"), pa.int32(), "int"),
    "l": (DuckType("BIGINT"), pa.int64(), "bigint"),
    "f": (DuckType("FLOAT"), pa.float32(), "float"),
    "d": (DuckType("DOUBLE"), pa.float64(), "double"),
    "n": (DECIMAL, pa.decimal128(10, 2), "decimal(10,2)"),
    "s": (DuckType("VARCHAR"), pa.string(), "string"),
    "b": (DuckType("BLOB"), pa.binary(), "binary"),
    "t": (DuckType("DATE"), pa.date32(), "date"),
    "m": (DuckType("TIMESTAMP"), pa.timestamp("us"), "timestamp_ntz"),
    "z": (DuckType("TIMESTAMP WITH TIME ZONE"), pa.timestamp("us", "UTC"), "timestamp"),
}
POOLS: dict[str, list[Any]] = {
    "o": [True, False],
    "y": [-128, -1, 0, 1, 127],
    "h": [-32768, 0, 7, 32767],
    "i": [-(2**31), -1, 0, 5, 2**31 - 1],
    "l": [-(2**63), -1, 0, 5, 2**63 - 1],
    "f": [
        math.nan,
        math.inf,
        -math.inf,
        0.0,
        -0.0,
        1.5,
        struct.unpack("f", struct.pack("f", 0.1))[0],
    ],
    "d": [math.nan, math.inf, -math.inf, 0.0, -0.0, 1.5, 0.1, 5e-324, -1e308],
    "n": [-9999999999, -1, 0, 1, 150, 9999999999],
    "s": [
        "",
        "a",
        "A",
        "ab",
        "b",
        "é",
        "z",
        "😀",
        "it's",
        "back\\slash",
        'a"b',
        "a\0b",
        "%",
        "a\nb",
        "${x}",
    ],
    "b": [b"", b"\x00", b"a", b"\xff", b"ab"],
    "t": [-719162, -1, 0, 1, 18262, 2932896],
    "m": [-62135596800000000, -1, 0, 1, 1577836800123456, 253402300799999999],
    "z": [-62135596800000000, -1, 0, 1, 1577836800123456, 253402300799999999],
}
COMPARISONS = list(ComparisonKind)


def arrow_values(name, values):
    kind = TYPES[name][1]
    if name == "n":
        return pa.array(
            [None if each is None else Decimal(each).scaleb(-2) for each in values], kind
        )
    if name == "t":
        return pa.array(values, pa.int32()).cast(kind)
    if name in "mz":
        return pa.array(values, pa.int64()).cast(kind)
    return pa.array(values, kind)


@pytest.fixture(scope="module")
def rows():
    picker = random.Random(6)
    count = 400
    columns = {"k": pa.array(range(count), pa.int64())}
    for name in TYPES:
        for copy in (name, f"{name}2"):
            columns[copy] = arrow_values(
                name, [picker.choice([*POOLS[name], None]) for _ in range(count)]
            )
    return pa.record_batch(columns)


@pytest.fixture(scope="module")
def relation(lake, rows, tmp_path_factory):
    """The rows in memory, and in files of two formats, because each prunes by its own bounds."""
    spark = lake.spark
    names = (f"{copy} {TYPES[name][2]}" for name in TYPES for copy in (name, f"{name}2"))
    frame = spark.createDataFrame(pa.Table.from_batches([rows]), ", ".join(("k bigint", *names)))
    folder = tmp_path_factory.mktemp("formats")
    frame.repartition(7).write.parquet(str(folder / "parquet"))
    spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {lake.spark_catalog}.spark_filters")
    table = f"{lake.spark_catalog}.spark_filters.numbers"
    frame.repartitionByRange(7, "d").writeTo(table).using("iceberg").createOrReplace()
    return [frame, spark.read.parquet(str(folder / "parquet")), spark.table(table)]


class Maker:
    """Makes random filters over the columns."""

    def __init__(self, seed):
        self.random = random.Random(seed)

    def column(self, name):
        return ColumnRef(self.random.choice([name, f"{name}2"]), TYPES[name][0])

    def constant(self, name):
        value = self.random.choice([*POOLS[name], *POOLS[name], None])
        return Constant(TYPES[name][0], value)

    def operand(self, name):
        return self.constant(name) if self.random.random() < 0.7 else self.column(name)

    def leaf(self):
        name = self.random.choice(list(TYPES))
        column = self.column(name)
        match self.random.randrange(8):
            case 0:
                return Operator(
                    self.random.choice([OperatorKind.IS_NULL, OperatorKind.IS_NOT_NULL]),
                    (column,),
                    BOOLEAN,
                )
            case 1:
                values = tuple(self.constant(name) for _ in range(self.random.choice([1, 3, 15])))
                return Operator(
                    self.random.choice([OperatorKind.IN, OperatorKind.NOT_IN]),
                    (column, *values),
                    BOOLEAN,
                )
            case 2:
                bounds = self.constant(name), self.constant(name)
                return Between(
                    column, *bounds, self.random.random() < 0.5, self.random.random() < 0.5
                )
            case 3:
                function = self.random.choice(
                    ["prefix", "suffix", "contains", "starts_with", "ends_with"]
                )
                return Function(function, (self.column("s"), self.constant("s")), BOOLEAN)
            case 4 if name in "yhi":
                wide = DuckType("BIGINT")
                constant = Constant(wide, self.random.choice(POOLS["l"]))
                return Comparison(self.random.choice(COMPARISONS), Cast(column, wide), constant)
            case _:
                return Comparison(self.random.choice(COMPARISONS), column, self.operand(name))

    def expression(self, depth=2):
        kind = self.random.randrange(5) if depth else 0
        if kind in (0, 1):
            return self.leaf()
        if kind == 2:
            return Operator(OperatorKind.NOT, (self.expression(depth - 1),), BOOLEAN)
        children = tuple(self.expression(depth - 1) for _ in range(self.random.choice([2, 3])))
        return Conjunction(self.random.choice([AND, OR]), children)


def kept_by_duckdb(row_filter, rows):
    mask = Evaluator(row_filter, rows.schema).mask(rows)
    return set(
        rows.column("k").to_pylist() if mask is None else rows.filter(mask).column("k").to_pylist()
    )


@pytest.mark.parametrize(
    ("ansi", "rounds"),
    [("true", 2), *(pytest.param(ansi, 16, marks=pytest.mark.long) for ansi in ("true", "false"))],
)
def test_spark_keeps_the_rows_that_duckdb_keeps(lake, rows, relation, ansi, rounds):
    spark = lake.spark
    before = spark.conf.get("spark.sql.ansi.enabled")
    maker = Maker(int(ansi == "true"))
    spark.conf.set("spark.sql.ansi.enabled", ansi)
    try:
        for _ in range(rounds):
            filters = [Filter((maker.expression(),)) for _ in range(12)]
            for source in relation:
                conditions = [spark_condition(each, source.schema) or "true" for each in filters]
                wanted = [
                    f"CASE WHEN {text} THEN 1 END AS f{number}"
                    for number, text in enumerate(conditions)
                ]
                found = source.selectExpr("k", *wanted).toArrow().to_pydict()
                # Iceberg has no small integers, so filters on those are weaker there.
                is_exact = source.schema["y"].dataType.simpleString() == "tinyint"
                assert not (is_exact and "true" in conditions)
                for number, each in enumerate(filters):
                    pairs = zip(found["k"], found[f"f{number}"], strict=True)
                    kept, expected = (
                        {key for key, flag in pairs if flag},
                        kept_by_duckdb(each, rows),
                    )
                    assert kept == expected if is_exact else kept >= expected, conditions[number]
    finally:
        spark.conf.set("spark.sql.ansi.enabled", before)


def test_pruning_by_bounds_loses_no_row(rows, relation):
    """In a WHERE, parts of a condition reach the files' bounds, where NaN and -0.0 are special."""
    maker = Maker(7)
    for _ in range(20):
        name = maker.random.choice("ddfsin")  # of types that all formats have
        leaf = Comparison(
            maker.random.choice(COMPARISONS), maker.column(name), maker.constant(name)
        )
        expression = (
            leaf if maker.random.random() < 0.5 else Operator(OperatorKind.NOT, (leaf,), BOOLEAN)
        )
        row_filter = Filter((expression,))
        expected = kept_by_duckdb(row_filter, rows)
        for source in relation[1:]:
            condition = spark_condition(row_filter, source.schema)
            found = source.where(condition).select("k").toArrow().column("k").to_pylist()
            assert sorted(found) == sorted(expected), condition


@pytest.fixture
def columns():
    from pyspark.sql import types

    return types.StructType(
        [
            types.StructField("a", types.LongType()),
            types.StructField("u", types.LongType()),
            types.StructField("s", types.StringType()),
            types.StructField("c", types.StringType("UNICODE_CI")),
            types.StructField("X", types.LongType()),
            types.StructField("x", types.LongType()),
            types.StructField("p", types.StructType([types.StructField("q", types.LongType())])),
        ]
    )


BIGINT, VARCHAR = DuckType("BIGINT"), DuckType("VARCHAR")


def equals(name, kind, value):
    return Comparison(ComparisonKind.EQUAL, ColumnRef(name, kind), Constant(kind, value))


A = equals("a", BIGINT, 1)
UNKNOWN = Unknown("test")


@pytest.mark.parametrize(
    "expression",
    [
        pytest.param(equals("u", DuckType("UBIGINT"), 1), id="stored in another type"),
        pytest.param(equals("s", DuckType("UUID"), None), id="a type that Spark lacks"),
        pytest.param(equals("s", DuckType("VARCHAR", alias="JSON"), "1"), id="JSON"),
        pytest.param(equals("c", VARCHAR, "a"), id="a collation"),
        pytest.param(equals("x", BIGINT, 1), id="names that differ only in case"),
        pytest.param(equals("nope", BIGINT, 1), id="a column that is missing"),
        pytest.param(
            Comparison(
                ComparisonKind.EQUAL, ColumnRef("a", BIGINT), Constant(DuckType("INTEGER"), 1)
            ),
            id="mixed",
        ),
        pytest.param(Operator(OperatorKind.NOT, (UNKNOWN,), BOOLEAN), id="unknown"),
        pytest.param(
            Operator(OperatorKind.NOT, (Conjunction(AND, (A, UNKNOWN)),), BOOLEAN),
            id="unknown under NOT",
        ),
        pytest.param(Conjunction(OR, (A, UNKNOWN)), id="unknown in OR"),
        pytest.param(Function("lower", (ColumnRef("s", VARCHAR),), VARCHAR), id="a function"),
        pytest.param(
            Operator(OperatorKind.IS_NULL, (ColumnRef("p", DuckType("STRUCT")),), BOOLEAN),
            id="nested",
        ),
        pytest.param(Case(((A, A),), A, BOOLEAN), id="CASE"),
        pytest.param(equals("s", VARCHAR, "\ud800"), id="no text"),
        pytest.param(equals("a", BIGINT, 2**63), id="out of range"),
    ],
)
def test_what_may_differ_is_left_to_the_client(columns, expression):
    assert spark_condition(Filter((expression,)), columns) is None
    assert spark_condition(Filter((Conjunction(AND, (A, expression)),)), columns) == "(`a` = 1L)"


def test_without_a_filter_there_is_no_condition(columns):
    assert spark_condition(None, columns) is None
    assert spark_condition(Filter(()), columns) is None


def test_the_row_id_is_the_column_that_holds_it(columns):
    row_filter = Filter((equals("rowid", BIGINT, 5),))

    assert spark_condition(row_filter, columns, "_row_id") == "(`_row_id` = 5L)"
    assert spark_condition(row_filter, columns) is None


def test_text_of_the_client_cannot_end_a_literal(columns):
    condition = spark_condition(Filter((equals("s", VARCHAR, "' OR 1=1 --\\"),)), columns)

    assert condition is not None
    assert "OR" not in condition
    assert condition.count("'") == 2


def test_null_of_a_column_in_any_type_is_null(columns):
    expression = Operator(OperatorKind.IS_NULL, (ColumnRef("u", DuckType("UBIGINT")),), BOOLEAN)

    assert spark_condition(Filter((expression,)), columns) == "(`u` IS NULL)"
