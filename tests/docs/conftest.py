"""The lake that the pages are run on: its demo schema, and one JVM, for all of them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from sparkport.spark import LakeCatalog

# As for the other tests of Spark: no JVM here lives long enough for its second compiler.
os.environ.setdefault("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")


@pytest.fixture(scope="module")
def documented_lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LakeCatalog]:
    """What `make serve` serves. Only test_pages.py uses it, so that it is filled once."""
    from sparkport.spark import LakeCatalog, demo

    # A name that no other lake of this process has in Spark.
    catalog = LakeCatalog(tmp_path_factory.mktemp("documented"), spark_catalog="documented")
    demo.fill(catalog)
    yield catalog
    catalog.close()
