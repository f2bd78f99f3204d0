"""What a catalog may offer beside schemas: actions and flights of its own."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from sparkport.catalog.context import Context
from sparkport.catalog.interfaces import Catalog, Table

__all__ = ["ActionCatalog", "CustomAction", "FlightCatalog", "FlightName"]

FlightName: TypeAlias = tuple[str, ...] | bytes
"""How a client names a flight: a path, or a command."""


@dataclass(frozen=True, slots=True)
class CustomAction:
    """An action beside those of the protocol. In SQL: `FROM airport_action('grpc://…', 'name',
    'parameter')`.

    `run` gets the parameter's bytes, and each value that it returns or yields is one row for the
    caller. It may raise the errors of `sparkport.errors`.
    """

    name: str
    run: Callable[[Context, bytes], Iterable[bytes]]
    description: str = ""


class ActionCatalog(Catalog):
    """A catalog with actions of its own."""

    @abstractmethod
    def actions(self, ctx: Context) -> Sequence[CustomAction]:
        """The actions that the caller may run. Names of the protocol's actions are taken; of
        several catalogs with one of the same name, the first counts."""


class FlightCatalog(Catalog):
    """A catalog with tables that are in no schema: `FROM airport_take_flight('grpc://…', ['name',
    …])`.
    """

    @abstractmethod
    def flight(self, ctx: Context, name: FlightName) -> Table | None:
        """The table under this path or command; None if it is not one of this catalog's.

        Asked again for every step of a scan, so it must be quick, and find the same table each
        time.
        """
