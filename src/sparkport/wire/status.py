"""Errors as gRPC statuses, in the form that the client shows best (airport §14)."""

from __future__ import annotations

from dataclasses import dataclass

import msgpack

from sparkport.errors import SparkportError

__all__ = ["Status", "internal_status", "status_of"]

_MAX_MESSAGE = 1500
"""Bytes. A message travels percent-encoded in a trailer, and clients refuse trailers over 8 KiB."""


@dataclass(frozen=True, slots=True)
class Status:
    """A gRPC code by name, a message, and trailers."""

    code: str
    message: str
    trailers: tuple[tuple[str, str | bytes], ...] = ()


def status_of(error: SparkportError, *, from_duckdb: bool = True, plain: bool = False) -> Status:
    """Map an error of ours to a status; its class attributes are found along the MRO.

    The trailers of a plain status are left out. For an action, DuckDB's client does not look for
    the exception there, and would take the first trailer for a reason to retry for three seconds
    (airport §4.1, §14.1). Clients that are not made with gRPC's core expect a `google.rpc.Status`
    in the second: ADBC's driver, written in Go, would report that instead of the error. To other
    clients the trailers would hide the code, so they get them only where the exception says more
    than the code.
    """
    message = _readable(error.message)
    trailers: tuple[tuple[str, str | bytes], ...] = ()
    exception = error.duckdb_exception
    if (
        exception is not None
        and not plain
        and (from_duckdb or exception != "InvalidInputException")
    ):
        # The second trailer is ignored without the first, which says "IOError" (airport §14.3).
        extra = msgpack.packb({"exception_type": exception, "message": message})
        trailers = (("x-arrow-status", "5"), ("grpc-status-details-bin", extra))
    return Status(error.code, message, trailers)


def internal_status(trace_id: str, *, retried: bool) -> Status:
    """Return the status of an unforeseen error.

    It is INTERNAL, but UNKNOWN where DuckDB would retry INTERNAL for three seconds (airport §14.1).
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
"""Names in messages come from clients, and must not control the reader's terminal."""


def _readable(message: str) -> str:
    encoded = message.translate(_CONTROL).encode(errors="replace")
    if len(encoded) <= _MAX_MESSAGE:
        return encoded.decode()
    return encoded[:_MAX_MESSAGE].decode(errors="ignore") + " …"
