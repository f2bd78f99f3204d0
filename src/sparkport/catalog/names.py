"""How DuckDB compares names, and a table's own spelling of them."""

from __future__ import annotations

from collections.abc import Collection

__all__ = ["folded", "own_spelling"]


def folded(name: str) -> bytes:
    """Equal for names that DuckDB takes for the same: only the case of ASCII letters makes no difference."""
    return name.encode("utf-8", "surrogatepass").lower()  # of bytes, `lower` changes ASCII letters only


def own_spelling(name: str, names: Collection[str]) -> str:
    """The one of `names` that is meant; the name as it is where none is, or where two are that differ only in case."""
    if name in names:
        return name
    same = [each for each in names if folded(each) == folded(name)]
    return same[0] if len(same) == 1 else name
