"""A lake in a real object store: what statements and servers leave there, which is nothing."""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.parts.s3 import S3Server, s3_server
from tests.spark.lake_tables import CTX, create, drop, find, insert, sql_name, values

from sparkport.catalog import Context, CreateSchemaOptions, DMLOptions, Operation
from sparkport.errors import Conflict, SparkportError
from sparkport.spark import LakeCatalog, LakeSettings
from sparkport.spark.iceberg.locations import storage_at
from sparkport.spark.jvm.session.embedded import need_jars
from sparkport.spark.jvm.session.jars import AWS, SQLITE
from sparkport.spark.jvm.session.source import LakeSource
from sparkport.spark.lake import lease as leases
from sparkport.spark.lake.lake import Lake
from sparkport.spark.lake.lease import Holder
from sparkport.spark.lake.liveness import Machine
from sparkport.spark.lake.staging import StagingArea
from sparkport.spark.lake.store_folder import table_digits
from sparkport.spark.write import commit as commits
from sparkport.spark.write.data_files import DataFileWriter
from sparkport.spark.write.sweep import sweep

pytestmark = [pytest.mark.spark, pytest.mark.timeout(280)]

_OTHER = Machine("another", "another")


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Server]:
    with s3_server() as server:
        yield server


@pytest.fixture(scope="module")
def source(s3: S3Server, tmp_path_factory: pytest.TempPathFactory) -> LakeSource:
    database = tmp_path_factory.mktemp("catalog") / "catalog.db"
    return LakeSource("jdbc", f"s3://{s3.bucket}/w", f"jdbc:sqlite:{database}", s3.options())


@pytest.fixture(scope="module")
def store(source: LakeSource) -> Iterator[LakeCatalog]:
    need_jars([AWS, SQLITE])
    with LakeCatalog(source=source, name="store") as catalog:
        assert catalog._lake.staging.store is not None
        yield catalog
    left = storage_at(source.warehouse, source.options).files_below(source.warehouse)
    assert [each for each in left if "/.sparkport/" in each] == []


@pytest.fixture
def namespace(store: LakeCatalog) -> str:
    name = f"n{secrets.token_hex(4)}"
    store.create_schema(CTX, name, CreateSchemaOptions())
    return name


@pytest.fixture
def table(store: LakeCatalog, namespace: str) -> Any:
    create(store, namespace, "t")
    _insert(store, namespace, 1)
    return find(store, namespace, "t")


def _objects(source: LakeSource, inside: str = "") -> list[str]:
    """The names of all objects, without leases: the server renews its own at any time."""
    storage = storage_at(source.warehouse, source.options)
    return [
        each
        for each in storage.files_below(source.warehouse)
        if inside in each and "/lease-" not in each
    ]


def _rows(table: Any, *ids: int) -> pa.RecordBatch:
    values = {"id": ids, "v": [10] * len(ids), "name": ["a"] * len(ids)}
    return pa.record_batch(values, schema=pa.schema(list(table.arrow_schema)[:3]))


def _insert(lake: LakeCatalog, namespace: str, *ids: int) -> None:
    table = find(lake, namespace, "t")
    write = table.stage(Context(), Operation.INSERT, DMLOptions())
    write.apply(_rows(table, *ids))
    write.commit()


def _delete(table: Any, row_id: int) -> Any:
    write = table.stage(Context(), Operation.DELETE, DMLOptions())
    name = table.arrow_schema.names[-1]
    write.apply(pa.record_batch({name: pa.array([row_id], pa.int64())}))
    return write


# ------------------------------------------------------------------------------------- statements


def test_statements_need_no_more_objects_than_icebergs(
    store: LakeCatalog, namespace: str, source: LakeSource, table: Any
) -> None:
    staged = set(_objects(source, "/.sparkport/"))
    before = set(_objects(source))
    _insert(store, namespace, 2)
    _delete(find(store, namespace, "t"), 0).commit()
    new = set(_objects(source)) - before
    kinds = sorted(each.rpartition(".")[2] for each in new)
    assert kinds == ["avro"] * 4 + ["json"] * 2 + ["parquet", "puffin"]
    assert set(_objects(source, "/.sparkport/")) == staged
    assert values(find(store, namespace, "t"), "id") == [2]


