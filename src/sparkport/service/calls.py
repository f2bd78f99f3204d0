"""One call of a client: its headers, and whether it still waits."""

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

HOW_TO_SIGN_IN = "this server wants a token: CREATE SECRET (TYPE airport, auth_token '…', SCOPE 'grpc://…') with its address"


@dataclass(frozen=True, slots=True)
class Call:
    """What the service knows about a call before it reads the first message."""

    headers: RequestHeaders = field(default_factory=RequestHeaders)
    cancellation: Cancellation = field(default_factory=Cancellation)
    trace_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    """The caller's own where it sent one: the key to the log for errors nobody foresaw."""
    identity: Identity | None = None
    """Who calls, where the server asks for tokens."""
    admitted: bool = True
    """False while the caller has not shown who it is, and may yet do so by what this server has
    handed out to it.
    """
    shown: Identity | None = None
    """Who it is by what its headers show, which a handle in its first message has yet to say as
    well.
    """
    abandon: Callable[[], object] = field(default=lambda: None, compare=False, repr=False)
    """Ends the call from outside of the thread that serves it."""
    work: Work = field(default_factory=Work, compare=False, repr=False)
    """Where what it does is noted, for those who watch the server."""
    keeper: LimitKeeper | None = field(default=None, compare=False, repr=False)
    """Counts what callers use at once."""

    @property
    def principal(self) -> str | None:
        """The name of who calls."""
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
        """The context that catalogs see. Without one nothing can be asked of a catalog, so here is
        the last check.

        Raises: Unauthenticated.
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
            cancellation=self.cancellation,
            progress=self.work.progress,
        )
