"""What the objects of a lake share: the session, the catalog, the states of its tables."""

from __future__ import annotations

import json
import logging
import re
import threading
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from io import BytesIO
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import pyarrow as pa
from pyiceberg.io import FileIO
from pyiceberg.schema import Schema

from sparkport.catalog import Context, rowid_field
from sparkport.catalog.names import folded
from sparkport.catalog.rowid import ROWID_NAME
from sparkport.engine.cache import Cache
from sparkport.errors import CatalogFault, NotFound, SparkportError
from sparkport.spark.iceberg.file_io import StorageIO
from sparkport.spark.iceberg.identifiers import Identifier
from sparkport.spark.iceberg.locations import for_workers, local_path, reachable
from sparkport.spark.iceberg.metadata_heads import MetadataHeads
from sparkport.spark.iceberg.table_state import States, TableState, metadata_text, opened_metadata
from sparkport.spark.iceberg.types.declared import declared_fields
from sparkport.spark.iceberg.types.java_spelling import respelled
from sparkport.spark.jvm.errors import translated
from sparkport.spark.jvm.file_properties import file_properties
from sparkport.spark.jvm.gateway import Gateway
from sparkport.spark.jvm.hadoop_storage import serve_hadoop
from sparkport.spark.jvm.relay.jobs import start_job
from sparkport.spark.jvm.result_columns import presented
from sparkport.spark.lake.directory import CatalogEntry, Kind
from sparkport.spark.lake.groups import Groups
from sparkport.spark.lake.kept_tables import KeptTables
from sparkport.spark.lake.settings import LakeSettings
from sparkport.spark.lake.shared_catalog import SharedCatalog
from sparkport.spark.lake.staging import StagingArea
from sparkport.spark.lake.store_folder import Store
from sparkport.spark.lake.transactions import Transactions

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

    from sparkport.spark.jvm.relay.relay import Relay

__all__ = ["Lake", "WrittenMetadata"]

_log = logging.getLogger(__name__)
_MOST_SCHEMAS = 10_000
_READERS = 16
"""How many files of metadata are read from a store at once."""
_STAGING = ".sparkport"
"""The folder in a warehouse in which servers stage. No name of a schema is made to this."""
_MOST_WARNINGS = 1_000
_WRITTEN_BYTES = 64 * 1024 * 1024
_IN_MEMORY = 6
"""How many times larger metadata are in memory than as text, about."""


class WrittenMetadata:
    """Metadata of a table that this server has just written."""

    def __init__(
        self,
        location: str,
        text: str,
        metadata: Mapping[str, Any] | None = None,
        snapshots: str | None = None,
    ) -> None:
        """`metadata` are what the text says, where that is known already.

        `snapshots` is the part of the text that lists the snapshots, which the next ones begin
        with.
        """
        self.location = location
        self.text = text
        self.snapshots = snapshots
        self._metadata = metadata

    @property
    def metadata(self) -> Mapping[str, Any]:
        """As JSON, which nobody may change."""
        if self._metadata is None:
            self._metadata = json.loads(self.text)
        return self._metadata


