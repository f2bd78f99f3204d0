"""Secrets among Spark's settings, which its event log and its pages are not to tell.

Spark hides the values of settings whose names match a pattern, but in the events of jobs only those
that the context itself has: what was set for a session alone is written to the log as it is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["HIDING", "hide_secrets"]

_NAMES = (
    "(?i)secret|password|token|access[.-]?key|account-key|shared-key|encryption-key"
    "|connection-string|credential|authorization"
)
"""Spark's own pattern, and what else options of Iceberg's catalogs and stores call secrets."""
HIDING = {"spark.redaction.regex": _NAMES}
"""Settings to start Spark with."""


def hide_secrets(session: SparkSession, settings: Mapping[str, str]) -> None:
    """Have Spark know settings of a session as its own as far as they are secrets."""
    conf = session.sparkContext._conf  # that of the JVM, while `getConf` copies it
    for key, value in settings.items():
        if re.search(_NAMES, key):
            conf.set(key, value)
