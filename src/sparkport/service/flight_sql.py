"""Flight SQL's commands for discovery, so that drivers such as ADBC's can browse a server.

GetFlightInfo answers with a ticket that holds the command, and DoGet runs it. Commands that need
SQL are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.flight as flight

from sparkport.catalog import ConstrainedTable
from sparkport.errors import BadRequest, Unsupported
from sparkport.service import discovery
from sparkport.service.calls import Call
from sparkport.service.objects import published_schema_name
from sparkport.service.sql_info import sql_info
from sparkport.service.sql_types import type_info
from sparkport.wire.discovery import CATALOGS, SCHEMAS, TABLE_TYPES, DiscoveryRequest
from sparkport.wire.flight import encode_flight_info
from sparkport.wire.flight_data import BatchWriter, encode_schema
from sparkport.wire.flight_sql import (
    FOREIGN_KEYS,
    PRIMARY_KEYS,
    SQL_INFO,
    TYPE_INFO,
    KeysRequest,
    decode_cross_reference,
    decode_get_catalogs,
    decode_get_schemas,
    decode_get_table_types,
    decode_get_tables,
    decode_keys,
    decode_sql_info,
    decode_type_info,
    encode_sql_info,
    unpack_command,
)
from sparkport.wire.tickets import CommandTicket, encode_ticket

if TYPE_CHECKING:
    from sparkport.service.service import Service

__all__ = ["SQL_ACTIONS", "Command", "command_of", "flight_info", "no_sql", "read"]

SQL_ACTIONS = frozenset(
    {
        *(
            "CreatePreparedStatement",
            "CreatePreparedSubstraitPlan",
            "ClosePreparedStatement",
            "CancelQuery",
        ),
        *("BeginTransaction", "EndTransaction", "BeginSavepoint", "EndSavepoint"),
    }
)
"""Flight SQL's actions. None is served: they are about SQL statements and their transactions."""


@dataclass(frozen=True, slots=True)
class CommandType:
    """How a command is decoded and run; the answer's Arrow schema may depend on the request."""

    decode: Callable[[memoryview], Any]
    arrow_schema: Callable[[Any], pa.Schema]
    run: Callable[[Service, Call, Any], Iterator[pa.RecordBatch]]


@dataclass(frozen=True, slots=True)
class Command:
    """A command that is served, and what it asks for."""

    type: CommandType
    request: Any

    @property
    def arrow_schema(self) -> pa.Schema:
        return self.type.arrow_schema(self.request)


def command_of(descriptor: flight.FlightDescriptor) -> Command | None:
    """The command in a descriptor, if it is Flight SQL's. Raises: BadRequest, Unsupported."""
    if descriptor.descriptor_type != flight.DescriptorType.CMD:
        return None
    return _decode(descriptor.command)


def flight_info(
    service: Service, call: Call, descriptor: flight.FlightDescriptor, command: Command
) -> bytes:
    """The FlightInfo of a command's answer. Raises: NotFound for a catalog that is not served."""
    header = call.headers.catalog
    catalog = None if header is None else service.catalog(call, header).name
    ticket = encode_ticket(
        CommandTicket(descriptor.command, catalog, call.identity), service.signer
    )
    return encode_flight_info(command.arrow_schema, descriptor, tickets=(ticket,))


def read(service: Service, call: Call, ticket: CommandTicket) -> Iterator[bytes]:
    """Yield the answer to a command as FlightData messages."""
    command = _decode(ticket.command)
    if command is None:
        raise BadRequest("this ticket holds no command of Flight SQL")
    request = command.request
    # Where the command does not name a catalog, the header does (airport §12).
    if isinstance(request, DiscoveryRequest | KeysRequest) and request.catalog is None:
        request = replace(request, catalog=ticket.catalog)
    yield encode_schema(command.arrow_schema)
    writer = BatchWriter(command.arrow_schema)
    for batch in command.type.run(service, call, request):
        yield from writer.messages(batch)


def no_sql(name: str) -> Unsupported:
    """The error for a command or action that needs SQL."""
    return Unsupported(
        f"{name[:60]} is not served: this server serves tables, and SQL is what DuckDB runs: "
        f"ATTACH this server there"
    )


def _decode(command: bytes) -> Command | None:
    packed = unpack_command(command)
    if packed is None:
        return None
    command_type = COMMANDS.get(packed.name)
    if command_type is None:
        raise no_sql(packed.name)
    return Command(command_type, command_type.decode(packed.message))


def _sql_info(_service: Service, _call: Call, wanted: frozenset[int]) -> Iterator[pa.RecordBatch]:
    """The wanted facts that are known. A missing fact tells the driver that it is unknown."""
    infos = {number: info for number, info in sql_info().items() if not wanted or number in wanted}
    if infos:
        yield encode_sql_info(infos)


def _type_info(_service: Service, _call: Call, data_type: int | None) -> Iterator[pa.RecordBatch]:
    rows = [row for row in type_info() if data_type is None or row["data_type"] == data_type]
    if rows:
        yield pa.RecordBatch.from_pylist(rows, TYPE_INFO)


def _primary_keys(service: Service, call: Call, request: KeysRequest) -> Iterator[pa.RecordBatch]:
    for ctx, registered, schema in discovery.each_schema(service, call, request.catalog):
        schema_name = published_schema_name(schema)
        if request.schema is not None and schema_name != request.schema:
            continue
        table = discovery.listed_table(ctx, registered, schema, request.table)
        if not isinstance(table, ConstrainedTable):
            continue
        names = (registered.name, schema_name, table.name)
        rows = [
            (*names, column, None, position)
            for position, column in enumerate(table.constraints.primary_key, 1)
        ]
        if rows:
            yield discovery.batch_of(PRIMARY_KEYS, rows)


def _no_keys(_service: Service, _call: Call, _request: Any) -> Iterator[pa.RecordBatch]:
    """The empty list of foreign keys: DuckDB's client cannot create any, and no table has any."""
    return iter(())


def _always(arrow_schema: pa.Schema) -> Callable[[Any], pa.Schema]:
    return lambda _request: arrow_schema


COMMANDS: Mapping[str, CommandType] = {
    "CommandGetCatalogs": CommandType(decode_get_catalogs, _always(CATALOGS), discovery.catalogs),
    "CommandGetDbSchemas": CommandType(decode_get_schemas, _always(SCHEMAS), discovery.schemas),
    "CommandGetTables": CommandType(decode_get_tables, discovery.tables_schema, discovery.tables),
    "CommandGetTableTypes": CommandType(
        decode_get_table_types, _always(TABLE_TYPES), discovery.table_types
    ),
    "CommandGetPrimaryKeys": CommandType(decode_keys, _always(PRIMARY_KEYS), _primary_keys),
    "CommandGetExportedKeys": CommandType(decode_keys, _always(FOREIGN_KEYS), _no_keys),
    "CommandGetImportedKeys": CommandType(decode_keys, _always(FOREIGN_KEYS), _no_keys),
    "CommandGetCrossReference": CommandType(
        decode_cross_reference, _always(FOREIGN_KEYS), _no_keys
    ),
    "CommandGetSqlInfo": CommandType(decode_sql_info, _always(SQL_INFO), _sql_info),
    "CommandGetXdbcTypeInfo": CommandType(decode_type_info, _always(TYPE_INFO), _type_info),
}
