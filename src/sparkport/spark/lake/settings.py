"""What can be chosen about a lake."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["LakeSettings"]


@dataclass(frozen=True, slots=True)
class LakeSettings:
    """How a lake is read and written. The defaults suit one machine; everything here may cost time,
    never rows.
    """

    in_place_bytes: int = 32 * 1024 * 1024
    """A scan whose plan reads at most so many bytes of files runs in the server, without a Spark
    job.
    """
    endpoints: int = 2
    """Into how many streams a scan is divided at most."""
    endpoint_bytes: int = 64 * 1024 * 1024
    """A stream reads at least so many bytes of files."""
    batch_rows: int = 131_072
    """Rows of one batch that is read from a file."""
    refresh_seconds: float = 2.0
    """How long the list of objects of a catalog that cannot tell about changes is believed."""
    transaction_idle_seconds: float = 3_600.0
    """The snapshots that a transaction reads are forgotten when nobody has used it for so long."""
    max_transactions: int = 100_000
    """How many transactions are remembered; DuckDB begins one for every statement."""
    max_open_transactions: int = 1_000
    """How many transactions may have changes that wait for a commit."""
    update_rows_in_place: int = 500_000
    """An UPDATE of at most so many rows is made in the server, without a Spark job."""
    update_bytes_in_place: int = 64 * 1024 * 1024
    """And its new values are at most so many bytes."""
    statistics: bool = True
    """Whether DuckDB's optimiser may ask for the bounds of columns."""
    direct: bool = False
    """Whether DuckDB may be told to read Parquet files by itself: for clients that can reach the
    storage.
    """
    staging: str | None = None
    """The folder for what statements write before it is the table's: it must survive a restart, and
    Spark's executors must be able to read it. None is a folder in the warehouse, where that is on
    this machine."""
    keep_files: bool = False
    """Whether DROP TABLE leaves the files where they are."""
    table_properties: Mapping[str, str] = field(default_factory=dict)
    """Iceberg properties of the tables that are created here, besides those that Sparkport
    needs.
    """
