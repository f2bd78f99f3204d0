"""Those who wait for the same thing: whoever is first deals with all that wait.

Strategy: a thread brings an item and waits. The first one leads: it takes all items that wait and
deals with them. Items that come meanwhile wait for the next turn, which one of their own threads
leads. Nobody waits for more to come, so that a thread alone is never slowed down.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Sequence
from typing import Generic, TypeAlias, TypeVar
from weakref import WeakValueDictionary

from sparkport.catalog import Context

__all__ = ["Group", "Groups", "Take"]

_Item = TypeVar("_Item")
Take: TypeAlias = Callable[[], Sequence[_Item]]
"""Takes the items that wait now. The leader's own is the first of them."""
_MOST = 100
"""How many items are taken at once."""


class _Turn(Generic[_Item]):
    """An item that waits. All but the event is under the group's lock."""

    def __init__(self, item: _Item) -> None:
        self.item = item
        self.news = threading.Event()
        self.leads = False
        self.is_taken = False
        self.is_done = False


class Group(Generic[_Item]):
    """The items that wait for one thing. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: list[_Turn[_Item]] = []
        self._is_led = False

    def join(self, item: _Item, ctx: Context, lead: Callable[[Take[_Item]], None]) -> None:
        """Have an item dealt with, by this thread or by another one.

        `lead` is called by one thread at a time, and takes the items when it is ready for them.
        What it notes in an item is there when the item's own thread goes on. Raises: Cancelled, but
        only while the item is not taken; then it never will be. What `lead` raises, in the thread
        that leads.
        """
        turn = _Turn(item)
        with self._lock:
            self._waiting.append(turn)
            if not self._is_led:
                self._is_led = turn.leads = True
        if not turn.leads:
            self._wait(turn, ctx)
        if not turn.leads:
            return
        taken: list[_Turn[_Item]] = []

        def take() -> Sequence[_Item]:
            taken.extend(self._take())
            return [each.item for each in taken]

        try:
            lead(take)
        finally:
            self._end(turn, taken)

    def _wait(self, turn: _Turn[_Item], ctx: Context) -> None:
        ctx.on_cancel(turn.news.set)
        while True:
            turn.news.wait()
            with self._lock:
                turn.news.clear()
                if turn.is_done or turn.leads:
                    return
                if ctx.cancellation.cancelled and not turn.is_taken:
                    self._waiting.remove(turn)
                    ctx.check()

    def _take(self) -> list[_Turn[_Item]]:
        with self._lock:
            taken, self._waiting = self._waiting[:_MOST], self._waiting[_MOST:]
            for each in taken:
                each.is_taken = True
            return taken

    def _end(self, own: _Turn[_Item], taken: Sequence[_Turn[_Item]]) -> None:
        """Tell the threads of items that they are dealt with, and have the next one lead."""
        with self._lock:
            if own in self._waiting:  # the leader has failed before it took any
                self._waiting.remove(own)
            for each in taken:
                each.is_done = True
                each.news.set()
            self._is_led = bool(self._waiting)
            if self._is_led:
                self._waiting[0].leads = True
                self._waiting[0].news.set()


class Groups(Generic[_Item]):
    """Groups by what they wait for. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._groups: WeakValueDictionary[Hashable, Group[_Item]] = WeakValueDictionary()

    def of(self, what: Hashable) -> Group[_Item]:
        with self._lock:
            return self._groups.setdefault(what, Group())
