"""What the lake asks of an Iceberg catalog, which other engines use at the same time.

A catalog knows namespaces with their properties, and for each table and view where its metadata
are. It makes a change of a table visible by one compare-and-swap. Files are not its business: the
lake writes and removes them.

Adding an implementation takes a file with a subclass of `SharedCatalog`, and its line in
`lake/catalogs.py`. `tests/shared_catalog` holds the suite that every one has to pass.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping

from sparkport.errors import Conflict
from sparkport.spark.iceberg.identifiers import Identifier
from sparkport.spark.lake.directory import CatalogEntry, CatalogListing, Namespace

__all__ = ["Beaten", "NewMetadata", "Refused", "SharedCatalog"]


class Beaten(Conflict):
    """The table has other metadata than those that a swap expected: another writer was faster.

    A client that asks again by itself, when an answer was lost, hears this of a swap of its own.
    Only a catalog that asks once can be certain.
    """

    def __init__(self, identifier: Identifier, *, is_certain: bool = False) -> None:
        super().__init__(
            f"table {identifier} was changed by somebody else at the same time; "
            "nothing was changed: try again"
        )
        self.is_certain = is_certain


class Refused(Exception):
    """The catalog has not made a swap, and will not make it later. The cause is what it said."""


class NewMetadata(ABC):
    """Metadata of a table that are to become its present ones."""

    @property
    @abstractmethod
    def before(self) -> str:
        """Where the metadata are that these were made from; empty for a new table."""

    @abstractmethod
    def write(self) -> str:
        """Write a file that no table refers to yet, and return its location. For catalogs that
        keep locations.
        """

    @abstractmethod
    def remove(self, location: str) -> None:
        """Remove what `write` has written. Never raises."""

    @abstractmethod
    def remove_outdated(self) -> None:
        """Remove the files of older metadata that the table keeps no longer. Never raises."""

    @abstractmethod
    def publish(self) -> None:
        """Have the JVM's own client of the catalog write and swap them. Raises: what it says."""


class SharedCatalog(ABC):
    """A catalog. Thread-safe, and so are its handles on one catalog in several processes."""

    @property
    @abstractmethod
    def name(self) -> str:
        """What Spark calls it, which is the `catalog` of its identifiers."""

    @property
    @abstractmethod
    def warehouse(self) -> str | None:
        """The folder that its tables are in, without a slash at its end; None if nobody says."""

    @property
    @abstractmethod
    def chooses_folders(self) -> bool:
        """Whether it decides itself where a new table is put; else the lake does."""

    # ------------------------------------------------------------------------------------- reading

    @abstractmethod
    def listing(self) -> CatalogListing:
        """What there is now, or was a few seconds ago. Changes of this server are always in it,
        once `changed` was called. Raises: CatalogFault when the catalog cannot be read.
        """

    @abstractmethod
    def entry(self, namespace: tuple[str, ...], name: str) -> CatalogEntry | None:
        """One object as it is now; None if there is none. Raises: CatalogFault."""

    def namespace(self, name: str) -> Namespace | None:
        """One namespace, by the name that users call it; None if there is none."""
        return self.listing().namespaces.get(name)

    @abstractmethod
    def changed(self, identifier: Identifier | None = None) -> None:
        """Look again: this server has changed something, or has found that an object is not what it
        was.
        """

    # ---------------------------------------------------------------------------------- namespaces

    @abstractmethod
    def create_namespace(self, parts: tuple[str, ...], properties: Mapping[str, str]) -> None:
        """Raises: AlreadyExists, Unsupported."""

    @abstractmethod
    def drop_namespace(self, parts: tuple[str, ...]) -> None:
        """Forget a namespace, if it is there. Raises: SchemaNotEmpty, Unsupported."""

    # -------------------------------------------------------------------------------------- tables

    @abstractmethod
    def create(self, identifier: Identifier, metadata: NewMetadata) -> None:
        """Make a new Iceberg table. Raises: AlreadyExists for any object of that name."""

    @abstractmethod
    def swap(self, identifier: Identifier, metadata: NewMetadata) -> None:
        """Make new metadata those of a table, if it still has those that they were made from.

        Raises: Beaten when it has others, or is gone; Refused when the swap was not made for
        another reason. Any other error leaves open whether it was made.
        """

    @abstractmethod
    def drop(self, entry: CatalogEntry) -> bool:
        """Forget a table or a view, whose files stay. Whether it was there."""

    def purge(self, entry: CatalogEntry, remove_files: Callable[[], None]) -> bool:
        """Forget an Iceberg table and remove the files that it names. Whether it was there.

        `remove_files` does the second part, where a catalog does not do both in a way of its own.
        """
        if not self.drop(entry):
            return False
        remove_files()
        return True

    @abstractmethod
    def rename(self, entry: CatalogEntry, identifier: Identifier) -> None:
        """Give a table or a view another name. Raises: NotFound; AlreadyExists for any object of
        that name.
        """
