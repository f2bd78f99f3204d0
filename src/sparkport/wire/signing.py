"""Signatures on what clients send back to the server: descriptors, tickets, transaction ids."""

from __future__ import annotations

import hmac
import secrets

__all__ = ["Signer"]

SIGNATURE_LENGTH = 16
"""Half of SHA-256: a forgery takes 2^128 attempts, and every attempt is a request."""


class Signer:
    """Signs bytes with a secret, separately for each purpose. Thread-safe.

    The signature of a ticket is not valid for a descriptor.
    """

    __slots__ = ("_keyed",)

    def __init__(self, secret: bytes | None = None) -> None:
        """Without a secret, draw a random one: clients must attach again after a restart."""
        own = secret if secret is not None else secrets.token_bytes(32)
        self._keyed = hmac.new(own, digestmod="sha256")
        """Is copied for each signature, which takes half as long as to begin anew."""

    def signature(self, purpose: str, *parts: bytes) -> bytes:
        """Sign the parts; dividing the same bytes differently gives another signature."""
        signed = [purpose.encode()]
        for part in parts:
            signed += (len(part).to_bytes(8, "little"), part)
        keyed = self._keyed.copy()
        keyed.update(b"".join(signed))
        return keyed.digest()[:SIGNATURE_LENGTH]

    def verify(self, signature: bytes, purpose: str, *parts: bytes) -> bool:
        """Whether this signer made the signature; takes equally long for every wrong signature."""
        return hmac.compare_digest(signature, self.signature(purpose, *parts))
