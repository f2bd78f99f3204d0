"""Several lakes of one server: the tables `[lakes.NAME]` of a configuration file.

A table has the settings of a lake. What it does not say is as at the top of the file, but for where
the lake is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from sparkport.config.settings import PLACE, SETTINGS, Config, combined
from sparkport.config.suggest import suggestion
from sparkport.config.values import converted
from sparkport.errors import BadRequest
from sparkport.settings import Setting

__all__ = ["LAKES", "lakes_of", "option_texts", "read_lakes", "refuse_secrets"]

LAKES = "lakes"
_OF_A_LAKE = {
    each.name: each
    for each in SETTINGS
    if each.part == "lake" or (each.name in PLACE and each.name not in ("name", "demo"))
}
_OPTIONS = "catalog_options"
_SECRETS = ("secret", "password", "token", "credential", "account.key", "sas", "connection-string")
_NO_SECRETS = ("expires-at", "server-uri", "token-refresh", "token-exchange", "provider")
_NAME = re.compile(r"[^\s/]+")


def read_lakes(
    given: Any, file: Path, place: Callable[[str], str]
) -> Mapping[str, Mapping[Setting, Any]]:
    """Read and check the tables. `place` tells the line of a key. Raises: BadRequest."""
    if not isinstance(given, dict) or not all(isinstance(each, dict) for each in given.values()):
        raise BadRequest(f"{place(LAKES)}: lakes are tables, [lakes.NAME] for each")
    found = {}
    for name, table in given.items():
        where = f"{file}, lakes.{name}"
        if not _NAME.fullmatch(name):
            raise BadRequest(f"{where}: a lake's name has no blanks and no slashes")
        for key in table:
            if key not in _OF_A_LAKE:
                remedy = suggestion(key, tuple(_OF_A_LAKE), "`sparkport config` lists them")
                raise BadRequest(f"{where}: a lake has no setting {key!r}; {remedy}")
        found[name] = {
            _OF_A_LAKE[key]: converted(_OF_A_LAKE[key], value, where)
            for key, value in table.items()
        }
        refuse_secrets(found[name], where)
    return found


def option_texts(given: Mapping[str, Any], source: str) -> dict[str, str]:
    """Options as a file has them: `s3.endpoint = "…"` is a table in TOML. Raises: BadRequest."""
    found: dict[str, str] = converted(_OF_A_LAKE[_OPTIONS], given, source)
    return found


def refuse_secrets(values: Mapping[Setting, Any], source: str) -> None:
    """Raises: BadRequest for an option that is a secret, given where others may see it."""
    for setting, value in values.items():
        for name in value if setting.name == _OPTIONS else ():
            if _is_secret(name):
                raise BadRequest(
                    f"{source}: {name} is a secret, which others could see there: put it into a "
                    "secrets_file, or leave it to the usual places"
                )


def _is_secret(option: str) -> bool:
    name = option.lower()
    return any(each in name for each in _SECRETS) and not any(each in name for each in _NO_SECRETS)


def lakes_of(
    tables: Mapping[str, Mapping[Setting, Any]], shared: Mapping[Setting, Any]
) -> tuple[Config, ...]:
    """A Config for each lake. `shared` are the settings at the top of the file."""
    by_name = {each.name: each for each in SETTINGS}
    common = {each: value for each, value in shared.items() if each.name not in PLACE}
    return tuple(combined({**common, **own, by_name["name"]: name}) for name, own in tables.items())
