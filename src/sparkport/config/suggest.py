"""Suggesting names that were probably meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = ["nearest", "suggestion"]


def nearest(word: str, known: Iterable[str], likeness: float = 0.6) -> str | None:
    """The known word most like this word; None when no word is similar."""
    found = difflib.get_close_matches(word.lower(), list(known), 1, likeness)
    return found[0] if found else None


def suggestion(word: str, known: Iterable[str], otherwise: str) -> str:
    """What to tell a user who has written an unknown word."""
    found = nearest(word, known)
    return f"did you mean {found}?" if found else otherwise
