"""`sparkport completion`: the scripts, tried in the shells that there are."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from sparkport.config import SETTINGS

BASH = """
source <(cat <<'SCRIPT'
%s
SCRIPT
)
try() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=(); _sparkport; echo "${COMPREPLY[@]}"; }
try sparkport ""
try sparkport to
try sparkport serve --max-s
try sparkport serve --demo --log-format ""
try sparkport token create ada --gr
try sparkport token re
try sparkport completion f
try sparkport serve --config /etc/host
try sparkport serve --max-calls ""
"""


def test_bash_completes_commands_flags_and_values(run):
    script = run("completion", "bash").out
    command = ["bash", "--noprofile", "--norc", "-c", BASH % script]

    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)

    assert done.stderr == ""
    commands, token, limits, formats, group, revoke, fish, file, number = done.stdout.split("\n")[
        :-1
    ]
    assert {"serve", "check", "token", "ls", "bench", "completion", "config", "--version"} <= set(
        commands.split()
    )
    assert token == "token"
    assert set(limits.split()) == {each.flag for each in SETTINGS if each.name.startswith("max_s")}
    assert formats == "text json"
    assert group == "--group"
    assert revoke == "revoke"
    assert fish == "fish"
    assert "/etc/hosts" in file.split()
    assert number == ""


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_script_is_well_formed_and_knows_every_setting(run, shell):
    script = run("completion", shell).out

    names = [each.flag[2:] for each in SETTINGS]
    assert [name for name in names if name not in script] == []
    assert "no-demo" not in script
    program = shutil.which(shell)
    if program is not None:
        subprocess.run([program, "-n"], input=script, text=True, timeout=30, check=True)
