"""A table that single-row statements change, with a model of every version that it had."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.table import StaticTable
from pyiceberg.utils.concurrent import ExecutorFactory
from tests.spark.lake_tables import find, folder
from tests.spark.places import path_of

from sparkport.server import Server
from sparkport.spark import LakeCatalog, LakeSettings
from sparkport.spark.care.expired_files import NOTE
from sparkport.spark.care.orphans import remove_orphans
from sparkport.spark.lake.care_settings import care_of
from sparkport.testing import DuckDBClient, ServerError

__all__ = [
    "COLUMNS",
    "SECONDS",
    "Load",
    "care_of_all",
    "data_files",
    "end_readers",
    "files_in",
    "refused",
    "rows_at",
    "served",
    "strays",
]

COLUMNS = pa.schema([("id", pa.int64()), ("v", pa.int64())])
SECONDS = 120.0
_SCHEMA, _TABLE = "s", "t"

Rows = dict[int, int]


@contextmanager
def served(warehouse: Path, settings: LakeSettings) -> Iterator[tuple[LakeCatalog, DuckDBClient]]:
    """A lake with these settings, and a client of a server of it."""
    with (
        LakeCatalog(warehouse, name="cared", settings=settings) as lake,
        Server(lake, "grpc://127.0.0.1:0") as server,
        DuckDBClient(server.location, lake.name, timeout=SECONDS) as client,
    ):
        yield lake, client.attach()


def care_of_all(lake: LakeCatalog) -> list[Any]:
    """Have care do all that is needed; the steps, none of which has failed."""
    runs = list(lake.care_now())
    assert [each.problem for each in runs if each.problem] == []
    return runs


def end_readers(lake: LakeCatalog) -> None:
    """End all transactions that only read: DuckDB does not tell that they have ended."""
    transactions = lake._lake.transactions
    with transactions._lock:
        transactions._known.clear()
        transactions._noted.clear()


@dataclass
class Load:
    """Runs statements, one after the other, each of which makes a version."""

    client: DuckDBClient
    chosen: random.Random = field(default_factory=lambda: random.Random(7))
    log: list[tuple[int, int | None]] = field(default_factory=list)
    """For each version after the creation, which row it changed, and its new value, or None."""
    rows: Rows = field(default_factory=dict)
    row_ids: dict[int, int] = field(default_factory=dict)
    """Of each row that was seen."""

    def create(self, **options: Any) -> Load:
        self.client.create_schema(_SCHEMA)
        self.client.create_table(_SCHEMA, _TABLE, COLUMNS, **options)
        return self

    @property
    def version(self) -> int:
        """The number of the latest version. The creation is number 0."""
        return len(self.log)

    def run(self, inserts: int, updates: int = 0, deletes: int = 0) -> None:
        """Run so many statements of each kind in random order, an INSERT first."""
        kinds = ["insert"] * inserts + ["update"] * updates + ["delete"] * deletes
        self.chosen.shuffle(kinds)
        if not self.rows:
            kinds.sort(key="insert".__ne__)
        for kind in kinds:
            if kind == "insert" or not self.rows:
                self.insert()
            elif kind == "update":
                self.update()
            else:
                self.delete()

    def insert(self) -> None:
        key, value = self.version, self.chosen.randrange(1_000_000)
        self.client.insert(_SCHEMA, _TABLE, pa.table({"id": [key], "v": [value]}, schema=COLUMNS))
        self._note(key, value)

    def update(self) -> None:
        key, value = self._some(), self.chosen.randrange(1_000_000)
        self.client.update(_SCHEMA, _TABLE, {"v": str(value)}, where=f"id = {key}")
        self._note(key, value)

    def delete(self) -> None:
        key = self._some()
        self.client.delete(_SCHEMA, _TABLE, f"id = {key}")
        self._note(key, None)

    def _some(self) -> int:
        return self.chosen.choice(sorted(self.rows))

    def _note(self, key: int, value: int | None) -> None:
        self.log.append((key, value))
        _apply(self.rows, key, value)

    def states(self, versions: Collection[int]) -> Iterator[tuple[int, Rows]]:
        """The rows at some versions, the oldest first."""
        rows: Rows = {}
        if 0 in versions:
            yield 0, {}
        for number, (key, value) in enumerate(self.log, 1):
            _apply(rows, key, value)
            if number in versions:
                yield number, dict(rows)

    def expect_versions(self, versions: Collection[int]) -> None:
        """Expect the rows of some versions, and that all rows have the ids that they ever had."""
        for number, rows in self.states(versions):
            found = self.client.scan(_SCHEMA, _TABLE, ["id", "v", "rowid"], at=_at(number))
            assert _as_rows(found) == rows, f"version {number} has other rows"
            self._expect_row_ids(found)

    def expect_present(self) -> None:
        """Expect the rows of the present, and that all have the ids that they ever had."""
        found = self.client.scan(_SCHEMA, _TABLE, ["id", "v", "rowid"])
        assert _as_rows(found) == self.rows
        self._expect_row_ids(found)

    def _expect_row_ids(self, found: pa.Table) -> None:
        for key, row_id in zip(*(found[each].to_pylist() for each in ("id", "rowid")), strict=True):
            assert self.row_ids.setdefault(key, row_id) == row_id, f"row {key} has another id"
        known = self.row_ids.values()
        assert len(set(known)) == len(known), "two rows have the same id"

    def expect_forgotten(self, versions: Collection[int]) -> None:
        """Expect that versions are not found any more."""
        for number in versions:
            assert refused(self.client, number) == "NOT_FOUND", f"version {number}"

    def history(self) -> list[int]:
        """The versions that `history` lists."""
        found = self.client.table_function(_SCHEMA, "history", _TABLE)["version"]
        return [int(each) for each in found.to_pylist()]

    def expect_changes(self, first: int, last: int) -> None:
        """Expect what `table_changes` tells of two versions to be what the model tells."""
        states = dict(self.states({first, last}))
        before, after = states[first], states[last]
        expected: list[tuple[str, int, int]] = []
        for key in before.keys() | after.keys():
            if key not in after:
                expected.append(("delete", key, before[key]))
            elif key not in before:
                expected.append(("insert", key, after[key]))
            elif before[key] != after[key]:
                expected.append(("update_before", key, before[key]))
                expected.append(("update_after", key, after[key]))
        rows = self.client.table_function(_SCHEMA, "table_changes", _TABLE, first, last)
        found = [(row["_change_type"], row["id"], row["v"]) for row in rows.to_pylist()]
        assert sorted(found) == sorted(expected), f"changes from {first} to {last}"


def _apply(rows: Rows, key: int, value: int | None) -> None:
    if value is None:
        rows.pop(key, None)
    else:
        rows[key] = value


def _at(version: int) -> tuple[str, str]:
    return "VERSION", str(version)


def _as_rows(found: pa.Table) -> Rows:
    rows = dict(zip(*(found[each].to_pylist() for each in ("id", "v")), strict=True))
    assert len(rows) == found.num_rows, "a row is there twice"
    return rows


def rows_at(client: DuckDBClient, version: int | str | None = None) -> Rows:
    """The rows of the table, now or at a version."""
    at = None if version is None else ("VERSION", str(version))
    return _as_rows(client.scan(_SCHEMA, _TABLE, ["id", "v"], at=at))


def refused(client: DuckDBClient, version: int) -> str:
    """The code of the error with which a version is refused; empty if it is not."""
    try:
        client.scan(_SCHEMA, _TABLE, ["id"], at=_at(version))
    except ServerError as error:
        return error.code
    return ""


def files_in(lake: LakeCatalog, name: str = _TABLE) -> list[Path]:
    """All files in the folder of the table."""
    return [path for path in folder(find(lake, _SCHEMA, name)).rglob("*") if path.is_file()]


def data_files(client: DuckDBClient, content: str = "data") -> list[str]:
    """The files that hold the table's rows now."""
    found = client.table_function(_SCHEMA, "files", _TABLE).to_pylist()
    return [each["path"] for each in found if each["content"] == content]


