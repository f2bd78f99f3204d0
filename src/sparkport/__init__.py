"""Sparkport: serve a Spark lakehouse, or any Python catalog, to DuckDB.

The names here are the public interface. They are imported when they are first used, so that `import
sparkport` is quick and brings in neither grpc nor pyspark.
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
    from sparkport.catalog import *  # noqa: F403
    from sparkport.errors import *  # noqa: F403
    from sparkport.memory import MemoryCatalog as MemoryCatalog
    from sparkport.memory import MemorySchema as MemorySchema
    from sparkport.memory import MemoryTable as MemoryTable
    from sparkport.server import Server as Server
    from sparkport.server import ServerSettings as ServerSettings
    from sparkport.server import serve as serve
    from sparkport.spark import LakeCatalog as LakeCatalog
    from sparkport.spark import LakeSettings as LakeSettings

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
    "sparkport.memory": ("MemoryCatalog", "MemorySchema", "MemoryTable"),
    "sparkport.spark": ("LakeCatalog", "LakeSettings"),
    "sparkport.server": ("Server", "ServerSettings", "serve"),
    "sparkport.errors": (
        "AlreadyExists",
        "BadRequest",
        "Cancelled",
        "CatalogFault",
        "Conflict",
        "ConstraintViolation",
        "LimitExceeded",
        "NotFound",
        "NotWritable",
        "PermissionDenied",
        "PreconditionFailed",
        "SchemaNotEmpty",
        "SparkportError",
        "StaleDescriptor",
        "TransactionNotActive",
        "Unauthenticated",
        "Unsupported",
    ),
    "sparkport.catalog": (
        "Access",
        "ActionCatalog",
        "AddColumnOptions",
        "AddFieldOptions",
        "Arguments",
        "BatchwiseInOutFunction",
        "Cancellation",
        "Catalog",
        "CatalogVersion",
        "ColumnStatistics",
        "ConstrainedTable",
        "Constraints",
        "Context",
        "CreateSchemaOptions",
        "CreateTableOptions",
        "CustomAction",
        "DMLOptions",
        "DMLResult",
        "DeletableBatchTable",
        "DeletableTable",
        "DirectTable",
        "Directly",
        "DropSchemaOptions",
        "DropTableOptions",
        "DynamicCatalog",
        "DynamicSchema",
        "DynamicSchemaTable",
        "DynamicTable",
        "FileReference",
        "Filter",
        "FlightCatalog",
        "FlightName",
        "FramedTable",
        "Framer",
        "Framing",
        "FunctionCall",
        "FunctionSignature",
        "Identity",
        "InsertableTable",
        "NullHandling",
        "OnConflict",
        "Operation",
        "Parameter",
        "ParameterKind",
        "PartitionedTable",
        "PartitionedTableFunction",
        "Privilege",
        "Quotas",
        "RecordReader",
        "Reference",
        "RemoveColumnOptions",
        "RemoveFieldOptions",
        "Restrictions",
        "ScalarFunction",
        "ScanOptions",
        "Schema",
        "SchemaRequest",
        "Stability",
        "StagedTable",
        "StagedWrite",
        "StatisticsTable",
        "Table",
        "TableFunction",
        "TableInOutFunction",
        "TableRef",
        "TimePoint",
        "TransactionManager",
        "TransactionState",
        "UpdatableBatchTable",
        "UpdatableTable",
        "VersionedCatalog",
        "find_rowid_column",
        "rowid_field",
    ),
}
_HOME = {name: module for module, names in _MODULES.items() for name in names}

__all__ = sorted(_HOME)  # noqa: PLE0605


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'sparkport' has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
