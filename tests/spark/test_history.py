"""Counting the changes of a table, from invented metadata files: no Spark."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from sparkport.catalog import TimePoint
from sparkport.errors import CatalogFault, NotFound
from sparkport.spark.iceberg import metadata_heads
from sparkport.spark.iceberg.identifiers import Identifier
from sparkport.spark.iceberg.metadata_heads import MetadataHeads
from sparkport.spark.iceberg.table_state import States, TableState
from sparkport.spark.lake.history import state_at
from sparkport.spark.lake.version_log import changes_of

TABLE = Identifier("lake", ("n",), "t")
UUID = "9c12d441-03fe-4693-9a96-a0705ddf69c1"


class Past:
    """A table whose commits write metadata files as Iceberg does."""

    def __init__(
        self, folder: Path, most: int = 1000, ending: str = "{number:05d}-x.metadata.json"
    ) -> None:
        self.folder, self.most, self.ending = folder, most, ending
        self.files: list[str] = []
        self.log: list[dict[str, Any]] = []
        self.opened: list[str] = []
        self.states = States()
        self.metadata_heads = MetadataHeads(self._open)
        self.metadata: dict[str, Any] = {
            "format-version": 3,
            "table-uuid": UUID,
            "location": "/t",
            "last-sequence-number": 0,
            "last-updated-ms": 1_000_000,
            "last-column-id": 1,
            "current-schema-id": 0,
            "schemas": [self._columns(0)],
            "default-spec-id": 0,
            "partition-specs": [{"spec-id": 0, "fields": []}],
            "last-partition-id": 999,
            "default-sort-order-id": 0,
            "sort-orders": [{"order-id": 0, "fields": []}],
            "properties": {},
            "current-snapshot-id": None,
            "next-row-id": 0,
            "refs": {},
            "snapshots": [],
            "snapshot-log": [],
        }
        self._write()

    @staticmethod
    def _columns(number: int) -> dict[str, Any]:
        name = "id" if number == 0 else f"id{number}"
        field = {"id": 1, "name": name, "required": False, "type": "long"}
        return {"type": "struct", "schema-id": number, "fields": [field]}

    def insert(self, *, show: bool = True) -> None:
        self._tick()
        number = len(self.metadata["snapshots"]) + 1_000_000
        moment = self.metadata["last-updated-ms"]
        snapshot = {
            "snapshot-id": number,
            "sequence-number": number,
            "timestamp-ms": moment,
            "manifest-list": f"/t/metadata/snap-{number}.avro",
            "summary": {"operation": "append", "added-records": "1"},
            "schema-id": self.metadata["current-schema-id"],
            "first-row-id": 0,
            "added-rows": 1,
        }
        self.metadata["snapshots"].append(snapshot)
        if show:
            self.metadata["current-snapshot-id"] = number
            self.metadata["refs"] = {
                **self.metadata["refs"],
                "main": {"snapshot-id": number, "type": "branch"},
            }
            self.metadata["snapshot-log"].append({"timestamp-ms": moment, "snapshot-id": number})
        self._write()

    def tag(self, name: str) -> None:
        self._tick()
        current = self.metadata["current-snapshot-id"]
        self.metadata["refs"] = {
            **self.metadata["refs"],
            name: {"snapshot-id": current, "type": "tag"},
        }
        self._write()

    def rename(self) -> None:
        self._tick()
        number = len(self.metadata["schemas"])
        self.metadata["schemas"].append(self._columns(number))
        self.metadata["current-schema-id"] = number
        self._write()

    def set(self, name: str, value: str) -> None:
        self._tick()
        self.metadata["properties"] = {**self.metadata["properties"], name: value}
        self._write()

    def _tick(self, milliseconds: int = 10) -> None:
        self.metadata["last-updated-ms"] += milliseconds

    def _write(self) -> None:
        place = str(self.folder / self.ending.format(number=len(self.files)))
        text = json.dumps({**self.metadata, "metadata-log": self.log[-self.most :]}).encode()
        Path(place).write_bytes(gzip.compress(text) if ".gz" in place else text)
        self.files.append(place)
        self.log.append({"timestamp-ms": self.metadata["last-updated-ms"], "metadata-file": place})

    def _open(self, _: Identifier, place: str) -> Any:
        self.opened.append(place)
        try:
            return gzip.open(place) if ".gz" in place else open(place, "rb")
        except FileNotFoundError as error:
            raise NotFound("gone") from error

    # The parts of a lake that history uses.

    def state(self, identifier: Identifier, place: str) -> TableState:
        with self._open(identifier, place) as source:
            return self.states.add(identifier, place, source.read().decode(), None)

    @property
    def present(self) -> TableState:
        return self.state(TABLE, self.files[-1])

    def forget(self) -> None:
        """Forget everything, as after a restart of the server."""
        self.states, self.metadata_heads, self.opened = States(), MetadataHeads(self._open), []

    def numbers(self) -> dict[str, int]:
        found = {}
        for change in changes_of(self, self.present):  # type: ignore[arg-type]
            assert change.location is not None, "its metadata file is still there"
            found[change.location] = change.number
        return found

    def at(self, version: object) -> TableState:
        return state_at(self, self.present, TimePoint("version", str(version)))  # type: ignore[arg-type]


@pytest.fixture
def past(tmp_path: Path) -> Past:
    return Past(tmp_path)


def test_only_commits_that_show_something_else_count(past):
    past.insert()
    past.tag("a")
    past.insert(show=False)
    past.set("write.target-file-size-bytes", "5")
    past.set("comment", "a table")
    past.rename()
    past.set("sparkport.constraints", "{}")
    past.insert()
    past.tag("b")

    places = past.files
    assert past.numbers() == {
        places[index]: number for number, index in enumerate((0, 1, 5, 6, 7, 8))
    }
    assert [past.at(each).metadata.properties.get("comment") for each in (1, 2)] == [
        None,
        "a table",
    ]
    assert [past.at(each).schema.fields[0].name for each in (2, 3)] == ["id", "id1"]
    constraints = [
        past.at(each).metadata.properties.get("sparkport.constraints") for each in (3, 4)
    ]
    assert constraints == [None, "{}"]
    assert [past.at(each).snapshot.snapshot_id for each in (4, 5)] == [1_000_000, 1_000_002]
    with pytest.raises(NotFound, match="its latest is 5"):
        past.at(6)


def test_the_upgrade_that_gives_rows_their_ids_is_a_change(past):
    past.metadata["format-version"] = 2
    past._write()
    past.metadata["format-version"] = 3
    past._write()
    assert list(past.numbers().values()) == [0, 1, 2]


@pytest.mark.parametrize(
    "ending", ["{number:05d}-x.metadata.json", "v{number}.metadata.json", "m{number}.metadata.json"]
)
def test_numbers_stay_what_they_are_when_the_log_is_cut(tmp_path, ending):
    if ending.startswith("v"):
        ending = "v{number_and_one}.metadata.json"
    past = Past.__new__(Past)
    past.__init__(tmp_path, 3, _Ending(ending))  # type: ignore[misc]
    seen: dict[str, int] = {}
    for turn in range(30):
        past.insert() if turn % 3 == 0 else past.tag(f"t{turn}") if turn % 3 == 1 else past.insert(
            show=False
        )
        if turn % 7 == 0:
            past.forget()
        for place, number in past.numbers().items():
            assert seen.setdefault(place, number) == number
    assert len(past.present.metadata.metadata_log) == 3
    assert max(seen.values()) == 10


class _Ending(str):
    def format(self, *, number: int) -> str:  # type: ignore[override]
        return super().format(number=number, number_and_one=number + 1)


def test_commits_whose_files_are_gone_count_as_changes(tmp_path):
    past = Past(tmp_path, 3)
    for turn in range(10):
        past.insert()
        past.tag(f"t{turn}")
    numbers = past.numbers()
    assert max(numbers.values()) == 10

    for place in past.files[:-4]:
        Path(place).unlink()
    assert past.numbers() == numbers, "a server does not change its mind"
    past.forget()
    assert list(past.numbers().values()) == [17, 18], "the names of the files count on"


def test_a_missing_file_in_the_midst_counts(past):
    past.insert()
    past.tag("a")
    past.insert()
    Path(past.files[2]).unlink()
    past.forget()
    assert past.numbers() == {place: number for number, place in enumerate(past.files)}


def test_a_storage_that_does_not_answer_gives_no_wrong_number(past, monkeypatch):
    past.insert()
    past.tag("a")

    def fail(_: Identifier, __: str) -> Any:
        raise OSError("timeout")

    monkeypatch.setattr(past.metadata_heads, "_open", fail)
    with pytest.raises(CatalogFault, match=r"^old metadata of table n.t cannot be read$"):
        past.numbers()
    monkeypatch.undo()
    assert list(past.numbers().values()) == [0, 1]


def test_no_file_is_read_where_the_log_proves_that_all_are_changes(past):
    for _ in range(299):
        past.insert()
    state = past.present
    past.opened = []
    changes = changes_of(past, state)
    assert [change.number for change in changes] == list(range(300))
    assert past.opened == []


def test_many_commits_are_counted_once(past):
    for turn in range(150):
        past.insert()
        past.tag(f"t{turn}") if turn % 2 else past.insert(show=False)
    state = past.present
    past.opened = []
    assert changes_of(past, state)[-1].number == 150
    assert len(past.opened) <= 301

    past.opened = []
    past.insert()
    past.tag("last")
    assert list(past.numbers().values())[-1] == 151
    assert len(past.opened) <= 4, "only what is new"


def test_the_id_of_a_snapshot_is_not_counted_for(past):
    for _ in range(3):
        past.insert()
        past.rename()
    past.opened = []
    assert past.at(1_000_002).snapshot.snapshot_id == 1_000_002
    assert past.opened == [past.files[-1]]


def test_commits_of_the_same_millisecond_are_looked_at(past):
    past.insert()
    past._tick(-10)
    past.tag("a")
    past._tick(-10)
    past.insert()
    assert list(past.numbers().values()) == [0, 1, 2]


# -------------------------------------------------------------------------- reading metadata files


def _head(place: Path) -> metadata_heads.MetadataHead | None:
    return MetadataHeads(lambda _, location: open(location, "rb")).of(
        TABLE, UUID, [str(place)], lambda: None
    )[str(place)]


@pytest.fixture(params=[1, 2, 3, 7, 64, 64 * 1024])
def _chunk(request, monkeypatch) -> None:
    monkeypatch.setattr(metadata_heads, "_CHUNK", request.param)


@pytest.mark.usefixtures("_chunk")
@pytest.mark.parametrize("indent", [None, 2])
def test_a_file_is_read_in_pieces(tmp_path, indent):
    place = tmp_path / "m.json"
    metadata = {
        "format-version": 2,
        "tricky": {"current-snapshot-id": 7, 'é"\\': ["}", 1.5, None]},
        "current-schema-id": 12,
        "properties": {"comment": "für \U0001f600"},
        "current-snapshot-id": 123456789,
        "snapshots": [{"a": 1}],
    }
    place.write_text(json.dumps(metadata, indent=indent, ensure_ascii=False))
    found = _head(place)
    assert found is not None
    assert (found.snapshot_id, found.schema, found.has_row_ids) == (123456789, 12, False)
    assert [each is not None for each in found.shape] == [False, False, False, True]


def test_what_comes_after_is_not_read(tmp_path):
    place = tmp_path / "m.json"
    wanted = {
        "format-version": 3,
        "current-schema-id": 0,
        "properties": {},
        "current-snapshot-id": 5,
    }
    place.write_text(json.dumps(wanted)[:-1] + ', "snapshots": [' + "1, " * 100_000 + "broken")
    found = _head(place)
    assert found is not None
    assert found.snapshot_id == 5


def test_the_order_of_other_writers_is_read_too(tmp_path):
    place = tmp_path / "m.json"
    place.write_text(
        json.dumps({"schema": {"a": 1}, "current-snapshot-id": -1, "format-version": 1})
    )
    found = _head(place)
    assert found == metadata_heads.MetadataHead(None, '{"a": 1}', False, (None, None, None, None))


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "nonsense", '{"format-version": 3, "current-sch', '{"format-version" 3}'],
)
def test_a_damaged_file_is_told(tmp_path, text):
    place = tmp_path / "m.json"
    place.write_text(text)
    with pytest.raises(CatalogFault, match="cannot be read"):
        _head(place)


def test_many_files_of_an_object_store_are_read_at_once(tmp_path):
    past = Past(tmp_path)
    for _ in range(20):
        past.rename()
    distant = MetadataHeads(lambda table, place: past._open(table, place.removeprefix("s3:/")))
    found = distant.of(TABLE, UUID, [f"s3:/{place}" for place in past.files], lambda: None)
    assert [head and head.schema for head in found.values()] == list(range(21))


def test_compressed_metadata_are_counted(tmp_path):
    past = Past(tmp_path, 2, "{number:05d}-x.gz.metadata.json")
    for turn in range(4):
        past.insert()
        past.tag(f"t{turn}")
    assert list(past.numbers().values()) == [3, 4]
