"""The table of actions: how to decode the body of each, and what to run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from sparkport.catalog import ActionCatalog, Context, CustomAction, Privilege
from sparkport.errors import CatalogFault, Unsupported
from sparkport.service import (
    ddl,
    discovery,
    put,
    scan,
    sessions,
    sql_statements,
    sql_transactions,
    statistics,
    table_functions,
    transactions,
)
from sparkport.service.calls import Call
from sparkport.service.closing import closing_reader
from sparkport.wire.catalogs import (
    CatalogRequest,
    decode_catalog_version,
    decode_list_schemas,
    encode_catalog_version,
)
from sparkport.wire.ddl import (
    decode_add_column,
    decode_add_constraint,
    decode_add_field,
    decode_change_column_type,
    decode_create_schema,
    decode_create_table,
    decode_drop_not_null,
    decode_drop_schema,
    decode_drop_table,
    decode_remove_column,
    decode_remove_field,
    decode_rename_column,
    decode_rename_field,
    decode_rename_table,
    decode_set_default,
    decode_set_not_null,
)
from sparkport.wire.discovery import decode_discovery
from sparkport.wire.flight import Action, encode_action_type, encode_result
from sparkport.wire.scan import (
    decode_endpoints,
    decode_flight_info,
    decode_table_function_flight_info,
)
from sparkport.wire.sessions import (
    decode_cancel_flight_info,
    decode_nothing,
    decode_set_options,
)
from sparkport.wire.sql_statements import (
    decode_begin_transaction,
    decode_cancel_query,
    decode_close_prepared,
    decode_create_prepared,
    decode_end_transaction,
)
from sparkport.wire.statistics import decode_column_statistics
from sparkport.wire.transactions import (
    decode_commit_transaction,
    decode_create_transaction,
    decode_get_transaction_status,
    decode_rollback_transaction,
)
from sparkport.wire.write import decode_delete

if TYPE_CHECKING:
    from sparkport.service.service import Service

__all__ = ["ACTIONS", "ONE_RESULT", "list_actions", "run_action"]


@dataclass(frozen=True, slots=True)
class ActionType:
    """How an action is decoded and run; `run` yields the bodies of its results."""

    description: str
    decode: Callable[[bytes], Any]
    run: Callable[[Service, Call, Any], Iterator[bytes]]


def run_action(service: Service, call: Call, action: Action) -> Iterator[bytes]:
    """Yield the result messages of an action. Raises: Unsupported for an unknown action."""
    action_type = ACTIONS.get(action.type)
    if action_type is None:
        for body in _run_custom(service, call, action):
            yield encode_result(body)
        return
    # The body is decoded before the first result is asked for, so that a bad body is a plain error.
    with service.authentication_first(call):
        if action.type in ONE_RESULT and len(action.body) <= _SMALL_BODY:
            request = _decoded(action)
        else:
            request = action_type.decode(action.body)
    call.work.note_request(request)
    for body in action_type.run(service, call, request):
        yield encode_result(body)


@lru_cache(maxsize=1024)
def _decoded(action: Action) -> Any:
    """Decode a small request of a query. The same come again and again; none can be changed."""
    return ACTIONS[action.type].decode(action.body)


def list_actions(service: Service, call: Call) -> Iterator[bytes]:
    """Yield the ActionType messages, for ListActions."""
    for name, action_type in ACTIONS.items():
        yield encode_action_type(name, action_type.description)
    for _, action in _custom_actions(service, call):
        yield encode_action_type(action.name, action.description)


def _custom_actions(service: Service, call: Call) -> Iterator[tuple[Context, CustomAction]]:
    """Yield the custom actions of the catalog that the header names, or of all catalogs.

    `airport_action` names no catalog (airport §11).
    """
    named = call.headers.catalog
    seen = set(ACTIONS)
    for registered in service.catalogs(call) if named is None else (service.catalog(call, named),):
        if isinstance(registered.catalog, ActionCatalog):
            ctx, _ = service.enter(call, registered.name)
            if not ctx.access.may(Privilege.READ):  # only the catalog knows what they do
                continue
            for action in registered.catalog.actions(ctx):
                if action.name not in seen:
                    seen.add(action.name)
                    yield ctx, action


def _run_custom(service: Service, call: Call, action: Action) -> Iterator[bytes]:
    """Run an action of a catalog.

    Raises: Unsupported when no catalog has it; CatalogFault when it returns anything but bytes.
    """
    offered = _custom_actions(service, call)
    found = next((each for each in offered if each[1].name == action.type), None)
    if found is None:
        raise Unsupported(f"there is no action {action.type[:60]!r}")
    ctx, custom = found
    answer = custom.run(ctx, action.body)
    if not isinstance(answer, Iterable):
        raise CatalogFault(
            f"the action {custom.name} gave {type(answer).__name__}, not bytes one by one"
        )
    with closing_reader(answer) as results:
        for body in results:
            ctx.check()
            if not isinstance(body, bytes):
                raise CatalogFault(
                    f"the action {custom.name} gave {type(body).__name__}, not bytes"
                )
            yield body


def _list_schemas(service: Service, call: Call, request: CatalogRequest) -> Iterator[bytes]:
    ctx, registered = service.enter(call, request.catalog)
    yield service.listing.schema_list(ctx, registered)


def _catalog_version(service: Service, call: Call, request: CatalogRequest) -> Iterator[bytes]:
    ctx, registered = service.enter(call, request.catalog)
    yield encode_catalog_version(registered.version(ctx))


ACTIONS: Mapping[str, ActionType] = {
    "list_schemas": ActionType(
        "The schemas and objects of a catalog", decode_list_schemas, _list_schemas
    ),
    "catalog_version": ActionType(
        "A number that rises with each change", decode_catalog_version, _catalog_version
    ),
    "create_transaction": ActionType(
        "Begin a transaction", decode_create_transaction, transactions.create_transaction
    ),
    "endpoints": ActionType("Plan a scan: tickets for DoGet", decode_endpoints, scan.endpoints),
    "flight_info": ActionType(
        "A table as of a point in time", decode_flight_info, scan.flight_info
    ),
    "table_function_flight_info": ActionType(
        "The columns that a table function gives",
        decode_table_function_flight_info,
        table_functions.flight_info,
    ),
    "column_statistics": ActionType(
        "Bounds of a column's values", decode_column_statistics, statistics.column_statistics
    ),
    "create_schema": ActionType("Create a schema", decode_create_schema, ddl.create_schema),
    "drop_schema": ActionType("Drop an empty schema", decode_drop_schema, ddl.drop_schema),
    "create_table": ActionType("Create a table", decode_create_table, ddl.create_table),
    "drop_table": ActionType("Drop a table", decode_drop_table, ddl.drop_table),
    "add_column": ActionType("Add a column", decode_add_column, ddl.alter_table),
    "remove_column": ActionType("Remove a column", decode_remove_column, ddl.alter_table),
    "rename_column": ActionType("Rename a column", decode_rename_column, ddl.alter_table),
    "rename_table": ActionType("Rename a table", decode_rename_table, ddl.alter_table),
    "set_default": ActionType("Set a column's default", decode_set_default, ddl.alter_table),
    "set_not_null": ActionType("Forbid NULLs in a column", decode_set_not_null, ddl.alter_table),
    "drop_not_null": ActionType("Allow NULLs in a column", decode_drop_not_null, ddl.alter_table),
    "change_column_type": ActionType(
        "Change a column's type", decode_change_column_type, ddl.alter_table
    ),
    "add_field": ActionType("Add a field to a struct", decode_add_field, ddl.alter_table),
    "remove_field": ActionType("Remove a field of a struct", decode_remove_field, ddl.alter_table),
    "rename_field": ActionType("Rename a field of a struct", decode_rename_field, ddl.alter_table),
    "add_constraint": ActionType("Add a constraint", decode_add_constraint, ddl.alter_table),
    "delete": ActionType("Delete rows by their ids (JSON)", decode_delete, put.delete),
    "get_transaction_status": ActionType(
        "The state of a transaction", decode_get_transaction_status, transactions.status
    ),
    "commit_transaction": ActionType(
        "Commit a transaction", decode_commit_transaction, transactions.commit
    ),
    "rollback_transaction": ActionType(
        "Roll a transaction back", decode_rollback_transaction, transactions.rollback
    ),
    "GetCatalogs": ActionType(
        "The catalogs (zstd, Arrow IPC)", decode_discovery, discovery.get_catalogs
    ),
    "GetDbSchemas": ActionType(
        "The schemas (zstd, Arrow IPC)", decode_discovery, discovery.get_schemas
    ),
    "GetTables": ActionType("The tables (zstd, Arrow IPC)", decode_discovery, discovery.get_tables),
    "GetTableTypes": ActionType(
        "The types of tables (zstd, Arrow IPC)", decode_discovery, discovery.get_table_types
    ),
    "CreatePreparedStatement": ActionType(
        "Prepare a statement (Flight SQL)", decode_create_prepared, sql_statements.prepare
    ),
    "ClosePreparedStatement": ActionType(
        "Close a prepared statement (Flight SQL)", decode_close_prepared, sql_statements.close
    ),
    "BeginTransaction": ActionType(
        "Begin a transaction (Flight SQL)", decode_begin_transaction, sql_transactions.begin
    ),
    "EndTransaction": ActionType(
        "Commit a transaction or roll it back (Flight SQL)",
        decode_end_transaction,
        sql_transactions.end,
    ),
    "CancelFlightInfo": ActionType(
        "Cancel a query", decode_cancel_flight_info, sessions.cancel_flight_info
    ),
    "CancelQuery": ActionType(
        "Cancel a query (Flight SQL)", decode_cancel_query, sessions.cancel_query
    ),
    "SetSessionOptions": ActionType(
        "Set options of the session", decode_set_options, sessions.set_options
    ),
    "GetSessionOptions": ActionType(
        "The options of the session", decode_nothing, sessions.get_options
    ),
    "CloseSession": ActionType("Close the session", decode_nothing, sessions.close),
}

_SMALL_BODY = 4096
"""Bytes of a request that is remembered in its decoded form."""
ONE_RESULT = frozenset(
    {
        "list_schemas",
        "catalog_version",
        "create_transaction",
        "endpoints",
        "flight_info",
        "table_function_flight_info",
        "column_statistics",
    }
)
"""The actions of queries, each of which has exactly one result (airport §4.1)."""
