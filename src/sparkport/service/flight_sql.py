"""Flight SQL's commands: which there are, and those for discovery.

For discovery GetFlightInfo answers with a ticket that holds the command, and DoGet runs it. What
runs SQL is in `sql_statements.py`, and what stores rows in `ingest.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.flight as flight

from sparkport.catalog import ConstrainedTable
from sparkport.errors import BadRequest, NotFound, Unsupported
from sparkport.service import discovery, sql_statements
from sparkport.service.calls import Call
from sparkport.service.objects import published_schema_name
from sparkport.service.sql_info import Capabilities, capabilities_of, sql_info
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
from sparkport.wire.sql_statements import (
    PreparedRequest,
    StatementRequest,
    decode_ingest,
    decode_prepared,
    decode_prepared_update,
    decode_statement,
    decode_update,
)
from sparkport.wire.tickets import CommandTicket, encode_ticket

if TYPE_CHECKING:
    from sparkport.service.service import Service

__all__ = ["Command", "arrow_schema_of", "command_of", "flight_info", "put_command", "read"]


@dataclass(frozen=True, slots=True)
class CommandType:
    """How a command is decoded and run; the answer's Arrow schema may depend on the request."""

    decode: Callable[[memoryview], Any]
    arrow_schema: Callable[[Any], pa.Schema]
    run: Callable[[Service, Call, Any], Iterator[pa.RecordBatch]]


@dataclass(frozen=True, slots=True)
class Command:
    """A command that asks for rows."""

    type: CommandType | None
    """How discovery runs it; None for a statement of SQL."""
    request: Any


def command_of(descriptor: flight.FlightDescriptor) -> Command | None:
    """The command in a descriptor, if it is Flight SQL's. Raises: BadRequest, Unsupported."""
    if descriptor.descriptor_type != flight.DescriptorType.CMD:
        return None
    return _decode(descriptor.command)


def put_command(descriptor: flight.FlightDescriptor | None) -> Any:
    """The request of a command for DoPut; None for one that is not Flight SQL's.

    Raises: BadRequest, Unsupported.
    """
    if descriptor is None or descriptor.descriptor_type != flight.DescriptorType.CMD:
        return None
    packed = unpack_command(descriptor.command)
    if packed is None:
        return None
    decode = PUT_COMMANDS.get(packed.name)
    if decode is None:
        if packed.name in COMMANDS or packed.name in STATEMENTS:
            raise BadRequest(f"{packed.name} is for GetFlightInfo, not for DoPut")
        raise _not_served(packed.name)
    return decode(packed.message)


def arrow_schema_of(service: Service, call: Call, command: Command) -> pa.Schema:
    """The columns of a command's answer."""
    if command.type is None:
        return sql_statements.schema_of(service, call, command.request)
    return command.type.arrow_schema(command.request)


def flight_info(
    service: Service, call: Call, descriptor: flight.FlightDescriptor, command: Command
) -> bytes:
    """The FlightInfo of a command's answer. Raises: NotFound for a catalog that is not served."""
    if command.type is None:
        return sql_statements.flight_info(service, call, descriptor, command.request)
    header = call.headers.catalog
    catalog = None if header is None else service.catalog(call, header).name
    ticket = encode_ticket(
        CommandTicket(descriptor.command, catalog, call.identity), service.signer
    )
    arrow_schema = command.type.arrow_schema(command.request)
    return encode_flight_info(arrow_schema, descriptor, tickets=(ticket,))


def read(service: Service, call: Call, ticket: CommandTicket) -> Iterator[bytes]:
    """Yield the answer to a command as FlightData messages."""
    command = _decode(ticket.command)
    if command is None or command.type is None:
        raise BadRequest("this ticket holds no command of Flight SQL")
    request = command.request
    # Where the command does not name a catalog, the header does (airport §12).
    if isinstance(request, DiscoveryRequest | KeysRequest) and request.catalog is None:
        request = replace(request, catalog=ticket.catalog)
    if ticket.catalog is not None:
        call = replace(call, headers=replace(call.headers, catalog=ticket.catalog))
    arrow_schema = command.type.arrow_schema(request)
    yield encode_schema(arrow_schema)
    writer = BatchWriter(arrow_schema)
    for batch in command.type.run(service, call, request):
        yield from writer.messages(batch)


def _decode(command: bytes) -> Command | None:
    packed = unpack_command(command)
    if packed is None:
        return None
    if (statement := STATEMENTS.get(packed.name)) is not None:
        return Command(None, statement(packed.message))
    command_type = COMMANDS.get(packed.name)
    if command_type is None:
        if packed.name in PUT_COMMANDS:
            raise BadRequest(f"{packed.name} is for DoPut, not for GetFlightInfo")
        raise _not_served(packed.name)
    return Command(command_type, command_type.decode(packed.message))


def _not_served(name: str) -> Unsupported:
    return Unsupported(
        f"{name[:60]} is not served: send a statement as SQL text, or ATTACH this server in DuckDB"
    )


def _sql_info(service: Service, call: Call, wanted: frozenset[int]) -> Iterator[pa.RecordBatch]:
    """The wanted facts that are known. A missing fact tells the driver that it is unknown."""
    try:
        capabilities = capabilities_of(service.catalog(call, call.headers.catalog).catalog)
    except NotFound:  # there is nothing to run statements in
        capabilities = Capabilities()
    known = sql_info(capabilities)
    infos = {number: info for number, info in known.items() if not wanted or number in wanted}
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

STATEMENTS: Mapping[str, Callable[[memoryview], StatementRequest | PreparedRequest]] = {
    "CommandStatementQuery": decode_statement,
    "CommandPreparedStatementQuery": decode_prepared,
}
"""Commands that run a statement of SQL, by GetFlightInfo and DoGet."""

PUT_COMMANDS: Mapping[str, Callable[[memoryview], Any]] = {
    "CommandStatementUpdate": decode_update,
    "CommandPreparedStatementUpdate": decode_prepared_update,
    "CommandPreparedStatementQuery": decode_prepared,
    "CommandStatementIngest": decode_ingest,
}
"""Commands for DoPut: changes, the parameters of queries, and rows for a table."""
