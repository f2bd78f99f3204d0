"""Functions that were defined in Spark SQL (`CREATE FUNCTION … RETURN …`), as DuckDB functions.

Only Spark's session catalog can hold them. Iceberg's parser, which every session with Iceberg's
extensions uses, cannot read their parameters back. Such functions are described and run in a
session without extensions.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from sparkport.catalog import (
    Arguments,
    Context,
    FunctionSignature,
    Parameter,
    RecordReader,
    ScalarFunction,
    ScanOptions,
    Stability,
    TableFunction,
)
from sparkport.engine.signatures import refuse_unusable
from sparkport.errors import SparkportError, Unsupported
from sparkport.spark.functions.queries import Query, read_query
from sparkport.spark.functions.query_arguments import literal
from sparkport.spark.functions.query_sessions import QuerySessions
from sparkport.spark.iceberg.identifiers import Identifier, quoted
from sparkport.spark.jvm.errors import translated
from sparkport.spark.jvm.relay.jobs import start_job
from sparkport.spark.jvm.result_columns import arrow_type, presentable, presented
from sparkport.spark.jvm.session.adopted import without_substitution
from sparkport.spark.lake.lake import Lake
from sparkport.spark.scan.query_permissions import expect_served_whole

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import DataType

__all__ = ["SqlFunctions", "session_without_extensions"]

_log = logging.getLogger(__name__)
_SESSION_CATALOG = "spark_catalog"
_POSITION = "__sparkport_position"


@dataclass(frozen=True, slots=True)
class _Described:
    """What Spark says of a function, and the session that can run it."""

    identifier: Identifier
    session: SparkSession
    parameters: tuple[tuple[str, DataType], ...]
    required: int
    """How many parameters have no default; these come first."""
    returns: DataType
    is_table: bool
    comment: str
    is_deterministic: bool
    reads_data: bool

    @property
    def title(self) -> str:
        return f"function {self.identifier}"


class SqlFunctions:
    """The functions of a lake that were defined in Spark SQL.

    They are looked up again every few seconds. Thread-safe.
    """

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._sessions = QuerySessions(lake)
        self._own: dict[tuple[str, ...], SparkSession] = {}
        self._lock = threading.Lock()
        self._plain: dict[tuple[str, ...], SparkSession] = {}
        self._found: dict[tuple[str, ...], tuple[float, list[ScalarFunction | TableFunction]]] = {}
        self._made: dict[_Described, list[ScalarFunction | TableFunction]] = {}

    def scalar_functions(self, namespace: tuple[str, ...]) -> list[ScalarFunction]:
        return [each for each in self._functions(namespace) if isinstance(each, ScalarFunction)]

    def table_functions(self, namespace: tuple[str, ...]) -> list[TableFunction]:
        return [each for each in self._functions(namespace) if isinstance(each, TableFunction)]

    def _functions(self, namespace: tuple[str, ...]) -> list[ScalarFunction | TableFunction]:
        if self._lake.gateway.catalog != _SESSION_CATALOG or len(namespace) != 1:
            return []
        with self._lock:
            until, found = self._found.get(namespace, (0.0, []))
            if time.monotonic() < until:
                return found
            try:
                found = [
                    each
                    for described in self._listed(namespace)
                    for each in self._functions_of(described)
                ]
            except SparkportError as error:
                _log.warning(
                    "the functions of schema %s cannot be listed: %s", namespace[0], error.message
                )
            self._found[namespace] = (time.monotonic() + self._lake.settings.refresh_seconds, found)
            return found

    def _functions_of(self, described: _Described) -> list[ScalarFunction | TableFunction]:
        """The overloads of a function. The objects stay the same until the function changes."""
        if described not in self._made:
            make = SqlTableFunction if described.is_table else SqlScalarFunction
            counts = range(described.required, len(described.parameters) + 1)
            self._made[described] = [make(self._lake, described, count) for count in counts]
        return self._made[described]

    def _listed(self, namespace: tuple[str, ...]) -> list[_Described]:
        spark = self._lake.spark
        jvm: Any = spark._jvm
        with translated(f"schema {namespace[0]}"):
            catalog: Any = spark._jsparkSession.sessionState().catalog().externalCatalog()
            names = jvm.scala.jdk.javaapi.CollectionConverters.asJava(
                catalog.listFunctions(namespace[0], "*")
            )
            found = [catalog.getFunction(namespace[0], name) for name in sorted(names)]
        described = []
        for function in found:
            identifier = Identifier(
                _SESSION_CATALOG, namespace, str(function.identifier().funcName())
            )
            if not function.isUserDefinedFunction():
                continue  # a Java class, which does not name its parameters
            try:
                with translated(f"function {identifier}"):
                    each = self._described(identifier, function)
                    refuse_unusable(
                        _signature(each, len(each.parameters)),
                        "table" if each.is_table else "scalar",
                    )
                described.append(each)
            except SparkportError as error:
                _log.warning("%s is left out of the listing: %s", identifier, error.message)
        return described

    def _described(self, identifier: Identifier, function: Any) -> _Described:
        from pyspark.sql.types import StructType

        session, found = self._read(identifier.namespace, function)
        columns = found.inputParam()
        parameters = (
            StructType.fromJson(_json(columns.get())) if columns.isDefined() else StructType([])
        )
        if any(presentable(field.dataType) != field.dataType for field in parameters):
            raise Unsupported("it has a parameter of a type that DuckDB lacks")
        is_table = bool(found.isTableFunc())
        returns = found.getTableFuncReturnCols() if is_table else found.getScalarFuncReturnType()
        comment, deterministic, contains = (
            found.comment(),
            found.deterministic(),
            found.containsSQL(),
        )
        return _Described(
            identifier,
            session,
            tuple((field.name, field.dataType) for field in parameters),
            sum("default" not in field.metadata for field in parameters),
            _data_type(returns),
            is_table,
            str(comment.get()) if comment.isDefined() else "",
            bool(deterministic.isDefined() and deterministic.get()),
            not (contains.isDefined() and contains.get()),
        )

    def _read(self, namespace: tuple[str, ...], function: Any) -> tuple[SparkSession, Any]:
        jvm: Any = self._lake.spark._jvm
        parse = jvm.org.apache.spark.sql.catalyst.catalog.SQLFunction.fromCatalogFunction
        session = self._own.get(namespace)
        if session is None:
            with self._sessions.opened(namespace) as session:
                self._own[namespace] = session
        try:
            return session, parse(function, _parser(session))
        except Exception:  # noqa: BLE001 - see above: for functions with parameters, where Iceberg's parser is
            if namespace not in self._plain:
                self._plain[namespace] = session_without_extensions(self._lake.spark, namespace[0])
            return self._plain[namespace], parse(function, _parser(self._plain[namespace]))


class _SqlFunction:
    """What scalar and table functions share; `count` is this overload's number of arguments."""

    def __init__(self, lake: Lake, described: _Described, count: int) -> None:
        self._lake = lake
        self._described = described
        self._count = count

    @property
    def name(self) -> str:
        return self._described.identifier.name

    @property
    def comment(self) -> str:
        return self._described.comment

    @property
    def signature(self) -> FunctionSignature:
        return _signature(self._described, self._count)


