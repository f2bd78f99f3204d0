"""What is wrong with a store, in one sentence for the person who set it up."""

from __future__ import annotations

__all__ = ["storage_trouble"]


def storage_trouble(error: OSError, place: str) -> str:
    """Say what is wrong, and what to set. Never names a secret."""
    return f"{place} cannot be used ({type(error).__name__}): check the store's settings"