class Lake:
    """A catalog of a Spark session. Thread-safe."""

    def __init__(
        self,
        gateway: Gateway,
        catalog: SharedCatalog,
        relay: Relay,
        settings: LakeSettings,
        staging: Path,
    ) -> None:
        self.gateway = gateway
        self.catalog = catalog
        self.relay = relay
        self.settings = settings
        self.states = States()
        self.kept = KeptTables()
        self.metadata_heads = MetadataHeads(self._open_metadata)
        serve_hadoop(gateway.spark)
        self.file_properties = file_properties(gateway)
        """Properties of the storages of all files; a table may have some of its own."""
        store = self._store()
        self.staging = StagingArea(staging, self.file_properties, gateway.hold, store)
        self.transactions = Transactions(settings, self.states, self.staging.prefix)
        self._lock = threading.Lock()
        self._locks: WeakValueDictionary[Hashable, threading.Lock] = WeakValueDictionary()
        self.groups: Groups[Any] = Groups()
        """Changes that are ready, by the table that they wait for (write/commit.py)."""
        self._warnings: set[str] = set()
        self._relation_schemas: Cache[tuple[Identifier, str], pa.Schema] = Cache(_MOST_SCHEMAS)
        self._written: Cache[Identifier, WrittenMetadata] = Cache(_WRITTEN_BYTES)

    def _store(self) -> Store | None:
        """Where statements are staged in the warehouse; None where they are in a folder."""
        warehouse, is_set = self.catalog.warehouse, self.settings.staging is not None
        if is_set or warehouse is None or local_path(warehouse) is not None:
            return None
        if not reachable(warehouse, self.file_properties):
            return None
        # Executors of a local master are in this machine's JVM.
        is_cluster = re.match(r"local(\[|$)", self.spark.sparkContext.master or "") is None
        for_rows = is_cluster and for_workers(warehouse)
        return Store(f"{warehouse}/{_STAGING}", lambda: self.file_properties, for_rows)

    @property
    def spark(self) -> SparkSession:
        return self.gateway.spark

    @contextmanager
    def locked(self, what: Hashable) -> Iterator[None]:
        """Hold a lock of this server: of a table during a commit, of a name while it is given."""
        with self._lock:
            lock = self._locks.setdefault(what, threading.Lock())
        with lock:
            yield

    def entry(self, identifier: Identifier) -> CatalogEntry | None:
        """A table or view as it is now; None if there is none."""
        return self.catalog.entry(identifier.namespace, identifier.name)

    def current(self, identifier: Identifier) -> TableState:
        """An Iceberg table as it is now. Raises: NotFound, CatalogFault."""
        before = ""
        while True:
            entry = self.entry(identifier)
            if entry is None or entry.kind is not Kind.ICEBERG:
                raise NotFound(f"table {identifier} does not exist")
            try:
                return self.state(entry.identifier, entry.location)
            except NotFound:
                # Others commit so quickly that the metadata are outdated, and removed, already.
                if entry.location == before:
                    raise
                before = entry.location
                self.changed(identifier)

    def state(self, identifier: Identifier, location: str) -> TableState:
        """The state that a metadata file describes. Raises: NotFound, CatalogFault, Unsupported."""
        known = self.states.find(identifier, location)
        if known is not None:
            return known
        io = self.io(identifier, location)
        text = self.catalog.metadata_text(identifier, location)
        with _missing_metadata(identifier):
            if text is None:
                text, io = self._metadata(identifier, location, io)
            return self.states.add(identifier, location, text, io)

    def metadata_json(self, state: TableState) -> Mapping[str, Any]:
        """The metadata of a state as JSON, which nobody may change. Raises: NotFound, CatalogFault.

        Those that this server has written last are not read again.
        """
        identifier, location = state.identifier, state.metadata_location
        known = self._written.find(identifier, None)
        if known is not None and known.location == location:
            return known.metadata
        text = self.catalog.metadata_text(identifier, location)
        if text is None:
            with _missing_metadata(identifier):
                text, _ = self._metadata(identifier, location, state.io)
        return WrittenMetadata(location, text).metadata

    def written_text(self, identifier: Identifier, location: str) -> str | None:
        """The text of metadata, if this server has just written them."""
        known = self._written.find(identifier, None)
        return known.text if known is not None and known.location == location else None

    def snapshots_text(self, state: TableState) -> str | None:
        """The list of a state's snapshots as JSON, if this server has just written it."""
        known = self._written.find(state.identifier, None)
        is_known = known is not None and known.location == state.metadata_location
        return known.snapshots if known is not None and is_known else None

    def keep_written(self, identifier: Identifier, written: WrittenMetadata) -> None:
        """Remember metadata that this server has written, so that nobody reads them back."""
        self._written.replace(identifier, written, _IN_MEMORY * len(written.text))

    def prefetch(self, entries: Iterable[CatalogEntry]) -> None:
        """Read the metadata of tables that are to be listed, several at a time.

        From a store each takes a while. What is wrong with one is said when it is asked for.
        """
        missing = [
            each
            for each in entries
            if each.kind is Kind.ICEBERG
            and local_path(each.location) is None
            and self.states.find(each.identifier, each.location) is None
        ]
        if len(missing) < 2:
            return

        def read(entry: CatalogEntry) -> None:
            with suppress(SparkportError):
                self.state(entry.identifier, entry.location)

        with ThreadPoolExecutor(min(_READERS, len(missing)), "sparkport-metadata") as readers:
            list(readers.map(read, missing))

    def _metadata(
        self, identifier: Identifier, location: str, io: FileIO | None
    ) -> tuple[str, FileIO | None]:
        if io is not None:
            try:
                return metadata_text(io, location), io
            except FileNotFoundError:
                raise
            except OSError:
                if local_path(location) is not None:
                    raise
                # Spark has the keys of this object store, this process has not.
                _log.info(
                    "table %s is left to Spark: its storage cannot be reached from here",
                    identifier,
                    exc_info=True,
                )
        return self.gateway.metadata_text(identifier, location), None

    def _open_metadata(self, identifier: Identifier, location: str) -> IO[bytes]:
        io = self.io(identifier, location)
        if io is not None:
            try:
                return opened_metadata(io, location)
            except FileNotFoundError as error:
                raise NotFound(f"old metadata of table {identifier} are missing") from error
            except OSError:
                if local_path(location) is not None:
                    raise
        return BytesIO(self.gateway.metadata_text(identifier, location).encode())

    def io(self, identifier: Identifier, location: str) -> FileIO | None:
        """What reads a file of a table in this process; None where only Spark can."""
        if not reachable(location, self.file_properties):
            return None
        return StorageIO(lambda: self.properties_of(identifier))

    def properties_of(self, identifier: Identifier) -> Mapping[str, str]:
        """Properties of the storages of a table's files, with what the catalog vends for them."""
        return {**self.file_properties, **self.catalog.vended(identifier)}

    def seen(self, ctx: Context, identifier: Identifier) -> TableState:
        """The state of a table that a request reads. Raises: NotFound, CatalogFault."""
        return self.transactions.seen(ctx.transaction_id, self.current(identifier))

    def relation_schema(self, entry: CatalogEntry) -> pa.Schema:
        """The columns of a view, or of a table of another format, and a row id.

        Raises: PreconditionFailed when Spark cannot resolve it.
        """
        key = (entry.identifier, entry.location or entry.columns)
        known = self._relation_schemas.find(key, None)
        if known is None:
            is_described = entry.kind is Kind.VIEW and entry.location
            known = self._view_schema(entry) if is_described else self._resolved(entry)
            if not any(folded(name) == folded(ROWID_NAME) for name in known.names):
                known = known.append(rowid_field())
            if not (entry.location or entry.columns):
                return known  # nothing would tell when it changes
            return self._relation_schemas.add(key, known)
        return known

    def _resolved(self, entry: CatalogEntry) -> pa.Schema:
        with translated(f"table {entry.identifier}"):
            return presented(self.gateway.relation(entry.identifier))[1]

    def _view_schema(self, entry: CatalogEntry) -> pa.Schema:
        """The columns in a view's metadata.

        Listing a view then does not require that it resolves.
        """
        io = self.io(entry.identifier, entry.location)
        if io is None:
            return self._resolved(entry)
        try:
            given = self.catalog.metadata_text(entry.identifier, entry.location)
            text = metadata_text(io, entry.location) if given is None else given
            view = respelled(json.loads(text))
            version = next(
                each
                for each in view["versions"]
                if each["version-id"] == view["current-version-id"]
            )
            schema = next(
                each for each in view["schemas"] if each["schema-id"] == version["schema-id"]
            )
            return pa.schema(declared_fields(Schema.model_validate(schema), {}))
        except (OSError, ValueError, KeyError, StopIteration) as error:
            raise CatalogFault(f"the metadata of view {entry.identifier} cannot be read") from error

    def collected(self, title: str, query: str, arguments: Sequence[Any] = ()) -> list[Row]:
        """All rows of a query that has few.

        `title` says in errors what the query is for. Raises: what Spark's errors are translated to.
        """
        job = start_job(
            self.spark.sparkContext,
            Context(),
            title,
            lambda: self.spark.sql(query, args=list(arguments) or None).collect(),
        )
        return job.result(meanwhile=self.relay.make_room)

    def changed(self, identifier: Identifier | None = None) -> None:
        """Have the catalog read again.

        Called when this server has changed something, or has found an object changed.
        """
        self.catalog.changed(identifier)

    def warn_once(self, what: str) -> None:
        """Log a warning once, although the catalog is listed again and again."""
        with self._lock:
            if what in self._warnings:
                return
            if len(self._warnings) >= _MOST_WARNINGS:
                self._warnings.clear()
            self._warnings.add(what)
        _log.warning("%s", what)

    def attempt(self, what: str, action: Callable[[], None]) -> None:
        """Do something and only log its failure: the statement it belongs to has succeeded."""
        try:
            action()
        except SparkportError as error:
            _log.warning("%s: %s", what, error.message)
        except Exception:  # noqa: BLE001 - see above
            _log.warning("%s failed", what, exc_info=True)


@contextmanager
def _missing_metadata(identifier: Identifier) -> Iterator[None]:
    """Say what is wrong with metadata that cannot be read. Raises: NotFound, CatalogFault."""
    try:
        yield
    except FileNotFoundError as error:
        raise NotFound(
            f"the metadata of table {identifier} is missing: it was removed from the storage"
        ) from error
    except (OSError, ValueError) as error:
        raise CatalogFault(f"the metadata of table {identifier} cannot be read") from error
