"""Types as Flight SQL's drivers want to know them: by DuckDB's names, and by the numbers of ODBC
and JDBC.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

import pyarrow as pa
from pyarrow import lib

from sparkport.engine.types import opaque_name

__all__ = ["described_schema", "duckdb_type", "type_info"]


def described_schema(arrow_schema: pa.Schema) -> bytes:
    """A published Arrow schema as an IPC message, with what Flight SQL wants to know of each column
    in its metadata.
    """
    fields = [
        field.with_metadata({**(field.metadata or {}), **_description(field)})
        for field in arrow_schema
    ]
    described: bytes = pa.schema(fields, arrow_schema.metadata).serialize().to_pybytes()
    return described


def _description(field: pa.Field) -> dict[bytes, bytes]:
    metadata = field.metadata or {}
    described = {b"ARROW:FLIGHT:SQL:TYPE_NAME": duckdb_type(field).encode()}
    if comment := metadata.get(b"comment"):
        described[b"ARROW:FLIGHT:SQL:REMARKS"] = comment
    return described


def duckdb_type(field: pa.Field) -> str:
    """The type that DuckDB shows for a published column (airport §13.2)."""
    if (field.metadata or {}).get(b"ARROW:extension:name") == b"geoarrow.wkb":
        return "GEOMETRY"
    return _named(field.type)


_NAMES: Mapping[int, str] = {
    lib.Type_NA: '"NULL"',
    lib.Type_BOOL: "BOOLEAN",
    lib.Type_INT8: "TINYINT",
    lib.Type_INT16: "SMALLINT",
    lib.Type_INT32: "INTEGER",
    lib.Type_INT64: "BIGINT",
    lib.Type_UINT8: "UTINYINT",
    lib.Type_UINT16: "USMALLINT",
    lib.Type_UINT32: "UINTEGER",
    lib.Type_UINT64: "UBIGINT",
    lib.Type_FLOAT: "FLOAT",
    lib.Type_DOUBLE: "DOUBLE",
    lib.Type_DATE32: "DATE",
    lib.Type_DATE64: "DATE",
    lib.Type_TIME32: "TIME",
    **dict.fromkeys((lib.Type_STRING, lib.Type_LARGE_STRING, lib.Type_STRING_VIEW), "VARCHAR"),
    **dict.fromkeys((lib.Type_BINARY, lib.Type_LARGE_BINARY, lib.Type_BINARY_VIEW), "BLOB"),
    lib.Type_FIXED_SIZE_BINARY: "BLOB",
    **dict.fromkeys((lib.Type_DURATION, lib.Type_INTERVAL_MONTHS), "INTERVAL"),
    **dict.fromkeys((lib.Type_INTERVAL_DAY_TIME, lib.Type_INTERVAL_MONTH_DAY_NANO), "INTERVAL"),
}
_TIMESTAMPS = {"s": "TIMESTAMP_S", "ms": "TIMESTAMP_MS", "us": "TIMESTAMP", "ns": "TIMESTAMP_NS"}
_ZONED = "TIMESTAMP WITH TIME ZONE"
_EXTENSIONS = {"arrow.uuid": "UUID", "arrow.bool8": "BOOLEAN", "arrow.json": "JSON"}
_OPAQUE = {
    "hugeint": "HUGEINT",
    "uhugeint": "UHUGEINT",
    "time_tz": "TIME WITH TIME ZONE",
    "bit": "BIT",
    "bignum": "BIGNUM",
}


def _named(data_type: pa.DataType) -> str:
    if isinstance(data_type, pa.BaseExtensionType):
        known = _OPAQUE.get(opaque_name(data_type) or "") or _EXTENSIONS.get(
            data_type.extension_name
        )
        return known or _named(data_type.storage_type)
    match data_type.id:
        case lib.Type_TIME64:
            return "TIME_NS" if data_type.unit == "ns" else "TIME"
        case lib.Type_TIMESTAMP:
            return _TIMESTAMPS[data_type.unit] if data_type.tz is None else _ZONED
        case lib.Type_DECIMAL32 | lib.Type_DECIMAL64 | lib.Type_DECIMAL128:
            return f"DECIMAL({data_type.precision},{data_type.scale})"
        case lib.Type_LIST | lib.Type_LARGE_LIST | lib.Type_LIST_VIEW | lib.Type_LARGE_LIST_VIEW:
            return f"{duckdb_type(data_type.value_field)}[]"
        case lib.Type_FIXED_SIZE_LIST:
            return f"{duckdb_type(data_type.value_field)}[{data_type.list_size}]"
        case lib.Type_MAP:
            return f"MAP({duckdb_type(data_type.key_field)}, {duckdb_type(data_type.item_field)})"
        case lib.Type_STRUCT | lib.Type_SPARSE_UNION:
            members = (data_type.field(index) for index in range(data_type.num_fields))
            listed = ", ".join(
                f"{_quoted(member.name)} {duckdb_type(member)}" for member in members
            )
            return f"{'STRUCT' if data_type.id == lib.Type_STRUCT else 'UNION'}({listed})"
        case _:
            return _NAMES.get(data_type.id, str(data_type).upper())


def _quoted(name: str) -> str:
    if re.fullmatch("[a-z_][a-z0-9_]*", name):
        return name
    return '"{}"'.format(name.replace('"', '""'))


@cache
def type_info() -> tuple[Mapping[str, Any], ...]:
    """DuckDB's types, as rows of the answer to CommandGetXdbcTypeInfo, in its order."""
    return tuple(sorted(_TYPES, key=lambda row: (row["data_type"], row["type_name"])))