@pytest.mark.parametrize("failure", ["before the commit", "by another writer", "cancelled"])
@pytest.mark.parametrize("operation", ["insert", "delete"])
def test_a_statement_that_fails_leaves_no_object(
    store: LakeCatalog,
    namespace: str,
    source: LakeSource,
    s3: S3Server,
    table: Any,
    monkeypatch: pytest.MonkeyPatch,
    failure: str,
    operation: str,
) -> None:
    before = set(_objects(source))
    if operation == "insert":
        write = table.stage(Context(), Operation.INSERT, DMLOptions())
        write.apply(_rows(table, *range(5000)))
    else:
        write = _delete(table, 0)
    if failure == "cancelled":
        write.abort()
    else:
        if failure == "before the commit":
            real = commits.add_rows

            def refused(*arguments: Any, **options: Any) -> None:
                real(*arguments, **options)
                raise Conflict("no")

            monkeypatch.setattr(commits, "add_rows", refused)
        else:
            monkeypatch.setattr(commits, "commit", lambda *_: False)
            monkeypatch.setattr(commits, "_SECONDS_TO_TRY", 0.5)
        with pytest.raises(SparkportError):
            write.commit()
    assert set(_objects(source)) == before
    if s3.folder is not None:
        assert s3.uploads_under_way() == 0
    assert values(find(store, namespace, "t"), "id") == [1]


def test_a_transaction_leaves_no_object_of_its_branch(
    store: LakeCatalog, namespace: str, source: LakeSource, table: Any
) -> None:
    ctx = Context(transaction_id=store.begin_transaction(CTX))
    for number in (2, 3):
        write = find(store, namespace, "t").stage(ctx, Operation.INSERT, DMLOptions())
        write.apply(_rows(table, number))
        write.commit()
    lake = store._lake
    assert ctx.transaction_id is not None
    assert ctx.transaction_id.startswith(lake.staging.prefix())
    before = set(_objects(source, table.state.metadata.location))
    store.rollback_transaction(ctx, ctx.transaction_id)
    after = set(_objects(source, table.state.metadata.location))
    gone, new = before - after, after - before
    assert len([each for each in gone if each.endswith((".parquet", ".avro"))]) == 6
    assert {each.rpartition(".")[2] for each in new} == {"json"}
    assert values(find(store, namespace, "t"), "id") == [1]


def test_the_folder_of_a_dropped_table_is_gone(
    store: LakeCatalog, namespace: str, source: LakeSource, table: Any
) -> None:
    place = f"{table.state.metadata.location}/"
    assert _objects(source, place)
    drop(store, namespace, "t")
    assert _objects(source, place) == []


def test_the_files_of_a_dropped_view_are_gone(
    store: LakeCatalog, namespace: str, source: LakeSource
) -> None:
    create(store, namespace, "t")
    view = sql_name(store, namespace, "seen")
    for text in ("SELECT 1 AS a", "SELECT 2 AS a"):  # two versions, compressed
        store.spark.sql(f"CREATE OR REPLACE VIEW {view} AS {text}")
    store._lake.changed()
    assert len(_objects(source, f"/{namespace}/seen/")) == 2
    drop(store, namespace, "seen")
    assert _objects(source, f"/{namespace}/seen/") == []


@pytest.mark.parametrize("operation", ["insert", "update"])
def test_spark_reads_rows_that_were_staged_in_the_store(
    source: LakeSource,
    store: LakeCatalog,
    namespace: str,
    table: Any,
    monkeypatch: pytest.MonkeyPatch,
    operation: str,
) -> None:
    """As on a cluster: executors have none of this machine's files."""
    area = store._lake.staging
    assert area.store is not None
    monkeypatch.setattr(area, "store", replace(area.store, for_rows=True))
    monkeypatch.setattr("sparkport.spark.write.statements.can_write", lambda _: False)
    if operation == "insert":
        _insert(store, namespace, *range(2, 102))
        expected = list(range(1, 102))
    else:
        write = table.stage(Context(), Operation.UPDATE, DMLOptions())
        rows = pa.record_batch({"id": [7], "rowid": pa.array([0], pa.int64())})
        write.apply(rows)
        write.commit()
        expected = [7]
    assert sorted(values(find(store, namespace, "t"), "id")) == expected
    assert _objects(source, "/rows/") == []
    plans = "\n".join(str(each) for each in _plans(store))
    assert source.options["s3.secret-access-key"] not in plans


def _plans(store: LakeCatalog) -> Iterator[str]:
    executions: Any = store.spark._jsparkSession.sharedState().statusStore().executionsList()
    for index in range(executions.size()):
        yield str(executions.apply(index).physicalPlanDescription())


# ------------------------------------------------------------------------------------ dead servers


