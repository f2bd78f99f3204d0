"""Google Cloud Storage, against a server that speaks its protocol."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from datetime import timedelta

import pytest
from tests.parts.gcs import GcsServer, gcs_server
from tests.storage.contract import StorageContract

from sparkport.spark.iceberg import gcs_file_system
from sparkport.spark.iceberg.object_storage import GcsStorage
from sparkport.spark.iceberg.storage import Storage
from sparkport.spark.iceberg.storage_trouble import storage_trouble

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


@pytest.mark.parametrize(
    ("scheme", "port", "words"),
    [
        ("http", "9", "cannot be reached: set gcs.service.host"),
        ("https", "", "does not talk as it is asked to: set gcs.service.host"),
    ],
)
def test_a_wrong_address(
    gcs: GcsServer, scheme: str, port: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gcs_file_system, "_RETRY", timedelta(seconds=1))
    own = gcs.endpoint.rpartition(":")[2]
    storage = GcsStorage(
        {**gcs.options(), "gcs.service.host": f"{scheme}://127.0.0.1:{port or own}"}
    )
    with pytest.raises(OSError, match=r".+") as caught:
        storage.size(f"gs://{gcs.bucket}/a")
    assert words in storage_trouble(caught.value, f"gs://{gcs.bucket}/a")


def test_a_wrong_bucket(gcs: GcsServer) -> None:
    with pytest.raises(OSError, match=r".+") as caught:
        GcsStorage(gcs.options()).write("gs://none/a", b"x")
    assert "there is no such bucket" in storage_trouble(caught.value, "gs://none/a")
