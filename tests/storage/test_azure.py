"""Azure's storage, against a server that speaks its protocol."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from tests.parts.azure import AzureServer, azure_server
from tests.storage.contract import StorageContract

from sparkport.spark.iceberg.object_storage import AzureStorage
from sparkport.spark.iceberg.storage import Storage

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def azure() -> Iterator[AzureServer]:
    with azure_server() as server:
        yield server


class TestAzureStorage(StorageContract):
    replaces = True

    @pytest.fixture
    def storage(self, azure: AzureServer) -> Storage:
        return AzureStorage(azure.options())

    @pytest.fixture
    def root(self, azure: AzureServer) -> str:
        return azure.location(uuid.uuid4().hex)
