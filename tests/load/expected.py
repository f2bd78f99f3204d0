"""What a client knows about its rows, and how that compares with what is there."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TypeAlias

_SETTLED_SECONDS = 90.0
"""A statement that its client has cancelled has ended by then."""

Rows: TypeAlias = dict[int, int]
"""`n` by `id`."""


@dataclass
class Expected:
    """What is known about a client's rows in a table."""

    rows: Rows = field(default_factory=dict)
    after: Rows | None = None
    """What they are, if the statement was made that the server has taken with it."""
    perhaps: list[tuple[float, Rows]] = field(default_factory=list)
    """Rows of INSERTs that were cancelled while they were being committed, and when."""

    def compare(self, found: Rows) -> str | None:
        """What is wrong with the rows that a scan has found; None when nothing is, and some doubts
        may be settled.
        """
        rest = dict(found)
        for moment, rows in list(self.perhaps):
            there = rows.keys() & rest.keys()
            if there:
                if {key: rest[key] for key in there} != rows:
                    return f"half of a statement is there: {len(there)} of {len(rows)} rows"
                self.rows.update(rows)
                if self.after is not None:
                    self.after.update(rows)
            if there or time.monotonic() > moment + _SETTLED_SECONDS:
                self.perhaps.remove((moment, rows))
        if self.after is not None and found == self.after:
            self.rows = self.after
        self.after = None
        if found == self.rows:
            return None
        lost = sorted(self.rows.keys() - found.keys())
        strange = sorted(found.keys() - self.rows.keys())
        differing = [
            (key, self.rows[key], found[key])
            for key in self.rows.keys() & found.keys()
            if self.rows[key] != found[key]
        ]
        return (
            f"acknowledged and not there: {lost[:5]}; there and not known: {strange[:5]}; "
            f"other: {differing[:5]}"
        )
