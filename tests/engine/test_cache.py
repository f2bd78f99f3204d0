"""Remembering what somebody asks for, and no more."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from sparkport.engine import cache as module
from sparkport.engine.cache import Cache


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0


@pytest.fixture
def clock(monkeypatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: clock.now))
    return clock


def kept(remembered: Cache[str, str], keys: str) -> str:
    return "".join(key for key in keys if remembered.find(key, None) is not None)


def test_the_longest_unused_are_forgotten_when_all_are_too_much():
    remembered: Cache[str, str] = Cache(10)
    for key in "abc":
        remembered.add(key, key, 3)
    assert remembered.find("a", None) == "a"

    remembered.add("d", "d", 4)

    assert kept(remembered, "abcd") == "acd"
    remembered.add("e", "e", 11)
    assert kept(remembered, "abcde") == "e", "the last one stays, however much it is"
    remembered.add("f", "f", 1)
    assert kept(remembered, "ef") == "f"


def test_what_nobody_asks_for_is_forgotten_after_a_while(clock):
    remembered: Cache[str, str] = Cache(1000)
    for key in "abc":
        remembered.add(key, key)
    clock.now += 400
    assert remembered.find("b", None) == "b"
    clock.now += 400

    remembered.add("d", "d")

    assert kept(remembered, "abcd") == "bd"


def test_the_first_of_two_counts_and_none_is_a_value_too():
    remembered: Cache[str, str | None] = Cache(1000)

    assert remembered.add("a", None) is None
    assert remembered.add("a", "later") is None
    assert remembered.find("a", "missing") is None
    assert remembered.find("b", "missing") == "missing"
