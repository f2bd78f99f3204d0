"""Tables of the lake for tests of DDL: make them, fill them, read them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.table import StaticTable
from pyiceberg.utils.concurrent import ExecutorFactory
from tests.spark.places import path_of

from sparkport.catalog import (
    Context,
    CreateTableOptions,
    DropTableOptions,
    ScanOptions,
)
from sparkport.spark import LakeCatalog

CTX = Context()
COLUMNS = pa.schema([("id", pa.int64()), ("v", pa.int32()), ("name", pa.string())])


def create(
    lake: LakeCatalog, namespace: str, name: str, columns: pa.Schema = COLUMNS, **options: Any
) -> Any:
    schema: Any = lake.schema(CTX, namespace)
    return schema.create_table(CTX, name, columns, CreateTableOptions(**options))


def find(lake: LakeCatalog, namespace: str, name: str) -> Any:
    schema = lake.schema(CTX, namespace)
    assert schema is not None
    return schema.table(CTX, name)


def drop(lake: LakeCatalog, namespace: str, name: str, **options: Any) -> None:
    schema: Any = lake.schema(CTX, namespace)
    schema.drop_table(CTX, name, DropTableOptions(**options))


def rows(table: Any) -> list[dict[str, Any]]:
    """The rows as the lake reads them, in the order of the row ids."""
    batches = list(table.scan(CTX, ScanOptions()))
    found = [row for batch in batches for row in batch.to_pylist()]
    return sorted(found, key=lambda row: row["rowid"])


def values(table: Any, *names: str) -> list[Any]:
    return [
        tuple(row[name] for name in names) if len(names) > 1 else row[names[0]]
        for row in rows(table)
    ]


def version(table: Any) -> int:
    """The number of commits before the present one, which begins the name of its metadata file."""
    return int(table.state.metadata_location.rpartition("/")[2].partition("-")[0])


def sql_name(lake: LakeCatalog, namespace: str, name: str) -> str:
    return f"`{lake.spark_catalog}`.`{namespace}`.`{name}`"


def in_spark(
    lake: LakeCatalog, namespace: str, name: str, columns: str = "*"
) -> list[tuple[Any, ...]]:
    found = lake.spark.sql(
        f"SELECT {columns} FROM {sql_name(lake, namespace, name)} ORDER BY _row_id"
    ).collect()
    return [tuple(row) for row in found]


def in_pyiceberg(table: Any) -> pa.Table:
    """All rows as PyIceberg reads them, in no particular order and without row ids."""
    try:
        return StaticTable.from_metadata(table.state.metadata_location).scan().to_arrow()
    finally:
        ExecutorFactory.get_or_create().shutdown()  # else it would keep its threads for ever
        ExecutorFactory._instance = None


def insert(lake: LakeCatalog, namespace: str, name: str, text: str) -> None:
    lake.spark.sql(f"INSERT INTO {sql_name(lake, namespace, name)} VALUES {text}")


def folder(table: Any) -> Path:
    return path_of(table.state.metadata.location)


def fill(lake: LakeCatalog, namespace: str) -> Callable[[], Any]:
    """Make table `t`: three rows in two files, and a fourth that is deleted.

    The result, when called, gives the table as it is.
    """
    create(lake, namespace, "t")
    insert(lake, namespace, "t", "(1, 10, 'a'), (2, 20, 'b'), (9, 90, 'x')")
    insert(lake, namespace, "t", "(3, NULL, NULL)")
    lake.spark.sql(f"DELETE FROM {sql_name(lake, namespace, 't')} WHERE id = 9")
    return lambda: find(lake, namespace, "t")


def changed_once(table: Callable[[], Any], change: Callable[[Any], None]) -> Any:
    """The table after a change that must be one commit."""
    before = table()
    change(before)
    after = table()
    assert version(after) == version(before) + 1, "one change, one metadata file"
    return after


def unchanged(
    table: Callable[[], Any], error: type[Exception], match: str, change: Callable[[Any], None]
) -> None:
    before = table()
    stored = sorted(folder(before).rglob("*"))
    with pytest.raises(error, match=match):
        change(before)
    assert version(table()) == version(before)
    assert sorted(folder(before).rglob("*")) == stored, "a refused change leaves no file"


def field(name: str, kind: pa.DataType, default: str = "", nullable: bool = True) -> pa.Schema:
    return pa.schema([pa.field(name, kind, nullable, {"default": default} if default else None)])


def data_files(table: Any) -> set[str]:
    return {path.name for path in folder(table).rglob("*.parquet")}
