"""Who may do what, from the file: `[[grants]]`, `[[row_filters]]` and `[[masks]]`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparkport.config.suggest import suggestion
from sparkport.errors import BadRequest

if TYPE_CHECKING:
    from sparkport.auth import Grant, Mask, RowFilter

__all__ = ["RULES", "read_rules"]


def read_rules(given: Mapping[str, Any], file: Path, text: str) -> dict[str, tuple[Any, ...]]:
    """Read the rules of a file; its text gives the line of each.

    Raises: BadRequest, which says where and why.
    """
    found: dict[str, tuple[Any, ...]] = {}
    for section in RULES.keys() & given.keys():
        tables = given[section]
        if not isinstance(tables, list) or not all(isinstance(each, dict) for each in tables):
            raise BadRequest(
                f"{file}: {section} must be a list of tables: begin each with [[{section}]]"
            )
        read = [
            _rule(section, table, _place(file, text, section, index))
            for index, table in enumerate(tables)
        ]
        found[section] = tuple(read)
    _expect_consistent(found.get("masks", ()), file)
    return found


def _expect_consistent(masks: Sequence[Mask], file: Path) -> None:
    from sparkport.auth import Policy

    try:
        Policy(masks=masks)
    except BadRequest as error:
        raise BadRequest(f"{file}: {error.message}") from error


class _Rule:
    """A rule of the file, read key by key."""

    def __init__(self, table: Mapping[str, Any], where: str) -> None:
        self.where = where
        self._table = table

    def text(self, key: str, default: str | None = None) -> str:
        value = self._table.get(key, default)
        if value is None:
            raise BadRequest(f"{self.where}: {key} is missing")
        if not isinstance(value, str) or not value.strip():
            raise BadRequest(f"{self.where}: {key} must be text, not {value!r}")
        return value

    def texts(self, key: str, default: tuple[str, ...] | None = None) -> tuple[str, ...]:
        value = self._table.get(key, default)
        if value is None:
            raise BadRequest(f"{self.where}: {key} is missing")
        several = (
            [value]
            if isinstance(value, str)
            else list(value)
            if isinstance(value, list | tuple)
            else [None]
        )
        if not all(isinstance(each, str) and each.strip() for each in several):
            raise BadRequest(f"{self.where}: {key} must be text or a list of texts, not {value!r}")
        return tuple(several)

    def path(self) -> str:
        path = self.text("on")
        if not all(path.split(".")):
            form = "catalog, catalog.schema or catalog.schema.object, with * or ** for any"
            raise BadRequest(f"{self.where}: on must be {form}, not {path!r}")
        return path

    def expression(self, key: str, default: str | None = None) -> str:
        """An SQL expression over one row, in which `$name` is an attribute of the caller."""
        from sparkport.engine.constraints.expressions import expect_rule

        text = self.text(key, default)
        expect_rule(text, f"{self.where}: {key}")
        return text


def _rule(section: str, table: Mapping[str, Any], where: str) -> Any:
    keys, make = RULES[section]
    for key in table:
        if key not in keys:
            remedy = suggestion(key, keys, f"there are {', '.join(keys)}")
            raise BadRequest(f"{where}: there is no {key!r}; {remedy}")
    return make(_Rule(table, where))


def _grant(rule: _Rule) -> Grant:
    from sparkport.auth import Grant
    from sparkport.catalog import Privilege

    names = [each.value for each in Privilege]
    privileges = []
    for word in rule.texts("may"):
        if word.lower() not in names:
            remedy = suggestion(word, names, f"there are {', '.join(names)}")
            raise BadRequest(f"{rule.where}: there is no privilege {word!r}; {remedy}")
        privileges.append(Privilege(word.lower()))
    return Grant(rule.texts("to"), rule.path(), tuple(privileges))


def _row_filter(rule: _Rule) -> RowFilter:
    from sparkport.auth import RowFilter

    return RowFilter(
        rule.path(), rule.expression("rows"), rule.texts("to", ("*",)), rule.texts("but", ())
    )


def _mask(rule: _Rule) -> Mask:
    from sparkport.auth import Mask

    column, value = rule.text("column"), rule.expression("value", "NULL")
    return Mask(rule.path(), column, value, rule.texts("to", ("*",)), rule.texts("but", ()))


RULES: Mapping[str, tuple[tuple[str, ...], Callable[[_Rule], Any]]] = {
    "grants": (("to", "on", "may"), _grant),
    "row_filters": (("on", "rows", "to", "but"), _row_filter),
    "masks": (("on", "column", "value", "to", "but"), _mask),
}
"""The keys of each kind of rule, and the function that makes the rule."""


def _place(file: Path, text: str, section: str, index: int) -> str:
    header = re.compile(rf"\s*\[\[\s*{section}\s*\]\]")
    lines = [number for number, line in enumerate(text.splitlines(), 1) if header.match(line)]
    line = f", line {lines[index]}" if index < len(lines) else ""
    return f"{file}{line}, {section} {index + 1}"
