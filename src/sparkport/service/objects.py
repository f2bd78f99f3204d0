"""Finding the objects that a request names, once, at the top; nothing below asks again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias, TypeVar

import pyarrow as pa
import pyarrow.flight as flight

from sparkport.catalog import (
    ConstrainedTable,
    Context,
    DynamicSchemaTable,
    Privilege,
    Schema,
    SchemaRequest,
    StatisticsTable,
    Table,
    TableRef,
    TimePoint,
    find_rowid_column,
)
from sparkport.catalog.names import MAIN, MAIN_PUBLISHED, folded, published_name
from sparkport.catalog.rowid import ROWID_MARKER
from sparkport.engine.cache import Cache
from sparkport.engine.statistics import takes_statistics
from sparkport.engine.types import (
    extension_metadata,
    narrowed_schema,
    publishable_schema,
    refuse_unsupported,
)
from sparkport.errors import NotFound, StaleDescriptor, Unsupported
from sparkport.service.registry import RegisteredCatalog
from sparkport.service.restricted import as_seen
from sparkport.wire.descriptors import ObjectPath, encode_path, fingerprint
from sparkport.wire.packing import pack
from sparkport.wire.signing import Signer

__all__ = [
    "PublishedTable",
    "Reached",
    "find_schema",
    "find_table",
    "publish_result",
    "publish_table",
    "published_name",
    "published_result_schema",
    "published_schema_name",
    "table_at",
    "table_named",
]


@dataclass(frozen=True, slots=True)
class Reached:
    """How a ticket finds a table again."""

    kind: Literal["table", "table_function", "flight"]
    name: str
    """Of the table or function; for a flight, its serialised descriptor in hexadecimal digits."""
    function: str = ""
    arguments: bytes | None = None


_Form: TypeAlias = tuple[pa.Schema, str, int | None]
"""An Arrow schema, its fingerprint, and the position of the row id."""


@dataclass(frozen=True, slots=True)
class PublishedTable:
    """A table as clients see it: the row id last and marked, constraints in the metadata."""

    registered: RegisteredCatalog
    schema_name: str
    table: Table
    arrow_schema: pa.Schema
    fingerprint: str
    rowid_index: int | None
    """The position of the row id, which is the last column, if there is one."""
    forms: tuple[_Form, ...]
    """The forms that clients may have bound: as the table has it, then with narrow decimals."""
    reached_by: Reached | None = None
    """How a ticket finds the table again, where its name is not enough."""

    @property
    def reached(self) -> Reached:
        return self.reached_by or Reached("table", self.table.name)

    @property
    def title(self) -> str:
        """The table's name in messages."""
        return f"{self.schema_name}.{self.table.name}" if self.schema_name else self.table.name

    @property
    def published_schema(self) -> str:
        """The clients' name of its schema."""
        return published_name(self.schema_name)

    @property
    def column_names(self) -> list[str]:
        """The names of the columns, without the row id, which clients know by another name."""
        names: list[str] = self.arrow_schema.names
        return names if self.rowid_index is None else names[:-1]

    @property
    def columns(self) -> pa.Schema:
        """The Arrow schema without the row id: what statements of SQL can name."""
        index = self.rowid_index
        return self.arrow_schema if index is None else self.arrow_schema.remove(index)

    @property
    def rowid_name(self) -> str | None:
        """The table's own name of its row id."""
        index = self.rowid_index
        return None if index is None else str(self.arrow_schema.field(index).name)

    def descriptor(self, ctx: Context, signer: Signer) -> flight.FlightDescriptor:
        """The signed handle under which a client knows this table with this Arrow schema."""
        path = ObjectPath(
            self.registered.name,
            self.schema_name,
            "table",
            self.table.name,
            self.fingerprint,
            attached_as=ctx.catalog_name,
            bearer=ctx.identity,
        )
        return encode_path(path, signer)

    def require(self, ctx: Context, privilege: Privilege) -> None:
        """Refuse a caller without a privilege on a table of a schema. Raises: PermissionDenied."""
        if (
            self.reached_by is None
        ):  # functions and a catalog's own flights were checked when they were found
            ctx.access.require(privilege, self.schema_name, self.table.name)

    def only(self, positions: Sequence[int]) -> PublishedTable:
        """The table with some of its columns alone, in this order, and without a row id."""
        fields = [self.arrow_schema.field(position) for position in positions]
        own = pa.schema([field.with_metadata(extension_metadata(field)) for field in fields])
        return replace(self, arrow_schema=own, rowid_index=None)

    def in_form(self, seen: str) -> PublishedTable | None:
        """The table in the form that has this fingerprint, which a handle carries.

        None if there is none: the table has been altered.
        """
        if seen == self.fingerprint:
            return self
        for arrow_schema, known, rowid_index in self.forms:
            if seen == known:
                return replace(
                    self, arrow_schema=arrow_schema, fingerprint=known, rowid_index=rowid_index
                )
        return None

    def expected(self, seen: str) -> PublishedTable:
        """The table with the Arrow schema that a client has bound; an empty `seen` is any.

        A client that has bound another is refused: it reads by position (airport §3.7). Raises:
        StaleDescriptor.
        """
        found = self.in_form(seen) if seen else self
        if found is None:
            raise StaleDescriptor(
                f"table {self.title} has been altered since it was attached: DETACH the catalog "
                f"and ATTACH it again"
            )
        return found


