"""A statement in Spark SQL that a client sends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column

__all__ = ["Statement"]


@dataclass(frozen=True, slots=True, eq=False)
class Statement:
    """A statement as a caller sends it, whose unqualified names are in `namespace`."""

    title: str
    """How messages name it."""
    namespace: tuple[str, ...]
    text: str
    arguments: Mapping[str, Column] | list[Column]
