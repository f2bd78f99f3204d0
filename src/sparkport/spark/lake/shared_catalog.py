"""What the lake asks of an Iceberg catalog, which other engines use at the same time.

A catalog knows namespaces with their properties, and for each table and view where its metadata
are. It makes a change of a table visible by a compare-and-swap. It has nothing to do with files:
the lake writes and removes them.

A new implementation takes a file with a subclass of `SharedCatalog`, and a line in
`lake/catalogs.py`. Each has to pass the suite in `tests/shared_catalog`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from sparkport.errors import Conflict, Unsupported
from sparkport.spark.iceberg.identifiers import Identifier
from sparkport.spark.lake.directory import CatalogEntry, CatalogListing, Kind, Namespace

__all__ = ["Beaten", "NewMetadata", "Refused", "SharedCatalog"]


class Beaten(Conflict):
    """The table has other metadata than a swap expected: another writer was faster.

    A client that asks again by itself after a lost answer gets this error for its own swap. Only a
    catalog that asks once can be certain. `identifier` is the table; of several that were to be
    swapped together, the first that was found changed.
    """

    def __init__(self, identifier: Identifier, *, is_certain: bool = False) -> None:
        super().__init__(
            f"table {identifier} was changed by somebody else at the same time; "
            "nothing was changed: try again"
        )
        self.identifier = identifier
        self.is_certain = is_certain


class Refused(Exception):
    """The catalog has not made a swap, and will not make it later. The cause has its reason."""


class NewMetadata(ABC):
    """New metadata of a table or a view, to be made its current ones."""

    kind: ClassVar[Kind] = Kind.ICEBERG
    """A table's, or a view's."""
    is_removal: ClassVar[bool] = False
    """Whether there are none, because the object is dropped."""

    @property
    @abstractmethod
    def before(self) -> str:
        """Location of the metadata that these were made from; empty for a new object."""

    @abstractmethod
    def write(self) -> str:
        """Write a file that no table refers to yet, and return its location.

        For catalogs that keep locations.
        """

    @abstractmethod
    def remove(self, location: str) -> None:
        """Remove a file that `write` has written. Never raises."""

    @abstractmethod
    def remove_outdated(self) -> None:
        """Remove older metadata files that the table no longer keeps. Never raises."""

    def request(self) -> Mapping[str, Any]:
        """What changes, and what must still be so, as the body of a REST catalog's commit.

        For catalogs that write metadata themselves.
        """
        raise NotImplementedError

    @abstractmethod
    def publish(self) -> None:
        """Have the JVM's own client of the catalog write and swap them. Raises: what it raises."""


