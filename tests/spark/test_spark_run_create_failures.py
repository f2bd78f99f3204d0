"""Statements that make objects, when others or failures come between: all or none, nothing left."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from tests.spark.lake_tables import create, drop, find, insert, sql_name, values
from tests.spark.running import all_files, created_meanwhile, run

from sparkport.catalog import Constraints
from sparkport.errors import AlreadyExists, Conflict, ConstraintViolation, NotFound, SparkportError
from sparkport.spark import LakeCatalog
from sparkport.spark.ddl.new_tables import NewTable
from sparkport.spark.ddl.new_views import NewView
from sparkport.spark.lake.outcomes import OutcomeUnknown
from sparkport.spark.lake.sqlite_catalog import SqliteCatalog

__all__ = ["created_meanwhile", "run"]

_COLUMNS = pa.schema([("id", pa.int64()), ("name", pa.string())])


@pytest.fixture(autouse=True)
def source(lake: LakeCatalog, namespace: str) -> None:
    """Table `s` has a key and two rows, table `r` has three."""
    create(lake, namespace, "s", _COLUMNS, constraints=Constraints(primary_key=("id",)))
    insert(lake, namespace, "s", "(1, 'ann'), (2, 'bob')")
    create(lake, namespace, "r", _COLUMNS)
    insert(lake, namespace, "r", "(1, 'x'), (2, 'y'), (3, 'z')")


_ALL = [
    "CREATE TABLE a AS SELECT * FROM s",
    "INSERT INTO a SELECT id + 10, name FROM s",
    "CREATE VIEW v AS SELECT a.id FROM a",
    "CREATE OR REPLACE TABLE r AS SELECT id FROM v",
    "INSERT INTO s SELECT id + 100, 'new' FROM r",
]


def _untouched(lake: LakeCatalog, namespace: str) -> None:
    assert find(lake, namespace, "a") is None
    assert find(lake, namespace, "v") is None
    assert sorted(values(find(lake, namespace, "r"), "name")) == ["x", "y", "z"]
    assert sorted(values(find(lake, namespace, "s"), "id")) == [1, 2]
    for name in ("r", "s"):
        assert set(find(lake, namespace, name).state.metadata.refs) == {"main"}


def test_a_pipeline_that_ends_publishes_all(lake, namespace, run):
    reports = run(_ALL)
    assert [each["rows_inserted"] for each in reports] == [2, 2, 0, 4, 4]
    assert [each["version"] is None for each in reports] == [False, False, True, False, False]
    assert len(values(find(lake, namespace, "s"), "id")) == 6
    assert sorted(values(find(lake, namespace, "r"), "id")) == [1, 2, 11, 12]


@pytest.mark.parametrize(
    "last",
    [
        "INSERT INTO s SELECT 1, 'twice'",
        "CREATE TABLE b AS SELECT CAST(raise_error('no') AS INT) AS x",
    ],
)
def test_a_pipeline_whose_last_statement_fails_leaves_nothing(lake, namespace, run, last):
    before = all_files(lake, but_commits=True)
    with pytest.raises((ConstraintViolation, SparkportError)):
        run([*_ALL, last])
    _untouched(lake, namespace)
    assert all_files(lake, but_commits=True) == before


def test_a_table_that_another_has_made_meanwhile_stays(lake, namespace, run, created_meanwhile):
    before = all_files(lake, but_commits=True)
    created_meanwhile(lambda: create(lake, namespace, "A", _COLUMNS))
    with pytest.raises(AlreadyExists, match=r"\.A exists already"):
        run(_ALL)
    drop(lake, namespace, "A")
    _untouched(lake, namespace)
    assert all_files(lake, but_commits=True) == before


def test_a_table_that_another_makes_in_the_last_moment_stays(lake, namespace, run, monkeypatch):
    """The catalog itself finds it, while it publishes all."""
    before = all_files(lake, but_commits=True)
    swap_all = SqliteCatalog.swap_all

    def later(catalog: Any, changes: Any) -> None:
        if len(changes) > 1:
            monkeypatch.setattr(SqliteCatalog, "swap_all", swap_all)
            lake.spark.sql(f"CREATE TABLE {sql_name(lake, namespace, 'a')} (x INT) USING iceberg")
        swap_all(catalog, changes)

    monkeypatch.setattr(SqliteCatalog, "swap_all", later)
    with pytest.raises(AlreadyExists, match=rf"{namespace}\.a exists already") as caught:
        run(_ALL)
    assert not isinstance(caught.value, OutcomeUnknown)
    drop(lake, namespace, "a")
    _untouched(lake, namespace)
    assert all_files(lake, but_commits=True) == before


def test_a_schema_that_is_dropped_meanwhile(lake, namespace, run, created_meanwhile):
    other = f"{namespace}_gone"
    lake.spark.sql(f"CREATE NAMESPACE `{lake.spark_catalog}`.{other}")
    before = all_files(lake, but_commits=True)
    created_meanwhile(
        lambda: lake.spark.sql(f"DROP NAMESPACE `{lake.spark_catalog}`.{other}").collect()
    )
    with pytest.raises(NotFound, match=f"schema {other} does not exist"):
        run(f"CREATE TABLE {other}.t AS SELECT * FROM s")
    assert all_files(lake, but_commits=True) == before


def test_of_several_that_make_one_table_one_does(lake, namespace, run):
    errors: list[BaseException] = []
    start = threading.Barrier(3)

    def make(number: int) -> None:
        start.wait(60)
        try:
            run(f"CREATE TABLE t AS SELECT {number} AS x FROM s")
        except SparkportError as error:
            errors.append(error)

    threads = [threading.Thread(target=make, args=(number,)) for number in range(3)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(100)
    assert [type(each) for each in errors] == [AlreadyExists, AlreadyExists]
    table = find(lake, namespace, "t")
    assert len(set(values(table, "x"))) == 1
    folders = {
        path.parents[1]
        for path in all_files(lake, but_commits=True)
        if f"{namespace}/t-" in str(path)
    }
    assert len(folders) == 1, "the others have left nothing"


def _lose(monkeypatch: pytest.MonkeyPatch, *, is_made: bool) -> None:
    """Lose the answer of the catalog to the publication of several objects."""
    swap_all = SqliteCatalog.swap_all

    def lossy(catalog: Any, changes: Any) -> None:
        if len(changes) == 1 or is_made:
            swap_all(catalog, changes)
        if len(changes) > 1:
            raise RuntimeError("no answer")

    monkeypatch.setattr(SqliteCatalog, "swap_all", lossy)


@pytest.mark.parametrize("statements", [_ALL, _ALL[:3], _ALL[:1] + _ALL[1:2] * 2 + _ALL[2:3]])
def test_what_was_published_is_found_although_the_answer_is_lost(
    lake, namespace, run, monkeypatch, statements
):
    _lose(monkeypatch, is_made=True)
    run(statements)
    assert len(values(find(lake, namespace, "a"), "id")) == 2 * statements.count(_ALL[1]) + 2
    assert find(lake, namespace, "v") is not None


def test_an_unknown_outcome_is_told_and_its_files_stay(lake, namespace, run, monkeypatch):
    before = all_files(lake, but_commits=True)
    _lose(monkeypatch, is_made=False)
    with pytest.raises(OutcomeUnknown, match=r"did not say whether the changes of .* all or none"):
        run(_ALL)
    monkeypatch.undo()
    assert find(lake, namespace, "a") is None
    assert any(
        f"{namespace}/a-" in str(each) for each in all_files(lake, but_commits=True) - before
    )


def test_a_catalog_that_cannot_publish_all_at_once_removes_new_tables_again(
    lake, namespace, run, monkeypatch
):
    monkeypatch.setattr(SqliteCatalog, "creates_together", False)
    before = all_files(lake, but_commits=True)
    monkeypatch.setattr(NewTable, "publish", _refusing(NewTable.publish, "r"))
    with pytest.raises(Conflict, match="not now"):
        run([_ALL[0], _REPLACE])
    _untouched(lake, namespace)
    assert all_files(lake, but_commits=True) == before
    monkeypatch.setattr(NewView, "publish", _refusing(NewView.publish, "v"))
    with pytest.raises(
        Conflict, match=rf"in part: .*\.a and .*\.s.*, they are not in {namespace}\.v"
    ):
        run([_ALL[0], "INSERT INTO s SELECT id + 100, name FROM a", _REPLACE, _ALL[2]])
    drop(lake, namespace, "a")
    assert len(values(find(lake, namespace, "s"), "id")) == 4
    assert sorted(values(find(lake, namespace, "r"), "id")) == [1, 2], "at once with s"


def test_a_new_table_that_others_have_filled_already_is_not_removed_again(
    lake, namespace, run, monkeypatch
):
    monkeypatch.setattr(SqliteCatalog, "creates_together", False)

    def fill() -> None:
        insert(lake, namespace, "a", "(77, 'theirs')")

    monkeypatch.setattr(NewTable, "publish", _refusing(NewTable.publish, "r", fill))
    with pytest.raises(Conflict, match=rf"published in part: its changes are in {namespace}\.a"):
        run([_ALL[0], _REPLACE])
    assert (77, "theirs") in values(find(lake, namespace, "a"), "id", "name")


_REPLACE = "CREATE OR REPLACE TABLE r AS SELECT id FROM a"


def _refusing(
    publish: Callable[[Any], bool], name: str, first: Callable[[], None] = lambda: None
) -> Callable[[Any], bool]:
    def refuse(made: Any) -> bool:
        if made.identifier.name != name:
            return publish(made)
        first()
        raise Conflict("not now")

    return refuse
