"""Settings of a server from flags, the environment and a TOML file: one frozen Config.

Flags win over the environment, that over the file, that over the defaults. Every setting has one name: `--max-calls` on
the command line is `SPARKPORT_MAX_CALLS` in the environment and `max_calls` in the file.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sparkport.errors import BadRequest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = ["Config", "load_config"]

_PREFIX = "SPARKPORT_"


@dataclass(frozen=True, slots=True)
class Config:
    """All settings of `sparkport serve`."""

    location: str = "grpc://127.0.0.1:50051"
    log_level: str = "info"
    max_calls: int = 2000
    """Calls under way at once; further ones are refused."""
    secret_file: str = ""
    """A file whose bytes sign table handles and tickets, so that clients survive a restart; empty draws a secret."""
    strict_create_schema: bool = False
    tls_certificate: str = ""
    tls_key: str = ""


def load_config(flags: Mapping[str, Any], environment: Mapping[str, str], file: Path | None = None) -> Config:
    """Combine the sources; a flag that is None was not given. Raises: BadRequest, which says what to correct."""
    values: dict[str, Any] = {}
    names = {field.name: field for field in dataclasses.fields(Config)}
    if file is not None:
        for name, value in _read(file).items():
            if name not in names:
                raise BadRequest(f"{file}: there is no setting {name!r}; the settings are {', '.join(names)}")
            values[name] = _convert(name, value, str(file))
    for name in names:
        text = environment.get(_PREFIX + name.upper())
        if text is not None:
            values[name] = _convert(name, text, _PREFIX + name.upper())
    for name, value in flags.items():
        if name in names and value is not None:
            values[name] = _convert(name, value, "--" + name.replace("_", "-"))
    return Config(**values)


def _read(file: Path) -> dict[str, Any]:
    try:
        values: dict[str, Any] = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadRequest(f"the configuration {file} cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadRequest(f"the configuration {file} is not valid TOML: {error}") from error
    return values


def _convert(name: str, value: Any, source: str) -> Any:
    default = getattr(Config(), name)
    words = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
    if isinstance(default, bool):
        if isinstance(value, str) and value.lower() in words:
            return words[value.lower()]
        if isinstance(value, bool):
            return value
        raise BadRequest(f"{source}: {name} must be true or false, not {value!r}")
    if isinstance(default, int):
        return _count(name, value, source)
    if not isinstance(value, str):
        raise BadRequest(f"{source}: {name} must be text, not {value!r}")
    return value


def _count(name: str, value: Any, source: str) -> int:
    try:
        count = int(value) if isinstance(value, str) else value
    except ValueError:
        count = None
    if isinstance(count, bool) or not isinstance(count, int):
        raise BadRequest(f"{source}: {name} must be a whole number, not {value!r}")
    if count < 1:
        raise BadRequest(f"{source}: {name} must be at least 1, not {count}")
    return count
