"""Properties for files that a catalog gives out with a table, credentials among them, for a while.

They are renewed a few minutes before they expire, by one thread; others go on with the old ones as
long as these are valid.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sparkport.errors import SparkportError
from sparkport.spark.iceberg.identifiers import Identifier

__all__ = ["VendedProperties"]

_FILES = ("s3.", "client.", "gcs.", "adls.")
"""What the names of properties for files begin with."""
_EXPIRE = (
    "s3.session-token-expires-at-ms",
    "gcs.oauth2.token-expires-at",
    "adls.sas-token-expires-at-ms.",
)
"""Properties that say until when credentials are valid, in milliseconds since 1970."""
_SECRETS = ("s3.session-token", "gcs.oauth2.token", "adls.sas-token.")
_UNTOLD = 600.0
"""For how many seconds credentials are used of which nothing says until when they are valid."""
_MARGIN = 300.0
"""How many seconds before their end credentials are renewed; half of their life, if it is short."""


@dataclass(frozen=True, slots=True)
class _Vended:
    location: str
    shared: Mapping[str, str] = field(repr=False)
    """Without what is vended for parts of the store."""
    properties: Mapping[str, str] = field(repr=False)
    renewed_at: float
    """Unix seconds, as the two below."""
    expires_at: float


class VendedProperties:
    """What is vended for the files of tables. Thread-safe."""

    def __init__(self, renew: Callable[[Identifier], None]) -> None:
        """`renew` asks the catalog, and calls `learn` or `relearn` with what it says."""
        self._renew = renew
        self._lock = threading.Lock()
        self._known: dict[Identifier, _Vended] = {}
        self._locks: dict[Identifier, threading.Lock] = {}

    def knows(self, identifier: Identifier) -> bool:
        """Whether anything was learned of a table."""
        return identifier in self._known

    def learn(
        self,
        identifier: Identifier,
        location: str,
        config: Mapping[str, str],
        credentials: Iterable[Mapping[str, Any]],
    ) -> None:
        """Note what was vended for a table at a location: for all files, and by prefixes."""
        now = time.time()
        shared = {key: str(each) for key, each in config.items() if key.startswith(_FILES)}
        fitting = [each for each in credentials if location.startswith(str(each.get("prefix", "")))]
        best = max(fitting, key=lambda each: len(str(each.get("prefix", ""))), default={})
        own = {str(key): str(each) for key, each in (best.get("config") or {}).items()}
        properties = {**shared, **own}
        expires_at = _end(properties, now)
        renewed_at = expires_at - min(_MARGIN, (expires_at - now) / 2)
        self._known[identifier] = _Vended(location, shared, properties, renewed_at, expires_at)

    def relearn(self, identifier: Identifier, credentials: Iterable[Mapping[str, Any]]) -> None:
        """Note new credentials of a table that is known."""
        known = self._known[identifier]
        self.learn(identifier, known.location, known.shared, credentials)

    def forget(self, identifier: Identifier) -> None:
        """Forget a table that is gone."""
        self._known.pop(identifier, None)

    def current(self, identifier: Identifier) -> Mapping[str, str]:
        """Properties that are valid now. Raises: what `renew` raises when there are none."""
        known = self._known.get(identifier)
        now = time.time()
        if known is not None and now < known.renewed_at:
            return known.properties
        is_valid = known is not None and now < known.expires_at
        with self._lock:
            lock = self._locks.setdefault(identifier, threading.Lock())
        if lock.acquire(blocking=not is_valid):
            try:
                if self._known.get(identifier) is known:
                    self._renew(identifier)
            except SparkportError:
                if not is_valid:
                    raise
            finally:
                lock.release()
        latest = self._known.get(identifier)
        return {} if latest is None else latest.properties


def _end(properties: Mapping[str, str], now: float) -> float:
    """When credentials expire."""
    told = [
        float(each) / 1000
        for key, each in properties.items()
        if key.startswith(_EXPIRE) and each.isdigit()
    ]
    if told:
        return min(told)
    return now + _UNTOLD if any(key.startswith(_SECRETS) for key in properties) else float("inf")
