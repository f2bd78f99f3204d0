"""What the server tells Flight SQL's drivers about itself (FlightSql.proto, SqlInfo)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any

import pyarrow as pa

from sparkport.catalog import Catalog, DynamicCatalog, SqlCatalog, TransactionManager

__all__ = ["Capabilities", "capabilities_of", "sql_info"]


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What can be done with the catalog that statements run in."""

    runs_sql: bool = False
    has_transactions: bool = False
    creates_tables: bool = False


def capabilities_of(catalog: Catalog) -> Capabilities:
    """What a catalog can do, by the contracts that it implements."""
    return Capabilities(
        isinstance(catalog, SqlCatalog),
        isinstance(catalog, TransactionManager),
        isinstance(catalog, DynamicCatalog),
    )


@cache
def sql_info(capabilities: Capabilities) -> Mapping[int, tuple[str, Any]]:
    """By number, ascending: the member of the answer's union, and the value.

    All numbers that Flight SQL defines are there. Of the dialect it says only what is true of every
    catalog: what is supported depends on who runs the SQL. Of names it says what DuckDB does with
    them.
    """
    writes = any(
        (capabilities.runs_sql, capabilities.has_transactions, capabilities.creates_tables)
    )
    infos: dict[int, tuple[str, Any]] = {}

    def say(member: str, values: Mapping[int, Any]) -> None:
        infos.update({number: (member, value) for number, value in values.items()})

    say(
        "bool_value",
        dict.fromkeys(_FLAGS, False)
        | dict.fromkeys(_TRUE_FLAGS, True)
        | {_READ_ONLY: not writes, _BULK_INGESTION: writes}
        | dict.fromkeys(_SQL_FLAGS, capabilities.runs_sql)
        | dict.fromkeys(_TRANSACTION_FLAGS, capabilities.has_transactions)
        | dict.fromkeys(_DDL_FLAGS, capabilities.runs_sql and capabilities.creates_tables),
    )
    transactions = {_TRANSACTIONS: int(capabilities.has_transactions)}
    say("int32_bitmask", dict.fromkeys(_NUMBERS, 0) | _CHOICES | transactions)
    say("bigint_value", dict.fromkeys(_LIMITS, 0))
    say("string_list", {number: [] for number in _WORDS})
    say("int32_to_int32_list_map", {_CONVERSIONS: []})
    own_version = import_module(
        "sparkport"
    ).__version__  # not by `import`: the package's names reach into all layers
    say("string_value", {0: "Sparkport", 1: own_version, 2: pa.__version__, **_TEXTS})
    return dict(sorted(infos.items()))


def _ranges(*bounds: tuple[int, int]) -> Iterable[int]:
    return [number for first, last in bounds for number in range(first, last + 1)]


_READ_ONLY, _BULK_INGESTION = 3, 10
_SQL_FLAGS = (4, 9)
"""Runs SQL; cancels queries."""
_TRANSACTION_FLAGS = (11, 563)
"""Transactions, and ingestion in them."""
_DDL_FLAGS = (501, 502)
"""Creates schemas and tables by SQL."""
_TRANSACTIONS = 8
"""Whether BeginTransaction works: 0 no, 1 yes, and 2 would be savepoints too."""
_TRUE_FLAGS = (524, 532)
"""Columns can be NOT NULL; the catalog comes first in a table's full name."""
_FLAGS = _ranges(
    (5, 5),  # Substrait plans
    (500, 500),  # creates catalogs
    (506, 506),
    (515, 516),
    (518, 521),
    (523, 523),
    (527, 527),
    (536, 537),
    (539, 539),
    (556, 556),
    (565, 566),
    (572, 576),
)
_NUMBERS = _ranges(
    (100, 101),
    (522, 522),
    (525, 526),
    (528, 528),
    (533, 535),
    (538, 538),
    (540, 540),
    (562, 562),
    (564, 564),
    (567, 571),
)
_CHOICES = {503: 1, 505: 1, 507: 3}
"""Names, quoted or not, are compared without regard to case; NULLs are sorted last."""
_LIMITS = _ranges((541, 555), (557, 561))
"""Zero stands for no limit, or an unknown limit."""
_WORDS = range(508, 513)
_CONVERSIONS = 517
_TEXTS = {6: None, 7: None, 504: '"', 513: "", 514: "", 529: "schema", 530: "", 531: "catalog"}
"""No versions of Substrait; the quote of names; no escape in patterns, no special characters; the
words for schemas, procedures and catalogs.
"""
