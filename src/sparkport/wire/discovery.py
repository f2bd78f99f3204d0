"""Discovery, in two encodings: the contracts' actions (airport §15.3) and Flight SQL's commands.

Both share the requests and the Arrow schemas of the answers, which are here. The bodies of the
actions are here too; `flight_sql` decodes the commands.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

import pyarrow as pa
import zstandard

from sparkport.errors import BadRequest
from sparkport.wire.packing import Fields, unpack_json, unpack_map

__all__ = [
    "CATALOGS",
    "SCHEMAS",
    "TABLES",
    "TABLES_WITH_SCHEMA",
    "TABLE_TYPES",
    "DiscoveryRequest",
    "decode_discovery",
    "encode_discovery",
]

# As FlightSql.proto documents them, nullability included: ADBC's driver refuses any difference.
_CATALOG = pa.field("catalog_name", pa.string())
_SCHEMA = pa.field("db_schema_name", pa.string())
_TABLE_TYPE = pa.field("table_type", pa.string(), nullable=False)
CATALOGS = pa.schema([_CATALOG.with_nullable(False)])
SCHEMAS = pa.schema([_CATALOG, _SCHEMA.with_nullable(False)])
TABLES = pa.schema(
    [_CATALOG, _SCHEMA, pa.field("table_name", pa.string(), nullable=False), _TABLE_TYPE]
)
TABLES_WITH_SCHEMA = TABLES.append(pa.field("table_schema", pa.binary(), nullable=False))
TABLE_TYPES = pa.schema([_TABLE_TYPE])

_LONGEST_PATTERN = 10_000
"""Characters. A pattern is tried on every name, so a long one would cost the server too much."""


@dataclass(frozen=True, slots=True)
class DiscoveryRequest:
    """Which objects are wanted; None means all. Patterns are those of SQL's LIKE, `%` and `_`."""

    catalog: str | None = None
    """The exact name of a catalog."""
    schema_pattern: str | None = None
    table_pattern: str | None = None
    table_types: tuple[str, ...] = ()
    """Empty means all types."""
    include_schema: bool = False

    def __post_init__(self) -> None:
        if max(len(self.schema_pattern or ""), len(self.table_pattern or "")) > _LONGEST_PATTERN:
            raise BadRequest(f"a filter pattern is longer than {_LONGEST_PATTERN} characters")

    def wants_schema(self, name: str) -> bool:
        return self.schema_pattern is None or _like(self.schema_pattern, name)

    def wants_table(self, name: str) -> bool:
        return self.table_pattern is None or _like(self.table_pattern, name)

    def wants_type(self, table_type: str) -> bool:
        return not self.table_types or table_type in self.table_types


def decode_discovery(body: bytes) -> DiscoveryRequest:
    """Decode an empty, JSON or MessagePack body: the contracts do not name the encoding.

    Raises: BadRequest.
    """
    text = body.lstrip()
    what = "discovery"
    if not text:
        return DiscoveryRequest()
    fields = Fields((unpack_json if text.startswith(b"{") else unpack_map)(body, what), what)
    return DiscoveryRequest(
        fields.optional_text("catalog", "catalog_name"),
        fields.optional_text("db_schema_filter_pattern", "schema_filter_pattern"),
        fields.optional_text("table_name_filter_pattern"),
        fields.texts("table_types"),
        fields.flag("include_schema"),
    )


def encode_discovery(arrow_schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> bytes:
    """Encode an Arrow IPC stream in a Zstandard frame; the contracts say no more about it."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, arrow_schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return zstandard.ZstdCompressor(level=3).compress(sink.getvalue().to_pybytes())


def _like(pattern: str, name: str) -> bool:
    """Match a LIKE pattern piece by piece, each at its first fit.

    As a single regular expression, a pattern of many `%` could take forever.
    """
    first, *others = _pieces(pattern)
    if not others:
        return first.fullmatch(name) is not None
    found = first.match(name)
    for piece in others[:-1]:
        if found is None:
            return False
        found = piece.search(name, found.end())
    # What comes after the last `%` is as long as its text, since each `_` stands for one character.
    start = len(name) - len(pattern.rpartition("%")[2])
    return (
        found is not None and start >= found.end() and others[-1].fullmatch(name, start) is not None
    )


@lru_cache(maxsize=64)
def _pieces(pattern: str) -> tuple[re.Pattern[str], ...]:
    """Compile the texts between the `%` of a pattern."""
    texts = (
        "".join("." if each == "_" else re.escape(each) for each in piece)
        for piece in pattern.split("%")
    )
    return tuple(re.compile(text, re.DOTALL) for text in texts)
