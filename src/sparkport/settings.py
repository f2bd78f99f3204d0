"""How a setting is described: once, as a field of the dataclass that holds its value.

From the fields come the flag (`--max-calls`), the environment variable (SPARKPORT_MAX_CALLS), the
key of the TOML file (`max_calls`), the texts of `--help`, the check of a value and the tables of
the reference. Bytes are a matter of programs: `max_held_bytes` of a class is `max_held_mb` for the
operator, in megabytes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["SECTIONS", "Setting", "setting", "settings_of"]

LISTENING = "Where it listens"
LAKE = "The lake"
LAKE_SCANS = "How the lake is read and written"
LAKE_CARE = "How the lake takes care of its tables"
MEMORY = "The catalog in memory"
ENCRYPTION = "Encryption"
WHO = "Who asks"
WHAT = "What they may do"
LIMITS = "Limits"
WATCHING = "Watching it, stopping it"
OTHER = "Other"
SECTIONS = (
    LISTENING,
    LAKE,
    LAKE_SCANS,
    LAKE_CARE,
    MEMORY,
    ENCRYPTION,
    WHO,
    WHAT,
    LIMITS,
    WATCHING,
    OTHER,
)

_MEGABYTE = 1024 * 1024


@dataclass(frozen=True, slots=True, eq=False)
class Setting:
    """One setting: `max_calls` in a file, `--max-calls` on the command line, SPARKPORT_MAX_CALLS in
    the environment.
    """

    name: str
    part: str
    """Of the configuration: that which holds its value; empty for the whole."""
    field: str
    """The field that holds its value."""
    kind: type
    """bool, int, float, str, Path, tuple (of texts) or dict (of texts by text)."""
    default: Any
    """In the unit of the setting; 0 or empty where the field holds None."""
    unit: int
    """How many of the field's units make one of the setting."""
    section: str
    help: str
    value: str
    """What stands for its value in help texts."""
    example: str
    """A value for the example file, in TOML; empty for the default."""
    least: int
    choices: tuple[str, ...]
    optional: bool
    """Whether 0, or an empty text, is None in the field."""

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def variable(self) -> str:
        return "SPARKPORT_" + self.name.upper()


def setting(
    default: Any,
    section: str,
    help: str,
    value: str = "",
    *,
    kind: type | None = None,
    name: str = "",
    example: str = "",
    least: int = 1,
    choices: tuple[str, ...] = (),
    optional: bool = False,
) -> Any:
    """A field of a dataclass that an operator may set. `kind` is for fields that are None by
    default; `name` for settings that are not called as their fields are.
    """
    metadata = {
        "section": section,
        "help": help,
        "value": value,
        "kind": kind or type(default),
        "name": name,
        "example": example,
        "least": least,
        "choices": choices,
        "optional": optional or default is None,
    }
    if isinstance(default, dict):
        return dataclasses.field(default_factory=default.copy, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def settings_of(described: type, part: str = "", prefix: str = "") -> Iterator[Setting]:
    """The settings that the fields of a dataclass describe, which is a part of the configuration;
    their names begin with a prefix.
    """
    for field in dataclasses.fields(described):
        if field.metadata:
            metadata = dict(field.metadata)
            name = metadata.pop("name") or prefix + field.name.replace("_bytes", "_mb")
            unit = _MEGABYTE if "_bytes" in field.name else 1
            default = _default(field, unit)
            yield Setting(
                name=name, part=part, field=field.name, unit=unit, default=default, **metadata
            )


def _default(field: dataclasses.Field[Any], unit: int) -> Any:
    if field.default is dataclasses.MISSING:
        return {}
    if field.default is None:
        return "" if field.metadata["kind"] in (str, Path) else 0
    return field.default // unit if unit > 1 else field.default
