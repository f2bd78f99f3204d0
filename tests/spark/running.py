"""Runs statements by `spark_run` as the service does, and tells what they have left."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.spark.lake_tables import find, folder
from tests.spark.places import path_of

from sparkport.catalog import Context, ScanOptions
from sparkport.spark import LakeCatalog
from sparkport.spark.ddl.new_tables import NewTable
from sparkport.spark.lake.liveness import FILES
from sparkport.spark.lake.version_log import number_of

__all__ = ["Run", "Runner", "all_files", "created_meanwhile", "run", "runner"]

Run = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def run(lake: LakeCatalog, namespace: str) -> Run:
    """A function that runs statements as the service does, without a client."""
    return Runner(lake, namespace)


@pytest.fixture
def created_meanwhile(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], Any]], None]:
    """Have something happen once, after Spark has filled a new table and before that is added."""
    waiting: list[Callable[[], Any]] = []
    counted = NewTable.counted

    def happen_first(made: NewTable, since: int = 0) -> tuple[int, int]:
        if waiting:
            waiting.pop()()
        return counted(made, since)

    monkeypatch.setattr(NewTable, "counted", happen_first)
    return waiting.append


def runner(lake: LakeCatalog, namespace: str) -> Run:
    """A function that runs a statement, or a list of them, and returns the reports."""
    return Runner(lake, namespace)


def all_files(lake: LakeCatalog, *, but_commits: bool = False) -> set[Path]:
    """All files below the warehouse, those of journals of statements included.

    Without those that each commit leaves, `but_commits`: a branch is made and dropped by commits.
    """
    found = path_of(lake._lake.catalog.warehouse or "").rglob("*")
    files = {path for path in found if path.is_file() and path.name not in FILES}
    return {path for path in files if not (but_commits and ".metadata.json" in path.name)}


class Runner:
    """Runs statements in a schema of a lake."""

    def __init__(self, lake: LakeCatalog, namespace: str) -> None:
        self.lake = lake
        self.namespace = namespace

    def __call__(
        self, statement: Any, *arguments: Any, ctx: Context | None = None
    ) -> list[dict[str, Any]]:
        ctx = ctx or Context()
        form = 2 if isinstance(statement, list) else 1 if arguments else 0
        schema: Any = self.lake.schema(ctx, self.namespace)
        forms = [each for each in schema.table_functions(ctx) if each.name == "spark_run"]
        function = forms[form]
        function.schema_for_parameters(ctx, (statement, *arguments))
        # Batches without rows come before, to tell the progress.
        *_, batch = function.execute(ctx, (statement, *arguments), ScanOptions())
        found: list[dict[str, Any]] = batch.to_pylist()
        return found

    def counts(self, statement: Any, *arguments: Any) -> tuple[int, int, int]:
        """The rows that a statement says to have inserted, updated and deleted."""
        (report,) = self(statement, *arguments)
        return report["rows_inserted"], report["rows_updated"], report["rows_deleted"]

    def left(self, *tables: str) -> list[tuple[int, list[str], set[Path]]]:
        """Versions, branches and data files, whether a table knows them or not."""
        return [self._left(find(self.lake, self.namespace, name)) for name in tables]

    def _left(self, table: Any) -> tuple[int, list[str], set[Path]]:
        branches = [each for each in table.state.metadata.refs if each != "main"]
        files = {path for path in folder(table).rglob("data/*") if path.is_file()}
        return number_of(self.lake._lake, table.state), branches, files
