"""A backend of Arrow tables in memory, with versions; the reference for implementers."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from sparkport.memory.settings import MemorySettings

if TYPE_CHECKING:
    from sparkport.memory.catalog import MemoryCatalog as MemoryCatalog
    from sparkport.memory.schema import MemorySchema as MemorySchema
    from sparkport.memory.table import MemoryTable as MemoryTable

__all__ = ["MemoryCatalog", "MemorySchema", "MemorySettings", "MemoryTable"]

_HOME = {"MemoryCatalog": "catalog", "MemorySchema": "schema", "MemoryTable": "table"}


def __getattr__(name: str) -> object:
    # Only the settings are imported here: `--help` reads them and need not wait for pyarrow.
    if name in _HOME:
        return getattr(import_module(f"sparkport.memory.{_HOME[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
