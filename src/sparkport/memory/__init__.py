"""The second backend: Arrow tables in memory with versions; the reference for implementers."""

from sparkport.memory.catalog import MemoryCatalog
from sparkport.memory.schema import MemorySchema
from sparkport.memory.settings import MemorySettings
from sparkport.memory.table import MemoryTable

__all__ = ["MemoryCatalog", "MemorySchema", "MemorySettings", "MemoryTable"]
