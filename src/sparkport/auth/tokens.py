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
"""Tells who a bearer token belongs to, at least by name; None when it is nobody's.

Called for every request, from many threads at once. One that can revoke tokens also has
`recognises(identity) -> bool`, which is asked where the caller shows no token but what this server
has handed out to it before."""


class TokenAuthenticator:
    """A fixed set of tokens, each with the name of its owner. Only their hashes are kept in
    memory.
    """

    def __init__(self, tokens: Mapping[str, str]) -> None:
        """`tokens` maps each token to its owner's name. Raises: BadRequest for an empty token or
        name.
        """
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
