"""One call of a client: its headers, and whether it still waits."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass, field

from sparkport.catalog import Cancellation, Context
from sparkport.wire.headers import RequestHeaders

__all__ = ["Call"]


@dataclass(frozen=True, slots=True)
class Call:
    """What the service knows about a call before it reads the first message."""

    headers: RequestHeaders = field(default_factory=RequestHeaders)
    cancellation: Cancellation = field(default_factory=Cancellation)
    trace_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    """The caller's own where it sent one: the key to the log for errors nobody foresaw."""
    principal: str | None = None
    """Who calls, where the server asks for tokens."""
    abandon: Callable[[], object] = field(default=lambda: None, compare=False, repr=False)
    """Ends the call from outside of the thread that serves it."""

    def context(self, catalog_name: str, transaction_id: str | None = None) -> Context:
        """The context that catalogs see."""
        return Context(
            catalog_name=catalog_name,
            transaction_id=transaction_id,
            principal=self.principal,
            trace_id=self.trace_id,
            session_id=self.headers.session_id or "",
            from_duckdb=self.headers.from_duckdb,
            cancellation=self.cancellation,
        )
