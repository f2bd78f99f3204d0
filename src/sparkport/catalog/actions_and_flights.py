"""Optional parts of a catalog besides its schemas: actions and flights of its own."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from sparkport.catalog.context import Context
from sparkport.catalog.interfaces import Catalog, Table

__all__ = ["ActionCatalog", "CustomAction", "FlightCatalog", "FlightName"]

FlightName: TypeAlias = tuple[str, ...] | bytes
"""A client's name for a flight: a path, or a command."""


@dataclass(frozen=True, slots=True)
class CustomAction:
    """An action besides the protocol's: `FROM airport_action('grpc://…', 'name', 'parameter')`.

    `run` gets the parameter's bytes. Each value that it returns or yields is a row for the caller.
    It may raise the errors of `sparkport.errors`.
    """

    name: str
    run: Callable[[Context, bytes], Iterable[bytes]]
    description: str = ""


class ActionCatalog(Catalog):
    """A catalog with actions of its own."""

    @abstractmethod
    def actions(self, ctx: Context) -> Sequence[CustomAction]:
        """Return the actions that the caller may run.

        The names of the protocol's actions are reserved. Of several catalogs with an action of the
        same name, the first counts.
        """


class FlightCatalog(Catalog):
    """A catalog with flights: `FROM airport_take_flight('grpc://…', ['name'])`.

    A flight is a table outside of the catalog's schemas.
    """

    @abstractmethod
    def flight(self, ctx: Context, name: FlightName) -> Table | None:
        """Return the table under this path or command; None if this catalog does not have it.

        Called for every step of a scan, so it must be quick, and find the same table each time.
        """
