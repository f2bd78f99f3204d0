"""The builder: it describes most catalogs without any subclass."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import pyarrow as pa

from sparkport.builder.actions import action_body
from sparkport.builder.functions import (
    FunctionOptions,
    PythonScalarFunction,
    Returns,
    python_table_function,
    refuse_repeated,
)
from sparkport.builder.signatures import describe
from sparkport.builder.tables import TableSource, table_of
from sparkport.catalog import (
    Catalog,
    Constraints,
    Context,
    CustomAction,
    FlightName,
    NullHandling,
    Schema,
    Stability,
)
from sparkport.errors import BadRequest
from sparkport.memory import MemoryCatalog, MemorySchema, MemorySettings

__all__ = ["CatalogBuilder", "SchemaBuilder"]

_Function = TypeVar("_Function", bound=Callable[..., Any])


class CatalogBuilder:
    """Describes a catalog.

        shop = CatalogBuilder("shop")
        sales = shop.schema("sales", comment="What we sold")
        sales.table("orders", pa.table({"id": [1, 2], "amount": [9.5, 12.0]}))
        serve(shop, "grpc://127.0.0.1:50051")

    What is added after the server has started is served at once, to clients that attach from then
    on.
    """

    def __init__(self, name: str = "", settings: MemorySettings | None = None) -> None:
        """`name`, in printable ASCII, is what users give in ATTACH. `settings` limit the memory."""
        self._catalog = MemoryCatalog(name, settings=settings)
        self._flights: list[str] = []

    def schema(
        self, name: str, comment: str = "", tags: dict[str, str] | None = None
    ) -> SchemaBuilder:
        """Add a schema. Raises: AlreadyExists, BadRequest."""
        return SchemaBuilder(self._catalog.add_schema(name, comment=comment, tags=tags or {}))

    def action(self, function: Callable[..., Any] | None = None, *, name: str | None = None) -> Any:
        """Decorate a function `(ctx, parameter: bytes)` that clients can run as an action.

        In SQL: `FROM airport_action('grpc://…', 'name', 'parameter')`. The function returns a row,
        as text or bytes; a generator yields a row for each value. Raises: AlreadyExists.
        """

        def add(function: _Function) -> _Function:
            comment = inspect.cleandoc(function.__doc__ or "")
            self._catalog.add_action(
                CustomAction(name or function.__name__, action_body(function), comment)
            )
            return function

        return add if function is None else add(function)

    def flight(
        self,
        path: str | bytes | Sequence[str],
        source: TableSource,
        *,
        arrow_schema: pa.Schema | None = None,
    ) -> CatalogBuilder:
        """Add a table that is in no schema, for `airport_take_flight`.

        A list of texts is a path, a text is a command. `source` is as for `SchemaBuilder.table`.
        Raises: AlreadyExists, BadRequest.
        """
        name: FlightName = (
            path.encode()
            if isinstance(path, str)
            else path
            if isinstance(path, bytes)
            else tuple(path)
        )
        title = "/".join(name) if isinstance(name, tuple) else "flight"
        self._catalog.add_flight(name, table_of(title, source, "", arrow_schema, None))
        self._flights.append(title)
        return self

    @property
    def name(self) -> str:
        """The name that users give in ATTACH."""
        return self._catalog.name

    def function_schemas(self) -> Sequence[Schema]:
        """The schemas of a catalog that has nothing but functions, for `LakeCatalog.include`.

        Raises: BadRequest for tables, actions and flights, which have no place in a lake.
        """
        ctx = Context()
        schemas = self._catalog.schemas(ctx)
        others = [
            *(f"table {each.name}.{table.name}" for each in schemas for table in each.tables(ctx)),
            *(f"action {each.name}" for each in self._catalog.actions(ctx)),
            *(f"flight {each}" for each in self._flights),
        ]
        if others:
            raise BadRequest(
                f"catalog {self.name} has the {others[0]}: only functions can be added to a lake, "
                "so serve it as a catalog of its own"
            )
        return schemas

    def build(self) -> Catalog:
        """Return the catalog, for programs that do more than serve it."""
        return self._catalog


class SchemaBuilder:
    """Describes a schema."""

    def __init__(self, schema: MemorySchema) -> None:
        self._schema = schema

    def table(
        self,
        name: str,
        source: TableSource,
        *,
        comment: str = "",
        arrow_schema: pa.Schema | None = None,
        constraints: Constraints | None = None,
    ) -> SchemaBuilder:
        """Add a table.

        `source` is an Arrow table, a record batch, or an Arrow schema for an empty table: these can
        be written to, in memory. Or an Arrow dataset, the path of a Parquet file or folder, or a
        function `(ctx, options) -> batches` together with its `arrow_schema`: these can be read. Or
        files and calls that DuckDB itself reads: a `FileReference` or `FunctionCall`, or a list of
        them, together with the `arrow_schema`. Or any `Table`, which keeps its own name and
        comment.

        Raises: AlreadyExists; BadRequest or Unsupported for columns that DuckDB could not take.
        """
        self._schema.add_table(table_of(name, source, comment, arrow_schema, constraints))
        return self

    def scalar_function(
        self,
        function: Callable[..., Any] | None = None,
        *,
        name: str | None = None,
        returns: pa.DataType | None = None,
        stability: Stability | str = Stability.VOLATILE,
        nulls: NullHandling | str = NullHandling.PASS,
        time_limit: float | None = 600.0,
        interruptible: bool = True,
    ) -> Any:
        """Decorate a function of Arrow arrays, annotated with Arrow types (see `describe`).

        It returns as many values as it gets, or one Arrow scalar for all rows. With
        `nulls="propagate"` a row with a NULL among its arguments has the result NULL, and is not
        shown to the function. `time_limit` is for one batch, in seconds.

        Raises: BadRequest.
        """

        def add(function: _Function) -> _Function:
            options = _options(function, name, time_limit, interruptible)
            try:
                chosen = Stability(stability), NullHandling(nulls)
            except ValueError as error:
                raise BadRequest(f"function {options.name}: {error}") from error
            made = [
                PythonScalarFunction(described, options, *chosen)
                for described in describe(function, options.name, "scalar", returns)
            ]
            refuse_repeated(made, self._schema.scalar_functions(Context()))
            for each in made:
                self._schema.add_scalar_function(each)
            return function

        return add if function is None else add(function)

    def table_function(
        self,
        *,
        returns: Returns,
        name: str | None = None,
        partitions: Callable[..., Iterable[bytes]] | None = None,
        time_limit: float | None = 600.0,
        interruptible: bool = True,
    ) -> Callable[[_Function], _Function]:
        """Decorate a function that yields batches, or returns a table.

        With a `pa.Table` parameter it is an in/out function, which gets an iterator over the
        batches of a subquery; with a `pa.RecordBatch` parameter it is called for each of them.
        `returns` is the Arrow schema of the result, or a function that makes it from the arguments.
        `partitions` makes from the arguments a list of partitions: the function is called once for
        each, with a `ScanOptions` whose `partition` is that value.

        Raises: BadRequest.
        """

        def add(function: _Function) -> _Function:
            options = _options(function, name, time_limit, interruptible)
            made = [
                python_table_function(described, options, returns, partitions)
                for described in describe(function, options.name, "table")
            ]
            refuse_repeated(made, self._schema.table_functions(Context()))
            for each in made:
                self._schema.add_table_function(each)
            return function

        return add


def _options(
    function: Callable[..., Any], name: str | None, time_limit: float | None, interruptible: bool
) -> FunctionOptions:
    comment = inspect.cleandoc(function.__doc__ or "")
    called = name or getattr(function, "__name__", "")
    if not called:
        raise BadRequest(f"a {type(function).__name__} has no name of its own: say name=")
    return FunctionOptions(called, comment, time_limit, interruptible)
