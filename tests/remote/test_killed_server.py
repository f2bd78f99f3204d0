"""A server killed at any point of a statement, with PostgreSQL and S3."""

from __future__ import annotations

import pytest
from tests.spark.test_killed_server import *  # noqa: F403


@pytest.fixture(scope="module", params=["jdbc"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)
