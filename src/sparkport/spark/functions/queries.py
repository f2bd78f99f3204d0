"""Queries in Spark SQL that clients send: they read, and nothing else.

Strategy: `SparkSession.sql` runs commands at once, so a text is parsed first, and only what is a query goes on. It is
analysed in a session of its own, where unqualified names mean tables of the schema that was asked, and where what reaches
past the tables (files by path, Java's methods, scripts) is not to be had.
"""

from __future__ import annotations

import re
import threading
import time
from collections import OrderedDict
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from sparkport.catalog import Context, ScanOptions
from sparkport.catalog.types import refuse_unsupported
from sparkport.errors import BadRequest
from sparkport.spark.errors import translated
from sparkport.spark.functions.result_columns import presented
from sparkport.spark.identifiers import quoted
from sparkport.spark.lake import Lake
from sparkport.spark.relay.relations import scan_relation_batches
from sparkport.spark.spark_filters import spark_condition

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

__all__ = ["Queries", "Query", "read_query"]

_MOST_SESSIONS = 16
_MOST_QUERIES = 256
_REMEMBERED_SECONDS = 60.0


@dataclass(frozen=True, slots=True, eq=False)
class Query:
    """A query that Spark has understood; nothing of it has run."""

    title: str
    """How messages name it."""
    rows: DataFrame
    arrow_schema: pa.Schema


class Queries:
    """Understands the queries of one lake. Thread-safe."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._lock = threading.Lock()
        self._sessions: OrderedDict[tuple[str, ...], SparkSession] = OrderedDict()
        self._known: OrderedDict[Hashable, tuple[float, Query]] = OrderedDict()

    def understand(
        self,
        ctx: Context,
        namespace: tuple[str, ...],
        title: str,
        text: str,
        arguments: Mapping[str, Column] | list[Column],
        key: Hashable,
    ) -> Query:
        """Analyse a query, in which unqualified names are of `namespace`. `key` stands for its arguments.

        Raises: BadRequest for what is no query; NotFound and the like for what Spark does not find.
        """
        # The steps of one scan share a trace id: what the plan was made for is what is read.
        remembered = (ctx.trace_id, ctx.principal, namespace, text, key)
        known = self._recall(remembered) if ctx.trace_id else None
        if known is None:
            session = self.session(namespace)
            with translated(title):
                known = _understood(session, title, text, arguments)
            self._remember(remembered, known)
        return known

    def parsed(self, namespace: tuple[str, ...], text: str) -> Any | None:
        """What Spark's parser makes of a query; None when it is none."""
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        session_state: Any = self.session(namespace)._jsparkSession.sessionState()
        try:
            return session_state.sqlParser().parsePlan(text)
        except (Py4JError, PySparkException):
            return None

    def session(self, namespace: tuple[str, ...]) -> SparkSession:
        """The session for queries that are asked in a schema."""
        with self._lock:
            session = self._sessions.get(namespace)
            if session is not None:
                self._sessions.move_to_end(namespace)
                return session
        with translated(f"schema {'.'.join(namespace)}"):
            made = _reading_session(self._lake, namespace)
        with self._lock:
            session = self._sessions.setdefault(namespace, made)
            while len(self._sessions) > _MOST_SESSIONS:
                self._sessions.popitem(last=False)
        return session

    def _recall(self, key: Hashable) -> Query | None:
        with self._lock:
            found = self._known.get(key)
        return found[1] if found is not None and found[0] > time.monotonic() - _REMEMBERED_SECONDS else None

    def _remember(self, key: Hashable, query: Query) -> None:
        now = time.monotonic()
        with self._lock:
            self._known[key] = (now, query)
            while self._known:
                since, _ = next(iter(self._known.values()))
                if len(self._known) <= _MOST_QUERIES and since > now - _REMEMBERED_SECONDS:
                    return
                self._known.popitem(last=False)


