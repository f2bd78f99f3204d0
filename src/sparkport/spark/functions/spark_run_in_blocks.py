"""`spark_run` as a scalar function, for blocks that `lake_begin()` has begun.

DuckDB tells of scalar functions in which block they are called, but not of table functions (airport
§2.2, T50). So `SELECT lake.s.spark_run('…')` takes part in the block, and waits for
`lake_commit()`, while `FROM lake.s.spark_run('…')` is published at once.
"""

from __future__ import annotations

import pyarrow as pa

from sparkport.catalog import (
    Context,
    FunctionSignature,
    Parameter,
    Privilege,
    ScalarFunction,
    Stability,
)
from sparkport.errors import BadRequest
from sparkport.spark.functions.pipelines import as_statement, run_all
from sparkport.spark.functions.run_statements import RunStatements
from sparkport.spark.functions.spark_run import REPORT, given_statements, reported
from sparkport.spark.lake.lake import Lake

__all__ = ["SparkRunInBlocks", "SparkRunPipelineInBlocks"]

_RESULT = pa.list_(pa.struct(list(REPORT)))
"""A row of the report for each statement.

It is a LIST for a single statement, too: DuckDB calls what returns a STRUCT once for each field
that `unnest` or `.*` makes of it.
"""


class SparkRunInBlocks(ScalarFunction):
    """Runs a statement, and returns what it has done: `SELECT spark_run('MERGE INTO …')`."""

    privilege = Privilege.SPARK_RUN
    stability = Stability.VOLATILE
    time_limit = None
    interruptible = False

    def __init__(self, lake: Lake, statements: RunStatements, namespace: tuple[str, ...]) -> None:
        self._lake = lake
        self._statements = statements
        self._namespace = namespace

    @property
    def name(self) -> str:
        return "spark_run"

    @property
    def comment(self) -> str:
        return (
            "Has Spark run a statement that changes a table, or a list of them as one transaction, "
            "in the block that lake_begin() has begun, if any."
        )

    @property
    def signature(self) -> FunctionSignature:
        return FunctionSignature((Parameter("statement", pa.string()),), _RESULT)

    def execute(self, ctx: Context, arguments: pa.RecordBatch) -> pa.Array:
        values = arguments.column(0).to_pylist()
        if len(values) != 1:
            raise BadRequest(
                "spark_run runs once in a query: SELECT lake.schema.spark_run('…'), without FROM"
            )
        texts = self._texts(values[0])
        given = given_statements(texts, None, self._namespace)
        ctx.report_query("; ".join(each.text for each in given))
        within = as_statement(self._lake, ctx)
        self._statements.expect_all_allowed(within, given)
        done = run_all(self._lake, self._statements, within, given)
        return pa.array([[reported(each) for each in done]], _RESULT)

    def _texts(self, value: object) -> list[object]:
        return [value]


class SparkRunPipelineInBlocks(SparkRunInBlocks):
    """Runs several statements: `SELECT spark_run(['…', '…'])`."""

    @property
    def signature(self) -> FunctionSignature:
        statements = Parameter("statements", pa.list_(pa.string()))
        return FunctionSignature((statements,), _RESULT)

    def _texts(self, value: object) -> list[object]:
        return list(value) if isinstance(value, list) else []
