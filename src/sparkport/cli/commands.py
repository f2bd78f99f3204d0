"""All commands, and how their errors end: in a sentence, and exit code 2."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

import sparkport
from sparkport.cli.check import add_command as add_check
from sparkport.cli.completion import add_command as add_completion
from sparkport.cli.completion import complete
from sparkport.cli.configuration import add_command as add_configuration
from sparkport.cli.ls import add_command as add_listing
from sparkport.cli.pack import add_command as add_pack
from sparkport.cli.serve import add_command as add_serve
from sparkport.cli.tokens import add_command as add_tokens
from sparkport.config import suggestion
from sparkport.errors import SparkportError
from sparkport.lines import one_line

__all__ = ["main", "parser"]

_DESCRIPTION = "Serve a Spark lakehouse, or any Python catalog, to DuckDB as an attached database."
_EXAMPLES = """\
to try it:
  sparkport serve --demo                      a catalog in memory
  sparkport serve --warehouse ./lake --demo   a lake on Spark, with a schema to try things with
  sparkport ls                                what a client of it would see

sparkport COMMAND --help explains each command.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code.

    It is 0, or 1 where a check has failed, or 2 after a sentence that says what to do.
    """
    options = _parsed(sys.argv[1:] if arguments is None else arguments)
    try:
        code: int = options.run(options)
        sys.stdout.flush()
    except BrokenPipeError:  # `sparkport ls | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 0
    except (SparkportError, OSError) as error:
        print(one_line(f"sparkport: {error}"), file=sys.stderr)
        return 2
    except KeyboardInterrupt:  # before the server was ready; Spark takes some seconds
        return 130
    return code


def parser() -> argparse.ArgumentParser:
    """The parser of all commands."""
    made = argparse.ArgumentParser(
        prog="sparkport",
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    made.add_argument("--version", action="version", version=f"sparkport {sparkport.__version__}")
    commands = made.add_subparsers(required=True, metavar="COMMAND", title="commands")
    for add in (
        add_serve,
        add_check,
        add_tokens,
        add_listing,
        add_pack,
        add_configuration,
        add_completion,
    ):
        add(commands)
    return made


def _parsed(arguments: Sequence[str]) -> argparse.Namespace:
    known = parser()
    if "_ARGCOMPLETE" in os.environ:  # a shell asks for completions: see completion.py
        complete(known)
    options, rest = known.parse_known_args(arguments)
    if rest:
        unknown = next((each for each in rest if each.startswith("-")), rest[0])
        flag = unknown.partition("=")[0]
        options.parser.error(f"there is no {flag}; {suggestion(flag, options.flags, 'see --help')}")
    return options
