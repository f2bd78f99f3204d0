"""Statements that are ready at the same time are published together, and each gets its answer."""

from __future__ import annotations

import errno
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pytest
from tests.spark.lake_tables import create, find, folder, insert, sql_name, values

from sparkport.catalog import Constraints, Context, DMLOptions, Operation
from sparkport.errors import (
    Cancelled,
    CatalogFault,
    Conflict,
    ConstraintViolation,
    LimitExceeded,
)
from sparkport.spark import LakeCatalog
from sparkport.spark.iceberg.parquet_output import ParquetOutput
from sparkport.spark.lake import outcomes
from sparkport.spark.lake.outcomes import OutcomeUnknown
from sparkport.spark.lake.plain_commit import PlainCommit
from sparkport.spark.lake.sqlite_catalog import SqliteCatalog
from sparkport.spark.write import commit as commits

_SECONDS = 60
_COLUMNS = pa.schema([("id", pa.int64()), ("v", pa.int64())])


def _batch(*ids: int, v: int = 0, **more: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {"id": pa.array(ids, pa.int64()), "v": pa.array([v] * len(ids), pa.int64()), **more}
    )


def _update(row_id: int, v: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {"v": pa.array([v], pa.int64()), "rowid": pa.array([row_id], pa.int64())}
    )


def _delete(row_id: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"rowid": pa.array([row_id], pa.int64())})


class _Together:
    """Statements that become ready while the table is locked, in this order."""

    def __init__(self, lake: LakeCatalog, namespace: str) -> None:
        self._lake = lake
        self._namespace = namespace
        self._threads = ThreadPoolExecutor(8)
        self.started: list[Future[int]] = []

    def run(
        self, operation: Operation, batch: pa.RecordBatch, ctx: Context | None = None
    ) -> Future[int]:
        ctx = ctx or Context()
        table = find(self._lake, self._namespace, "t")
        staged = table.stage(ctx, operation, DMLOptions())
        staged.apply(batch)
        group = self._lake._lake.groups.of(table.state.identifier)
        self._group = group  # groups are forgotten when nobody has them
        waiting = len(group._waiting)
        started = self._threads.submit(staged.commit)
        _until(lambda: len(group._waiting) > waiting or started.done())
        self.started.append(started)
        return started

    def insert(self, *ids: int, ctx: Context | None = None) -> Future[int]:
        return self.run(Operation.INSERT, _batch(*ids), ctx)

    @contextmanager
    def gathered(self) -> Iterator[_Together]:
        """Let statements gather in the block, and wait for all at its end."""
        identifier = find(self._lake, self._namespace, "t").state.identifier
        with self._lake._lake.locked(identifier):
            yield self
        for each in self.started:
            each.exception(_SECONDS)
        self._threads.shutdown()


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _SECONDS
    while not condition():
        assert time.monotonic() < deadline, "it does not happen"
        time.sleep(0.001)


@pytest.fixture
def together(lake: LakeCatalog, namespace: str) -> _Together:
    keys = Constraints(primary_key=("id",))
    create(lake, namespace, "t", _COLUMNS, constraints=keys)
    table = find(lake, namespace, "t")
    staged = table.stage(Context(), Operation.INSERT, DMLOptions())
    staged.apply(_batch(1, 2, 3, 4, 5))
    staged.commit()
    return _Together(lake, namespace)


def _ids(lake: LakeCatalog, namespace: str) -> list[int]:
    """The ids as Spark reads them: all files must be there, and each key once."""
    rows = lake.spark.sql(f"SELECT id FROM {sql_name(lake, namespace, 't')} ORDER BY id").collect()
    return [row[0] for row in rows]


def _summaries(lake: LakeCatalog, namespace: str) -> list[Mapping[str, str]]:
    snapshots = find(lake, namespace, "t").state.metadata.snapshots
    return [each.summary.additional_properties for each in snapshots]


def _data_files(lake: LakeCatalog, namespace: str) -> int:
    return len(list((folder(find(lake, namespace, "t")) / "data").glob("*.parquet")))


def test_statements_that_are_ready_are_one_snapshot_which_names_them(
    lake: LakeCatalog, namespace: str, together: _Together
) -> None:
    with together.gathered():
        for number in range(5):
            together.insert(10 + number, ctx=Context(principal=f"p{number}"))
    assert [each.result() for each in together.started] == [1] * 5
    assert _ids(lake, namespace) == [1, 2, 3, 4, 5, 10, 11, 12, 13, 14]
    _, group = _summaries(lake, namespace)
    assert len(set(json.loads(group["sparkport.statement"]))) == 5
    assert json.loads(group["sparkport.operation"]) == ["insert"] * 5
    assert json.loads(group["sparkport.principal"]) == [f"p{number}" for number in range(5)]


