"""The format of data files: Parquet. Support for another format would begin here."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["DATA_FORMAT", "DATA_SUFFIX", "FIELD_ID", "wants_other_format"]

DATA_FORMAT = "PARQUET"
"""The name in manifests and in Iceberg's Java library."""
DATA_SUFFIX = ".parquet"
FIELD_ID = b"PARQUET:field_id"
"""Where Arrow keeps the field ids of Parquet's columns, in the metadata of its own fields."""


def wants_other_format(properties: Mapping[str, str]) -> bool:
    """Whether a table's properties ask for new data files that only Spark can write."""
    return properties.get("write.format.default", DATA_FORMAT).upper() != DATA_FORMAT
