"""The Spark session of an embedded lake.

A process has one JVM with one SparkContext. The first embedded lake starts both, further lakes get
a catalog in the same session, and the last lake that is released stops them.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import re
import tempfile
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparkport.errors import BadRequest, PreconditionFailed
from sparkport.spark.jvm.session.adopted import hide_java_traces, without_substitution
from sparkport.spark.jvm.session.hidden_settings import HIDING, hide_secrets
from sparkport.spark.jvm.session.jars import ICEBERG, Coordinates, lake_jars
from sparkport.spark.jvm.session.java import find_java
from sparkport.spark.jvm.session.jvm import Jvm
from sparkport.spark.jvm.session.source import ICEBERG_CATALOG, LakeSource, coordinates_of
from sparkport.spark.jvm.session.warehouse import DATABASE, Warehouse, open_warehouse
from sparkport.spark.jvm.worker_python import PYTHON, is_near, worker_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = [
    "DATABASE",
    "catalog_name",
    "embedded_session",
    "need_jars",
    "release",
]

_log = logging.getLogger(__name__)

_ICEBERG_EXTENSIONS = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
_DAEMON = "sparkport.spark.jvm.relay.daemon"
_UNSAFE = re.compile(r"[^0-9A-Za-z_]")
"""Characters that are lost in the names of settings, or need quotes in SQL."""
_LOOPBACK = "127.0.0.1"
_BATCH_ROWS = 65_536
_SLOTS_PER_CORE = 4
"""Tasks of a scan mostly wait for their client.

With one slot per core, two stalled clients would hold up all others.
"""
_SMALL_YOUNG = "-XX:MaxNewSize=256m"
"""Data that streams through the JVM is garbage at once: collect it before the heap grows."""
_KEPT_HEAP = "-XX:MaxHeapFreeRatio=100"
"""The JVM would give memory back in the midst of a large statement, and ask for it again at once:
that took a tenth of its time.
"""
_ATTEMPTS = 4
"""Attempts of a task; local mode has one by default."""
_MERGED = {
    "spark.archives": ",",
    "spark.jars": ",",
    "spark.sql.extensions": ",",
    "spark.yarn.dist.archives": ",",
    "spark.driver.extraJavaOptions": " ",
    "spark.executor.extraJavaOptions": " ",
}
"""Settings that the user, we and Spark itself add to, with the separator of their values."""


def embedded_session(
    source: LakeSource,
    spark_catalog: str,
    *,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    jars: Sequence[str | os.PathLike[str]] | None = None,
    worker_environment: str = "",
    ui: bool = False,
) -> SparkSession:
    """A session with the catalog `spark_catalog` on a lake's source.

    Some catalogs store their contents under their name: ask `catalog_name` for the name to use.
    `conf` is Spark's, and wins over what is set here. Give the session back with `release`. May be
    called from any thread.

    Raises: BadRequest, PreconditionFailed, with one sentence for the person who starts the server.
    """
    settings = source.settings(spark_catalog)
    folder = f"file://{_scratch_folder()}"
    if source.catalog == "sqlite":
        place = _made_warehouse(source, spark_catalog)
        settings, folder = _catalog_settings(spark_catalog, place), place.location
    own_folder = f"{folder}/.spark"
    if source.catalog == "spark" and source.warehouse:
        own_folder = source.warehouse if source.scheme else f"file://{source.folder.absolute()}"
    hide_java_traces()
    need_jars((*source.coordinates, *coordinates_of(conf or {})))
    wanted = _Wanted(master, dict(conf or {}), jars, worker_environment, ui, own_folder)
    return _CONTEXT.session(spark_catalog, settings, wanted)


def _made_warehouse(source: LakeSource, spark_catalog: str) -> Warehouse:
    place = open_warehouse(source.folder)
    if place.catalog_name(spark_catalog) != spark_catalog:
        stored = " and ".join(map(repr, place.stored_names))
        raise BadRequest(
            f"the warehouse {place.path} holds the Spark catalog {stored}, not {spark_catalog!r}"
        )
    place.make_catalog()
    return place


def _catalog_settings(spark_catalog: str, warehouse: Warehouse) -> dict[str, str]:
    prefix = f"spark.sql.catalog.{spark_catalog}"
    options = {f"{prefix}.{key}": value for key, value in warehouse.options.items()}
    return {prefix: ICEBERG_CATALOG, **options}


def _scratch_folder() -> Path:
    """For what Spark's own catalog would write; nothing does."""
    return Path(tempfile.gettempdir(), f"sparkport-{os.geteuid()}")


