"""Signatures on what is handed out and comes back: descriptors, tickets, transaction ids."""

from __future__ import annotations

import hashlib
import hmac
import secrets

__all__ = ["Signer"]

SIGNATURE_LENGTH = 16
"""Half of SHA-256: forging one takes 2^128 attempts, and every attempt is a request."""


class Signer:
    """Signs bytes with one secret, for one purpose at a time: a ticket's signature is no
    descriptor's. Thread-safe.
    """

    __slots__ = ("_secret",)

    def __init__(self, secret: bytes | None = None) -> None:
        """Without a secret one is drawn, which dies with the process: clients attach again after a
        restart.
        """
        self._secret = secret if secret is not None else secrets.token_bytes(32)

    def signature(self, purpose: str, *parts: bytes) -> bytes:
        """The signature of the parts; how they are divided counts."""
        digest = hmac.new(self._secret, purpose.encode(), hashlib.sha256)
        for part in parts:
            digest.update(len(part).to_bytes(8, "little") + part)
        return digest.digest()[:SIGNATURE_LENGTH]

    def verify(self, signature: bytes, purpose: str, *parts: bytes) -> bool:
        """Whether this signer made the signature; takes the same time for every wrong one."""
        return hmac.compare_digest(signature, self.signature(purpose, *parts))
