"""What the server tells Flight SQL's drivers about itself (FlightSql.proto, SqlInfo)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from importlib import import_module
from typing import Any

import pyarrow as pa

__all__ = ["sql_info"]


@cache
def sql_info() -> Mapping[int, tuple[str, Any]]:
    """By number, ascending: the member of the answer's union, and the value.

    All numbers that Flight SQL defines are there. The server runs no SQL, so it says that it
    supports none. Of names it says what DuckDB does with them.
    """
    infos: dict[int, tuple[str, Any]] = {}

    def say(member: str, values: Mapping[int, Any]) -> None:
        infos.update({number: (member, value) for number, value in values.items()})

    say(
        "bool_value",
        dict.fromkeys(_FLAGS, False) | {_READ_ONLY: True, **dict.fromkeys(_TRUE_FLAGS, True)},
    )
    say("int32_bitmask", dict.fromkeys(_NUMBERS, 0) | _CHOICES)
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


_READ_ONLY = 3
"""Flight SQL cannot write tables, though other calls can."""
_TRUE_FLAGS = (524, 532)
"""Columns can be NOT NULL; the catalog comes first in a table's full name."""
_FLAGS = _ranges(
    (4, 5),  # runs SQL, Substrait plans
    (9, 9),  # cancels queries
    (500, 502),  # creates catalogs, schemas, tables
    (506, 506),
    (515, 516),
    (518, 521),
    (523, 523),
    (527, 527),
    (536, 537),
    (539, 539),
    (556, 556),
    (563, 563),  # transactions
    (565, 566),
    (572, 576),
)
_NUMBERS = _ranges(
    (
        8,
        8,
    ),  # SQL_SUPPORTED_TRANSACTION_NONE: it tells ADBC's driver that it cannot begin a transaction
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
