"""Bulk ingests into the lake by ADBC's driver: each mode, and rows that do not fit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from adbc_driver_manager import AdbcStatusCode, Error
from tests.spark.adbc_lake import (
    COLUMNS,
    connection,
    cursor,
    refused,
    server,
    table,
)
from tests.spark.running import run

from sparkport.catalog import Context
from sparkport.spark import LakeCatalog

__all__ = ["connection", "cursor", "run", "server", "table"]


@pytest.mark.long
def test_a_million_rows_are_ingested_in_each_mode(cursor, lake, namespace):
    ids = pa.array(range(1_000_000))
    names = pa.array([f"n{each}" for each in range(1_000_000)])
    rows = pa.table({"id": ids, "name": names})
    pieces = pa.RecordBatchReader.from_batches(rows.schema, rows.to_batches(100_000))
    once = (1_000_000, 499_999_500_000, 1_000_000, 6_888_890)
    twice = (2 * once[0], 2 * once[1], once[2], 2 * once[3])
    for mode, data, expected in (
        ("create", pieces, once),
        ("append", rows, twice),
        ("replace", rows, once),
        ("create_append", rows, twice),
    ):
        assert cursor.adbc_ingest("t", data, mode=mode, db_schema_name=namespace) == 1_000_000
        cursor.execute(
            f"SELECT count(*), sum(id), count(DISTINCT name), sum(length(name)) FROM {namespace}.t"
        )
        assert cursor.fetchone() == expected, mode


BAD_ROWS: dict[str, tuple[pa.Table, AdbcStatusCode, str]] = {
    "columns": (
        pa.table({"id": [7], "nope": ["x"]}),
        AdbcStatusCode.INVALID_ARGUMENT,
        r"t has no column nope",
    ),
    "types": (
        pa.table({"id": [[7]], "name": ["x"]}),
        AdbcStatusCode.INVALID_ARGUMENT,
        r"column id .*cannot be converted",
    ),
    "null": (
        pa.table({"id": pa.array([7, None], pa.int64()), "name": ["x", "y"]}),
        AdbcStatusCode.UNKNOWN,
        r"NOT NULL.*id",
    ),
    "key": (
        pa.table({"id": [7, 1], "name": ["x", "y"]}),
        AdbcStatusCode.UNKNOWN,
        r"Duplicate key",
    ),
    "check": (pa.table({"id": [5000]}), AdbcStatusCode.UNKNOWN, "CHECK"),
}


@pytest.mark.parametrize("mode", ["append", "create_append"])
@pytest.mark.parametrize("what", BAD_ROWS)
def test_rows_that_do_not_fit_leave_the_table_as_it_was(cursor, run, namespace, table, what, mode):
    before = run.left("t")
    rows, status, message = BAD_ROWS[what]
    with pytest.raises(Error, match=message) as raised:
        cursor.adbc_ingest("t", rows, mode=mode, db_schema_name=namespace)
    assert raised.value.status_code is status
    assert run.left("t") == before
    assert tables(run.lake, namespace) == ["t"]


@pytest.mark.parametrize("mode", ["create", "replace", "create_append"])
def test_an_ingest_that_breaks_off_leaves_no_table(cursor, run, namespace, table, mode):
    before = run.left("t")
    name = "t" if mode == "replace" else "new"
    with pytest.raises(Exception, match=r"the disk is gone|ancel"):
        cursor.adbc_ingest(name, breaking_off(), mode=mode, db_schema_name=namespace)
    assert tables(run.lake, namespace) == ["t"]
    assert run.left("t") == before


def breaking_off() -> pa.RecordBatchReader:
    """Rows that end in an error of the client."""

    def batches() -> Iterator[pa.RecordBatch]:
        for start in range(3):
            yield pa.record_batch({"id": [7 + start], "name": ["x"]})
        raise ValueError("the disk is gone")

    return pa.RecordBatchReader.from_batches(COLUMNS, batches())


def tables(lake: LakeCatalog, namespace: str) -> list[str]:
    schema: Any = lake.schema(Context(), namespace)
    return sorted(each.name for each in schema.tables(Context()))


@pytest.mark.parametrize(
    ("name", "mode", "status"),
    [
        ("t", "create", AdbcStatusCode.ALREADY_EXISTS),
        ("nope", "append", AdbcStatusCode.NOT_FOUND),
    ],
)
def test_a_mode_that_does_not_fit_changes_nothing(
    cursor, run, namespace, table, name, mode, status
):
    before = run.left("t")
    rows = pa.table({"id": [7], "name": ["x"]})
    assert (
        refused(lambda: cursor.adbc_ingest(name, rows, mode=mode, db_schema_name=namespace))
        is status
    )
    assert (run.left("t"), tables(run.lake, namespace)) == (before, ["t"])
