"""`sparkport completion`, and the answers to a shell that has loaded its script.

The script runs `sparkport` again with `_ARGCOMPLETE` in its environment; argcomplete then answers
from the parser.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import Any

from sparkport.cli.flags import Commands, command
from sparkport.config import SETTINGS

__all__ = ["add_command", "complete"]

_EXAMPLES = """\
to have it in every shell from now on:
  bash:  sparkport completion bash > ~/.local/share/bash-completion/completions/sparkport
  zsh:   sparkport completion zsh > ~/.zfunc/_sparkport
         with fpath+=~/.zfunc before compinit in ~/.zshrc
  fish:  sparkport completion fish > ~/.config/fish/completions/sparkport.fish
"""
_FILES = ("FILE", "DIR", "TARGET", None)
"""Placeholders of values that are files; the catalogs of `sparkport serve` have none."""


def add_command(commands: Commands) -> None:
    parser = command(
        commands,
        "completion",
        run,
        help="print a script that completes commands and flags in your shell",
        examples=_EXAMPLES,
    )
    parser.add_argument("shell", choices=("bash", "zsh", "fish"))


def run(options: argparse.Namespace) -> int:
    from argcomplete.shell_integration import shellcode

    print(shellcode(["sparkport"], use_defaults=False, shell=options.shell))
    return 0


def complete(parser: argparse.ArgumentParser) -> None:
    """Answer a shell that asks for completions, and end the process."""
    import argcomplete

    argcomplete.autocomplete(
        parser,
        always_complete_options="long",
        default_completer=_values,  # type: ignore[arg-type]  # any callable will do
    )


def _values(prefix: str, action: argparse.Action, **_known: Any) -> Iterable[str]:
    """The words that can follow a flag without `choices` of its own."""
    from argcomplete.completers import FilesCompleter

    choices = next((each.choices for each in SETTINGS if each.name == action.dest), ())
    if choices or action.metavar not in _FILES:
        return choices
    return FilesCompleter()(prefix)
