"""Google Cloud Storage, against a server that speaks its protocol."""

from __future__ import annotations

import subprocess
import sys
import uuid
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from tests.parts.gcs import GcsServer, gcs_server
from tests.storage.contract import CONTENT, LARGE, StorageContract

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


def test_a_large_file_is_read_from_its_beginning(gcs: GcsServer) -> None:
    """Not larger than a stream may be: see GcsStorage, and an emulator waits for what is unread."""
    storage, place = GcsStorage(gcs.options()), f"gs://{gcs.bucket}/{uuid.uuid4().hex}"
    whole = LARGE * 3
    storage.write(place, whole)
    assert storage.read(place, 0, len(whole)) == whole
    with storage.open_once(place) as source:
        assert source.read() == whole


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


_THROUGH_A_PROXY = """
import sys
from tests.parts.overheard import overheard
from sparkport.spark.iceberg.object_storage import GcsStorage
port, place = int(sys.argv[1]), sys.argv[2]
with overheard(("127.0.0.1", port)) as proxy:
    host = f"http://127.0.0.1:{proxy.port}"
    storage = GcsStorage({"gcs.service.host": host, "gcs.no-auth": "true"})
    assert storage.read(place, 0, 10) == b"0123456789"
    with storage.open_once(place) as source:
        assert source.read() == b"0123456789"
    assert proxy.said().count(b"GET ") == 2
"""


def test_others_run_while_a_file_is_read(gcs: GcsServer) -> None:
    """The proxy is a thread of the same process, so nothing is answered while that stands still.

    A process of its own can be ended when it does.
    """
    place = f"gs://{gcs.bucket}/{uuid.uuid4().hex}"
    GcsStorage(gcs.options()).write(place, CONTENT)
    subprocess.run(
        [sys.executable, "-c", _THROUGH_A_PROXY, gcs.endpoint.rpartition(":")[2], place],
        cwd=Path(__file__).parents[2],
        timeout=30,
        check=True,
    )
