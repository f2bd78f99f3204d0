"""The functions of the lake, in each of its schemas.

They are in every schema, and not in a schema of their own. So unqualified names in a query mean
tables of the schema whose function was called, `USE lake.sales` makes `spark_sql('…')` enough, and
no schema appears that Spark does not have.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import pyarrow as pa

from sparkport.catalog import (
    Arguments,
    Context,
    FunctionSignature,
    Parameter,
    ParameterKind,
    Privilege,
    RecordReader,
    ScalarFunction,
    ScanOptions,
    TableFunction,
    TableInOutFunction,
)
from sparkport.catalog.names import folded
from sparkport.errors import BadRequest, LimitExceeded
from sparkport.spark.care.reports import CareLog
from sparkport.spark.functions.care_functions import Care, SetCare
from sparkport.spark.functions.included import FunctionSource, IncludedFunctions, IncludedSchema
from sparkport.spark.functions.lake_sql import LakeSql
from sparkport.spark.functions.maintenance import ExpireSnapshots, Optimize
from sparkport.spark.functions.metadata_functions import Files, History, Snapshots
from sparkport.spark.functions.queries import Queries, Query, read_query
from sparkport.spark.functions.query_arguments import markers
from sparkport.spark.functions.run_statements import RunStatements
from sparkport.spark.functions.sized_views import Views
from sparkport.spark.functions.spark_run import (
    SparkRun,
    SparkRunPipeline,
    SparkRunWithArguments,
)
from sparkport.spark.functions.spark_run_in_blocks import (
    SparkRunInBlocks,
    SparkRunPipelineInBlocks,
)
from sparkport.spark.functions.sql_functions import SqlFunctions
from sparkport.spark.functions.table_argument import FunctionOfTable
from sparkport.spark.functions.table_changes import TableChanges, TableChangesSince
from sparkport.spark.functions.transaction_functions import transaction_functions
from sparkport.spark.functions.upsert import merging_functions
from sparkport.spark.functions.versions import RollbackTo, Tag
from sparkport.spark.iceberg.identifiers import Identifier
from sparkport.spark.lake.lake import Lake

__all__ = ["LakeFunctions"]


_OF_TABLES: Sequence[type[FunctionOfTable]] = (
    *(Snapshots, Files, History),
    *(SetCare, Optimize, ExpireSnapshots, RollbackTo, Tag),
    *(TableChanges, TableChangesSince),
)


class LakeFunctions:
    """The functions of a lake, by schema. Thread-safe."""

    def __init__(self, lake: Lake, *, care_log: CareLog | None = None) -> None:
        """`care_log` has what is done for the lake's tables in the background."""
        self._lake = lake
        self._care_log = care_log
        self._queries = Queries(lake)
        self._statements = RunStatements(lake)
        self.sql = LakeSql(lake, self._queries, self._statements)
        self._own: dict[tuple[str, ...], list[TableFunction | TableInOutFunction]] = {}
        self._sql_functions = SqlFunctions(lake)
        self._transactions = transaction_functions(lake)
        self.included = IncludedFunctions()

    def include(self, source: FunctionSource) -> None:
        """Add Python functions to schemas. Raises: BadRequest, AlreadyExists."""
        self.included.add(source, self._built_in)

    def _built_in(self, schema: str) -> frozenset[bytes]:
        own = (*self._transactions, *self._own_functions(tuple(schema.split("."))))
        return frozenset(folded(each.name) for each in own)

    def table_functions(
        self, namespace: tuple[str, ...]
    ) -> Sequence[TableFunction | TableInOutFunction]:
        """The lake's own table functions, included ones, and those defined in Spark SQL."""
        included = self.included.of(".".join(namespace))
        return [
            *self._own_functions(namespace),
            *included.table_functions,
            *_others(self._sql_functions.table_functions(namespace), included),
        ]

    def _own_functions(
        self, namespace: tuple[str, ...]
    ) -> Sequence[TableFunction | TableInOutFunction]:
        own = self._own.get(namespace)
        if own is None:
            query = [
                form(self._lake, self._queries, namespace)
                for form in (SparkSql, SparkSqlWithArguments)
            ]
            run = [
                form(self._lake, self._statements, namespace)
                for form in (SparkRun, SparkRunWithArguments, SparkRunPipeline)
            ]
            merging = merging_functions(self._lake, namespace)
            of_tables = [form(self._lake, namespace) for form in _OF_TABLES]
            views = Views(self._lake, namespace)
            care = Care(self._lake, self._care_log, namespace)
            own = self._own.setdefault(namespace, [*query, *run, *of_tables, care, views, *merging])
        return own

    def scalar_functions(self, namespace: tuple[str, ...]) -> Sequence[ScalarFunction]:
        """The functions for transactions, included ones, and those defined in Spark SQL."""
        included = self.included.of(".".join(namespace))
        run = [
            form(self._lake, self._statements, namespace)
            for form in (SparkRunInBlocks, SparkRunPipelineInBlocks)
        ]
        return [
            *self._transactions,
            *run,
            *included.scalar_functions,
            *_others(self._sql_functions.scalar_functions(namespace), included),
        ]


