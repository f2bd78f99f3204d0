"""The behaviours of DDL and DML that all backends share, run on tables that the catalog makes."""

from __future__ import annotations

import pytest

from sparkport.catalog import (
    Catalog,
    Context,
    CreateSchemaOptions,
    DynamicCatalog,
    DynamicSchema,
)
from sparkport.testing.contract.altered_columns import ALTERED_COLUMNS
from sparkport.testing.contract.altered_fields import ALTERED_FIELDS
from sparkport.testing.contract.behaviours import Behaviour, SetUp
from sparkport.testing.contract.changed_rows import CHANGED_ROWS
from sparkport.testing.contract.ground import Ground
from sparkport.testing.contract.made_tables import MADE_TABLES

__all__ = ["StatementContract"]

_BEHAVIOURS = [*CHANGED_ROWS, *MADE_TABLES, *ALTERED_COLUMNS, *ALTERED_FIELDS]
_CHANGES = [each for each in _BEHAVIOURS if each.error is None]
_SET_UPS = {each.on.name: each.on for each in _BEHAVIOURS if each.error is not None}
_SCHEMA = "behaviours"


class StatementContract(Ground):
    """For catalogs whose new tables can be altered, constrained and written to by statements."""

    engine_messages: bool = False
    """Whether errors read as those of `sparkport.engine`, which memory and lake use."""

    @pytest.fixture
    def schema(self, catalog: Catalog, ctx: Context) -> DynamicSchema:
        """A new schema."""
        if not isinstance(catalog, DynamicCatalog):
            pytest.skip("the catalog is no DynamicCatalog")
        schema = catalog.create_schema(ctx, _SCHEMA, CreateSchemaOptions())
        if not isinstance(schema, DynamicSchema):
            pytest.skip("a new schema is no DynamicSchema")
        return schema

    @pytest.mark.parametrize("behaviour", _CHANGES, ids=str)
    def test_statements_that_change_a_table(
        self, schema: DynamicSchema, ctx: Context, behaviour: Behaviour
    ) -> None:
        subject = behaviour.on.made(schema, ctx)
        behaviour.expect_on(subject, messages=self.engine_messages)

    @pytest.mark.parametrize("set_up", _SET_UPS.values(), ids=list(_SET_UPS))
    def test_statements_that_are_refused_change_nothing(
        self, schema: DynamicSchema, ctx: Context, set_up: SetUp
    ) -> None:
        subject = set_up.made(schema, ctx)
        for behaviour in _BEHAVIOURS:
            if behaviour.error is not None and behaviour.on is set_up:
                behaviour.expect_on(subject, messages=self.engine_messages)
