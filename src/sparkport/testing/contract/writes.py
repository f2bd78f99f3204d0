"""Changing rows by DuckDB's statements, for every table that says it can; and the catalog's own
transactions.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
import pytest

from sparkport.catalog import (
    Catalog,
    ConstrainedTable,
    Context,
    DeletableBatchTable,
    DeletableTable,
    InsertableTable,
    StagedTable,
    Table,
    TransactionManager,
    TransactionState,
    UpdatableBatchTable,
    UpdatableTable,
    find_rowid_column,
)
from sparkport.errors import NotFound, TransactionNotActive
from sparkport.testing.client import DuckDBClient
from sparkport.testing.contract.ground import Ground, all_tables, same_rows
from sparkport.testing.failures import ServerError
from sparkport.testing.types import quoted

__all__ = ["WriteContract"]

INSERTS: tuple[type, ...] = (InsertableTable, StagedTable)
UPDATES: tuple[type, ...] = (UpdatableTable, UpdatableBatchTable, StagedTable)
DELETES: tuple[type, ...] = (DeletableTable, DeletableBatchTable, StagedTable)


class WriteContract(Ground):
    """INSERT, UPDATE, DELETE with and without RETURNING; transactions."""

    def new_rows(self, client: DuckDBClient, schema: str, table: Table) -> pa.Table | None:
        """Rows that may be inserted into a table; None: there are none. By default, copies of its
        first rows.

        Override it for tables whose keys refuse copies; it is asked anew for every statement.
        """
        if _has_keys(table):
            return None
        rows = client.scan(schema, table.name).slice(0, 3)
        return rows if rows.num_rows else None

    def may_refuse(self, table: Table) -> bool:
        """Whether a table may refuse a kind of change; by default a StagedTable, which need not
        support every kind.
        """
        return isinstance(table, StagedTable)

    def test_insert_adds_the_rows(
        self, client: DuckDBClient, catalog: Catalog, ctx: Context
    ) -> None:
        for schema, table in _tables(catalog, ctx, INSERTS):
            with self._unless_refused(table):
                rows = self._new_rows(client, schema, table)
                before = client.scan(schema, table.name)
                assert client.insert(schema, table.name, rows).total == rows.num_rows
                after = client.scan(schema, table.name)
                assert same_rows(after, pa.concat_tables([before, rows.cast(before.schema)]))

    def test_insert_returning_gives_the_rows_back(
        self, client: DuckDBClient, catalog: Catalog, ctx: Context
    ) -> None:
        for schema, table in _tables(catalog, ctx, INSERTS):
            rows = self._new_rows(client, schema, table)
            with self._unless_refused(table):
                inserted = client.insert(schema, table.name, rows, returning=True)
                assert inserted.total == rows.num_rows
                assert same_rows(inserted.rows, rows)

    def test_insert_of_no_rows_changes_nothing(
        self, client: DuckDBClient, catalog: Catalog, ctx: Context
    ) -> None:
        for schema, table in _tables(catalog, ctx, INSERTS):
            before = client.scan(schema, table.name)
            for returning in (True, False):
                with self._unless_refused(table):
                    assert (
                        client.insert(
                            schema, table.name, before.slice(0, 0), returning=returning
                        ).total
                        == 0
                    )
            assert same_rows(client.scan(schema, table.name), before)

    def test_update_keeps_what_it_does_not_change(
        self, client: DuckDBClient, catalog: Catalog, ctx: Context
    ) -> None:
        for schema, table in _tables(catalog, ctx, UPDATES):
            before = client.scan(schema, table.name)
            column = before.column_names[-1]
            for returning in (False, True):
                with self._unless_refused(table):
                    updated = client.update(
                        schema, table.name, {column: quoted(column)}, returning=returning
                    )
                    assert updated.total == before.num_rows
                    assert updated.rows is None or _same_values(updated.rows, before)
                assert same_rows(client.scan(schema, table.name), before)

    def test_update_changes_the_rows_of_its_condition_only(
        self, client: DuckDBClient, catalog: Catalog, ctx: Context
    ) -> None:
        for schema, table in _tables(catalog, ctx, UPDATES):
            names = [
                column.name
                for column in client.table(schema, table.name).columns
                if column.nullable
            ]
            before = client.scan(schema, table.name, ["rowid", *names[-1:]])
            if before.num_columns == 1 or not before.num_rows:
                continue
            first = before.column("rowid")[0].as_py()
            with self._unless_refused(table):
                changed = client.update(
                    schema, table.name, {names[-1]: "NULL"}, where=f"rowid = {first!r}"
                )
                assert changed.total == 1
                after = client.scan(schema, table.name, names[-1:]).column(0).to_pylist()
                # The row id of the changed row may be a new one, so it is the values that are
                # compared.
                assert sorted(map(repr, after)) == sorted(
                    map(repr, [*before.column(1).to_pylist()[1:], None])
                )

    @pytest.mark.parametrize("returning", [False, True])
    def test_delete_removes_the_rows_of_its_condition_only(
        self, client: DuckDBClient, catalog: Catalog, ctx: Context, returning: bool
    ) -> None:
        for schema, table in _tables(catalog, ctx, DELETES):
            before = client.scan(schema, table.name)
            if not before.num_rows:
                continue
            condition = (
                f"rowid = {client.scan(schema, table.name, ['rowid']).column(0)[0].as_py()!r}"
            )
            expected = client.scan(schema, table.name, where=condition)
            with self._unless_refused(table):
                deleted = client.delete(schema, table.name, condition, returning=returning)
                assert deleted.total == 1
                assert not returning or same_rows(deleted.rows, expected)
                after = client.scan(schema, table.name)
                assert same_rows(pa.concat_tables([after, expected]), before)

    def test_a_source_over_the_same_table_sees_it_as_it_was(
        self, client: DuckDBClient, catalog: Catalog, ctx: Context
    ) -> None:
        for schema, table in _tables(catalog, ctx, INSERTS):
            if _has_keys(table):
                continue
            before = client.scan(schema, table.name)
            with self._unless_refused(table):
                copied = client.insert_select(schema, table.name, (schema, table.name))
                assert copied.total == before.num_rows
                assert same_rows(
                    client.scan(schema, table.name), pa.concat_tables([before, before])
                )

    def test_a_block_sees_its_own_changes(
        self, client: DuckDBClient, catalog: Catalog, ctx: Context
    ) -> None:
        for schema, table in _tables(catalog, ctx, INSERTS):
            client.begin()
            due = client.count(schema, table.name)
            for _ in range(2):
                rows = self._new_rows(client, schema, table)
                with self._unless_refused(table):
                    due += client.insert(schema, table.name, rows).total
                assert client.count(schema, table.name) == due
            client.commit()
            assert client.count(schema, table.name) == due

    def test_transactions_end_once(self, catalog: Catalog, ctx: Context) -> None:
        if not isinstance(catalog, TransactionManager):
            pytest.skip("the catalog is no TransactionManager")
        committed, aborted = catalog.begin_transaction(ctx), catalog.begin_transaction(ctx)
        assert committed != aborted
        assert catalog.transaction_status(ctx, committed) is TransactionState.ACTIVE
        for _ in range(2):
            catalog.commit_transaction(ctx, committed)
            catalog.rollback_transaction(ctx, aborted)
        assert catalog.transaction_status(ctx, committed) is TransactionState.COMMITTED
        assert catalog.transaction_status(ctx, aborted) is TransactionState.ABORTED
        with pytest.raises(TransactionNotActive):
            catalog.commit_transaction(ctx, aborted)
        catalog.rollback_transaction(ctx, committed)
        assert catalog.transaction_status(ctx, committed) is TransactionState.COMMITTED

    def test_a_transaction_that_never_was_is_unknown(self, catalog: Catalog, ctx: Context) -> None:
        if not isinstance(catalog, TransactionManager):
            pytest.skip("the catalog is no TransactionManager")
        assert catalog.transaction_status(ctx, "never begun") is None
        with pytest.raises(NotFound):
            catalog.commit_transaction(ctx, "never begun")

    @contextmanager
    def _unless_refused(self, table: Table) -> Iterator[None]:
        """A table that refuses clearly, and may, is left out."""
        try:
            yield
        except ServerError as error:
            clearly = error.code in ("FAILED_PRECONDITION", "UNIMPLEMENTED")
            if (
                not clearly
                or error.duckdb_exception == "ConstraintException"
                or not self.may_refuse(table)
            ):
                raise

    def _new_rows(self, client: DuckDBClient, schema: str, table: Table) -> pa.Table:
        rows = self.new_rows(client, schema, table)
        return client.scan(schema, table.name).slice(0, 0) if rows is None else rows


def _tables(
    catalog: Catalog, ctx: Context, capabilities: tuple[type, ...]
) -> list[tuple[str, Table]]:
    """To change rows, the client needs their ids (trap T39): a StagedTable without them can only be
    inserted into.
    """
    found = [
        (schema.name, table)
        for schema, table in all_tables(catalog, ctx)
        if isinstance(table, capabilities) and (capabilities is INSERTS or _has_row_ids(table))
    ]
    if not found:
        pytest.skip(
            f"no table is any of {', '.join(capability.__name__ for capability in capabilities)}"
        )
    return found


def _has_row_ids(table: Table) -> bool:
    return table.arrow_schema is None or find_rowid_column(table.arrow_schema) is not None


def _has_keys(table: Table) -> bool:
    return isinstance(table, ConstrainedTable) and bool(
        table.constraints.primary_key or table.constraints.unique
    )


def _same_values(returned: pa.Table, rows: pa.Table) -> bool:
    """RETURNING of an UPDATE comes in the encodings of what was sent: compared where those are the
    same.
    """
    names = [
        name
        for name in rows.column_names
        if returned.schema.field(name).type == rows.schema.field(name).type
    ]
    return returned.num_rows == rows.num_rows and same_rows(
        returned.select(names), rows.select(names)
    )
