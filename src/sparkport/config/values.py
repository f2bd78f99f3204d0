"""Values of settings, from any source: checked, and in their type."""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from sparkport.errors import BadRequest
from sparkport.settings import Setting

__all__ = ["converted"]

_WORDS = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}


def converted(setting: Setting, value: Any, source: str) -> Any:
    """Convert a value to the type of the setting's field.

    Raises: BadRequest, which begins with the source.
    """
    found = _FORMS[setting.kind](setting, value, source)
    return None if setting.optional and not found else found


def _switch(setting: Setting, value: Any, source: str) -> bool:
    if isinstance(value, str) and value.lower() in _WORDS:
        return _WORDS[value.lower()]
    if isinstance(value, bool):
        return value
    raise BadRequest(f"{source}: {setting.name} must be true or false, not {value!r}")


def _number(setting: Setting, value: Any, source: str) -> int | float:
    whole = setting.kind is int
    kind = "whole number" if whole else "number"
    try:
        number = (int(value) if whole else float(value)) if isinstance(value, str) else value
    except ValueError:
        number = None
    fits = isinstance(number, int) or (
        isinstance(number, float) and not whole and math.isfinite(number)
    )
    if isinstance(number, bool) or number is None or not fits:
        raise BadRequest(f"{source}: {setting.name} must be a {kind}, not {value!r}")
    if number < setting.least:
        raise BadRequest(f"{source}: {setting.name} must be at least {setting.least}, not {number}")
    return int(number) * setting.unit if whole else float(number)


def _text(setting: Setting, value: Any, source: str) -> str:
    if not isinstance(value, str):
        raise BadRequest(f"{source}: {setting.name} must be text, not {value!r}")
    if setting.choices and value.lower() not in setting.choices:
        *others, last = setting.choices
        raise BadRequest(
            f"{source}: {setting.name} must be {', '.join(others)} or {last}, not {value!r}"
        )
    return value.lower() if setting.choices else value


def _path(setting: Setting, value: Any, source: str) -> Path | None:
    text = _text(setting, value, source)
    return Path(text) if text else None


def _texts(setting: Setting, value: Any, source: str) -> tuple[str, ...]:
    """Split texts at commas. A list comes from a flag that was given several times."""
    several = [value] if isinstance(value, str) else value
    if not isinstance(several, list) or not all(isinstance(each, str) for each in several):
        raise BadRequest(f"{source}: {setting.name} must be a list of texts, not {value!r}")
    return tuple(part.strip() for each in several for part in each.split(",") if part.strip())


def _pairs(setting: Setting, value: Any, source: str) -> dict[str, str]:
    if isinstance(value, dict):
        return dict(_flattened(setting.name, value, source))
    try:
        words = shlex.split(value) if isinstance(value, str) else list(value)
        pairs = dict(word.split("=", 1) for word in words)
    except (AttributeError, TypeError, ValueError):
        raise BadRequest(
            f"{source}: {setting.name} must be of the form KEY=VALUE, not {value!r}"
        ) from None
    return {key.strip(): text for key, text in pairs.items()}


def _flattened(
    name: str, table: Mapping[str, Any], source: str, prefix: str = ""
) -> Iterator[tuple[str, str]]:
    """Flatten tables: TOML takes the dots in `spark.executor.memory = "2g"` for nested tables."""
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _flattened(name, value, source, f"{prefix}{key}.")
        elif isinstance(value, bool):
            yield prefix + key, str(value).lower()
        elif isinstance(value, str | int | float):
            yield prefix + key, str(value)
        else:
            raise BadRequest(f"{source}: {prefix}{key} in {name} must be text, not {value!r}")


_FORMS: Mapping[type, Callable[[Setting, Any, str], Any]] = {
    bool: _switch,
    int: _number,
    float: _number,
    str: _text,
    Path: _path,
    tuple: _texts,
    dict: _pairs,
}
