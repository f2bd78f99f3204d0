"""What others do to a table while Spark runs a statement that changes it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.spark.lake_tables import find, insert, values
from tests.spark.running import run
from tests.spark.test_spark_run import table

from sparkport.errors import Conflict, ConstraintViolation
from sparkport.spark.care.expiry import expire, expiry_need
from sparkport.spark.lake.care_settings import care_of
from sparkport.spark.write import spark_changes

__all__ = ["run", "table"]

_MERGE = (
    "MERGE INTO t USING s ON t.id = s.id WHEN MATCHED THEN UPDATE SET name = s.name "
    "WHEN NOT MATCHED THEN INSERT *"
)


@pytest.fixture
def meanwhile(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], Any]], list[int]]:
    """Have something happen once, after Spark has done its part and before that is published.

    What it returns has a number for each time that Spark has run.
    """

    def on(happen: Callable[[], Any]) -> list[int]:
        runs: list[int] = []
        found_on = spark_changes._found_on

        def found(*arguments: Any) -> Any:
            runs.append(len(runs))
            if len(runs) == 1:
                happen()
            return found_on(*arguments)

        monkeypatch.setattr(spark_changes, "_found_on", found)
        return runs

    return on


pytestmark = pytest.mark.usefixtures("table")


def test_a_merge_is_done_again_when_another_writer_has_added_its_key(
    lake, namespace, run, meanwhile
):
    runs = meanwhile(lambda: insert(lake, namespace, "t", "(3, 'first')"))
    (report,) = run(_MERGE)
    assert (report["rows_inserted"], report["rows_updated"]) == (0, 2)
    assert len(runs) == 2
    assert _rows(lake, namespace) == [(1, "ann"), (2, "BOB"), (3, "CID")]
    _expect_no_branch(lake, namespace)


def test_an_update_is_done_again_when_another_writer_has_changed_its_row(
    lake, namespace, run, meanwhile
):
    runs = meanwhile(lambda: _change(lake, namespace, "UPDATE {t} SET name = 'x' WHERE id = 2"))
    (report,) = run("UPDATE t SET name = name || '!' WHERE id = 2")
    assert report["rows_updated"] == 1
    assert len(runs) == 2
    assert _rows(lake, namespace) == [(1, "ann"), (2, "x!")]
    _expect_no_branch(lake, namespace)


def test_rows_that_others_add_stay(lake, namespace, run, meanwhile):
    runs = meanwhile(lambda: insert(lake, namespace, "t", "(7, 'new')"))
    run("UPDATE t SET name = 'x'")
    assert len(runs) == 1
    assert _rows(lake, namespace) == [(1, "x"), (2, "x"), (7, "new")]


def test_a_key_that_another_writer_has_added_is_not_inserted(lake, namespace, run, meanwhile):
    meanwhile(lambda: insert(lake, namespace, "t", "(12, 'first')"))
    with pytest.raises(ConstraintViolation, match="Duplicate key"):
        run("INSERT INTO t SELECT id + 10, name FROM s")
    assert _rows(lake, namespace) == [(1, "ann"), (2, "bob"), (12, "first")]
    _expect_no_branch(lake, namespace)


def test_a_compaction_is_no_conflict(lake, namespace, run, meanwhile):
    insert(lake, namespace, "t", "(4, 'dan')")

    def compact() -> None:
        rewritten = lake.spark.sql(
            f"CALL `{lake.spark_catalog}`.system.rewrite_data_files(table => '{namespace}.t', "
            "options => map('rewrite-all', 'true'))"
        ).collect()
        assert rewritten[0][0] >= 2

    runs = meanwhile(compact)
    (report,) = run(_MERGE)
    assert (report["rows_inserted"], report["rows_updated"]) == (1, 1)
    assert len(runs) == 1
    assert _rows(lake, namespace) == [(1, "ann"), (2, "BOB"), (3, "CID"), (4, "dan")]


def test_what_a_statement_reads_is_not_forgotten_meanwhile(lake, namespace, run, meanwhile):
    for number in range(3):
        insert(lake, namespace, "t", f"({number + 30}, 'old')")
    base = find(lake, namespace, "t").state.snapshot.snapshot_id

    def forget() -> None:
        for number in range(3):
            insert(lake, namespace, "t", f"({number + 20}, 'more')")
        state = find(lake, namespace, "t").state
        settings = replace(
            care_of(lake._lake.settings, {}), keep_days=0.0, keep_versions=1, most_versions=1
        )
        need = expiry_need(
            *(lake._lake, state, settings, 10**15), at_once=True, planning_seconds=0.0
        )
        assert need is not None
        assert expire(lake._lake, need, lambda: None) is not None
        kept = {each.snapshot_id for each in find(lake, namespace, "t").state.metadata.snapshots}
        assert base in kept

    meanwhile(forget)
    (report,) = run("DELETE FROM t WHERE name LIKE 'a%' AND id IN (SELECT id - 1 FROM s)")
    assert report["rows_deleted"] == 1
    assert _rows(lake, namespace)[0] == (2, "bob")


def test_a_statement_is_run_again_on_a_table_that_was_altered(lake, namespace, run, meanwhile):
    def alter() -> None:
        name = f"`{lake.spark_catalog}`.{namespace}.t"
        lake.spark.sql(f"ALTER TABLE {name} ADD COLUMN more INT")

    runs = meanwhile(alter)
    (report,) = run("UPDATE t SET name = 'x' WHERE id = 1")
    assert report["rows_updated"] == 1
    assert len(runs) == 2  # with the new columns
    _expect_no_branch(lake, namespace)


def test_a_pipeline_meets_a_conflict_as_a_whole(lake, namespace, run, meanwhile):
    meanwhile(lambda: _change(lake, namespace, "UPDATE {t} SET name = 'x' WHERE id = 2"))
    with pytest.raises(Conflict):
        run(["UPDATE t SET name = 'y' WHERE id = 2", "DELETE FROM s"])
    assert _rows(lake, namespace) == [(1, "ann"), (2, "x")]
    assert len(values(find(lake, namespace, "s"), "id")) == 2
    _expect_no_branch(lake, namespace)


def _change(lake: Any, namespace: str, statement: str) -> None:
    lake.spark.sql(statement.format(t=f"`{lake.spark_catalog}`.{namespace}.t"))


def _rows(lake: Any, namespace: str) -> list[Any]:
    return sorted(values(find(lake, namespace, "t"), "id", "name"))


def _expect_no_branch(lake: Any, namespace: str) -> None:
    assert set(find(lake, namespace, "t").state.metadata.refs) == {"main"}
