"""`spark_run` as the service calls it, without a client."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from sparkport.catalog import Context, ScanOptions
from sparkport.spark import LakeCatalog

Run = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def run(lake: LakeCatalog, namespace: str) -> Run:
    """A function that runs statements as the service does, without a client."""
    return runner(lake, namespace)


def runner(lake: LakeCatalog, namespace: str) -> Run:
    """A function that runs a statement, or a list of them, and returns the reports."""

    def call(statement: Any, *arguments: Any, ctx: Context | None = None) -> list[dict[str, Any]]:
        ctx = ctx or Context()
        schema: Any = lake.schema(ctx, namespace)
        wanted = 2 if isinstance(statement, list) else 1 if arguments else 0
        forms = [each for each in schema.table_functions(ctx) if each.name == "spark_run"]
        function = forms[wanted]
        function.schema_for_parameters(ctx, (statement, *arguments))
        (batch,) = function.execute(ctx, (statement, *arguments), ScanOptions())
        rows: list[dict[str, Any]] = batch.to_pylist()
        return rows

    return call
