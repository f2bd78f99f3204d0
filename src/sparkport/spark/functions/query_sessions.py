"""A session of its own for each query, so that what a caller does is not seen by another caller."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from sparkport.spark.jvm.session.adopted import without_substitution
from sparkport.spark.lake.lake import Lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["QuerySessions"]

_CATALOG = "spark.sql.catalog."
_BEYOND_DATA = (
    *("reflect", "java_method", "try_reflect"),  # any method of Java
    *("from_protobuf", "to_protobuf", "from_avro", "to_avro", "schema_of_avro"),  # files by path
)
"""Functions that reach beyond tables. Permission to read tables does not include them."""


class QuerySessions:
    """Makes sessions for the queries of a lake. Thread-safe.

    They are copies of a model session. It has the settings of the lake's own session, without what
    reaches beyond tables. It also keeps the catalogs that queries have loaded: loading a catalog
    takes longer than analysing a query, and each has connections.
    """

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._java_sessions: Any = lake.gateway.jvm.SparkSession
        self._lock = threading.Lock()
        self._model: SparkSession | None = None
        self._settings: Any = None
        """The settings of the lake's session when the model was made, as a map of Scala."""

    @contextmanager
    def opened(self, namespace: tuple[str, ...]) -> Iterator[SparkSession]:
        """A new session, active in this thread, in which unqualified names are in `namespace`.

        Where that is empty, all names need a schema. The session may be used afterwards, too, and
        need not be closed: Java collects it.
        """
        from pyspark.sql import SparkSession

        model = self._current_model()
        java_model: Any = model._jsparkSession
        java_session = java_model.cloneSession()
        manager = java_session.sessionState().catalogManager()
        loaded, kept = (
            _loaded_catalogs(manager),
            _loaded_catalogs(java_model.sessionState().catalogManager()),
        )
        # Parsers and new catalogs take their settings from the session that is active in the
        # thread, even if it is another one.
        self._java_sessions.setActiveSession(java_session)
        try:
            self._copy(kept, loaded)
            manager.setCurrentCatalog(self._lake.gateway.catalog)
            if namespace:
                manager.setCurrentNamespace(self._lake.gateway.strings(namespace))
            yield SparkSession(model.sparkContext, java_session)
        finally:
            self._copy(loaded, kept)
            self._java_sessions.setActiveSession(self._lake.spark._jsparkSession)

    def _copy(self, catalogs: Any | None, into: Any | None) -> None:
        if catalogs is not None and into is not None:
            with self._lock:
                into.addAll(catalogs)

    def _current_model(self) -> SparkSession:
        java_session: Any = self._lake.spark._jsparkSession
        with self._lock:
            settings = java_session.conf().getAll()
            if self._model is None or not settings.equals(self._settings):
                self._model, self._settings = self._make_model(), settings
            return self._model

    def _make_model(self) -> SparkSession:
        from pyspark.sql import SparkSession

        spark, gateway = self._lake.spark, self._lake.gateway
        java_session: Any = spark._jsparkSession
        java_model = java_session.cloneSession()
        model = SparkSession(spark.sparkContext, java_model)
        without_substitution(model)
        model.conf.set("spark.sql.runSQLOnFiles", "false")
        for key in spark.conf.getAll:
            if key.startswith(_CATALOG) and "." not in key.removeprefix(_CATALOG):
                # A cache would not notice what others commit.
                model.conf.set(f"{key}.cache-enabled", "false")
        registry = java_model.sessionState().functionRegistry()
        for name in _BEYOND_DATA:
            registry.dropFunction(
                gateway.jvm.org.apache.spark.sql.catalyst.FunctionIdentifier(name)
            )
        return model


def _loaded_catalogs(manager: Any) -> Any | None:
    """The map of loaded catalogs of a session, by reflection: Spark has no other way to it.

    None where Spark keeps them elsewhere; then every session loads its own.
    """
    from py4j.protocol import Py4JError

    try:
        field = manager.getClass().getDeclaredField("catalogs")
        field.setAccessible(True)
        return field.get(manager)
    except Py4JError:
        return None
