"""Warming up: what the first statements of a lake would wait for is done before they come.

The JVM loads and compiles what it runs for the first time, Python's workers start, DuckDB opens its
databases. So after a start the first view, the first `spark_sql`, the first UPDATE take seconds.

Strategy: run such statements on a scratch lake, in a folder of this machine and a session of its
own, which nobody else sees, and remove it. The lake itself is only asked to analyse a query that
names none of its tables. Nothing is written to it, and it need not be reachable. Between two steps
the thread waits until no client has asked for a moment (decision 0040).
"""

from __future__ import annotations

import logging
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from sparkport.catalog import (
    Context,
    CreateSchemaOptions,
    CreateTableOptions,
    DMLOptions,
    DynamicCatalog,
    DynamicSchema,
    Filter,
    Operation,
    ScanOptions,
    StagedTable,
    Table,
)
from sparkport.catalog.filters import ColumnRef, Comparison, ComparisonKind, Constant, DuckType
from sparkport.catalog.rowid import ROWID_NAME
from sparkport.errors import Cancelled
from sparkport.spark.functions.lake_functions import LakeFunctions
from sparkport.spark.jvm.relay.relations import scan_relation_batches
from sparkport.spark.jvm.session.source import ICEBERG_CATALOG
from sparkport.spark.lake.lake import Lake
from sparkport.spark.lake.settings import LakeSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Warming"]

_log = logging.getLogger(__name__)

_ROUNDS = 5
"""How often each statement is run: the JVM compiles what it has run several times."""
_QUIET_SECONDS = 0.5
"""How long nobody must have asked before the next step."""
_STOP_SECONDS = 60.0
_SCRATCH = "sparkport_warm_up"
_SCHEMA = "w"
_NUMBERS = pa.array(range(64), pa.int64())
_ROWS = pa.record_batch(
    {
        "id": _NUMBERS,
        "v": pa.array(["a", "b"] * 32, pa.string()),
        "amount": _NUMBERS.cast(pa.decimal128(21, 2)).cast(pa.decimal128(10, 2)),
        "at": _NUMBERS.cast(pa.timestamp("us")),
    }
)
_QUERIES = (
    """SELECT a.v, count(*) AS n, sum(a.id) AS total, max(b.v) AS last
    FROM {rows} AS a JOIN {rows} AS b ON a.id = b.id WHERE a.id > 3 GROUP BY a.v ORDER BY a.v""",
    """SELECT trunc(a.at, 'MONTH') AS month, b.v, count(*) AS n, sum(a.amount) AS total
    FROM {rows} AS a JOIN {rows} AS b ON b.id = a.id WHERE a.v = 'a' GROUP BY ALL""",
    """SELECT v, upper(v) AS name, cast(at AS DATE) AS day, amount * 2 AS twice,
    row_number() OVER (PARTITION BY v ORDER BY amount DESC) AS place FROM {rows}""",
    """SELECT coalesce(b.v, 'none') AS v, avg(a.amount) AS mean, min(a.at) AS first,
    sum(CASE WHEN a.id > 9 THEN 1 ELSE 0 END) AS some
    FROM {rows} AS a LEFT JOIN {rows} AS b ON b.id = a.id + 7 GROUP BY 1 HAVING count(*) > 1""",
    """SELECT DISTINCT a.v, count(DISTINCT a.amount) AS n, max(a.at) AS last FROM {rows} AS a
    WHERE a.id IN (SELECT id FROM {rows} WHERE amount BETWEEN 3 AND 30) GROUP BY a.v""",
)
"""Different ones: for each Spark plans anew, and makes and compiles other Java."""
_GENERATED = """(SELECT id, CAST(id % 7 AS STRING) AS v, CAST(id AS DECIMAL(10, 2)) AS amount,
    timestamp_micros(id) AS at FROM range(64))"""


