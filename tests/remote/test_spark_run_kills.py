"""A server killed during `spark_run`, with PostgreSQL and S3."""

from __future__ import annotations

import pytest
from tests.spark.test_spark_run_kills import *  # noqa: F403


@pytest.fixture(scope="module", params=["jdbc"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)
