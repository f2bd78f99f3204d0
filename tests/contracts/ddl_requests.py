"""Bodies of the DDL actions, complete and right; tests change what they are about."""

from __future__ import annotations

from typing import Any

import msgpack
import pyarrow as pa
import pyarrow.flight as flight
from tests.contracts.contract_client import ContractClient

NEW_TABLE = pa.schema([pa.field("k", pa.int64()), pa.field("v", pa.string())])


def serialized(arrow_schema: pa.Schema) -> bytes:
    body: bytes = arrow_schema.serialize().to_pybytes()
    return body


def one_column(name: str = "extra", data_type: pa.DataType | None = None) -> bytes:
    return serialized(pa.schema([pa.field(name, data_type or pa.int32())]))


def create_schema_body(**changed: Any) -> dict[str, Any]:
    return {"catalog_name": "lake", "schema": "fresh", "comment": None, "tags": {}} | changed


def drop_schema_body(**changed: Any) -> dict[str, Any]:
    right = {"type": "schema", "catalog_name": "lake", "schema_name": "spare", "name": "spare"}
    return right | {"ignore_not_found": False} | changed


def create_table_body(columns: pa.Schema = NEW_TABLE, /, **changed: Any) -> dict[str, Any]:
    """The contract's eight keys."""
    return {
        "catalog_name": "lake",
        "schema_name": "shop",
        "table_name": "fresh",
        "arrow_schema": serialized(columns),
        "on_conflict": "error",
        "not_null_constraints": [],
        "unique_constraints": [],
        "check_constraints": [],
    } | changed


def drop_table_body(**changed: Any) -> dict[str, Any]:
    right = {"type": "table", "catalog_name": "lake", "schema_name": "shop", "name": "items"}
    return right | {"ignore_not_found": False} | changed


def alter_body(**changed: Any) -> dict[str, Any]:
    """What all ALTERs have; the rest is what each is about."""
    return {
        "catalog": "lake",
        "schema": "shop",
        "name": "items",
        "ignore_not_found": False,
    } | changed


def add_column_body(**changed: Any) -> dict[str, Any]:
    return alter_body(column_schema=one_column(), if_column_not_exists=False) | changed


def remove_column_body(**changed: Any) -> dict[str, Any]:
    return alter_body(removed_column="price", if_column_exists=False, cascade=False) | changed


def without(body: dict[str, Any], *keys: str) -> dict[str, Any]:
    return {key: value for key, value in body.items() if key not in keys}


def described(
    client: ContractClient, action: str, body: Any, headers: Any = None
) -> flight.FlightInfo:
    """The FlightInfo that an action answers with."""
    (answer,) = client.action(action, body, headers)
    return flight.FlightInfo.deserialize(answer)


def column_names(info: flight.FlightInfo) -> list[str]:
    return [name for name in info.schema.names if name != "rowid"]


def contents(client: ContractClient, body: Any, headers: Any = None) -> dict[str, Any]:
    """The answer of `create_schema`."""
    (answer,) = client.action("create_schema", body, headers)
    unpacked: dict[str, Any] = msgpack.unpackb(answer)
    return unpacked