class Warming:
    """Warms a lake up in a thread of its own, once. The other methods may be called by any thread.

    `open_scratch` opens a lake on a catalog of a session, which is closed here.
    """

    def __init__(
        self,
        lake: Lake,
        functions: LakeFunctions,
        open_scratch: Callable[[SparkSession, str, LakeSettings], Any],
    ) -> None:
        self._lake = lake
        self._functions = functions
        self._open_scratch = open_scratch
        self._ctx = Context(trace_id="warm-up")
        self._stopping = threading.Event()
        self._asked = 0.0
        self._thread = threading.Thread(target=self._run, name="sparkport-warm-up", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def notice(self) -> None:
        """A client has asked for something: let it have the machine."""
        self._asked = time.monotonic()

    def stop(self) -> None:
        """End it after the step that runs, which is waited for.

        Spark and its gateway log errors about what is cut off.
        """
        self._stopping.set()
        self._thread.join(_STOP_SECONDS)

    def wait(self, seconds: float) -> bool:
        """Wait until it is done; returns whether it is."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _run(self) -> None:
        begin = time.monotonic()
        try:
            for step in self._steps():
                step()
                self._pause()
            _log.debug("the lake is warm after %.1f s", time.monotonic() - begin)
        except Cancelled:
            pass
        except Exception:  # noqa: BLE001 - the next request reports what is wrong
            _log.debug("warming up failed", exc_info=True)

    def _pause(self) -> None:
        """Wait until no client has asked for a moment. Raises: Cancelled."""
        while not self._stopping.is_set():
            rest = self._asked + _QUIET_SECONDS - time.monotonic()
            if rest <= 0:
                return
            self._stopping.wait(rest)
        raise Cancelled("the lake is closed")

    def _steps(self) -> Iterator[Callable[[], object]]:
        yield self._first_job
        yield self._analyse
        with self._scratch() as (scratch, session):
            schema = scratch.create_schema(self._ctx, _SCHEMA, CreateSchemaOptions())
            assert isinstance(schema, DynamicSchema)
            for number in range(_ROUNDS):
                yield from self._round(schema, session, number)

    def _first_job(self) -> None:
        fields = pa.schema([pa.field("id", pa.int64())])
        rows = self._lake.spark.range(1)
        list(scan_relation_batches(self._lake.relay, self._ctx, "the first job", rows, fields))

    def _analyse(self) -> None:
        """Make the session from which those of queries are copied. It loads the catalog."""
        try:
            namespaces = self._lake.catalog.listing().namespaces
            for each in list(namespaces.values())[:1]:
                self._query(self._functions.table_functions(each.parts), "SELECT 1 AS one")
        except Cancelled:
            raise
        except Exception:  # noqa: BLE001 - a catalog that is away must not end the rest
            _log.debug("the lake's catalog cannot be warmed up", exc_info=True)

    def _round(
        self, schema: DynamicSchema, session: SparkSession, number: int
    ) -> Iterator[Callable[[], object]]:
        name, query = f"t{number}", _QUERIES[number % len(_QUERIES)]

        def table() -> Table:
            found = schema.table(self._ctx, name)
            assert found is not None
            return found

        ids = pa.array([2], pa.int64())
        one = pa.record_batch([ids, pa.array(["c"])], names=[ROWID_NAME, "v"])
        yield lambda: schema.create_table(self._ctx, name, _ROWS.schema, CreateTableOptions())
        yield lambda: self._write(table(), Operation.INSERT, _ROWS)
        yield lambda: self._scan(table(), _id_is(7))
        yield lambda: self._write(table(), Operation.UPDATE, one)
        yield lambda: self._write(table(), Operation.DELETE, one.select([ROWID_NAME]))
        functions = schema.table_functions(self._ctx)
        # Executors elsewhere cannot read the scratch folder.
        is_local = (session.sparkContext.master or "").startswith("local")
        rows = f"`{name}`" if is_local else _GENERATED
        yield lambda: self._query(functions, query.format(rows=rows))
        if self._has_views:
            path = f"`{_SCRATCH}`.`{_SCHEMA}`"
            shown = f"{path}.`{name}`" if is_local else _GENERATED
            view = f"CREATE OR REPLACE VIEW {path}.seen AS {query.format(rows=shown)}"
            yield lambda: session.sql(view)
            yield lambda: self._scan(schema.table(self._ctx, "seen"), None)

    def _write(self, table: Table, operation: Operation, rows: pa.RecordBatch) -> None:
        assert isinstance(table, StagedTable)
        write = table.stage(self._ctx, operation, DMLOptions())
        try:
            write.apply(rows)
            write.commit()
        except BaseException:
            write.abort()
            raise

    def _scan(self, table: Table | None, row_filter: Filter | None) -> None:
        if table is not None:
            list(table.scan(self._ctx, ScanOptions(filter=row_filter)))

    def _query(self, functions: Any, text: str) -> None:
        function = next(each for each in functions if each.name == "spark_sql")
        list(function.execute(self._ctx, [text], ScanOptions()))

    @property
    def _has_views(self) -> bool:
        """Whether the scratch lake is on a catalog that can keep views, as the lake's can."""
        return (self._lake.gateway.option("uri") or "").startswith("jdbc:sqlite:")

    @contextmanager
    def _scratch(self) -> Iterator[tuple[DynamicCatalog, SparkSession]]:
        with tempfile.TemporaryDirectory(prefix="sparkport-warm-up-") as folder:
            session = self._lake.spark.newSession()
            options = {"": ICEBERG_CATALOG, ".type": "hadoop"}
            if self._has_views:
                options |= {".type": "jdbc", ".jdbc.schema-version": "V1"}
                options |= {".uri": f"jdbc:sqlite:{folder}/catalog.db"}
            options |= {".warehouse": Path(folder, "tables").as_uri(), ".cache-enabled": "false"}
            for key, value in options.items():
                session.conf.set(f"spark.sql.catalog.{_SCRATCH}{key}", value)
            settings = replace(
                self._lake.settings,
                staging=str(Path(folder, "staging")),
                table_properties={},
                care=False,
            )
            scratch = self._open_scratch(session, _SCRATCH, settings)
            try:
                yield scratch, session
            finally:
                scratch.close()


def _id_is(value: int) -> Filter:
    kind = DuckType("BIGINT")
    return Filter((Comparison(ComparisonKind.EQUAL, ColumnRef("id", kind), Constant(kind, value)),))
