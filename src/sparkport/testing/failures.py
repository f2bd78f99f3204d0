"""What can go wrong for a DuckDB client: the server refuses, breaks the protocol, or never answers.

ClientFailure
├── ServerError          the server answered with an error; the user sees it
├── ClientSideError      DuckDB itself refuses, for instance a NULL in a NOT NULL column
└── ProtocolViolation    the reply would crash, hang or confuse the real client
    └── ClientHang       no reply in time: the real client has no timeout and would wait for ever
"""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["ClientFailure", "ClientHang", "ClientSideError", "ProtocolViolation", "ServerError"]


class ClientFailure(Exception):
    """Base of everything that a statement of the simulated client can raise."""


class ClientSideError(ClientFailure):
    """DuckDB would refuse the statement, or abandon it halfway, without a fault of the server."""


class ProtocolViolation(ClientFailure):
    """A reply on which the real client would crash, hang, fail or misread.

    `trap` names the entry of airport §16 ("T4") or the section ("§1.3") that the reply breaks.
    """

    def __init__(self, trap: str, message: str) -> None:
        super().__init__(f"{trap}: {message}")
        self.trap = trap
        self.message = message

    def __reduce__(self) -> tuple[type[ProtocolViolation], tuple[str, str]]:
        return type(self), (self.trap, self.message)


class ClientHang(ProtocolViolation):
    """The server was silent until the simulation gave up. The real client never gives up."""


@dataclass(eq=False)
class ServerError(ClientFailure):
    """The server's own error, as far as the client can tell.

    `code` is the gRPC status code. `message` is the server's text without what Arrow puts around
    it. `duckdb_exception` is the typed exception that DuckDB raises (airport §14.3), None for its
    plain IO Error. `shown` is the text that the user reads. `stalls` says that the real client
    would have spent three seconds in useless retries first (trap T13).
    """

    code: str
    message: str
    duckdb_exception: str | None = None
    shown: str = ""
    stalls: bool = False
    extra_info: bytes = field(default=b"", repr=False)

    def __post_init__(self) -> None:
        super().__init__(self.code, self.message)

    def __str__(self) -> str:
        return f"{self.code}: {self.shown or self.message}"
