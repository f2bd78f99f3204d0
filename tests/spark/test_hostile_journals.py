"""Staging folders and journals that are not as they should be.

They are reported, and nothing is removed because of them.
"""

from __future__ import annotations

import importlib
import json
import os
import stat
import tempfile
import uuid
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from tests.spark.lake_tables import create, data_files, find, folder, insert, sql_name, values

from sparkport.catalog import Context, DMLOptions, Operation
from sparkport.errors import Conflict, PreconditionFailed
from sparkport.spark import LakeCatalog, LakeSettings
from sparkport.spark.catalog import _staging_of
from sparkport.spark.iceberg.identifiers import Identifier
from sparkport.spark.lake.liveness import Life
from sparkport.spark.lake.staging import Staging, StagingArea
from sparkport.spark.write.sweep import sweep

_TABLE = Identifier("lake", ("a",), "t")


# -------------------------------------------------------------------------------------- the folder


def test_nobody_else_can_use_the_folders(tmp_path: Path) -> None:
    area = StagingArea(tmp_path / "made" / "staging")
    staging = area.begin(_TABLE)
    for each in (staging.folder, area.folder(), area.root):
        assert stat.S_IMODE(each.stat().st_mode) == 0o700
    staging.done()
    area.close()


@pytest.mark.parametrize("mode", [0o755, 0o775, 0o777])
def test_a_folder_that_others_could_use_is_closed_before_anything_is_in_there(
    tmp_path: Path, mode: int
) -> None:
    """Older versions have made the folder so."""
    (tmp_path / "staging").mkdir()
    (tmp_path / "staging").chmod(mode)
    area = StagingArea(tmp_path / "staging")
    area.folder()
    assert stat.S_IMODE(area.root.stat().st_mode) == 0o700
    area.close()


