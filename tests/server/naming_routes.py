"""Every request that names a catalog, a schema, a table, a function, a flight or an action."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import msgpack
import pyarrow as pa
import pyarrow.flight as flight
from tests.contracts.contract_client import (
    ContractClient,
    as_json,
    delete_body,
    insert_command,
    update_command,
)
from tests.contracts.ddl_requests import (
    add_column_body,
    alter_body,
    create_schema_body,
    create_table_body,
    drop_schema_body,
    drop_table_body,
    one_column,
    remove_column_body,
)
from tests.contracts.ddl_requests import contents as contents_of
from tests.server.protobuf import command, message
from tests.server.raw_client import endpoints_body, path, ticket_message

ROWS = pa.table(
    {"id": pa.array([1], pa.int64()), "st": pa.array([{"a": 1}], pa.struct([("a", pa.int64())]))}
)
UPDATED = ROWS.select(["id"]).append_column("rowid", pa.array([0], pa.int64()))
DELETED = UPDATED.select(["rowid"])

Headers: TypeAlias = dict[str, str]


@dataclass(frozen=True)
class Named:
    """The object that a request names."""

    catalog: str
    schema: str
    name: str

    @property
    def title(self) -> str:
        return f"{self.schema}.{self.name}"

    @property
    def bytes(self) -> bytes:
        """Its descriptor, as others than DuckDB make it."""
        serialized: bytes = path(self.catalog, self.schema, self.name).serialize()
        return serialized


Route: TypeAlias = Callable[[ContractClient, Named, Headers], Any]


def of_catalog(headers: Headers, named: Named) -> Headers:
    return {**headers, "airport-catalog": named.catalog}


# --------------------------------------------------------------------------------- reading a table


def _described(action: str, key: str = "descriptor", **further: Any) -> Route:
    return lambda client, named, headers: client.action(
        action, {key: named.bytes, **further}, headers
    )


def _endpoints(**parameters: Any) -> Route:
    return lambda client, named, headers: client.action(
        "endpoints",
        endpoints_body(path(named.catalog, named.schema, named.name), [0], **parameters),
        headers,
    )


def _by_name(**further: Any) -> Route:
    return lambda client, named, headers: client.action(
        "endpoints",
        {"catalog": named.catalog, "schema": named.schema, "table": named.name, **further},
        headers,
    )


_STATISTICS = {"column_name": "id", "type": "BIGINT"}
READING: Mapping[str, Route] = {
    "GetSchema": lambda c, n, h: c.call("GetSchema", n.bytes, h),
    "GetSchema of two names": lambda c, n, h: c.call(
        "GetSchema", path(n.schema, n.name).serialize(), of_catalog(h, n)
    ),
    "GetFlightInfo": lambda c, n, h: c.call("GetFlightInfo", n.bytes, h),
    "GetFlightInfo of two names": lambda c, n, h: c.call(
        "GetFlightInfo", path(n.schema, n.name).serialize(), of_catalog(h, n)
    ),
    "endpoints": _endpoints(),
    "endpoints AT version": _endpoints(at_unit="VERSION", at_value="0"),
    "endpoints AT timestamp": _endpoints(at_unit="TIMESTAMP", at_value="2020-01-01 00:00:00"),
    "endpoints AT nonsense": _endpoints(at_unit="VERSION", at_value="x"),
    "endpoints by name": _by_name(),
    "endpoints by name AT": _by_name(time_point={"unit": "version", "value": "0"}),
    "flight_info": _described("flight_info"),
    "flight_info AT version": _described("flight_info", at_unit="VERSION", at_value="0"),
    "flight_info AT timestamp": _described(
        "flight_info", at_unit="TIMESTAMP", at_value="2020-01-01 00:00:00"
    ),
    "statistics": _described("column_statistics", "flight_descriptor", **_STATISTICS),
    "statistics of nothing": _described(
        "column_statistics", "flight_descriptor", column_name="no", type="BIGINT"
    ),
}

# ---------------------------------------------------------------------------------------- changing


def _put(command: Callable[..., dict[str, Any]], *arguments: Any, **further: Any) -> Route:
    def put(client: ContractClient, named: Named, headers: Headers) -> Any:
        body = {**command(named.title, *arguments, **further), "catalog": named.catalog}
        return client.put(body, ROWS, of_catalog(headers, named))

    return put


def _put_in_transaction(client: ContractClient, named: Named, headers: Headers) -> Any:
    mine = {**of_catalog(headers, named), "airport-client-session-id": "s"}
    (answer,) = client.action("create_transaction", b"", mine)
    mine["airport-transaction-id"] = msgpack.unpackb(answer)["identifier"]
    return client.put(insert_command(named.title), ROWS, mine)


def _delete(**further: Any) -> Route:
    return lambda client, named, headers: client.action(
        "delete",
        as_json({**delete_body(named.title, [0], **further), "catalog": named.catalog}),
        headers,
    )


def _exchange(operation: str, rows: pa.Table, *, returning: bool) -> Route:
    return lambda client, named, headers: client.exchange(
        operation, f"{named.catalog}.{named.title}", rows, headers, returning=returning
    )


CHANGING: Mapping[str, Route] = {
    "DoPut insert": _put(insert_command),
    "DoPut insert returning": _put(insert_command, returning=True),
    "DoPut update": _put(update_command, [0]),
    "DoPut update returning": _put(update_command, [0], returning=True),
    "DoPut in a transaction": _put_in_transaction,
    "delete": _delete(),
    "delete returning": _delete(returning=True),
    **{
        f"exchange {operation}{' returning' if returning else ''}": _exchange(
            operation, rows, returning=returning
        )
        for operation, rows in (("insert", ROWS), ("update", UPDATED), ("delete", DELETED))
        for returning in (False, True)
    },
}

# --------------------------------------------------------------------------------------------- DDL

ALTERS: Mapping[str, dict[str, Any]] = {
    "add_column": add_column_body(),
    "remove_column": remove_column_body(removed_column="id"),
    "rename_column": alter_body(old_name="id", new_name="key"),
    "rename_table": alter_body(new_table_name="mine"),
    "set_default": alter_body(column_name="id", expression="1"),
    "set_not_null": alter_body(column_name="id"),
    "drop_not_null": alter_body(column_name="id"),
    "change_column_type": alter_body(
        column_schema=one_column("id", pa.string()), expression="CAST(id AS VARCHAR)"
    ),
    "add_field": alter_body(
        column_path=["st"], column_schema=one_column("d"), if_field_not_exists=False
    ),
    "remove_field": alter_body(column_path=["st", "a"], if_column_exists=False, cascade=False),
    "rename_field": alter_body(column_path=["st", "a"], new_name="z"),
    "add_constraint": alter_body(constraint="CHECK (id > 5)"),
}


def _alter(action: str, body: Mapping[str, Any]) -> Route:
    return lambda client, named, headers: client.action(
        action,
        {**body, "catalog": named.catalog, "schema": named.schema, "name": named.name},
        headers,
    )


def _create(on_conflict: str) -> Route:
    return lambda client, named, headers: client.action(
        "create_table",
        create_table_body(
            ROWS.schema,
            catalog_name=named.catalog,
            schema_name=named.schema,
            table_name=named.name,
            on_conflict=on_conflict,
        ),
        headers,
    )


def _drop(**further: Any) -> Route:
    return lambda client, named, headers: client.action(
        "drop_table",
        drop_table_body(
            catalog_name=named.catalog, schema_name=named.schema, name=named.name, **further
        ),
        headers,
    )


def _rename_to(client: ContractClient, named: Named, headers: Headers) -> Any:
    """A table that the caller sees takes a name that may be taken."""
    body = alter_body(
        catalog=named.catalog, schema=named.schema, name="orders", new_table_name=named.name
    )
    return client.action("rename_table", body, headers)


DDL: Mapping[str, Route] = {
    **{action: _alter(action, body) for action, body in ALTERS.items()},
    **{
        f"{action} if exists": _alter(action, {**body, "ignore_not_found": True})
        for action, body in ALTERS.items()
    },
    **{
        f"create_table or {conflict}": _create(conflict)
        for conflict in ("error", "ignore", "replace")
    },
    "drop_table": _drop(),
    "drop_table if exists": _drop(ignore_not_found=True),
    "rename_table to it": _rename_to,
}

# ---------------------------------------------------------------------------- schemas and catalogs


def _create_schema(**further: Any) -> Route:
    return lambda client, named, headers: contents_of(
        client,
        create_schema_body(catalog_name=named.catalog, schema=named.schema, **further),
        headers,
    )


def _drop_schema(**further: Any) -> Route:
    return lambda client, named, headers: client.action(
        "drop_schema",
        drop_schema_body(catalog_name=named.catalog, name=named.schema, **further),
        headers,
    )


SCHEMAS: Mapping[str, Route] = {
    "create_schema": _create_schema(),
    "create_schema if not exists": _create_schema(on_conflict="ignore"),
    "create_schema or replace": _create_schema(on_conflict="replace"),
    "drop_schema": _drop_schema(),
    "drop_schema if exists": _drop_schema(ignore_not_found=True),
    "drop_schema cascade": _drop_schema(cascade=True),
}


def _catalog_action(action: str) -> Route:
    return lambda client, named, headers: client.action(
        action, {"catalog_name": named.catalog}, headers
    )


def _with_header(action: str, body: Any = b"") -> Route:
    return lambda client, named, headers: client.action(action, body, of_catalog(headers, named))


CATALOGS: Mapping[str, Route] = {
    "list_schemas": _catalog_action("list_schemas"),
    "catalog_version": _catalog_action("catalog_version"),
    "create_transaction": _catalog_action("create_transaction"),
    "create_transaction by header": _with_header("create_transaction"),
    **{
        action: _with_header(action, {"transaction_id": "t"})
        for action in ("get_transaction_status", "commit_transaction", "rollback_transaction")
    },
    "an action of its own": _with_header("refresh"),
    "ListActions": lambda c, n, h: c.call("ListActions", b"", of_catalog(h, n)),
}

# --------------------------------------------------------------------------------------- discovery


def _listed(client: ContractClient, named: Named, headers: Headers) -> Any:
    filters = {
        "airport-list-flights-filter-catalog": named.catalog,
        "airport-list-flights-filter-schema": named.schema,
    }
    return client.call("ListFlights", b"", {**headers, **filters})


def _discovery(action: str) -> Route:
    def discover(client: ContractClient, named: Named, headers: Headers) -> Any:
        body = {
            "catalog": named.catalog,
            "db_schema_filter_pattern": named.schema,
            "table_name_filter_pattern": named.name,
            "include_schema": True,
        }
        return client.action(action, as_json(body), headers)

    return discover


def _flight_sql(name: str, *numbers: tuple[int, str]) -> Route:
    def ask(client: ContractClient, named: Named, headers: Headers) -> Any:
        fields = [(number, getattr(named, what)) for number, what in numbers]
        descriptor = flight.FlightDescriptor.for_command(command(name, *fields))
        (answer,) = client.call("GetFlightInfo", descriptor.serialize(), headers)
        (endpoint,) = flight.FlightInfo.deserialize(answer).endpoints
        return client.call("DoGet", ticket_message(endpoint.ticket.ticket), headers)

    return ask


def _flight_sql_by_header(client: ContractClient, named: Named, headers: Headers) -> Any:
    return _flight_sql("CommandGetTables")(client, named, of_catalog(headers, named))


_KEYS = ((1, "catalog"), (2, "schema"), (3, "name"))
DISCOVERY: Mapping[str, Route] = {
    "ListFlights": _listed,
    **{action: _discovery(action) for action in ("GetCatalogs", "GetDbSchemas", "GetTables")},
    "Flight SQL schemas": _flight_sql("CommandGetDbSchemas", (1, "catalog"), (2, "schema")),
    "Flight SQL tables": _flight_sql("CommandGetTables", *_KEYS),
    "Flight SQL tables by header": _flight_sql_by_header,
    **{
        f"Flight SQL {kind}": _flight_sql(f"CommandGet{kind}", *_KEYS)
        for kind in ("PrimaryKeys", "ExportedKeys", "ImportedKeys", "CrossReference")
    },
}

# ------------------------------------------------------------------ functions, flights and actions


def _function_by_name(client: ContractClient, named: Named, headers: Headers) -> Any:
    body = {"catalog": named.catalog, "schema": named.schema, "name": named.name, "parameters": [1]}
    return client.action("table_function_flight_info", body, headers)


def _function_anywhere(client: ContractClient, named: Named, headers: Headers) -> Any:
    body = {"catalog": named.catalog, "name": named.name, "parameters": [1]}
    return client.action("table_function_flight_info", body, headers)


def _called(operation: str) -> Route:
    return lambda client, named, headers: client.exchange(
        operation, f"{named.catalog}.{named.title}", ROWS.select(["id"]), headers
    )


FUNCTIONS: Mapping[str, Route] = {
    "table_function_flight_info": _function_by_name,
    "table_function_flight_info anywhere": _function_anywhere,
    "scalar_function": _called("scalar_function"),
    "table_function_in_out": _called("table_function_in_out"),
}
OWN: Mapping[str, Route] = {
    "a flight by path": lambda c, n, h: c.call("GetFlightInfo", path(n.name).serialize(), h),
    "a flight by a longer path": lambda c, n, h: c.call(
        "GetFlightInfo", path(n.name, "x").serialize(), h
    ),
    "a flight by command": lambda c, n, h: c.call(
        "GetFlightInfo", flight.FlightDescriptor.for_command(n.name).serialize(), h
    ),
    "a flight in a catalog": lambda c, n, h: c.call(
        "GetFlightInfo", path(n.name).serialize(), of_catalog(h, n)
    ),
    "an action": lambda c, n, h: c.action(n.name, message((1, "x")), h),
}
