"""The log: plain lines or JSON, each with the trace id and the principal of its request.

Clients choose many of the names and messages. Here, where lines are made, the server ensures that
none of them can end a line, look like another line, or control the terminal that shows it.
"""

from __future__ import annotations

import json
import logging
import sys
from contextvars import ContextVar
from datetime import datetime, timezone
from typing import TextIO

from sparkport.errors import BadRequest
from sparkport.lines import one_line
from sparkport.service.activity import Work

__all__ = ["FORMATS", "REQUEST", "JsonFormatter", "TextFormatter", "configure_logging"]

FORMATS = ("text", "json")
_TEXT = "%(asctime)s %(levelname)s %(name)s: %(message)s"

REQUEST: ContextVar[Work | None] = ContextVar("sparkport_request", default=None)
"""The call of the present thread. gRPC runs each call in its own context: no reset is needed."""


def configure_logging(level: int, log_format: str = "text", stream: TextIO | None = None) -> None:
    """Send the log of the whole process to a stream, by default standard error.

    `log_format` is one of `FORMATS`. Raises: BadRequest for a format that does not exist.
    """
    if log_format not in FORMATS:
        raise BadRequest(f"the log format must be {' or '.join(FORMATS)}, not {log_format!r}")
    output = logging.StreamHandler(stream or sys.stderr)
    output.setFormatter(JsonFormatter() if log_format == "json" else TextFormatter(_TEXT))
    logging.basicConfig(level=level, handlers=[output], force=True)


class TextFormatter(logging.Formatter):
    """Writes a line for each entry; the lines of a stack trace follow, indented."""

    def format(self, record: logging.LogRecord) -> str:
        record.message = record.getMessage()
        record.asctime = self.formatTime(record, self.datefmt)
        lines = [self.formatMessage(record)]
        if record.exc_info:
            lines += _set_off(self.formatException(record.exc_info))
        if record.stack_info:
            lines += _set_off(self.formatStack(record.stack_info))
        return "\n".join(map(one_line, lines))


def _set_off(trace: str) -> list[str]:
    return [f"  | {line}" for line in trace.split("\n")]


class JsonFormatter(logging.Formatter):
    """Writes a JSON object in a line."""

    def format(self, record: logging.LogRecord) -> str:
        work = REQUEST.get()
        entry: dict[str, str | None] = {
            "ts": datetime.fromtimestamp(record.created, timezone.utc).isoformat(
                timespec="milliseconds"
            ),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        # Threads that work for a request, Spark's for instance, pass it to the logger themselves.
        trace_id = getattr(record, "trace_id", None) or (
            work.trace_id if work is not None else None
        )
        principal = getattr(record, "principal", None) or (
            work.principal if work is not None else None
        )
        if trace_id:
            entry["trace_id"] = str(trace_id)
        if principal:
            entry["principal"] = str(principal)
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry)