def _writable(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root.mkdir()
    (root / "planted").mkdir()
    root.chmod(0o770)


def _of_another(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root.mkdir(mode=0o700)
    monkeypatch.setattr(os, "geteuid", lambda: root.stat().st_uid + 1)


def _link(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (root.parent / "elsewhere").mkdir(mode=0o700)
    root.symlink_to(root.parent / "elsewhere")


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (_writable, "can be changed by other users"),
        (_of_another, "belongs to another user"),
        (_link, "is not a folder"),
    ],
)
def test_a_folder_that_is_not_our_own_is_refused_with_the_reason(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    make: Any,
    reason: str,
) -> None:
    root = tmp_path / "staging"
    make(root, monkeypatch)
    area = StagingArea(root)
    for _ in range(2):  # the first look must not make it look better
        with pytest.raises(
            PreconditionFailed, match=f"the staging folder of the server {reason}"
        ) as caught:
            area.begin(_TABLE).will_write("x")
        assert str(tmp_path) not in caught.value.message
    assert str(root) in caplog.text


def test_below_the_temp_folder_every_user_has_another_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This is for a session whose warehouse is elsewhere.

    A user who takes the name must not keep others from writing.
    """
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    session: Any = SimpleNamespace(conf={"spark.sql.warehouse.dir": "s3a://bucket/warehouse"})
    assert _staging_of(session, LakeSettings()) == tmp_path / f".sparkport-staging-{os.geteuid()}"


# ---------------------------------------------------------------------------------------- journals


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "staging").mkdir(mode=0o700)
    return tmp_path / "staging"


class _Planted:
    """A journal of a server that seems to have died, about a table of the lake."""

    def __init__(self, root: Path, table: Any) -> None:
        self.statement = uuid.uuid4().hex
        self.heading = {
            "table": [table.identifier.catalog, list(table.identifier.namespace), table.name],
            "uuid": str(table.state.metadata.table_uuid),
            "metadata": table.state.metadata_location,
        }
        server = root / uuid.uuid4().hex
        server.mkdir()
        Life(server, None).end()
        self.path = server / f"{self.statement}.journal"

    def name(self, **note: str) -> None:
        self.path.write_text("".join(json.dumps(line) + "\n" for line in (self.heading, note)))


@pytest.fixture
def table(lake: LakeCatalog, namespace: str) -> Any:
    create(lake, namespace, "t")
    insert(lake, namespace, "t", "(1, 10, 'a')")
    return find(lake, namespace, "t")


@pytest.fixture
def planted(root: Path, table: Any) -> _Planted:
    return _Planted(root, table)


def test_what_a_journal_may_name_is_removed(
    lake: LakeCatalog, root: Path, table: Any, planted: _Planted
) -> None:
    file = folder(table) / "data" / f"{planted.statement}-0.parquet"
    file.touch()
    planted.name(file=f"file://{file}")
    sweep(root, lake._lake)
    assert not file.exists()
    assert not planted.path.exists()


Place = Callable[[Path, Any, str], tuple[Path, str]]
"""Makes a file, from the test's folder, the table and the statement.

Returns its path, and how a journal names it.
"""


def _outside(own: Path, table: Any, statement: str) -> tuple[Path, str]:
    return own / f"{statement}-0.parquet", f"file://{own}/{statement}-0.parquet"


def _upwards(own: Path, table: Any, statement: str) -> tuple[Path, str]:
    path = folder(table).parent / f"{statement}-0.parquet"
    return path, f"{folder(table)}/data/../../{path.name}"


def _by_link(own: Path, table: Any, statement: str) -> tuple[Path, str]:
    (folder(table) / "data" / "link").symlink_to(own)
    return own / f"{statement}-0.parquet", f"{folder(table)}/data/link/{statement}-0.parquet"


def _beside(own: Path, table: Any, statement: str) -> tuple[Path, str]:
    beside = Path(f"{folder(table)}0")
    beside.mkdir()
    return beside / f"{statement}-0.parquet", f"{beside}/{statement}-0.parquet"


def _of_another_statement(own: Path, table: Any, statement: str) -> tuple[Path, str]:
    """A file of a live server that is about to commit it."""
    path = folder(table) / "data" / f"{uuid.uuid4().hex}-0.parquet"
    return path, f"file://{path}"


@pytest.mark.parametrize("plant", [_outside, _upwards, _by_link, _beside, _of_another_statement])
def test_a_file_that_is_not_the_tables_and_the_statements_stays(
    lake: LakeCatalog,
    root: Path,
    table: Any,
    planted: _Planted,
    tmp_path: Path,
    plant: Place,
    caplog: pytest.LogCaptureFixture,
) -> None:
    precious, name = plant(tmp_path, table, planted.statement)
    precious.touch()
    planted.name(file=name)
    sweep(root, lake._lake)
    assert precious.exists()
    assert planted.path.exists()
    assert f"{planted.statement} of table {table.identifier} names {name!r}" in caplog.text


@pytest.mark.parametrize("own", ["", "00000000-0000-0000-0000-000000000000"])
def test_a_journal_without_the_tables_uuid_is_not_obeyed(
    lake: LakeCatalog,
    root: Path,
    table: Any,
    planted: _Planted,
    own: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    file = folder(table) / "data" / f"{planted.statement}-0.parquet"
    file.touch()
    planted.heading["uuid"] = own
    planted.name(file=str(file))
    sweep(root, lake._lake)
    assert file.exists()
    assert "the table is not found" in caplog.text


def test_a_table_that_never_was_owns_nothing(
    lake: LakeCatalog,
    root: Path,
    table: Any,
    planted: _Planted,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    precious = tmp_path / f"{planted.statement}-0.parquet"
    precious.touch()
    planted.heading |= {
        "table": [lake.spark_catalog, ["no"], "such"],
        "metadata": f"{tmp_path}/no.metadata.json",
    }
    planted.name(file=str(precious))
    sweep(root, lake._lake)
    assert precious.exists()
    assert "the table was dropped: remove by hand" in caplog.text


@pytest.mark.parametrize("branch", ["main", "theirs"])
def test_a_branch_that_is_not_ours_stays(
    lake: LakeCatalog, namespace: str, root: Path, table: Any, planted: _Planted, branch: str
) -> None:
    lake.spark.sql(f"ALTER TABLE {sql_name(lake, namespace, 't')} CREATE BRANCH theirs")
    planted.name(branch=branch)
    sweep(root, lake._lake)
    lake._lake.changed()
    now = find(lake, namespace, "t")
    assert set(now.state.metadata.refs) == {"main", "theirs"}
    assert values(now, "id") == [1]
    assert planted.path.exists()


def test_a_folder_that_others_could_change_is_not_swept(
    lake: LakeCatalog, root: Path, table: Any, planted: _Planted
) -> None:
    file = folder(table) / "data" / f"{planted.statement}-0.parquet"
    file.touch()
    planted.name(file=str(file))
    root.chmod(0o777)
    with pytest.raises(PreconditionFailed, match="can be changed by other users"):
        sweep(root, lake._lake)
    assert file.exists()


# ---------------------------------------------------------------- a server that was taken for dead


@pytest.mark.parametrize(
    ("rows", "step"),
    [
        (5000, "sparkport.spark.write.publish.commit_change"),
        # Few rows are written, and noted, by the commit itself.
        (1, "sparkport.spark.write.commit._put"),
    ],
)
def test_a_statement_whose_journal_was_swept_is_not_committed(
    lake: LakeCatalog,
    namespace: str,
    table: Any,
    monkeypatch: pytest.MonkeyPatch,
    rows: int,
    step: str,
) -> None:
    """Its machine stalled for so long that another server has removed its files."""
    before = data_files(table)
    write = table.stage(Context(), Operation.INSERT, DMLOptions())
    columns = {"id": [2] * rows, "v": [20] * rows, "name": ["b"] * rows}
    write.apply(pa.record_batch(columns, schema=pa.schema(list(table.arrow_schema)[:3])))
    module, _, name = step.rpartition(".")
    real: Callable[..., Any] = getattr(importlib.import_module(module), name)

    def late(*arguments: Any) -> Any:
        (staging,) = (each for each in arguments if isinstance(each, Staging))
        staging._journal.end()
        return real(*arguments)

    monkeypatch.setattr(step, late)
    with pytest.raises(Conflict, match="removed by another server meanwhile; nothing was changed"):
        write.commit()
    assert values(find(lake, namespace, "t"), "id") == [1]
    assert data_files(find(lake, namespace, "t")) == before
