"""contracts/batch-tables.md: the compatibility matrix, the validation rules, row ids of every kind,
readers' lives.

Everything goes both ways: DoExchange, as DuckDB does, and the contracts' DoPut and `delete`.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from tests.contracts.contract_client import batches_of, update_command
from tests.contracts.written_tables import (
    AllFour,
    BothDeletes,
    BothUpdates,
    Deletes,
    DeletesBatches,
    Everything,
    Inserts,
    RowIdForms,
    Updates,
    UpdatesBatches,
    WrittenTable,
)
from tests.server.catalogs import catalog_of

from sparkport.catalog import DMLOptions, find_rowid_column, rowid_field

MATRIX = [
    ("Only UpdatableBatchTable", UpdatesBatches, "update_batch", None),
    ("Only UpdatableTable", Updates, "update", None),
    ("Both update interfaces", BothUpdates, "update_batch", None),
    ("Only DeletableBatchTable", DeletesBatches, None, "delete_batch"),
    ("Only DeletableTable", Deletes, None, "delete"),
    ("Both delete interfaces", BothDeletes, None, "delete_batch"),
    ("All four interfaces", AllFour, "update_batch", "delete_batch"),
]
PATHS = ["exchange", "contract"]
UPDATE = pa.schema([pa.field("b", pa.string()), pa.field("rowid", pa.int64())])
DELETE = pa.schema([pa.field("rowid", pa.int64())])


def update(
    client: Any, path: str, ids: list[int], values: list[str], returning: bool = False
) -> Any:
    """UPDATE … SET b; what comes back is the count, or the returned rows."""
    if path == "exchange":
        rows = pa.table([pa.array(values), pa.array(ids, pa.int64())], UPDATE)
        answer = client.exchange("update", "s.t", rows, returning=returning)
        return answer.batches if returning else answer.total_changed
    response = client.update("s.t", ids, pa.table({"b": values}), returning=returning)
    return [response.returned] if returning else response.affected_rows


def update_failure(client: Any, path: str, ids: list[int], values: list[str]) -> Any:
    if path == "exchange":
        return client.exchange_failure(
            "update", "s.t", pa.table([pa.array(values), pa.array(ids, pa.int64())], UPDATE)
        )
    return client.put_failure(update_command("s.t", ids), pa.table({"b": values}))


def delete(client: Any, path: str, ids: list[int], returning: bool = False) -> Any:
    if path == "exchange":
        answer = client.exchange(
            "delete", "s.t", pa.table([pa.array(ids, pa.int64())], DELETE), returning=returning
        )
        return answer.batches if returning else answer.total_changed
    response = client.delete("s.t", ids, returning=returning)
    return [response.returned] if returning else response.affected_rows


def delete_failure(client: Any, path: str, ids: list[int]) -> Any:
    if path == "exchange":
        return client.exchange_failure(
            "delete", "s.t", pa.table([pa.array(ids, pa.int64())], DELETE)
        )
    return client.delete_failure("s.t", ids)


# ---------------------------------------------------------------------------- compatibility matrix


@pytest.mark.parametrize("returning", [False, True], ids=["", "returning"])
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    ("kind", "method"),
    [pytest.param(kind, method, id=f"{row}: UPDATE") for row, kind, method, _ in MATRIX],
)
def test_compatibility_matrix_update(serve, kind, method, path, returning):
    table = kind()
    client = serve(catalog_of(table))

    if method is None:
        failure = update_failure(client, path, [10, 12], ["p", "q"])
        assert failure.code == "FAILED_PRECONDITION"
        assert failure.message == "table t does not support UPDATE operations (no rowid)"
        assert table.calls == []
        return

    answer = update(client, path, [10, 12], ["p", "q"], returning)

    (call,) = table.calls
    assert (call.method, call.row_ids) == (method, [10, 12])
    assert call.columns == (["b", "rowid"] if method == "update_batch" else ["b"])
    assert [row["b"] for row in call.rows] == ["p", "q"]
    assert call.options.returning == returning
    assert [row["b"] for row in table.stored.values()] == ["p", "y", "q"]
    assert (
        ([[row["b"] for row in batch] for batch in answer] == [["p", "q"]])
        if returning
        else (answer == 2)
    )


@pytest.mark.parametrize("returning", [False, True], ids=["", "returning"])
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    ("kind", "method"),
    [pytest.param(kind, method, id=f"{row}: DELETE") for row, kind, _, method in MATRIX],
)
def test_compatibility_matrix_delete(serve, kind, method, path, returning):
    table = kind()
    client = serve(catalog_of(table))

    if method is None:
        failure = delete_failure(client, path, [10, 12])
        assert failure.code == "FAILED_PRECONDITION"
        assert failure.message == "table t does not support DELETE operations (no rowid)"
        assert table.calls == []
        return

    answer = delete(client, path, [10, 12], returning)

    (call,) = table.calls
    assert (call.method, call.row_ids) == (method, [10, 12])
    assert call.columns == (["rowid"] if method == "delete_batch" else [])
    assert call.options.returning == returning
    assert list(table.stored) == [11]
    assert (
        ([[row["a"] for row in batch] for batch in answer] == [[1, 3]])
        if returning
        else (answer == 2)
    )


@pytest.mark.parametrize(
    "kind", [kind for _, kind, _, _ in MATRIX], ids=[row for row, *_ in MATRIX]
)
def test_none_of_them_is_insertable(serve, kind):
    client = serve(catalog_of(kind()))

    failure = client.exchange_failure("insert", "s.t", pa.table({"a": [1], "b": ["x"]}))

    assert failure.code == "FAILED_PRECONDITION"
    assert failure.message == "table t does not support INSERT operations"


# -------------------------------------------------------------------------------- validation rules

VALIDATED = [
    ("update", UpdatesBatches),
    ("update", Updates),
    ("delete", DeletesBatches),
    ("delete", Deletes),
]
IDS = ["UpdatableBatchTable", "UpdatableTable", "DeletableBatchTable", "DeletableTable"]


@pytest.mark.parametrize(("operation", "kind"), VALIDATED, ids=IDS)
def test_VR_001_the_rows_must_contain_the_rowid_column(serve, operation, kind):
    table = kind()
    client = serve(catalog_of(table))

    failure = client.exchange_failure(operation, "s.t", pa.table({"b": ["p"]}))

    assert failure.code == "INVALID_ARGUMENT"
    assert failure.message == f"{operation.upper()} requires rowid column"
    assert table.calls == []


@pytest.mark.parametrize(
    "values",
    [pa.array(["10"]), pa.array([10.0]), pa.array([True]), pa.array([b"10"]), pa.nulls(1)],
    ids=lambda v: str(v.type),
)
@pytest.mark.parametrize(("operation", "kind"), VALIDATED, ids=IDS)
def test_VR_002_rowid_values_must_be_integers(serve, operation, kind, values):
    table = kind()
    client = serve(catalog_of(table))

    failure = client.exchange_failure(operation, "s.t", pa.table({"b": ["p"], "rowid": values}))

    assert failure.code == "INVALID_ARGUMENT"
    assert failure.message == "rowid must be integer type"
    assert table.calls == []


@pytest.mark.parametrize(
    "data_type", [pa.int64(), pa.int32(), pa.uint64(), pa.int16(), pa.uint8()], ids=str
)
@pytest.mark.parametrize(("operation", "kind"), VALIDATED, ids=IDS)
def test_VR_002_integers_of_any_width_are_row_ids(serve, operation, kind, data_type):
    table = kind()
    client = serve(catalog_of(table))

    answer = client.exchange(
        operation, "s.t", pa.table({"b": ["p"], "rowid": pa.array([11], data_type)})
    )

    assert answer.total_changed == 1
    assert table.calls[0].row_ids == [11]


@pytest.mark.parametrize(("operation", "kind"), VALIDATED, ids=IDS)
def test_VR_003_every_table_is_given_a_context(serve, operation, kind):
    contexts = []

    class Noting(kind):  # type: ignore[valid-type,misc]
        def update(self, ctx, *args):
            contexts.append(ctx)
            return super().update(ctx, *args)

        def update_batch(self, ctx, *args):
            contexts.append(ctx)
            return super().update_batch(ctx, *args)

        def delete(self, ctx, *args):
            contexts.append(ctx)
            return super().delete(ctx, *args)

        def delete_batch(self, ctx, *args):
            contexts.append(ctx)
            return super().delete_batch(ctx, *args)

    client = serve(catalog_of(Noting(), name="cat"))

    client.exchange(
        operation, "s.t", pa.table({"b": ["p"], "rowid": [11]}), {"airport-trace-id": "traced"}
    )

    (ctx,) = contexts
    assert ctx.trace_id == "traced"
    assert ctx.transaction_id is None


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(("operation", "kind"), VALIDATED, ids=IDS)
def test_VR_004_options_say_that_nothing_shall_be_returned_unless_it_is_asked_for(
    serve, operation, kind, path
):
    table = kind()
    client = serve(catalog_of(table))

    if operation == "update":
        update(client, path, [10], ["p"])
    else:
        delete(client, path, [10])

    assert table.calls[0].options == DMLOptions(returning=False, returning_columns=None)


# ----------------------------------------------------------------------------------------- row ids

SENT = {
    "rowid last": pa.schema([("b", pa.string()), ("a", pa.int64()), ("rowid", pa.int64())]),
    "rowid first": pa.schema([("rowid", pa.int64()), ("a", pa.int64()), ("b", pa.string())]),
    "rowid in the middle": pa.schema(
        [("a", pa.int64()), ("rowid", pa.int64()), ("b", pa.string())]
    ),
    "is_rowid under another name": pa.schema(
        [
            ("a", pa.int64()),
            pa.field("key", pa.int64(), metadata={"is_rowid": "true"}),
            ("b", pa.string()),
        ]
    ),
    "is_rowid first": pa.schema(
        [rowid_field("key"), pa.field("b", pa.string()), pa.field("a", pa.int64())]
    ),
}


@pytest.mark.parametrize("kind", [UpdatesBatches, Updates])
@pytest.mark.parametrize("sent", SENT.values(), ids=SENT)
def test_the_row_id_of_an_update_may_be_anywhere_and_be_marked_or_named(serve, kind, sent):
    table = kind()
    client = serve(catalog_of(table))
    row_id = sent.names[find_rowid_column(sent)]

    answer = client.exchange(
        "update", "s.t", pa.Table.from_pylist([{"a": 7, "b": "q", row_id: 11}], sent)
    )

    assert answer.total_changed == 1
    assert table.stored[11] == {"a": 7, "b": "q"}


@pytest.mark.parametrize("kind", [DeletesBatches, Deletes])
@pytest.mark.parametrize("sent", SENT.values(), ids=SENT)
def test_the_row_id_of_a_delete_may_be_among_other_columns(serve, kind, sent):
    table = kind()
    client = serve(catalog_of(table))
    row_id = sent.names[find_rowid_column(sent)]

    answer = client.exchange(
        "delete", "s.t", pa.Table.from_pylist([{"a": 7, "b": "q", row_id: 11}], sent)
    )

    assert answer.total_changed == 1
    assert list(table.stored) == [10, 12]


def test_an_empty_is_rowid_marks_nothing(serve):
    table = Everything()
    client = serve(catalog_of(table))
    sent = pa.schema(
        [pa.field("b", pa.string()), pa.field("key", pa.int64(), metadata={"is_rowid": ""})]
    )

    failure = client.exchange_failure(
        "update", "s.t", pa.Table.from_pylist([{"b": "q", "key": 11}], sent)
    )

    assert failure.message == "UPDATE requires rowid column"


PUBLISHED = {
    "int64": (rowid_field(), None),
    "int32": (rowid_field(data_type=pa.int32()), None),
    "uint64": (rowid_field(data_type=pa.uint64()), None),
    "first": (rowid_field(), 0),
    "in the middle": (rowid_field(), 1),
    "renamed": (rowid_field("key"), None),
    "renamed and first": (rowid_field("key"), 0),
    "by name only": (pa.field("rowid", pa.int64()), 1),
}


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("kind", [Everything, RowIdForms], ids=["batch forms", "row id forms"])
@pytest.mark.parametrize(("row_id", "position"), PUBLISHED.values(), ids=PUBLISHED)
def test_a_table_may_publish_its_row_id_as_it_likes(serve, kind, row_id, position, path):
    table = kind(row_id=row_id, position=position)
    client = serve(catalog_of(table))

    assert update(client, path, [10], ["p"]) == 1
    assert delete(client, path, [11]) == 1
    assert table.stored == {10: {"a": 1, "b": "p"}, 12: {"a": 3, "b": "z"}}
    assert [call.row_ids for call in table.calls] == [[10], [11]]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("kind", [Everything, RowIdForms], ids=["batch forms", "row id forms"])
@pytest.mark.parametrize(("row_id", "position"), PUBLISHED.values(), ids=PUBLISHED)
def test_rows_come_back_whatever_the_row_id_is_called(serve, kind, row_id, position, path):
    table = kind(row_id=row_id, position=position)
    client = serve(catalog_of(table))
    sent = pa.table({"b": ["p"], "a": [7], "rowid": pa.array([10], row_id.type)})

    if path == "exchange":
        # Exactly the columns that were sent, in their order (airport §7.4).
        answer = client.exchange("update", "s.t", sent, returning=True)
        assert answer.arrow_schema.names == ["b", "a", "rowid"]
        assert answer.batches == [[{"b": "p", "a": 7, "rowid": 10}]]
    else:
        (row,) = client.update("s.t", [10], sent.drop_columns(["rowid"]), returning=True).returned
        assert (row["a"], row["b"]) == (7, "p")
    ((row,),) = delete(client, path, [11], returning=True)
    assert (row["a"], row["b"]) == (2, "y")


def test_a_row_id_of_another_type_serves_batch_forms_and_not_lists_of_integers(serve):
    text = pa.table({"b": ["p"], "rowid": ["10"]})
    row_id = rowid_field(data_type=pa.string())
    batch, listed = UpdatesBatches(row_id=row_id), Updates(row_id=row_id)
    batch.stored = listed.stored = {"10": {"a": 1, "b": "x"}}  # type: ignore[dict-item]

    assert serve(catalog_of(batch)).exchange("update", "s.t", text).total_changed == 1
    failure = serve(catalog_of(listed)).exchange_failure("update", "s.t", text)

    assert (failure.code, failure.message) == ("INVALID_ARGUMENT", "rowid must be integer type")


@pytest.mark.parametrize("value", [2**63, 2**64 - 1])
def test_a_row_id_that_has_no_room_in_the_tables_type_is_an_invalid_argument(serve, value):
    table = Everything()
    client = serve(catalog_of(table))

    failure = client.exchange_failure(
        "delete", "s.t", pa.table({"rowid": pa.array([value], pa.uint64())})
    )

    assert failure.code == "INVALID_ARGUMENT"
    assert str(value) in failure.message
    assert table.calls == []


@pytest.mark.parametrize("returning", [False, True], ids=["", "returning"])
@pytest.mark.parametrize(("operation", "kind"), VALIDATED, ids=IDS)
def test_a_null_row_id_is_an_invalid_argument(serve, operation, kind, returning):
    table = kind()
    client = serve(catalog_of(table))
    rows = pa.table({"b": ["p", "q"], "rowid": pa.array([10, None], pa.int64())})

    failure = client.exchange_failure(operation, "s.t", rows, returning=returning)

    assert failure.code == "INVALID_ARGUMENT"
    assert "NULL" in failure.message
    assert table.calls == []


# -------------------------------------------------------------------------------- how often called


@pytest.mark.parametrize("kind", [Everything, RowIdForms], ids=["batch forms", "row id forms"])
def test_a_table_is_called_once_for_a_statement_of_many_batches(serve, kind):
    table = kind()
    client = serve(catalog_of(table))
    rows = batches_of(
        UPDATE, [{"b": "p", "rowid": 10}], [], [{"b": "q", "rowid": 12}, {"b": "r", "rowid": 11}]
    )

    assert client.exchange("update", "s.t", rows).total_changed == 3

    (call,) = table.calls
    assert (call.row_ids, [row["b"] for row in call.rows]) == ([10, 12, 11], ["p", "q", "r"])


@pytest.mark.parametrize("kind", [Everything, RowIdForms], ids=["batch forms", "row id forms"])
def test_with_returning_every_batch_of_an_exchange_is_answered_before_the_next(serve, kind):
    table = kind()
    client = serve(catalog_of(table))
    rows = batches_of(
        UPDATE, [{"b": "p", "rowid": 10}], [], [{"b": "q", "rowid": 12}, {"b": "r", "rowid": 11}]
    )

    answer = client.exchange("update", "s.t", rows, returning=True)

    assert answer.total_changed == 3
    assert answer.batches == [
        [{"b": "p", "rowid": 10}],
        [],
        [{"b": "q", "rowid": 12}, {"b": "r", "rowid": 11}],
    ]
    assert [call.row_ids for call in table.calls] == [[10], [12, 11]]


@pytest.mark.parametrize("returning", [False, True], ids=["", "returning"])
@pytest.mark.parametrize("kind", [Everything, RowIdForms], ids=["batch forms", "row id forms"])
def test_a_put_calls_the_table_once_also_with_returning(serve, kind, returning):
    table = kind()
    client = serve(catalog_of(table))
    new = batches_of(pa.schema([("b", pa.string())]), [{"b": "p"}], [{"b": "q"}, {"b": "r"}])

    response = client.update("s.t", [10, 12, 11], new, returning=returning)

    assert response.affected_rows == 3
    (call,) = table.calls
    assert call.row_ids == [10, 12, 11]
    if returning:
        assert [row["b"] for row in response.returned] == ["p", "q", "r"]


@pytest.mark.parametrize("operation", ["insert", "update", "delete"])
@pytest.mark.parametrize("batches", [(), ([],)], ids=["no batch", "a batch without rows"])
@pytest.mark.parametrize("returning", [False, True], ids=["", "returning"])
def test_an_exchange_without_rows_changes_nothing_and_succeeds(
    serve, operation, batches, returning
):
    table = Everything()
    client = serve(catalog_of(table))
    columns = {
        "insert": pa.schema([("a", pa.int64()), ("b", pa.string())]),
        "update": UPDATE,
        "delete": DELETE,
    }

    answer = client.exchange(
        operation, "s.t", batches_of(columns[operation], *batches), returning=returning
    )

    assert answer.total_changed == 0
    assert table.calls == []


# ---------------------------------------------------------------------------------- readers' lives


@pytest.mark.parametrize("kind", [Everything, RowIdForms], ids=["batch forms", "row id forms"])
def test_rows_that_were_returned_are_read_to_the_end_and_closed(serve, kind):
    table = kind()
    client = serve(catalog_of(table))

    client.exchange("insert", "s.t", pa.table({"a": [9], "b": ["n"]}), returning=True)
    update(client, "exchange", [10], ["p"], returning=True)
    update(client, "contract", [11], ["q"], returning=True)
    delete(client, "exchange", [10], returning=True)
    delete(client, "contract", [11], returning=True)

    assert [(reader.consumed, reader.closed) for reader in table.returned] == [(True, True)] * 5


class Generous(Everything):
    """Returns rows although nobody asked."""

    def _result(self, rows: Any, options: DMLOptions) -> Any:
        return super()._result(rows, DMLOptions(returning=True))


def test_rows_that_nobody_asked_for_are_closed_too(serve):
    table = Generous()
    client = serve(catalog_of(table))

    assert update(client, "exchange", [10], ["p"]) == 1
    response = client.delete("s.t", [11])

    assert "returning_data" not in response.packed
    assert [reader.closed for reader in table.returned] == [True, True]


class Failing(Everything):
    def updated(self, *args: Any) -> Any:
        raise RuntimeError("broken")


@pytest.mark.parametrize("kind", [Everything, Failing], ids=["that succeeds", "that fails"])
def test_the_rows_handed_to_a_table_are_closed_by_the_caller(serve, kind):
    rows = batches_of(UPDATE, [{"b": "p", "rowid": 10}], [{"b": "q", "rowid": 12}])

    class Curious(kind):  # type: ignore[valid-type,misc]
        def _take(self, rows: Any) -> list[pa.RecordBatch]:
            self.given.append(rows)
            return [next(iter(rows))]  # and leaves the rest

    table = Curious()
    client = serve(catalog_of(table))
    if kind is Everything:
        assert client.exchange("update", "s.t", rows).total_changed == 1
    else:
        assert client.exchange_failure("update", "s.t", rows).code == "INTERNAL"

    assert list(table.given[0]) == []


class Silent(Everything):
    """Forgets RETURNING."""

    def _result(self, rows: Any, options: DMLOptions) -> Any:
        return super()._result(rows, DMLOptions())


@pytest.mark.parametrize("path", PATHS)
def test_a_table_that_forgets_returning_is_a_fault_of_the_catalog(serve, path):
    client = serve(catalog_of(Silent()))

    if path == "exchange":
        failure = client.exchange_failure(
            "delete", "s.t", pa.table({"rowid": [10]}), returning=True
        )
    else:
        failure = client.put_failure(
            update_command("s.t", [10], returning=True), pa.table({"b": ["p"]})
        )

    assert failure.code == "UNKNOWN"
    assert "table s.t returned no rows although RETURNING asked for them" in failure.message


# ----------------------------------------------------------------------------------------- inserts


@pytest.mark.parametrize("returning", [False, True], ids=["", "returning"])
@pytest.mark.parametrize("path", PATHS)
def test_insertable_table_insert(serve, path, returning):
    table = Inserts()
    client = serve(catalog_of(table))
    rows = pa.table(
        {"b": ["n", None], "a": pa.array([8, 9], pa.int32())}
    )  # any order, convertible types

    if path == "exchange":
        answer = client.exchange("insert", "s.t", rows, returning=returning)
        count, returned = answer.total_changed, [row for batch in answer.batches for row in batch]
    else:
        response = client.insert("s.t", rows, returning=returning)
        count, returned = response.affected_rows, response.returned if returning else []

    assert count == 2
    (call,) = table.calls
    assert (call.method, call.columns) == ("insert", ["a", "b"])
    assert call.rows == [{"a": 8, "b": "n"}, {"a": 9, "b": None}]
    assert [(row["a"], row["b"]) for row in returned] == (
        [(8, "n"), (9, None)] if returning else []
    )


def test_a_plain_table_is_not_writable_at_all(serve):
    client = serve(catalog_of(WrittenTable()))

    assert (
        client.exchange_failure("insert", "s.t", pa.table({"a": [1], "b": ["x"]})).code
        == "FAILED_PRECONDITION"
    )
    assert update_failure(client, "contract", [10], ["p"]).code == "FAILED_PRECONDITION"
    assert delete_failure(client, "contract", [10]).code == "FAILED_PRECONDITION"
