"""Request headers (airport §2)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sparkport.catalog import Operation
from sparkport.errors import BadRequest

__all__ = ["RequestHeaders", "decode_headers"]

_DUCKDB_AGENT = "airport/"
_CORE = "grpc-c"
"""What gRPC's core calls itself: grpc-c++/…, grpc-python/… grpc-c/…; not grpc-go/…."""
_NARROW_DECIMALS_SINCE = 20250723
"""The first agent whose DuckDB (1.3) and Arrow (19) read them (decision 0041)."""
_LONGEST_TRACE_ID = 100
"""Logs and messages repeat it, and clients refuse long messages. DuckDB sends 36 characters."""


@dataclass(frozen=True, slots=True)
class RequestHeaders:
    """The headers of a call; None for those that it does not have."""

    user_agent: str | None = None
    library: str | None = None
    """The implementation of gRPC, and perhaps what uses it."""
    session_id: str | None = None
    catalog: str | None = None
    authorization: str | None = None
    trace_id: str | None = None
    transaction_id: str | None = None
    operation: str | None = None
    action: str | None = None
    flight_path: str | None = None
    returning: bool = False
    filter_catalog: str | None = None
    filter_schema: str | None = None

    @property
    def from_duckdb(self) -> bool:
        """Whether the caller says that it is DuckDB's airport client."""
        return (self.user_agent or "").startswith(_DUCKDB_AGENT)

    @property
    def from_grpc_core(self) -> bool:
        """Whether the caller is made with gRPC's core, as DuckDB's and Arrow's C++ clients are."""
        return self.from_duckdb or _CORE in (self.library or "")

    @property
    def takes_narrow_decimals(self) -> bool:
        """Whether the caller is a client that reads decimal32 and decimal64 (decision 0041)."""
        if not self.from_duckdb or self.user_agent is None:
            return False
        since = self.user_agent[len(_DUCKDB_AGENT) :]
        return (
            since.isdecimal()
            and since.isascii()
            and len(since) <= 20
            and int(since) >= _NARROW_DECIMALS_SINCE
        )

    @property
    def write_operation(self) -> Operation:
        """The operation that a DoExchange is for. Raises: BadRequest."""
        try:
            return Operation(self.operation or "")
        except ValueError:
            raise BadRequest(
                "the header airport-operation must be insert, update or delete"
                + (f", not {self.operation[:60]!r}" if self.operation else "; it is missing")
            ) from None


def decode_headers(metadata: Iterable[tuple[str, str | bytes]]) -> RequestHeaders:
    """Decode the headers of a call; of a header that is sent twice the first counts (T38)."""
    first: dict[str, str] = {}
    for key, value in metadata:
        if isinstance(value, str):
            first.setdefault(key.lower(), value)
    return RequestHeaders(
        user_agent=first.get("airport-user-agent"),
        library=first.get("user-agent"),
        session_id=first.get("airport-client-session-id"),
        catalog=first.get("airport-catalog"),
        authorization=first.get("authorization"),
        trace_id=first.get("airport-trace-id", "")[:_LONGEST_TRACE_ID] or None,
        # The client's own name first, then the contracts'; scalar functions may send it empty
        # (airport §2.1).
        transaction_id=first.get("airport-transaction-id") or first.get("x-transaction-id") or None,
        operation=first.get("airport-operation"),
        action=first.get("airport-action-name"),
        flight_path=first.get("airport-flight-path"),
        returning=first.get("return-chunks") == "1",
        filter_catalog=first.get("airport-list-flights-filter-catalog"),
        filter_schema=first.get("airport-list-flights-filter-schema"),
    )
