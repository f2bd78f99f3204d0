"""Whom a descriptor or ticket was handed out to: part of it, under its signature.

The client sends its token with half of its calls only, unless there is a secret for the address
(airport §2.3). What it has been handed out comes back with the others, and says who it is: until it
expires, and as long as the token that was shown for it is good.
"""

from __future__ import annotations

import base64
from typing import Any

import msgpack

from sparkport.catalog import Identity

__all__ = ["bearer_fields", "bearer_of_fields", "bearer_of_text", "bearer_text"]


def bearer_fields(identity: Identity | None) -> list[Any] | None:
    """An identity as values that MessagePack knows."""
    if identity is None:
        return None
    attributes = sorted(identity.attributes.items())
    return [
        identity.name,
        sorted(identity.groups),
        attributes,
        identity.expires,
        identity.credential,
    ]


def bearer_of_fields(fields: tuple[Any, ...] | None) -> Identity | None:
    """The identity again, from values whose signature has been verified."""
    if fields is None:
        return None
    name, groups, attributes, expires, credential = fields
    return Identity(name, frozenset(groups), dict(attributes), expires, credential)


def bearer_text(identity: Identity) -> str:
    """The same in characters that may stand in a header (T3)."""
    return base64.urlsafe_b64encode(msgpack.packb(bearer_fields(identity))).decode().rstrip("=")


def bearer_of_text(text: str) -> Identity | None:
    """The identity again, from a text whose signature has been verified."""
    packed = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    return bearer_of_fields(msgpack.unpackb(packed, use_list=False))
