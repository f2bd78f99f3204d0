"""Every recorded statement of the real client that changes rows, replayed against the lake.

`tests/client/test_replay.py` does this with the memory backend: requests are the recorded ones, and
afterwards the tables hold what the same SQL does to tables of DuckDB itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pyarrow as pa
import pytest
from tests.client.replay.expected import Expected
from tests.client.replay.tables import FailingWrite
from tests.client.test_replay import FAILURES, Refusal, Scenario, replay, scenario_of
from tests.spark.places import Place

from sparkport.catalog import (
    Catalog,
    Context,
    CreateSchemaOptions,
    CreateTableOptions,
    DMLOptions,
    DropSchemaOptions,
    DynamicSchema,
    Operation,
    StagedWrite,
)
from sparkport.errors import SparkportError
from sparkport.spark import LakeCatalog
from sparkport.spark.iceberg.table_state import TableState
from sparkport.spark.lake.lake import Lake
from sparkport.spark.table import LakeTable
from sparkport.spark.write import statements

_CTX = Context()
_BY_TEXT: dict[str, Refusal] = dict.fromkeys(
    [
        "UPDATE rid_str SET name = 'x' WHERE id = 1",
        "UPDATE rid_str SET name = 'y' WHERE id = 1 RETURNING *",
        "DELETE FROM rid_str WHERE id = 2",
        "DELETE FROM rid_str WHERE id = 3 RETURNING *",
    ],
    ("INVALID_ARGUMENT", "InvalidInputException"),
)
"""All row ids of the lake are int64. A client that was told otherwise is refused."""
_DELETE_BOOM = "DELETE FROM t WHERE CASE WHEN id = 5000 THEN error('boom') ELSE true END"
_AS_RECORDED = (
    "create_table",
    "create_table_as",
    "insert",
    "insert_parallel",
    "insert_returning",
    "update",
    "delete",
)
_SCENARIOS = (
    *map(scenario_of, (*_AS_RECORDED, "merge_into")),
    replace(
        scenario_of("rowid_variants"),
        refused=_BY_TEXT,
        left_out=frozenset({"SELECT name FROM rid_str WHERE rowid = 'r1'"}),
        other_result=dict.fromkeys(
            ["SELECT rowid, name FROM rid_str WHERE v > 2", "SELECT * FROM rid_str #2"],
            "its row ids were texts",
        ),
    ),
    replace(
        scenario_of("rowid_variants_returning"),
        refused=_BY_TEXT,
        other_result={"SELECT * FROM rid_str ORDER BY id": "its row ids were texts"},
    ),
    # The lake lacks the functions of the recording server, and its versions have other numbers.
    replace(
        (transactions := scenario_of("transactions")),
        functions=False,
        left_out=frozenset(transactions.instead),
    ),
    scenario_of("errors_dml"),
    replace(
        (errors := scenario_of("errors_client_side")),
        more_setup=[
            "INSERT INTO slow SELECT i, 'v' || i FROM range(20) r(i), range(10) ORDER BY i"
        ],
        # Rows that were updated before come last in a scan; those are the deleted ones.
        sources={**errors.sources, _DELETE_BOOM: "SELECT 8192 + i FROM range(4096) r(i)"},
        endless=frozenset(),
    ),
)


@pytest.fixture(scope="module")
def lakes(lake: LakeCatalog, place: Place) -> Iterator[dict[str, LakeCatalog]]:
    """Lakes of their own, by the names of the recorded catalogs: everything in them is compared."""
    with (
        LakeCatalog(source=place.source("cat"), name="cat") as cat,
        LakeCatalog(source=place.source("tx"), name="tx") as tx,
    ):
        yield {"cat": cat, "tx": tx}


@pytest.mark.parametrize("scenario", _SCENARIOS, ids=lambda scenario: scenario.name)
def test_recorded_statements_do_to_the_lake_what_their_sql_says(
    scenario: Scenario, lakes: dict[str, LakeCatalog], monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = lakes[scenario.catalog]

    def with_tables(_: Scenario, expected: Expected) -> Catalog:
        _fill(catalog, expected)
        monkeypatch.setattr(statements, "stage", _failing(statements.stage))
        return catalog

    try:
        replay(scenario, with_tables)
    finally:
        monkeypatch.undo()
        for schema in catalog.schemas(_CTX):
            catalog.drop_schema(_CTX, schema.name, DropSchemaOptions(cascade=True))


def _fill(catalog: LakeCatalog, expected: Expected) -> None:
    """Make the tables as the setup leaves them."""
    for name in sorted(expected.schemas()):
        catalog.create_schema(_CTX, name, CreateSchemaOptions())
    for (schema, name), rows in expected.tables().items():
        found = catalog.schema(_CTX, schema)
        assert isinstance(found, DynamicSchema)
        table = found.create_table(_CTX, name, rows.schema, CreateTableOptions())
        assert isinstance(table, LakeTable)
        insert = table.stage(_CTX, Operation.INSERT, DMLOptions())
        for batch in rows.cast(pa.schema(list(table.arrow_schema)[:-1])).to_batches():
            insert.apply(batch)
        assert insert.commit() == rows.num_rows


def _failing(
    stage: Callable[[Lake, Context, TableState, Operation, DMLOptions], StagedWrite],
) -> Callable[[Lake, Context, TableState, Operation, DMLOptions], StagedWrite]:
    """Fail for tables whose names ask for it, as `errors_dml` expects."""

    def failing(
        lake: Lake, ctx: Context, state: TableState, operation: Operation, options: DMLOptions
    ) -> StagedWrite:
        point, error = FAILURES.get(state.identifier.name, (None, SparkportError("")))
        if point == "start":
            raise error
        staged = stage(lake, ctx, state, operation, options)
        return staged if point is None else FailingWrite(staged, point, error)

    return failing
