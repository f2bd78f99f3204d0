"""Conditions on single columns, checked against the bounds of files and row groups."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from sparkport.spark.iceberg.bounds import Bounds

__all__ = ["NOTHING", "All", "AnyOf", "Condition", "Nullness", "OneOf", "Range", "all_of", "any_of"]

BoundsOf: TypeAlias = Callable[[int], Bounds]
"""The bounds of a column, by its field id."""


@dataclass(frozen=True, slots=True)
class Range:
    """The value is between `lower` and `upper`; None is no limit. NULL is never in a range."""

    field_id: int
    lower: Any
    upper: Any
    lower_open: bool = False
    upper_open: bool = False

    def may_match(self, bounds_of: BoundsOf) -> bool:
        bounds = bounds_of(self.field_id)
        if not bounds.has_value:
            return False
        return not (
            (self.lower is not None and bounds.upper is not None and self._is_above(bounds.upper))
            or (
                self.upper is not None and bounds.lower is not None and self._is_below(bounds.lower)
            )
        )

    def _is_above(self, value: Any) -> bool:
        return bool(value < self.lower or (self.lower_open and value == self.lower))

    def _is_below(self, value: Any) -> bool:
        return bool(value > self.upper or (self.upper_open and value == self.upper))


@dataclass(frozen=True, slots=True)
class OneOf:
    """The value is one of `values`, which are sorted."""

    field_id: int
    values: Sequence[Any]

    def may_match(self, bounds_of: BoundsOf) -> bool:
        bounds = bounds_of(self.field_id)
        if not bounds.has_value:
            return False
        first = 0 if bounds.lower is None else bisect.bisect_left(self.values, bounds.lower)
        return first < len(self.values) and (
            bounds.upper is None or self.values[first] <= bounds.upper
        )


@dataclass(frozen=True, slots=True)
class Nullness:
    """The value is NULL, or it is not."""

    field_id: int
    is_null: bool

    def may_match(self, bounds_of: BoundsOf) -> bool:
        bounds = bounds_of(self.field_id)
        return bounds.has_null if self.is_null else bounds.has_value


@dataclass(frozen=True, slots=True)
class All:
    parts: tuple[Condition, ...]

    def may_match(self, bounds_of: BoundsOf) -> bool:
        return all(part.may_match(bounds_of) for part in self.parts)


@dataclass(frozen=True, slots=True)
class AnyOf:
    """At least one of the parts holds. Without parts, nothing matches."""

    parts: tuple[Condition, ...]

    def may_match(self, bounds_of: BoundsOf) -> bool:
        return any(part.may_match(bounds_of) for part in self.parts)


Condition: TypeAlias = "Range | OneOf | Nullness | All | AnyOf"

NOTHING = AnyOf(())


def all_of(parts: list[Condition | None]) -> Condition | None:
    """AND. Parts that were not understood (None) are left out."""
    known = tuple(part for part in parts if part is not None)
    return All(known) if len(known) > 1 else known[0] if known else None


def any_of(parts: list[Condition | None]) -> Condition | None:
    """OR. A part that was not understood (None) could match anything, so the whole is None."""
    known = tuple(part for part in parts if part is not None)
    if len(known) < len(parts):
        return None
    return known[0] if len(known) == 1 else AnyOf(known)
