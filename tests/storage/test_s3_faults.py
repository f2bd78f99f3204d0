"""S3 that is slow, fails, cuts connections or is away: nothing is wrong, and nothing is lost."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.parts.faults import FaultProxy
from tests.parts.s3 import S3Server
from tests.storage.contract import CONTENT, LARGE

from sparkport.spark.iceberg.s3_storage import S3Storage
from sparkport.spark.iceberg.storage import MissingFile, Storage


@pytest.fixture
def storage(s3: S3Server, proxy: FaultProxy) -> Storage:
    return S3Storage(s3.options(proxy.endpoint()))


@pytest.fixture
def root(s3: S3Server) -> str:
    return f"s3://{s3.bucket}/{uuid.uuid4().hex}"


def test_some_requests_fail(storage: Storage, proxy: FaultProxy, root: str) -> None:
    proxy.fail(0.05, seed=7)
    # Arrow does not try again when the text of an error is longer than what it wants to read.
    files = {f"{root}/{number}": f"{number:04}".encode() * 500 for number in range(60)}
    with ThreadPoolExecutor(8) as users:
        list(users.map(storage.write, files, files.values()))
        assert list(users.map(lambda name: storage.read(name, 0, 9), files)) == [
            content[:9] for content in files.values()
        ]
        assert list(users.map(lambda name: _whole(storage, name), files)) == list(files.values())
    assert storage.files_below(root) == sorted(files)
    storage.delete_all(files)
    assert storage.files_below(root) == []
    failed = [request.status for request in proxy.requests() if request.status >= 500]
    assert {500, 503} == set(failed)


def _whole(storage: Storage, location: str) -> bytes:
    with storage.open(location) as source:
        content: bytes = source.read()
    return content


def test_each_request_takes_a_while(storage: Storage, proxy: FaultProxy, root: str) -> None:
    proxy.delay(0.1)
    storage.write(f"{root}/a", CONTENT)
    assert _whole(storage, f"{root}/a") == CONTENT
    storage.delete(f"{root}/a")
    assert not storage.exists(f"{root}/a")


@pytest.mark.parametrize(
    "read",
    [
        _whole,
        lambda storage, place: storage.read(place, 0, len(LARGE)),
        lambda storage, place: storage.open_once(place).read(),
        lambda storage, place: storage.open(place, len(LARGE)).read(),
    ],
    ids=["open", "read", "open_once", "open with a size"],
)
def test_a_connection_is_cut_while_a_file_is_read(
    storage: Storage, proxy: FaultProxy, root: str, read: Callable[[Storage, str], bytes]
) -> None:
    storage.write(f"{root}/a", LARGE)
    proxy.cut_next(1000, "GetObject")
    assert read(storage, f"{root}/a") == LARGE


def test_a_connection_is_cut_while_a_file_is_written(
    storage: Storage, proxy: FaultProxy, root: str, s3: S3Server
) -> None:
    proxy.cut_next(1000, "PutObject")
    storage.write(f"{root}/a", LARGE)
    proxy.cut_next(1_000_000, "UploadPart")
    with storage.create(f"{root}/b") as sink:
        for _ in range(24):
            sink.write(LARGE)
    assert _whole(storage, f"{root}/a") == LARGE
    assert _whole(storage, f"{root}/b") == LARGE * 24
    assert s3.uploads_under_way() == 0


def test_a_file_that_cannot_be_written_is_not_there(
    storage: Storage, proxy: FaultProxy, root: str
) -> None:
    proxy.fail_next(403, "AccessDenied", "PutObject")
    with pytest.raises(OSError, match="ACCESS_DENIED"):
        storage.write(f"{root}/a", CONTENT)
    assert not storage.exists(f"{root}/a")


def test_the_store_is_away_for_good(
    s3: S3Server, storage: Storage, proxy: FaultProxy, root: str
) -> None:
    hasty = S3Storage({**s3.options(proxy.endpoint()), "s3.retry.num-retries": "1"})
    storage.write(f"{root}/a", CONTENT)
    proxy.go_away()
    try:
        for act in (hasty.open, hasty.size, hasty.open_once, hasty.delete, hasty.exists):
            with pytest.raises(OSError, match="NETWORK_CONNECTION") as caught:
                act(f"{root}/a")
            assert not isinstance(caught.value, MissingFile)
        with pytest.raises(OSError, match="NETWORK_CONNECTION"):
            hasty.write(f"{root}/b", CONTENT)
        with pytest.raises(OSError, match="NETWORK_CONNECTION"):
            hasty.files_below(root)
    finally:
        proxy.come_back()
    assert storage.files_below(root) == [f"{root}/a"]
    hasty.write(f"{root}/b", CONTENT)
    assert hasty.read(f"{root}/b", 0, 10) == CONTENT


def test_the_store_comes_back(storage: Storage, proxy: FaultProxy, root: str) -> None:
    """Requests that were made while it was away succeed, without anybody asking again."""
    storage.write(f"{root}/a", CONTENT)
    proxy.go_away()
    back = threading.Timer(0.3, proxy.come_back)
    with ThreadPoolExecutor(2) as users:
        written = users.submit(storage.write, f"{root}/b", CONTENT)
        read = users.submit(storage.read, f"{root}/a", 0, 10)
        back.start()
        written.result(timeout=90)
        assert read.result(timeout=90) == CONTENT
    back.join()
    assert storage.read(f"{root}/b", 0, 10) == CONTENT
