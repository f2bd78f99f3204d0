"""The types of a statement's markers `?`, which drivers such as JDBC's ask for in advance.

Spark has no types for markers. But it casts a text to the type of what it is compared with. So each
marker is given a text that stands nowhere else, the statement is analysed, and the casts of these
texts are looked up in the plan. A marker that is assigned to a column has the column's type.
Nothing is run, and no error is shown: a marker whose type is not found takes text.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from sparkport.spark.functions.query_sessions import QuerySessions
from sparkport.spark.jvm.result_columns import arrow_type
from sparkport.spark.scan.query_plans import QueryPlans

if TYPE_CHECKING:
    from pyspark.sql import Column

__all__ = ["MarkerTypes"]

_EVERY_FIELD = 1_000_000


class MarkerTypes:
    """Finds the types of markers. Thread-safe."""

    def __init__(self, sessions: QuerySessions, plans: QueryPlans) -> None:
        self._sessions = sessions
        self._plans = plans

    def of(
        self,
        namespace: tuple[str, ...],
        text: str,
        count: int,
        known: Mapping[int, pa.DataType] | None = None,
    ) -> list[pa.DataType]:
        """The Arrow types of a statement's markers, in order.

        `known` are the types of some, by their numbers from 0. The statement must be one that its
        caller may run.
        """
        if not count:
            return []
        from pyspark.sql import functions as sql

        found = dict(known or {})
        marks = [f"sparkport_{secrets.token_hex(8)}_{at}" for at in range(count)]
        values = [sql.lit(None if at in found else mark) for at, mark in enumerate(marks)]
        plan = self._analysed(namespace, text, values) if len(found) < count else None
        shown = (
            "" if plan is None else str(plan.treeString(False, False, _EVERY_FIELD, False, False))
        )
        return [found.get(at) or _type_in(shown, mark) for at, mark in enumerate(marks)]

    def _analysed(self, namespace: tuple[str, ...], text: str, values: list[Column]) -> Any | None:
        with self._sessions.opened(namespace) as session:
            try:
                return self._plans.analyse(session, self._plans.parse(session, text, values))
            except Exception:  # noqa: BLE001 - it is a guess, and the statement is checked later
                return None


def _type_in(plan: str, mark: str) -> pa.DataType:
    """The type that a text is cast to in a plan; text where there is no cast."""
    found = re.search(rf"cast\({mark} as ([a-z_]+(?:\([0-9, ]+\))?)\)", plan)
    if found is None:
        return pa.string()
    from pyspark.sql.types import DataType

    try:
        return arrow_type(DataType.fromDDL(found[1]))
    except Exception:  # noqa: BLE001 - a type without a name that Spark itself reads
        return pa.string()
