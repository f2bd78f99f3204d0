"""Constraints over the wire: what INSERT and UPDATE may not break, whoever keeps the rows.

The same cases run on the memory backend, which checks inside its commit, and on tables of the
contracts' simple forms, for which the framework checks before it hands the rows over.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgpack
import pyarrow as pa
import pytest
from tests.contracts.contract_client import batches_of, insert_command, update_command
from tests.contracts.ddl_requests import create_table_body
from tests.contracts.noting_manager import NotingManager
from tests.contracts.written_tables import (
    ConstrainedBatchForms,
    ConstrainedRowIdForms,
    RowIdForms,
    WrittenTable,
)
from tests.server.catalogs import catalog_of

from sparkport.catalog import (
    Constraints,
    Context,
    DMLOptions,
    DMLResult,
    RecordReader,
    ScanOptions,
    rowid_field,
)
from sparkport.memory import MemoryCatalog, MemoryTable

COLUMNS = pa.schema([("a", pa.int64()), ("b", pa.string()), ("c", pa.int64())])
ROWS: list[dict[str, Any]] = [
    {"a": 1, "b": "x", "c": 10},
    {"a": 2, "b": "y", "c": 20},
    {"a": 3, "b": None, "c": 20},
]
BACKENDS = ["memory", "row id forms", "batch forms"]


@dataclass(frozen=True)
class Case:
    """A constraint, with changes of `ROWS` that break it and that do not. An update is of the
    second row.
    """

    constraints: Constraints
    bad_insert: dict[str, Any]
    bad_update: dict[str, Any]
    named: str
    """What the message says: the constraint, and a value where there is one."""
    good_insert: dict[str, Any]
    good_update: dict[str, Any]


CASES = {
    "NOT NULL": Case(
        Constraints(not_null=("a",)),
        {"a": None, "b": "n", "c": 1},
        {"a": None},
        "NOT NULL constraint failed: t.a",
        {"a": 4, "b": None, "c": None},
        {"b": None},
    ),
    "CHECK": Case(
        Constraints(checks=("(c > 0)",)),
        {"a": 4, "b": "n", "c": -5},
        {"c": -5},
        "CHECK((c > 0)): c = -5",
        {"a": 4, "b": "n", "c": None},  # NULL passes
        {"c": 1},
    ),
    "CHECK on two columns": Case(
        Constraints(checks=("(c >= a)",)),
        {"a": 4, "b": "n", "c": 3},
        {"a": 21},  # its other column, 20, is in the table
        "CHECK((c >= a)): a = ",
        {"a": 4, "b": "n", "c": 4},
        {"a": 20},
    ),
    "UNIQUE": Case(
        Constraints(unique=(("b",),)),
        {"a": 4, "b": "x", "c": 1},
        {"b": "x"},
        'Duplicate key "b: x" violates unique constraint',
        {"a": 1, "b": None, "c": 1},  # NULLs are not compared
        {"b": "y"},  # its own value
    ),
    "PRIMARY KEY": Case(
        Constraints(not_null=("a",), primary_key=("a",)),
        {"a": 3, "b": "n", "c": 1},
        {"a": 3},
        'Duplicate key "a: 3" violates primary key constraint',
        {"a": 4, "b": "x", "c": 10},
        {"a": 2},
    ),
    "PRIMARY KEY is NOT NULL": Case(
        Constraints(not_null=("a",), primary_key=("a",)),
        {"a": None, "b": "n", "c": 1},
        {"a": None},
        "NOT NULL constraint failed: t.a",
        {"a": 4, "b": "x", "c": 10},
        {"a": 5},
    ),
    "composite PRIMARY KEY": Case(
        Constraints(not_null=("a", "c"), primary_key=("a", "c")),
        {"a": 1, "b": "n", "c": 10},
        {"a": 3},  # with its own c, 20
        'Duplicate key "a: 3, c: 20" violates primary key constraint',
        {"a": 1, "b": "x", "c": 11},
        {"a": 1},
    ),
    "composite UNIQUE": Case(
        Constraints(unique=(("b", "c"),)),
        {"a": 4, "b": "x", "c": 10},
        {"b": "x", "c": 10},
        'Duplicate key "b: x, c: 10" violates unique constraint',
        {"a": 4, "b": None, "c": 10},
        {"b": "x"},
    ),
    "composite UNIQUE, of which the update gives half": Case(
        Constraints(unique=(("a", "c"),)),
        {"a": 3, "b": "n", "c": 20},
        {"a": 3},  # with its own c, 20
        'Duplicate key "a: 3, c: 20" violates unique constraint',
        {"a": 3, "b": "n", "c": 10},
        {"a": 1},
    ),
}


def table_of(
    backend: str, constraints: Constraints, rows: list[dict[str, Any]] | None = None
) -> Any:
    rows = ROWS if rows is None else rows
    if backend == "memory":
        return MemoryTable("t", pa.Table.from_pylist(rows, COLUMNS), constraints=constraints)
    kind = ConstrainedRowIdForms if backend == "row id forms" else ConstrainedBatchForms
    return kind("t", rows, columns=COLUMNS, constraints=constraints)


@pytest.fixture(params=BACKENDS)
def backend(request):
    return request.param


@pytest.fixture
def connected(serve, backend):
    """Serves one table with constraints."""

    def connected(
        constraints: Constraints, rows: list[dict[str, Any]] | None = None
    ) -> tuple[Any, Any]:
        table = table_of(backend, constraints, rows)
        if backend != "memory":
            return serve(catalog_of(table)), table
        catalog = MemoryCatalog()
        catalog.add_schema("s").add_table(table)
        return serve(catalog), table

    return connected


def second_row_id(client: Any) -> int:
    row_id: int = client.rows_with_ids("s.t")[1]["rowid"]
    return row_id


def new_rows(*rows: dict[str, Any]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), COLUMNS)


def new_values(*rows: dict[str, Any]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), pa.schema([COLUMNS.field(name) for name in rows[0]]))


def with_ids(values: pa.Table, *ids: int) -> pa.Table:
    return values.append_column("rowid", pa.array(ids, pa.int64()))


def expect_violation(failure: Any, named: str) -> None:
    """FAILED_PRECONDITION, and what makes DuckDB raise its own ConstraintException (airport
    §14.3).
    """
    assert failure.code == "FAILED_PRECONDITION"
    assert named in failure.message
    assert failure.trailers["x-arrow-status"] == "5"
    extra = msgpack.unpackb(failure.trailers["grpc-status-details-bin"])
    assert extra == {"exception_type": "ConstraintException", "message": failure.message}


# -------------------------------------------------------------------------------------- every case


@pytest.mark.parametrize("returning", [False, True], ids=["", "returning"])
@pytest.mark.parametrize("path", ["exchange", "put"])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_an_insert_that_breaks_a_constraint_changes_nothing(connected, case, path, returning):
    client, table = connected(case.constraints)
    rows = new_rows(case.good_insert, case.bad_insert)

    with client.unchanged():
        if path == "exchange":
            failure = client.exchange_failure("insert", "s.t", rows, returning=returning)
        else:
            failure = client.put_failure(insert_command("s.t", returning), rows)

    expect_violation(failure, case.named.split(":")[0])
    assert not isinstance(table, WrittenTable) or table.calls == []


@pytest.mark.parametrize("returning", [False, True], ids=["", "returning"])
@pytest.mark.parametrize("path", ["exchange", "put"])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_an_update_that_breaks_a_constraint_changes_nothing(connected, case, path, returning):
    client, table = connected(case.constraints)
    row_id = second_row_id(client)

    with client.unchanged():
        if path == "exchange":
            rows = with_ids(new_values(case.bad_update), row_id)
            failure = client.exchange_failure("update", "s.t", rows, returning=returning)
        else:
            failure = client.put_failure(
                update_command("s.t", [row_id], returning), new_values(case.bad_update)
            )

    expect_violation(failure, case.named)
    assert not isinstance(table, WrittenTable) or table.calls == []


@pytest.mark.parametrize("returning", [False, True], ids=["", "returning"])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_changes_that_keep_a_constraint_are_made(connected, case, returning):
    client, _ = connected(case.constraints)
    row_id = second_row_id(client)

    assert client.insert("s.t", new_rows(case.good_insert), returning=returning).affected_rows == 1
    assert (
        client.update(
            "s.t", [row_id], new_values(case.good_update), returning=returning
        ).affected_rows
        == 1
    )

    rows = client.rows("s.t")
    assert rows[1] == ROWS[1] | case.good_update
    assert rows[3] == case.good_insert


def test_a_violation_names_the_value_of_an_insert(connected):
    client, _ = connected(Constraints(unique=(("b",),), checks=("(c > 0)",)))

    unique = client.exchange_failure("insert", "s.t", new_rows({"a": 9, "b": "y", "c": 1}))
    check = client.exchange_failure("insert", "s.t", new_rows({"a": 9, "b": "q", "c": -77}))

    expect_violation(unique, 'Duplicate key "b: y"')
    expect_violation(check, "c = -77")


def test_deletes_break_nothing(connected):
    client, _ = connected(Constraints(not_null=("a",), primary_key=("a",), checks=("(c > 0)",)))

    assert client.delete("s.t", [second_row_id(client)]).affected_rows == 1


# ------------------------------------------------------------------------------ within a statement


def test_two_new_rows_with_one_key_break_it(connected):
    client, _ = connected(Constraints(unique=(("b",),)))
    rows = batches_of(COLUMNS, [{"a": 4, "b": "n", "c": 1}], [{"a": 5, "b": "n", "c": 1}])

    with client.unchanged():
        expect_violation(client.exchange_failure("insert", "s.t", rows), 'Duplicate key "b: n"')


def test_two_updated_rows_with_one_key_break_it(connected):
    client, _ = connected(Constraints(unique=(("b",),)))
    first, second, _ = [row["rowid"] for row in client.rows_with_ids("s.t")]

    with client.unchanged():
        rows = with_ids(new_values({"b": "n"}, {"b": "n"}), first, second)
        expect_violation(client.exchange_failure("update", "s.t", rows), 'Duplicate key "b: n"')


@pytest.mark.parametrize("batches", [1, 2], ids=["in one batch", "in two batches"])
def test_keys_may_be_exchanged_by_one_update(connected, batches):
    client, _ = connected(Constraints(unique=(("b",),)))
    first, second, _ = [row["rowid"] for row in client.rows_with_ids("s.t")]
    columns = pa.schema([("b", pa.string()), ("rowid", pa.int64())])
    changes = [{"b": "y", "rowid": first}, {"b": "x", "rowid": second}]

    client.exchange(
        "update",
        "s.t",
        batches_of(columns, *([changes] if batches == 1 else [[each] for each in changes])),
    )

    assert [row["b"] for row in client.rows("s.t")] == ["y", "x", None]


@pytest.mark.parametrize("backend", [each for each in BACKENDS if each != "memory"], indirect=True)
def test_a_row_that_is_updated_twice_is_compared_as_it_will_be(connected):
    """By tables that allow it; in memory and on the lake a row is not updated twice."""
    client, _ = connected(Constraints(unique=(("b",),)))
    row_id = second_row_id(client)

    client.update("s.t", [row_id, row_id], new_values({"b": "n"}, {"b": "n"}))

    assert client.rows("s.t")[1]["b"] == "n"


def test_an_update_of_other_columns_is_not_checked_against_rows_that_were_bad_before(serve):
    table = table_of("row id forms", Constraints(), [{"a": 1, "b": "x", "c": -1}])
    table.declared = Constraints(checks=("(c > 0)",), unique=(("a",),))
    client = serve(catalog_of(table))

    assert client.update("s.t", [10], new_values({"b": "n"})).affected_rows == 1


def test_with_returning_a_later_batch_is_compared_with_the_earlier_ones(connected):
    client, _ = connected(Constraints(unique=(("b",),)))
    rows = batches_of(COLUMNS, [{"a": 4, "b": "n", "c": 1}], [{"a": 5, "b": "n", "c": 1}])

    expect_violation(
        client.exchange_failure("insert", "s.t", rows, returning=True), 'Duplicate key "b: n"'
    )


def test_with_returning_batches_that_were_written_are_not_their_own_duplicates(connected):
    client, _ = connected(Constraints(not_null=("a",), primary_key=("a",), unique=(("b",),)))
    rows = batches_of(COLUMNS, *([{"a": n, "b": f"n{n}", "c": 1}] for n in range(10, 15)))

    answer = client.exchange("insert", "s.t", rows, returning=True)

    assert answer.total_changed == 5
    assert [row["a"] for batch in answer.batches for row in batch] == [10, 11, 12, 13, 14]


def test_an_error_in_the_last_of_many_batches_leaves_nothing_behind(connected):
    client, _ = connected(Constraints(checks=("(c > 0)",), unique=(("a",),)))
    batches = [[{"a": 1000 * n + i, "b": "n", "c": 1} for i in range(10, 1010)] for n in range(70)]
    batches.append([{"a": -1, "b": "n", "c": 0}])

    with client.unchanged():
        expect_violation(
            client.exchange_failure("insert", "s.t", batches_of(COLUMNS, *batches)), "c = 0"
        )


# ------------------------------------------------------------------------ only of the simple forms


@pytest.mark.parametrize("position", [0, 1, None], ids=["first", "in the middle", "last"])
@pytest.mark.parametrize("kind", [ConstrainedRowIdForms, ConstrainedBatchForms])
def test_the_other_columns_of_an_update_are_read_by_row_id_whatever_it_is_called(
    serve, kind, position
):
    constraints = Constraints(checks=("(c >= a)",), unique=(("a", "b"),))
    table = kind(
        "t",
        ROWS,
        columns=COLUMNS,
        row_id=rowid_field("key"),
        position=position,
        constraints=constraints,
    )
    client = serve(catalog_of(table))

    with client.unchanged():
        expect_violation(
            client.put_failure(update_command("s.t", [11, 10]), new_values({"a": 20}, {"a": 11})),
            "a = 11",
        )
    assert client.update("s.t", [11, 10], new_values({"a": 20}, {"a": 10})).affected_rows == 2


def test_a_row_that_is_not_there_is_not_found_when_it_has_to_be_read(serve):
    table = table_of("row id forms", Constraints(checks=("(c >= a)",)))
    client = serve(catalog_of(table))

    with client.unchanged():
        failure = client.put_failure(
            update_command("s.t", [10, 77]), new_values({"a": 1}, {"a": 1})
        )

    assert failure.code == "NOT_FOUND"
    assert "row id 77" in failure.message
    assert table.calls == []


class Watched(ConstrainedRowIdForms):
    """Notes which columns are read, and whether the reader is closed."""

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self.asked: list[tuple[str, ...] | None] = []
        self.open = 0

    def scan(self, ctx: Context, options: ScanOptions) -> RecordReader:
        self.asked.append(options.columns)
        self.open += 1
        try:
            yield from super().scan(ctx, options)
        finally:
            self.open -= 1


def test_only_the_columns_that_are_needed_are_read_and_readers_are_closed(serve):
    constraints = Constraints(not_null=("b",), checks=("(c > 0)",), unique=(("a",),))
    table = Watched("t", ROWS[:2], columns=COLUMNS, constraints=constraints)
    client = serve(catalog_of(table))

    client.insert("s.t", new_rows({"a": 9, "b": "n", "c": 1}))
    client.update("s.t", [10], new_values({"c": 7}))
    client.update("s.t", [10], new_values({"a": 8}))
    client.put_failure(insert_command("s.t"), new_rows({"a": 9, "b": "n", "c": 1}))

    assert table.asked == [("a",), ("a", "rowid"), ("a",)]
    assert table.open == 0


def test_a_table_that_does_not_ask_for_it_is_not_checked(serve):
    table = RowIdForms("t", ROWS, columns=COLUMNS, constraints=Constraints(not_null=("a",)))
    client = serve(catalog_of(table))

    assert client.insert("s.t", new_rows({"a": None, "b": None, "c": None})).affected_rows == 1


def test_keys_are_compared_inside_the_transaction_of_the_write(serve):
    seen = []

    class InTransaction(ConstrainedRowIdForms):
        def scan(self, ctx: Context, options: ScanOptions) -> RecordReader:
            seen.append(ctx.transaction_id)
            return super().scan(ctx, options)

        def insert(self, ctx: Context, rows: RecordReader, options: DMLOptions) -> DMLResult:
            seen.append(ctx.transaction_id)
            return super().insert(ctx, rows, options)

    table = InTransaction("t", ROWS, columns=COLUMNS, constraints=Constraints(unique=(("a",),)))
    client = serve(NotingManager(table))

    client.insert("s.t", new_rows({"a": 9, "b": "n", "c": 1}))

    assert seen == ["tx/1", "tx/1"]


# --------------------------------------------------------------------------------- by CREATE TABLE


@pytest.mark.parametrize(
    ("declared", "rows", "named"),
    [
        ({"not_null_constraints": [1]}, [(1, None)], "NOT NULL constraint failed: fresh.v"),
        ({"check_constraints": ["(k > 0)"]}, [(0, "a")], "k = 0"),
        ({"unique_constraints": [0]}, [(1, "a"), (1, "b")], 'Duplicate key "k: 1" violates unique'),
        ({"unique_columns": ["v"]}, [(1, "a"), (2, "a")], 'Duplicate key "v: a" violates unique'),
        (
            {"primary_key_columns": ["k"]},
            [(1, "a"), (1, "b")],
            'Duplicate key "k: 1" violates primary key',
        ),
        (
            {"multi_key_primary_keys": ["v", "k"]},
            [(1, "a"), (1, "a")],
            'Duplicate key "k: 1, v: a" violates primary',
        ),
        (
            {"extra_constraints": ['UNIQUE(k, "v")']},
            [(1, "a"), (1, "a")],
            'Duplicate key "k: 1, v: a" violates unique',
        ),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_every_constraint_of_create_table_is_enforced_with_a_typed_error(
    serve, declared, rows, named
):
    catalog = MemoryCatalog("lake")
    catalog.add_schema("shop")
    client = serve(catalog)
    client.action("create_table", create_table_body(**declared))
    sent = pa.Table.from_pylist(
        [{"k": k, "v": v} for k, v in rows], pa.schema([("k", pa.int64()), ("v", pa.string())])
    )

    with client.unchanged():
        expect_violation(client.exchange_failure("insert", "shop.fresh", sent), named)
