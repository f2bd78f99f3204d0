"""Settings for Arrow's file systems, taken from Spark's Hadoop configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sparkport.spark.jvm.gateway import Gateway

__all__ = ["file_properties"]

_HADOOP: Mapping[str, str] = {
    "fs.s3a.access.key": "s3.access-key-id",
    "fs.s3a.secret.key": "s3.secret-access-key",
    "fs.s3a.session.token": "s3.session-token",
    "fs.s3a.endpoint": "s3.endpoint",
    "fs.s3a.endpoint.region": "s3.region",
}
"""Hadoop's names of settings, and PyIceberg's."""


_OPTIONS = ("s3.", "client.", "gcs.", "adls.")
"""What options of a catalog begin with that are for its files."""


def file_properties(gateway: Gateway) -> dict[str, str]:
    """Properties for object stores: the catalog's own, and those of Spark's Hadoop configuration.

    The catalog's win.
    """
    configuration = gateway.spark.sparkContext._jsc.hadoopConfiguration()
    found = {ours: configuration.get(theirs) for theirs, ours in _HADOOP.items()}
    options = {name: value for name, value in gateway.options.items() if name.startswith(_OPTIONS)}
    return {**{name: str(value) for name, value in found.items() if value}, **options}