def test_updates_deletes_and_inserts_of_one_file_are_one_snapshot(
    lake: LakeCatalog, namespace: str, together: _Together
) -> None:
    with together.gathered():
        together.run(Operation.UPDATE, _update(3, 30))
        together.run(Operation.DELETE, _delete(0))
        together.insert(6)
        together.run(Operation.UPDATE, _update(1, 10))
    assert [each.result() for each in together.started] == [1] * 4
    assert len(_summaries(lake, namespace)) == 2
    expected = [(2, 10, 1), (3, 0, 2), (4, 30, 3), (5, 0, 4)]
    found = values(find(lake, namespace, "t"), "id", "v", "rowid")
    assert found[:4] == expected
    assert found[4][:2] == (6, 0)
    rows = lake.spark.sql(f"SELECT id, v, _row_id FROM {sql_name(lake, namespace, 't')}").collect()
    assert sorted(map(tuple, rows)) == sorted(found)


def test_rows_of_small_statements_share_a_file_and_rows_of_a_large_one_have_their_own(
    lake: LakeCatalog, namespace: str, together: _Together
) -> None:
    with together.gathered():
        together.insert(10)
        together.insert(*range(100, 5100))
        together.insert(11)
        together.run(Operation.UPDATE, _update(0, 1))
        together.run(Operation.UPDATE, _update(1, 2))
    assert [each.result() for each in together.started] == [1, 5000, 1, 1, 1]
    assert len(_summaries(lake, namespace)) == 2
    # One of the table, the large one's, one of new rows and one of changed rows.
    assert _data_files(lake, namespace) == 4
    assert _ids(lake, namespace) == [1, 2, 3, 4, 5, 10, 11, *range(100, 5100)]
    assert values(find(lake, namespace, "t"), "id", "v", "rowid")[:2] == [(1, 1, 0), (2, 2, 1)]


def test_rows_that_cannot_be_written_together_are_written_one_by_one_and_nothing_is_left(
    lake: LakeCatalog, namespace: str, together: _Together, monkeypatch: pytest.MonkeyPatch
) -> None:
    finish = ParquetOutput.finish

    def full(output: ParquetOutput) -> int:
        if output.rows > 1:
            raise OSError(errno.ENOSPC, "no space left")
        return finish(output)

    monkeypatch.setattr(ParquetOutput, "finish", full)
    with together.gathered():
        first, large, third = together.insert(10), together.insert(11, 12), together.insert(13)
    assert first.result() == third.result() == 1
    with pytest.raises(LimitExceeded):
        large.result()
    assert _ids(lake, namespace) == [1, 2, 3, 4, 5, 10, 13]
    assert _data_files(lake, namespace) == 3
    assert not list(lake._lake.staging.folder().glob("*.journal"))


def test_small_statements_on_a_partitioned_table_are_one_snapshot(
    lake: LakeCatalog, namespace: str
) -> None:
    name = sql_name(lake, namespace, "t")
    lake.spark.sql(
        f"CREATE TABLE {name} (id BIGINT, v BIGINT) USING iceberg PARTITIONED BY (v) "
        "TBLPROPERTIES ('format-version' = '3')"
    )
    together = _Together(lake, namespace)
    with together.gathered():
        for number in range(4):
            together.run(Operation.INSERT, _batch(number, v=number % 2))
    assert [each.result() for each in together.started] == [1] * 4
    assert len(_summaries(lake, namespace)) == 1
    files = list((folder(find(lake, namespace, "t")) / "data").glob("*/*.parquet"))
    assert sorted(each.parent.name for each in files) == ["v=0", "v=1"]
    assert _ids(lake, namespace) == [0, 1, 2, 3]


def test_a_key_that_two_insert_is_there_once_and_the_others_are_unharmed(
    lake: LakeCatalog, namespace: str, together: _Together
) -> None:
    with together.gathered():
        first, second, in_table, other = (together.insert(key) for key in (10, 10, 3, 11))
    assert first.result() == other.result() == 1
    for each in (second, in_table):
        with pytest.raises(ConstraintViolation, match="Duplicate key"):
            each.result()
    assert _ids(lake, namespace) == [1, 2, 3, 4, 5, 10, 11]
    assert _data_files(lake, namespace) == 2


def test_a_key_of_an_updated_row_is_compared_with_inserted_ones(
    lake: LakeCatalog, namespace: str, together: _Together
) -> None:
    moved = pa.RecordBatch.from_pydict(
        {"id": pa.array([10], pa.int64()), "rowid": pa.array([0], pa.int64())}
    )
    with together.gathered():
        update = together.run(Operation.UPDATE, moved)
        refused = together.insert(10)
        values_only = together.run(Operation.UPDATE, _update(1, 7))
    assert update.result() == values_only.result() == 1
    with pytest.raises(ConstraintViolation, match="Duplicate key"):
        refused.result()
    assert _ids(lake, namespace) == [2, 3, 4, 5, 10]


