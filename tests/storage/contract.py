"""What every storage keeps to. A new one is tested by a subclass that says what and where it is."""

from __future__ import annotations

import pickle
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from typing import ClassVar

import pyarrow as pa
import pytest

from sparkport.spark.iceberg.storage import MissingFile, Storage

CONTENT = b"0123456789"
LARGE = bytes(range(256)) * 4096
"""A megabyte."""

NAMES = (
    "a b",
    "100%25",
    "k=a%2Fb c",
    "übergröße 漢字 🦆",
    "a#b?c=d&e+f",
    "[x]*{y}",
    'it\'s "quoted"',
    "a:b",
    ".hidden",
    "x" * 200,
)


class StorageContract:
    """Subclasses have a fixture `storage`, and `root`: a folder of it in which nothing is yet."""

    replaces = False
    """Whether a file of the same name is replaced, and not refused."""
    impossible: ClassVar[set[str]] = set()
    """Of NAMES: what the storage refuses."""

    # -------------------------------------------------------------------------- reading and writing

    def test_what_was_written_is_read(self, storage: Storage, root: str) -> None:
        with storage.create(f"{root}/a") as sink:
            assert sink.tell() == 0
            sink.write(CONTENT[:4])
            sink.write(CONTENT[4:])
            assert sink.tell() == len(CONTENT)
        with storage.open(f"{root}/a") as source:
            assert isinstance(source, pa.NativeFile)
            assert source.size() == len(CONTENT)
            assert source.read() == CONTENT
            assert source.read_at(3, 5) == b"567"
            source.seek(8)
            assert source.read(100) == b"89"
        with storage.open_once(f"{root}/a") as source:
            assert source.read(3) + source.read() == CONTENT
            assert source.seekable()
            assert source.size() == len(CONTENT)
        assert storage.size(f"{root}/a") == len(CONTENT)
        assert storage.exists(f"{root}/a")

    def test_a_small_file_is_written_in_one_go(self, storage: Storage, root: str) -> None:
        storage.write(f"{root}/a", CONTENT)
        assert storage.read(f"{root}/a", 0, len(CONTENT)) == CONTENT
        with storage.open(f"{root}/a", len(CONTENT)) as source:
            assert source.size() == len(CONTENT)
            assert source.read_at(3, 5) == b"567"

    def test_an_empty_file_is_a_file(self, storage: Storage, root: str) -> None:
        storage.write(f"{root}/empty", b"")
        assert storage.exists(f"{root}/empty")
        assert storage.size(f"{root}/empty") == 0
        assert storage.read(f"{root}/empty", 0, 0) == b""
        with storage.open(f"{root}/empty") as source:
            assert source.read() == b""
        with pytest.raises(ValueError, match="too short"):
            storage.read(f"{root}/empty", 0, 1)

    @pytest.mark.parametrize(
        ("offset", "length"), [(0, 0), (0, 1), (0, 10), (3, 4), (9, 1), (10, 0)]
    )
    def test_ranges(self, storage: Storage, root: str, offset: int, length: int) -> None:
        storage.write(f"{root}/a", CONTENT)
        assert storage.read(f"{root}/a", offset, length) == CONTENT[offset : offset + length]

    @pytest.mark.parametrize(
        ("offset", "length"), [(0, 11), (9, 2), (10, 1), (11, 0), (2**40, 1), (-1, 1), (3, -1)]
    )
    def test_ranges_outside_of_the_file(
        self, storage: Storage, root: str, offset: int, length: int
    ) -> None:
        storage.write(f"{root}/a", CONTENT)
        with pytest.raises(ValueError, match=r"too short|a range begins in the file"):
            storage.read(f"{root}/a", offset, length)

    def test_what_was_read_stays_when_the_file_goes(self, storage: Storage, root: str) -> None:
        storage.write(f"{root}/a", LARGE)
        with storage.open(f"{root}/a") as source:
            buffer = source.read_buffer(len(LARGE))
        storage.delete(f"{root}/a")
        assert buffer.to_pybytes() == LARGE

    def test_a_name_that_is_used_twice(self, storage: Storage, root: str) -> None:
        storage.write(f"{root}/a", CONTENT)
        with nullcontext() if self.replaces else pytest.raises(FileExistsError):
            storage.write(f"{root}/a", b"9876543210")
        wanted = b"9876543210" if self.replaces else CONTENT
        assert storage.read(f"{root}/a", 0, 10) == wanted

    def test_folders_are_made_as_they_are_needed(self, storage: Storage, root: str) -> None:
        storage.write(f"{root}/x/y/z/a", CONTENT)
        assert storage.read(f"{root}/x/y/z/a", 0, 10) == CONTENT

    def test_a_file_can_be_made_durable(self, storage: Storage, root: str) -> None:
        with storage.create(f"{root}/a") as sink:
            sink.write(CONTENT)
        storage.make_durable(f"{root}/a")
        storage.make_durable(f"{root}/a")
        assert storage.read(f"{root}/a", 0, 10) == CONTENT

    @pytest.mark.parametrize("name", NAMES)
    def test_names_are_taken_as_they_are(self, storage: Storage, root: str, name: str) -> None:
        if name in self.impossible:
            with pytest.raises(OSError, match=r".+"):
                storage.write(f"{root}/{name}/{name}", CONTENT)
            return
        storage.write(f"{root}/{name}/{name}", CONTENT)
        assert storage.files_below(root) == [f"{root}/{name}/{name}"]
        assert storage.read(f"{root}/{name}/{name}", 0, 10) == CONTENT
        storage.delete(f"{root}/{name}/{name}")
        assert storage.files_below(root) == []

    def test_times_of_files_can_be_compared(self, storage: Storage, root: str) -> None:
        storage.write(f"{root}/a", CONTENT)
        storage.write(f"{root}/b", CONTENT)
        assert 0.0 <= storage.modified(f"{root}/b") - storage.modified(f"{root}/a") < 60.0
        storage.write(f"{root}/empty", b"")
        assert 0.0 <= storage.modified(f"{root}/empty") - storage.modified(f"{root}/a") < 60.0
        with pytest.raises(MissingFile):
            storage.modified(f"{root}/none")

    # ----------------------------------------------------------------------------------- what lacks

    def test_a_missing_file_is_one_kind_of_error(self, storage: Storage, root: str) -> None:
        storage.write(f"{root}/file", CONTENT)
        for place in (f"{root}/none", f"{root}/none/none", f"{root}/file/none"):
            for act in (
                storage.open,
                storage.open_once,
                storage.size,
                lambda each: storage.read(each, 0, 1),
                lambda each: storage.open(each, len(CONTENT)),
            ):
                with pytest.raises(MissingFile) as caught:
                    act(place)
                assert caught.value.filename == place
            assert not storage.exists(place)
        assert storage.files_below(root) == [f"{root}/file"]

    def test_a_folder_is_no_file(self, storage: Storage, root: str) -> None:
        storage.write(f"{root}/folder/file", CONTENT)
        with pytest.raises((MissingFile, IsADirectoryError)):
            storage.size(f"{root}/folder")
        with pytest.raises(OSError, match=r".+"):
            storage.open(f"{root}/folder")

    def test_what_is_not_there_can_be_deleted(self, storage: Storage, root: str) -> None:
        storage.write(f"{root}/a", CONTENT)
        storage.write(f"{root}/ab", CONTENT)
        for place in (f"{root}/a", f"{root}/a", f"{root}/none/none", f"{root}/ab/none"):
            storage.delete(place)
            assert not storage.exists(place)
        assert storage.exists(f"{root}/ab")

    def test_many_are_deleted_at_once(self, storage: Storage, root: str) -> None:
        names = [f"{root}/x/{each}" for each in {*NAMES, "<a>&amp;", "z"} - self.impossible]
        for each in names:
            storage.write(each, CONTENT)
        storage.write(f"{root}/kept", CONTENT)
        storage.delete_all([*names, f"{root}/none"])
        storage.delete_all(names[:1])
        storage.delete_all([])
        assert storage.files_below(root) == [f"{root}/kept"]

    # -------------------------------------------------------------------------- names and listings

    def test_files_are_listed_at_all_depths(self, storage: Storage, root: str) -> None:
        for name in ("t-1/b", "t-1/a", "t-1/x/y/c", "t-10/a", "t-1.txt"):
            storage.write(f"{root}/{name}", CONTENT)
        inside = [f"{root}/t-1/{name}" for name in ("a", "b", "x/y/c")]
        assert storage.files_below(f"{root}/t-1") == inside
        assert storage.files_below(f"{root}/t-1/") == inside
        assert storage.files_below(f"{root}/none") == []
        assert len(storage.files_below(root)) == 5

    # ------------------------------------------------------------------------ threads and processes

    def test_many_read_at_once(self, storage: Storage, root: str) -> None:
        storage.write(f"{root}/a", LARGE)
        starts = [number * 7919 % (len(LARGE) - 1000) for number in range(200)]
        with storage.open(f"{root}/a") as shared, ThreadPoolExecutor(8) as readers:
            own = readers.map(lambda start: storage.read(f"{root}/a", start, 1000), starts)
            same = readers.map(lambda start: shared.read_at(1000, start), starts)
            wanted = [LARGE[start : start + 1000] for start in starts]
            assert list(own) == wanted
            assert list(same) == wanted

    def test_many_write_at_once(self, storage: Storage, root: str) -> None:
        names = [f"{root}/new/{uuid.uuid4().hex}" for _ in range(40)]
        with ThreadPoolExecutor(8) as writers:
            list(writers.map(lambda name: storage.write(name, name.encode()), names))
        assert storage.files_below(root) == sorted(names)
        assert all(storage.read(name, 0, len(name)) == name.encode() for name in names)

    def test_workers_get_it_by_pickle(self, storage: Storage, root: str) -> None:
        storage.write(f"{root}/a", CONTENT)
        copy: Storage = pickle.loads(pickle.dumps(storage))
        assert copy.read(f"{root}/a", 2, 3) == b"234"
        with pytest.raises(MissingFile) as caught:
            copy.open(f"{root}/b")
        again = pickle.loads(pickle.dumps(caught.value))
        assert isinstance(again, MissingFile)
        assert again.filename == f"{root}/b"
