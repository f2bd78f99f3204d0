"""Azure's storage, against a server that speaks its protocol."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from tests.parts.azure import ACCOUNT, HOST, AzureServer, azure_server
from tests.storage.contract import StorageContract

from sparkport.spark.iceberg.object_storage import AzureStorage
from sparkport.spark.iceberg.storage import Storage
from sparkport.spark.iceberg.storage_trouble import storage_trouble

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


class TestAzureStorageBySas(TestAzureStorage):
    """With a token such as catalogs vend, and without the account's key."""

    @pytest.fixture
    def storage(self, azure: AzureServer) -> Storage:
        return AzureStorage(azure.sas_options())


@pytest.mark.parametrize(
    ("scheme", "port", "words"),
    [
        ("http", "9", "cannot be reached: set adls.connection-string.ACCOUNT"),
        ("https", "", "does not talk as it is asked to: set adls.connection-string.ACCOUNT"),
    ],
)
def test_a_wrong_address(azure: AzureServer, scheme: str, port: str, words: str) -> None:
    own = azure.endpoint.rpartition(":")[2].partition("/")[0]
    endpoint = f"{scheme}://127.0.0.1:{port or own}/{ACCOUNT}"
    storage = AzureStorage({**azure.options(), f"adls.connection-string.{HOST}": endpoint})
    with pytest.raises(OSError, match=r".+") as caught:
        storage.size(azure.location("a"))
    assert words in storage_trouble(caught.value, azure.location("a"))


def test_a_wrong_key(azure: AzureServer) -> None:
    settings = {**azure.options(), "adls.auth.shared-key.account.key": "bm90IHRoZSBrZXk="}
    with pytest.raises(OSError, match=r".+") as caught:
        AzureStorage(settings).write(azure.location("a"), b"x")
    assert "bm90IHRoZSBrZXk=" not in str(caught.value)
    told = storage_trouble(caught.value, azure.location("a"))
    assert "set adls.auth.shared-key.account.key" in told


def test_a_wrong_container(azure: AzureServer) -> None:
    place = azure.location("a").replace(f"{azure.container}@", "none@")
    with pytest.raises(OSError, match=r".+") as caught:
        AzureStorage(azure.options()).write(place, b"x")
    assert "there is no such container" in storage_trouble(caught.value, place)
