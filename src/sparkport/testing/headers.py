"""Request headers: which call carries which headers (airport §2)."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import pyarrow.flight as flight

from sparkport.testing.failures import ProtocolViolation
from sparkport.testing.types import Line

__all__ = [
    "PROCESS_SESSION",
    "HeaderList",
    "Headers",
    "flight_path",
    "new_trace",
    "printable_ascii",
]

HeaderList: TypeAlias = list[tuple[bytes, bytes]]

USER_AGENT = "airport/20250723"
PROCESS_SESSION = str(uuid.uuid4())
"""The session id, equal for all clients of a process (airport §2.1)."""


def new_trace() -> str:
    """Return a trace id for a scan's planning actions and DoGets, or for an exchange."""
    return str(uuid.uuid4())


def printable_ascii(text: str) -> bool:
    """Whether gRPC accepts the text in a header; if not, the DuckDB process aborts (trap T3)."""
    return text.isascii() and text.isprintable()


def flight_path(descriptor: flight.FlightDescriptor) -> str | None:
    """The value of `airport-flight-path`; None for a CMD descriptor."""
    if descriptor.descriptor_type != flight.DescriptorType.PATH:
        return None
    return "/".join(element.decode("utf-8", "surrogateescape") for element in descriptor.path)


@dataclass(frozen=True, slots=True)
class Headers:
    """Makes the headers of every call of a client, of the three kinds in airport §2.2."""

    location: str
    catalog: str
    line: Line
    session_id: str = PROCESS_SESSION
    token: str | None = None
    """The token of a secret whose scope is the location: sent with every call."""
    attach_token: str | None = None
    """The token of the ATTACH option: sent with catalog actions and DDL only (trap T12)."""
    user: Mapping[str, str] = field(default_factory=dict)
    """The headers of `airport_take_flight`."""

    def of_catalog(
        self, action: str | None = None, *, twice: bool = False, **further: str
    ) -> HeaderList:
        """Catalog actions, DDL and ListFlights: no trace, no path, no transaction."""
        return self._made(
            self.attach_token or self.token, {**self._of_attachment(), **further}, action, twice
        )

    def of_table(
        self,
        trace: str,
        descriptor: flight.FlightDescriptor | None,
        transaction: str | None,
        action: str | None = None,
        *,
        twice: bool = False,
        **further: str,
    ) -> HeaderList:
        """Planning, reading and writing of a table; the token of ATTACH is not sent."""
        values = {**self._of_attachment(), "airport-trace-id": trace, **further}
        if descriptor is not None and (path := flight_path(descriptor)) is not None:
            values["airport-flight-path"] = path
        if transaction:
            values["airport-transaction-id"] = transaction
        return self._made(self.token, values, action, twice)

    def of_call(
        self,
        action: str | None = None,
        trace: str | None = None,
        descriptor: flight.FlightDescriptor | None = None,
        **further: str,
    ) -> HeaderList:
        """SQL functions that need no ATTACH: no catalog, no transaction."""
        values = dict(further)
        if trace is not None:
            values["airport-trace-id"] = trace
        if descriptor is not None and (path := flight_path(descriptor)) is not None:
            values["airport-flight-path"] = path
        return self._made(self.token, values, action, twice=False)

    def _of_attachment(self) -> dict[str, str]:
        return {"airport-catalog": self.catalog} if self.line == "main" and self.catalog else {}

    def _made(
        self, token: str | None, values: Mapping[str, str], action: str | None, twice: bool
    ) -> HeaderList:
        made = [
            ("airport-user-agent", USER_AGENT),
            ("authority", self.location),
            ("airport-client-session-id", self.session_id),
            *((name.replace("_", "-"), value) for name, value in values.items()),
        ]
        if token:
            made.append(("authorization", f"Bearer {token}"))
        if action is not None:
            made += [("airport-action-name", action)] * (2 if twice else 1)
        return [_header(name, value) for name, value in made]


def _header(name: str, value: str) -> tuple[bytes, bytes]:
    if not printable_ascii(value):
        raise ProtocolViolation(
            "T3", f"the header {name} would be {value!r}, which gRPC refuses: DuckDB aborts"
        )
    return name.encode("ascii"), value.encode("ascii")
