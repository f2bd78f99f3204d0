"""Schemas as Iceberg in the JVM writes them, spelled as PyIceberg reads them.

The specification, and Java, write `geometry(OGC:CRS84)`. PyIceberg wants quotes inside.
"""

from __future__ import annotations

import json
import re
from typing import Any

from pyiceberg.schema import Schema

__all__ = ["loaded_schema", "respelled"]

_PLACES = re.compile(r'"(geometry|geography) *\( *([^"\'(),]+?) *(?:, *([a-z]+) *)?\)"')


def loaded_schema(text: str) -> Schema:
    """A schema from JSON. Raises: ValueError, PyIceberg's ValidationError."""
    return Schema.model_validate_json(_quoted(text))


def respelled(metadata: dict[str, Any]) -> dict[str, Any]:
    """The metadata of a table or view with other spellings in its schemas."""
    spelled = dict(metadata)
    for key in metadata.keys() & {"schema", "schemas"}:
        spelled[key] = json.loads(_quoted(json.dumps(metadata[key])))
    return spelled


def _quoted(text: str) -> str:
    return _PLACES.sub(_with_quotes, text)


def _with_quotes(found: re.Match[str]) -> str:
    kind, *arguments = found.groups()
    return f'"{kind}({", ".join(repr(each) for each in arguments if each)})"'
