"""Tables and views that a transaction makes or drops: nobody else sees it before it is published.

Each knows how to be published by itself. A catalog that `creates_together` publishes all of a
transaction's at once, with its changes of other tables.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable

from sparkport.catalog.names import folded
from sparkport.spark.iceberg.identifiers import Identifier
from sparkport.spark.lake.shared_catalog import NewMetadata, SharedCatalog

__all__ = ["Unpublished"]


class Unpublished(ABC):
    """An object that a transaction makes, replaces or drops. For one thread at a time."""

    identifier: Identifier
    catalog: SharedCatalog
    is_new: bool
    """Whether there was none of this name, so that it can be removed again."""
    is_view: bool

    @property
    def lock(self) -> Hashable:
        """The lock of this server on its name (ddl/names.py)."""
        name = self.identifier
        return ("name", folded(name.schema_name), folded(name.name))

    @abstractmethod
    def proposed(self) -> NewMetadata:
        """What the catalog is to have, made from what it has now.

        Raises: AlreadyExists, Conflict, NotFound when that does not fit any more.
        """

    @abstractmethod
    def publish(self) -> bool:
        """Publish it by itself; False when another writer was faster, and it may be tried again.

        Raises: AlreadyExists, Conflict, NotFound; OutcomeUnknown.
        """

    @abstractmethod
    def was_made_despite(self, error: BaseException) -> bool:
        """Whether it is published although the catalog has answered with this error.

        False when another writer was faster. Raises: OutcomeUnknown; the error, when it was
        certainly not made.
        """

    @abstractmethod
    def withdraw(self) -> None:
        """Remove it again after it was published, because what belongs to it cannot be.

        Raises: SparkportError.
        """

    @abstractmethod
    def settle(self) -> None:
        """Clean up after it was published. Never raises."""

    @abstractmethod
    def leave(self) -> None:
        """Leave all files: nobody knows whether it is published. Never raises."""

    @abstractmethod
    def discard(self) -> None:
        """Remove all that was written for it. Never raises."""
