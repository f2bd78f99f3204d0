"""`spark_run`: statements in Spark SQL that change tables, one or several as one transaction."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

import pyarrow as pa

from sparkport.catalog import (
    Arguments,
    Context,
    FunctionSignature,
    Parameter,
    ParameterKind,
    Privilege,
    ScanOptions,
    TableFunction,
)
from sparkport.errors import BadRequest, LimitExceeded, PreconditionFailed
from sparkport.spark.functions.pipelines import Done, as_statement, run_all
from sparkport.spark.functions.query_arguments import expect_used, markers
from sparkport.spark.functions.run_statements import RunStatements
from sparkport.spark.functions.statements import Statement
from sparkport.spark.lake.lake import Lake

__all__ = [
    "REPORT",
    "SparkRun",
    "SparkRunPipeline",
    "SparkRunWithArguments",
    "given_statements",
    "reported",
]

_LONGEST = 1024 * 1024
_MOST_STATEMENTS = 100
_PROGRESS_SECONDS = 0.5
"""How often DuckDB is told how far a statement is."""
REPORT = pa.schema(
    [
        ("statement", pa.string()),
        ("table", pa.string()),
        ("rows_inserted", pa.int64()),
        ("rows_updated", pa.int64()),
        ("rows_deleted", pa.int64()),
        ("files", pa.int64()),
        ("version", pa.int64()),
        ("seconds", pa.float64()),
    ]
)


class SparkRun(TableFunction):
    """A statement that changes a table: `spark_run('MERGE INTO …')`."""

    privilege = Privilege.SPARK_RUN
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
            "Has Spark run a statement that changes a table: INSERT INTO, INSERT OVERWRITE, "
            "UPDATE, DELETE or MERGE INTO; or that makes one from a query: CREATE [OR REPLACE] "
            "TABLE AS; CREATE VIEW and DROP VIEW. A list of statements is one transaction. Values "
            "for markers are passed as to spark_sql. Returns what was changed."
        )

    @property
    def signature(self) -> FunctionSignature:
        values = pa.map_(pa.string(), pa.string())
        return FunctionSignature(
            (Parameter("statement", pa.string()), Parameter("args", values, ParameterKind.NAMED))
        )

    def schema_for_parameters(self, ctx: Context, parameters: Sequence[Any]) -> pa.Schema:
        """The columns of the report. Nothing is run, but the statements are checked."""
        self._statements.expect_all_allowed(ctx, self._given(parameters))
        return REPORT

    def execute(
        self, ctx: Context, parameters: Sequence[Any], options: ScanOptions
    ) -> Iterator[pa.RecordBatch]:
        given = self._given(parameters)
        if self._lake.transactions.blocks(ctx):
            # DuckDB does not say whether this call belongs to the block (airport T50).
            raise PreconditionFailed(
                "this process is in a block of lake_begin(): write SELECT lake.schema.spark_run() "
                "instead of FROM lake.schema.spark_run(). If an error has ended the block, call "
                "SELECT lake.schema.lake_rollback() first"
            )
        ctx.report_query("; ".join(each.text for each in given))
        within = as_statement(self._lake, ctx)
        names = REPORT.names if options.columns is None else list(options.columns)
        names = names or REPORT.names[:1]
        with ThreadPoolExecutor(1, "sparkport-run") as thread:
            done = thread.submit(run_all, self._lake, self._statements, within, given)
            while wait([done], _PROGRESS_SECONDS).not_done:
                yield pa.RecordBatch.from_pylist([], REPORT).select(names)  # tells the progress
            rows = [reported(each) for each in done.result()]
        yield pa.RecordBatch.from_pylist(rows, REPORT).select(names)

    def _given(self, parameters: Sequence[Any]) -> list[Statement]:
        texts, values = self._texts(parameters[0]), self._values(parameters)
        return given_statements(texts, values, self._namespace)

    def _texts(self, given: Any) -> list[Any]:
        return [given]

    def _values(self, parameters: Sequence[Any]) -> pa.Scalar | None:
        if isinstance(parameters, Arguments):
            return parameters.arrow.column(1)[0] if parameters.arrow.num_columns > 1 else None
        given = parameters[1] if len(parameters) > 1 else None
        return None if given is None else pa.scalar(given)


class SparkRunWithArguments(SparkRun):
    """A statement with values of any type: `spark_run('DELETE … :id', {'id': 5})`."""

    @property
    def signature(self) -> FunctionSignature:
        return FunctionSignature((Parameter("statement", pa.string()), Parameter("args", None)))


class SparkRunPipeline(SparkRun):
    """Several statements, which become visible together or not at all: `spark_run(['…', '…'])`."""

    @property
    def signature(self) -> FunctionSignature:
        values = pa.map_(pa.string(), pa.string())
        return FunctionSignature(
            (
                Parameter("statements", pa.list_(pa.string())),
                Parameter("args", values, ParameterKind.NAMED),
            )
        )

    def _texts(self, given: Any) -> list[Any]:
        return list(given or ())


def given_statements(
    texts: Sequence[Any], values: pa.Scalar | None, namespace: tuple[str, ...]
) -> list[Statement]:
    """The statements of a call. Raises: BadRequest, LimitExceeded."""
    if not texts or not all(isinstance(each, str) and each.strip() for each in texts):
        raise BadRequest(
            "spark_run needs a statement, such as spark_run('DELETE FROM t WHERE id = 1'), or "
            "a list of them"
        )
    if len(texts) > _MOST_STATEMENTS or sum(map(len, texts)) > _LONGEST:
        raise LimitExceeded(
            f"spark_run takes at most {_MOST_STATEMENTS} statements, and {_LONGEST} characters "
            "of them"
        )
    arguments = markers(values)
    expect_used(arguments, texts, "spark_run")
    return [
        Statement(_title(number, texts), namespace, text, arguments)
        for number, text in enumerate(texts, 1)
    ]


def reported(done: Done) -> dict[str, Any]:
    """A row of the report."""
    return {
        "statement": done.write.operation,
        "table": str(done.write.target.identifier),
        "rows_inserted": done.outcome.inserted,
        "rows_updated": done.outcome.updated,
        "rows_deleted": done.outcome.deleted,
        "files": done.outcome.files,
        "version": done.outcome.version,
        "seconds": done.seconds,
    }


def _title(number: int, texts: Sequence[str]) -> str:
    return "spark_run" if len(texts) == 1 else f"spark_run, statement {number} of {len(texts)}"