def find_schema(ctx: Context, registered: RegisteredCatalog, name: str) -> Schema:
    """Find the schema by its published name. Raises: NotFound."""
    schema = None
    # The rules are asked before the catalog: an error of the lookup, or the time that it takes,
    # would tell that the schema exists.
    if name and ctx.access.sees_schema(name):
        schema = registered.catalog.schema(ctx, name)
    if schema is None and name == MAIN_PUBLISHED and ctx.access.sees_schema(MAIN):
        schema = _whatever_its_case(registered.catalog.schemas(ctx), MAIN)
    if schema is None and ctx.from_duckdb:
        schema = _whatever_its_case(registered.catalog.schemas(ctx), name)
    if schema is None or not ctx.access.sees_schema(schema.name):
        raise NotFound(f"schema {name} not found")
    return schema


def find_table(
    ctx: Context, registered: RegisteredCatalog, schema_name: str, name: str
) -> PublishedTable:
    """Find the table of that name, as it is now. Raises: NotFound, Unsupported."""
    schema = find_schema(ctx, registered, schema_name)
    table = table_named(ctx, schema, name)
    if table is None:
        raise NotFound(f"table {schema_name}.{name} not found")
    return publish_table(ctx, registered, schema.name, table)


def table_named(ctx: Context, schema: Schema, name: str) -> Table | None:
    """The table of that name, as clients call it; None if there is none that the caller may see."""
    if not name or not ctx.access.may(
        Privilege.LIST,
        schema.name,
        name,
        # The rules are asked before the schema: an error, or the time, would tell that the table
        # exists.
    ):
        return None
    table = schema.table(ctx, name)
    if table is None and ctx.from_duckdb:
        table = _whatever_its_case(schema.tables(ctx), name)
    return table


_Named = TypeVar("_Named", Schema, Table)


def _whatever_its_case(objects: Sequence[_Named], name: str) -> _Named | None:
    """Find an object without regard to case.

    DuckDB's DDL sends names as they were typed, and for its users case makes no difference.
    """
    return next((each for each in objects if folded(each.name) == folded(name)), None)


def table_at(ctx: Context, found: PublishedTable, time_point: TimePoint | None) -> PublishedTable:
    """Find the table as it was then.

    Raises: NotFound, BadRequest; Unsupported when the table has no history.
    """
    if time_point is None:
        return found
    if not isinstance(found.table, DynamicSchemaTable):
        raise Unsupported(f"table {found.title} has no history: query it without AT")
    return publish_table(
        ctx, found.registered, found.schema_name, found.table, time_point, found.reached_by
    )


