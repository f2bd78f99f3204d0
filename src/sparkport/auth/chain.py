"""An authenticator that asks several others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from sparkport.auth.tokens import Authenticator
from sparkport.catalog import Identity
from sparkport.errors import Unauthenticated

__all__ = ["AuthenticatorChain"]


class AuthenticatorChain:
    """Asks authenticators in turn; the first that knows a token names its owner.

    Thread-safe if all of them are.
    """

    def __init__(self, authenticators: Mapping[str, Authenticator]) -> None:
        """`authenticators` maps names to authenticators.

        A caller's identity records the name of its authenticator. Without that name in the chain,
        the caller is no longer recognised.
        """
        self._authenticators = dict(authenticators)

    def __call__(self, token: str) -> Identity | None:
        unavailable: Unauthenticated | None = None
        for name, authenticate in self._authenticators.items():
            try:
                found = authenticate(token)
            except Unauthenticated as error:  # another authenticator may know it
                unavailable = error
                continue
            if found is not None:
                identity = Identity(found) if isinstance(found, str) else found
                return replace(identity, credential=f"{name}/{identity.credential}")
        if unavailable is not None:
            raise unavailable
        return None

    def recognises(self, identity: Identity) -> bool:
        """Whether the authenticator that admitted this caller would admit it again."""
        name, _, credential = identity.credential.partition("/")
        authenticate = self._authenticators.get(name)
        if authenticate is None:
            return False
        recognises = getattr(authenticate, "recognises", None)
        return recognises is None or bool(recognises(replace(identity, credential=credential)))
