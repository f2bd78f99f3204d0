"""From a failed Flight call to the error that DuckDB's user sees (airport §14)."""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping

from sparkport.testing.failures import ProtocolViolation, ServerError
from sparkport.testing.replies import Fields

__all__ = ["Step", "grpc_code", "server_error"]


class Step(enum.Enum):
    """Where the client noticed the error; only reads honour typed exceptions (airport §14.3)."""

    ACTION = "action"
    READ = "read"
    WRITE = "write"


# What Arrow's client puts before the text of a bare gRPC status (airport §14.1), and whether an
# action that fails with it is retried for three seconds.
_CODES: dict[str, tuple[str, bool]] = {
    "INVALID_ARGUMENT": ("Flight returned invalid argument error, with message: ", False),
    "NOT_FOUND": ("Flight returned not found error, with message: ", False),
    "ALREADY_EXISTS": ("Flight returned already exists error, with message: ", False),
    "FAILED_PRECONDITION": ("gRPC returned precondition failed error, with message: ", False),
    "UNIMPLEMENTED": ("Flight returned unimplemented error, with message: ", False),
    "UNKNOWN": ("Flight RPC failed with message: ", False),
    "RESOURCE_EXHAUSTED": ("gRPC returned resource exhausted error, with message: ", False),
    "OUT_OF_RANGE": ("gRPC returned out-of-range error, with message: ", False),
    "CANCELLED": ("Flight cancelled call, with message: ", False),
    "UNAUTHENTICATED": ("Flight returned unauthenticated error, with message: ", True),
    "PERMISSION_DENIED": ("Flight returned unauthorized error, with message: ", True),
    "INTERNAL": ("Flight returned internal error, with message: ", True),
    "UNAVAILABLE": ("Flight returned unavailable error, with message: ", True),
    "DEADLINE_EXCEEDED": ("Flight returned timeout error, with message: ", True),
    "ABORTED": ("gRPC returned aborted error, with message: ", True),
    "DATA_LOSS": ("gRPC returned data loss error, with message: ", True),
}
_IO_ERROR = "5"
"""`x-arrow-status` of Arrow's IOError, the only error that the client retries (airport §4.1)."""

_TYPED = {
    "ConstraintException": "Constraint Error",
    "PermissionException": "Permission Error",
    "InvalidInputException": "Invalid Input Error",
}

_DEBUG_CONTEXT = re.compile(r"\.? gRPC client debug context: .*", re.DOTALL)


def grpc_code(bare: str) -> str:
    """Return the status code that Arrow's text for a bare gRPC status stands for."""
    found = {code: bare.find(prefix) for code, (prefix, _) in _CODES.items()}
    # pyarrow has no exception for some statuses and puts their name first: "Already exists: Flight
    # …".
    return min(
        (code for code in found if 0 <= found[code] <= 20), key=found.__getitem__, default="UNKNOWN"
    )


def server_error(
    bare: str, trailers: Mapping[str, str | bytes], step: Step, at: str
) -> ServerError:
    """Return the error that the client makes of a status.

    `bare` is Arrow's text for the gRPC status alone, `trailers` came with it, and `at` is the
    beginning of the text that DuckDB shows.

    Raises: ProtocolViolation for a status that the client cannot show.
    """
    code = grpc_code(bare)
    prefix, stalls = _CODES[code]
    arrow_status = _text(trailers.get("x-arrow-status", ""))
    if arrow_status:
        # The client rebuilds Arrow's own status and forgets the gRPC status (airport §14.2).
        stalls = arrow_status == _IO_ERROR
        message = _text(trailers.get("x-arrow-status-message-bin", "")) or bare.partition(prefix)[2]
        detail = _text(trailers.get("x-arrow-status-detail-bin", ""))
        shown = message + (f". Detail: {detail}" if detail else "")
    else:
        message = bare.partition(prefix)[2]
        detail = ""
        shown = _DEBUG_CONTEXT.sub("", bare)
    message = _DEBUG_CONTEXT.sub("", message)
    if detail and message.endswith(f". Detail: {detail}"):
        message = message[: -len(f". Detail: {detail}")]
    if "Traceback (most recent call last)" in shown:
        raise ProtocolViolation("T14", f"{at}: the user is shown a Python traceback: {shown}")
    details = trailers.get("grpc-status-details-bin", b"")
    # Without x-arrow-status the extra info is ignored (airport §14.3).
    extra_info = details if arrow_status and isinstance(details, bytes) else b""
    error = ServerError(
        code=code,
        message=message,
        shown=f"IO Error: {at} {shown}",
        stalls=stalls and step is Step.ACTION,
        extra_info=extra_info,
    )
    if extra_info and step is Step.READ:
        _make_typed(error, at)
    return error


def _make_typed(error: ServerError, at: str) -> None:
    fields = Fields.unpack(error.extra_info, f"{at}: extra info of the error", trap="§14.3")
    kind, message = fields.text("exception_type"), fields.text("message")
    if kind not in _TYPED:
        raise ProtocolViolation(
            "§14.3", f"{at}: the client does not know the exception type {kind!r}"
        )
    error.duckdb_exception, error.message = kind, message
    error.shown = f"{_TYPED[kind]}: {message}"


def _text(value: str | bytes) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
