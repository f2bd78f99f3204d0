"""Files on S3 that clients read by themselves (route 4): with keys of their own, not the lake's."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.parts.faults import FaultProxy, fault_proxy
from tests.parts.s3 import S3Server
from tests.remote.direct_client import read_by_httpfs
from tests.remote.places import JdbcPlace
from tests.spark.lake_tables import sql_name

from sparkport.server import Server
from sparkport.spark import LakeCatalog, LakeSettings

pytestmark = [pytest.mark.spark, pytest.mark.timeout(280)]

_V3 = "TBLPROPERTIES ('format-version' = '3', 'write.delete.mode' = 'merge-on-read')"
_ODD = ("a b", "a/b", "a+b", "a%2Fb", "a=b", "a&b", "a#b", "ä", "a?b", "a*b", "a:b")
_FOLDER = "it's 100% a+b=ä:&c"


@pytest.fixture(scope="module", params=["jdbc"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def served(lake: LakeCatalog, place: JdbcPlace) -> Iterator[str]:
    """The address of a server that lets clients read what they can."""
    settings = LakeSettings(in_place_bytes=-1, direct=True, endpoints=2, refresh_seconds=0)
    with (
        LakeCatalog(
            source=place.source("lake"),
            name="direct",
            spark_catalog=lake.spark_catalog,
            settings=settings,
        ) as catalog,
        Server(catalog, "grpc://127.0.0.1:0") as server,
    ):
        yield server.location


@pytest.fixture
def store(s3: S3Server) -> Iterator[FaultProxy]:
    """A way to the store that only the client takes."""
    with fault_proxy(s3.address) as proxy:
        yield proxy


def test_a_client_reads_files_with_keys_of_its_own(
    lake: LakeCatalog,
    place: JdbcPlace,
    s3: S3Server,
    store: FaultProxy,
    served: str,
    namespace: str,
) -> None:
    expected = {
        "some": {*range(30)} - {3},
        "partitioned": {*range(len(_ODD))},
        "in_an_odd_folder": {1},
    }
    some, partitioned, in_folder = (sql_name(lake, namespace, each) for each in expected)
    folder = f"{place.source('lake').warehouse}/{_FOLDER}/{namespace}".replace("'", "\\'")
    values = ", ".join(f"({number}, '{each}')" for number, each in enumerate(_ODD))
    for statement in (
        f"CREATE TABLE {some} (id BIGINT, name STRING) USING iceberg {_V3}",
        *(
            f"INSERT INTO {some} SELECT id + {begin}, 'x' FROM range(0, 10, 1, 1)"
            for begin in (0, 10, 20)
        ),
        f"DELETE FROM {some} WHERE id = 3",  # the server sends the rest of that file
        f"CREATE TABLE {partitioned} (id BIGINT, name STRING) USING iceberg "
        f"PARTITIONED BY (name) {_V3}",
        f"INSERT INTO {partitioned} VALUES {values}",
        f"CREATE TABLE {in_folder} (id BIGINT) USING iceberg LOCATION '{folder}' {_V3}",
        f"INSERT INTO {in_folder} VALUES (1)",
    ):
        lake.spark.sql(statement)
    found = read_by_httpfs(served, "direct", namespace, [*expected], s3.options(store.endpoint()))
    assert {name: {row["id"] for row in rows} for name, rows in found.items()} == expected
    assert [len(rows) for rows in found.values()] == [len(each) for each in expected.values()]
    assert {row["name"] for row in found["partitioned"]} == set(_ODD)
    read = {each.path for each in store.requests() if each.operation == "GetObject"}
    assert len(read) == 2 + len(_ODD) - 1 + 1  # `name=a*b` would be a pattern


def test_a_client_without_keys_reads_no_files(
    lake: LakeCatalog, s3: S3Server, store: FaultProxy, served: str, namespace: str
) -> None:
    """What it gets from the server does not open the store."""
    name = sql_name(lake, namespace, "t")
    lake.spark.sql(f"CREATE TABLE {name} (id BIGINT) USING iceberg {_V3}")
    lake.spark.sql(f"INSERT INTO {name} VALUES (1)")
    wrong = {**s3.options(store.endpoint()), "s3.secret-access-key": "none"}
    with pytest.raises(AssertionError, match=r"403|Forbidden"):
        read_by_httpfs(served, "direct", namespace, ["t"], wrong)
    assert {each.status for each in store.requests()} == {403}
