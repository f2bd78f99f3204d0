"""Which conjuncts DuckDB may apply while it reads a file."""

from __future__ import annotations

import pytest

from sparkport.engine.filters.plain import is_plain
from sparkport.testing.local import LocalDuckDB
from sparkport.wire.filters import decode_filter

TYPES = {
    "i": "INTEGER",
    "l": "BIGINT",
    "m": "BIGINT",
    "d": "DOUBLE",
    "f": "FLOAT",
    "s": "VARCHAR",
    "t": "BOOLEAN",
}


def _is_plain(condition: str) -> bool:
    found = decode_filter(LocalDuckDB.shared(False).filter_json(condition, TYPES))
    assert found is not None
    return all(map(is_plain, found.conjuncts))


@pytest.mark.parametrize(
    "condition",
    [
        "i = 7",
        "7 < l",
        "l < m",
        "l BETWEEN 1 AND 2",
        "i IN (1, 2, NULL)",
        "s NOT IN ('a', 'b')",
        "s IS NULL OR NOT (i <> 3 AND t)",
        "d > 1.5",
        "d IN (1, 2)",
        "i = 0",
        "s IS DISTINCT FROM ''",
        "NOT t",
    ],
)
def test_comparisons_with_constants_are_plain(condition: str) -> None:
    assert _is_plain(condition)


@pytest.mark.parametrize(
    "condition",
    [
        "i = l",
        "i + 1 = 7",
        "lower(s) = 'a'",
        "s LIKE '%a%b%'",
        "cast(s AS INTEGER) = 3",
        "i = 7 OR length(s) = 3",
        "CASE WHEN t THEN i = 3 ELSE true END",
        "d = 0",
        "d = -0.0::DOUBLE",
        "f IN (0, 1)",
        "f < 0.0",
        "d BETWEEN 0 AND 1",
        "d <> '-0'::DOUBLE",
        "f = 1e-60::DOUBLE::FLOAT",
    ],
)
def test_functions_and_zeros_of_floating_point_are_not(condition: str) -> None:
    assert not _is_plain(condition)
