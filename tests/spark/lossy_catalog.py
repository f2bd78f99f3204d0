"""A catalog that loses answers, between the lake and the real catalog."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from sparkport.errors import CatalogFault
from sparkport.spark.iceberg.identifiers import Identifier
from sparkport.spark.lake.shared_catalog import Beaten, NewMetadata, SharedCatalog
from sparkport.spark.lake.spark_catalog import SparkCatalog
from sparkport.spark.lake.sqlite_catalog import SqliteCatalog

Ask = Callable[[], None]
"""Asks the real catalog for a commit."""


def asked_again(ask: Ask) -> None:
    """Lose the answer, and ask again: Iceberg then reports that another commit came first."""
    ask()
    ask()


def unanswered(ask: Ask) -> None:
    ask()
    raise RuntimeError("no answer")


def unheard(ask: Ask) -> None:
    raise RuntimeError("no answer")


class LossyCatalog:
    """Passes the lake's commits on to the real catalog by way of `behave`.

    `skip` commits are passed on unchanged before that, and all those of tables other than `only`.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.behave: Callable[[Ask], None] | None = None
        self.only = ""
        self.skip = 0
        self.asked = 0
        self.is_unreachable = False
        for kind in (SqliteCatalog, SparkCatalog):
            self._stand_before(kind, monkeypatch)

    def _stand_before(self, kind: type[SharedCatalog], monkeypatch: pytest.MonkeyPatch) -> None:
        real_swap: Any = kind.swap
        real_entry: Any = kind.entry

        def swap(catalog: SharedCatalog, identifier: Identifier, metadata: NewMetadata) -> None:
            def ask() -> None:
                try:
                    real_swap(catalog, identifier, metadata)
                except Beaten as error:  # perhaps by itself: its first answer may be lost
                    raise Beaten(identifier) from error

            if self.only in ("", identifier.name):
                self.commit(ask)
            else:
                ask()

        def entry(catalog: SharedCatalog, namespace: tuple[str, ...], name: str) -> Any:
            if self.is_unreachable:
                raise CatalogFault("the catalog cannot be reached")
            return real_entry(catalog, namespace, name)

        real_swap_all: Any = kind.swap_all

        def swap_all(
            catalog: SharedCatalog, changes: Sequence[tuple[Identifier, NewMetadata]]
        ) -> None:
            def ask() -> None:
                try:
                    real_swap_all(catalog, changes)
                except Beaten as error:
                    raise Beaten(error.identifier) from error

            if len(changes) > 1:
                self.commit(ask)
            else:
                real_swap_all(catalog, changes)  # from `swap`, which has counted it

        monkeypatch.setattr(kind, "swap_all", swap_all)
        monkeypatch.setattr(kind, "swap", swap)
        monkeypatch.setattr(kind, "entry", entry)

    def lose(self, behave: Callable[[Ask], None], *, only: str = "", skip: int = 0) -> None:
        """Lose the answer to one commit, from now on."""
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
