"""Sparkport: serve a Spark lakehouse, or any Python catalog, to DuckDB.

The names here are what most programs need. Those who write a catalog of their own find the rest of
its interfaces in `sparkport.catalog`, and all errors in `sparkport.errors`.

Names are imported when they are first used, so that `import sparkport` is quick and brings in
neither grpc nor pyspark.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sparkport.auth import Authenticator as Authenticator
    from sparkport.auth import Grant as Grant
    from sparkport.auth import Mask as Mask
    from sparkport.auth import Policy as Policy
    from sparkport.auth import RowFilter as RowFilter
    from sparkport.auth import TokenAuthenticator as TokenAuthenticator
    from sparkport.builder import CatalogBuilder as CatalogBuilder
    from sparkport.builder import RowCount as RowCount
    from sparkport.builder import SchemaBuilder as SchemaBuilder
    from sparkport.catalog import Catalog as Catalog
    from sparkport.catalog import Context as Context
    from sparkport.catalog import Identity as Identity
    from sparkport.catalog import Privilege as Privilege
    from sparkport.catalog import ScanOptions as ScanOptions
    from sparkport.catalog import Schema as Schema
    from sparkport.catalog import Table as Table
    from sparkport.catalog import find_rowid_column as find_rowid_column
    from sparkport.errors import AlreadyExists as AlreadyExists
    from sparkport.errors import BadRequest as BadRequest
    from sparkport.errors import Conflict as Conflict
    from sparkport.errors import ConstraintViolation as ConstraintViolation
    from sparkport.errors import LimitExceeded as LimitExceeded
    from sparkport.errors import NotFound as NotFound
    from sparkport.errors import NotWritable as NotWritable
    from sparkport.errors import PermissionDenied as PermissionDenied
    from sparkport.errors import PreconditionFailed as PreconditionFailed
    from sparkport.errors import SparkportError as SparkportError
    from sparkport.errors import Unauthenticated as Unauthenticated
    from sparkport.errors import Unsupported as Unsupported
    from sparkport.memory import MemoryCatalog as MemoryCatalog
    from sparkport.memory import MemorySettings as MemorySettings
    from sparkport.memory import MemoryTable as MemoryTable
    from sparkport.server import Server as Server
    from sparkport.server import ServerSettings as ServerSettings
    from sparkport.server import serve as serve
    from sparkport.spark import LakeCatalog as LakeCatalog
    from sparkport.spark import LakeSettings as LakeSettings
    from sparkport.spark import LakeSource as LakeSource

__version__ = "0.1.0"

_MODULES = {
    "sparkport.auth": (
        "Authenticator",
        "Grant",
        "Mask",
        "Policy",
        "RowFilter",
        "TokenAuthenticator",
    ),
    "sparkport.builder": ("CatalogBuilder", "RowCount", "SchemaBuilder"),
    "sparkport.memory": ("MemoryCatalog", "MemorySettings", "MemoryTable"),
    "sparkport.spark": ("LakeCatalog", "LakeSettings", "LakeSource"),
    "sparkport.server": ("Server", "ServerSettings", "serve"),
    "sparkport.errors": (
        "AlreadyExists",
        "BadRequest",
        "Conflict",
        "ConstraintViolation",
        "LimitExceeded",
        "NotFound",
        "NotWritable",
        "PermissionDenied",
        "PreconditionFailed",
        "SparkportError",
        "Unauthenticated",
        "Unsupported",
    ),
    "sparkport.catalog": (
        "Catalog",
        "Context",
        "Identity",
        "Privilege",
        "ScanOptions",
        "Schema",
        "Table",
        "find_rowid_column",
    ),
}
_HOME = {name: module for module, names in _MODULES.items() for name in names}
_ELSEWHERE = ("sparkport.catalog", "sparkport.errors", "sparkport.memory")
"""Where the names are that were here in 0.1."""
_GONE = {
    "Limits": "sparkport.ServerSettings has them: ServerSettings(max_scans=…)",
    "ServiceSettings": "sparkport.ServerSettings has them: ServerSettings(authenticate=…)",
}

__all__ = sorted(_HOME)  # noqa: PLE0605


def __getattr__(name: str) -> Any:
    if name in _HOME:
        value = getattr(import_module(_HOME[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(_where(name), name=name)


def _where(name: str) -> str:
    """What to do about a name that is not here."""
    if name in _GONE:
        return f"there is no sparkport.{name} any more: {_GONE[name]}"
    if not name.startswith("_"):  # which tools ask for, who need not wait for pyarrow
        for module in _ELSEWHERE:
            if name in import_module(module).__all__:
                return f"sparkport.{name} is in {module}"
    return f"module 'sparkport' has no attribute {name!r}"


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
