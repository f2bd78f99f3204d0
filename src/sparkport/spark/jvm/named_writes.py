"""Have Spark run a statement whose new files bear a name that we choose.

Iceberg puts the id of Spark's query into the names of all files that the query writes. That id is
random, so nobody could tell whose they are after Spark has died before its commit. So the id is
replaced between planning and running, by reflection: Spark has no other way to it.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["run_named"]

_log = logging.getLogger(__name__)

_QUERY = "queryId"
_CONTEXT = "context"
"""Where Iceberg's writes of delete vectors have the id."""
_told: set[str] = set()
"""The kinds of plans whose files cannot be named, and of which the log tells."""


def run_named(session: SparkSession, plan: Any, name: str) -> None:
    """Run a parsed or analysed statement; `name` will be in the names of all files it writes.

    Where Spark or Iceberg keep the name elsewhere, the statement runs all the same, and its files
    have the names that Spark gives them. Raises: what Spark raises.
    """
    java: Any = session._jsparkSession
    jvm: Any = session._jvm
    sql = jvm.org.apache.spark.sql
    # Otherwise Spark would run the statement at once, as a part of its analysis.
    skip = sql.execution.CommandExecutionMode.SKIP()
    execution = java.sessionState().executePlan(plan, skip)
    _name_files(execution.executedPlan(), name)
    encoder = sql.Encoders.row(execution.analyzed().schema())
    sql.classic.Dataset(execution, encoder).collect()


def _name_files(plan: Any, name: str) -> None:
    from py4j.protocol import Py4JError

    kind = str(plan.getClass().getName())
    if kind.endswith(_WITHOUT_FILES):
        return
    try:
        write = plan.write()
        holder = write if _field(write, _QUERY) is not None else _value(write, _CONTEXT)
        field = _field(holder, _QUERY)
        if field is not None:
            field.set(holder, name)
            return
    except Py4JError:
        _log.debug("the files of %s cannot be named", kind, exc_info=True)
    if kind not in _told:
        _told.add(kind)
        _log.warning(
            "files that %s writes do not bear the id of their statement: after a kill they stay "
            "until orphan files are removed",
            kind,
        )


_WITHOUT_FILES = (".DeleteFromTableExec", ".LocalTableScanExec")
"""Plans that write no data files: whole files are dropped, or nothing is to be done."""


def _field(holder: Any, name: str) -> Any | None:
    """A field of an object, also of the classes that its class extends; None if there is none."""
    kind = None if holder is None else holder.getClass()
    while kind is not None:
        for each in kind.getDeclaredFields():
            if str(each.getName()) == name:
                each.setAccessible(True)
                return each
        kind = kind.getSuperclass()
    return None


def _value(holder: Any, name: str) -> Any | None:
    field = _field(holder, name)
    return None if field is None else field.get(holder)
