"""The storages keep to their contract, and each to what is its own."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from fsspec.implementations.memory import MemoryFileSystem  # type: ignore[import-untyped]
from pyarrow.fs import FileSystem, FSSpecHandler, PyFileSystem, SubTreeFileSystem
from tests.storage.contract import CONTENT, LARGE, StorageContract
from tests.storage.memory_storage import MemoryStorage

from sparkport.spark.iceberg.local_storage import LocalStorage
from sparkport.spark.iceberg.object_storage import ObjectStorage
from sparkport.spark.iceberg.storage import MissingFile, Storage


class TestMemoryStorage(StorageContract):
    @pytest.fixture
    def storage(self) -> Iterator[Storage]:
        yield MemoryStorage({})
        MemoryStorage.files.clear()

    @pytest.fixture
    def root(self) -> str:
        return "memory:/root"


class _Store(FSSpecHandler):
    """Does by name what fsspec does by patterns."""

    @staticmethod
    def _create_file_info(path: str, info: dict[str, Any]) -> Any:
        made = info.get("created")
        return FSSpecHandler._create_file_info(
            path, {**info, "mtime": made} if isinstance(made, datetime) else info
        )

    def copy_file(self, src: str, dest: str) -> None:
        self.fs.cp_file(src, dest)

    def delete_file(self, path: str) -> None:
        self.fs.rm_file(path)


class _MemoryObjects(ObjectStorage):
    def _at(self, location: str) -> tuple[FileSystem, str]:
        everything = PyFileSystem(_Store(MemoryFileSystem()))
        # It gives names as S3 does, without a slash.
        return SubTreeFileSystem("/store", everything), location.partition("://")[2]


class TestObjectStorage(StorageContract):
    """By Arrow's file systems, of which this one is in memory, and has no folders either."""

    replaces = True

    @pytest.fixture
    def storage(self) -> Iterator[Storage]:
        yield _MemoryObjects({})
        MemoryFileSystem.store.clear()
        MemoryFileSystem.pseudo_dirs[:] = [""]

    @pytest.fixture
    def root(self) -> str:
        return "s3://bucket/root"


@pytest.mark.parametrize("spelling", ["", "file:", "file://"])
class TestLocalStorage(StorageContract):
    @pytest.fixture
    def storage(self) -> Storage:
        return LocalStorage()

    @pytest.fixture
    def root(self, spelling: str, tmp_path: Path) -> str:
        return f"{spelling}{tmp_path}/root"


# ------------------------------------------------------------------------- what is local storage's


def test_all_spellings_mean_one_file(tmp_path: Path) -> None:
    storage = LocalStorage()
    storage.write(f"{tmp_path}/a%20b c", CONTENT)
    for spelling in ("file:", "file://", "FILE:", "file://localhost", ""):
        assert storage.read(f"{spelling}{tmp_path}/a%20b c", 0, 10) == CONTENT
        with pytest.raises(FileExistsError):
            storage.create(f"{spelling}{tmp_path}/a%20b c")
        assert storage.files_below(f"{spelling}{tmp_path}") == [f"{spelling}{tmp_path}/a%20b c"]
        assert storage.resolved(f"{spelling}{tmp_path}/x") == os.path.realpath(tmp_path / "x")
    assert not storage.reaches(f"file://elsewhere{tmp_path}/a%20b c")
    for act in (storage.open, storage.exists, storage.delete):
        with pytest.raises(OSError, match="not on this machine"):
            act(f"file://elsewhere{tmp_path}/a%20b c")


def test_a_path_may_be_relative(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    storage = LocalStorage()
    storage.write("a", CONTENT)
    storage.write("x/b", CONTENT)
    assert storage.files_below("x") == ["x/b"]
    assert storage.read("a", 0, 10) == CONTENT


def test_reads_are_memory_maps(tmp_path: Path) -> None:
    storage = LocalStorage()
    storage.write(f"{tmp_path}/a", LARGE)
    with storage.open(f"{tmp_path}/a") as source:
        whole, part = source.read_buffer(len(LARGE)), source.read_at(8, 0)
        source.seek(0)
        assert source.read_buffer(len(LARGE)).address == whole.address
    assert part == LARGE[:8]


def test_one_of_those_who_create_a_file_at_once_wins(tmp_path: Path) -> None:
    start = threading.Barrier(8)

    def create(number: int) -> bool:
        start.wait()
        try:
            LocalStorage().write(f"{tmp_path}/x/a", bytes([number]))
        except FileExistsError:
            return False
        return True

    with ThreadPoolExecutor(8) as writers:
        won = list(writers.map(create, range(8)))
    assert sum(won) == 1
    assert LocalStorage().read(f"{tmp_path}/x/a", 0, 1) == bytes([won.index(True)])


def test_durable_is_the_file_its_folder_and_folders_that_were_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synchronised: list[str] = []

    def note(descriptor: int) -> None:
        synchronised.append(os.path.realpath(f"/proc/self/fd/{descriptor}"))

    monkeypatch.setattr(os, "fsync", note)
    LocalStorage().write(f"{tmp_path}/x/y/a", CONTENT)
    names = [os.path.relpath(each, tmp_path) for each in synchronised]
    assert names == [".", "x", "x/y/a", "x/y"]


def test_files_have_the_usual_permissions(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        LocalStorage().write(f"{tmp_path}/a", CONTENT)
    finally:
        os.umask(before)
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o640


def test_a_link_is_resolved(tmp_path: Path) -> None:
    storage = LocalStorage()
    storage.write(f"{tmp_path}/there/a", CONTENT)
    (tmp_path / "here").symlink_to(tmp_path / "there")
    assert storage.resolved(f"file:{tmp_path}/here/a") == f"{os.path.realpath(tmp_path)}/there/a"
    assert MemoryStorage({}).resolved("memory:/a/../b") == "memory:/a/../b"


def test_what_may_not_be_looked_at_is_not_missing(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for act in (LocalStorage().size, LocalStorage().open, LocalStorage().exists):
        with pytest.raises(OSError, match="symbolic links") as caught:
            act(f"{tmp_path}/loop/a")
        assert not isinstance(caught.value, MissingFile)
