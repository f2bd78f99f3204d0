"""The settings of a lake."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sparkport.settings import LAKE, LAKE_CARE, LAKE_SCANS, setting

__all__ = ["LakeSettings"]

_MEGABYTE = 1024 * 1024


@dataclass(frozen=True, slots=True)
class LakeSettings:
    """How a lake is read and written.

    The defaults suit a single machine. A setting may cost time, never rows.
    """

    in_place_bytes: int = setting(
        32 * _MEGABYTE,
        LAKE_SCANS,
        "a stream that reads at most so many megabytes of files runs in the server, without a "
        "Spark job",
        "N",
        least=0,
    )
    endpoints: int = setting(2, LAKE_SCANS, "into how many streams a scan is divided at most", "N")
    endpoint_bytes: int = setting(
        16 * _MEGABYTE, LAKE_SCANS, "a stream reads at least so many megabytes of files", "N"
    )
    batch_rows: int = setting(
        131_072, LAKE_SCANS, "rows of one batch that is read from a file", "N"
    )
    refresh_seconds: float = setting(
        2.0,
        LAKE_SCANS,
        "how long to believe a list of objects or functions of which Spark cannot tell whether it "
        "has changed",
        "SECONDS",
        least=0,
    )
    transaction_idle_seconds: float = setting(
        3_600.0,
        LAKE_SCANS,
        "forget the snapshots that a transaction reads when it was not used for so long",
        "SECONDS",
    )
    max_transactions: int = setting(
        100_000,
        LAKE_SCANS,
        "how many transactions are remembered; DuckDB begins one for every statement",
        "N",
    )
    max_open_transactions: int = setting(
        1_000, LAKE_SCANS, "how many transactions may have changes that wait for a commit", "N"
    )
    update_rows_in_place: int = setting(
        500_000,
        LAKE_SCANS,
        "an UPDATE of at most so many rows is made in the server, without a Spark job",
        "N",
        least=0,
    )
    update_bytes_in_place: int = setting(
        64 * _MEGABYTE,
        LAKE_SCANS,
        "an UPDATE whose new values are at most so many megabytes is made in the server",
        "N",
        least=0,
    )
    statistics: bool = setting(
        True, LAKE_SCANS, "let DuckDB's optimiser ask for the bounds of columns"
    )
    statistics_rows: int = setting(
        5_000_000,  # below, asking takes longer than what it saves (decision 0034)
        LAKE_SCANS,
        "let it ask about tables with at least so many rows when it attaches; it asks twice for "
        "each column of every statement",
        "N",
        least=0,
    )
    warm_up: bool = setting(
        True,
        LAKE_SCANS,
        "after the start, run statements on a scratch lake in the background, so that the first "
        "ones of clients are as fast as later ones",
    )
    direct: bool = setting(
        False,
        LAKE,
        "let DuckDB read the lake's files by itself: for clients that can reach them, and see all "
        "rows",
        name="direct",
    )
    staging: str | None = setting(
        None,
        LAKE_SCANS,
        "the folder for what statements write before it is the table's: it must survive a restart, "
        "and Spark's executors must be able to read it; by default one in the warehouse",
        "DIR",
        kind=str,
        example='"/data/staging"',
    )
    keep_files: bool = setting(False, LAKE_SCANS, "let DROP TABLE leave the files where they are")
    table_properties: Mapping[str, str] = setting(
        {},
        LAKE_SCANS,
        "an Iceberg property of the tables that are created; several as for spark_conf",
        "KEY=VALUE",
        example='{ "write.parquet.compression-codec" = "zstd" }',
    )
    care: bool = setting(
        True,
        LAKE_CARE,
        "keep tables small and fast in the background: join small files, forget old versions, "
        "remove files that nobody needs; of tables that were made here, or that set_care names",
    )
    care_seconds: float = setting(
        5.0, LAKE_CARE, "how often to look which tables need care", "SECONDS"
    )
    care_keep_days: float = setting(
        7.0, LAKE_CARE, "keep the versions of a table for so many days", "DAYS", least=0
    )
    care_keep_versions: int = setting(
        100, LAKE_CARE, "keep at least so many versions of a table, however old they are", "N"
    )
    care_most_versions: int = setting(
        500,
        LAKE_CARE,
        "keep at most so many versions of a table, however young they are: each change of a table "
        "writes the list of all",
        "N",
    )
    care_small_files: int = setting(
        32, LAKE_CARE, "join small files of a table when there are so many", "N", least=2
    )
    care_file_bytes: int = setting(
        128 * _MEGABYTE, LAKE_CARE, "join files up to about so many megabytes", "N"
    )
    care_file_seconds: float = setting(
        3_600.0,
        LAKE_CARE,
        "let files of rows be read for so long after the last version that had them is forgotten",
        "SECONDS",
        least=0,
    )
