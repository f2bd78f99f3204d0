"""One committed state of an Iceberg table: its metadata, and the schema and snapshot to read."""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import IO, Any, cast

from pyiceberg.exceptions import ValidationError as IcebergValidationError
from pyiceberg.io import FileIO
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRef
from pyiceberg.table.snapshots import MetadataLogEntry, Snapshot, SnapshotLogEntry

from sparkport.engine.cache import Cache
from sparkport.errors import Unsupported
from sparkport.spark.iceberg.definition import (
    COMMENT_PROPERTY,
    CONSTRAINTS_PROPERTY,
    DEFAULTS_PROPERTY,
    Definition,
    define,
)
from sparkport.spark.iceberg.identifiers import Identifier
from sparkport.spark.iceberg.types.declared import TYPES_PROPERTY
from sparkport.spark.iceberg.types.java_spelling import respelled
from sparkport.spark.iceberg.unknown_metadata import expect_known

__all__ = [
    "SHAPING",
    "States",
    "TableState",
    "has_row_lineage",
    "is_encrypted",
    "metadata_text",
    "opened_metadata",
]

_ROW_LINEAGE = 3
"""The format version from which on rows have ids."""
_ENCRYPTION_KEY = "encryption.key-id"
_MOST_STATES = 20_000
_MOST_ENTRIES = 4_000_000
"""The limit of snapshots and log entries of all cached states together."""
_ENTRIES_OF_A_STATE = 200
"""The weight of a state itself, in such entries."""
SHAPING = (TYPES_PROPERTY, CONSTRAINTS_PROPERTY, DEFAULTS_PROPERTY, COMMENT_PROPERTY)
"""Properties that change what users see."""


@dataclass(frozen=True, slots=True, eq=False)
class TableState:
    """A committed state of a table.

    It is immutable, like all files that it names, so it needs no locks.
    """

    identifier: Identifier
    metadata: TableMetadata
    metadata_location: str
    io: FileIO | None
    """Reads the files of the metadata; None where only Spark can reach them."""
    schema: Schema
    snapshot: Snapshot | None
    """None when the table has no rows."""
    definition: Definition

    @property
    def has_row_ids(self) -> bool:
        """Whether rows can be found again by their ids.

        Rows of a table that was upgraded have none before the next commit.
        """
        return (
            self.definition.shows_row_id
            and has_row_lineage(self.metadata.format_version)
            and (self.snapshot is None or self.snapshot.first_row_id is not None)
        )

    @property
    def file_properties(self) -> Mapping[str, str]:
        """Properties of the storages of the table's files: endpoints, credentials and the like.

        They may expire: ask for them when a statement or a task begins.
        """
        return {} if self.io is None else self.io.properties


class States:
    """Table states by the location of their metadata, which never changes. Thread-safe."""

    def __init__(self) -> None:
        self._states: Cache[tuple[Identifier, str], TableState] = Cache(_MOST_ENTRIES)
        self._newest: Cache[Identifier, TableMetadata] = Cache(_MOST_STATES)
        self._definitions: Cache[tuple[Any, ...], Definition] = Cache(_MOST_STATES, math.inf)

    def find(self, identifier: Identifier, location: str) -> TableState | None:
        return self._states.find((identifier, location), None)

    def add(
        self, identifier: Identifier, location: str, text: str, io: FileIO | None
    ) -> TableState:
        """The state that a metadata file describes.

        Raises: Unsupported for columns that only Spark knows; PreconditionFailed for what not even
        Spark knows; ValueError for a text that is not metadata.
        """
        metadata = _parsed(identifier, text)
        if is_encrypted(metadata):
            io = None
        _share(metadata, self._newest.find(identifier, None))
        state = self._state(
            identifier, metadata, location, io, metadata.schema(), metadata.current_snapshot()
        )
        self._newest.replace(identifier, metadata)
        return self._states.add((identifier, location), state, _entries(state))

    def add_next(
        self, before: TableState, location: str, metadata: Mapping[str, Any]
    ) -> TableState:
        """The state that metadata describe which have a snapshot and properties more than before.

        Only that is parsed, however many snapshots there are.
        """
        known, size = before.metadata, len(metadata["metadata-log"])
        after = known.model_copy(
            update={
                "last_sequence_number": metadata["last-sequence-number"],
                "last_updated_ms": metadata["last-updated-ms"],
                "current_snapshot_id": metadata["current-snapshot-id"],
                "next_row_id": metadata["next-row-id"],
                "properties": metadata["properties"],
                "refs": {**known.refs, MAIN_BRANCH: SnapshotRef(**metadata["refs"][MAIN_BRANCH])},
                "snapshots": [*known.snapshots, Snapshot(**metadata["snapshots"][-1])],
                "snapshot_log": [
                    *known.snapshot_log,
                    SnapshotLogEntry(**metadata["snapshot-log"][-1]),
                ],
                "metadata_log": [
                    *known.metadata_log,
                    MetadataLogEntry(**metadata["metadata-log"][-1]),
                ][-size:],
            }
        )
        state = replace(
            before, metadata=after, metadata_location=location, snapshot=after.current_snapshot()
        )
        self._newest.replace(before.identifier, after)
        return self._states.add((before.identifier, location), state, _entries(state))

    def at(self, state: TableState, snapshot: Snapshot | None, schema: Schema) -> TableState:
        """The state of another snapshot in the same metadata, with the schema of its time."""
        definition = self._defined(state.metadata, schema)
        return replace(state, snapshot=snapshot, schema=schema, definition=definition)

    def shaped(
        self,
        state: TableState,
        snapshot: Snapshot | None,
        schema: Schema,
        shape: Sequence[str | None],
    ) -> TableState:
        """As `at`, with the properties `SHAPING` of that time."""
        others = {
            name: value for name, value in state.metadata.properties.items() if name not in SHAPING
        }
        own = {name: value for name, value in zip(SHAPING, shape, strict=True) if value is not None}
        if others | own != state.metadata.properties:
            metadata = state.metadata.model_copy(update={"properties": others | own})
            state = replace(state, metadata=metadata)
        return self.at(state, snapshot, schema)

    def _state(
        self,
        identifier: Identifier,
        metadata: TableMetadata,
        location: str,
        io: FileIO | None,
        schema: Schema,
        snapshot: Snapshot | None,
    ) -> TableState:
        return TableState(
            identifier, metadata, location, io, schema, snapshot, self._defined(metadata, schema)
        )

    def _defined(self, metadata: TableMetadata, schema: Schema) -> Definition:
        """The definition of a table's columns: the same object for the same columns.

        The service caches by identity what it derives from them.
        """
        shape = tuple(metadata.properties.get(name) for name in SHAPING)
        key = (metadata.table_uuid, schema.schema_id, shape)
        known = self._definitions.find(key, None)
        if known is not None:
            return known
        definition = define(schema, metadata.properties)
        return self._definitions.add(key, definition)


