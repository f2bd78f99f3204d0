"""Flags of commands; the table of settings makes those that are settings."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from sparkport.config import LISTEN, LISTEN_HELP, SETTINGS, Config, load_config
from sparkport.settings import SECTIONS, Setting

__all__ = ["Commands", "add_config", "add_settings", "chosen", "command", "config_file"]

if TYPE_CHECKING:
    Commands: TypeAlias = argparse._SubParsersAction[argparse.ArgumentParser]
else:
    Commands = Any

_CONFIG_VARIABLE = "SPARKPORT_CONFIG"


def command(
    commands: Commands,
    name: str,
    run: Callable[[argparse.Namespace], int],
    *,
    help: str,
    description: str = "",
    examples: str = "",
    usage: str | None = None,
) -> argparse.ArgumentParser:
    """Add a command that runs a function.

    `help` is its line among others; `usage` is for commands with very many flags.
    """
    made = commands.add_parser(
        name,
        help=help,
        description=description or f"{help[0].upper()}{help[1:]}.",
        epilog=examples,
        usage=usage,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    made.set_defaults(run=run, parser=made, flags=_Flags(made))
    return made


class _Flags(Collection[str]):
    """All flags of a command, listed when asked for: more are added after it was made."""

    def __init__(self, of: argparse.ArgumentParser) -> None:
        self._of = of

    def __iter__(self) -> Iterator[str]:
        shown = (action for action in self._of._actions if action.help != argparse.SUPPRESS)
        return (flag for action in shown for flag in action.option_strings)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __contains__(self, flag: object) -> bool:
        return flag in list(self)


def add_config(parser: argparse.ArgumentParser) -> None:
    """Add `--config`."""
    parser.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help=f"TOML file with settings, also as {_CONFIG_VARIABLE}; `sparkport config` prints one "
        f"to begin with",
    )


def add_settings(parser: argparse.ArgumentParser, names: Collection[str] | None = None) -> None:
    """Add a flag for each setting, or for those of some names."""
    for section in SECTIONS:
        settings = [
            each
            for each in SETTINGS
            if each.section == section and (names is None or each.name in names)
        ]
        if settings:
            group = parser.add_argument_group(section)
            for setting in settings:
                _add_setting(group, setting)
                if setting.name == "location":
                    group.add_argument(f"--{LISTEN}", metavar="HOST:PORT", help=LISTEN_HELP)


def chosen(options: argparse.Namespace) -> Config:
    """The settings from flags, the environment and the file. Raises: BadRequest."""
    flags: Mapping[str, Any] = vars(options)
    return load_config(flags, os.environ, config_file(options))


def config_file(options: argparse.Namespace) -> Path | None:
    """The file with settings, if there is one."""
    variable = os.environ.get(_CONFIG_VARIABLE)
    return options.config or (Path(variable) if variable else None)


def _add_setting(group: Any, setting: Setting) -> None:
    """Add a flag. A flag that is not given leaves the choice to the environment and the file."""
    meaning = (setting.help + _default(setting)).replace("%", "%%")
    if setting.kind is bool:
        group.add_argument(
            setting.flag, dest=setting.name, action="store_const", const=True, help=meaning
        )
        group.add_argument(
            _off(setting),
            dest=setting.name,
            action="store_const",
            const=False,
            help=argparse.SUPPRESS,
        )
    else:
        several = setting.kind in (dict, tuple)
        action = "append" if several else "store"
        value = setting.value or "TEXT"
        group.add_argument(
            setting.flag, dest=setting.name, action=action, metavar=value, help=meaning
        )


def _off(setting: Setting) -> str:
    return setting.flag.replace("--", "--no-", 1)


def _default(setting: Setting) -> str:
    if setting.choices:
        return f": {', '.join(setting.choices)} (default {setting.default})"
    if setting.default is True:
        return f" (the default; {_off(setting)} turns it off)"
    if setting.default:
        shown = f"{setting.default:g}" if isinstance(setting.default, float) else setting.default
        return f" (default {shown})"
    return ""
