"""The commands and settings that pages show, checked by the real parser and loader."""

from __future__ import annotations

import shlex
from pathlib import Path

from sparkport.cli.commands import parser
from sparkport.cli.exposure import expect_safe
from sparkport.cli.flags import chosen
from sparkport.config import load_config

__all__ = ["check_commands", "check_settings"]

_KNOWN = {
    "git clone": "the address is the reader's",
    "cd": "of the shell",
    "apt install": "of the system",
    "pip install": "tests/test_packaging.py installs the wheel",
    "python": "the program is a block of the page, which is run",
    ".venv/bin/python": "tests/test_examples.py runs every example",
    "make": "a target of the Makefile, which is looked up",
    "kill": "of the system",
    "curl": "of the system",
    "openssl": "of the system",
    "head": "of the system",
    "chmod": "of the system",
    "export": "of the shell",
    "systemctl": "of the system",
}
"""What pages may show besides `sparkport`, and why it is not run."""


def check_commands(text: str, folder: Path) -> None:
    """Raises: AssertionError for a command that is unknown, or would be refused."""
    for line in text.replace("\\\n", " ").splitlines():
        for command in line.split("&&"):
            words = shlex.split(command, comments=True)
            while words and "=" in words[0] and not words[0].startswith("-"):
                words.pop(0)
            if words:
                _check(words)


def _check(words: list[str]) -> None:
    if words[0] == "sparkport":
        _parse(words[1:])
        return
    if words[0] == "make":
        targets = (Path(__file__).parent.parent.parent / "Makefile").read_text("utf-8")
        assert f"\n{words[1]}:" in targets, f"there is no target {words[1]}"
        return
    known = any(words[: len(each.split())] == each.split() for each in _KNOWN)
    assert known, f"pages may show only commands that the tests know: {shlex.join(words)}"


def _parse(arguments: list[str]) -> None:
    try:
        options, rest = parser().parse_known_args(arguments)
    except SystemExit as ended:
        refused = ended.code != 0  # 0 after --help and --version
    else:
        refused = bool(rest)
        if arguments[0] == "serve":
            expect_safe(chosen(options))
    assert not refused, f"sparkport {shlex.join(arguments)} is refused"


def check_settings(text: str, folder: Path) -> None:
    """Raises: BadRequest for an unknown setting, and for settings that a server refuses."""
    file = folder / "sparkport.toml"
    file.write_text(text, "utf-8")
    expect_safe(load_config({}, {}, file))