def _type(
    name: str, number: int, size: int | None = None, *, quote: str | None = None, **others: Any
) -> dict[str, Any]:
    return {
        "type_name": name,
        "data_type": number,
        "column_size": size,
        "literal_prefix": quote,
        "literal_suffix": quote,
        "nullable": 1,
        "case_sensitive": False,
        "searchable": 3,
        "fixed_prec_scale": False,
        "local_type_name": name,
        "sql_data_type": number,
        **others,
    }


def _integer(name: str, number: int, digits: int, *, unsigned: bool = False) -> dict[str, Any]:
    exact: dict[str, Any] = {
        "minimum_scale": 0,
        "maximum_scale": 0,
        "num_prec_radix": 10,
        "auto_increment": False,
    }
    return _type(name, number, digits, unsigned_attribute=unsigned, **exact)


def _approximate(name: str, number: int, bits: int) -> dict[str, Any]:
    return _type(
        name, number, bits, unsigned_attribute=False, num_prec_radix=2, auto_increment=False
    )


def _moment(name: str, number: int, size: int, subcode: int, scale: int = 0) -> dict[str, Any]:
    """A date or a time; `size` is that of its text, `scale` the digits after the seconds."""
    scales = {"minimum_scale": scale, "maximum_scale": scale}
    return _type(name, number, size, quote="'", sql_data_type=9, datetime_subcode=subcode) | scales


_TYPES = (
    _type("BOOLEAN", -7, 1),
    _integer("TINYINT", -6, 3),
    _integer("UTINYINT", -6, 3, unsigned=True),
    _integer("BIGINT", -5, 19),
    _integer("UBIGINT", -5, 20, unsigned=True),
    _type("BLOB", -3, quote="'", literal_suffix="'::BLOB"),
    *(
        _type(name, 0)
        for name in ("ARRAY", "BIGNUM", "BIT", "GEOMETRY", "LIST", "MAP", "STRUCT", "UNION")
    ),
    _type("UUID", 1, 36, quote="'"),
    _integer("HUGEINT", 2, 39),
    _integer("UHUGEINT", 2, 39, unsigned=True),
    _integer("DECIMAL", 3, 38) | {"create_params": ["precision", "scale"], "maximum_scale": 38},
    _integer("INTEGER", 4, 10),
    _integer("UINTEGER", 4, 10, unsigned=True),
    _integer("SMALLINT", 5, 5),
    _integer("USMALLINT", 5, 5, unsigned=True),
    _approximate("FLOAT", 7, 24),
    _approximate("DOUBLE", 8, 53),
    _type("INTERVAL", 10, quote="'", datetime_subcode=0),
    _type("JSON", 12, quote="'", case_sensitive=True),
    _type("VARCHAR", 12, quote="'", case_sensitive=True),
    _moment("DATE", 91, 10, 1),
    _moment("TIME", 92, 15, 2, 6),
    _moment("TIME_NS", 92, 18, 2, 9),
    _moment("TIME WITH TIME ZONE", 92, 21, 4, 6),
    _moment("TIMESTAMP", 93, 26, 3, 6),
    _moment("TIMESTAMP_S", 93, 19, 3),
    _moment("TIMESTAMP_MS", 93, 23, 3, 3),
    _moment("TIMESTAMP_NS", 93, 29, 3, 9),
    _moment(_ZONED, 93, 32, 5, 6),
)
