"""Several ways to say who one is, in one authenticator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from sparkport.auth.tokens import Authenticator
from sparkport.catalog import Identity
from sparkport.errors import Unauthenticated

__all__ = ["AuthenticatorChain"]


class AuthenticatorChain:
    """Asks one after the other; the first that knows a token says whose it is. As thread-safe as
    they are.
    """

    def __init__(self, authenticators: Mapping[str, Authenticator]) -> None:
        """Their names tell which of them a caller was admitted by; where a name is gone, so are its
        callers.
        """
        self._authenticators = dict(authenticators)

    def __call__(self, token: str) -> Identity | None:
        unavailable: Unauthenticated | None = None
        for name, authenticate in self._authenticators.items():
            try:
                found = authenticate(token)
            except Unauthenticated as error:  # another one may know it
                unavailable = error
                continue
            if found is not None:
                identity = Identity(found) if isinstance(found, str) else found
                return replace(identity, credential=f"{name}/{identity.credential}")
        if unavailable is not None:
            raise unavailable
        return None

    def recognises(self, identity: Identity) -> bool:
        """Whether the one who has admitted this caller would do so again, as far as it can tell."""
        name, _, credential = identity.credential.partition("/")
        authenticate = self._authenticators.get(name)
        if authenticate is None:
            return False
        recognises = getattr(authenticate, "recognises", None)
        return recognises is None or bool(recognises(replace(identity, credential=credential)))