def read_query(lake: Lake, ctx: Context, query: Query, options: ScanOptions) -> Iterator[pa.RecordBatch]:
    """Run a query on Spark; what comes back streams. Raises: what Spark's errors are translated to."""
    names = query.arrow_schema.names if options.columns is None else list(options.columns)
    names = names or query.arrow_schema.names[:1]
    with translated(query.title):
        rows = query.rows
        condition = spark_condition(options.filter, rows.schema)
        if condition is not None:
            rows = rows.where(condition)
        rows = rows.select(*map(quoted, names))
    arrow_schema = pa.schema([query.arrow_schema.field(name) for name in names])
    yield from scan_relation_batches(lake.relay, ctx, query.title, rows, arrow_schema)


def _reading_session(lake: Lake, namespace: tuple[str, ...]) -> SparkSession:
    """A session with the same settings, whose current schema is nobody else's business."""
    from pyspark.sql import SparkSession

    spark, catalog = lake.spark, lake.gateway.catalog
    java_session: Any = spark._jsparkSession
    session = SparkSession(spark.sparkContext, java_session.cloneSession())
    session.conf.set("spark.sql.runSQLOnFiles", "false")
    # It has catalogs of its own, which do not hear of what others commit.
    session.conf.set(f"spark.sql.catalog.{catalog}.cache-enabled", "false")
    session_state: Any = session._jsparkSession.sessionState()
    jvm: Any = session._jvm
    for name in _BEYOND_DATA:
        session_state.functionRegistry().dropFunction(jvm.org.apache.spark.sql.catalyst.FunctionIdentifier(name))
    session.sql(f"USE {'.'.join(map(quoted, (catalog, *namespace)))}")
    return session


_BEYOND_DATA = ("reflect", "java_method", "try_reflect")
"""Functions that call any method of Java: not for those who were let in to read tables."""


def _understood(session: SparkSession, title: str, text: str, arguments: Mapping[str, Column] | list[Column]) -> Query:
    _refuse_commands(session, title, text)
    passed: Any = arguments if isinstance(arguments, list) else dict(arguments)
    rows, arrow_schema = presented(session.sql(text, args=passed or None))
    refuse_unsupported(arrow_schema, title)
    return Query(title, rows, arrow_schema)


def _refuse_commands(session: SparkSession, title: str, text: str) -> None:
    """Raises: BadRequest for all but queries, before Spark would run it."""
    session_state: Any = session._jsparkSession.sessionState()
    plan = session_state.sqlParser().parsePlan(text)
    java_class: Any = session._jvm.java.lang.Class  # type: ignore[union-attr]  # there is a JVM
    command = java_class.forName(_COMMAND, True, plan.getClass().getClassLoader())
    nodes = {found[1] for found in _NODE.finditer(str(plan.toString()))} | {str(plan.getClass().getSimpleName())}
    if command.isInstance(plan) or any(_REFUSED.match(node) for node in nodes):
        kind = next((word.upper() for word in re.findall(r"[A-Za-z]+", _without_comments(text))), "this")
        raise BadRequest(
            f"{title} reads only, and this is {'no query' if kind in _BEGIN_QUERIES else f'a {kind} statement'}: "
            "write a SELECT that runs no script"
        )


_COMMAND = "org.apache.spark.sql.catalyst.plans.logical.Command"
_NODE = re.compile(r"(?m)^[\s:+|-]*'*([A-Za-z]+)")
"""What a line of a plan begins with. A text in the query may look like one, which at worst refuses that query."""
_REFUSED = re.compile(
    r"ScriptTransformation|InsertInto|Compound|SingleStatement|Call$|\w*ExecuteImmediate|(Create|Drop|Alter|Replace|Delete"
    r"|Update|Merge|Truncate|Set|Cache|Add)[A-Z]\w*(Command|Statement|Table|View|Function|AsSelect|Branch|Tag)$"
)
"""Nodes of statements; those at the top of a plan are commands to Spark as well."""
_BEGIN_QUERIES = frozenset({"SELECT", "WITH", "FROM", "TABLE", "VALUES", "MAP", "REDUCE"})


def _without_comments(text: str) -> str:
    return re.sub(r"--[^\n]*|/\*.*?\*/", " ", text, flags=re.DOTALL)
