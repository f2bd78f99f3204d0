"""Who asks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["Identity"]


@dataclass(frozen=True, slots=True)
class Identity:
    """A caller who has shown who it is, and what is known about it."""

    name: str
    groups: frozenset[str] = frozenset()
    attributes: Mapping[str, str | tuple[str, ...]] = field(default_factory=dict)
    """What row filters and masks may ask for, such as a region; one text or several."""
    expires: float | None = None
    """When what it has shown stops being good, in seconds since 1970; None for never."""
    credential: str = ""
    """Which token it has shown, where that can be revoked: a name for it, which is no secret."""
