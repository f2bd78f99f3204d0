"""Timestamps as AT (TIMESTAMP => …) has them."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone

from sparkport.errors import BadRequest

__all__ = ["parse_timestamp"]

_TIMESTAMP = re.compile(
    r"(?P<date>[0-9]{4}-[0-9]{1,2}-[0-9]{1,2})"
    r"(?:[T ](?P<hour>[0-9]{1,2}):(?P<minute>[0-9]{2})"
    r"(?::(?P<second>[0-9]{2})(?:\.(?P<fraction>[0-9]{1,9}))?)?)?"
    r"\s*(?P<zone>Z|UTC|[+-][0-9]{1,2}(?::?[0-9]{2}(?::?[0-9]{2})?)?)?",
    re.IGNORECASE,
)


def parse_timestamp(text: str) -> datetime:
    """Read both notations of airport §15.3, and a bare date; the default zone is UTC.

    Raises: BadRequest.
    """
    match = _TIMESTAMP.fullmatch(text.strip())
    try:
        if match is None:
            raise ValueError(text)
        year, month, day = (int(part) for part in match["date"].split("-"))
        microsecond = int((match["fraction"] or "0")[:6].ljust(6, "0"))
        hour, minute, second = (int(match[part] or 0) for part in ("hour", "minute", "second"))
        return datetime(
            year, month, day, hour, minute, second, microsecond, tzinfo=_zone(match["zone"])
        )
    except (ValueError, OverflowError) as error:
        raise BadRequest(
            f"the timestamp {text!r} cannot be read; write it like '2024-01-15 10:30:00+00'"
        ) from error


def _zone(text: str | None) -> timezone:
    if text is None or text.upper() in ("Z", "UTC"):
        return timezone.utc
    digits = text[1:].split(":") if ":" in text else re.findall("..?", text[1:])
    hours, minutes, seconds = (int(part) for part in (*digits, "0", "0")[:3])
    offset = timedelta(hours=hours, minutes=minutes, seconds=seconds)
    return timezone(-offset if text[0] == "-" else offset)