def _parsed(identifier: Identifier, text: str) -> TableMetadata:
    try:
        return TableMetadataUtil.parse_raw(text)
    except (ValueError, IcebergValidationError):
        metadata = json.loads(text)
        expect_known(identifier, metadata)
    try:
        return TableMetadataUtil.parse_obj(respelled(metadata))
    except (ValueError, IcebergValidationError) as error:
        raise Unsupported(
            f"table {identifier} has columns of a type that only Spark can read"
        ) from error


def _share(metadata: TableMetadata, other: TableMetadata | None) -> None:
    """Share equal objects between two states of a table, which are equal in nearly everything.

    A table's metadata lists all its snapshots, and transactions keep states for an hour: without
    this a thousand commits would take a gigabyte.
    """
    if other is None or other.table_uuid != metadata.table_uuid:
        return
    for name, key in _IMMUTABLE.items():
        known = {getattr(each, key): each for each in getattr(other, name)}
        entries = getattr(metadata, name)
        # By the specification, equal keys mean equal values; but a log may name a snapshot twice.
        entries[:] = [
            found if (found := known.get(getattr(each, key))) == each else each for each in entries
        ]


_IMMUTABLE = {
    "snapshots": "snapshot_id",
    "snapshot_log": "timestamp_ms",
    "metadata_log": "metadata_file",
    "schemas": "schema_id",
}
"""Lists in the metadata, and the keys that tell their entries apart."""


def _entries(state: TableState) -> int:
    metadata = state.metadata
    return (
        _ENTRIES_OF_A_STATE
        + len(metadata.snapshots)
        + len(metadata.snapshot_log)
        + len(metadata.metadata_log)
    )


def is_encrypted(metadata: TableMetadata) -> bool:
    """Whether a table's files are encrypted. Only Iceberg in the JVM can ask for their keys."""
    return _ENCRYPTION_KEY in metadata.properties


def has_row_lineage(format_version: int) -> bool:
    """Whether tables of this version of Iceberg's format have row ids."""
    return format_version >= _ROW_LINEAGE


def metadata_text(io: FileIO, location: str) -> str:
    """The JSON of a metadata file, compressed or not. Raises: OSError."""
    with opened_metadata(io, location) as source:
        return source.read().decode()


def opened_metadata(io: FileIO, location: str) -> IO[bytes]:
    """A metadata file, compressed or not, opened for reading piece by piece. Raises: OSError."""
    source: Any = io.new_input(location).open()
    if location.endswith((".gz.metadata.json", ".metadata.json.gz")):
        source = _Compressed(source)
    return cast(IO[bytes], source)


class _Compressed(gzip.GzipFile):
    """A gzip file that closes its source with itself."""

    def __init__(self, source: Any) -> None:
        super().__init__(fileobj=source)
        self._source = source

    def close(self) -> None:
        super().close()
        self._source.close()
