"""A catalog in memory: schemas that come and go, and transactions over all their tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sparkport.catalog import (
    ActionCatalog,
    CatalogVersion,
    Context,
    CreateSchemaOptions,
    CustomAction,
    DropSchemaOptions,
    DynamicCatalog,
    FlightCatalog,
    FlightName,
    Schema,
    Table,
    TransactionManager,
    TransactionState,
    VersionedCatalog,
)
from sparkport.catalog.names import folded
from sparkport.errors import (
    AlreadyExists,
    BadRequest,
    NotFound,
    SchemaNotEmpty,
    TransactionNotActive,
)
from sparkport.memory.commit import commit_transaction
from sparkport.memory.ledger import Ledger
from sparkport.memory.schema import MemorySchema
from sparkport.memory.settings import MemorySettings

__all__ = ["MemoryCatalog"]


class MemoryCatalog(
    VersionedCatalog, DynamicCatalog, TransactionManager, ActionCatalog, FlightCatalog
):
    """Schemas of tables in memory, with history, DDL, DML and transactions.

    Everything is gone when the process ends. A transaction sees the catalog's rows as they were at
    its first read, and its own changes. Its changes become visible all at once, unless another
    transaction has changed one of the same rows meanwhile (snapshot isolation). DDL does not take
    part: it is visible to every transaction at once.
    """

    def __init__(self, name: str = "", *, settings: MemorySettings | None = None) -> None:
        self._name = name
        self._ledger = Ledger(settings or MemorySettings(), has_transactions=True)
        self._schemas: dict[bytes, Schema] = {}
        self._actions: tuple[CustomAction, ...] = ()
        self._flights: dict[FlightName, Table] = {}

    @property
    def name(self) -> str:
        return self._name

    def version(self, ctx: Context) -> CatalogVersion:
        return CatalogVersion(self._ledger.catalog_version)

    def schemas(self, ctx: Context) -> Sequence[Schema]:
        return tuple(self._schemas.values())

    def schema(self, ctx: Context, name: str) -> Schema | None:
        schema = self._schemas.get(folded(name))
        return schema if schema is not None and schema.name == name else None

    def add(self, schema: Schema) -> None:
        """Add a schema of any kind.

        The tables of a `MemorySchema` take part in this catalog's transactions. Raises:
        AlreadyExists.
        """
        with self._ledger.lock:
            if folded(schema.name) in self._schemas:
                raise AlreadyExists(f"schema {schema.name} exists already")
            if isinstance(schema, MemorySchema):
                schema.move_to(self._ledger)
            self._schemas = {**self._schemas, folded(schema.name): schema}
            self._ledger.catalog_changed()

    def add_schema(
        self, name: str, *, comment: str = "", tags: Mapping[str, str] | None = None
    ) -> MemorySchema:
        """Make an empty schema and add it. Raises: AlreadyExists; BadRequest."""
        schema = MemorySchema(name, comment=comment, tags=tags)
        self.add(schema)
        return schema

    def actions(self, ctx: Context) -> Sequence[CustomAction]:
        return self._actions

    def add_action(self, action: CustomAction) -> None:
        """Add an action to the catalog. Raises: AlreadyExists."""
        with self._ledger.lock:
            if any(known.name == action.name for known in self._actions):
                raise AlreadyExists(f"action {action.name} exists already")
            self._actions = (*self._actions, action)

    def flight(self, ctx: Context, name: FlightName) -> Table | None:
        return self._flights.get(name)

    def add_flight(self, name: FlightName, table: Table) -> None:
        """Add a table that is in no schema, under a path or a command.

        Raises: AlreadyExists, BadRequest.
        """
        if not name:
            raise BadRequest("a flight needs a path or a command")
        with self._ledger.lock:
            if name in self._flights:
                raise AlreadyExists(f"flight {name!r} exists already")
            self._flights = {**self._flights, name: table}

    def create_schema(self, ctx: Context, name: str, options: CreateSchemaOptions) -> Schema:
        schema = MemorySchema(name, comment=options.comment, tags=options.tags)
        self.add(schema)
        return schema

    def drop_schema(self, ctx: Context, name: str, options: DropSchemaOptions) -> None:
        if not name:
            raise BadRequest("a schema needs a name")
        with self._ledger.lock:
            schema = self._schemas.get(folded(name))
            if schema is None:
                if options.ignore_not_found:
                    return
                raise NotFound(f"schema {name} does not exist")
            if not options.cascade and (schema.tables(ctx)):
                raise SchemaNotEmpty(f"schema {schema.name} still contains tables: drop them first")
            if isinstance(schema, MemorySchema):
                schema.clear()
            self._schemas = {key: each for key, each in self._schemas.items() if each is not schema}
            self._ledger.catalog_changed()

    def begin_transaction(self, ctx: Context) -> str:
        return self._ledger.transactions.begin().id

    def commit_transaction(self, ctx: Context, transaction_id: str) -> None:
        transaction = self._ledger.transactions.use(transaction_id)
        parent = transaction.parent or ctx.parent_transaction_id
        with self._ledger.lock:
            if transaction.state is TransactionState.COMMITTED:
                return
            if transaction.state is TransactionState.ABORTED:
                raise TransactionNotActive(
                    f"transaction {transaction_id} is not active (state: aborted)"
                )
            versions = commit_transaction(self._ledger, transaction)
        self._ledger.show(parent, versions)

    def rollback_transaction(self, ctx: Context, transaction_id: str) -> None:
        transaction = self._ledger.transactions.find(transaction_id)
        if transaction is not None:
            with self._ledger.lock:
                if transaction.state is TransactionState.ACTIVE:
                    self._ledger.transactions.end(transaction, TransactionState.ABORTED)

    def transaction_status(self, ctx: Context, transaction_id: str) -> TransactionState | None:
        transaction = self._ledger.transactions.find(transaction_id)
        return None if transaction is None else transaction.state
