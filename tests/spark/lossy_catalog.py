"""A catalog whose answers get lost, between the lake and the real one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from sparkport.errors import CatalogFault
from sparkport.spark.jvm.gateway import Gateway, IcebergHandle

Ask = Callable[[], None]
"""Asks the real catalog for a commit."""


def asked_again(ask: Ask) -> None:
    """The answer is lost; who asks again hears from Iceberg itself that somebody else was
    faster.
    """
    ask()
    ask()


def unanswered(ask: Ask) -> None:
    ask()
    raise RuntimeError("no answer")


def unheard(ask: Ask) -> None:
    raise RuntimeError("no answer")


class LossyCatalog:
    """Lets commits of the lake through as `behave` does; with `skip` not the first ones, with
    `only` not those of others.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.behave: Callable[[Ask], None] | None = None
        self.only = ""
        self.skip = 0
        self.asked = 0
        self.is_unreachable = False
        real = Gateway.iceberg

        def iceberg(gateway: Gateway, identifier: Any) -> IcebergHandle | None:
            if self.is_unreachable:
                raise CatalogFault("the catalog cannot be reached")
            handle = real(gateway, identifier)
            if handle is None or self.only not in ("", identifier.name):
                return handle
            return IcebergHandle(_Table(handle.table, self), handle.metadata)

        monkeypatch.setattr(Gateway, "iceberg", iceberg)

    def lose(self, behave: Callable[[Ask], None], *, only: str = "", skip: int = 0) -> None:
        """One commit, from now on."""
        self.behave, self.only, self.skip = behave, only, skip

    def commit(self, ask: Ask) -> None:
        self.asked += 1
        if self.skip or self.behave is None:
            self.skip = max(0, self.skip - 1)
            ask()
        else:
            behave, self.behave = self.behave, None
            behave(ask)

    def and_unreachable(self, behave: Callable[[Ask], None]) -> Callable[[Ask], None]:
        def then(ask: Ask) -> None:
            try:
                behave(ask)
            finally:
                self.is_unreachable = True

        return then


class _Table:
    def __init__(self, table: Any, catalog: LossyCatalog) -> None:
        self._table = table
        self._catalog = catalog

    def operations(self) -> Any:
        return _Operations(self._table.operations(), self._catalog)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._table, name)


class _Operations:
    def __init__(self, operations: Any, catalog: LossyCatalog) -> None:
        self._operations = operations
        self._catalog = catalog

    def commit(self, base: Any, after: Any) -> None:
        self._catalog.commit(lambda: self._operations.commit(base, after))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._operations, name)
