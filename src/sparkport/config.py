"""Settings of a server from flags, the environment and a TOML file: one frozen Config.

Flags win over the environment, that over the file, that over the defaults. Every setting has one name: `--max-calls` on
the command line is `SPARKPORT_MAX_CALLS` in the environment and `max_calls` in the file. `listen` is short for a location
without encryption.
"""

from __future__ import annotations

import dataclasses
import shlex
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sparkport.errors import BadRequest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = ["Config", "load_config"]

_PREFIX = "SPARKPORT_"
_SHORT = "listen"


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
    warehouse: str = ""
    """The folder of an embedded lake; empty serves none."""
    name: str = "lake"
    """What the lake is attached as."""
    master: str = ""
    """Where Spark runs; empty is in this process."""
    spark_conf: Mapping[str, str] = field(default_factory=dict)
    """Settings of Spark. In a file they are a table, in the environment and on the command line KEY=VALUE."""
    spark_ui: bool = False
    direct: bool = False
    """Whether DuckDB may be told to read the lake's files by itself."""
    demo: bool = False
    """Whether there is something to try things with: a schema in the lake, without a lake a catalog in memory."""


def load_config(flags: Mapping[str, Any], environment: Mapping[str, str], file: Path | None = None) -> Config:
    """Combine the sources; a flag that is None was not given. Raises: BadRequest, which says what to correct."""
    names = [each.name for each in dataclasses.fields(Config)]
    settings = [*names, _SHORT]
    values: dict[str, Any] = {}
    if file is not None:
        given = _read(file)
        for name in given:
            if name not in settings:
                raise BadRequest(f"{file}: there is no setting {name!r}; the settings are {', '.join(settings)}")
        values |= _converted({name: (value, str(file)) for name, value in given.items()})
    variables = {name: _PREFIX + name.upper() for name in settings}
    values |= _converted({name: (environment[v], v) for name, v in variables.items() if v in environment})
    values |= _converted(
        {name: (flags[name], "--" + name.replace("_", "-")) for name in settings if flags.get(name) is not None}
    )
    return Config(**values)


def _converted(given: Mapping[str, tuple[Any, str]]) -> dict[str, Any]:
    """Settings of one source, each with what the source calls it."""
    values = {name: _convert(name, value, source) for name, (value, source) in given.items() if name != _SHORT}
    if _SHORT in given:
        address, source = given[_SHORT]
        if "location" in given or not isinstance(address, str):
            raise BadRequest(f"{source}: {_SHORT} must be text of the form HOST:PORT, and takes the place of location")
        values["location"] = f"grpc://{address}"
    return values


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
    if isinstance(default, dict):
        return _pairs(name, value, source)
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


def _pairs(name: str, value: Any, source: str) -> dict[str, str]:
    if isinstance(value, dict):
        return dict(_flattened(name, value, source))
    try:
        words = shlex.split(value) if isinstance(value, str) else list(value)
        pairs = dict(word.split("=", 1) for word in words)
    except (AttributeError, TypeError, ValueError):
        raise BadRequest(f"{source}: {name} must be of the form KEY=VALUE, not {value!r}") from None
    return {key.strip(): text for key, text in pairs.items()}


def _flattened(name: str, table: Mapping[str, Any], source: str, prefix: str = "") -> Iterator[tuple[str, str]]:
    """TOML takes the dots in `spark.executor.memory = "2g"` for nested tables."""
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _flattened(name, value, source, f"{prefix}{key}.")
        elif isinstance(value, bool):
            yield prefix + key, str(value).lower()
        elif isinstance(value, str | int | float):
            yield prefix + key, str(value)
        else:
            raise BadRequest(f"{source}: {prefix}{key} in {name} must be text, not {value!r}")
