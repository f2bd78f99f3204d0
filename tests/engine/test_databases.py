"""The databases of the server: how they are shut, and that what they compute can be ended."""

from __future__ import annotations

import os
import re
import threading
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sparkport
from sparkport.catalog import Constraints, Context
from sparkport.catalog.access import Restrictions
from sparkport.engine.constraints.compute import computed_values
from sparkport.engine.constraints.enforce import enforce_keys, enforce_rows
from sparkport.engine.constraints.review import Effort, review
from sparkport.engine.constraints.sandbox import in_small_chunks
from sparkport.engine.databases import (
    EXPRESSIONS,
    FILTERS,
    ROWS,
    Check,
    Database,
    _watch,
    files_below,
)
from sparkport.engine.visibility import Visibility
from sparkport.errors import Cancelled, LimitExceeded

FILES = files_below("/nowhere", 1)
ALL = {"EXPRESSIONS": EXPRESSIONS, "FILTERS": FILTERS, "ROWS": ROWS, "files": FILES}
SMALL = [EXPRESSIONS, FILTERS]

SLOW = f"levenshtein(s, '{'b' * 300}') >= 0"
MANY = pa.record_batch([pa.repeat("a" * 300, 150_000)], ["s"])
"""Together minutes of work, of which DuckDB does 2048 rows at a time."""


def setting(database: Database, name: str) -> object:
    with database.session() as connection:
        (value,) = connection.execute("SELECT current_setting(?)", [name]).fetchone() or (None,)
    return value


@pytest.mark.parametrize("database", ALL.values(), ids=ALL)
def test_no_database_loads_extensions_sees_python_or_can_be_changed(database: Database) -> None:
    python_variable = pa.table({"a": [1]})
    assert setting(database, "lock_configuration") is True
    assert setting(database, "TimeZone") == "UTC"
    for statement in (
        "INSTALL httpfs",
        "LOAD httpfs",
        "FROM python_variable",
        "SET memory_limit = '100GB'",
        "SET GLOBAL threads = 8",
        "SET temp_directory = '/tmp'",
        "SET enable_external_access = true",
        "RESET lock_configuration",
        "SET TimeZone = 'Asia/Tokyo'",
    ):
        with database.session() as connection, pytest.raises(duckdb.Error):
            connection.execute(statement)
    assert python_variable.num_rows == 1


@pytest.mark.parametrize("database", ALL.values(), ids=ALL)
def test_no_database_reaches_files(database: Database) -> None:
    for statement in (
        "FROM read_text('/etc/hostname')",
        "FROM glob('/*')",
        "COPY (SELECT 1) TO '/tmp/sparkport-must-not-exist.csv'",
        "ATTACH '/tmp/sparkport-must-not-exist.db'",
        "EXPORT DATABASE '/tmp/sparkport-must-not-exist'",
    ):
        with database.session() as connection, pytest.raises(duckdb.Error):
            connection.execute(statement)


def test_a_database_for_files_reads_those_of_its_folder_and_no_others(tmp_path: Path) -> None:
    inside, outside = tmp_path / "it's inside", tmp_path / "it's inside and not"
    for folder in (inside, outside):
        (folder / "deep").mkdir(parents=True)
        pq.write_table(pa.table({"a": [1]}), folder / "deep" / "a.parquet")
    database = files_below(f"{inside}/", 2)

    def count(path: Path) -> object:
        name = str(path).replace("'", "''")
        with database.session() as connection:
            return connection.execute(f"SELECT count(*) FROM read_parquet('{name}')").fetchone()

    assert count(inside / "deep" / "a.parquet") == (1,)
    assert files_below(f"{inside}/", 2) is database
    assert setting(database, "threads") == 2
    for path in (
        outside / "deep" / "a.parquet",
        inside / ".." / outside.name / "deep" / "a.parquet",
        Path("/etc/hostname"),
    ):
        with pytest.raises(duckdb.Error, match="Permission Error"):
            count(path)


@pytest.mark.parametrize("database", SMALL)
def test_memory_and_threads_are_bounded_and_nothing_is_spilt(database: Database) -> None:
    assert setting(database, "memory_limit") == "953.6 MiB"
    assert setting(database, "threads") == 1
    assert setting(database, "temp_directory") == ""
    assert setting(database, "max_temp_directory_size") == "0 bytes"


def test_a_query_that_needs_more_memory_fails() -> None:
    with EXPRESSIONS.session() as connection, pytest.raises(duckdb.OutOfMemoryException):
        connection.execute("SELECT count(*) FROM (SELECT DISTINCT range FROM range(100_000_000))")


def test_no_other_module_opens_a_duckdb() -> None:
    source = Path(sparkport.__file__).parent
    opening = {
        str(path.relative_to(source))
        for path in source.rglob("*.py")
        if re.search(r"duckdb\.connect\(|default_connection", path.read_text())
    }
    assert {each for each in opening if not each.startswith("testing/")} == {"engine/databases.py"}