class SqlScalarFunction(_SqlFunction, ScalarFunction):
    """A scalar function, computed by Spark for a batch at a time."""

    time_limit = None
    interruptible = False

    def __init__(self, lake: Lake, described: _Described, count: int) -> None:
        super().__init__(lake, described, count)
        if not described.is_deterministic:
            self.stability = Stability.VOLATILE
        else:
            self.stability = (
                Stability.CONSISTENT_WITHIN_QUERY if described.reads_data else Stability.CONSISTENT
            )

    def execute(self, ctx: Context, arguments: pa.RecordBatch) -> pa.Array:
        """Have Spark compute a batch: its few rows are sent with the plan."""
        from pyspark.sql.types import LongType, StructField, StructType

        expect_served_whole(ctx, self._lake, self._described.title)
        if not arguments.num_rows:
            return pa.array([], self.signature.return_type)
        described = self._described
        names = [f"a{number}" for number in range(arguments.num_columns)]
        positions = pa.array(range(arguments.num_rows), pa.int64())
        table = pa.table([positions, *arguments.columns], [_POSITION, *names])
        columns = StructType([StructField(_POSITION, LongType())])
        for name, (_, kind) in zip(names, described.parameters, strict=False):
            columns = columns.add(name, kind)

        def run() -> pa.Table:
            call = f"{described.identifier.sql}({', '.join(map(quoted, names))})"
            result = f"CAST({call} AS {presentable(described.returns).simpleString()}) AS result"
            rows = described.session.createDataFrame(table, columns).selectExpr(
                quoted(_POSITION), result
            )
            return rows.toArrow()

        job = start_job(described.session.sparkContext, ctx, described.title, run)
        ctx.on_cancel(job.cancel)
        found = job.result()
        # A function that reads tables may have shuffled the rows.
        ordered = found.take(pc.sort_indices(found.column(0)))
        return ordered.column(1).combine_chunks().cast(self.signature.return_type)


