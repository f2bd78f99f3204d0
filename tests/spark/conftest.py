"""One lake, and with it one JVM, for all tests that need Spark."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sparkport.spark import LakeCatalog

_NUMBERS = itertools.count(1)

# For every JVM of the tests. None lives long enough for its second compiler to pay: this saves 40 %
# of the CPU.
os.environ.setdefault("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")


@pytest.fixture(scope="session")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the lake. Tests may make other lakes with other settings on it."""
    return tmp_path_factory.mktemp("lake")


@pytest.fixture(scope="session")
def lake(warehouse: Path) -> Iterator[LakeCatalog]:
    """A lake in its own folder. Without Java it fails, and says how to get one."""
    from sparkport.spark import LakeCatalog
    from sparkport.spark.jvm.session.embedded import need_jars
    from sparkport.spark.jvm.session.jars import AWS, SQLITE

    need_jars([SQLITE, AWS])  # other tests of this process may have a lake in a store
    catalog = LakeCatalog(warehouse)
    yield catalog
    catalog.close()


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