class _Server:
    """Another server on the lake, which can die: its lock is free, and it removes nothing."""

    def __init__(self, catalog: LakeCatalog) -> None:
        self._lake: Lake = catalog._lake
        before = self._lake.staging
        self.area = StagingArea(before.root, store=before.store)
        self.id = self.area.prefix()

    def write(self, table: Any) -> str:
        """Write a row, and return the location of its file."""
        state = table.state
        writer = DataFileWriter(state, self.area.begin(state.identifier, state))
        writer.write(pa.table({"id": [7]}))
        (file,) = writer.finish()
        return file.path

    def die(self) -> None:
        in_store = self.area._in_store
        assert in_store is not None
        assert in_store._lease is not None
        in_store._lease.end(is_kept=True)
        assert self.area._life is not None
        self.area._life.end()


@pytest.fixture
def server(store: LakeCatalog) -> _Server:
    return _Server(store)


def _sweep(lake: LakeCatalog) -> None:
    sweep(lake._lake.staging.root, lake._lake)


def test_files_of_a_dead_server_that_no_table_knows_are_removed(
    store: LakeCatalog, namespace: str, source: LakeSource, table: Any, server: _Server
) -> None:
    before = set(_objects(source, "/data/"))
    made = server.write(table)
    _sweep(store)
    assert made in _objects(source), "the server lives"
    server.die()
    _sweep(store)
    assert set(_objects(source, "/data/")) == before
    assert not _objects(source, server.id)
    assert values(find(store, namespace, "t"), "id") == [1]


def test_vectors_and_staged_rows_of_a_dead_server_are_removed(
    store: LakeCatalog, source: LakeSource, table: Any, server: _Server
) -> None:
    made = server.write(table)
    storage = storage_at(made, source.options)
    vector = made.replace(".parquet", "-deletes.puffin")
    rows = f"{source.warehouse}/.sparkport/{server.id}/rows/x/0.parquet"
    for each in (vector, rows):
        storage.write(each, b"x")
    server.die()
    _sweep(store)
    assert not _objects(source, server.id)


def test_what_the_dead_server_has_committed_stays(
    store: LakeCatalog, namespace: str, source: LakeSource, table: Any, server: _Server
) -> None:
    area = store._lake.staging
    store._lake.staging = server.area
    try:
        _insert(store, namespace, 2)
        _delete(find(store, namespace, "t"), 0).commit()
    finally:
        store._lake.staging = area
    version = len(find(store, namespace, "t").state.metadata.metadata_log)
    server.die()
    kept = set(_objects(source, server.id)) - set(_objects(source, "/.sparkport/"))
    assert len(kept) == 2
    _sweep(store)
    assert set(_objects(source, server.id)) == kept
    now = find(store, namespace, "t")
    assert values(now, "id") == [2]
    assert len(now.state.metadata.metadata_log) == version, "there was nothing to remove"


def test_a_commit_of_the_dead_server_that_comes_late_is_not_made(
    store: LakeCatalog, namespace: str, source: LakeSource, table: Any, server: _Server
) -> None:
    """Its request was on its way to the catalog when its machine stopped."""
    from sparkport.spark.lake.iceberg_commit import begin, commit
    from sparkport.spark.write.data_files import java_data_file

    state = table.state
    writer = DataFileWriter(state, server.area.begin(state.identifier, state))
    writer.write(pa.table({"id": [7]}))
    (file,) = writer.finish()
    draft = begin(store._lake, state.identifier)
    append = draft.transaction.newAppend()
    append.appendFile(java_data_file(store._lake, draft.transaction.table(), file))
    append.commit()
    server.die()
    _sweep(store)
    assert file.path not in _objects(source)
    assert not commit(draft)
    store._lake.changed()
    assert values(find(store, namespace, "t"), "id") == [1]


