"""The identity of a caller."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["Identity"]


@dataclass(frozen=True, slots=True)
class Identity:
    """An authenticated caller, and what is known about it."""

    name: str
    groups: frozenset[str] = frozenset()
    attributes: Mapping[str, str | tuple[str, ...]] = field(default_factory=dict)
    """Values for row filters and masks, such as a region; a text or several."""
    expires: float | None = None
    """When the caller's credential expires, in seconds since 1970; None means never."""
    credential: str = ""
    """A name for the caller's token, if it can be revoked. Not a secret."""
