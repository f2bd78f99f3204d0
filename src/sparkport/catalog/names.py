"""How DuckDB compares names."""

from __future__ import annotations

__all__ = ["folded"]


def folded(name: str) -> bytes:
    """Equal for names that DuckDB takes for the same: only the case of ASCII letters makes no difference."""
    return name.encode("utf-8", "surrogatepass").lower()  # of bytes, `lower` changes ASCII letters only
