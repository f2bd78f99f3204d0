"""Makes Iceberg tables that other engines leave behind, and compares who reads what in them."""

from __future__ import annotations

import json
import re
import sqlite3
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.avro.file import AvroOutputFile
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, NestedField

from sparkport.spark import LakeCatalog
from sparkport.spark.iceberg.identifiers import Identifier
from sparkport.testing import DuckDBClient

MERGE_ON_READ = {
    f"write.{statement}.mode": "merge-on-read" for statement in ("delete", "update", "merge")
}


class OddTables:
    """Tables `id BIGINT, v STRING` of a namespace, made by Spark, and read by a client."""

    def __init__(self, lake: LakeCatalog, namespace: str, client: DuckDBClient) -> None:
        self.lake, self.namespace, self.client = lake, namespace, client

    def sql(self, text: str) -> list[Any]:
        """Run Spark's SQL; `@name` is a table of the namespace."""
        place = f"`{self.lake.spark_catalog}`.`{self.namespace}`."
        return list(self.lake.spark.sql(re.sub(r"@(\w+)", rf"{place}\1", text)).collect())

    def make(
        self,
        name: str,
        version: int,
        rows: str = "(1, 'a'), (2, 'b'), (3, 'c'), (4, NULL)",
        layout: str = "",
        **properties: str,
    ) -> None:
        every = {"format-version": str(version), **properties}
        text = ", ".join(f"'{key}' = '{value}'" for key, value in every.items())
        self.sql(
            f"CREATE TABLE @{name} (id BIGINT, v STRING) USING iceberg {layout} "
            f"TBLPROPERTIES ({text})"
        )
        if rows:
            self.sql(f"INSERT INTO @{name} VALUES {rows}")

    def attach(self) -> None:
        self.client.detach()
        self.client.attach()

    def expect_same(self, name: str, *conditions: str) -> list[tuple[Any, ...]]:
        """All rows, after a check that Spark and the client read the same, by each condition."""
        self.attach()
        assert self.client.count(self.namespace, name) == len(self.sql(f"SELECT * FROM @{name}"))
        for condition in (None, "id > 2", "id = 3", "v IS NULL", "v >= 'b'", *conditions):
            where = "" if condition is None else f"WHERE {condition}"
            assert self.rows(name, condition) == _sorted(
                self.sql(f"SELECT * FROM @{name} {where}")
            ), condition
        return self.rows(name)

    def rows(self, name: str, condition: str | None = None) -> list[tuple[Any, ...]]:
        found = self.client.scan(self.namespace, name, where=condition).to_pylist()
        return _sorted([tuple(row.values()) for row in found])

    def insert(self, name: str, *values: tuple[int, str | None]) -> int:
        ids, texts = zip(*values, strict=True)
        rows = pa.table({"id": pa.array(ids, pa.int64()), "v": pa.array(texts, pa.string())})
        return int(self.client.insert(self.namespace, name, rows).total)

    def update(self, name: str, condition: str) -> int:
        return int(self.client.update(self.namespace, name, {"v": "'new'"}, where=condition).total)

    def delete(self, name: str, condition: str) -> int:
        return int(self.client.delete(self.namespace, name, condition).total)

    def java(self, name: str) -> Any:
        """The org.apache.iceberg.Table."""
        identifier = Identifier(self.lake.spark_catalog, (self.namespace,), name)
        handle = self.lake._lake.gateway.iceberg(identifier)
        assert handle is not None
        return handle.table

    def metadata(self, name: str) -> Path:
        location = self.java(name).operations().current().metadataFileLocation()
        return Path(re.sub("^file:/+", "/", location))

    def delete_equal(self, name: str, ids: Sequence[int], kind: str = "PARQUET") -> None:
        """Commit an equality delete file on `id`, as streaming engines write them."""
        jvm: Any = self.lake.spark._jvm
        table = self.java(name)
        path = self.metadata(name).with_name(f"deletes-{uuid.uuid4()}.{kind.lower()}")
        _DELETES[kind](path, ids)
        gateway: Any = self.lake.spark.sparkContext._gateway
        equal = gateway.new_array(jvm.int, 1)
        equal[0] = 1
        file = (
            jvm.org.apache.iceberg.FileMetadata.deleteFileBuilder(table.spec())
            .ofEqualityDeletes(equal)
            .withPath(str(path))
            .withFormat(getattr(jvm.org.apache.iceberg.FileFormat, kind))
            .withFileSizeInBytes(path.stat().st_size)
            .withRecordCount(len(ids))
            .build()
        )
        table.newRowDelta().addDeletes(file).commit()

    def rewrite(self, name: str, change: Callable[[dict[str, Any]], None]) -> None:
        """Give a table metadata that a newer engine might have written."""
        path = self.metadata(name)
        metadata = json.loads(path.read_text())
        change(metadata)
        changed = path.with_name(f"00099-{uuid.uuid4()}.metadata.json")
        changed.write_text(json.dumps(metadata))
        uri = self.lake.spark.conf.get(f"spark.sql.catalog.{self.lake.spark_catalog}.uri") or ""
        with sqlite3.connect(uri.removeprefix("jdbc:sqlite:").partition("?")[0], timeout=30) as db:
            db.execute(
                "UPDATE iceberg_tables SET metadata_location = ? "
                "WHERE table_namespace = ? AND table_name = ?",
                (f"file:{changed}", self.namespace, name),
            )
        db.close()


def _sorted(rows: Sequence[Any]) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in rows), key=repr)


def _in_parquet(path: Path, ids: Sequence[int]) -> None:
    field = pa.field("id", pa.int64(), metadata={"PARQUET:field_id": "1"})
    pq.write_table(pa.table({"id": pa.array(ids, pa.int64())}, pa.schema([field])), path)


def _in_avro(path: Path, ids: Sequence[int]) -> None:
    schema = Schema(NestedField(1, "id", LongType(), required=False))
    output = PyArrowFileIO().new_output(str(path))
    with AvroOutputFile[Record](output, schema, "deleted") as file:
        file.write_block([Record(each) for each in ids])


_DELETES: dict[str, Callable[[Path, Sequence[int]], None]] = {
    "PARQUET": _in_parquet,
    "AVRO": _in_avro,
}
