"""Where calls wait whose headers do not identify their caller, until their first message arrives.

gRPC reads a whole message, of any size that the server allows, before this code sees a byte of it.
So only a few are read at once, which bounds the memory that unknown callers can take. A caller that
has something to show sends it along with the headers. So a caller that keeps others waiting is cut
off soon.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

from sparkport.errors import BadRequest, LimitExceeded

__all__ = ["LONGEST_SECONDS", "Doorstep", "DoorstepPlace"]

LONGEST_SECONDS = 10.0
"""For the first message to arrive, while no other call waits."""
_PATIENCE_SECONDS = 0.5
"""For the first message to arrive, while other calls wait."""
_LARGEST_MESSAGE = 1024 * 1024

_monotonic = time.monotonic


class Doorstep:
    """Has room for a limited number of calls, and reads fewer of them at once. Thread-safe."""

    def __init__(self, room: int, at_once: int) -> None:
        self._room = room
        self._at_once = at_once
        self._changed = threading.Condition()
        self._places: set[DoorstepPlace] = set()
        self._reading: dict[DoorstepPlace, None] = {}
        """In the order in which their reading has begun."""

    def enter(self) -> DoorstepPlace | None:
        """Return a place, which must be left; None when there is no room."""
        with self._changed:
            if len(self._places) >= self._room:
                return None
            place = DoorstepPlace(self)
            self._places.add(place)
            return place

    @property
    def occupied(self) -> int:
        """The number of calls that wait here."""
        with self._changed:
            return len(self._places)

    def cut_off_late(self, *, stood_still: bool = False) -> None:
        """End the calls whose time is over.

        After the whole process `stood_still`, their time begins anew.
        """
        now = _monotonic()
        with self._changed:
            if stood_still:
                for place in self._reading:
                    place.since = now
            late = [place for place in self._reading if now - place.since > LONGEST_SECONDS]
            for place in late:
                self._remove(place)
        for place in late:
            place.cut(f"the caller has not said who it is for {LONGEST_SECONDS:g} s")

    def begin(self, place: DoorstepPlace) -> None:
        """Wait until it is a call's turn to be read."""
        with self._changed:
            while len(self._reading) >= self._at_once:
                oldest = next(iter(self._reading))
                left = oldest.since + _PATIENCE_SECONDS - _monotonic()
                if left > 0:
                    self._changed.wait(left)
                else:
                    self._remove(oldest)
                    oldest.cut("the caller has not said who it is, and others wait to do so")
            place.since = _monotonic()
            self._reading[place] = None

    def leave(self, place: DoorstepPlace) -> None:
        with self._changed:
            self._remove(place)

    def _remove(self, place: DoorstepPlace) -> None:
        self._places.discard(place)
        self._reading.pop(place, None)
        self._changed.notify_all()


class DoorstepPlace:
    """The place of a call. Used by the thread that serves the call."""

    __slots__ = ("_doorstep", "cut", "since")

    def __init__(self, doorstep: Doorstep) -> None:
        self._doorstep = doorstep
        self.since = 0.0
        self.cut: Callable[[str], object] = lambda _reason: None

    def first_message(self, messages: Iterator[bytes], cut: Callable[[str], object]) -> bytes:
        """Receive the first message and leave the place.

        `cut` ends the call from another thread, for a given reason.

        Raises: BadRequest when there is no message; LimitExceeded when it is too large; what
        `messages` raises.
        """
        self.cut = cut
        self._doorstep.begin(self)
        try:
            message = next(messages, None)
        finally:
            self.leave()
        if message is None:
            raise BadRequest("the call has no message")
        if len(message) > _LARGEST_MESSAGE:
            raise LimitExceeded(
                f"the message has {len(message)} bytes, and {_LARGEST_MESSAGE} are all that is "
                "read of a caller who has not said who it is: send the token with the call"
            )
        return message

    def leave(self) -> None:
        """Leave the place. Leaving it again does nothing."""
        self._doorstep.leave(self)
