"""What any session must keep to that a lake uses, the user's own among them."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from sparkport.errors import PreconditionFailed, Unsupported

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["adopt", "hide_java_traces", "without_substitution"]


def adopt(session: SparkSession) -> SparkSession:
    """Check that a lake can use a session that the user made, and must stop. It is not changed.

    Raises: Unsupported for a Spark Connect session; PreconditionFailed for a stopped one.
    """
    if getattr(session, "_jsparkSession", None) is None:
        raise Unsupported(
            "a Spark Connect session has no JVM here and cannot be served: pass a classic "
            "SparkSession"
        )
    java_context: Any = session.sparkContext._jsc
    if java_context is None or java_context.sc().isStopped():
        raise PreconditionFailed("the Spark session has been stopped: pass one that runs")
    hide_java_traces()
    without_substitution(session)
    return session


def without_substitution(session: SparkSession) -> None:
    """Have Spark take `${env:NAME}` in a statement literally.

    Otherwise it would insert the server's environment, with its secrets, its properties and its
    settings. Raises: PreconditionFailed for a session in which that cannot be switched off.
    """
    try:
        session.conf.set(_SUBSTITUTION, "false")
        is_off = session.conf.get(_SUBSTITUTION) == "false"
    except Exception as error:  # any refusal counts
        raise PreconditionFailed(_SUBSTITUTES) from error
    if not is_off:
        raise PreconditionFailed(_SUBSTITUTES)


_SUBSTITUTION = "spark.sql.variable.substitute"
_SUBSTITUTES = (
    f"the Spark session does not let {_SUBSTITUTION} be switched off, so queries could read the "
    "server's environment: "
    "pass a session in which it is false"
)


def hide_java_traces() -> None:
    """Keep PySpark from printing Java stack traces of failed queries: we report the errors."""
    from pyspark.logger import PySparkLogger

    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL)
    logging.getLogger("py4j").setLevel(logging.WARNING)
