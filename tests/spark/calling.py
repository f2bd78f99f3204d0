"""Calls functions of a lake as the service does."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from sparkport.catalog import Arguments, Context, ScanOptions
from sparkport.spark import LakeCatalog

__all__ = ["Caller"]


class Caller:
    """Calls the functions of a schema as the service does."""

    def __init__(self, lake: LakeCatalog, namespace: str) -> None:
        self.schema: Any = lake.schema(Context(), namespace)

    def function(self, name: str, count: int | None = None) -> Any:
        found = [
            each
            for each in (
                *self.schema.table_functions(Context()),
                *self.schema.scalar_functions(Context()),
            )
            if each.name == name and count in (None, len(each.signature.parameters))
        ]
        return found[0]

    def call(self, name: str, *values: Any, options: ScanOptions | None = None) -> pa.Table:
        function, ctx, options = (
            self._fitting(name, len(values)),
            Context(),
            options or ScanOptions(),
        )
        arguments = self.arguments(*values)
        expected = function.schema_for_parameters(ctx, arguments)
        batches = list(function.execute(ctx, arguments, options))
        names = expected.names if options.columns is None else options.columns
        wanted = pa.schema([expected.field(each) for each in names])
        return pa.Table.from_batches([batch.select(names) for batch in batches], wanted)

    def _fitting(self, name: str, count: int) -> Any:
        """The overload for this many arguments, where there are several."""
        try:
            return self.function(name, count)
        except IndexError:
            return self.function(name)

    def sql(self, query: Any, *values: Any, **rest: Any) -> pa.Table:
        return self.call("spark_sql", query, *values, **rest)

    @staticmethod
    def arguments(*values: Any) -> Arguments:
        columns = [value if isinstance(value, pa.Array) else pa.array([value]) for value in values]
        names = [f"p{number}" for number in range(len(columns))]
        row = (
            pa.record_batch(columns, names)
            if columns
            else pa.record_batch([pa.nulls(1)], ["none"]).select([])
        )
        return Arguments([column[0].as_py() for column in columns], row)
