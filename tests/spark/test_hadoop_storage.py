"""Places that only Hadoop knows: the contract, and a table there.

ViewFs is such a place, whose files are in a folder here.
"""

from __future__ import annotations

import pickle
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pyarrow as pa
import pytest
from tests.storage.contract import StorageContract

from sparkport import LakeSettings, Server
from sparkport.spark import LakeCatalog
from sparkport.spark.iceberg.locations import for_workers, reachable, storage_at
from sparkport.spark.iceberg.storage import MissingFile, Storage
from sparkport.spark.jvm.file_properties import _Configuration
from sparkport.spark.jvm.hadoop_storage import HadoopStorage
from sparkport.testing import DuckDBClient, ServerError

_LINK = "fs.viewfs.mounttable.tests.link./there"


@pytest.fixture(scope="module")
def mount(lake: LakeCatalog, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A folder of a ViewFs."""
    configuration = lake.spark.sparkContext._jsc.hadoopConfiguration()
    configuration.set(_LINK, f"file:{tmp_path_factory.mktemp('there')}")
    yield "viewfs://tests/there"
    configuration.unset(_LINK)


class TestHadoopStorage(StorageContract):
    impossible: ClassVar[set[str]] = {"a:b"}

    @pytest.fixture
    def storage(self, mount: str) -> Storage:
        return storage_at(mount, {})

    @pytest.fixture
    def root(self, mount: str) -> str:
        return f"{mount}/{uuid.uuid4().hex}"


def test_it_is_for_what_hadoop_knows(lake: LakeCatalog, mount: str, tmp_path: Path) -> None:
    assert isinstance(storage_at(mount, {}), HadoopStorage)
    assert reachable(f"{mount}/a", {})
    assert reachable("hdfs://host/a", {})
    assert not reachable("nobody-knows://host/a", {})
    assert not isinstance(storage_at(str(tmp_path), {}), HadoopStorage)
    assert not isinstance(storage_at("s3a://bucket/a", {}), HadoopStorage)
    assert not for_workers(f"{mount}/a")
    assert for_workers("s3a://bucket/a")
    with pytest.raises(OSError, match="Hadoop: ") as caught:
        storage_at("viewfs://nowhere/a", {}).open("viewfs://nowhere/a")
    assert not isinstance(caught.value, MissingFile)


def test_other_processes_have_none(
    lake: LakeCatalog, mount: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = pickle.dumps(storage_at(mount, {}))
    monkeypatch.setattr(HadoopStorage, "spark", None)
    with pytest.raises(OSError, match="only Spark reads viewfs"):
        pickle.loads(sent).size(f"{mount}/a")
    assert not reachable(f"{mount}/a", {})


def test_settings_of_hadoop_are_found(lake: LakeCatalog) -> None:
    java = lake.spark.sparkContext._jsc.hadoopConfiguration()
    values = {"fs.s3a.bucket.own.secret.key": "s", "fs.s3a.bucket.own.endpoint": "http://x"}
    for name, value in values.items():
        java.set(name, value)
    try:
        found = _Configuration(java)
        assert sorted(found.after("fs.s3a.bucket.")) == ["own.endpoint", "own.secret.key"]
        assert {name: found.get(name) for name in values} == values
        assert found.get("fs.s3a.bucket.own.session.token") == ""
    finally:
        for name in values:
            java.unset(name)


@pytest.mark.parametrize("in_place_bytes", [32 * 1024 * 1024, 0], ids=["here", "by Spark"])
def test_a_lake_there(lake: LakeCatalog, mount: str, in_place_bytes: int) -> None:
    """With all that changes rows, and scans in this process or, if they are large, by Spark.

    DuckDB has no way to read there by itself, and is not asked to.
    """
    name = f"there{in_place_bytes}"
    catalog = f"spark.sql.catalog.{name}"
    lake.spark.conf.set(catalog, "org.apache.iceberg.spark.SparkCatalog")
    lake.spark.conf.set(f"{catalog}.type", "hadoop")
    lake.spark.conf.set(f"{catalog}.warehouse", f"{mount}/{name}")
    lake.spark.sql(f"CREATE NAMESPACE {name}.s")
    rows = pa.table({"id": pa.array(range(1000), pa.int64()), "name": ["a", "b"] * 500})
    columns = pa.schema([pa.field("id", pa.int64(), nullable=False), rows.schema.field("name")])
    with (
        LakeCatalog(
            spark=lake.spark,
            spark_catalog=name,
            name=name,
            settings=LakeSettings(in_place_bytes=in_place_bytes, direct=True),
        ) as there,
        Server(there, "grpc://127.0.0.1:0") as server,
        DuckDBClient(server.location, name, timeout=120) as client,
    ):
        client.attach()
        client.create_table("s", "t", columns, primary_key=["id"])
        assert client.insert("s", "t", rows.cast(columns)).total == 1000
        assert client.insert("s", "t", pa.table({"id": [1000], "name": ["c"]}, columns)).total == 1
        with pytest.raises(ServerError, match="id"):
            client.insert("s", "t", pa.table({"id": [7], "name": ["c"]}, columns))
        assert client.update("s", "t", {"name": "'z'"}, where="id = 5").total == 1
        assert client.delete("s", "t", "id >= 10").total == 991
        found = client.scan("s", "t").sort_by("id")
        assert found.column("id").to_pylist() == list(range(10))
        assert found.column("name").to_pylist() == [*"ababa", "z", *"abab"]
        assert client.scan("s", "t", where="id = 5").column("name").to_pylist() == ["z"]
    by_spark = lake.spark.sql(f"SELECT count(*), max(name) FROM {name}.s.t").collect()
    assert [tuple(row) for row in by_spark] == [(10, "z")]
    lake.spark.sql(f"DROP TABLE {name}.s.t PURGE")
