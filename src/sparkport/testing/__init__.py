"""A strict simulation of DuckDB's airport client, and a test suite for implementers of catalogs.

    from sparkport.testing import DuckDBClient

    with DuckDBClient(server.location, catalog="shop") as client:
        client.attach()
        client.scan("sales", "orders", ["id"], where="amount > 10")
        client.update("sales", "orders", {"amount": "amount * 2"}, where="id = 3", returning=True)

It talks to any Flight server, of Sparkport or not, and shares no code with Sparkport's own.
`CatalogContract` needs pytest; everything else does not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sparkport.testing.catalogs import AttachedSchema
from sparkport.testing.client import DuckDBClient
from sparkport.testing.exchange import Changed
from sparkport.testing.failures import (
    ClientFailure,
    ClientHang,
    ClientSideError,
    ProtocolViolation,
    ServerError,
)
from sparkport.testing.objects import AttachedColumn, AttachedFunction, AttachedTable
from sparkport.testing.statistics import ReportedStatistics

if TYPE_CHECKING:
    from sparkport.testing.contract import CatalogContract

__all__ = [
    "AttachedColumn",
    "AttachedFunction",
    "AttachedSchema",
    "AttachedTable",
    "CatalogContract",
    "Changed",
    "ClientFailure",
    "ClientHang",
    "ClientSideError",
    "DuckDBClient",
    "ProtocolViolation",
    "ReportedStatistics",
    "ServerError",
]


def __getattr__(name: str) -> Any:
    if name == "CatalogContract":
        import pytest

        # Before the first import, so that its assertions explain themselves as those of a test do.
        pytest.register_assert_rewrite("sparkport.testing.contract")
        from sparkport.testing.contract import CatalogContract

        return CatalogContract
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