_Named = TypeVar("_Named", ScalarFunction, TableFunction)


def _others(functions: Sequence[_Named], included: IncludedSchema) -> list[_Named]:
    """Those that no included function hides: the server's operator has chosen that one."""
    return [each for each in functions if folded(each.name) not in included.names]


def _expect_moderate(text: str, what: str) -> None:
    """Limit a text that is remembered for a while with its plan. Raises: LimitExceeded."""
    if len(text) > _LONGEST:
        raise LimitExceeded(
            f"spark_sql takes a {what} of at most {_LONGEST} characters, and this one has "
            f"{len(text)}: write the values into a table, and join it"
        )


_LONGEST = 1024 * 1024


def _full_name(table: Identifier) -> str:
    return f"{table.catalog}.{table}"


class SparkSql(TableFunction):
    """Rows of a query in Spark SQL: `spark_sql('SELECT …')`."""

    applies_filters = False  # Spark applies those it understands
    privilege = Privilege.SPARK_SQL
    time_limit = None
    interruptible = False

    def __init__(self, lake: Lake, queries: Queries, namespace: tuple[str, ...]) -> None:
        self._lake = lake
        self._queries = queries
        self._namespace = namespace

    @property
    def name(self) -> str:
        return "spark_sql"

    @property
    def comment(self) -> str:
        return (
            "The rows of a query that Spark runs. Values for its markers :name are passed as "
            "args := MAP {'name': 'text'}, or with their types as {'name': value}; [value] is for "
            "?."
        )

    @property
    def signature(self) -> FunctionSignature:
        # A named parameter has the same type in all calls. So all values are text, which Spark
        # casts where needed.
        values = pa.map_(pa.string(), pa.string())
        return FunctionSignature(
            (Parameter("query", pa.string()), Parameter("args", values, ParameterKind.NAMED))
        )

    def schema_for_parameters(self, ctx: Context, parameters: Sequence[Any]) -> pa.Schema:
        return self._understood(ctx, parameters).arrow_schema

    def execute(
        self, ctx: Context, parameters: Sequence[Any], options: ScanOptions
    ) -> RecordReader:
        return read_query(self._lake, ctx, self._understood(ctx, parameters), options)

    def _understood(self, ctx: Context, parameters: Sequence[Any]) -> Query:
        text = parameters[0]
        if not isinstance(text, str) or not text.strip():
            raise BadRequest("spark_sql needs a query, such as spark_sql('SELECT 1')")
        values = self._values(parameters)
        key = None if values is None else (str(values.type), repr(values))
        _expect_moderate(text, "query")
        _expect_moderate("" if key is None else key[1], "list of arguments")
        ctx.report_query(text)
        query = self._queries.understand(
            ctx, self._namespace, "spark_sql", text, markers(values), key
        )
        ctx.report_query(text, tuple(map(_full_name, query.tables)))
        return query

    def _values(self, parameters: Sequence[Any]) -> pa.Scalar | None:
        if isinstance(parameters, Arguments):
            return parameters.arrow.column(1)[0] if parameters.arrow.num_columns > 1 else None
        given = parameters[1] if len(parameters) > 1 else None
        return None if given is None else pa.scalar(given)


class SparkSqlWithArguments(SparkSql):
    """A query in Spark SQL with values of any type: `spark_sql('SELECT … :id', {'id': 5})`."""

    @property
    def signature(self) -> FunctionSignature:
        return FunctionSignature((Parameter("query", pa.string()), Parameter("args", None)))