def test_a_row_that_two_change_is_changed_by_the_first(
    lake: LakeCatalog, namespace: str, together: _Together
) -> None:
    with together.gathered():
        first = together.run(Operation.UPDATE, _update(2, 7))
        second = together.run(Operation.UPDATE, _update(2, 8))
        third = together.run(Operation.DELETE, _delete(2))
        other = together.run(Operation.DELETE, _delete(3))
    assert first.result() == other.result() == 1
    for each in (second, third):
        with pytest.raises(Conflict, match=r"row 2 .* was changed by somebody else"):
            each.result()
    assert values(find(lake, namespace, "t"), "id", "v") == [(1, 0), (2, 0), (3, 7), (5, 0)]


@pytest.mark.parametrize("which", [0, 1], ids=["leader", "follower"])
def test_a_statement_that_is_cancelled_leaves_and_the_others_go_on(
    lake: LakeCatalog, namespace: str, together: _Together, which: int
) -> None:
    contexts = [Context(), Context(), Context()]
    with together.gathered():
        for number, ctx in enumerate(contexts):
            together.insert(10 + number, ctx=ctx)
        contexts[which].cancellation.cancel()
    with pytest.raises(Cancelled):
        together.started.pop(which).result()
    assert [each.result() for each in together.started] == [1, 1]
    assert 10 + which not in _ids(lake, namespace)
    assert len(_ids(lake, namespace)) == 7
    assert _data_files(lake, namespace) == 2


def test_a_swap_that_was_lost_is_tried_again_for_all(
    lake: LakeCatalog, namespace: str, together: _Together, monkeypatch: pytest.MonkeyPatch
) -> None:
    add, tries = PlainCommit.add, []

    def slow(commit: PlainCommit, *arguments: Any) -> None:
        add(commit, *arguments)
        tries.append(commit)
        if len(tries) == 1:
            insert(lake, namespace, "t", "(10, 0), (20, 0)")

    monkeypatch.setattr(PlainCommit, "add", slow)
    with together.gathered():
        refused, first, second = (together.insert(key) for key in (10, 11, 12))
        together.run(Operation.UPDATE, _update(0, 5))
    assert first.result() == second.result() == together.started[3].result() == 1
    with pytest.raises(ConstraintViolation, match="Duplicate key"):
        refused.result()
    assert len(tries) == 2
    assert _ids(lake, namespace) == [1, 2, 3, 4, 5, 10, 11, 12, 20]


def test_all_hear_that_the_outcome_is_unknown_and_their_files_stay(
    lake: LakeCatalog, namespace: str, together: _Together, monkeypatch: pytest.MonkeyPatch
) -> None:
    swap = SqliteCatalog.swap
    lost: list[bool] = []

    def unanswered(catalog: SqliteCatalog, *arguments: Any) -> None:
        swap(catalog, *arguments)
        lost.append(True)
        monkeypatch.setattr(SqliteCatalog, "entry", unreachable)
        raise RuntimeError("no answer")

    def unreachable(*_: Any) -> None:
        raise CatalogFault("the catalog cannot be reached")

    monkeypatch.setattr(outcomes, "_PAUSES", (0.0,))
    monkeypatch.setattr(SqliteCatalog, "swap", unanswered)
    with together.gathered():
        for key in (10, 11, 12):
            together.insert(key)
    monkeypatch.undo()
    for each in together.started:
        with pytest.raises(OutcomeUnknown):
            each.result()
    assert lost == [True]
    assert _ids(lake, namespace) == [1, 2, 3, 4, 5, 10, 11, 12]


def test_an_error_that_only_one_has_to_answer_for_is_only_its_own(
    lake: LakeCatalog, namespace: str, together: _Together, monkeypatch: pytest.MonkeyPatch
) -> None:
    put = commits._put

    def fussy(draft: Any, now: Any, change: Any, *rest: Any) -> None:
        if any(file.rows > 1 for file in change.files):
            raise RuntimeError("this cannot be put")
        put(draft, now, change, *rest)

    monkeypatch.setattr(commits, "_put", fussy)
    with together.gathered():
        # The second key of the second is in the way of the third, but not made.
        first, bad, third = together.insert(10), together.insert(11, 12), together.insert(12)
    assert first.result() == third.result() == 1
    with pytest.raises(RuntimeError, match="cannot be put"):
        bad.result()
    assert _ids(lake, namespace) == [1, 2, 3, 4, 5, 10, 12]
    assert _data_files(lake, namespace) == 3


def test_a_leader_that_is_interrupted_leaves_nobody_waiting(
    lake: LakeCatalog, namespace: str, together: _Together, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupted = threading.Event()
    put = commits._put

    def interrupting(*arguments: Any) -> None:
        if not interrupted.is_set():
            interrupted.set()
            raise SystemExit
        put(*arguments)

    monkeypatch.setattr(commits, "_put", interrupting)
    with together.gathered():
        first, second = together.insert(10), together.insert(11)
    with pytest.raises(SystemExit):
        first.result()
    with pytest.raises(OutcomeUnknown, match="look at the table"):
        second.result()
    again = _Together(lake, namespace)
    with again.gathered():
        again.insert(12)
    assert again.started[0].result() == 1
    assert _ids(lake, namespace) == [1, 2, 3, 4, 5, 12]