def cancelled_meanwhile() -> Check:
    """What a call's `check` does that is cancelled while the expression is computed: the watch is
    the first to notice.
    """
    ctx = Context()

    def check() -> None:
        assert threading.current_thread().name == "watching expressions"
        ctx.cancellation.cancel()
        ctx.check()

    return check


def test_a_check_is_interrupted_when_the_call_is_cancelled() -> None:
    with pytest.raises(Cancelled):
        enforce_rows("t", Constraints(checks=(SLOW,)), MANY, cancelled_meanwhile())


def test_computed_values_are_interrupted_when_the_call_is_cancelled() -> None:
    with pytest.raises(Cancelled):
        next(computed_values([MANY], SLOW, pa.field("s", pa.bool_()), "t", cancelled_meanwhile()))


@pytest.mark.parametrize(
    "rules", [Restrictions(row_filters=(SLOW,)), Restrictions(masks={"s": f"({SLOW})::VARCHAR"})]
)
def test_rules_are_interrupted_when_the_call_is_cancelled(rules: Restrictions) -> None:
    visibility = Visibility(rules, MANY.schema, "t")
    with pytest.raises(Cancelled):
        visibility.rows(MANY, cancelled_meanwhile())


def test_a_comparison_of_keys_is_interrupted_when_the_call_is_cancelled() -> None:
    keys = pa.table({"k": pa.arange(0, 100_000)})
    reached = threading.Event()

    def check() -> None:
        reached.set()
        raise Cancelled("the request was cancelled")

    def endless(_: object) -> pa.RecordBatchReader:
        batch = pa.record_batch([pa.arange(200_000, 300_000)], ["k"])
        return pa.RecordBatchReader.from_batches(batch.schema, iter(lambda: batch, None))

    with pytest.raises(Cancelled):
        enforce_keys("t", Constraints(unique=(("k",),)), keys, endless, check=check)
    assert reached.is_set()


def test_an_expression_that_takes_too_long_is_ended_with_a_clear_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sparkport.engine.constraints.sandbox.TIME_LIMIT", 0.01)
    with pytest.raises(LimitExceeded, match=r"took longer than 0\.01 seconds and was stopped"):
        enforce_rows("t", Constraints(checks=(SLOW,)), MANY)
    with pytest.raises(LimitExceeded):
        Visibility(Restrictions(row_filters=(SLOW,)), MANY.schema, "t").rows(MANY)


def test_an_interruption_is_for_one_evaluation_only() -> None:
    with pytest.raises(Cancelled):
        enforce_rows("t", Constraints(checks=(SLOW,)), MANY, cancelled_meanwhile())
    enforce_rows("t", Constraints(checks=(SLOW,)), MANY.slice(0, 10), Context().check)


def test_time_counts_for_each_batch_and_not_while_others_work() -> None:
    batches = [MANY.slice(0, 1)] * 3
    for values in computed_values(batches, "length(s)", pa.field("n", pa.int64()), "t"):
        assert not _watch._evaluations
        assert values.to_pylist() == [300]


@pytest.mark.parametrize("database", ALL.values(), ids=ALL)
def test_a_database_works_again_after_an_internal_error(database: Database) -> None:
    before = database._connection
    with pytest.raises(duckdb.InternalException), database.session():
        raise duckdb.InternalException("made up")
    assert database._connection is None or database._connection is not before
    assert setting(database, "lock_configuration") is True


def test_a_forked_process_has_databases_of_its_own() -> None:
    enforce_rows("t", Constraints(checks=("length(s) > 1",)), MANY.slice(0, 10), Context().check)
    child = os.fork()
    if not child:  # pragma: no cover - another process
        code = 1
        try:
            enforce_rows(
                "t", Constraints(checks=("length(s) > 2",)), MANY.slice(0, 10), Context().check
            )
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0


def test_rows_are_handed_over_in_chunks_that_fit_into_memory() -> None:
    rows = pa.table({"s": ["a" * 1000] * 10_000})
    assert in_small_chunks(rows, Effort(10, 100)) is rows
    small = in_small_chunks(rows, Effort(4000, 100))
    assert small.equals(rows)
    assert 32 <= max(len(chunk) for chunk in small.column(0).chunks) <= 128
    one = in_small_chunks(pa.table({"s": ["a" * 10_000_000] * 3}), Effort(4000, 100))
    assert [len(chunk) for chunk in one.column(0).chunks] == [1, 1, 1]


def test_memory_is_bounded_for_the_largest_expression_that_is_accepted() -> None:
    """As much as the list permits, over rows that are not small."""
    check = "length(repeat(s, 1500)) > 0"
    assert review(check, ("s",)).times > 1500
    rows = pa.record_batch([pa.repeat("a" * 2000, 1024)], ["s"])
    before = _peak_memory()
    enforce_rows("t", Constraints(checks=(check,)), rows)
    assert _peak_memory() - before < 1_000_000_000  # at once it would be 3 GB


def _peak_memory() -> int:
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
