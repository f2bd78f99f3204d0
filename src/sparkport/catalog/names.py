"""How DuckDB compares names, how a table spells them, and how schemas are published."""

from __future__ import annotations

from collections.abc import Callable, Iterable

__all__ = ["MAIN", "MAIN_PUBLISHED", "folded", "own_spellings", "published_name"]

MAIN = "main"
MAIN_PUBLISHED = "main_"
"""The published name of a schema `main`: DuckDB lists `main`, but cannot look it up (airport §3.9).
"""


def published_name(name: str) -> str:
    """The clients' name of the schema of that name."""
    return MAIN_PUBLISHED if name.lower() == MAIN else name


def folded(name: str) -> bytes:
    """Fold a name so that names which DuckDB takes for equal are equal: ASCII case is ignored."""
    # `bytes.lower` changes ASCII letters only.
    return name.encode("utf-8", "surrogatepass").lower()


def own_spellings(names: Iterable[str]) -> Callable[[str], str]:
    """Return a function from a name as typed to its spelling in `names`.

    A name stays as it is where `names` lacks it, or has two that differ only in case.
    """
    exact = frozenset(names)
    same: dict[bytes, str | None] = {}
    for name in exact:
        same[folded(name)] = None if folded(name) in same else name
    return lambda name: name if name in exact else same.get(folded(name)) or name
