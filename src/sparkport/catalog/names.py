"""How DuckDB compares names, and a table's own spelling of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable

__all__ = ["folded", "own_spellings"]


def folded(name: str) -> bytes:
    """Equal for names that DuckDB takes for the same: only the case of ASCII letters makes no
    difference.
    """
    return name.encode(
        "utf-8", "surrogatepass"
    ).lower()  # of bytes, `lower` changes ASCII letters only


def own_spellings(names: Iterable[str]) -> Callable[[str], str]:
    """From a name as somebody has typed it to the one of `names` that is meant; the same where none
    is, or where two are that differ only in case.
    """
    exact = frozenset(names)
    same: dict[bytes, str | None] = {}
    for name in exact:
        same[folded(name)] = None if folded(name) in same else name
    return lambda name: name if name in exact else same.get(folded(name)) or name