class SharedCatalog(ABC):
    """A catalog. Thread-safe; several processes may use the same catalog."""

    @property
    @abstractmethod
    def name(self) -> str:
        """Spark's name for the catalog, which is the `catalog` of its identifiers."""

    @property
    @abstractmethod
    def warehouse(self) -> str | None:
        """The folder of the tables, without a slash at its end; None if unknown."""

    @property
    @abstractmethod
    def chooses_folders(self) -> bool:
        """Whether the catalog decides where a new table is put; if not, the lake does."""

    @property
    def swaps_together(self) -> bool:
        """Whether `swap_all` can make changes of several tables visible at once."""
        return False

    @property
    def creates_together(self) -> bool:
        """Whether `swap_all` also takes new tables, new, changed and dropped views."""
        return False

    @property
    def takes_plain(self) -> bool:
        """Whether `swap` takes metadata that the JVM has not built."""
        return False

    def close(self) -> None:
        """Give up connections and threads. What is asked later may make new ones."""

    # ------------------------------------------------------------------------------------- reading

    @abstractmethod
    def listing(self) -> CatalogListing:
        """All objects as they are now, or were a few seconds ago.

        Changes of this server are always included, once `changed` was called. Raises: CatalogFault
        when the catalog cannot be read.
        """

    @abstractmethod
    def entry(self, namespace: tuple[str, ...], name: str) -> CatalogEntry | None:
        """A table or view as it is now; None if there is none. Raises: CatalogFault."""

    def metadata_text(self, identifier: Identifier, location: str) -> str | None:
        """The metadata at a location as JSON, if the catalog has given them out with the table.

        None leaves it to the lake to read the file. Raises: CatalogFault.
        """
        return None

    def vended(self, identifier: Identifier) -> Mapping[str, str]:
        """Properties for the files of a table, which the catalog gives out with it.

        Credentials among them are valid for some minutes more. Raises: CatalogFault.
        """
        return {}

    def namespace(self, name: str) -> Namespace | None:
        """A namespace by the name that users give it; None if there is none."""
        return self.listing().namespaces.get(name)

    def namespace_and_alike(self, name: str) -> tuple[Namespace | None, Sequence[str]]:
        """A namespace, and the names of all that DuckDB takes for it. Raises: CatalogFault."""
        return self.namespace(name), self.listing().alike(name)

    def entry_and_alike(
        self, namespace: Namespace, name: str
    ) -> tuple[CatalogEntry | None, Sequence[str]]:
        """An entry, and the names of all that DuckDB takes for it. Raises: CatalogFault."""
        entry = self.entry(namespace.parts, name)
        there = self.listing().namespaces.get(".".join(namespace.parts), namespace)
        return entry, there.alike(name)

    @abstractmethod
    def changed(self, identifier: Identifier | None = None) -> None:
        """Read again: this server has changed something, or has found an object changed."""

    # ---------------------------------------------------------------------------------- namespaces

    @abstractmethod
    def create_namespace(self, parts: tuple[str, ...], properties: Mapping[str, str]) -> None:
        """Make a namespace. Raises: AlreadyExists, Unsupported."""

    @abstractmethod
    def drop_namespace(self, parts: tuple[str, ...]) -> None:
        """Remove a namespace, if it exists. Raises: SchemaNotEmpty, Unsupported."""

    # -------------------------------------------------------------------------------------- tables

    @abstractmethod
    def create(self, identifier: Identifier, metadata: NewMetadata) -> None:
        """Add a new Iceberg table. Raises: AlreadyExists for any object of that name."""

    @abstractmethod
    def swap(self, identifier: Identifier, metadata: NewMetadata) -> None:
        """Replace a table's metadata, if it still has those that the new ones were made from.

        Raises: Beaten when it has others, or is gone; Refused when the swap was not made for
        another reason. Any other error leaves open whether it was made.
        """

    def swap_all(self, changes: Sequence[tuple[Identifier, NewMetadata]]) -> None:
        """Make swaps of different tables, all of them or none; nobody sees some without the others.

        A catalog that `creates_together` takes creations among them, and views. Raises: as `swap`,
        for all of them. Beaten names the table whose metadata are others; AlreadyExists the new
        object whose name is taken. Unsupported where the catalog does not have `swaps_together`.
        """
        raise Unsupported(
            f"the catalog of lake {self.name} cannot change several tables at once: change one "
            "after the other"
        )

    @abstractmethod
    def drop(self, entry: CatalogEntry) -> bool:
        """Remove a table or a view but keep its files; whether it was there."""

    def purge(self, entry: CatalogEntry, remove_files: Callable[[], None]) -> bool:
        """Remove an Iceberg table and the files that it names; whether it was there.

        `remove_files` removes the files where the catalog has no way of its own to do both.
        """
        if not self.drop(entry):
            return False
        remove_files()
        return True

    @abstractmethod
    def rename(self, entry: CatalogEntry, identifier: Identifier) -> None:
        """Give a table or a view another name.

        Raises: NotFound; AlreadyExists for any object of that name.
        """

    def replace(self, replaced: CatalogEntry, entry: CatalogEntry) -> None:
        """Give an Iceberg table the name of another one, which is removed but keeps its files.

        All of it is done, or none. Raises: NotFound; Unsupported where the catalog cannot do both
        at once.
        """
        raise Unsupported(
            f"the catalog of lake {self.name} cannot have one table take another's place"
        )
