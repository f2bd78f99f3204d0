"""A client's call: its headers, who makes it, and whether the client still waits."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from sparkport.catalog import Access, Cancellation, Catalog, Context, Identity, Quotas
from sparkport.errors import Unauthenticated
from sparkport.service.activity import Work
from sparkport.service.limits import LimitKeeper
from sparkport.wire.headers import RequestHeaders

__all__ = ["HOW_TO_SIGN_IN", "Call"]

HOW_TO_SIGN_IN = (
    "this server wants a token: "
    "CREATE SECRET (TYPE airport, auth_token '…', SCOPE 'grpc://…') with its address"
)


@dataclass(frozen=True, slots=True)
class Call:
    """What the service knows about a call before it reads the first message."""

    headers: RequestHeaders = field(default_factory=RequestHeaders)
    cancellation: Cancellation = field(default_factory=Cancellation)
    trace_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    """The caller's own if it sent one: under this id the log has the details of unexpected errors.
    """
    identity: Identity | None = None
    """Who calls, where the server asks for tokens."""
    admitted: bool = True
    """False until the caller has shown who it is; it may still do so by a handle of this server."""
    shown: Identity | None = None
    """Who the headers show it to be; a handle in the first message must then say so too."""
    abandon: Callable[[], object] = field(default=lambda: None, compare=False, repr=False)
    """Ends the call from a thread other than the one that serves it."""
    work: Work = field(default_factory=Work, compare=False, repr=False)
    """Where the call notes its progress, for the views of the server's activity."""
    keeper: LimitKeeper | None = field(default=None, compare=False, repr=False)
    """Counts what callers use at once."""

    @property
    def principal(self) -> str | None:
        """The name of the caller."""
        return None if self.identity is None else self.identity.name

    @property
    def quotas(self) -> Quotas:
        """How much the caller may use at once."""
        if self.keeper is None:
            return Quotas()
        identity = self.identity or self.shown
        return self.keeper.quotas(None if identity is None else identity.name)

    def context(
        self,
        catalog_name: str,
        transaction_id: str | None = None,
        access: Access | None = None,
        served: Callable[[], Sequence[tuple[Catalog, Access]]] = tuple,
    ) -> Context:
        """The context that catalogs see.

        Nothing can be asked of a catalog without a context, so this is the last check. Raises:
        Unauthenticated.
        """
        if not self.admitted:
            raise Unauthenticated(HOW_TO_SIGN_IN)
        self.work.principal = self.principal
        return Context(
            catalog_name=catalog_name,
            transaction_id=transaction_id,
            principal=self.principal,
            identity=self.identity,
            access=access or Access(),
            served=served,
            quotas=self.quotas,
            trace_id=self.trace_id,
            session_id=self.headers.session_id or "",
            from_duckdb=self.headers.from_duckdb,
            narrow_decimals=self.headers.takes_narrow_decimals,
            cancellation=self.cancellation,
            progress=self.work.progress,
        )
