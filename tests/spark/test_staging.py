"""Staging: what a statement writes is removed unless it is committed.

After a server was killed, the next one removes it.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.spark.lake_tables import create, data_files, drop, find, folder, insert, sql_name, values

from sparkport.errors import PreconditionFailed
from sparkport.spark import LakeCatalog
from sparkport.spark.iceberg.identifiers import Identifier
from sparkport.spark.lake.heading import Heading
from sparkport.spark.lake.iceberg_commit import begin, commit
from sparkport.spark.lake.liveness import FILES, Machine
from sparkport.spark.lake.staging import StagingArea
from sparkport.spark.write.data_files import DataFileWriter, java_data_file
from sparkport.spark.write.sweep import sweep

_TABLE = Identifier("lake", ("a",), "t")


@pytest.fixture
def area(tmp_path: Path) -> Iterator[StagingArea]:
    area = StagingArea(tmp_path / "staging")
    yield area
    area.close()


def _left(root: Path) -> list[str]:
    """The names of what is in the folder, except locks."""
    return sorted(
        path.name for path in root.rglob("*") if path.is_file() and path.name not in FILES
    )


# ----------------------------------------------------------------------------------- one statement


def test_a_statement_that_writes_nothing_leaves_no_trace(area: StagingArea) -> None:
    area.begin(_TABLE).done()
    area.begin(_TABLE).discard()
    assert not area.root.exists()


def test_files_are_noted_before_they_are_made_and_stay_when_it_is_committed(
    area: StagingArea, tmp_path: Path
) -> None:
    staging = area.begin(_TABLE)
    place = tmp_path / "file"
    staging.will_write(f"file://{place}", f"file://{tmp_path}/other")
    staging.will_branch("b")
    (journal,) = area.folder().glob("*.journal")
    lines = [json.loads(line) for line in journal.read_text().splitlines()]
    assert lines[0] == {
        "table": ["lake", ["a"], "t"],
        "uuid": "",
        "metadata": "",
        "places": [],
    }
    assert lines[1:] == [
        {"file": f"file://{place}"},
        {"file": f"file://{tmp_path}/other"},
        {"branch": "b"},
    ]
    place.touch()
    (staging.folder / "staged").touch()
    staging.done()
    assert place.exists()
    assert _left(area.root) == []


def test_what_is_discarded_is_gone(area: StagingArea, tmp_path: Path) -> None:
    staging = area.begin(_TABLE)
    place = tmp_path / "file"
    staging.will_write(f"file://{place}", f"file://{tmp_path}/never-made")
    place.touch()
    (staging.folder / "staged").touch()
    staging.discard()
    staging.discard()
    assert not place.exists()
    assert _left(area.root) == []


def test_what_cannot_be_removed_is_left_to_the_next_server(
    area: StagingArea, tmp_path: Path
) -> None:
    staging = area.begin(_TABLE)
    (tmp_path / "a folder").mkdir()
    staging.will_write(f"file://{tmp_path}/a folder")
    staging.discard()
    assert _left(area.root) == [f"{staging.id}.journal"]


def test_a_statement_of_unknown_end_leaves_its_files_and_its_journal(
    area: StagingArea, tmp_path: Path
) -> None:
    staging = area.begin(_TABLE)
    place = tmp_path / "file"
    staging.will_write(str(place))
    place.touch()
    (staging.folder / "staged").touch()
    staging.leave()
    assert place.exists()
    assert _left(area.root) == [f"{staging.id}.journal"]


def test_a_staging_area_that_cannot_be_made_is_told_without_its_place(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    area = StagingArea(tmp_path / "file" / "staging")
    with pytest.raises(
        PreconditionFailed, match=r"storage of table a\.t does not take new files"
    ) as caught:
        area.begin(_TABLE).will_write("x")
    assert str(tmp_path) not in str(caught.value)


def test_a_server_that_closes_leaves_nothing(area: StagingArea) -> None:
    area.begin(_TABLE).will_write("x")
    own = area.folder()
    area.close()
    assert own.exists(), "there is a journal"
    area.begin(_TABLE).folder.rmdir()
    assert area.folder() != own
    area.close()
    assert [path.name for path in area.root.iterdir()] == [own.name]


# ---------------------------------------------------------------------------------------- sweeping


class _Server:
    """A server on the lake that can die: its lock is released, and it removes nothing."""

    def __init__(self, lake: LakeCatalog) -> None:
        self._lake: Any = lake._lake
        self.area = StagingArea(self._lake.staging.root)

    def write(self, table: Any, *, is_committed: bool) -> str:
        """Write a row, and return its file."""
        draft = begin(self._lake, table.state.identifier)
        staging = self.area.begin(draft.identifier, draft.state)
        (staging.folder / "staged").touch()
        writer = DataFileWriter(draft.state, staging)
        writer.write(pa.table({"id": [7]}))
        (file,) = writer.finish()
        if is_committed:
            append = draft.transaction.newAppend()
            append.appendFile(java_data_file(self._lake, draft.transaction.table(), file))
            append.commit()
            assert commit(draft)
            self._lake.changed(draft.identifier)
        return file.path.rpartition("/")[2]

    def die(self) -> Path:
        own = self.area.folder()
        assert self.area._life is not None
        self.area._life.end()
        return own


@pytest.fixture
def server(lake: LakeCatalog) -> _Server:
    return _Server(lake)


def _sweep(lake: LakeCatalog) -> None:
    sweep(lake._lake.staging.root, lake._lake)


def test_files_of_a_dead_server_that_no_table_knows_are_removed(
    lake: LakeCatalog, namespace: str, server: _Server
) -> None:
    create(lake, namespace, "t")
    insert(lake, namespace, "t", "(1, 10, 'a')")
    before = data_files(find(lake, namespace, "t"))
    made = server.write(find(lake, namespace, "t"), is_committed=False)
    _sweep(lake)
    assert made in data_files(find(lake, namespace, "t")), "the server lives"
    own = server.die()
    _sweep(lake)
    assert data_files(find(lake, namespace, "t")) == before
    assert values(find(lake, namespace, "t"), "id") == [1]
    assert not own.exists()


def test_a_file_that_was_committed_just_before_the_end_stays(
    lake: LakeCatalog, namespace: str, server: _Server
) -> None:
    create(lake, namespace, "t")
    server.write(find(lake, namespace, "t"), is_committed=True)
    lake.spark.sql(f"DELETE FROM {sql_name(lake, namespace, 't')}")
    insert(lake, namespace, "t", "(1, 10, 'a')")
    own = server.die()
    _sweep(lake)
    old = lake.spark.sql(
        f"SELECT snapshot_id FROM {sql_name(lake, namespace, 't')}.snapshots ORDER BY committed_at"
    )
    first = old.collect()[0][0]
    found = lake.spark.sql(
        f"SELECT id FROM {sql_name(lake, namespace, 't')} VERSION AS OF {first}"
    ).collect()
    assert [row[0] for row in found] == [7], "a snapshot that is not the present one leads to it"
    assert not own.exists()


def test_a_table_is_known_under_another_name(
    lake: LakeCatalog, namespace: str, server: _Server
) -> None:
    create(lake, namespace, "t")
    server.write(find(lake, namespace, "t"), is_committed=True)
    made = server.write(find(lake, namespace, "t"), is_committed=False)
    server.die()
    lake.spark.sql(
        f"ALTER TABLE {sql_name(lake, namespace, 't')} RENAME TO `{namespace}`.`renamed`"
    )
    create(lake, namespace, "t")
    _sweep(lake)
    table = find(lake, namespace, "renamed")
    assert made not in data_files(table)
    assert values(table, "id") == [7]


def test_files_of_a_table_that_was_dropped_are_not_looked_for_once_they_are_gone(
    lake: LakeCatalog, namespace: str, server: _Server
) -> None:
    create(lake, namespace, "t")
    table = find(lake, namespace, "t")
    made = server.write(table, is_committed=False)
    own = server.die()
    drop(lake, namespace, "t")
    orphan = folder(table) / "data" / made
    orphan.parent.mkdir(parents=True, exist_ok=True)
    orphan.touch()
    _sweep(lake)
    assert orphan.exists(), "nobody says any more that it was the table's"
    assert len(_left(own)) == 1
    orphan.unlink()
    _sweep(lake)
    assert not own.exists()


def test_what_is_not_certain_stays(
    lake: LakeCatalog, namespace: str, server: _Server, tmp_path: Path
) -> None:
    """The table is only known by its metadata: another catalog may have it now."""
    (tmp_path / "v1.metadata.json").touch()
    precious = tmp_path / "precious"
    precious.touch()
    staging = server.area.begin(Identifier(lake.spark_catalog, (namespace,), "gone"))
    journal: Any = staging._journal
    metadata = str(tmp_path / "v1.metadata.json")
    journal._heading = Heading(staging.identifier, "x", metadata)
    staging.will_write(str(precious))
    unknown = server.area.begin(Identifier(lake.spark_catalog, (namespace,), "unknown"))
    unknown.will_write(str(precious))
    own = server.die()
    _sweep(lake)
    assert precious.exists()
    assert _left(own) == sorted(f"{each.id}.journal" for each in (staging, unknown))


def test_only_servers_of_this_machine_and_statements_of_this_catalog(
    lake: LakeCatalog,
    namespace: str,
    server: _Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    precious = tmp_path / "precious"
    precious.touch()
    server.area.begin(Identifier("another", (namespace,), "t")).will_write(str(precious))
    own = server.die()
    monkeypatch.setattr(Machine, "this", lambda: Machine("elsewhere", "another"))
    there = _Server(lake)
    there.area.begin(Identifier(lake.spark_catalog, (namespace,), "t")).folder.joinpath(
        "staged"
    ).touch()
    theirs = there.die()
    monkeypatch.undo()
    _sweep(lake)
    assert precious.exists()
    assert len(_left(own)) == 1
    assert _left(theirs) == ["staged"]


def test_branches_are_removed_and_then_what_only_they_knew(
    lake: LakeCatalog, namespace: str, server: _Server
) -> None:
    create(lake, namespace, "t")
    insert(lake, namespace, "t", "(1, 10, 'a')")
    table = find(lake, namespace, "t")
    staging = server.area.begin(table.state.identifier, table.state)
    staging.will_branch("sparkport_x")
    lake.spark.sql(f"ALTER TABLE {sql_name(lake, namespace, 't')} CREATE BRANCH sparkport_x")
    server.die()
    _sweep(lake)
    assert set(find(lake, namespace, "t").state.metadata.refs) == {"main"}
    assert values(find(lake, namespace, "t"), "id") == [1]


def test_a_journal_that_was_cut_off_is_read_as_far_as_it_goes(
    lake: LakeCatalog, namespace: str, server: _Server
) -> None:
    create(lake, namespace, "t")
    made = server.write(find(lake, namespace, "t"), is_committed=False)
    own = server.die()
    (journal,) = own.glob("*.journal")
    with journal.open("a") as file:
        file.write('{"file": "file:///tm')
    (own / "empty.journal").touch()
    _sweep(lake)
    assert made not in data_files(find(lake, namespace, "t"))
    assert not own.exists()


def test_as_long_as_the_jvm_of_a_dead_server_runs_nothing_is_removed(
    lake: LakeCatalog, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The JVM may be about to commit."""
    monkeypatch.setattr("sparkport.spark.lake.liveness._SECONDS_TO_END", 0.1)
    create(lake, namespace, "t")
    server = _Server(lake)
    made = server.write(find(lake, namespace, "t"), is_committed=False)
    own = server.die()
    release = lake._lake.gateway.hold(own / "jvm.lock")
    _sweep(lake)
    assert made in data_files(find(lake, namespace, "t"))
    release()
    _sweep(lake)
    assert made not in data_files(find(lake, namespace, "t"))
    assert not own.exists()


_KILLED = """
import sys, time
from pathlib import Path
from sparkport.spark.iceberg.identifiers import Identifier
from sparkport.spark.lake.staging import StagingArea
staging = StagingArea(Path(sys.argv[1])).begin(Identifier(sys.argv[2], (sys.argv[3],), "t"))
staging.folder.joinpath("staged").touch()
print("ready", flush=True)
time.sleep(60)
"""


def test_the_lock_of_a_killed_process_is_free(lake: LakeCatalog, namespace: str) -> None:
    create(lake, namespace, "t")
    root = lake._lake.staging.root
    before = set(root.iterdir()) if root.exists() else set()
    arguments = [str(root), lake.spark_catalog, namespace]
    with subprocess.Popen(
        [sys.executable, "-c", _KILLED, *arguments], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        (own,) = set(root.iterdir()) - before
        _sweep(lake)
        assert _left(own) == ["staged"]
        process.send_signal(signal.SIGKILL)
        process.wait(10)
        _sweep(lake)
        assert not own.exists()