def publish_table(
    ctx: Context,
    registered: RegisteredCatalog,
    schema_name: str,
    table: Table,
    time_point: TimePoint | None = None,
    reached: Reached | None = None,
) -> PublishedTable:
    """Make the table as the caller may see it.

    Raises: Unsupported for a table that the client could not take: it would break the rest (T9).
    """
    if reached is None:
        table = as_seen(ctx, schema_name, table)
    own = table.arrow_schema if time_point is None else None
    if own is None:
        if not isinstance(table, DynamicSchemaTable):
            raise Unsupported(f"table {schema_name}.{table.name} has no Arrow schema")
        own = table.schema_for_request(ctx, SchemaRequest(time_point=time_point))
    checks = table.constraints.checks if isinstance(table, ConstrainedTable) else ()
    # The client asks for statistics without saying as of what time (airport §4.9).
    statistics = (
        time_point is None and isinstance(table, StatisticsTable) and table.offers_statistics
    )
    forms = _published(own, checks, statistics, f"{schema_name}.{table.name}")
    if table.arrow_schema is None:
        forms = forms[:1]  # rows that are written to it must have its own types, known from here
    if isinstance(table, TableRef) and find_rowid_column(own) is not None:
        raise Unsupported(
            f"table {schema_name}.{table.name} is read by DuckDB itself, so it can have no row id "
            f"(T40)"
        )
    return PublishedTable(
        registered, schema_name, table, *_form_for(ctx, forms), forms=forms, reached_by=reached
    )


def publish_result(
    ctx: Context,
    registered: RegisteredCatalog,
    schema_name: str,
    table: Table,
    reached: Reached,
    title: str,
) -> PublishedTable:
    """Publish the result of a function, a table that is in no schema. Raises: Unsupported."""
    own = table.arrow_schema
    assert own is not None
    forms = _forms(published_result_schema(own, title))
    return PublishedTable(
        registered, schema_name, table, *_form_for(ctx, forms), forms=forms, reached_by=reached
    )


def _forms(published: pa.Schema) -> tuple[_Form, ...]:
    narrow = narrowed_schema(published)
    distinct = (published,) if narrow is published else (published, narrow)
    return tuple((each, fingerprint(each), _rowid_index(each)) for each in distinct)


def _rowid_index(published: pa.Schema) -> int | None:
    last = len(published) - 1
    return last if (published.field(last).metadata or {}).get(ROWID_MARKER) else None


def _form_for(ctx: Context, forms: tuple[_Form, ...]) -> _Form:
    """The form that a caller is told who has bound none yet."""
    return forms[-1 if ctx.narrow_decimals else 0]


def published_result_schema(own: pa.Schema, title: str) -> pa.Schema:
    """The columns of a function's result as clients see them: plain, without row id and statistics.

    Raises: Unsupported, BadRequest.
    """
    refuse_unsupported(own, title)
    _refuse_strange(own, title)
    return pa.schema(
        [field.with_metadata(extension_metadata(field)) for field in publishable_schema(own)]
    )


def published_schema_name(schema: Schema) -> str:
    """The name under which clients find the schema."""
    return published_name(schema.name)


def _refuse_strange(own: pa.Schema, title: str) -> None:
    if not len(own):
        raise Unsupported(f"{title} has no columns")
    if len(set(own.names)) < len(own):
        raise Unsupported(f"{title} has two columns of the same name")


_cache: Cache[tuple[int, bool], tuple[pa.Schema, tuple[str, ...], tuple[_Form, ...]]] = Cache(
    20_000
)


def _published(
    own: pa.Schema, checks: tuple[str, ...], statistics: bool, title: str
) -> tuple[_Form, ...]:
    """The forms of the published Arrow schema, remembered by the table schema's identity.

    Arrow schemas are immutable, and the cache keeps them alive, so equal identity means an equal
    schema.
    """
    entry = _cache.find((id(own), statistics), None)
    if entry is not None and entry[0] is own and entry[1] == checks:
        return entry[2]
    refuse_unsupported(own, f"table {title}")
    rowid = find_rowid_column(own)
    plain = publishable_schema(own)
    fields = [field for index, field in enumerate(plain) if index != rowid]
    if not fields:
        raise Unsupported(f"table {title} has no columns")
    _refuse_strange(own, f"table {title}")
    if any((field.metadata or {}).get(ROWID_MARKER) for field in fields):
        raise Unsupported(f"table {title} has two columns that are marked as its row id")
    if rowid is not None:
        marked = {**(plain.field(rowid).metadata or {}), ROWID_MARKER: b"1"}
        fields.append(plain.field(rowid).with_metadata(marked))
    metadata: dict[bytes, bytes] = {}
    if statistics and all(
        takes_statistics(field) for field in fields[: len(fields) - (rowid is not None)]
    ):
        metadata[b"can_produce_statistics"] = b"1"
    if checks:
        metadata[b"check_constraints"] = pack({"constraints": list(checks)})
    result = _forms(pa.schema(fields, metadata=metadata or None))
    _cache.replace((id(own), statistics), (own, checks, result))
    return result
