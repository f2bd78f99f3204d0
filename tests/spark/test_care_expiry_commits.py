"""Forgetting versions of real tables: what stays readable, and which files are left."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.table import StaticTable
from pyiceberg.utils.concurrent import ExecutorFactory
from tests.spark.lake_tables import COLUMNS, create, find, insert, sql_name
from tests.spark.places import path_of

from sparkport.catalog import Context, ScanOptions, TimePoint, TransactionState
from sparkport.errors import NotFound
from sparkport.server import Server
from sparkport.spark.care import expired_files, expiry
from sparkport.spark.care.expired_files import NOTE, Removed, remove_forgotten
from sparkport.spark.care.expiry import Expired, expire, expiry_need
from sparkport.spark.care.reached_files import Files
from sparkport.spark.iceberg.deletion import delete_java_files
from sparkport.spark.lake.care_settings import CareSettings
from sparkport.spark.lake.iceberg_commit import commit
from sparkport.spark.lake.transactions import Transactions
from sparkport.testing import DuckDBClient

_SETTINGS = CareSettings(
    enabled=True,
    keep_days=0,
    keep_versions=3,
    most_versions=3,
    small_files=32,
    file_bytes=1,
    file_seconds=0,
)


def _no_pause() -> None:
    """Others are not waiting."""


class _Table:
    """A table of which version n has the rows 1 to n, but every third deletes the first row."""

    def __init__(self, lake: Any, namespace: str, changes: int = 8) -> None:
        self.lake, self.namespace = lake, namespace
        create(lake, namespace, "t")
        self.sql = sql_name(lake, namespace, "t")
        self.rows: list[list[int]] = [[]]
        for number in range(1, changes + 1):
            self.change(number)

    def change(self, number: int) -> None:
        before = self.rows[-1]
        if number % 3:
            insert(self.lake, self.namespace, "t", f"({number}, {number}, 'row {number}')")
            self.rows.append([*before, number])
        else:
            self.lake.spark.sql(f"DELETE FROM {self.sql} WHERE id = {before[0]}")
            self.rows.append(before[1:])

    @property
    def state(self) -> Any:
        return find(self.lake, self.namespace, "t").state

    @property
    def latest(self) -> int:
        return len(self.rows) - 1

    def expire(self, settings: CareSettings = _SETTINGS, **options: Any) -> Expired | None:
        # A minute later, so that nobody can be planning any more.
        now = int(time.time() * 1000) + 60_000
        lake = self.lake._lake
        need = expiry_need(lake, self.state, settings, now, at_once=True)
        return None if need is None else expire(lake, need, _no_pause, **options)

    def remove(self, settings: CareSettings = _SETTINGS, seconds: float = 0) -> Removed:
        lake, identifier = self.lake._lake, self.state.identifier
        return remove_forgotten(lake, identifier, settings, _no_pause, planning_seconds=seconds)

    def at(self, version: int) -> list[int]:
        ctx, point = Context(), TimePoint("version", str(version))
        table = find(self.lake, self.namespace, "t")
        batches = table.scan(ctx, ScanOptions(time_point=point))
        return sorted(row["id"] for batch in batches for row in batch.to_pylist())

    def expect_kept(self, oldest: int, *others: int) -> None:
        """Expect the versions from `oldest` on, and no others, to be readable with their rows."""
        kept = {*range(oldest, self.latest + 1), *others}
        for version in kept:
            assert self.at(version) == sorted(self.rows[version]), f"version {version}"
        for version in set(range(1, oldest)) - kept:
            with pytest.raises(NotFound, match="no longer kept"):
                self.at(version)

    def notes(self) -> list[Path]:
        return sorted(path_of(self.state.metadata.location).rglob(f"{NOTE}*.json"))

    def files(self) -> set[Path]:
        """The files in the table's folder, without checksums."""
        found = path_of(self.state.metadata.location).rglob("*")
        return {each for each in found if each.is_file() and each.suffix != ".crc"}

    def led_to(self) -> set[Path]:
        """The files that the table leads to, as PyIceberg finds them."""
        table = StaticTable.from_metadata(self.state.metadata_location)
        found = {self.state.metadata_location}
        found |= {each.metadata_file for each in table.metadata.metadata_log}
        try:
            for snapshot in table.snapshots():
                found.add(snapshot.manifest_list)
                for manifest in snapshot.manifests(table.io):
                    found.add(manifest.manifest_path)
                    entries = manifest.fetch_manifest_entry(table.io, discard_deleted=True)
                    found |= {entry.data_file.file_path for entry in entries}
        finally:
            ExecutorFactory.get_or_create().shutdown()
            ExecutorFactory._instance = None
        return set(map(path_of, found))

    def expect_clean(self) -> None:
        assert self.notes() == []
        assert self.files() == self.led_to()


