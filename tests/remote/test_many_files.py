"""A table with thousands of files: a query asks the store for what it needs, and for no more."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from tests.parts.faults import FaultProxy, fault_proxy
from tests.parts.s3 import S3Server
from tests.remote.places import JdbcPlace
from tests.remote.served import served

from sparkport.spark import LakeCatalog
from sparkport.testing import DuckDBClient

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

_COLUMNS = pa.schema([("id", pa.int64()), ("v", pa.string())])


@pytest.fixture(scope="module", params=["jdbc"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def counted(s3: S3Server) -> Iterator[FaultProxy]:
    with fault_proxy(s3.address) as proxy:
        yield proxy


@pytest.mark.parametrize(
    ("snapshots", "files"), [(20, 2), pytest.param(100, 40, marks=pytest.mark.long)]
)
def test_a_point_query_asks_for_no_more_objects_than_it_must(
    lake: LakeCatalog,
    place: JdbcPlace,
    counted: FaultProxy,
    tmp_path: Path,
    snapshots: int,
    files: int,
) -> None:
    """`files` is the number in each snapshot."""
    lake_name = f"many{snapshots}"
    source = place.source(lake_name)
    with LakeCatalog(source=source, name="lake") as made:
        name = f"`{made.spark_catalog}`.s"
        made.spark.sql(f"CREATE NAMESPACE {name}")
        made.spark.sql(
            f"CREATE TABLE {name}.t (id BIGINT, v STRING) USING iceberg PARTITIONED BY (id) "
            "TBLPROPERTIES ('format-version' = '3')"
        )
    with served(source, tmp_path) as client:
        for number in range(snapshots):
            ids = range(number * files, (number + 1) * files)
            client.insert("s", "t", pa.table([list(ids), [f"v{i}" for i in ids]], schema=_COLUMNS))
    assert len(list(place.folder(lake_name).rglob("data/**/*.parquet"))) == snapshots * files

    with served(place.source(lake_name, counted.endpoint()), tmp_path) as client:
        counted.forget()
        cold = _asked(client, counted, files * 2 + 3)
        warm = _asked(client, counted, files * 2 + 3)
        other = _asked(client, counted, 3)
    assert cold == {"metadata", "list", "manifest", "data"}
    assert warm <= {"data"}
    # Iceberg merges manifests when there are a hundred: then it is in the one that was read.
    assert {"data"} <= other <= {"manifest", "data"}


def _asked(client: DuckDBClient, counted: FaultProxy, key: int) -> set[str]:
    """Query one row; the kinds of the objects that were asked for, at most one of each."""
    counted.forget()
    found = client.scan("s", "t", ["id", "v"], where=f"id = {key}")
    assert found.to_pylist() == [{"id": key, "v": f"v{key}"}]
    requests = counted.requests()
    kinds = Counter(map(_kind, {each.path for each in requests}))
    assert set(kinds.values()) <= {1}, kinds
    assert "ListObjects" not in counted.operations()
    return set(kinds)


def _kind(path: str) -> str:
    name = path.rpartition("/")[2]
    if name.endswith(".metadata.json") or ".metadata." in name:
        return "metadata"
    if name.endswith(".avro"):
        return "list" if name.startswith("snap-") else "manifest"
    return "data"
