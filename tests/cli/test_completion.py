"""`sparkport completion`: its scripts, run in the shells that are installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from sparkport.config import SETTINGS

BASH = """
source /dev/stdin <<'SCRIPT'
%s
SCRIPT
complete -p sparkport | grep -q _python_argcomplete || echo "not registered"
try() {
    COMP_LINE="$1" COMP_POINT=${#1} COMP_TYPE=9 COMPREPLY=()
    _python_argcomplete sparkport
    echo "${COMPREPLY[*]}"
}
try "sparkport "
try "sparkport to"
try "sparkport serve --max-s"
try "sparkport serve --demo --log-format "
try "sparkport token create ada --gr"
try "sparkport token re"
try "sparkport completion f"
try "sparkport serve --config /etc/host"
try "sparkport serve --max-calls "
try "sparkport serve --no-de"
"""


def test_bash_completes_commands_flags_and_values(run):
    """Run the installed command, by argcomplete's protocol."""
    script = run("completion", "bash").out
    command = ["bash", "--noprofile", "--norc", "-c", BASH % script]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"

    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        env={**os.environ, "PATH": path},
    )

    assert done.stderr == ""
    commands, token, limits, formats, group, revoke, fish, file, number, off = (
        line.split() for line in done.stdout.split("\n")[:-1]
    )
    assert {"serve", "check", "token", "ls", "completion", "config", "--version"} <= set(commands)
    assert token == ["token"]
    assert set(limits) == {each.flag for each in SETTINGS if each.name.startswith("max_s")}
    assert formats == ["text", "json"]
    assert group == ["--group"]
    assert revoke == ["revoke"]
    assert fish == ["fish"]
    assert "/etc/hosts" in file
    assert number == []
    assert off == []  # works, and is left out of the help


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_script_is_well_formed(run, shell):
    script = run("completion", shell).out

    assert "_ARGCOMPLETE" in script
    program = shutil.which(shell)
    if program is not None:
        subprocess.run([program, "-n"], input=script, text=True, timeout=30, check=True)
