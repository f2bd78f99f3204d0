"""A session of its own for each query, so that nothing that one caller does is met by another."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from sparkport.spark.lake import Lake
from sparkport.spark.session.embedded import without_substitution

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["QuerySessions"]

_BEYOND_DATA = (
    *("reflect", "java_method", "try_reflect"),  # any method of Java
    *("from_protobuf", "to_protobuf", "from_avro", "to_avro", "schema_of_avro"),  # files by path
)
"""Functions that reach past the tables: not for those who were let in to read these."""


class QuerySessions:
    """Makes sessions for the queries of one lake. Thread-safe."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._lock = threading.Lock()
        self._model: SparkSession | None = None

    def open(self, namespace: tuple[str, ...]) -> SparkSession:
        """A new session, in which names without a schema are of that one. Nobody need close it: Java collects it."""
        from pyspark.sql import SparkSession

        model = self._made_model()
        catalog = self._lake.gateway.catalog
        java_model: Any = model._jsparkSession
        java_session = java_model.cloneSession()
        manager = java_session.sessionState().catalogManager()
        with self.active(java_model):
            _share(java_model.sessionState().catalogManager(), manager, catalog)
        with self.active(java_session):
            manager.setCurrentCatalog(catalog)
            manager.setCurrentNamespace(self._lake.gateway.strings(namespace))
        return SparkSession(model.sparkContext, java_session)

    @contextmanager
    def active(self, java_session: Any) -> Iterator[None]:
        """Parsers and new catalogs take their settings from the session that is active in the thread, whoever's it is."""
        sessions: Any = self._lake.gateway.jvm.SparkSession
        sessions.setActiveSession(java_session)
        try:
            yield
        finally:
            sessions.setActiveSession(self._lake.spark._jsparkSession)

    def _made_model(self) -> SparkSession:
        with self._lock:
            if self._model is None:
                self._model = self._make_model()
            return self._model

    def _make_model(self) -> SparkSession:
        """A session with the settings of the lake's, less what reaches past tables."""
        from pyspark.sql import SparkSession

        spark, gateway = self._lake.spark, self._lake.gateway
        java_session: Any = spark._jsparkSession
        model = SparkSession(spark.sparkContext, java_session.cloneSession())
        without_substitution(model)
        model.conf.set("spark.sql.runSQLOnFiles", "false")
        # It has catalogs of its own, which do not hear of what others commit.
        model.conf.set(f"spark.sql.catalog.{gateway.catalog}.cache-enabled", "false")
        java_model: Any = model._jsparkSession
        registry = java_model.sessionState().functionRegistry()
        for name in _BEYOND_DATA:
            registry.dropFunction(gateway.jvm.org.apache.spark.sql.catalyst.FunctionIdentifier(name))
        return model


def _share(model: Any, manager: Any, catalog: str) -> None:
    """Let a new session use the catalog that its model has loaded, with its connections: to load it takes longer than to
    analyse a query. Where Spark keeps its catalogs elsewhere, the session loads its own.
    """
    from py4j.protocol import Py4JError

    loaded = model.catalog(catalog)
    try:
        field = manager.getClass().getDeclaredField("catalogs")
        field.setAccessible(True)
        field.get(manager).put(catalog, loaded)
    except Py4JError:
        return
