"""How DuckDB compares names, and how a table spells them."""

from __future__ import annotations

from collections.abc import Callable, Iterable

__all__ = ["folded", "own_spellings"]


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
