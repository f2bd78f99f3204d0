"""One lake, and with it one JVM, for all tests that need Spark."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.spark.places import Folders, Place, need_every_jar

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sparkport.spark import LakeCatalog

_NUMBERS = itertools.count(1)

# For every JVM of the tests. None lives long enough for its second compiler to pay: this saves 40 %
# of the CPU.
os.environ.setdefault("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """Where the lakes are. `tests/remote` runs some of these suites in other places."""
    return Folders(tmp_path_factory.mktemp("lakes"))


@pytest.fixture(scope="session")
def warehouse(place: Place) -> Path:
    """The folder of the lake. Tests may make other lakes with other settings on it."""
    return place.folder("lake")


@pytest.fixture(scope="session")
def lake(place: Place) -> Iterator[LakeCatalog]:
    """A lake that tests share. Without Java it fails, and says how to get one."""
    from sparkport.spark import LakeCatalog, LakeSettings

    need_every_jar()
    catalog = LakeCatalog(source=place.source("lake"), settings=LakeSettings(statistics_rows=0))
    yield catalog
    catalog.close()


@pytest.fixture
def staging(lake: LakeCatalog) -> Path:
    """The folder of this machine where statements of the lake put rows aside."""
    return lake._lake.staging.root


@pytest.fixture
def spark(lake: LakeCatalog) -> SparkSession:
    """The session of the lake."""
    return lake.spark


@pytest.fixture
def namespace(lake: LakeCatalog) -> str:
    """The name of a new, empty namespace of the lake, for one test."""
    name = f"n{next(_NUMBERS)}"
    lake.spark.sql(f"CREATE NAMESPACE `{lake.spark_catalog}`.`{name}`")
    return name


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that use the lake. The first of them waits for Spark to start."""
    for item in items:
        if "lake" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)
            item.add_marker(pytest.mark.timeout(280))
