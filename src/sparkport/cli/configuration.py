"""`sparkport config`."""

from __future__ import annotations

import argparse

from sparkport.cli.flags import Commands, command
from sparkport.config import example_toml, settings_markdown

__all__ = ["add_command"]


def add_command(commands: Commands) -> None:
    parser = command(
        commands,
        "config",
        run,
        help="print an example of a configuration file",
        description="Print a TOML file with every setting in it, explained and commented out, to "
        "begin with.",
        examples="example:\n"
        "  sparkport config > sparkport.toml && sparkport serve --config sparkport.toml\n",
    )
    parser.add_argument(
        "--markdown", action="store_true", help="print the reference of all settings instead"
    )


def run(options: argparse.Namespace) -> int:
    print(settings_markdown() if options.markdown else example_toml(), end="")
    return 0
