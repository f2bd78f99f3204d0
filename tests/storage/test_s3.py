"""S3, against a real server: the contract, and what it is asked for."""

from __future__ import annotations

import pickle
import subprocess
import sys
import uuid
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.parts.faults import FaultProxy
from tests.parts.s3 import S3Server
from tests.spark.tables import NUMBERED, Table, data_entry, numbered, with_field_ids
from tests.storage.contract import CONTENT, LARGE, StorageContract

from sparkport.spark.iceberg import file_reader
from sparkport.spark.iceberg.deletion import delete_files
from sparkport.spark.iceberg.locations import open_parquet, storage_at
from sparkport.spark.iceberg.plan import plan_scan
from sparkport.spark.iceberg.read import read_parts, read_request
from sparkport.spark.iceberg.s3_storage import S3Storage
from sparkport.spark.iceberg.storage import Storage


class TestS3Storage(StorageContract):
    replaces = True

    @pytest.fixture
    def storage(self, s3: S3Server) -> Storage:
        return S3Storage(s3.options())

    @pytest.fixture
    def root(self, s3: S3Server) -> str:
        return f"s3://{s3.bucket}/{uuid.uuid4().hex}"


class TestS3StorageByArrowAlone(TestS3Storage):
    """As it is where only Arrow knows the credentials."""

    @pytest.fixture
    def storage(self, s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> Storage:
        monkeypatch.setattr(S3Storage, "_requests", lambda *_: None)
        return S3Storage(s3.options())


@pytest.fixture
def counted(s3: S3Server, proxy: FaultProxy) -> Storage:
    return S3Storage(s3.options(proxy.endpoint()))


@pytest.fixture
def root(s3: S3Server) -> str:
    return f"s3a://{s3.bucket}/{uuid.uuid4().hex}"


# ---------------------------------------------------------------------------------------- requests


def test_a_small_file_is_written_by_one_request(
    counted: Storage, proxy: FaultProxy, root: str
) -> None:
    counted.write(f"{root}/a/b", CONTENT)
    counted.write(f"{root}/a/c", b"")
    counted.write(f"{root}/a/d", LARGE)
    assert proxy.operations() == ["PutObject"] * 3, proxy.requests()


def test_a_large_file_is_written_in_parts(
    counted: Storage, proxy: FaultProxy, root: str, s3: S3Server
) -> None:
    with counted.create(f"{root}/a") as sink:
        for _ in range(24):
            sink.write(LARGE)
    done = proxy.operations()
    assert (done[0], done[-1]) == ("CreateUpload", "CompleteUpload")
    assert set(done[1:-1]) == {"UploadPart"}
    assert counted.size(f"{root}/a") == 24 * len(LARGE)
    assert s3.uploads_under_way() == 0


def test_a_file_of_known_size_is_read_by_one_request(
    counted: Storage, proxy: FaultProxy, root: str
) -> None:
    counted.write(f"{root}/a", CONTENT)
    proxy.forget()
    with counted.open(f"{root}/a", len(CONTENT)) as source:
        assert source.read() == CONTENT
        assert source.read_at(2, 3) == b"34"
    with counted.open_once(f"{root}/a") as source:
        assert source.read() == CONTENT
    assert counted.read(f"{root}/a", 2, 3) == b"234"
    assert proxy.operations() == ["GetObject"] * 3
    proxy.forget()
    with counted.open(f"{root}/a") as source:
        assert source.read() == CONTENT
    assert proxy.operations() == ["HeadObject", "GetObject"]


def test_a_large_file_is_not_read_whole_at_first(
    counted: Storage, proxy: FaultProxy, root: str
) -> None:
    with counted.create(f"{root}/a") as sink:
        for _ in range(9):
            sink.write(LARGE)
    proxy.forget()
    with counted.open_once(f"{root}/a") as source:
        assert source.size() == 9 * len(LARGE)
    with counted.open(f"{root}/a", 9 * len(LARGE)) as source:
        assert source.read_at(3, len(LARGE)) == LARGE[:3]
    assert proxy.operations() == ["GetObject", "HeadObject", "HeadObject", "GetObject"]


def test_files_are_removed_by_one_request_and_leave_nothing(
    counted: Storage, proxy: FaultProxy, root: str, s3: S3Server
) -> None:
    for number in range(5):
        counted.write(f"{root}/x/y/{number}", CONTENT)
    proxy.forget()
    counted.delete(f"{root}/x/y/0")
    assert proxy.operations() == ["DeleteObject"]
    proxy.forget()
    options = s3.options(proxy.endpoint())
    assert delete_files((f"{root}/x/y/{number}" for number in range(5)), options) == []
    assert proxy.operations() == ["DeleteObjects"]
    assert not (s3.folder / root.partition("://")[2]).exists()


def test_what_cannot_be_removed_is_told(
    counted: Storage, proxy: FaultProxy, root: str, s3: S3Server
) -> None:
    names = [f"{root}/file-{number}" for number in range(3)]
    for each in names:
        counted.write(each, CONTENT)
    proxy.fail_next(403, "AccessDenied", "DeleteObjects")
    proxy.fail_next(403, "AccessDenied", "DeleteObject", path="/file-1")
    assert delete_files(names, s3.options(proxy.endpoint())) == [f"{root}/file-1"]
    assert counted.files_below(root) == [f"{root}/file-1"]


def test_columns_of_a_parquet_file_are_read_by_few_requests(
    counted: Storage, proxy: FaultProxy, root: str, s3: S3Server
) -> None:
    rows = pa.table({f"c{n}": pa.array(range(n, 200_000 + n)) for n in range(6)})
    with counted.create(f"{root}/a") as sink:
        pq.write_table(rows, sink, row_group_size=50_000, compression="none", use_dictionary=False)
    size, options = counted.size(f"{root}/a"), s3.options(proxy.endpoint())
    proxy.forget()
    with open_parquet(f"{root}/a", options, size) as file:
        found = file.read_row_group(2, ["c1", "c2"])
    assert found.num_rows == 50_000
    # The size, the footer, and two columns that are side by side.
    assert proxy.operations() == ["HeadObject", "GetObject", "GetObject"]
    assert sum(each.body for each in proxy.requests()) < size / 4

    counted.write(f"{root}/small", _parquet(rows.slice(0, 100)))
    size = counted.size(f"{root}/small")
    proxy.forget()
    with open_parquet(f"{root}/small", options, size) as file:
        assert file.read(["c1"]).num_rows == 100
    assert proxy.operations() == ["GetObject"]


def _parquet(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink)
    return sink.getvalue().to_pybytes()


# ------------------------------------------------------------------------------ where it is reached


def test_another_process_gets_it_by_pickle(s3: S3Server, root: str) -> None:
    storage = S3Storage(s3.options())
    storage.write(f"{root}/a", CONTENT)
    program = (
        "import pickle, sys\n"
        "storage, place = pickle.load(sys.stdin.buffer)\n"
        "with storage.open(place) as source:\n"
        "    sys.stdout.buffer.write(source.read() + storage.read(place, 0, 3))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        input=pickle.dumps((storage, f"{root}/a")),
        capture_output=True,
        timeout=60,
        check=True,
    )
    assert done.stdout == CONTENT + CONTENT[:3]


def test_file_systems_are_made_once(s3: S3Server, root: str) -> None:
    options = s3.options()
    reverse = dict(reversed(options.items()))
    first = storage_at(f"{root}/a", options)
    second = storage_at(f"s3://{s3.bucket}/b", reverse)
    assert isinstance(first, S3Storage)
    assert isinstance(second, S3Storage)
    assert first._at(f"{root}/a")[0] is second._at(f"s3://{s3.bucket}/b")[0]


def test_the_environment_says_what_is_not_set(
    s3: S3Server, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3.endpoint)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", s3.secret_key)
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    # Properties that no other test has: file systems and keys are kept by their properties.
    storage = S3Storage({"s3.path-style-access": "true", "test": "environment"})
    storage.write(f"{root}/a", CONTENT)
    assert storage.read(f"{root}/a", 0, 10) == CONTENT
    with storage.open(f"{root}/a") as source:
        assert source.read() == CONTENT


def test_uploads_that_nobody_completes_are_ended(s3: S3Server, root: str) -> None:
    storage = S3Storage(s3.options())
    requests = storage._requests(f"{root}/x")
    assert requests is not None
    folder = root.partition(f"{s3.bucket}/")[2]
    for name in ("own", "other's"):
        assert requests._ask("POST", f"{folder}/a b/{name}", "uploads=").status == 200
    assert s3.uploads_under_way() == 2
    seen: list[str] = []

    def is_own(location: str) -> bool:
        seen.append(location)
        return location.endswith("/own")

    storage.abort_uploads(root, is_own)
    assert sorted(seen) == [f"{root}/a b/other's", f"{root}/a b/own"]
    assert s3.uploads_under_way() == 1
    storage.abort_uploads(f"{root}/a b", lambda _: True)
    assert s3.uploads_under_way() == 0
    assert storage.files_below(root) == []


def test_row_groups_are_asked_for_as_they_are_needed(
    counted: Storage,
    proxy: FaultProxy,
    root: str,
    s3: S3Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A large file does not come into memory as a whole."""
    monkeypatch.setattr(file_reader, "_MOST_AHEAD", 2_000_000)
    rows = with_field_ids(numbered(400_000), {"id": 1, "name": 2})
    with counted.create(f"{root}/a") as sink:
        pq.write_table(rows, sink, row_group_size=100_000, compression="none", use_dictionary=False)
    table = Table(tmp_path, NUMBERED)
    table.append(data_entry(f"{root}/a", 400_000, size=counted.size(f"{root}/a")), first_row_id=0)
    state = table.state()
    request = read_request(state, ["id"], properties=s3.options(proxy.endpoint()), batch_rows=1000)
    parts = plan_scan(state, ["id"], None).parts
    proxy.forget()
    batches = read_parts(request, parts, lambda: None)
    assert len(next(batches)) == 1000
    # The footer, and two of four row groups, whose columns have others between them.
    assert proxy.operations().count("GetObject") <= 3
    assert sum(map(len, batches)) == 399_000
    assert proxy.operations().count("GetObject") == 5
