"""The catalog as DuckDB caches it for the life of an attachment (airport §3.3–3.8)."""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow.flight as flight

from sparkport.testing.contents import ContentsMap, DiskCache, decompressed, objects
from sparkport.testing.failures import ClientSideError, ProtocolViolation
from sparkport.testing.objects import (
    AttachedFunction,
    AttachedObject,
    AttachedTable,
    attached_object,
)
from sparkport.testing.replies import Fields
from sparkport.testing.requests import pack
from sparkport.testing.session import Session

__all__ = ["AttachedSchema", "CatalogCache"]


@dataclass(slots=True)
class AttachedSchema:
    """A schema as DuckDB shows it, and its objects once they are loaded."""

    name: str
    description: str
    tags: dict[str, str]
    is_default: bool
    contents: ContentsMap = field(repr=False)
    tables: dict[str, AttachedTable] = field(default_factory=dict)
    functions: list[AttachedFunction] = field(default_factory=list)
    loaded: bool = False


class CatalogCache:
    """The catalog, loaded once and then changed only by the client's own DDL (trap T10).

    Changes by others stay invisible.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._disk = DiskCache()
        self._schemas: dict[str, AttachedSchema] | None = None

    def forget(self) -> None:
        """DETACH."""
        self._schemas = None

    def load(self) -> None:
        """Send `list_schemas`, once for each attachment."""
        if self._schemas is not None:
            return
        session = self._session
        body = session.answer(
            "list_schemas",
            pack({"catalog_name": session.catalog}),
            session.headers.of_catalog("list_schemas"),
        )
        root = Fields.unpack(decompressed(body, "list_schemas"), "list_schemas")
        session.learn_version(root.map("version_info"))
        bundle = ContentsMap.read(root.map("contents"))
        self._disk.fill(bundle, "list_schemas: contents", session.connection.timeout)
        schemas: dict[str, AttachedSchema] = {}
        for element in root.array("schemas"):
            schema = _schema(Fields(element, "list_schemas: a schema"))
            if schema.name.casefold() in schemas:
                raise ProtocolViolation(
                    "T45", f"two schemas are called {schema.name!r}: the catalog fails"
                )
            schemas[schema.name.casefold()] = schema
        for schema in schemas.values():
            if not schema.contents.by_list_flights:
                self._load_objects(schema)
        self._schemas = schemas

    def schemas(self) -> dict[str, AttachedSchema]:
        """All schemas by their own names, with their objects."""
        self.load()
        assert self._schemas is not None
        return {schema.name: self._with_objects(schema) for schema in self._schemas.values()}

    def schema(self, name: str) -> AttachedSchema:
        self.load()
        assert self._schemas is not None
        if name.casefold() not in self._schemas:
            raise ClientSideError(f'Catalog Error: Schema with name "{name}" does not exist!')
        return self._with_objects(self._schemas[name.casefold()])

    def table(self, schema: str, name: str) -> AttachedTable:
        table = self.known_table(schema, name)
        if table is None:
            raise ClientSideError(f"Catalog Error: Table with name {name} does not exist!")
        return table

    def known_table(self, schema: str, name: str) -> AttachedTable | None:
        return self.schema(schema).tables.get(name.casefold())

    def read_table(self, info: flight.FlightInfo, schema: str, action: str) -> AttachedTable:
        """Return the table of a FlightInfo that is the answer of an action."""
        if not info.app_metadata:
            raise ProtocolViolation(
                "§4.12",
                f"{action}: the app_metadata field of the flight is empty: the statement fails",
            )
        found = self._object(info, schema)
        if not isinstance(found, AttachedTable):
            raise ProtocolViolation("§4.12", f"{action}: the answer is a {found.kind}, not a table")
        return found

    def put_table(self, table: AttachedTable, instead_of: str | None = None) -> None:
        tables = self.schema(table.schema).tables
        if instead_of is not None:
            tables.pop(instead_of.casefold(), None)
        tables[table.name.casefold()] = table

    def remove_table(self, schema: str, name: str) -> None:
        self.schema(schema).tables.pop(name.casefold(), None)

    def put_schema(self, name: str, contents: ContentsMap) -> None:
        """Add a schema that this client created; a schema that it knows stays as it is."""
        schema = AttachedSchema(name, "", {}, False, contents)
        if not contents.by_list_flights:
            self._load_objects(schema)
        if self._schemas is not None:
            self._schemas.setdefault(name.casefold(), schema)

    def remove_schema(self, name: str) -> None:
        if self._schemas is not None:
            self._schemas.pop(name.casefold(), None)

    def _with_objects(self, schema: AttachedSchema) -> AttachedSchema:
        if not schema.loaded:
            self._load_objects(schema)
        return schema

    def _load_objects(self, schema: AttachedSchema) -> None:
        if schema.contents.by_list_flights:
            flights = self._session.connection.flights(
                b"",
                self._session.headers.of_catalog(
                    airport_list_flights_filter_catalog=self._session.catalog,
                    airport_list_flights_filter_schema=schema.name,
                ),
            )
            infos = [info for info in flights if info.app_metadata]
        else:
            where = f"contents of schema {schema.name!r}"
            body = schema.contents.load(self._disk, where, self._session.connection.timeout)
            infos = objects(body, where)
        for info in infos:
            # Without app_metadata the client skips it silently, which no server can want inline.
            if not info.app_metadata:
                raise ProtocolViolation(
                    "§3.5",
                    f"schema {schema.name!r}: a FlightInfo without app_metadata is silently "
                    "skipped",
                )
            _add(schema, self._object(info, schema.name))
        schema.loaded = True

    def _object(self, info: flight.FlightInfo, schema: str) -> AttachedObject:
        session = self._session
        return attached_object(info, session.catalog, schema, session.headers.line, session.local)


def _schema(fields: Fields) -> AttachedSchema:
    name = fields.text("name")
    if not name:
        raise ProtocolViolation("T45", "a schema has an empty name: the catalog fails")
    if name.casefold() == "main":
        raise ProtocolViolation(
            "T8", f"the schema {name!r} is listed, but nothing in it can be queried"
        )
    fields.where = f"list_schemas: schema {name!r}"
    return AttachedSchema(
        name=name,
        description=fields.text("description", trap="T47"),
        tags=fields.texts("tags", trap="T47"),
        is_default=fields.optional_boolean("is_default") or False,
        contents=ContentsMap.read(fields.map("contents")),
    )


def _add(schema: AttachedSchema, found: AttachedObject) -> None:
    if isinstance(found, AttachedFunction):
        schema.functions.append(found)
    elif found.name.casefold() in schema.tables:
        raise ProtocolViolation(
            "§3.5",
            f"schema {schema.name!r} has two tables called {found.name!r}: the second is invisible",
        )
    else:
        schema.tables[found.name.casefold()] = found
