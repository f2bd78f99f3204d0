"""The shape of the tree. Who may import whom is in pyproject.toml, and `make check` asks
import-linter.
"""

import ast
import re
from collections.abc import Iterator
from graphlib import TopologicalSorter
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PROJECT = Path(__file__).parents[1]
SOURCES = sorted((PROJECT / "src" / "sparkport").rglob("*.py"))

PIN = re.compile(
    r"""(?P<name>[A-Za-z0-9._-]+)==[0-9][A-Za-z0-9.]*( ; python_version (<|>=) "3\.\d+")?"""
)


def test_no_source_file_is_longer_than_400_lines():
    lengths = {
        path.relative_to(PROJECT): len(path.read_text("utf-8").splitlines()) for path in SOURCES
    }

    assert SOURCES
    assert {path: length for path, length in lengths.items() if length > 400} == {}


def test_no_module_has_a_name_that_says_nothing():
    vague = re.compile(r"(^|_)(utils?|helpers?|common|misc)($|_)")
    modules = [path.relative_to(PROJECT / "src").with_suffix("") for path in SOURCES]

    assert [
        str(module) for module in modules if any(vague.search(part) for part in module.parts)
    ] == []


def test_there_is_no_cycle_between_packages():
    """At every level of the tree: what a package and its siblings import, with all inside of them.

    Imports inside functions and for type checkers count, and so do modules named in strings.
    """
    sorter: TopologicalSorter[tuple[str, ...]] = TopologicalSorter()
    for importing, imported in _imports():
        level = next(
            (
                index
                for index, (one, other) in enumerate(zip(importing, imported, strict=False))
                if one != other
            ),
            None,
        )
        if level is not None:
            one, other = importing[: level + 1], imported[: level + 1]
            if any((PROJECT / "src").joinpath(*each).is_dir() for each in (one, other)):
                sorter.add(one, other)

    sorter.prepare()  # raises CycleError, which names the packages


def _imports() -> Iterator[tuple[tuple[str, ...], tuple[str, ...]]]:
    modules = {path.relative_to(PROJECT / "src").with_suffix("").parts: path for path in SOURCES}
    for name, path in modules.items():
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            match node:
                case ast.ImportFrom(module=str() as source, names=names):
                    named = [f"{source}.{each.name}" for each in names]
                case ast.Import(names=names):
                    named = [each.name for each in names]
                case ast.Constant(value=str() as text):
                    named = [text]
                case _:
                    continue
            for each in named:
                parts = tuple(each.split("."))
                for found in (parts, (*parts, "__init__"), parts[:-1], (*parts[:-1], "__init__")):
                    if found in modules:
                        yield _package(name), _package(found)
                        break


def _package(module: tuple[str, ...]) -> tuple[str, ...]:
    return module[:-1] if module[-1] == "__init__" else module


def test_constraints_are_exact_pins_without_addresses():
    assert [line for line in _constraint_lines() if not PIN.fullmatch(line)] == []


def test_everything_sparkport_needs_is_pinned():
    pinned = {canonicalize_name(line.partition("==")[0]) for line in _constraint_lines()}

    assert _installed_closure("sparkport", extra="dev") - {"sparkport"} <= pinned


def _constraint_lines() -> list[str]:
    lines = (PROJECT / "constraints.txt").read_text("utf-8").splitlines()
    return [line.strip() for line in lines if line.strip() and not line.startswith("#")]


def _installed_closure(name: str, extra: str) -> set[str]:
    """The distribution, and all that it requires on this interpreter."""
    found: set[str] = set()
    waiting = [(name, extra)]
    while waiting:
        name, extra = waiting.pop()
        if name not in found:
            found.add(name)
            waiting.extend(_required_by(name, extra))
    return found


def _required_by(name: str, extra: str) -> Iterator[tuple[str, str]]:
    for text in metadata.requires(name) or []:
        requirement = Requirement(text)
        if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
            yield canonicalize_name(requirement.name), ""
