"""Where calls wait whose headers do not say who makes them, until their first message has come.

gRPC has read a message, of any size that the server allows, before anybody here sees a byte of it.
So only few are read at once, which bounds the memory that strangers can take; and as who has
something to show sends it along with the headers, who keeps others waiting is cut off soon.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

from sparkport.errors import BadRequest, LimitExceeded

__all__ = ["LONGEST_SECONDS", "Doorstep", "Place"]

LONGEST_SECONDS = 10.0
"""For the first message to come, where nobody else waits."""
_PATIENCE_SECONDS = 0.5
"""The same, where others do."""
_LARGEST_MESSAGE = 1024 * 1024

_monotonic = time.monotonic


class Doorstep:
    """Has room for so many calls; of them so many are read at once. Thread-safe."""

    def __init__(self, room: int, at_once: int) -> None:
        self._room = room
        self._at_once = at_once
        self._changed = threading.Condition()
        self._places: set[Place] = set()
        self._reading: dict[Place, None] = {}
        """In the order in which they have begun."""

    def enter(self) -> Place | None:
        """A place, which must be left; None when there is no room."""
        with self._changed:
            if len(self._places) >= self._room:
                return None
            place = Place(self)
            self._places.add(place)
            return place

    @property
    def occupied(self) -> int:
        """How many calls are here now."""
        with self._changed:
            return len(self._places)

    def cut_off_late(self, *, stood_still: bool = False) -> None:
        """End the calls whose time is over; `stood_still`: all of this process did, and they begin
        anew.
        """
        now = _monotonic()
        with self._changed:
            if stood_still:
                for place in self._reading:
                    place.since = now
            late = [place for place in self._reading if now - place.since > LONGEST_SECONDS]
            for place in late:
                self._take_away(place)
        for place in late:
            place.cut(f"the caller has not said who it is for {LONGEST_SECONDS:g} s")

    def begin(self, place: Place) -> None:
        """Wait for the turn of a call to be read."""
        with self._changed:
            while len(self._reading) >= self._at_once:
                oldest = next(iter(self._reading))
                left = oldest.since + _PATIENCE_SECONDS - _monotonic()
                if left > 0:
                    self._changed.wait(left)
                else:
                    self._take_away(oldest)
                    oldest.cut("the caller has not said who it is, and others wait to do so")
            place.since = _monotonic()
            self._reading[place] = None

    def leave(self, place: Place) -> None:
        with self._changed:
            self._take_away(place)

    def _take_away(self, place: Place) -> None:
        self._places.discard(place)
        self._reading.pop(place, None)
        self._changed.notify_all()


class Place:
    """That of one call. Used by the thread that serves it."""

    __slots__ = ("_doorstep", "cut", "since")

    def __init__(self, doorstep: Doorstep) -> None:
        self._doorstep = doorstep
        self.since = 0.0
        self.cut: Callable[[str], object] = lambda _reason: None

    def first(self, messages: Iterator[bytes], cut: Callable[[str], object]) -> bytes:
        """The first message; the place is left then. `cut` ends the call from another thread, for
        the reason given.

        Raises: BadRequest when there is none; LimitExceeded for one that is too large; what the
        messages raise.
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
                f"the message has {len(message)} bytes, and {_LARGEST_MESSAGE} are all that is read of a caller who has not "
                "said who it is: send the token with the call"
            )
        return message

    def leave(self) -> None:
        """Doing so again changes nothing."""
        self._doorstep.leave(self)