def test_a_server_of_another_machine_is_dead_when_its_lease_is_old(
    store: LakeCatalog,
    source: LakeSource,
    table: Any,
    server: _Server,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as there:
        there.setattr(Machine, "this", lambda: _OTHER)
        made = server.write(table)
        server.die()
    _sweep(store)
    assert made in _objects(source)
    monkeypatch.setattr(leases, "_SILENT_SECONDS", -60.0)  # as if it were written long ago
    _sweep(store)
    assert not _objects(source, server.id)
    assert not _objects(source, leases.PROBE)


def test_a_probe_that_was_left_is_removed(
    store: LakeCatalog, source: LakeSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    probe = f"{source.warehouse}/.sparkport/{leases.PROBE}1"
    storage_at(probe, source.options).write(probe, b"")
    _sweep(store)
    assert _objects(source, leases.PROBE) == [probe]
    monkeypatch.setattr(leases, "_SILENT_SECONDS", -60.0)
    _sweep(store)
    assert not _objects(source, leases.PROBE)


def test_a_table_is_known_under_another_name(
    store: LakeCatalog, namespace: str, source: LakeSource, table: Any, server: _Server
) -> None:
    made = server.write(table)
    server.die()
    target = f"`{namespace}`.`renamed`"
    store.spark.sql(f"ALTER TABLE {sql_name(store, namespace, 't')} RENAME TO {target}")
    create(store, namespace, "t")
    _sweep(store)
    assert made not in _objects(source)
    assert values(find(store, namespace, "renamed"), "id") == [1]


def test_branches_of_a_dead_server_are_removed(
    store: LakeCatalog, namespace: str, table: Any, server: _Server
) -> None:
    staging = server.area.begin(table.state.identifier, table.state)
    own, other = f"sparkport_{server.id}1", "sparkport_of_another"
    staging.will_branch(own)
    for branch in (own, other):
        store.spark.sql(f"ALTER TABLE {sql_name(store, namespace, 't')} CREATE BRANCH {branch}")
    store._lake.changed()
    server.die()
    _sweep(store)
    assert set(find(store, namespace, "t").state.metadata.refs) == {"main", other}


# ----------------------------------------------------------------------------- notes that are wrong


class _Planted:
    """The folder of a server that seems to have died, with a note about a table."""

    def __init__(self, source: LakeSource, lake: LakeCatalog, table: Any) -> None:
        self.server = secrets.token_hex(8)
        self.heading: dict[str, Any] = {
            "table": [table.identifier.catalog, list(table.identifier.namespace), table.name],
            "uuid": str(table.state.metadata.table_uuid),
            "metadata": table.state.metadata_location,
            "places": [table.state.metadata.location],
        }
        self._folder = f"{source.warehouse}/.sparkport/{self.server}"
        self._storage = storage_at(self._folder, source.options)
        root = lake._lake.staging.root
        root.mkdir(mode=0o700, exist_ok=True)
        holder = Holder.of(root / secrets.token_hex(16))  # a folder that is gone
        names = {each: getattr(holder, each) for each in Holder.__slots__}
        self._storage.write(f"{self._folder}/lease-00000001", json.dumps(names).encode())
        self.note = f"{self._folder}/tables/{self.heading['uuid']}"

    def name(self, table: Any, place: str | None = None) -> str:
        """Make a file that bears the ids of the server and of a table."""
        ids = f"{self.server}{table_digits(str(table.state.metadata.table_uuid))}"
        folder = place or f"{table.state.metadata.location}/data"
        location = f"{folder}/{ids}{'0' * 16}-{'0' * 16}.parquet"
        self._storage.write(location, b"x")
        return location

    def plant(self) -> None:
        self._storage.write(self.note, json.dumps(self.heading).encode())

    def remove(self) -> None:
        for each in self._storage.files_below(self._folder):
            self._storage.delete(each)


@pytest.fixture
def planted(source: LakeSource, store: LakeCatalog, table: Any) -> Iterator[_Planted]:
    planted = _Planted(source, store, table)
    yield planted
    planted.remove()


def test_what_a_note_leads_to_is_removed(
    store: LakeCatalog, source: LakeSource, table: Any, planted: _Planted
) -> None:
    planted.name(table)
    planted.plant()
    _sweep(store)
    assert not _objects(source, planted.server)


def test_a_note_that_names_another_tables_files_removes_nothing(
    store: LakeCatalog, namespace: str, source: LakeSource, table: Any, planted: _Planted
) -> None:
    create(store, namespace, "other")
    other = find(store, namespace, "other")
    precious = [
        planted.name(other),
        planted.name(table, f"{source.warehouse}/elsewhere"),
        planted.name(other, f"{table.state.metadata.location}/data"),
    ]
    planted.heading["places"] = [source.warehouse, other.state.metadata.location]
    planted.plant()
    _sweep(store)
    assert set(precious) <= set(_objects(source))
    for each in precious:
        storage_at(each, source.options).delete(each)


@pytest.mark.parametrize(
    "change",
    [
        {"uuid": "00000000-0000-0000-0000-000000000000"},
        {"table": ["another", ["a"], "t"]},
        {"places": ["/"], "uuid": "x", "table": ["store", ["no"], "such"]},
        {"table": "x"},
        {"table": ["store", ["no"], "such"], "uuid": "of a table that was dropped"},
    ],
)
def test_a_note_that_does_not_fit_the_table_is_not_obeyed(
    store: LakeCatalog, source: LakeSource, table: Any, planted: _Planted, change: dict[str, Any]
) -> None:
    file = planted.name(table)
    planted.heading |= change
    if change.get("uuid"):
        ids = f"{planted.server}{table_digits(change['uuid'])}"
        wrong = f"{table.state.metadata.location}/data/{ids}{'0' * 16}-{'0' * 16}.parquet"
        storage_at(wrong, source.options).write(wrong, b"x")
    else:
        wrong = file
    planted.plant()
    _sweep(store)
    assert {file, wrong, planted.note} <= set(_objects(source))


def test_a_note_that_cannot_be_read_stays(
    store: LakeCatalog, source: LakeSource, table: Any, planted: _Planted
) -> None:
    storage_at(planted.note, source.options).write(planted.note, b"{")
    _sweep(store)
    assert planted.note in _objects(source)


def test_a_table_whose_files_others_may_use_keeps_them(
    store: LakeCatalog,
    namespace: str,
    source: LakeSource,
    table: Any,
    planted: _Planted,
    caplog: pytest.LogCaptureFixture,
) -> None:
    file = planted.name(table)
    planted.plant()
    name = sql_name(store, namespace, "t")
    store.spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('gc.enabled' = 'false')")
    store._lake.changed()
    _sweep(store)
    assert file in _objects(source)
    assert "gc.enabled" in caplog.text
    store.spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('gc.enabled' = 'true')")


def test_files_of_a_table_that_was_registered_twice_stay(
    store: LakeCatalog, namespace: str, source: LakeSource, table: Any, server: _Server
) -> None:
    """The tables have the same uuid, and have gone different ways since."""
    store.spark.sql(
        f"CALL `{store.spark_catalog}`.system.register_table(table => '{namespace}.twin', "
        f"metadata_file => '{table.state.metadata_location}')"
    )
    store._lake.changed()
    area = store._lake.staging
    store._lake.staging = server.area
    try:
        _insert(store, namespace, 2)
    finally:
        store._lake.staging = area
    twin = find(store, namespace, "twin")
    made = server.write(twin)
    server.die()
    _sweep(store)
    assert made not in _objects(source)
    assert values(find(store, namespace, "t"), "id") == [1, 2]
    assert values(find(store, namespace, "twin"), "id") == [1]


def test_a_table_that_was_dropped_with_its_files_is_forgotten(
    store: LakeCatalog, namespace: str, source: LakeSource, table: Any, server: _Server
) -> None:
    server.write(table)
    server.die()
    drop(store, namespace, "t")
    _sweep(store)
    assert not _objects(source, server.id)


# ------------------------------------------------------------------------------------ killed server

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
print("ready", flush=True)
sys.stdin.readline()
"""


def test_nothing_is_left_of_a_killed_server_after_the_next_start(
    store: LakeCatalog, namespace: str, source: LakeSource, table: Any
) -> None:
    _insert(store, namespace, 2)  # the server's own note is there
    table = find(store, namespace, "t")
    area = store._lake.staging
    assert area.store is not None
    before = set(_objects(source)), set(area.root.iterdir())
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
        assert process.stdout.readline() == "ready\n"
        assert len(set(_objects(source)) - before[0]) == 3
        _sweep(store)
        assert len(set(_objects(source)) - before[0]) == 3, "it lives"
        process.send_signal(signal.SIGKILL)
        process.wait(10)
    with LakeCatalog(source=source, name="store", settings=LakeSettings()):
        pass
    store._lake.changed()
    after = set(_objects(source)) - before[0]
    assert {each.rpartition(".")[2] for each in after} == {"json"}, "a commit keeps late ones out"
    assert set(area.root.iterdir()) == before[1]
    assert values(find(store, namespace, "t"), "id") == [1, 2]


def test_a_local_staging_folder_has_journals_for_a_store_too(
    store: LakeCatalog, namespace: str, source: LakeSource, table: Any, tmp_path: Path
) -> None:
    settings = LakeSettings(staging=str(tmp_path / "staging"))
    with LakeCatalog(source=source, name="store", settings=settings) as catalog:
        assert catalog._lake.staging.store is None
        before = set(_objects(source, "/.sparkport/"))
        _insert(catalog, namespace, 2)
        insert(catalog, namespace, "t", "(3, 1, 'a')")
        assert set(_objects(source, "/.sparkport/")) == before
    assert not list((tmp_path / "staging").rglob("*"))
