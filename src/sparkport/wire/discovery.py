"""Flight-SQL-like discovery actions of the contracts: their filters, and their answers (airport §15.3)."""

from __future__ import annotations

import re
from dataclasses import dataclass

import pyarrow as pa
import zstandard

from sparkport.wire.packing import Fields, unpack_json, unpack_map

__all__ = ["DiscoveryRequest", "decode_discovery", "encode_discovery"]


@dataclass(frozen=True, slots=True)
class DiscoveryRequest:
    """Which objects are wanted; None means all. Patterns are those of SQL's LIKE, `%` and `_`."""

    catalog: str | None = None
    schema_pattern: str | None = None
    table_pattern: str | None = None
    table_types: tuple[str, ...] = ()
    include_schema: bool = False

    def wants_schema(self, name: str) -> bool:
        return _like(self.schema_pattern, name)

    def wants_table(self, name: str) -> bool:
        return _like(self.table_pattern, name)


def decode_discovery(body: bytes) -> DiscoveryRequest:
    """The body may be empty, JSON or MessagePack: the contracts name the filters, not their encoding. Raises: BadRequest."""
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


def encode_discovery(table: pa.Table) -> bytes:
    """An Arrow IPC stream in one Zstandard frame; the contracts say no more about the framing."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return zstandard.ZstdCompressor(level=3).compress(sink.getvalue().to_pybytes())


def _like(pattern: str | None, name: str) -> bool:
    if pattern is None:
        return True
    parts = (".*" if each == "%" else "." if each == "_" else re.escape(each) for each in pattern)
    return re.fullmatch("".join(parts), name, re.DOTALL) is not None
