"""Google Cloud Storage, against a server that speaks its protocol."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from tests.parts.gcs import GcsServer, gcs_server
from tests.storage.contract import StorageContract

from sparkport.spark.iceberg.object_storage import GcsStorage
from sparkport.spark.iceberg.storage import Storage

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def gcs() -> Iterator[GcsServer]:
    with gcs_server() as server:
        yield server


class TestGcsStorage(StorageContract):
    replaces = True

    @pytest.fixture
    def storage(self, gcs: GcsServer) -> Storage:
        return GcsStorage(gcs.options())

    @pytest.fixture
    def root(self, gcs: GcsServer) -> str:
        return f"gs://{gcs.bucket}/{uuid.uuid4().hex}"
