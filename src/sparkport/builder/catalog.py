"""The builder: most people describe a catalog with it and subclass nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.dataset as ds

from sparkport.builder.functions import (
    PythonScalarFunction,
    PythonTableFunction,
    PythonTableInOutFunction,
    signature_of,
)
from sparkport.builder.tables import DatasetTable, FunctionTable, ScanFunction, parquet_dataset
from sparkport.catalog import Catalog, Constraints, ParameterKind, Stability, Table
from sparkport.errors import BadRequest
from sparkport.memory import MemoryCatalog, MemorySchema, MemoryTable

__all__ = ["CatalogBuilder", "SchemaBuilder"]

_Function = TypeVar("_Function", bound=Callable[..., Any])


class CatalogBuilder:
    """Describes a catalog.

        shop = CatalogBuilder("shop")
        sales = shop.schema("sales", comment="What we sold")
        sales.table("orders", pa.table({"id": [1, 2], "amount": [9.5, 12.0]}))
        serve(shop, "grpc://127.0.0.1:50051")

    What is added after the server has started is served at once, to clients that attach from then on.
    """

    def __init__(self, name: str = "") -> None:
        """`name` is what users give in ATTACH; printable ASCII."""
        self._catalog = MemoryCatalog(name)

    def schema(self, name: str, comment: str = "", tags: dict[str, str] | None = None) -> SchemaBuilder:
        """A new schema. Raises: AlreadyExists, BadRequest."""
        return SchemaBuilder(self._catalog.add_schema(name, comment=comment, tags=tags or {}))

    @property
    def name(self) -> str:
        """What users give in ATTACH."""
        return self._catalog.name

    def build(self) -> Catalog:
        """The catalog, for those who want more than to serve it."""
        return self._catalog


class SchemaBuilder:
    """Describes a schema."""

    def __init__(self, schema: MemorySchema) -> None:
        self._schema = schema

    def table(
        self,
        name: str,
        source: pa.Table | pa.RecordBatch | pa.Schema | ds.Dataset | str | Path | Table | ScanFunction,
        *,
        comment: str = "",
        arrow_schema: pa.Schema | None = None,
        constraints: Constraints | None = None,
    ) -> SchemaBuilder:
        """Add a table.

        `source` is an Arrow table, a record batch, or an Arrow schema for an empty table: these can be written to, in
        memory. Or an Arrow dataset, the path of a Parquet file or folder, or a function `(ctx, options) -> batches`
        together with its `arrow_schema`: these can be read. Or any `Table`, which keeps its own name and comment.

        Raises: AlreadyExists; BadRequest or Unsupported for columns that DuckDB could not take.
        """
        self._schema.add_table(_table(name, source, comment, arrow_schema, constraints))
        return self

    def scalar_function(
        self,
        function: Callable[..., Any] | None = None,
        *,
        name: str | None = None,
        stability: Stability | str = Stability.VOLATILE,
    ) -> Any:
        """Decorate a function of Arrow arrays; its annotations are Arrow types."""

        def add(function: _Function) -> _Function:
            comment = (function.__doc__ or "").strip()
            self._schema.add_scalar_function(
                PythonScalarFunction(function, name or function.__name__, comment, Stability(stability))
            )
            return function

        return add if function is None else add(function)

    def table_function(
        self, *, returns: pa.Schema | Callable[..., pa.Schema], name: str | None = None
    ) -> Callable[[_Function], _Function]:
        """Decorate a function that yields batches; with a `pa.Table` parameter it is an in/out function."""

        def add(function: _Function) -> _Function:
            comment = (function.__doc__ or "").strip()
            kinds = {parameter.kind for parameter in signature_of(function).parameters}
            form = PythonTableInOutFunction if ParameterKind.TABLE in kinds else PythonTableFunction
            self._schema.add_table_function(form(function, name or function.__name__, comment, returns))
            return function

        return add


def _table(
    name: str, source: Any, comment: str, arrow_schema: pa.Schema | None, constraints: Constraints | None
) -> Table:
    if isinstance(source, Table):
        return source
    if isinstance(source, pa.RecordBatch):
        source = pa.Table.from_batches([source])
    if isinstance(source, pa.Table | pa.Schema):
        return MemoryTable(name, source, comment=comment, constraints=constraints or Constraints())
    if constraints is not None:
        raise BadRequest(f"table {name} is read-only, so it can have no constraints")
    if isinstance(source, str | Path):
        source = parquet_dataset(source)
    if isinstance(source, ds.Dataset):
        return DatasetTable(name, source, comment)
    if callable(source):
        if arrow_schema is None:
            raise BadRequest(f"table {name} is a scan function, so say its arrow_schema")
        return FunctionTable(name, arrow_schema, source, comment)
    raise BadRequest(f"table {name}: a {type(source).__name__} cannot be served as a table")
