"""The identity that a descriptor or ticket was handed out to, as part of its signed content.

The client sends its token with only half of its calls, unless it has a secret for the address
(airport §2.3). With the other calls it sends back a descriptor or ticket. The identity inside says
who calls, until it expires, and as long as the token that was shown for it is valid.
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
    """Read the identity from `bearer_fields`. The signature has been verified before."""
    if fields is None:
        return None
    name, groups, attributes, expires, credential = fields
    return Identity(name, frozenset(groups), dict(attributes), expires, credential)


def bearer_text(identity: Identity) -> str:
    """Encode an identity in characters that may stand in a header (T3)."""
    return base64.urlsafe_b64encode(msgpack.packb(bearer_fields(identity))).decode().rstrip("=")


def bearer_of_text(text: str) -> Identity | None:
    """Read the identity from `bearer_text`. The signature has been verified before."""
    packed = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    return bearer_of_fields(msgpack.unpackb(packed, use_list=False))
