"""Errors as gRPC statuses, in the form that the client shows best (airport §14)."""

from __future__ import annotations

from dataclasses import dataclass

import msgpack

from sparkport.errors import SparkportError

__all__ = ["Status", "internal_status", "status_of"]

_MAX_MESSAGE = 1500
"""Bytes of a message. It travels in a trailer, percent-encoded, and clients refuse trailers over 8
KiB.
"""


@dataclass(frozen=True, slots=True)
class Status:
    """A gRPC code by name, a message, and trailers."""

    code: str
    message: str
    trailers: tuple[tuple[str, str | bytes], ...] = ()


def status_of(error: SparkportError, *, from_duckdb: bool = True, action: bool = False) -> Status:
    """The status of one of our errors; its class attributes are looked up along the MRO.

    The exception that DuckDB should raise is left out for an action, where the client does not look
    for it and would take the first trailer for a reason to try again for three seconds (airport
    §4.1, §14.1). Other clients would lose sight of the code by it, so they are told only what no
    code says.
    """
    message = _readable(error.message)
    trailers: tuple[tuple[str, str | bytes], ...] = ()
    exception = error.duckdb_exception
    if (
        exception is not None
        and not action
        and (from_duckdb or exception != "InvalidInputException")
    ):
        # The second trailer is ignored without the first, which says "IOError" (airport §14.3).
        extra = msgpack.packb({"exception_type": exception, "message": message})
        trailers = (("x-arrow-status", "5"), ("grpc-status-details-bin", extra))
    return Status(error.code, message, trailers)


def internal_status(trace_id: str, *, retried: bool) -> Status:
    """The status of an error nobody foresaw: INTERNAL, but UNKNOWN where DuckDB would retry that
    for three seconds (airport §14.1).
    """
    return Status(
        "UNKNOWN" if retried else "INTERNAL",
        f"internal error; the server's log has the details under trace id {trace_id}",
    )


_CONTROL = {
    code: "\N{REPLACEMENT CHARACTER}"
    for code in (*range(0x20), *range(0x7F, 0xA0))
    if chr(code) not in "\n\t"
}
"""Names in messages come from clients, and must not steer the terminal on which somebody reads
them.
"""


def _readable(message: str) -> str:
    encoded = message.translate(_CONTROL).encode(errors="replace")
    if len(encoded) <= _MAX_MESSAGE:
        return encoded.decode()
    return encoded[:_MAX_MESSAGE].decode(errors="ignore") + " …"
