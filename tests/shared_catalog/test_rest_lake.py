"""A lake on a REST catalog and S3, which knows no key but those that the catalog vends."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from tests.parts.rest import rest_server
from tests.parts.rest_door import RestDoor, rest_door
from tests.parts.s3 import S3Server, s3_server
from tests.shared_catalog.rest_handles import CREDENTIAL

from sparkport.server import Server
from sparkport.spark import LakeCatalog, LakeSettings
from sparkport.spark.jvm.session.source import LakeSource
from sparkport.testing import DuckDBClient, ServerError

pytestmark = [pytest.mark.spark, pytest.mark.timeout(280)]

_ROWS = pa.table({"id": pa.array([1, 2, 3], pa.int64()), "name": ["a", "b", "c"]})


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Server]:
    with s3_server() as running:
        yield running


@pytest.fixture(scope="module")
def s3_door(s3: S3Server) -> Iterator[RestDoor]:
    options = {**s3.options()}
    with rest_server(f"s3://{s3.bucket}/lake", options) as server, rest_door(server.uri) as door:
        door.credential = CREDENTIAL
        door.vended, door.vended_for = options, f"s3://{s3.bucket}/"
        yield door


@pytest.fixture(scope="module")
def lake(s3_door: RestDoor) -> Iterator[LakeCatalog]:
    source = LakeSource("rest", uri=s3_door.uri, options={"credential": CREDENTIAL})
    # Every scan is done by Spark's workers.
    settings = LakeSettings(in_place_bytes=0)
    with LakeCatalog(source=source, spark_catalog="rest_lake", settings=settings) as catalog:
        yield catalog


@pytest.fixture(scope="module")
def address(lake: LakeCatalog) -> Iterator[str]:
    with Server(lake, "grpc://127.0.0.1:0") as server:
        yield server.location


@pytest.fixture
def client(address: str, lake: LakeCatalog, s3_door: RestDoor) -> Iterator[DuckDBClient]:
    with DuckDBClient(address, lake.name, timeout=120) as client:
        client.attach()
        if "n" not in client.schemas():
            client.create_schema("n")
        yield client
        s3_door.heal()


def test_a_table_is_made_changed_and_read(client: DuckDBClient, lake: LakeCatalog) -> None:
    client.create_table("n", "t", _ROWS.schema, primary_key=["id"])
    for begin in (0, 3):
        rows = _ROWS.set_column(0, "id", [[begin + each for each in range(3)]])
        client.insert("n", "t", rows.cast(_ROWS.schema))
    with pytest.raises(ServerError, match=r"PRIMARY KEY|Duplicate|duplicate"):
        client.insert("n", "t", _ROWS)
    client.update("n", "t", {"name": "'z'"}, where="id = 1")
    client.delete("n", "t", where="id = 2")
    found = client.scan("n", "t").sort_by("id").to_pylist()
    assert [(row["id"], row["name"]) for row in found] == [
        *((0, "a"), (1, "z"), (3, "a"), (4, "b"), (5, "c")),
    ]
    in_spark = lake.spark.sql("SELECT count(*), max(name) FROM rest_lake.n.t").collect()
    assert [tuple(row) for row in in_spark] == [(5, "z")]


def test_an_answer_that_is_lost_changes_nothing_twice(
    client: DuckDBClient, s3_door: RestDoor
) -> None:
    client.create_table_as("n", "lost", _ROWS)
    s3_door.forget()
    s3_door.fail("POST", "/tables/lost$", is_late=True)
    client.insert("n", "lost", _ROWS)
    assert s3_door.count("POST", "/tables/lost$") == 1
    assert client.count("n", "lost") == 6


def test_tables_of_a_transaction_are_committed_together(
    client: DuckDBClient, s3_door: RestDoor
) -> None:
    for name in ("one", "two"):
        client.create_table_as("n", name, _ROWS)
    client.begin()
    client.call("n", "lake_begin", {}, rows=1)
    for name in ("one", "two"):
        client.insert("n", name, _ROWS)
    s3_door.forget()
    client.call("n", "lake_commit", {}, rows=1)
    client.commit()
    assert s3_door.count("POST", "/transactions/commit") == 1
    assert [client.count("n", name) for name in ("one", "two")] == [6, 6]
