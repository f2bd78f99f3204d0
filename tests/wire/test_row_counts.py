"""Counting the rows of messages that are not validated yet."""

from __future__ import annotations

import random

import pytest

from sparkport.wire.row_counts import count_rows


@pytest.mark.timeout(60)
@pytest.mark.parametrize("field", [b"\x0a", b"\x1a", b"\x12"])
@pytest.mark.parametrize(
    "length", [b"", b"\xff", b"\xff" * 4, b"\xff" * 20, b"\x80" * 4, b"\x00", b"\x7f"]
)
def test_a_length_that_is_none_counts_as_no_rows(field, length):
    """A length longer than four bytes once sent the count back to the start, forever."""
    assert count_rows(field + length) == 0
    assert count_rows(b"\x0a\x00" + field + length) == 0


@pytest.mark.timeout(60)
def test_noise_is_counted_as_something_and_in_no_time():
    chance = random.Random(8)
    for _ in range(20_000):
        start = bytes(chance.choices((0x0A, 0x12, 0x1A, 0xFF, 0x80, 0x00), k=4))
        assert 0 <= count_rows(start + chance.randbytes(chance.randrange(60))) <= 1 << 31
