"""Table functions: the result for given arguments is read like a table (airport §9.2)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from sparkport.catalog import (
    Arguments,
    Context,
    PartitionedTable,
    PartitionedTableFunction,
    RecordReader,
    ScanOptions,
    Table,
    TableFunction,
    TableInOutFunction,
)
from sparkport.errors import BadRequest, CatalogFault, NotFound, Unsupported
from sparkport.service import in_out_functions
from sparkport.service.calls import Call
from sparkport.service.function_guard import WatchedGuard
from sparkport.service.functions import (
    PublishedFunction,
    arguments_of,
    bind_function,
    convert_arguments,
    find_function,
    functions_named,
    guarded,
)
from sparkport.service.objects import PublishedTable, Reached, publish_result, published_name
from sparkport.service.plan import tickets
from sparkport.service.registry import RegisteredCatalog
from sparkport.wire.flight import encode_flight_info
from sparkport.wire.ipc import decode_arguments, encode_arguments
from sparkport.wire.scan import EndpointsRequest, ObjectName, TableFunctionFlightInfoRequest

if TYPE_CHECKING:
    from sparkport.service.service import Service

__all__ = ["bind_call", "flight_info", "result_of_ticket"]


def flight_info(
    service: Service, call: Call, request: TableFunctionFlightInfoRequest
) -> Iterator[bytes]:
    """The columns of a call's result (airport §4.7).

    The contracts' form of the request is `{name, parameters}` (airport §15.3).
    """
    if isinstance(request.target, ObjectName):
        yield _by_name(service, call, request.target, request.arguments)
        return
    ctx, published = bind_function(service, call, request.target, "table_function")
    if not isinstance(request.arguments, pa.RecordBatch):
        raise BadRequest(
            "table_function_flight_info: the field 'parameters' must be an Arrow IPC stream"
        )
    if isinstance(published.function, TableInOutFunction):
        arrow_schema = in_out_functions.result_schema(service, call, ctx, published, request)
        yield encode_flight_info(arrow_schema, request.target)
        return
    arguments = convert_arguments(published, request.arguments, from_duckdb=ctx.from_duckdb)
    result = _result(service, call, ctx, published, arguments, encode_arguments(request.arguments))
    rows = _estimated_rows(service, call, ctx, published, arguments)
    yield encode_flight_info(result.arrow_schema, request.target, total_records=rows)


def bind_call(
    service: Service, call: Call, request: EndpointsRequest
) -> tuple[Context, PublishedTable]:
    """Find the result on which a scan of a table function is planned.

    Raises: BadRequest, NotFound, StaleDescriptor.
    """
    assert not isinstance(request.target, ObjectName)
    ctx, published = bind_function(service, call, request.target, "table_function")
    if request.arguments is None:
        raise BadRequest(
            f"{published.title} is a table function, and the request brings no arguments for it"
        )
    if isinstance(published.function, TableInOutFunction):
        raise BadRequest(f"{published.title} wants a subquery as its last argument")
    arguments = convert_arguments(published, request.arguments, from_duckdb=ctx.from_duckdb)
    return ctx, _result(
        service, call, ctx, published, arguments, encode_arguments(request.arguments)
    )


def result_of_ticket(
    service: Service,
    call: Call,
    ctx: Context,
    registered: RegisteredCatalog,
    reached: Reached,
    schema_name: str,
) -> PublishedTable:
    """Find the result that a ticket was made for. Raises: NotFound, StaleDescriptor."""
    row = decode_arguments(reached.arguments or b"", "the ticket")
    published = find_function(
        ctx,
        registered,
        schema_name,
        "table_function",
        reached.name,
        reached.function,
        row.num_columns,
    )
    # The arguments were checked when the ticket was made, and the ticket is signed.
    arguments = convert_arguments(published, row, from_duckdb=ctx.from_duckdb)
    return _result(service, call, ctx, published, arguments, reached.arguments or b"")


def _by_name(
    service: Service, call: Call, target: ObjectName, values: Sequence[object] | pa.RecordBatch
) -> bytes:
    """Find the first function of a name that takes these values, for the contracts' form."""
    ctx, registered = service.enter(call, target.catalog)
    schemas = (
        [target.schema] if target.schema is not None else _schema_names(service, ctx, registered)
    )
    problem: BadRequest | None = None
    for schema_name in schemas:
        for published in functions_named(
            ctx, registered, schema_name, "table_function", target.name, len(values)
        ):
            try:
                arguments = arguments_of(published, list(values))
            except BadRequest as error:
                problem = problem or error
                continue
            if isinstance(published.function, TableInOutFunction):
                raise Unsupported(f"{published.title} takes a subquery, which only DuckDB can pass")
            result = _result(
                service, call, ctx, published, arguments, encode_arguments(arguments.arrow)
            )
            made = tuple(tickets(service, ctx, result))
            rows = _estimated_rows(service, call, ctx, published, arguments)
            descriptor = published.descriptor(ctx, service.signer)
            return encode_flight_info(
                result.arrow_schema, descriptor, tickets=made, total_records=rows
            )
    raise problem or NotFound(f"table function {target.name} not found")


def _schema_names(service: Service, ctx: Context, registered: RegisteredCatalog) -> list[str]:
    return [published_name(schema.name) for schema in service.listing.schemas(ctx, registered)]


def _result(
    service: Service,
    call: Call,
    ctx: Context,
    published: PublishedFunction,
    arguments: Arguments,
    encoded: bytes,
) -> PublishedTable:
    function = published.function
    assert isinstance(function, TableFunction)
    with guarded(service, call, ctx, published) as guard:
        arrow_schema = guard.call(function.schema_for_parameters, ctx, arguments)
    if not isinstance(arrow_schema, pa.Schema):
        raise CatalogFault(
            f"{published.title} told {type(arrow_schema).__name__} as its columns, not an Arrow "
            f"schema"
        )
    form = PartitionedResult if isinstance(function, PartitionedTableFunction) else FunctionResult
    reached = Reached("table_function", function.name, published.fingerprint, encoded)
    table = form(function, arguments, arrow_schema, partial(guarded, service, call, ctx, published))
    return publish_result(
        ctx, published.registered, published.schema_name, table, reached, published.title
    )


def _estimated_rows(
    service: Service, call: Call, ctx: Context, published: PublishedFunction, arguments: Arguments
) -> int:
    function = published.function
    assert isinstance(function, TableFunction)
    with guarded(service, call, ctx, published) as guard:
        rows = guard.call(function.estimated_rows, ctx, arguments)
    return -1 if rows is None else rows


class FunctionResult(Table):
    """The result of a table function for given arguments, as a table."""

    def __init__(
        self,
        function: TableFunction,
        arguments: Arguments,
        arrow_schema: pa.Schema,
        watched: Callable[[], WatchedGuard],
    ) -> None:
        """`watched` makes the guard of the function while it runs."""
        self.function = function
        self.watched = watched
        self.applies_filters = function.applies_filters
        self._arguments = arguments
        self._arrow_schema = arrow_schema

    @property
    def name(self) -> str:
        return self.function.name

    @property
    def arrow_schema(self) -> pa.Schema:
        return self._arrow_schema

    def scan(self, ctx: Context, options: ScanOptions) -> RecordReader:
        return self.function.execute(ctx, self._arguments, options)


class PartitionedResult(FunctionResult, PartitionedTable):
    """The result of a table function that can be computed in parts."""

    def partitions(self, ctx: Context, options: ScanOptions) -> Sequence[bytes]:
        assert isinstance(self.function, PartitionedTableFunction)
        with self.watched() as guard:
            return guard.call(self.function.partitions, ctx, self._arguments, options)
