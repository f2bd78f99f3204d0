"""Changing catalogs: CREATE, DROP and ALTER (airport §4.10–4.14, contracts/ddl-actions)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.flight as flight
from typing_extensions import assert_never

from sparkport.catalog import (
    AddColumnOptions,
    AddFieldOptions,
    Context,
    CreateSchemaOptions,
    CreateTableOptions,
    DropSchemaOptions,
    DropTableOptions,
    DynamicCatalog,
    DynamicSchema,
    DynamicTable,
    OnConflict,
    Privilege,
    RemoveColumnOptions,
    RemoveFieldOptions,
    Table,
    UnalterableTable,
)
from sparkport.catalog.names import MAIN, folded, own_spellings
from sparkport.catalog.rowid import ROWID_NAME
from sparkport.engine.discretion import discreet
from sparkport.engine.types import refuse_unsupported
from sparkport.errors import (
    AlreadyExists,
    BadRequest,
    CatalogFault,
    NotFound,
    PermissionDenied,
    PreconditionFailed,
    Unsupported,
)
from sparkport.service.calls import Call
from sparkport.service.listing import table_info
from sparkport.service.objects import (
    PublishedTable,
    find_schema,
    find_table,
    publish_table,
    table_named,
)
from sparkport.service.registry import RegisteredCatalog
from sparkport.wire.ddl import (
    AddColumn,
    AddConstraint,
    AddField,
    Alter,
    ChangeColumnType,
    CreateSchema,
    CreateTable,
    DropNotNull,
    DropSchema,
    DropTable,
    RemoveColumn,
    RemoveField,
    RenameColumn,
    RenameField,
    RenameTable,
    SetDefault,
    SetNotNull,
)
from sparkport.wire.tickets import ScanTicket, encode_ticket

if TYPE_CHECKING:
    from sparkport.service.service import Service

__all__ = [
    "alter_table",
    "create_schema",
    "create_table",
    "drop_schema",
    "drop_table",
    "dynamic_schema",
    "new_table",
    "require_alter",
    "require_whole",
]


def create_schema(service: Service, call: Call, request: CreateSchema) -> Iterator[bytes]:
    """Create a schema; the answer describes its objects, of which there are none."""
    ctx, registered = service.enter(call, request.catalog)
    catalog = _dynamic_catalog(registered)
    require_alter(ctx, request.name)
    if request.name.lower() == MAIN and call.headers.from_duckdb:
        raise BadRequest(
            "DuckDB cannot look up a schema called main in an attached catalog: choose another name"
        )
    options = CreateSchemaOptions(request.comment, request.tags)
    try:
        if request.on_conflict is OnConflict.REPLACE:
            catalog.drop_schema(ctx, request.name, DropSchemaOptions(ignore_not_found=True))
        schema = catalog.create_schema(ctx, request.name, options)
    except AlreadyExists:
        if not _ignores_existing_schema(service, call, request):
            raise
        schema = find_schema(ctx, registered, request.name)
    else:
        registered.changed()
    yield service.listing.contents(ctx, registered, schema).pack()


def _ignores_existing_schema(service: Service, call: Call, request: CreateSchema) -> bool:
    """Whether CREATE SCHEMA of a schema that exists succeeds.

    DuckDB sends the same request with and without IF NOT EXISTS; with it, the statement must work
    (airport §4.10).
    """
    if request.on_conflict is not None:
        return request.on_conflict is OnConflict.IGNORE
    return call.headers.from_duckdb and not service.settings.strict_create_schema


def drop_schema(service: Service, call: Call, request: DropSchema) -> Iterator[bytes]:
    """Drop a schema; there is no result."""
    ctx, registered = service.enter(call, request.catalog)
    catalog = _dynamic_catalog(registered)
    try:
        # The catalog's own name: `main` is published under another.
        name = find_schema(ctx, registered, request.name).name
    except NotFound:
        if not request.ignore_not_found:
            raise
    else:
        require_alter(ctx, name)
        if request.cascade and ctx.access.restricted:
            raise PermissionDenied(
                f"you see only part of some tables, and so cannot drop schema {name} with all "
                f"that is in it"
            )
        catalog.drop_schema(ctx, name, DropSchemaOptions(request.ignore_not_found, request.cascade))
        registered.changed()
    yield from ()


def create_table(service: Service, call: Call, request: CreateTable) -> Iterator[bytes]:
    """Create a table; the client believes the answer's description over its own statement."""
    ctx, registered = service.enter(call, request.catalog)
    yield _describe(service, call, ctx, new_table(ctx, registered, request))