class SqlTableFunction(_SqlFunction, TableFunction):
    """A table function: a query into which the arguments are put."""

    time_limit = None
    interruptible = False

    def schema_for_parameters(self, ctx: Context, parameters: Sequence[Any]) -> pa.Schema:
        expect_served_whole(ctx, self._lake, self._described.title)
        return self._call(parameters).arrow_schema

    def execute(
        self, ctx: Context, parameters: Sequence[Any], options: ScanOptions
    ) -> RecordReader:
        expect_served_whole(ctx, self._lake, self._described.title)
        return read_query(self._lake, ctx, self._call(parameters), options)

    def _call(self, parameters: Sequence[Any]) -> Query:
        described = self._described
        kinds = [each.type for each in self.signature.parameters]
        if isinstance(parameters, Arguments):
            scalars = [column[0] for column in parameters.arrow.columns]
        else:
            scalars = [
                pa.scalar(value, kind) for value, kind in zip(parameters, kinds, strict=True)
            ]
        with translated(described.title):
            marks = ", ".join(["?"] * len(scalars))
            # Without its schema, which is the session's: Spark does not take a qualified name here.
            text = f"SELECT * FROM {quoted(described.identifier.name)}({marks})"
            rows, arrow_schema = presented(
                described.session.sql(text, args=[literal(each) for each in scalars] or None)
            )
        return Query(described.title, rows, arrow_schema)


def _signature(described: _Described, count: int) -> FunctionSignature:
    """The signature with `count` parameters: Spark fills in the defaults of the others."""
    parameters = tuple(
        Parameter(name, arrow_type(kind)) for name, kind in described.parameters[:count]
    )
    return FunctionSignature(
        parameters, None if described.is_table else arrow_type(described.returns)
    )


def session_without_extensions(spark: SparkSession, database: str) -> SparkSession:
    """A session on the same session catalog whose parser is Spark's own."""
    from pyspark.sql import SparkSession

    jvm: Any = spark._jvm
    java_session: Any = spark._jsparkSession
    option, to_map = jvm.scala.Option, jvm.org.apache.spark.api.python.PythonUtils.toScalaMap
    made = jvm.org.apache.spark.sql.classic.SparkSession(
        java_session.sparkContext(),
        option.apply(java_session.sharedState()),
        option.empty(),
        jvm.org.apache.spark.sql.SparkSessionExtensions(),
        to_map({}),
        to_map({}),
    )
    session = SparkSession(spark.sparkContext, made)
    session.conf.set(
        "spark.sql.session.timeZone", spark.conf.get("spark.sql.session.timeZone") or "UTC"
    )
    without_substitution(session)
    session.sql(f"USE {quoted(database)}")
    return session


def _parser(session: SparkSession) -> Any:
    java_session: Any = session._jsparkSession
    return java_session.sessionState().sqlParser()


def _json(java_type: Any) -> Any:
    import json

    return json.loads(str(java_type.json()))


def _data_type(java_type: Any) -> DataType:
    from pyspark.sql.types import _parse_datatype_json_string

    return _parse_datatype_json_string(str(java_type.json()))
