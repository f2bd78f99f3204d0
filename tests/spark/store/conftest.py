"""One lake in a real object store, for all tests of this folder."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from typing import Any

import pytest
from tests.parts.s3 import S3Server, s3_server
from tests.spark.lake_tables import CTX, create, find
from tests.spark.store.statements import Server, add

from sparkport.catalog import CreateSchemaOptions
from sparkport.spark import LakeCatalog
from sparkport.spark.iceberg.locations import storage_at
from sparkport.spark.jvm.session.embedded import need_jars
from sparkport.spark.jvm.session.jars import AWS, SQLITE
from sparkport.spark.jvm.session.source import LakeSource


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Server]:
    with s3_server() as server:
        yield server


@pytest.fixture(scope="session")
def source(s3: S3Server, tmp_path_factory: pytest.TempPathFactory) -> LakeSource:
    database = tmp_path_factory.mktemp("catalog") / "catalog.db"
    return LakeSource("jdbc", f"s3://{s3.bucket}/w", f"jdbc:sqlite:{database}", s3.options())


@pytest.fixture(scope="session")
def store(source: LakeSource) -> Iterator[LakeCatalog]:
    """The lake. When its server has ended, it has left nothing."""
    need_jars([SQLITE, AWS])
    with LakeCatalog(source=source, name="store") as catalog:
        assert catalog._lake.staging.store is not None
        yield catalog
    left = storage_at(source.warehouse, source.options).files_below(source.warehouse)
    assert [each for each in left if "/.sparkport/" in each] == []


@pytest.fixture
def namespace(store: LakeCatalog) -> str:
    name = f"n{secrets.token_hex(4)}"
    store.create_schema(CTX, name, CreateSchemaOptions())
    return name


@pytest.fixture
def table(store: LakeCatalog, namespace: str) -> Any:
    """Table `t`, with one row."""
    create(store, namespace, "t")
    add(store, namespace, 1)
    return find(store, namespace, "t")


@pytest.fixture
def server(store: LakeCatalog) -> Server:
    return Server(store)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "store" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)
            item.add_marker(pytest.mark.timeout(280))