@pytest.fixture
def table(lake, namespace) -> _Table:
    return _Table(lake, namespace)


@pytest.fixture(autouse=True)
def _unremembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is remembered of what other tests have removed."""
    monkeypatch.setattr(expired_files, "_gone", type(expired_files._gone)(1000))


# ------------------------------------------------------------------------------------ what is kept


def test_promised_versions_are_kept_and_others_are_refused(table):
    assert table.led_to() == table.files()
    done = table.expire()
    assert done is not None
    assert done.snapshots == done.versions == 5
    assert done.files > 0
    assert len(table.state.metadata.snapshots) == 3
    table.expect_kept(6)
    assert len(table.notes()) == 1
    removed = table.remove()
    assert removed.files == done.files
    assert removed.bytes > 0
    assert removed.manifests >= 5
    table.expect_clean()
    table.expect_kept(6)
    table.change(9)
    table.expect_kept(6)
    assert table.expire().snapshots == 1
    table.remove()
    table.expect_clean()
    table.expect_kept(7)


def test_nothing_goes_twice(table):
    assert table.expire() is not None
    assert table.expire() is None
    assert len(table.notes()) == 1
    table.remove()
    assert table.remove() == Removed()


def test_versions_without_rows_of_their_own_are_kept(table):
    find(table.lake, table.namespace, "t").set_default(Context(), "v", "5")
    table.lake.spark.sql(f"ALTER TABLE {table.sql} ADD COLUMN extra INT")
    table.rows += [table.rows[-1], table.rows[-1]]
    assert table.expire() is not None
    table.remove()
    table.expect_kept(8)
    table.expect_clean()


def test_tags_and_branches_stay_readable(table):
    ids = [each.snapshot_id for each in table.state.metadata.snapshots]
    for statement in (
        f"CREATE TAG release AS OF VERSION {ids[1]}",
        f"CREATE BRANCH side AS OF VERSION {ids[3]}",
    ):
        table.lake.spark.sql(f"ALTER TABLE {table.sql} {statement}")
    table.lake.spark.sql(f"INSERT INTO {table.sql}.branch_side VALUES (77, 7, 'side')")
    assert table.expire() is not None
    table.remove()
    table.expect_clean()
    table.expect_kept(6, 2, 4)

    def named(name: str) -> list[int]:
        rows = table.lake.spark.sql(f"SELECT id FROM {table.sql} VERSION AS OF '{name}'").collect()
        return sorted(row.id for row in rows)

    assert named("release") == table.rows[2]
    assert named("side") == sorted([*table.rows[4], 77])
    # When they are dropped, what they kept goes, too.
    table.lake.spark.sql(f"ALTER TABLE {table.sql} DROP TAG release")
    table.lake.spark.sql(f"ALTER TABLE {table.sql} DROP BRANCH side")
    assert table.expire() is not None
    table.remove()
    assert len(table.state.metadata.snapshots) == 3
    table.expect_clean()
    table.expect_kept(6)


def test_others_read_the_table_and_its_oldest_version(table):
    table.expire()
    table.remove()
    oldest = table.state.metadata.snapshots[0].snapshot_id
    for snapshot, expected in ((None, table.rows[-1]), (oldest, table.rows[6])):
        try:
            found = StaticTable.from_metadata(table.state.metadata_location)
            rows = found.scan(snapshot_id=snapshot).to_arrow()
        finally:
            ExecutorFactory.get_or_create().shutdown()
            ExecutorFactory._instance = None
        assert sorted(rows["id"].to_pylist()) == sorted(expected)
        at = "" if snapshot is None else f" VERSION AS OF {snapshot}"
        in_spark = table.lake.spark.sql(f"SELECT id FROM {table.sql}{at}").collect()
        assert sorted(row.id for row in in_spark) == sorted(expected)


# -------------------------------------------------------------------------------- who still reads


def test_a_scan_that_has_begun_reads_on_to_its_end(table):
    """Its transaction is idle, and the table may have no more versions than it has."""
    lake = table.lake._lake
    schema = table.lake.schema(Context(), table.namespace)
    transaction = lake.transactions.begin()
    ctx = Context(transaction_id=transaction)
    batches = iter(schema.table(ctx, "t").scan(ctx, ScanOptions()))
    for number in range(9, 13):
        table.change(number)
    assert table.state.snapshot.snapshot_id not in lake.transactions.snapshots_read(
        table.state.identifier
    )
    assert table.expire().snapshots == 8, "all but what the transaction reads"
    table.remove()
    table.expect_clean()
    assert sorted(row["id"] for batch in batches for row in batch.to_pylist()) == table.rows[8]
    lake.transactions.end(transaction, TransactionState.COMMITTED)
    now = int(time.time() * 1000) + 2 * 3_600_000
    need = expiry_need(lake, table.state, _SETTINGS, now, at_once=True)
    assert need is not None
    done = expire(lake, need, _no_pause)
    assert done is not None
    assert done.snapshots == 1, "what the transaction has read"
    table.remove()
    table.expect_clean()


def test_the_files_of_a_forgotten_version_stay_while_a_stream_reads_it(table):
    lake, state = table.lake._lake, table.state
    with lake.transactions.scanning(None, state):
        for number in range(9, 13):
            table.change(number)
        need = expiry_need(
            lake, table.state, _SETTINGS, int(time.time() * 1000) + 60_000, at_once=True
        )
        assert need is not None
        assert state.snapshot.snapshot_id not in need.snapshots


def test_what_other_servers_read_keeps_its_files(table):
    gone = {each.snapshot_id for each in table.state.metadata.snapshots[:5]}
    lake, identifier = table.lake._lake, table.state.identifier
    assert table.expire(in_use=lambda: gone) is None
    assert table.expire(in_use=lambda: None) is None, "nobody knows"
    assert table.notes() == []
    assert table.expire() is not None
    for elsewhere in (lambda: gone, lambda: None):
        removed = remove_forgotten(
            lake, identifier, _SETTINGS, _no_pause, elsewhere, planning_seconds=0
        )
        assert removed.files == 0
    assert table.remove().files > 0
    table.expect_clean()


def test_files_wait_for_their_time(table):
    done = table.expire()
    assert table.remove(seconds=1000) == Removed()
    later = table.remove(replace(_SETTINGS, file_seconds=1000))
    assert (later.files, later.manifests > 0) == (0, True)
    assert table.remove(replace(_SETTINGS, file_seconds=1000)) == Removed()
    assert table.remove().files == done.files
    table.expect_clean()


# -------------------------------------------------------------------------------- what is cut off


class _Cut(BaseException):
    """Stands for kill -9."""


def _cut(*_: object, **__: object) -> Any:
    raise _Cut


def test_a_note_whose_commit_was_never_made_removes_nothing(table, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(expiry, "commit", _cut)
        with pytest.raises(_Cut):
            table.expire()
    assert len(table.notes()) == 1
    assert table.remove() == Removed()
    table.expect_clean()
    table.expect_kept(1)


def test_an_old_note_does_not_hasten_what_a_younger_one_names(table, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(expiry, "commit", _cut)
        with pytest.raises(_Cut):
            table.expire()
    (old,) = table.notes()
    table.expire()
    os.utime(old, (0, time.time() - 5_000))
    assert table.remove(replace(_SETTINGS, file_seconds=1_000), seconds=500) == Removed()
    assert len(table.notes()) == 1, "the old one has nothing to say"
    assert table.remove().files > 0
    table.expect_clean()


def test_a_server_that_dies_after_the_commit_leaves_a_note(table, monkeypatch):

    def commit_and_die(*arguments: Any) -> bool:
        assert commit(*arguments)
        raise _Cut

    with monkeypatch.context() as patch:
        patch.setattr(expiry, "commit", commit_and_die)
        with pytest.raises(_Cut):
            table.expire()
    table.lake._lake.changed(table.state.identifier)
    table.expect_kept(6)
    assert table.remove().files > 0
    table.expect_clean()


def test_work_that_was_cut_off_is_done_again(table, monkeypatch):
    table.expire()
    before = table.files()
    with monkeypatch.context() as patch:
        patch.setattr(expired_files, "_AT_ONCE", 3)
        calls = iter(range(2))

        def delete_some(files: Any, properties: Any) -> Any:
            if next(calls, None) is None:
                raise _Cut
            return delete_java_files(files, properties)

        patch.setattr(expired_files, "delete_java_files", delete_some)
        with pytest.raises(_Cut):
            table.remove()
    assert len(before - table.files()) == 6
    table.expect_kept(6)
    table.remove()
    table.expect_clean()
    table.expect_kept(6)


def test_what_changes_meanwhile_is_looked_at(table):
    """A tag is made, or a version returned to, between the decision and the commit."""
    ids = [each.snapshot_id for each in table.state.metadata.snapshots]
    lake = table.lake._lake
    now = int(time.time() * 1000) + 60_000

    def decide() -> Any:
        found = expiry_need(lake, table.state, _SETTINGS, now, at_once=True)
        assert found is not None
        return found

    need = decide()
    table.lake.spark.sql(f"ALTER TABLE {table.sql} CREATE TAG late AS OF VERSION {ids[0]}")
    lake.changed(table.state.identifier)
    assert expire(lake, need, _no_pause) is None
    need = decide()
    table.lake.spark.sql(f"ALTER TABLE {table.sql} DROP TAG late")
    call = f"CALL `{table.lake.spark_catalog}`.system.set_current_snapshot"
    table.lake.spark.sql(f"{call}(table => '{table.namespace}.t', snapshot_id => {ids[2]}L)")
    lake.changed(table.state.identifier)
    assert expire(lake, need, _no_pause) is None
    assert table.notes() == []
    table.expect_kept(1)
    # A change that concerns nothing of it does no harm.
    need = decide()
    table.rows.append(table.rows[3])
    table.change(10)
    assert expire(lake, need, _no_pause) is not None
    table.remove()
    table.expect_clean()
    assert table.at(10) == sorted(table.rows[10])


# ------------------------------------------------------------------------------- who shares files


def test_a_table_that_is_registered_twice_keeps_what_the_other_needs(table, lake, namespace):
    location = table.state.metadata_location
    register = f"CALL `{lake.spark_catalog}`.system.register_table"
    lake.spark.sql(f"{register}(table => '{namespace}.twin', metadata_file => '{location}')")
    lake._lake.changed()
    files = table.files()
    assert table.expire() is not None
    assert table.remove() == Removed()
    assert files < table.files()
    twin = sql_name(lake, namespace, "twin")
    for number, snapshot in enumerate(find(lake, namespace, "twin").state.metadata.snapshots, 1):
        rows = lake.spark.sql(f"SELECT id FROM {twin} VERSION AS OF {snapshot.snapshot_id}")
        assert sorted(row.id for row in rows.collect()) == sorted(table.rows[number])


def test_a_note_that_names_files_of_others_removes_nothing(table, lake, namespace, tmp_path):
    create(lake, namespace, "other")
    insert(lake, namespace, "other", "(1, 1, 'x')")
    other = find(lake, namespace, "other").state
    outside = tmp_path / "outside.parquet"
    outside.write_text("mine")
    place = path_of(table.state.metadata.location)
    link = place / "data" / "link"
    link.symlink_to(tmp_path)
    files = [
        str(outside),
        f"{link}/outside.parquet",
        f"{place}/../outside.parquet",
        other.metadata_location,
        table.state.metadata_location,
        table.state.metadata.metadata_log[0].metadata_file,
        table.state.snapshot.manifest_list,
        *map(str, sorted(path_of(other.metadata.location).rglob("*.parquet"))),
        *map(str, sorted((place / "data").glob("*.parquet"))),
    ]
    named = Files(files, dict.fromkeys(files, 1))
    expired_files.write_note(table.state, {1}, named)
    before = table.files()
    assert table.remove() == Removed()
    link.unlink()
    assert {each for each in before if NOTE not in each.name and each.exists()} == table.files()
    assert outside.exists()
    table.expect_kept(1)


def test_a_table_that_shares_its_files_is_left_alone(table):
    table.expire()
    table.lake.spark.sql(f"ALTER TABLE {table.sql} SET TBLPROPERTIES ('gc.enabled' = 'false')")
    table.lake._lake.changed(table.state.identifier)
    assert table.remove() == Removed()
    assert len(table.notes()) == 1


def test_a_table_that_was_dropped_meanwhile_is_no_error(table, lake, namespace):
    table.expire()
    state = table.state
    lake.spark.sql(f"DROP TABLE {table.sql}")
    lake._lake.changed()
    assert remove_forgotten(lake._lake, state.identifier, _SETTINGS, _no_pause) == Removed()


# ----------------------------------------------------------------------------------- many versions


@pytest.fixture
def client(lake) -> Iterator[DuckDBClient]:
    with (
        Server(lake, "grpc://127.0.0.1:0") as server,
        DuckDBClient(server.location, lake.name, timeout=60) as client,
    ):
        yield client.attach()


def test_statements_go_on_after_versions_are_forgotten(lake, namespace, client, monkeypatch):
    """Small statements, which the server commits by itself; manifests were joined meanwhile."""
    table = _Table(lake, namespace, changes=0)
    for number in range(1, 131):
        values = [[number], [number], [f"row {number}"]]
        client.insert(namespace, "t", pa.table(values, schema=COLUMNS))
        table.rows.append([*table.rows[-1], number])
        if number % 50 == 0:
            with monkeypatch.context() as patch:  # DuckDB never says that a transaction has ended
                patch.setattr(Transactions, "snapshots_read", lambda *_: set())
                assert table.expire(replace(_SETTINGS, keep_versions=10, most_versions=10))
                table.remove()
            table.expect_clean()
    table.expect_kept(91)
    ids = client.scan(namespace, "t")["id"].to_pylist()
    assert sorted(ids) == table.rows[-1]
