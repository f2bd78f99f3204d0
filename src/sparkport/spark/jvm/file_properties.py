"""Settings for Arrow's file systems, taken from Spark's Hadoop configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["file_properties"]

_HADOOP: Mapping[str, str] = {
    "fs.s3a.access.key": "s3.access-key-id",
    "fs.s3a.secret.key": "s3.secret-access-key",
    "fs.s3a.session.token": "s3.session-token",
    "fs.s3a.endpoint": "s3.endpoint",
    "fs.s3a.endpoint.region": "s3.region",
}
"""Hadoop's names of settings, and PyIceberg's."""


def file_properties(spark: SparkSession) -> dict[str, str]:
    """PyIceberg's properties for the object stores in Spark's Hadoop configuration."""
    configuration = spark.sparkContext._jsc.hadoopConfiguration()
    found = {ours: configuration.get(theirs) for theirs, ours in _HADOOP.items()}
    return {name: str(value) for name, value in found.items() if value}
