"""Changing the catalog itself by DuckDB's DDL, where it is dynamic."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

from sparkport.catalog import Catalog, Context, DynamicCatalog, DynamicSchema, DynamicTable
from sparkport.testing.client import DuckDBClient
from sparkport.testing.contract.ground import Ground
from sparkport.testing.failures import ClientSideError, ServerError
from sparkport.testing.objects import AttachedColumn

__all__ = ["StructureContract"]

MADE = "contract_made"
COLUMNS = {"id": "BIGINT", "name": "VARCHAR", "amount": "DOUBLE"}


class StructureContract(Ground):
    """CREATE, DROP and ALTER. What a catalog refuses as UNIMPLEMENTED is skipped."""

    @pytest.fixture
    def made(self, client: DuckDBClient, catalog: Catalog) -> str:
        """A new schema."""
        if not isinstance(catalog, DynamicCatalog):
            pytest.skip("the catalog is no DynamicCatalog")
        client.create_schema(MADE)
        return MADE

    @pytest.fixture
    def things(self, client: DuckDBClient, catalog: Catalog, ctx: Context, made: str) -> str:
        """A new table in the new schema."""
        if not isinstance(catalog.schema(ctx, made), DynamicSchema):
            pytest.skip("a new schema is no DynamicSchema")
        client.create_table(made, "things", COLUMNS)
        return "things"

    @pytest.fixture
    def alterable(self, catalog: Catalog, ctx: Context, made: str, things: str) -> str:
        schema = catalog.schema(ctx, made)
        if schema is None or not isinstance(schema.table(ctx, things), DynamicTable):
            pytest.skip("a new table is no DynamicTable")
        return things

    def test_a_schema_comes_and_goes(
        self, client: DuckDBClient, catalog: Catalog, ctx: Context, made: str
    ) -> None:
        assert catalog.schema(ctx, made) is not None
        assert client.tables(made) == {}
        client.create_schema(made)  # as CREATE SCHEMA IF NOT EXISTS (trap T36)
        client.drop_schema(made)
        assert catalog.schema(ctx, made) is None
        client.drop_schema(made, if_exists=True)
        assert _refused(lambda: client.drop_schema(made)) == "NOT_FOUND"

    def test_a_table_comes_and_goes(
        self, client: DuckDBClient, catalog: Catalog, ctx: Context, made: str, things: str
    ) -> None:
        columns = client.table(made, things).columns
        assert [(column.name, column.type) for column in columns] == list(COLUMNS.items())
        assert client.count(made, things) == 0
        assert _refused(lambda: client.create_table(made, things, COLUMNS)) == "ALREADY_EXISTS"
        again = client.create_table(made, things, {"other": "DATE"}, if_not_exists=True)
        assert [column.name for column in again.columns] == list(COLUMNS)
        assert _refused(lambda: client.drop_schema(made)) == "FAILED_PRECONDITION"
        client.drop_table(made, things)
        schema = catalog.schema(ctx, made)
        assert schema is not None
        assert schema.table(ctx, things) is None
        with pytest.raises(ClientSideError):
            client.scan(made, things)

    def test_every_change_raises_the_version(
        self, client: DuckDBClient, made: str, things: str
    ) -> None:
        versions = []
        for change in (
            lambda: client.count(made, things),
            lambda: client.create_table(made, "another", COLUMNS),
            lambda: client.count(made, things),
            lambda: client.drop_table(made, "another"),
            lambda: client.count(made, things),
        ):
            change()
            versions.append(client.catalog_version)
        numbers = [version[0] for version in versions if version is not None]
        assert numbers[0] < numbers[2] < numbers[4], (
            "DuckDB re-binds prepared statements by the version (§3.8)"
        )

    def test_others_see_the_change_when_they_attach(
        self, client: DuckDBClient, catalog: Catalog, server: object, made: str, things: str
    ) -> None:
        with self.connect(server, catalog) as other:
            assert things in other.attach().tables(made)

    def test_constraints_are_published(self, client: DuckDBClient, made: str, things: str) -> None:
        table = client.create_table(
            made, "strict", COLUMNS, not_null=["name"], checks=["(amount > 0)"]
        )
        assert [column.nullable for column in table.columns] == [True, False, True]
        assert len(table.checks) == 1

    def test_a_new_table_can_be_filled(self, client: DuckDBClient, made: str, things: str) -> None:
        rows = pa.table({"id": [1, 2], "name": ["a", None], "amount": [1.5, None]})
        try:
            assert client.insert(made, things, rows).total == 2
        except ServerError as error:
            if error.code in ("FAILED_PRECONDITION", "UNIMPLEMENTED"):
                pytest.skip(f"refused: {error.message}")
            raise
        assert client.scan(made, things).to_pydict() == rows.to_pydict()
        assert client.create_table_as(made, "copied", rows).total == 2
        assert client.scan(made, "copied").to_pydict() == rows.to_pydict()

    def test_columns_come_and_go(self, client: DuckDBClient, made: str, alterable: str) -> None:
        table = client.add_column(made, alterable, "added", "INTEGER")
        assert table.column("added") is not None
        client.scan(made, alterable)
        assert (
            _refused(lambda: client.add_column(made, alterable, "added", "DATE"))
            == "ALREADY_EXISTS"
        )
        client.add_column(made, alterable, "added", "INTEGER", if_not_exists=True)
        table = client.remove_column(made, alterable, "added")
        assert table.column("added") is None
        client.scan(made, alterable)
        assert _refused(lambda: client.remove_column(made, alterable, "added")) == "NOT_FOUND"
        client.remove_column(made, alterable, "added", if_exists=True)

    def test_names_types_and_constraints_change(
        self, client: DuckDBClient, made: str, alterable: str
    ) -> None:
        _supported(lambda: client.rename_column(made, alterable, "name", "label"))
        assert client.table(made, alterable).column("label") is not None
        _supported(lambda: client.set_default(made, alterable, "label", "'x'"))
        assert _column(client, made, alterable, "label").default == "'x'"
        _supported(lambda: client.set_not_null(made, alterable, "id"))
        assert not _column(client, made, alterable, "id").nullable
        _supported(lambda: client.drop_not_null(made, alterable, "id"))
        assert _column(client, made, alterable, "id").nullable
        _supported(lambda: client.change_column_type(made, alterable, "amount", "VARCHAR"))
        assert _column(client, made, alterable, "amount").type == "VARCHAR"
        _supported(lambda: client.rename_table(made, alterable, "renamed"))
        assert list(client.tables(made)) == ["renamed"]
        client.scan(made, "renamed")


def _refused(statement: Callable[[], object]) -> str:
    with pytest.raises(ServerError) as caught:
        statement()
    return caught.value.code


def _supported(statement: Callable[[], object]) -> None:
    try:
        statement()
    except ServerError as error:
        if error.code == "UNIMPLEMENTED":
            pytest.skip(f"refused: {error.message}")
        raise


def _column(client: DuckDBClient, schema: str, table: str, name: str) -> AttachedColumn:
    column = client.table(schema, table).column(name)
    assert column is not None
    return column
