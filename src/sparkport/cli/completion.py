"""`sparkport completion`: scripts for shells, made from the parser."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass

from sparkport.cli.flags import Commands, command

__all__ = ["add_command", "script"]

_EXAMPLES = """\
to have it in every shell from now on:
  bash:  sparkport completion bash > ~/.local/share/bash-completion/completions/sparkport
  zsh:   sparkport completion zsh > ~/.zfunc/_sparkport
         with fpath+=~/.zfunc before compinit in ~/.zshrc
  fish:  sparkport completion fish > ~/.config/fish/completions/sparkport.fish
"""
_FILES = ("FILE", "DIR", "TARGET")
"""Placeholders of values that are files."""


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
    print(script(options.root, options.shell), end="")
    return 0


def script(parser: argparse.ArgumentParser, shell: str) -> str:
    """The script for a shell."""
    nodes = list(_nodes(parser, ()))
    return {"bash": _bash, "zsh": _zsh, "fish": _fish}[shell](nodes)


@dataclass(frozen=True, slots=True)
class _Flag:
    name: str
    help: str
    takes_value: bool
    is_file: bool
    choices: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Node:
    """A command, by the words that lead to it, and what may follow."""

    path: tuple[str, ...]
    words: tuple[tuple[str, str], ...]
    """Commands and choices, each with its help."""
    flags: tuple[_Flag, ...]


def _nodes(parser: argparse.ArgumentParser, path: tuple[str, ...]) -> Iterator[_Node]:
    words: list[tuple[str, str]] = []
    flags: list[_Flag] = []
    below: list[tuple[str, argparse.ArgumentParser]] = []
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            helps = {each.dest: each.help or "" for each in action._choices_actions}
            words += [(name, helps.get(name, "")) for name in action.choices]
            below += action.choices.items()
        elif not action.option_strings:
            words += [(str(choice), "") for choice in action.choices or ()]
        elif action.help != argparse.SUPPRESS:
            flags += [
                _flag(action, name) for name in action.option_strings if name.startswith("--")
            ]
    yield _Node(path, tuple(words), tuple(flags))
    for name, parser_below in below:
        yield from _nodes(parser_below, (*path, name))


def _flag(action: argparse.Action, name: str) -> _Flag:
    choices = tuple(map(str, action.choices or ())) or _choices_of_setting(action.dest)
    meaning = (action.help or "").replace("%%", "%").partition(";")[0]
    return _Flag(name, meaning, action.nargs != 0, action.metavar in _FILES, choices)


def _choices_of_setting(name: str) -> tuple[str, ...]:
    from sparkport.config import SETTINGS

    return next((each.choices for each in SETTINGS if each.name == name), ())


def _bash(nodes: list[_Node]) -> str:
    return _SHELL_FUNCTION.format(
        name="_sparkport",
        commands=_quoted_words(nodes),
        cases="\n".join(_bash_cases(nodes)),
        values="\n".join(_bash_values(nodes)),
    )


_SHELL_FUNCTION = """\
# bash completion for sparkport; made by `sparkport completion bash`
{name}() {{
    local current="${{COMP_WORDS[COMP_CWORD]}}" previous="${{COMP_WORDS[COMP_CWORD-1]}}" way="" word words=""
    for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
        case "${{way:+$way }}$word" in
            {commands}) way="${{way:+$way }}$word" ;;
        esac
    done
    COMPREPLY=()
    case "$previous" in
{values}
    esac
    case "$way" in
{cases}
    esac
    COMPREPLY=($(compgen -W "$words" -- "$current"))
    if [[ -z "$current" || "$current" != -* ]] && [[ ${{#COMPREPLY[@]}} -eq 0 || "$way" == serve ]]; then
        COMPREPLY+=($(compgen -f -- "$current"))
    fi
}}
complete -o filenames -F {name} sparkport
"""


def _quoted_words(nodes: list[_Node]) -> str:
    return "|".join(f'"{" ".join(node.path)}"' for node in nodes if node.path)


def _bash_cases(nodes: list[_Node]) -> Iterator[str]:
    for node in nodes:
        words = [word for word, _ in node.words] + [flag.name for flag in node.flags]
        yield f'        "{" ".join(node.path)}") words="{" ".join(words)}" ;;'


def _bash_values(nodes: list[_Node]) -> Iterator[str]:
    """What follows a flag that takes a value: words, files, or nothing that could be known."""
    flags = {flag.name: flag for node in nodes for flag in node.flags if flag.takes_value}
    for flag in flags.values():
        reply = "return"
        if flag.choices:
            reply = f'COMPREPLY=($(compgen -W "{" ".join(flag.choices)}" -- "$current")); return'
        elif flag.is_file:
            reply = 'COMPREPLY=($(compgen -f -- "$current")); return'
        yield f"        {flag.name}) {reply} ;;"


def _zsh(nodes: list[_Node]) -> str:
    """Its variable `path` is the PATH, so it must not be called that."""
    lines = ["#compdef sparkport", "# made by `sparkport completion zsh`", "_sparkport() {"]
    lines += [
        "  local way='' word",
        "  local -a found",
        '  for word in "${(@)words[2,CURRENT-1]}"; do',
    ]
    lines += [
        f'    case "${{way:+$way }}$word" in {_quoted_words(nodes)}) way="${{way:+$way }}$word" ;; esac'
    ]
    lines += ["  done", '  case "$words[CURRENT-1]" in']
    flags = {flag.name: flag for node in nodes for flag in node.flags if flag.takes_value}
    for flag in flags.values():
        reply = "return"
        if flag.choices:
            reply = f"compadd -- {' '.join(flag.choices)}; return"
        elif flag.is_file:
            reply = "_files; return"
        lines.append(f"    {flag.name}) {reply} ;;")
    lines += ["  esac", '  case "$way" in']
    for node in nodes:
        entries = [*node.words, *((flag.name, flag.help) for flag in node.flags)]
        texts = " ".join(
            _single_quoted(f"{word.replace(':', chr(92) + ':')}:{text}") for word, text in entries
        )
        lines.append(f'    "{" ".join(node.path)}") found=({texts}) ;;')
    lines += ["  esac", "  _describe 'sparkport' found", '  [[ "$way" == serve ]] && _files', "}"]
    lines += [
        'if [[ "$funcstack[1]" == _sparkport ]]; then _sparkport "$@"; else compdef _sparkport sparkport; fi'
    ]
    return "\n".join(lines) + "\n"


def _fish(nodes: list[_Node]) -> str:
    lines = ["# fish completion for sparkport; made by `sparkport completion fish`"]
    for node in nodes:
        seen = [f"__fish_seen_subcommand_from {word}" for word in node.path]
        below = " ".join(word for word, _ in node.words)
        unseen = [f"not __fish_seen_subcommand_from {below}"] if below else []
        here = _single_quoted("; and ".join([*seen, *unseen]) or "true")
        for word, text in node.words:
            lines.append(f"complete -c sparkport -f -n {here} -a {word} -d {_single_quoted(text)}")
        condition = _single_quoted("; and ".join(seen) or "__fish_use_subcommand")
        for flag in node.flags:
            line = f"complete -c sparkport -n {condition} -l {flag.name[2:]} -d {_single_quoted(flag.help)}"
            if flag.choices:
                line += f" -x -a {_single_quoted(' '.join(flag.choices))}"
            elif flag.takes_value:
                line += " -r" if flag.is_file else " -x"
            lines.append(line)
    return "\n".join(lines) + "\n"


def _single_quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "'\\''") + "'"
