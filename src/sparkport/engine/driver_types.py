"""Type information for ODBC and JDBC: the columns of Flight SQL's XdbcTypeInfo.

The numbers are those of ODBC; 0 is SQL_UNKNOWN_TYPE.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["DriverType", "approximate", "exact", "moment", "other"]

DriverType = Mapping[str, Any]
"""All columns of XdbcTypeInfo but the names of the type."""


def other(
    number: int, size: int | None = None, *, quote: str | None = None, **others: Any
) -> DriverType:
    """A type that is neither a number nor a time; `quote` is put around its literals."""
    return {
        "data_type": number,
        "column_size": size,
        "literal_prefix": quote,
        "literal_suffix": quote,
        "nullable": 1,
        "case_sensitive": False,
        "searchable": 3,
        "fixed_prec_scale": False,
        "sql_data_type": number,
        **others,
    }


def exact(number: int, digits: int, *, unsigned: bool = False, **others: Any) -> DriverType:
    """An integer or decimal type."""
    return other(
        number,
        digits,
        unsigned_attribute=unsigned,
        num_prec_radix=10,
        auto_increment=False,
        **{"minimum_scale": 0, "maximum_scale": 0, **others},
    )


def approximate(number: int, bits: int) -> DriverType:
    """A float type, with so many bits of precision."""
    return other(number, bits, unsigned_attribute=False, num_prec_radix=2, auto_increment=False)


def moment(number: int, size: int, subcode: int, scale: int = 0) -> DriverType:
    """A date or a time; `size` is that of its text, `scale` the digits after the seconds."""
    return other(
        number,
        size,
        quote="'",
        sql_data_type=9,
        datetime_subcode=subcode,
        minimum_scale=scale,
        maximum_scale=scale,
    )
