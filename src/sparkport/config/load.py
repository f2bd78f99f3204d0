"""Settings from flags, the environment and a TOML file: one frozen Config.

Flags win over the environment, the environment over the file, the file over the defaults. `listen`
is short for a location, encrypted if there is a certificate. An unknown name is refused: a
`token_file` that is silently ignored would serve everybody.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from sparkport.config.lakes import LAKES, lakes_of, read_lakes, refuse_secrets
from sparkport.config.rules import RULES, read_rules
from sparkport.config.settings import SETTINGS, Config, combined
from sparkport.config.suggest import nearest, suggestion
from sparkport.config.values import converted
from sparkport.errors import BadRequest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = ["LISTEN", "LISTEN_HELP", "load_config"]

LISTEN = "listen"
LISTEN_HELP = (
    "short for --location grpc://HOST:PORT, or grpc+tls://HOST:PORT where there is a certificate"
)

_PREFIX = "SPARKPORT_"
_BY_NAME = {each.name: each for each in SETTINGS}
_NAMES = (LISTEN, *_BY_NAME)
_OTHER_VARIABLES = {"SPARKPORT_CONFIG", "SPARKPORT_JARS", "SPARKPORT_TOKEN"}
_TYPING_ERROR = 0.8
"""How similar to a setting's name an unknown variable is that was probably meant to be one.

Others may have their own SPARKPORT_ variables: Kubernetes makes SPARKPORT_SERVICE_HOST and more for
a service called sparkport.
"""


def load_config(
    flags: Mapping[str, Any], environment: Mapping[str, str], file: Path | None = None
) -> Config:
    """Combine the sources; a flag that is None was not given.

    Raises: BadRequest, which says what to correct.
    """
    values: dict[str, Any] = {}
    if file is not None:
        values |= _of_file(file)
    variables = {name: _PREFIX + name.upper() for name in _NAMES}
    _refuse_misspelt(environment, variables.values())
    values |= _converted(
        {name: (environment[v], v) for name, v in variables.items() if v in environment}
    )
    given = {
        name: (flags[name], "--" + name.replace("_", "-"))
        for name in _NAMES
        if flags.get(name) is not None
    }
    values |= _converted(given)
    scheme = "grpc+tls" if values.get("tls_certificate") else "grpc"
    address = values.pop(LISTEN, None)
    if address is not None:
        values["location"] = f"{scheme}://{address}"
    elif "location" not in values:
        values["location"] = _BY_NAME["location"].default.replace("grpc://", f"{scheme}://")
    rules = {name: values.pop(name) for name in RULES if name in values}
    lakes = values.pop(LAKES, {})
    chosen = {_BY_NAME[name]: value for name, value in values.items()}
    config = combined(chosen, **rules, lakes=lakes_of(lakes, chosen))
    _refuse_without_lake(config, values)
    return config


def _refuse_without_lake(config: Config, given: Mapping[str, Any]) -> None:
    """Settings of a lake at the top are not those of the lakes in tables, as one might think."""
    left = [name for name in ("secrets_file", "catalog_options") if given.get(name)]
    if left and not config.has_lake:
        table = f"[lakes.{config.lakes[0].name}]" if config.lakes else ""
        remedy = f"put it into {table}" if table else "set warehouse or catalog_uri"
        raise BadRequest(f"{left[0]} is given, and no lake that it is for: {remedy}")


def _of_file(file: Path) -> dict[str, Any]:
    try:
        text = file.read_text(encoding="utf-8")
        given: dict[str, Any] = tomllib.loads(text)
    except OSError as error:
        raise BadRequest(f"the configuration {file} cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadRequest(f"the configuration {file} is not valid TOML: {error}") from error
    known = (*_NAMES, *RULES, LAKES)
    for name in given:
        if name not in known:
            remedy = suggestion(name, known, "`sparkport config` lists them")
            raise BadRequest(f"{_place(file, text, name)}: there is no setting {name!r}; {remedy}")
    rules = read_rules(given, file, text)
    return {
        **_converted(
            {name: (given[name], _place(file, text, name)) for name in given if name in _NAMES}
        ),
        **rules,
        LAKES: read_lakes(given.get(LAKES, {}), file, partial(_place, file, text)),
    }


def _place(file: Path, text: str, name: str) -> str:
    """The file and, if it can be found, the line of a key."""
    written = re.compile(rf"""\s*(\[\s*)*["']?{re.escape(name)}["']?\s*[=.\]]""")
    lines = [number for number, line in enumerate(text.splitlines(), 1) if written.match(line)]
    return f"{file}, line {lines[0]}" if lines else str(file)


def _converted(given: Mapping[str, tuple[Any, str]]) -> dict[str, Any]:
    """The settings of one source, given with the source's name for each."""
    values = {
        name: converted(_BY_NAME[name], value, source)
        for name, (value, source) in given.items()
        if name != LISTEN
    }
    for name, (_, source) in given.items():
        if name in values and not source.startswith(_PREFIX):
            refuse_secrets({_BY_NAME[name]: values[name]}, source)
    if LISTEN in given:
        address, source = given[LISTEN]
        if "location" in given or not isinstance(address, str):
            raise BadRequest(
                f"{source}: {LISTEN} must be text of the form HOST:PORT, and takes the place of "
                f"location"
            )
        values[LISTEN] = address
    elif "location" in given:
        values[LISTEN] = None  # overrides a `listen` of a weaker source
    return values


def _refuse_misspelt(environment: Mapping[str, str], variables: Any) -> None:
    known = [each.lower() for each in variables]
    for variable in environment:
        if (
            variable.startswith(_PREFIX)
            and variable.lower() not in known
            and variable not in _OTHER_VARIABLES
        ):
            meant = nearest(
                variable.removeprefix(_PREFIX),
                [each.removeprefix(_PREFIX.lower()) for each in known],
                _TYPING_ERROR,
            )
            if meant is not None:
                raise BadRequest(
                    f"{variable}: there is no such setting; did you mean {_PREFIX}{meant.upper()}?"
                )
