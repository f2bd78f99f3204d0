"""How a table is taken care of: what the lake says, and what the table says for itself."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from sparkport.errors import BadRequest
from sparkport.spark.lake.folders import FOLDER_PROPERTY
from sparkport.spark.lake.settings import LakeSettings

__all__ = ["CARE_PROPERTY", "CareSettings", "care_of", "checked", "own_settings"]

CARE_PROPERTY = "sparkport.care"
"""Table property: what `set_care` has set for the table, as a JSON object.

A table that has it is taken care of, also if another engine made it, unless it says otherwise.
"""
_MOST = 1_000_000_000


@dataclass(frozen=True, slots=True)
class CareSettings:
    """How one table is taken care of."""

    enabled: bool
    keep_days: float
    """For how long versions are kept."""
    keep_versions: int
    """At least so many versions are kept, however old."""
    most_versions: int
    """At most so many versions are kept, however young."""
    small_files: int
    """How many small files make it worth to join them."""
    file_bytes: int
    """About the size up to which files are joined."""
    file_seconds: float
    """How long files of rows stay after the last version that had them is forgotten."""
    sort: str = ""
    """The columns by which rows are sorted when files are joined, such as `day, customer DESC`."""


def care_of(settings: LakeSettings, properties: Mapping[str, str]) -> CareSettings:
    """How a table with these properties is taken care of.

    What cannot be read in the table's own settings is left out: another engine may have written it.
    """
    own = own_settings(properties)
    is_own = FOLDER_PROPERTY in properties or CARE_PROPERTY in properties
    of_lake = CareSettings(
        enabled=settings.care and is_own,
        keep_days=settings.care_keep_days,
        keep_versions=settings.care_keep_versions,
        most_versions=max(settings.care_most_versions, settings.care_keep_versions),
        small_files=settings.care_small_files,
        file_bytes=settings.care_file_bytes,
        file_seconds=settings.care_file_seconds,
    )
    if not settings.care:
        own.pop("enabled", None)  # the operator has switched it off
    found = replace(of_lake, **own)
    return replace(found, most_versions=max(found.most_versions, found.keep_versions))


def own_settings(properties: Mapping[str, str]) -> dict[str, Any]:
    """What the table says for itself, as far as it can be read."""
    try:
        given = json.loads(properties.get(CARE_PROPERTY, "{}"))
    except ValueError:
        return {}
    if not isinstance(given, dict):
        return {}
    found = {}
    for name, value in given.items():
        try:
            found.update(checked({name: value}))
        except BadRequest:
            continue
    return found


def checked(given: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of a table that have been checked, each by itself. Raises: BadRequest."""
    found = {}
    for name, value in given.items():
        if name not in _CHECKS:
            known = ", ".join(_CHECKS)
            raise BadRequest(f"set_care: there is no setting {name}: there are {known}")
        is_right, expected = _CHECKS[name]
        if not is_right(value):
            raise BadRequest(f"set_care: {name} must be {expected}")
        found[name] = value
    return found


def _number(least: float, *, is_whole: bool = True) -> Callable[[Any], bool]:
    def is_right(value: Any) -> bool:
        kinds = int if is_whole else (int, float)
        is_number = isinstance(value, kinds) and not isinstance(value, bool)
        return is_number and math.isfinite(value) and least <= value <= _MOST * _MOST

    return is_right


_CHECKS: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "enabled": (lambda value: isinstance(value, bool), "true or false"),
    "keep_days": (_number(0, is_whole=False), "a number of days, such as 7"),
    "keep_versions": (_number(1), "a number of versions, at least 1"),
    "most_versions": (_number(1), "a number of versions, at least 1"),
    "small_files": (_number(2), "a number of files, at least 2"),
    "file_bytes": (_number(1), "a number of bytes, such as 134217728"),
    "file_seconds": (_number(0, is_whole=False), "a number of seconds"),
    "sort": (
        lambda value: isinstance(value, str) and len(value) <= 1000,
        "names of columns, such as 'day, customer DESC'",
    ),
}
