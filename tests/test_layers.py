"""The shape of the tree. Who may import whom is in pyproject.toml, and `make check` asks
import-linter.
"""

import re
from collections.abc import Iterator
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
