"""An S3 server for the tests of this folder, and a proxy that makes trouble."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.parts.faults import FaultProxy, fault_proxy
from tests.parts.s3 import S3Server, s3_server


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Server]:
    with s3_server() as server:
        yield server


@pytest.fixture(scope="session")
def _proxy(s3: S3Server) -> Iterator[FaultProxy]:
    with fault_proxy(s3.address) as proxy:
        yield proxy


@pytest.fixture
def proxy(_proxy: FaultProxy) -> Iterator[FaultProxy]:
    """In front of the server, with nothing counted yet, and healed after the test."""
    _proxy.forget()
    yield _proxy
    _proxy.heal()