def strays(lake: LakeCatalog) -> set[Path]:
    """Files in the folder of the table to which its metadata do not lead, once care has ended.

    Its log leads to metadata, and notes of forgotten files are wanted. A checksum belongs to its
    file.
    """
    state = find(lake, _SCHEMA, _TABLE).state
    remove_orphans(
        lake._lake,
        state.identifier,
        care_of(lake._lake.settings, state.metadata.properties),
        lambda: None,
        seconds=0,
        metadata_seconds=0,
    )
    try:
        table = StaticTable.from_metadata(state.metadata_location)
        known = {state.metadata_location}
        known |= {each.metadata_file for each in table.metadata.metadata_log}
        for snapshot in table.metadata.snapshots:
            known.add(snapshot.manifest_list)
            for manifest in snapshot.manifests(table.io):
                known.add(manifest.manifest_path)
                entries = manifest.fetch_manifest_entry(table.io, discard_deleted=True)
                known |= {entry.data_file.file_path for entry in entries}
        known |= {each.statistics_path for each in table.metadata.statistics}
    finally:
        ExecutorFactory.get_or_create().shutdown()  # else it would keep its threads for ever
        ExecutorFactory._instance = None
    paths = {path_of(each) for each in known}
    missing = {each for each in paths if each.suffix != ".json" and not each.exists()}
    assert not missing, "files are gone to which the table leads"
    found = {each for each in files_in(lake) if not each.name.startswith(NOTE)}
    checksums = {each.with_name(f".{each.name}.crc") for each in paths}
    return found - paths - checksums
