"""The one list of all types that DuckDB's client knows, a row for each (airport §13).

Strategy: a row says what a type is called, in which Arrow types its values are stored, sent and
received, which Iceberg type holds them, and what may be said about them. Everything that depends on
the type of a column asks `row_of`. A name has two rows where DuckDB shows different kinds of Arrow
values as one type, or where the lake has to store them in different ways. Parameters, such as a
scale or a zone, are those of a column's own Arrow type; a row has an example.

A new type is a row here. It also needs a pair in `leaf_encodings.LEAF_CONVERSIONS` for each other
form that a client sends it in, an entry in `catalog.filters.literals.CONSTANTS` if filters may be
pushed down, and a `Storage` in `spark.iceberg.types.stored_values` if Iceberg's type holds its
values in a way that no conversion gives.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from enum import Enum
from typing import Any

import pyarrow as pa
from pyarrow import lib

from sparkport.engine.driver_types import DriverType, approximate, exact, moment, other

__all__ = [
    "ENCODED_FORMS",
    "ICEBERG_TYPES",
    "REMEDIES",
    "ROWS",
    "TAKEN",
    "Bounds",
    "IcebergRow",
    "PythonForm",
    "TypeRow",
    "extension_form",
    "form",
    "opaque_name",
    "row_of",
    "storage_type",
]


class Bounds(Enum):
    """How the least and greatest values of a column are sent as statistics (airport §4.9)."""

    REFUSED = "there are no statistics"
    """The client has none for NULL, INTERVAL and UNION, and fails (T29).

    It fails on BIT too, and BIGNUM makes the whole DuckDB instance unusable. It takes the bounds of
    BLOB for text with escapes, so a column with a byte above 0x7E could have no upper bound.
    """
    IGNORED = "the client asks for them, and ignores them"
    UNKNOWN = "the widest there are"
    """The client orders bounds of TIMETZ by local time, then by offset, but not values."""
    SHORTENED = "text, cut to a length that the client keeps"
    EXACT = "as values of the column"


@dataclass(frozen=True, slots=True)
class PythonForm:
    """Conversions between a Python type and the storage of a type, where pyarrow has none."""

    type: type
    read: Callable[[Any], Any]
    """From a value of the storage."""
    write: Callable[[Any], Any]
    """To a value of the storage. Raises: OverflowError if the type cannot hold it."""


@dataclass(frozen=True, slots=True)
class TypeRow:
    """A type of DuckDB."""

    name: str
    """The name in DuckDB's SQL, without parameters.

    It is also the type's id in filters (airport §6.7), and the key of its literals in
    `catalog.filters.literals.CONSTANTS`.
    """
    form: str
    """The kind of values it holds, whatever the width, unit or layout.

    For an extension type it is the name of the extension.
    """
    arrow: tuple[pa.DataType, ...]
    """The Arrow types that tables store and send; a new column gets the first.

    DuckDB shows the others as the same type, while tables tell them apart. Empty for types with
    parts.
    """
    iceberg: str
    """The Iceberg type that holds the values; `ICEBERG_TYPES` has Spark's name for it.

    Empty for types with parts. A type tag beside it tells this type where Iceberg's own would show
    as another (decision 0008).
    """
    driver: DriverType | None = None
    """The answer for Flight SQL; None if there is none, or if another row has it."""
    _: KW_ONLY
    layouts: tuple[int, ...] = ()
    """Ids of further Arrow types that are accepted, and treated as the first.

    Clients send them under `arrow_large_buffer_size`, `arrow_output_version` and the settings for
    views.
    """
    default: pa.DataType | None = None
    """The type that a client sends by default, where it is not the first of `arrow`."""
    lossless: pa.DataType | None = None
    """The type that a client sends under `arrow_lossless_conversion`, where it is not the first."""
    ordered: bool = True
    """Whether stored values are ordered as DuckDB orders these."""
    bounds: Bounds = Bounds.EXACT
    python: PythonForm | None = None

    @property
    def sent(self) -> pa.DataType | None:
        """The type that a client sends whatever its settings are, apart from the layout.

        None where that depends on the settings, and for types with parts.
        """
        if not self.arrow:
            return None
        default, lossless = self.default or self.arrow[0], self.lossless or self.arrow[0]
        return default if storage_type(default) == storage_type(lossless) else None


def _opaque(name: str, storage: pa.DataType) -> tuple[pa.DataType]:
    return (pa.opaque(storage, name, "DuckDB"),)


def _integers(*, signed: bool) -> PythonForm:
    """Integers of 128 bits, little-endian."""
    return PythonForm(
        int,
        lambda octets: int.from_bytes(octets, "little", signed=signed),
        lambda number: number.to_bytes(16, "little", signed=signed),
    )


_WIDE = pa.decimal128(38, 0)
_TIME = pa.time64("us")
_INSTANT = pa.timestamp("us", "UTC")
_INTERVAL = pa.month_day_nano_interval()
_DURATIONS = tuple(pa.duration(unit) for unit in ("us", "s", "ms", "ns"))
_TEXTS = (lib.Type_LARGE_STRING, lib.Type_STRING_VIEW)
_BLOBS = (lib.Type_LARGE_BINARY, lib.Type_BINARY_VIEW, lib.Type_FIXED_SIZE_BINARY)
_LISTS = (lib.Type_LIST, lib.Type_LARGE_LIST, lib.Type_LIST_VIEW, lib.Type_LARGE_LIST_VIEW)

# fmt: off
ROWS: tuple[TypeRow, ...] = (
    TypeRow("NULL", "null", (pa.null(),), "boolean",  # "unknown" cannot be inside other types
            ordered=False, bounds=Bounds.REFUSED),
    TypeRow("BOOLEAN", "boolean", (pa.bool_(),), "boolean", other(-7, 1), lossless=pa.bool8()),
    TypeRow("TINYINT", "integer", (pa.int8(),), "int", exact(-6, 3)),
    TypeRow("SMALLINT", "integer", (pa.int16(),), "int", exact(5, 5)),
    TypeRow("INTEGER", "integer", (pa.int32(),), "int", exact(4, 10)),
    TypeRow("BIGINT", "integer", (pa.int64(),), "long", exact(-5, 19)),
    TypeRow("UTINYINT", "integer", (pa.uint8(),), "int", exact(-6, 3, unsigned=True)),
    TypeRow("USMALLINT", "integer", (pa.uint16(),), "int", exact(5, 5, unsigned=True)),
    TypeRow("UINTEGER", "integer", (pa.uint32(),), "long", exact(4, 10, unsigned=True)),
    TypeRow("UBIGINT", "integer", (pa.uint64(),), "decimal(20, 0)", exact(-5, 20, unsigned=True)),
    TypeRow("HUGEINT", "hugeint", _opaque("hugeint", pa.binary(16)), "string", exact(2, 39),
            default=_WIDE, ordered=False, python=_integers(signed=True)),
    TypeRow("UHUGEINT", "uhugeint", _opaque("uhugeint", pa.binary(16)), "string",
            exact(2, 39, unsigned=True),
            default=_WIDE, ordered=False, python=_integers(signed=False)),
    TypeRow("FLOAT", "float", (pa.float32(),), "float", approximate(7, 24)),
    TypeRow("DOUBLE", "float", (pa.float64(),), "double", approximate(8, 53)),
    TypeRow("DECIMAL", "decimal", (_WIDE,), "decimal(38, 0)",
            exact(3, 38, create_params=["precision", "scale"], maximum_scale=38),
            layouts=(lib.Type_DECIMAL32, lib.Type_DECIMAL64)),
    TypeRow("VARCHAR", "text", (pa.string(),), "string", other(12, quote="'", case_sensitive=True),
            layouts=_TEXTS, bounds=Bounds.SHORTENED),
    TypeRow("JSON", "json", (pa.json_(),), "string", other(12, quote="'", case_sensitive=True),
            default=pa.string(), bounds=Bounds.SHORTENED),
    # Spark's filters miss rows of Iceberg's own "uuid". Others may write capital letters.
    TypeRow("UUID", "uuid", (pa.uuid(),), "string", other(1, 36, quote="'"),
            default=pa.string(), ordered=False),
    TypeRow("BLOB", "binary", (pa.binary(),), "binary",
            other(-3, quote="'", literal_suffix="'::BLOB"),
            layouts=_BLOBS, bounds=Bounds.REFUSED),
    TypeRow("BIT", "bit", _opaque("bit", pa.binary()), "binary", other(0),
            default=pa.binary(), ordered=False, bounds=Bounds.REFUSED),
    TypeRow("BIGNUM", "bignum", _opaque("bignum", pa.binary()), "binary", other(0),
            bounds=Bounds.REFUSED),
    TypeRow("DATE", "date", (pa.date32(),), "date", moment(91, 10, 1), layouts=(lib.Type_DATE64,)),
    TypeRow("TIME", "time", (_TIME, pa.time32("s"), pa.time32("ms")), "long",
            moment(92, 15, 2, 6)),
    TypeRow("TIME_NS", "time", (pa.time64("ns"),), "long", moment(92, 18, 2, 9)),
    TypeRow("TIME WITH TIME ZONE", "time_tz", _opaque("time_tz", pa.binary(8)), "long",
            moment(92, 21, 4, 6), default=_TIME, bounds=Bounds.UNKNOWN),
    TypeRow("TIMESTAMP", "timestamp", (pa.timestamp("us"),), "timestamp", moment(93, 26, 3, 6)),
    TypeRow("TIMESTAMP_S", "timestamp", (pa.timestamp("s"),), "timestamp", moment(93, 19, 3)),
    TypeRow("TIMESTAMP_MS", "timestamp", (pa.timestamp("ms"),), "timestamp", moment(93, 23, 3, 3)),
    TypeRow("TIMESTAMP_NS", "timestamp", (pa.timestamp("ns"),), "long", moment(93, 29, 3, 9)),
    TypeRow("TIMESTAMP WITH TIME ZONE", "zoned timestamp",
            (_INSTANT, pa.timestamp("s", "UTC"), pa.timestamp("ms", "UTC")),
            "timestamptz", moment(93, 32, 5, 6)),
    TypeRow("TIMESTAMP WITH TIME ZONE", "zoned timestamp", (pa.timestamp("ns", "UTC"),), "long",
            default=_INSTANT, lossless=_INSTANT),
    TypeRow("INTERVAL", "interval", (_INTERVAL,), "",
            other(10, quote="'", datetime_subcode=0),
            layouts=(lib.Type_INTERVAL_MONTHS, lib.Type_INTERVAL_DAY_TIME),
            ordered=False, bounds=Bounds.REFUSED),
    TypeRow("INTERVAL", "duration", _DURATIONS, "long",
            default=_INTERVAL, lossless=_INTERVAL, bounds=Bounds.REFUSED),
    # A field of bytes, which pyarrow has no type for: its metadata says that it is a geometry.
    TypeRow("GEOMETRY", "binary", (), "binary", other(0), ordered=False, bounds=Bounds.REFUSED),
    TypeRow("LIST", "list", (), "", other(0), layouts=_LISTS, bounds=Bounds.IGNORED),
    TypeRow("ARRAY", "list", (), "", other(0), layouts=(lib.Type_FIXED_SIZE_LIST,),
            bounds=Bounds.IGNORED),
    TypeRow("STRUCT", "struct", (), "", other(0), layouts=(lib.Type_STRUCT,),
            bounds=Bounds.IGNORED),
    TypeRow("MAP", "map", (), "", other(0), layouts=(lib.Type_MAP,), bounds=Bounds.IGNORED),
    TypeRow("UNION", "union", (), "", other(0), layouts=(lib.Type_SPARSE_UNION,),
            bounds=Bounds.REFUSED),
)
# fmt: on

_ENCODED: Mapping[int, str] = {
    lib.Type_DICTIONARY: "dictionary",
    lib.Type_RUN_END_ENCODED: "run-end encoded",
}
ENCODED_FORMS = frozenset(_ENCODED.values())
"""Forms of Arrow types that only encode values of other types, which DuckDB shows."""

REMEDIES: Mapping[int, str] = {
    lib.Type_HALF_FLOAT: "use float or double",
    lib.Type_DECIMAL256: "use decimal128, which has up to 38 digits, or text",
    lib.Type_DENSE_UNION: "use a sparse union",
}
"""Arrow types that DuckDB cannot take, and what it takes instead."""

_FORMS: Mapping[int, str] = {
    lib.Type_HALF_FLOAT: "float",
    lib.Type_DECIMAL256: "decimal",
    **_ENCODED,
}


@dataclass(frozen=True, slots=True)
class IcebergRow:
    """Equivalents of an Iceberg type."""

    arrow: pa.DataType
    """The type in which files are read, and which a column shows without a type tag."""
    spark: str | None
    """The name in Spark SQL; None where Spark refuses the whole table (Iceberg 1.12)."""


ICEBERG_TYPES: Mapping[str, IcebergRow] = {
    "boolean": IcebergRow(pa.bool_(), "boolean"),
    "int": IcebergRow(pa.int32(), "int"),
    "long": IcebergRow(pa.int64(), "bigint"),
    "float": IcebergRow(pa.float32(), "float"),
    "double": IcebergRow(pa.float64(), "double"),
    "date": IcebergRow(pa.date32(), "date"),
    "time": IcebergRow(pa.time64("us"), None),
    "timestamp": IcebergRow(pa.timestamp("us"), "timestamp_ntz"),
    "timestamptz": IcebergRow(pa.timestamp("us", "UTC"), "timestamp"),
    "timestamp_ns": IcebergRow(pa.timestamp("ns"), None),
    "timestamptz_ns": IcebergRow(pa.timestamp("ns", "UTC"), None),
    "string": IcebergRow(pa.string(), "string"),
    "uuid": IcebergRow(pa.uuid(), "string"),
    "binary": IcebergRow(pa.binary(), "binary"),
    "unknown": IcebergRow(pa.null(), "void"),
    # In Iceberg's files they are WKB, which DuckDB calls BLOB unless a field's metadata says more.
    "geometry": IcebergRow(pa.binary(), None),
    "geography": IcebergRow(pa.binary(), None),
}
"""Iceberg types without parameters and parts."""


# ----------------------------------------------------------------------------------------- look up


def opaque_name(data_type: pa.DataType) -> str | None:
    """The DuckDB type of an opaque extension type, such as "hugeint"; None for other types."""
    if isinstance(data_type, pa.OpaqueType) and data_type.vendor_name == "DuckDB":
        name: str = data_type.type_name
        return name
    return None


def _mark(data_type: pa.DataType) -> str | None:
    """The name by which an extension type is found; None for all other types."""
    if not isinstance(data_type, pa.BaseExtensionType):
        return None
    name = opaque_name(data_type)
    return str(data_type.extension_name) if name is None else f"DuckDB.{name}"


def storage_type(data_type: pa.DataType) -> pa.DataType:
    """The storage of an extension type; every other type itself."""
    return data_type.storage_type if isinstance(data_type, pa.BaseExtensionType) else data_type


def _key(data_type: pa.DataType) -> object:
    """The key of a row: an id, and what else tells types with this id apart."""
    if data_type.id == lib.Type_TIMESTAMP:
        return data_type.id, data_type.unit, data_type.tz is not None
    return (data_type.id, data_type.unit) if data_type.id == lib.Type_TIME64 else data_type.id


_BY_KEY: Mapping[object, TypeRow] = {
    **{identifier: row for row in ROWS for identifier in row.layouts},
    **{_key(each): row for row in ROWS for each in row.arrow if _mark(each) is None},
}
_BY_MARK: Mapping[str, TypeRow] = {
    mark: row
    for row in ROWS
    for each in (row.lossless, *row.arrow)
    if each is not None and (mark := _mark(each)) is not None
}
TAKEN = frozenset({*(key[0] if isinstance(key, tuple) else key for key in _BY_KEY), *_ENCODED})
"""The ids of all Arrow types that DuckDB takes, extension types by their storage."""


def row_of(data_type: pa.DataType) -> TypeRow | None:
    """The row of the type that DuckDB takes an Arrow type for.

    An unknown extension type is taken for its storage. None if DuckDB does not have the type, or if
    it only encodes values of another.
    """
    mark = _mark(data_type)
    if mark is None:
        return _BY_KEY.get(_key(data_type))
    return _BY_MARK.get(mark) or row_of(data_type.storage_type)


def extension_form(data_type: pa.DataType) -> str | None:
    """The form of an extension type that DuckDB knows, such as "uuid"; None for other types."""
    mark = _mark(data_type)
    return mark.partition(".")[2] if mark is not None and mark in _BY_MARK else None


def form(data_type: pa.DataType) -> str:
    """The kind of values that a type holds, whatever their width, unit or layout."""
    if isinstance(data_type, pa.BaseExtensionType):
        return extension_form(data_type) or form(data_type.storage_type)
    row = _BY_KEY.get(_key(data_type))
    return _FORMS.get(data_type.id, str(data_type)) if row is None else row.form
