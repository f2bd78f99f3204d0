"""What the server tells Flight SQL's drivers about itself (FlightSql.proto, SqlInfo)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any

import pyarrow as pa

from sparkport.catalog import Catalog, DynamicCatalog, SqlCatalog, SqlDialect, TransactionManager

__all__ = ["Capabilities", "capabilities_of", "sql_info"]


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What can be done with the catalog that statements run in."""

    dialect: SqlDialect | None = None
    """Of the SQL that the catalog runs; None if it runs none."""
    has_transactions: bool = False
    creates_tables: bool = False


def capabilities_of(catalog: Catalog) -> Capabilities:
    """What a catalog can do, by the contracts that it implements."""
    return Capabilities(
        catalog.dialect if isinstance(catalog, SqlCatalog) else None,
        isinstance(catalog, TransactionManager),
        isinstance(catalog, DynamicCatalog),
    )


@cache
def sql_info(capabilities: Capabilities) -> Mapping[int, tuple[str, Any]]:
    """By number, ascending: the member of the answer's union, and the value.

    All numbers that Flight SQL defines are there. Of catalogs that run no SQL it says what DuckDB
    does with names and NULLs, since DuckDB runs the SQL on them.
    """
    runs_sql, dialect = capabilities.dialect is not None, capabilities.dialect or SqlDialect()
    writes = any((runs_sql, capabilities.has_transactions, capabilities.creates_tables))
    infos: dict[int, tuple[str, Any]] = {}

    def say(member: str, values: Mapping[int, Any]) -> None:
        infos.update({number: (member, value) for number, value in values.items()})

    say(
        "bool_value",
        dict.fromkeys(_FLAGS, False)
        | dict.fromkeys(_TRUE_FLAGS, True)
        | {_READ_ONLY: not writes, _BULK_INGESTION: writes}
        | dict.fromkeys(_SQL_FLAGS, runs_sql)
        | dict.fromkeys(_TRANSACTION_FLAGS, capabilities.has_transactions)
        | {_CREATES_SCHEMAS: dialect.creates_schemas, _CREATES_TABLES: dialect.creates_tables},
    )
    numbers = dict.fromkeys(_NUMBERS, 0) | _CHOICES
    numbers[_NULL_ORDER] = 1 if dialect.nulls_are_smallest else 3
    numbers |= _SQL_NUMBERS if runs_sql else {}
    has_transactions = capabilities.has_transactions
    numbers |= {_TRANSACTIONS: int(has_transactions), _ISOLATIONS: has_transactions << _ISOLATION}
    say("int32_bitmask", numbers)
    # The isolation is a bigint because the proto's uint32 is no member of the union, and JDBC's
    # driver reads it as one.
    isolation = _ISOLATION if has_transactions else 0
    say("bigint_value", dict.fromkeys(_LIMITS, 0) | {_DEFAULT_ISOLATION: isolation})
    say("string_list", {number: [] for number in _WORDS})
    say("int32_to_int32_list_map", {_CONVERSIONS: []})
    own_version = import_module(
        "sparkport"
    ).__version__  # not by `import`: the package's names reach into all layers
    texts = {0: "Sparkport", 1: own_version, 2: pa.__version__, _QUOTE: dialect.identifier_quote}
    say("string_value", texts | _TEXTS)
    return dict(sorted(infos.items()))


def _ranges(*bounds: tuple[int, int]) -> Iterable[int]:
    return [number for first, last in bounds for number in range(first, last + 1)]


_READ_ONLY, _BULK_INGESTION = 3, 10
_SQL_FLAGS = (4, 9, 515, 516, 518, 520, 521, 523, 539, 572)
"""Runs SQL; cancels queries; has aliases, NULL + NULL, expressions in ORDER BY and columns that
are not selected, LIKE … ESCAPE, correlated subqueries; takes many rows of parameters at once.
"""
_TRANSACTION_FLAGS = (11, 563)
"""Transactions, and ingestion in them."""
_CREATES_SCHEMAS, _CREATES_TABLES = 501, 502
_TRANSACTIONS = 8
"""Whether BeginTransaction works: 0 no, 1 yes, and 2 would be savepoints too."""
_TRUE_FLAGS = (524, 532)
"""Columns can be NOT NULL; the catalog comes first in a table's full name."""
_FLAGS = _ranges(
    (5, 5),  # Substrait plans
    (500, 500),  # creates catalogs
    (506, 506),
    (519, 519),  # names of tables in a query must differ from those of all tables
    (527, 527),
    (536, 537),
    (556, 556),
    (565, 566),
    (573, 576),
)
_NUMBERS = _ranges(
    (100, 101),
    (522, 522),
    (525, 526),
    (528, 528),
    (533, 535),
    (538, 538),
    (540, 540),
    (567, 571),
)
_CHOICES = {503: 1, 505: 1}
"""Names, quoted or not, are compared without regard to case."""
_NULL_ORDER = 507
_SQL_NUMBERS = {522: 0b11, 528: 0b110, 538: 0b111, 540: 0b11}
"""GROUP BY of any columns; full outer joins; subqueries in comparisons, EXISTS and IN; UNION and
UNION ALL.
"""
_DEFAULT_ISOLATION, _ISOLATIONS = 562, 564
_ISOLATION = 3
"""REPEATABLE_READ: a transaction reads one snapshot of each table."""
_LIMITS = _ranges((541, 555), (557, 561))
"""Zero stands for no limit, or an unknown limit."""
_WORDS = range(508, 513)
_CONVERSIONS = 517
_QUOTE = 504
_TEXTS = {6: None, 7: None, 513: "", 514: "", 529: "schema", 530: "", 531: "catalog"}
"""No versions of Substrait; no escape in patterns, no special characters in names; the words for
schemas, procedures and catalogs.
"""
