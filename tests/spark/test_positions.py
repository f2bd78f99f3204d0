"""Sorted sets of positions and row ids."""

from __future__ import annotations

import pyarrow as pa
import pytest

from sparkport.spark.iceberg.positions import among

MEMBERS = pa.array([2, 3, 7, 2**62], pa.int64())


@pytest.mark.parametrize(
    ("values", "members", "expected"),
    [
        ([7, 1, 2, 8], MEMBERS, [True, False, True, False]),
        ([None, 3], MEMBERS, [False, True]),
        ([None, None], MEMBERS, [False, False]),
        ([2**62, 0], MEMBERS, [True, False]),
        ([4, 6], MEMBERS, [False, False]),
        ([], MEMBERS, []),
        ([1], MEMBERS[:0], [False]),
        ([3, 7], MEMBERS[2:], [False, True]),
    ],
)
def test_values_are_found_among_ascending_members(values, members, expected):
    assert among(pa.array(values, pa.int64()), members).to_pylist() == expected