def new_table(ctx: Context, registered: RegisteredCatalog, request: CreateTable) -> PublishedTable:
    """Create a table, if the caller may. Raises: PermissionDenied, BadRequest, and more."""
    schema = dynamic_schema(ctx, registered, request.schema)
    require_alter(ctx, schema.name, request.name)
    if request.on_conflict is OnConflict.REPLACE:
        require_whole(ctx, schema.name, request.name)
    if not len(request.arrow_schema):
        raise BadRequest(f"table {request.schema}.{request.name} must have at least one column")
    _check_columns(request.arrow_schema, f"table {request.schema}.{request.name}")
    options = CreateTableOptions(request.on_conflict, request.comment, request.constraints)
    table = schema.create_table(ctx, request.name, request.arrow_schema, options)
    registered.changed()
    return publish_table(ctx, registered, schema.name, table)


def drop_table(service: Service, call: Call, request: DropTable) -> Iterator[bytes]:
    """Drop a table; there is no result."""
    ctx, registered = service.enter(call, request.catalog)
    try:
        schema = dynamic_schema(ctx, registered, request.schema)
    except NotFound:
        if not request.ignore_not_found:
            raise
    else:
        known = _name_to_drop(ctx, schema, request.name)
        name = known or request.name
        if known is None and not ctx.access.everything:  # it may exist, hidden from the caller
            if not request.ignore_not_found:
                raise NotFound(f"table {request.schema}.{request.name} not found")
            return
        require_alter(ctx, schema.name, name)
        require_whole(ctx, schema.name, name)
        schema.drop_table(ctx, name, DropTableOptions(request.ignore_not_found))
        registered.changed()
    yield from ()


def _name_to_drop(ctx: Context, schema: DynamicSchema, name: str) -> str | None:
    """The own name of a table; None if there is none that the caller may see.

    A table that cannot be described, because its metadata are gone, can still be dropped.
    """
    try:
        known = table_named(ctx, schema, name)
    except (CatalogFault, NotFound, PreconditionFailed):
        return name
    return None if known is None else known.name


def alter_table(service: Service, call: Call, request: Alter) -> Iterator[bytes]:
    """Alter a table; the answer describes it afterwards.

    With IF EXISTS there is no answer for a missing table.
    """
    ctx, registered = service.enter(call, request.catalog)
    try:
        found = find_table(ctx, registered, request.schema, request.name)
    except NotFound:
        if not request.ignore_not_found:
            raise
        return
    # A caller who sees only part of the table could put it out of reach of the rules that say so.
    ctx.access.require(Privilege.ALTER, found.schema_name, found.table.name, whole=True)
    if isinstance(request, RenameTable):
        require_alter(ctx, found.schema_name, request.new_name)
        schema = dynamic_schema(ctx, registered, request.schema)
        schema.rename_table(ctx, found.table.name, request.new_name)
    else:
        if not isinstance(found.table, DynamicTable):
            raise Unsupported(
                f"table {found.title} does not support DDL operations{_reason(ctx, found.table)}"
            )
        with discreet(
            ctx.access.shows(found.schema_name, found.table.name), f"table {found.title}"
        ):
            _alter(ctx, found.table, found.column_names, request)
    registered.changed()
    name = request.new_name if isinstance(request, RenameTable) else found.table.name
    yield _describe(service, call, ctx, find_table(ctx, registered, request.schema, name))


def _reason(ctx: Context, table: Table) -> str:
    return f": {table.why_unalterable(ctx)}" if isinstance(table, UnalterableTable) else ""


_Change = (
    AddColumn
    | RemoveColumn
    | RenameColumn
    | SetDefault
    | SetNotNull
    | DropNotNull
    | ChangeColumnType
    | AddField
) | (RemoveField | RenameField | AddConstraint)


