"""What servers that have died have left in a real object store is removed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.spark.lake_tables import create, find, sql_name, values
from tests.spark.store.statements import Server, add, delete, objects, sweep_now

from sparkport.spark import LakeCatalog, LakeSettings
from sparkport.spark.iceberg.locations import storage_at
from sparkport.spark.jvm.session.source import LakeSource
from sparkport.spark.lake import lease as leases
from sparkport.spark.lake.iceberg_commit import begin, commit
from sparkport.spark.lake.liveness import Machine
from sparkport.spark.lake.store_folder import Store
from sparkport.spark.write.data_files import DataFileWriter, java_data_file

_OTHER = Machine("another", "another")


def test_files_of_a_dead_server_that_no_table_knows_are_removed(
    store: LakeCatalog, namespace: str, source: LakeSource, table: Any, server: Server
) -> None:
    before = set(objects(source, "/data/"))
    made = server.write(table)
    sweep_now(store)
    assert made in objects(source), "the server lives"
    server.die()
    sweep_now(store)
    assert set(objects(source, "/data/")) == before
    assert not objects(source, server.id)
    assert values(find(store, namespace, "t"), "id") == [1]


def test_vectors_and_staged_rows_of_a_dead_server_are_removed(
    store: LakeCatalog, source: LakeSource, table: Any, server: Server
) -> None:
    made = server.write(table)
    storage = storage_at(made, source.options)
    vector = made.replace(".parquet", "-deletes.puffin")
    rows = f"{source.warehouse}/.sparkport/{server.id}/rows/x/0.parquet"
    for each in (vector, rows):
        storage.write(each, b"x")
    server.die()
    sweep_now(store)
    assert not objects(source, server.id)


def test_what_the_dead_server_has_committed_stays(
    store: LakeCatalog, namespace: str, source: LakeSource, table: Any, server: Server
) -> None:
    area = store._lake.staging
    store._lake.staging = server.area
    try:
        add(store, namespace, 2)
        delete(find(store, namespace, "t"), 0).commit()
    finally:
        store._lake.staging = area
    version = len(find(store, namespace, "t").state.metadata.metadata_log)
    server.die()
    kept = set(objects(source, server.id)) - set(objects(source, "/.sparkport/"))
    assert len(kept) == 2
    sweep_now(store)
    assert set(objects(source, server.id)) == kept
    now = find(store, namespace, "t")
    assert values(now, "id") == [2]
    assert len(now.state.metadata.metadata_log) == version, "there was nothing to remove"


def test_a_commit_of_the_dead_server_that_comes_late_is_not_made(
    store: LakeCatalog, namespace: str, source: LakeSource, table: Any, server: Server
) -> None:
    """Its request was on its way to the catalog when its machine stopped."""
    state = table.state
    writer = DataFileWriter(state, server.area.begin(state.identifier, state))
    writer.write(pa.table({"id": [7]}))
    (file,) = writer.finish()
    draft = begin(store._lake, state.identifier)
    append = draft.transaction.newAppend()
    append.appendFile(java_data_file(store._lake, draft.transaction.table(), file))
    append.commit()
    server.die()
    sweep_now(store)
    assert file.path not in objects(source)
    assert not commit(draft)
    store._lake.changed()
    assert values(find(store, namespace, "t"), "id") == [1]


def test_a_server_of_another_machine_is_dead_when_its_lease_is_old(
    store: LakeCatalog,
    source: LakeSource,
    table: Any,
    server: Server,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as there:
        there.setattr(Machine, "this", lambda: _OTHER)
        made = server.write(table)
        server.die()
    sweep_now(store)
    assert made in objects(source)
    monkeypatch.setattr(leases, "_SILENT_SECONDS", -60.0)  # as if it were written long ago
    sweep_now(store)
    assert not objects(source, server.id)
    assert not objects(source, leases.PROBE)


def test_a_probe_that_was_left_is_removed(
    store: LakeCatalog, source: LakeSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    probe = f"{source.warehouse}/.sparkport/{leases.PROBE}1"
    storage_at(probe, source.options).write(probe, b"")
    sweep_now(store)
    assert objects(source, leases.PROBE) == [probe]
    monkeypatch.setattr(leases, "_SILENT_SECONDS", -60.0)
    sweep_now(store)
    assert not objects(source, leases.PROBE)


def test_a_table_is_known_under_another_name(
    store: LakeCatalog, namespace: str, source: LakeSource, table: Any, server: Server
) -> None:
    made = server.write(table)
    server.die()
    target = f"`{namespace}`.`renamed`"
    store.spark.sql(f"ALTER TABLE {sql_name(store, namespace, 't')} RENAME TO {target}")
    create(store, namespace, "t")
    sweep_now(store)
    assert made not in objects(source)
    assert values(find(store, namespace, "renamed"), "id") == [1]


def test_branches_of_a_dead_server_are_removed(
    store: LakeCatalog, namespace: str, table: Any, server: Server
) -> None:
    staging = server.area.begin(table.state.identifier, table.state)
    own, other = f"sparkport_{server.id}1", "sparkport_of_another"
    staging.will_branch(own)
    for branch in (own, other):
        store.spark.sql(f"ALTER TABLE {sql_name(store, namespace, 't')} CREATE BRANCH {branch}")
    store._lake.changed()
    server.die()
    sweep_now(store)
    assert set(find(store, namespace, "t").state.metadata.refs) == {"main", other}


_KILLED = """
import json, sys
from pathlib import Path
import pyarrow as pa
from sparkport.spark.iceberg.identifiers import Identifier
from sparkport.spark.iceberg.file_io import StorageIO
from sparkport.spark.iceberg.table_state import States, metadata_text
from sparkport.spark.lake.staging import StagingArea
from sparkport.spark.lake.store_folder import Store
from sparkport.spark.write.data_files import DataFileWriter
said = json.loads(sys.stdin.readline())
properties = said["properties"]
io = StorageIO(lambda: properties)
identifier = Identifier(said["catalog"], (said["namespace"],), "t")
state = States().add(identifier, said["metadata"], metadata_text(io, said["metadata"]), io)
store = Store(said["store"], lambda: properties, for_rows=True)
staging = StagingArea(Path(said["root"]), properties, None, store).begin(identifier, state)
storage, location = staging.for_spark("rows")
storage.write(location, b"x")
(staging.folder / "waiting").touch()
writer = DataFileWriter(state, staging)
writer.write(pa.table({"id": [7]}))
writer.finish()
print(staging.folder, flush=True)
sys.stdin.readline()
"""


def test_nothing_is_left_of_a_killed_server_after_the_next_start(
    store: LakeCatalog, namespace: str, source: LakeSource, table: Any
) -> None:
    add(store, namespace, 2)  # the server's own note is there
    table = find(store, namespace, "t")
    area = store._lake.staging
    assert area.store is not None
    before = set(objects(source))
    said = {
        "properties": dict(source.options),
        "catalog": store.spark_catalog,
        "namespace": namespace,
        "metadata": table.state.metadata_location,
        "store": area.store.root,
        "root": str(area.root),
    }
    with subprocess.Popen(
        [sys.executable, "-c", _KILLED],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(f"{json.dumps(said)}\n")
        process.stdin.flush()
        folder = Path(process.stdout.readline().strip())
        assert folder.exists()
        assert len(set(objects(source)) - before) == 3
        sweep_now(store)
        assert len(set(objects(source)) - before) == 3, "it lives"
        process.send_signal(signal.SIGKILL)
        process.wait(10)
    with LakeCatalog(source=source, name="store", settings=LakeSettings()):
        pass
    store._lake.changed()
    after = set(objects(source)) - before
    assert {each.rpartition(".")[2] for each in after} == {"json"}, "a commit keeps late ones out"
    assert not folder.parent.exists()
    assert values(find(store, namespace, "t"), "id") == [1, 2]


@pytest.mark.parametrize("gives_out_keys", [False, True])
def test_a_catalog_may_give_out_the_only_keys_of_the_store(
    store: LakeCatalog, monkeypatch: pytest.MonkeyPatch, gives_out_keys: bool
) -> None:
    def refuse(_: Store) -> None:
        raise OSError("these are not the keys")

    area = store._lake.staging
    monkeypatch.setattr(area, "store", area.store)
    monkeypatch.setattr(Store, "storage", refuse)
    choice = property(lambda _: gives_out_keys)
    monkeypatch.setattr(type(store._lake.catalog), "chooses_folders", choice)
    sweep_now(store)
    assert (area.store is None) is gives_out_keys