def catalog_name(source: LakeSource, name: str) -> str:
    """The name of the Spark catalog on a source: the stored one, or `name` where there is none.

    Raises: BadRequest, PreconditionFailed, as `embedded_session` does.
    """
    safe = _UNSAFE.sub("_", name) or "lake"
    return safe if source.catalog != "sqlite" else open_warehouse(source.folder).catalog_name(safe)


def need_jars(coordinates: Iterable[Coordinates]) -> None:
    """Have Spark start with these jars, too. They cannot be added later.

    Raises: BadRequest when Spark runs already, without them.
    """
    _CONTEXT.need_jars(coordinates)


def release(session: SparkSession) -> None:
    """Give back what `embedded_session` returned, once. The last release stops Spark.

    Other sessions are left alone.
    """
    _CONTEXT.release(session)


@dataclass(frozen=True, slots=True)
class _Wanted:
    """The caller's choices about Spark."""

    master: str | None
    conf: Mapping[str, str]
    jars: Sequence[str | os.PathLike[str]] | None
    worker_environment: str
    ui: bool
    folder: str
    """The warehouse of Spark's own catalog."""


class _Context:
    """The one SparkContext of this process, and the sessions on it that lakes use."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._jvm: Jvm | None = None
        self._sessions: list[SparkSession] = []
        self._used: list[SparkSession] = []
        """One entry for each lake that has not been released."""
        self._jars: tuple[Coordinates, ...] = (ICEBERG,)

    def need_jars(self, coordinates: Iterable[Coordinates]) -> None:
        with self._lock:
            wanted = tuple(dict.fromkeys((*self._jars, *coordinates)))
            if self._jvm is not None and wanted != self._jars:
                missing = ", ".join(each.artifact for each in wanted[len(self._jars) :])
                raise BadRequest(
                    f"Spark runs already, without {missing}: open the lake that needs it first"
                )
            self._jars = wanted

    def session(
        self, spark_catalog: str, settings: Mapping[str, str], wanted: _Wanted
    ) -> SparkSession:
        prefix = f"spark.sql.catalog.{spark_catalog}"
        catalog = dict(settings)
        catalog |= {
            key: value for key, value in wanted.conf.items() if f"{key}.".startswith(f"{prefix}.")
        }
        with self._lock:
            if not self._sessions or self._stopped():
                self._start(_settings(wanted, self._jars))
            elif wanted.master not in (None, self._sessions[0].sparkContext.master):
                running = self._sessions[0].sparkContext.master
                raise BadRequest(
                    f"Spark runs already, with the master {running!r}, not with {wanted.master!r}"
                )
            session = self._with_catalog(prefix, catalog)
            _set(
                session,
                {
                    key: value
                    for key, value in wanted.conf.items()
                    if key not in {*_MERGED, *catalog}
                },
            )
            hide_secrets(session, {**wanted.conf, **catalog})
            without_substitution(session)
            self._used.append(session)
            return session

    def release(self, session: SparkSession) -> None:
        with self._lock:
            if session not in self._used:
                return
            self._used.remove(session)
            if self._used or self._jvm is None:
                return
            self._jvm.stop_logging()
            if not self._stopped():
                self._sessions[0].stop()
            self._jvm.stop()
            self._jvm = None
            self._sessions = []

    def _stopped(self) -> bool:
        """Whether the context was stopped, which every user of a session can do."""
        from py4j.protocol import Py4JError

        java_context: Any = self._sessions[0].sparkContext._jsc
        try:
            return java_context is None or bool(java_context.sc().isStopped())
        except Py4JError as error:
            raise PreconditionFailed(
                "the JVM of Spark has ended unexpectedly: start the server again"
            ) from error

    def _start(self, settings: Mapping[str, str]) -> None:
        from py4j.protocol import Py4JJavaError
        from pyspark import SparkConf, SparkContext
        from pyspark.sql import SparkSession

        if SparkContext._active_spark_context is not None:
            self._sessions = [_with_iceberg(SparkSession.builder.getOrCreate())]
            return
        conf = SparkConf().setAll(list(settings.items()))
        if SparkContext._gateway is None:
            local = (
                {"SPARK_LOCAL_IP": _LOOPBACK}
                if settings.get("spark.driver.host") == _LOOPBACK
                else {}
            )
            self._jvm = Jvm(conf, local)
        try:
            context = SparkContext(
                conf=conf, gateway=self._jvm.gateway if self._jvm is not None else None
            )
        except Py4JJavaError as error:
            if self._jvm is not None:
                self._jvm.stop()
                self._jvm = None
            said = str(error.java_exception.getMessage()).partition("\n")[0]
            raise PreconditionFailed(
                f"Spark does not start with master {settings['spark.master']!r}: {said}"
            ) from error
        if PYTHON in settings:
            context.pythonExec = settings[PYTHON]  # PySpark itself looks at PYSPARK_PYTHON only
        accumulators: Any = context._accumulatorServer
        # When the JVM stops, its connection to this process ends; PySpark would print the stack
        # trace.
        accumulators.handle_error = lambda *_: _log.debug(
            "the connection of Spark's accumulators has ended", exc_info=True
        )
        self._sessions = [SparkSession.builder.getOrCreate()]

    def _with_catalog(self, prefix: str, catalog: Mapping[str, str]) -> SparkSession:
        """A session whose catalog of that name is this one.

        Catalogs of the same name need a session each: two warehouses that were both made as `lake`,
        for instance.
        """
        for session in self._sessions:
            has = {
                key: value
                for key, value in session.conf.getAll.items()
                if f"{key}.".startswith(f"{prefix}.")
            }
            if not has:
                _set(session, catalog)
            if has in ({}, catalog):
                return session
        session = self._sessions[0].newSession()
        for key in session.conf.getAll.keys() - catalog.keys():
            if key.startswith(f"{prefix}."):
                session.conf.unset(key)  # of another catalog: the context knows it
        self._sessions.append(session)
        _set(session, catalog)
        return session


_CONTEXT = _Context()


def _set(session: SparkSession, settings: Mapping[str, str]) -> None:
    from pyspark.errors import PySparkException

    for key, value in settings.items():
        if session.conf.get(key, None) == value:
            continue
        try:
            session.conf.set(key, value)
        except PySparkException as error:
            if session.sparkContext.getConf().get(key) == value:
                continue
            raise BadRequest(
                f"{key} cannot be set once Spark has started: set it for the first lake"
            ) from error


def _with_iceberg(session: SparkSession) -> SparkSession:
    jvm: Any = session._jvm
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    if loader.getResource(ICEBERG_CATALOG.replace(".", "/") + ".class") is None:
        raise PreconditionFailed(
            "this process has a Spark session without Iceberg: stop it first, or pass it on with "
            "spark= and spark_catalog="
        )
    return session


def _settings(wanted: _Wanted, coordinates: Sequence[Coordinates]) -> dict[str, str]:
    """All settings that Spark needs when it starts."""
    find_java()
    cores = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    master = (
        wanted.master
        or wanted.conf.get("spark.master")
        or f"local[{_SLOTS_PER_CORE * cores},{_ATTEMPTS}]"
    )
    log_settings = Path(__file__).with_name("log4j2.properties")
    settings = {
        "spark.master": master,
        "spark.app.name": "sparkport",
        "spark.jars": ",".join(map(str, lake_jars(wanted.jars, coordinates))),
        "spark.sql.extensions": _ICEBERG_EXTENSIONS,
        "spark.driver.extraJavaOptions": f'"-Dlog4j2.configurationFile={log_settings}" '
        f"{_SMALL_YOUNG} {_KEPT_HEAP}",
        "spark.driver.memory": f"{_driver_megabytes()}m",
        "spark.ui.enabled": str(wanted.ui).lower(),
        "spark.ui.showConsoleProgress": "false",
        "spark.scheduler.mode": "FAIR",
        "spark.sql.session.timeZone": "UTC",
        # Hive's would leave a metastore_db in the current folder.
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.warehouse.dir": wanted.folder,
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.execution.arrow.maxRecordsPerBatch": str(_BATCH_ROWS),
        **HIDING,
    }
    if importlib.util.find_spec(_DAEMON) is not None:
        settings["spark.python.daemon.module"] = _DAEMON
    settings |= worker_settings(master, wanted.worker_environment)
    if is_near(master):
        settings["spark.driver.host"] = settings["spark.driver.bindAddress"] = _LOOPBACK
    if master.startswith("local"):
        settings["spark.default.parallelism"] = settings["spark.sql.shuffle.partitions"] = str(
            cores
        )
    for key, value in wanted.conf.items():
        separator = _MERGED.get(key) if key in settings else None
        settings[key] = value if separator is None else f"{settings[key]}{separator}{value}"
    return settings


def _driver_megabytes() -> int:
    """A quarter of the memory, as in Java, within limits: most work is done outside of the JVM."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 1024**2
    return max(1024, min(memory // 4, 4096))
