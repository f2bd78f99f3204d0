"""Metadata that this version cannot read, told apart from what Iceberg in the JVM still can.

Iceberg in the JVM tries for minutes to read metadata that it does not know, so it is not asked.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from sparkport.errors import PreconditionFailed
from sparkport.spark.iceberg.identifiers import Identifier

__all__ = ["expect_known"]

_NEWEST = 4
"""The newest version of the format that our Iceberg reads."""
_KNOWN = re.compile(
    r"boolean|int|long|float|double|date|time|timestamp|timestamptz|timestamp_ns|timestamptz_ns"
    r"|string|uuid|binary|variant|unknown|decimal *\(.*\)|fixed\[.*\]|(geometry|geography)(\(.*\))?"
)


def expect_known(identifier: Identifier, metadata: dict[str, Any]) -> None:
    """Raises: PreconditionFailed for metadata that nothing here can read."""
    version = metadata.get("format-version")
    if isinstance(version, int) and version > _NEWEST:
        raise PreconditionFailed(
            f"table {identifier} has version {version} of Iceberg's format, and versions up to "
            f"{_NEWEST} are known here: update Sparkport"
        )
    for schema in metadata.get("schemas") or [metadata.get("schema")]:
        for column, kind in _types(schema):
            if not _KNOWN.fullmatch(kind):
                raise PreconditionFailed(
                    f"column {column} of table {identifier} has the type {kind}, which is not "
                    "known here: update Sparkport"
                )


def _types(kind: Any, column: str = "") -> Iterator[tuple[str, str]]:
    """The primitive types inside of a type, with the columns that they are in."""
    if isinstance(kind, str):
        yield column, kind
    elif isinstance(kind, dict):
        for field in kind.get("fields") or ():
            yield from _types(field.get("type"), column or str(field.get("name")))
        for part in ("element", "key", "value"):
            yield from _types(kind.get(part), column)
