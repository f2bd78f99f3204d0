"""How much of the server may be used at once, in all and by each principal.

Strategy: a user of something holds it for the length of a block, and the counts are adjusted at
both ends of the block, so they are right on every way out of it. Over a limit a caller is refused
and told why, never made to wait: DuckDB opens the exchange of an UPDATE before the scan that feeds
it (airport §1.2, T24), and would wait for itself.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import AbstractContextManager

from sparkport.catalog import Quotas
from sparkport.catalog.quotas import HELD_BYTES, STAGED_BYTES
from sparkport.errors import LimitExceeded
from sparkport.service.settings import Limits

__all__ = [
    "ACTIONS",
    "EXCHANGES",
    "SCANS",
    "SPARK_JOBS",
    "TRANSACTIONS",
    "LimitKeeper",
    "while_holding",
]

SCANS, EXCHANGES, ACTIONS, TRANSACTIONS = "scans", "exchanges", "actions", "transactions"
SPARK_JOBS = "spark_jobs"
_COUNTED = (SCANS, EXCHANGES, ACTIONS, TRANSACTIONS, STAGED_BYTES, HELD_BYTES, SPARK_JOBS)


class LimitKeeper:
    """Counts what is in use. Thread-safe."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._most: dict[str, tuple[int, int]] = {}
        """The limits of each kind, in all and for one principal."""
        self._lock = threading.Lock()
        self._in_all: dict[str, int] = dict.fromkeys(_COUNTED, 0)
        self._of_each: dict[tuple[str, str | None], int] = {}

    def quotas(self, principal: str | None) -> Quotas:
        """The quotas of a caller; None stands for all callers without a name."""
        return _Share(self, principal)

    def snapshot(self) -> Mapping[str, int]:
        """How much is in use now, in all."""
        with self._lock:
            return {what: self._in_all[what] for what in _COUNTED}

    def of_each(self, what: str) -> Mapping[str | None, int]:
        """How much each principal uses now, without those that use nothing."""
        with self._lock:
            return {
                principal: count
                for (kind, principal), count in self._of_each.items()
                if kind == what
            }

    def take(self, principal: str | None, what: str, amount: int) -> None:
        """Count so much as in use. Raises: LimitExceeded."""
        in_all, each = self._most.get(what) or self._most.setdefault(what, self._limits_of(what))
        with self._lock:
            own, others = self._of_each.get((what, principal), 0), self._in_all.get(what, 0)
            if each and own + amount > each:
                whose = "you have" if principal is not None else "callers without a token have"
                raise LimitExceeded(_refusal(what, whose, own, each, "per_principal"))
            if in_all and others + amount > in_all:
                raise LimitExceeded(
                    _refusal(what, "all users of this server together have", others, in_all)
                )
            self._of_each[what, principal] = own + amount
            self._in_all[what] = others + amount

    def _limits_of(self, what: str) -> tuple[int, int]:
        return (
            getattr(self._limits, f"max_{what}", 0),
            getattr(self._limits, f"max_{what}_per_principal", 0),
        )

    def give_back(self, principal: str | None, what: str, amount: int) -> None:
        """Count what `take` has counted as free again."""
        with self._lock:
            self._in_all[what] -= amount
            left = self._of_each.pop((what, principal)) - amount
            if left:  # a count of zero is dropped: there may be any number of principals over time
                self._of_each[what, principal] = left


class _Held:
    """What is counted as in use from the beginning of a block to its end."""

    __slots__ = ("_amount", "_keeper", "_principal", "_what")

    def __init__(self, keeper: LimitKeeper, principal: str | None, what: str, amount: int) -> None:
        self._keeper = keeper
        self._principal = principal
        self._what = what
        self._amount = amount

    def __enter__(self) -> None:
        self._keeper.take(self._principal, self._what, self._amount)

    def __exit__(self, *_: object) -> None:
        self._keeper.give_back(self._principal, self._what, self._amount)


class _Share(Quotas):
    """The quotas of one principal."""

    __slots__ = ("_keeper", "_principal")

    def __init__(self, keeper: LimitKeeper, principal: str | None) -> None:
        self._keeper = keeper
        self._principal = principal

    def hold(self, what: str, amount: int = 1) -> AbstractContextManager[None]:
        return _Held(self._keeper, self._principal, what, amount)


_NAMES: Mapping[str, tuple[str, str]] = {
    SCANS: ("scans under way", "wait for one to end"),
    EXCHANGES: ("changes of rows and calls of functions under way", "wait for one to end"),
    ACTIONS: ("actions and listings under way", "wait for one to end"),
    TRANSACTIONS: (
        "transactions with changes that wait for a commit",
        "commit one, or roll it back",
    ),
    SPARK_JOBS: ("Spark jobs under way", "wait for one to end"),
    STAGED_BYTES: (
        "of rows in statements that have not ended",
        "change fewer rows in one statement, or wait for others to end",
    ),
    HELD_BYTES: (
        "of rows in memory, of statements that have not ended",
        "change fewer rows in one statement, or wait for others to end",
    ),
}
"""What there is too much of, and the remedy."""


def _refusal(what: str, whose: str, count: int, limit: int, scope: str = "") -> str:
    name, remedy = _NAMES.get(what, (what.replace("_", " "), "wait for one to end"))
    setting = "_".join(filter(None, ("max", what, scope)))
    if what in (STAGED_BYTES, HELD_BYTES):
        return (
            f"{whose} {_megabytes(count)} {name}, and this would make it more than the "
            f"{_megabytes(limit)} that are "
            f"allowed at once ({setting}): {remedy}"
        )
    return (
        f"{whose} {count} {name}, and {limit} are all that is allowed at once ({setting}): {remedy}"
    )


def _megabytes(count: int) -> str:
    return f"{count / 1e6:.1f} MB"


def while_holding(
    quotas: Quotas, what: str, messages: Callable[[], Iterator[bytes]]
) -> Generator[bytes, None, None]:
    """Yield messages, counted as in use until the end; nothing is counted before the first.

    Raises: LimitExceeded, and what the messages raise.
    """
    with quotas.hold(what):
        yield from messages()
