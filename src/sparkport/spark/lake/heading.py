"""What a server notes of a table before it writes files there, for the server that sweeps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sparkport.spark.iceberg.identifiers import Identifier
from sparkport.spark.iceberg.table_state import TableState

__all__ = ["Heading", "places_of"]

_PLACES = (
    "write.data.path",
    "write.metadata.path",
    "write.object-storage.path",
    "write.folder-storage.path",
)
"""Iceberg's properties that send files to other places."""


def places_of(properties: Mapping[str, str], location: str) -> list[str]:
    """The folders that a table's files are in."""
    return [
        location.rstrip("/"),
        *(properties[name].rstrip("/") for name in _PLACES if properties.get(name)),
    ]


@dataclass(frozen=True, slots=True)
class Heading:
    """A table as it was when a server began to write."""

    identifier: Identifier
    uuid: str = ""
    metadata: str = ""
    """The location of its metadata."""
    places: tuple[str, ...] = ()

    @classmethod
    def of(cls, identifier: Identifier, state: TableState | None) -> Heading:
        if state is None:
            return cls(identifier)
        places = places_of(state.metadata.properties, state.metadata.location)
        uuid = str(state.metadata.table_uuid)
        return cls(identifier, uuid, state.metadata_location, tuple(places))

    @classmethod
    def noted(cls, note: Mapping[str, Any]) -> Heading:
        """Read what `note` has made. Raises: KeyError, TypeError, ValueError."""
        catalog, namespace, name = note["table"]
        identifier = Identifier(str(catalog), tuple(map(str, namespace)), str(name))
        places = tuple(map(str, note.get("places", ())))
        return cls(identifier, str(note["uuid"]), str(note["metadata"]), places)

    def note(self) -> dict[str, Any]:
        """As JSON."""
        table = self.identifier
        return {
            "table": [table.catalog, list(table.namespace), table.name],
            "uuid": self.uuid,
            "metadata": self.metadata,
            "places": list(self.places),
        }
