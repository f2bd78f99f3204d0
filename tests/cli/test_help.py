"""What `--help` says, and what users are told who mistype something."""

from __future__ import annotations

import subprocess
import sys

import pytest

import sparkport
from sparkport.config import SETTINGS, example_toml, settings_markdown
from sparkport.settings import SECTIONS

COMMANDS = ("serve", "check", "token", "ls", "pack", "config", "completion")


def test_help_names_every_command_and_each_explains_itself_with_examples(run):
    ran = run("--help")
    assert ran.code == 0
    assert [each for each in COMMANDS if f"\n    {each}" not in ran.out] == []
    for command in COMMANDS:
        ran = run(command, "--help")
        assert ran.code == 0
        assert f"sparkport {command}" in ran.out.partition("\n\n")[2], "an example"
        assert [line for line in ran.out.splitlines() if len(line) > 100] == []


def test_the_help_of_serve_has_every_setting_in_its_section(run):
    text = run("serve", "--help").out

    places = [text.index(f"\n{section}:\n") for section in SECTIONS]
    assert places == sorted(places)
    for setting in SETTINGS:
        start = places[SECTIONS.index(setting.section)]
        assert text.index(f"\n  {setting.flag}") > start


def test_help_waits_for_no_library():
    program = (
        "import sys; from sparkport.cli.commands import parser; parser().format_help(); "
        "print(*sorted({'grpc', 'pyarrow', 'duckdb', 'pyspark'} & sys.modules.keys()))"
    )

    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=True
    )

    assert done.stdout.strip() == ""


def test_the_version_is_printed(run):
    assert run("--version").out == f"sparkport {sparkport.__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["serve", "--max-call", "7"], "there is no --max-call; did you mean --max-calls?"),
        (["serve", "--token-file=x"], "there is no --token-file; did you mean --tokens-file?"),
        (["ls", "--jsn"], "there is no --jsn; did you mean --json?"),
        (
            ["token", "create", "ada", "--groups", "x"],
            "there is no --groups; did you mean --group?",
        ),
        (["completion", "bash", "b"], "there is no b; see --help"),
        (["serve", "--xyzzy"], "there is no --xyzzy; see --help"),
    ],
)
def test_a_flag_that_does_not_exist_is_refused_with_a_suggestion(run, arguments, said):
    ran = run(*arguments)

    assert ran.code == 2
    assert ran.err.endswith(f"error: {said}\n")


def test_the_configuration_is_printed_to_begin_with(run):
    assert run("config").out == example_toml()
    assert run("config", "--markdown").out == settings_markdown()
