"""The log: plain lines, or JSON, each with the trace id and the principal of the request that it belongs to."""

from __future__ import annotations

import json
import logging
import sys
from contextvars import ContextVar
from datetime import datetime, timezone
from typing import TextIO

from sparkport.errors import BadRequest
from sparkport.service.activity import Work

__all__ = ["FORMATS", "REQUEST", "JsonFormatter", "configure_logging"]

FORMATS = ("text", "json")
_TEXT = "%(asctime)s %(levelname)s %(name)s: %(message)s"

REQUEST: ContextVar[Work | None] = ContextVar("sparkport_request", default=None)
"""The call that the present thread serves. gRPC runs each call in a context of its own, so nobody has to reset it."""


def configure_logging(level: int, log_format: str = "text", stream: TextIO | None = None) -> None:
    """Send the log of the whole process to a stream, standard error unless told otherwise, in one of `FORMATS`.

    Raises: BadRequest for a format that does not exist.
    """
    if log_format not in FORMATS:
        raise BadRequest(f"the log format must be {' or '.join(FORMATS)}, not {log_format!r}")
    output = logging.StreamHandler(stream or sys.stderr)
    output.setFormatter(JsonFormatter() if log_format == "json" else logging.Formatter(_TEXT))
    logging.basicConfig(level=level, handlers=[output], force=True)


class JsonFormatter(logging.Formatter):
    """One JSON object in a line."""

    def format(self, record: logging.LogRecord) -> str:
        work = REQUEST.get()
        entry: dict[str, str | None] = {
            "ts": datetime.fromtimestamp(record.created, timezone.utc).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        # Threads that work for a request, Spark's for instance, hand it to the logger themselves.
        trace_id = getattr(record, "trace_id", None) or (work.trace_id if work is not None else None)
        principal = getattr(record, "principal", None) or (work.principal if work is not None else None)
        if trace_id:
            entry["trace_id"] = str(trace_id)
        if principal:
            entry["principal"] = str(principal)
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry)
