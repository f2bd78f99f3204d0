"""Bearer tokens."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Mapping
from typing import TypeAlias

from sparkport.catalog import Identity
from sparkport.errors import BadRequest

__all__ = ["Authenticator", "TokenAuthenticator"]

Authenticator: TypeAlias = Callable[[str], Identity | str | None]
"""Returns the owner of a bearer token, or at least the owner's name; None for an unknown token.

Called for every request, from many threads at once. An authenticator that can revoke tokens also
has `recognises(identity) -> bool`. It is asked for callers that show no token, only a descriptor or
ticket that this server handed out to them.
"""


class TokenAuthenticator:
    """A fixed set of tokens, each with the name of its owner. Keeps only their hashes in memory."""

    def __init__(self, tokens: Mapping[str, str]) -> None:
        """`tokens` maps tokens to owners' names. Raises: BadRequest for an empty token or name."""
        if not all(token and owner for token, owner in tokens.items()):
            raise BadRequest("a token and the name of its owner must not be empty")
        self._owners = [(_hash(token), owner) for token, owner in tokens.items()]

    def __call__(self, token: str) -> str | None:
        presented = _hash(token)
        found: str | None = None
        for known, owner in self._owners:  # all of them, so that the time taken tells nothing
            if hmac.compare_digest(presented, known):
                found = owner
        return found


def _hash(token: str) -> bytes:
    return hashlib.sha256(token.encode(errors="surrogateescape")).digest()