def _alter(ctx: Context, table: DynamicTable, names: Sequence[str], request: _Change) -> None:
    """Apply a change to a table. `names` are the table's own spellings of its columns."""

    own = own_spellings(names)

    def own_column(column_schema: pa.Schema) -> pa.Schema:
        _check_columns(column_schema, f"table {table.name}")
        return pa.schema(
            [field.with_name(own(field.name)) for field in column_schema],
            metadata=column_schema.metadata,
        )

    match request:
        case AddColumn():
            options = AddColumnOptions(request.if_column_not_exists, request.ignore_not_found)
            table.add_column(ctx, own_column(request.column_schema), options)
        case RemoveColumn():
            removal = RemoveColumnOptions(
                request.if_column_exists, request.ignore_not_found, request.cascade
            )
            table.remove_column(ctx, own(request.column), removal)
        case RenameColumn():
            _refuse_rowid(request.new_name, f"table {table.name}")
            is_same = folded(request.new_name) == folded(request.old_name)
            new_name = request.new_name if is_same else own(request.new_name)
            table.rename_column(ctx, own(request.old_name), new_name)
        case SetDefault():
            table.set_default(ctx, own(request.column), request.expression)
        case SetNotNull():
            table.set_not_null(ctx, own(request.column))
        case DropNotNull():
            table.drop_not_null(ctx, own(request.column))
        case ChangeColumnType():
            table.change_column_type(ctx, own_column(request.column_schema), request.expression)
        case AddField():
            if request.lost_its_name:
                raise PreconditionFailed(
                    "DuckDB did not send the name of the new field (a defect of its airport "
                    "extension), so it cannot be "
                    "added; add it with Spark SQL, or create the table anew"
                )
            refuse_unsupported(request.column_schema, f"table {table.name}")
            place = (own(request.path[0]), *request.path[1:])
            table.add_field(
                ctx, place, request.column_schema, AddFieldOptions(request.if_field_not_exists)
            )
        case RemoveField():
            place = (own(request.path[0]), *request.path[1:])
            table.remove_field(
                ctx, place, RemoveFieldOptions(request.if_field_exists, request.cascade)
            )
        case RenameField():
            table.rename_field(ctx, (own(request.path[0]), *request.path[1:]), request.new_name)
        case AddConstraint():
            table.add_constraint(ctx, request.constraint)
        case _:
            assert_never(request)


def _describe(service: Service, call: Call, ctx: Context, published: PublishedTable) -> bytes:
    """The table's FlightInfo with a ticket that reads all of it, as the contracts promise.

    There is a ticket even while the table has no rows. DuckDB gets the signed descriptor, which
    carries the fingerprint; other clients get the contracts' `[schema, table]`.
    """
    if call.headers.from_duckdb:
        descriptor = published.descriptor(ctx, service.signer)
    else:
        descriptor = flight.FlightDescriptor.for_path(
            published.published_schema, published.table.name
        )
    ticket = ScanTicket(
        published.registered.name,
        published.schema_name,
        published.table.name,
        published.fingerprint,
        columns=None,
        transaction_id=ctx.transaction_id,
        bearer=ctx.identity,
    )
    return table_info(ctx, published, descriptor, (encode_ticket(ticket, service.signer),))


def _dynamic_catalog(registered: RegisteredCatalog) -> DynamicCatalog:
    if not isinstance(registered.catalog, DynamicCatalog):
        raise Unsupported("catalog does not support DDL operations")
    return registered.catalog


def dynamic_schema(ctx: Context, registered: RegisteredCatalog, name: str) -> DynamicSchema:
    """The schema of that name, to create and drop tables in. Raises: NotFound, Unsupported."""
    schema = find_schema(ctx, registered, name)
    if not isinstance(schema, DynamicSchema):
        raise Unsupported(f"schema {name} does not support DDL operations")
    return schema


def require_alter(ctx: Context, schema_name: str, name: str = "") -> None:
    """Raises: PermissionDenied unless the caller may alter the object."""
    if not ctx.access.may(Privilege.ALTER, schema_name, name):
        raise PermissionDenied(
            f"you have no alter permission on {'.'.join(filter(None, (schema_name, name)))}"
        )


def require_whole(ctx: Context, schema_name: str, name: str) -> None:
    """Raises: PermissionDenied for a caller who does not see all rows of the table."""
    if ctx.access.restrictions(schema_name, name) is not None:
        raise PermissionDenied(
            f"you see only part of {schema_name}.{name}, and that takes all of it"
        )


def _check_columns(arrow_schema: pa.Schema, what: str) -> None:
    refuse_unsupported(arrow_schema, what)
    seen: set[bytes] = set()
    for field in arrow_schema:
        _refuse_rowid(field.name, what)
        if folded(field.name) in seen:
            raise BadRequest(
                f"{what}: there are two columns called {field.name}; case makes no difference"
            )
        seen.add(folded(field.name))


def _refuse_rowid(name: str, what: str) -> None:
    if name.lower() == ROWID_NAME:
        raise BadRequest(
            f"{what}: a column cannot be called rowid, which is the row's identity; choose "
            f"another name"
        )
