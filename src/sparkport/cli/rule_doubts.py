"""Warnings of row filters and masks that protect nothing, or less than they seem to.

Grants need no such warnings: they fail closed.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence

from sparkport.auth import Mask, RowFilter
from sparkport.auth.paths import PathPattern, covering_nested
from sparkport.catalog import Catalog, Context
from sparkport.config import Config

__all__ = ["doubts", "doubts_about_patterns", "tables_of"]

_log = logging.getLogger("sparkport.cli")


def doubts(config: Config, tables: Iterable[str]) -> Iterator[str]:
    """Yield warnings, given the paths of all tables, which are read only as far as necessary."""
    yield from doubts_about_patterns(config)
    without = {where: rule.on for where, rule in _rules(config)}
    patterns = {where: PathPattern(on) for where, on in without.items()}
    if not without:
        return
    try:
        for table in tables:
            for where in [where for where in without if patterns[where].covers(table)]:
                del without[where]
            if not without:
                return
    except Exception:  # noqa: BLE001 - a catalog in trouble says so to those who ask for it
        _log.debug("it cannot be told which tables there are", exc_info=True)
        return
    for where, on in without.items():
        yield f"{where}: there is no table that {on} means, so it protects nothing"


def doubts_about_patterns(config: Config) -> Iterator[str]:
    """Yield warnings that do not depend on the tables."""
    for where, rule in _rules(config):
        better = covering_nested(rule.on)
        if better is not None:
            yield (
                f"{where}: {rule.on} does not cover schemas within schemas, whose tables are then "
                f"shown as they are: "
                f"write {better}"
            )


def tables_of(catalogs: Iterable[Catalog]) -> Iterator[str]:
    """Yield the paths of all tables. Raises: whatever the catalogs raise."""
    for catalog in catalogs:
        ctx = Context(catalog_name=catalog.name)
        for schema in catalog.schemas(ctx):
            for table in schema.tables(ctx):
                yield f"{catalog.name}.{schema.name}.{table.name}"


def _rules(config: Config) -> Iterator[tuple[str, RowFilter | Mask]]:
    sections: dict[str, Sequence[RowFilter | Mask]] = {
        "row_filters": config.row_filters,
        "masks": config.masks,
    }
    for section, rules in sections.items():
        for number, rule in enumerate(rules, 1):
            yield f"{section} {number}", rule
