"""Eight writers through two servers, with PostgreSQL and S3."""

from __future__ import annotations

import pytest
from tests.spark.test_many_writers import *  # noqa: F403


@pytest.fixture(scope="module", params=["jdbc"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)
