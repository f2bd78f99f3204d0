"""Request bodies, byte for byte as the client packs them (airport §1.3, §4, §5.2)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import msgpack

__all__ = [
    "NO_COLUMN",
    "ROWID",
    "endpoints",
    "in_out_parameters",
    "no_filter",
    "pack",
    "table_function_flight_info",
]

ROWID = 2**64 - 1
"""The column id of the row id (airport §5.2)."""
NO_COLUMN = 2**64 - 2


def pack(fields: Mapping[str, Any] | Sequence[tuple[str, Any]]) -> bytes:
    """Pack a map in the order given, with bytes as MessagePack `str`, as C++ does (trap T1).

    A sequence of pairs may hold a key twice, as one of the client's messages does (trap T37).
    """
    packer = msgpack.Packer(use_bin_type=True, unicode_errors="surrogateescape")
    pairs = list(fields.items() if isinstance(fields, Mapping) else fields)
    packed: bytes = packer.pack_map_pairs([(key, _as_str(value)) for key, value in pairs])
    return packed


def endpoints(
    descriptor: bytes,
    json_filters: str,
    column_ids: Sequence[int],
    at: tuple[str, str],
    function_parameters: bytes = b"",
) -> bytes:
    return pack(
        {
            "descriptor": descriptor,
            "parameters": {
                "json_filters": json_filters,
                "column_ids": list(column_ids),
                "table_function_parameters": function_parameters,
                "table_function_input_schema": "",
                "at_unit": at[0],
                "at_value": at[1],
            },
        }
    )


def table_function_flight_info(
    descriptor: bytes, parameters: bytes, table_input_schema: bytes
) -> bytes:
    """Pack the request; functions have no time travel, so both values are empty (airport §4.7)."""
    return pack(
        {
            "descriptor": descriptor,
            "parameters": parameters,
            "table_input_schema": table_input_schema,
            "at_unit": "",
            "at_value": "",
        }
    )


def in_out_parameters(json_filters: str, parameters: bytes) -> bytes:
    """Pack the map that opens an in/out exchange, where columns are never chosen (airport §9.3)."""
    return pack(
        {
            "json_filters": json_filters,
            "column_ids": [],
            "parameters": parameters,
            "at_unit": "",
            "at_value": "",
        }
    )


def no_filter(binding_names: Sequence[str]) -> str:
    """Return the filter JSON of a scan without a filter (airport §6.2)."""
    return json_text({"filters": [], "column_binding_names_by_index": list(binding_names)})


def json_text(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _as_str(value: Any) -> Any:
    match value:
        case bytes():
            return value.decode("utf-8", "surrogateescape")
        case Mapping():
            return {key: _as_str(element) for key, element in value.items()}
        case list() | tuple():
            return [_as_str(element) for element in value]
        case _:
            return value
