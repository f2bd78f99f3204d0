"""The folder of a server in an object store: its lease, and notes of the tables that it writes to.

Strategy: a journal for each statement would cost requests with each of them. Instead, the names of
all files that a server writes begin with its id, then the table's. The server notes each table
once, before its first file there. If the server dies, another one reads the notes, and looks in the
places of these tables for files with such names (write/store_sweep.py).
"""

from __future__ import annotations

import json
import secrets
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from sparkport.spark.iceberg.deletion import delete_files
from sparkport.spark.iceberg.locations import storage_at
from sparkport.spark.iceberg.storage import Storage
from sparkport.spark.lake.heading import Heading
from sparkport.spark.lake.lease import Holder, Lease

__all__ = ["ID_DIGITS", "ROWS", "TABLES", "Properties", "Store", "StoreFolder", "table_digits"]

TABLES = "tables"
"""The folder of the notes; each is named by the uuid of its table."""
ROWS = "rows"
"""The folder of rows that are staged for Spark."""
ID_DIGITS = 16
"""Digits of a server's id, of a table's, and of the rest of a statement's id."""


Properties: TypeAlias = Callable[[], Mapping[str, str]]
"""Gives the properties of a storage as they are now: they may expire."""


@dataclass(frozen=True, slots=True)
class Store:
    """Where the servers of a lake stage in an object store."""

    root: str
    """The folder with the folders of all servers."""
    properties: Properties = field(repr=False)
    for_rows: bool = False
    """Whether rows that Spark reads go there, because its executors are on other machines."""

    def storage(self) -> Storage:
        """Raises: OSError."""
        return storage_at(self.root, self.properties())


def table_digits(uuid: str) -> str:
    """The part of a table's uuid that is in the names of its files."""
    return uuid.replace("-", "").lower()[:ID_DIGITS].rjust(ID_DIGITS, "0")


class StoreFolder:
    """What a server has in the store, as long as it is not taken for dead. Thread-safe.

    Nothing is written before a statement writes something.
    """

    def __init__(self, store: Store, locks: Callable[[], Path]) -> None:
        """`locks` makes the folder with the server's locks, or returns it."""
        self.server = secrets.token_hex(ID_DIGITS // 2)
        self._store = store
        self._locks = locks
        self._guard = threading.Lock()
        self._lease: Lease | None = None
        self._noted: set[str] = set()
        self._notes: list[str] = []
        self._left: list[tuple[str, Properties]] = []
        self._is_kept = False
        self._is_closed = False

    @property
    def is_certain(self) -> bool:
        """Whether no other server can have taken this one for dead."""
        lease = self._lease
        return not self._is_closed and (lease is None or lease.is_certain)

    def statement_id(self, heading: Heading) -> str:
        """An id for a statement, with which the names of its files begin."""
        return f"{self.server}{table_digits(heading.uuid)}{secrets.token_hex(ID_DIGITS // 2)}"

    def begin(self) -> None:
        """Take the lease, unless it is held already. Raises: OSError."""
        with self._guard:
            if self._is_closed:
                raise OSError("the server has left its folder in the store")
            if self._lease is None:
                holder = Holder.of(self._locks())
                self._lease = Lease(self._store.storage, self._location, holder)

    def note(self, heading: Heading) -> None:
        """Note a table before the first file is written there. Raises: OSError."""
        self.begin()
        if heading.uuid in self._noted:
            return
        with self._guard:
            if heading.uuid not in self._noted:
                location = f"{self._location}/{TABLES}/{heading.uuid}"
                self._notes.append(location)
                with suppress(FileExistsError):  # from an attempt whose answer was lost
                    self._store.storage().write(location, json.dumps(heading.note()).encode())
                self._noted.add(heading.uuid)

    def forget(self, uuid: str) -> None:
        """Remove the note of a table or view that was made, or was not. Never raises."""
        with self._guard:
            if uuid in self._noted:
                self._noted.remove(uuid)
                location = f"{self._location}/{TABLES}/{uuid}"
                if _are_removed([location], self._store.properties):
                    self._notes.remove(location)

    def row_location(self, statement: str, name: str) -> str:
        """Where rows of a statement are staged for Spark."""
        return f"{self._location}/{ROWS}/{statement}/{name}"

    def keep(self) -> None:
        """Leave the notes for another server, which shall look at what a statement has left."""
        self._is_kept = True

    def remove_later(self, locations: Iterable[str], properties: Properties) -> None:
        """Remove files when this server ends: the store does not answer now."""
        with self._guard:
            self._left += [(location, properties) for location in locations]

    def close(self) -> None:
        """Remove the folder, unless a statement has left something. Never raises."""
        with self._guard:
            lease, was_closed, self._is_closed = self._lease, self._is_closed, True
        if lease is None or was_closed:
            return
        is_empty = (
            lease.is_certain
            and all(_are_removed([location], properties) for location, properties in self._left)
            and not self._is_kept
            and _are_removed(self._notes, self._store.properties)
        )
        lease.end(is_kept=not is_empty)

    @property
    def _location(self) -> str:
        return f"{self._store.root}/{self.server}"


def _are_removed(locations: Sequence[str], properties: Properties) -> bool:
    """Remove files if they are there; whether they are gone. Never raises."""
    try:
        return not delete_files(locations, properties())
    except Exception:  # noqa: BLE001 - the catalog, which has the properties, does not answer
        return False
