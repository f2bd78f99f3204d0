"""Functions and casts that mean the same on the server as in any version of the client.

Strategy: a list of what was reviewed, not of what is forbidden. The scalar functions, casts and
comparisons of DuckDB 1.4.5, 1.5.6 and 2.0.0 were run against each other over edge values and random
values. A function is listed here if

- every version gave the same value (where one raised and another did not, the row is kept, or
  the client's query fails anyway),
- it asks neither the session nor the platform (libm differs in the last digit, so no sine and
  no power), and
- all that it depends on is in its children.

A test asks DuckDB whether it calls all their overloads CONSISTENT. A function that is not listed is
not known to be wrong: it was not reviewed, or was found to differ (epoch_ms, strftime, concat_ws).
"""

from __future__ import annotations

from sparkport.catalog.filters.tree import DuckType

DIVISIONS = frozenset({"/", "//", "%", "mod", "divide"})
"""Division by zero: NULL, NaN, infinity or an error, by version and `ieee_floating_point_ops`."""

LAMBDA_FUNCTIONS = frozenset(
    f"{prefix}_{verb}" for prefix in ("list", "array") for verb in ("transform", "apply", "filter")
)

DECIMAL_ARITHMETIC = frozenset({"+", "-", "*", "add", "subtract", "multiply"})
"""Bound again, the result is a digit wider, since the operands are widened. Its value is equal."""

TYPED_BY_DATA = frozenset({"struct_pack", "row"}) | DECIMAL_ARITHMETIC | LAMBDA_FUNCTIONS
"""Functions whose `function_data` repeats types or the lambda, and holds nothing else of use."""

_TEXT = """
    ~~ !~~ ~~* !~~* ~~~ like_escape not_like_escape ilike_escape not_ilike_escape prefix suffix
    contains starts_with ends_with ^@ lower lcase upper ucase length len char_length
    character_length strlen octet_length bit_length trim ltrim rtrim substr substring left right
    concat || replace instr position strpos reverse ascii unicode ord chr translate string_split
    split str_split string_to_array strip_accents nfc_normalize levenshtein damerau_levenshtein
    editdist3 hamming mismatches regexp_matches regexp_full_match regexp_extract regexp_replace
    regexp_escape md5 sha1 sha256 hex to_hex unhex from_hex bin to_binary unbin from_binary base64
    to_base64 from_base64 encode decode length_grapheme left_grapheme right_grapheme url_encode
    url_decode
"""

_NUMBERS = """
    + - * add subtract multiply abs @ sign ceil ceiling floor round trunc isnan isinf isfinite sqrt
    & | ~ << >> xor bit_count gcd greatest_common_divisor lcm least_common_multiple greatest least
    constant_or_null
"""

_TIMES = """
    year month day decade century millennium quarter week weekofyear weekday dayofweek isodow
    dayofmonth dayofyear isoyear yearweek era hour minute second millisecond microsecond date_part
    datepart date_trunc datetrunc date_diff datediff date_sub datesub dayname monthname last_day
    make_date make_time epoch epoch_us epoch_ns time_bucket make_timestamp make_timestamp_ms
    make_timestamp_ns to_years to_months to_weeks to_days to_hours to_minutes to_seconds
    to_milliseconds to_microseconds to_quarters to_decades to_centuries to_millennia
    normalized_interval timetz_byte_comparable
"""

_NESTED = """
    struct_pack row struct_extract struct_extract_at array_extract list_extract list_element
    element_at map_extract map_extract_value list_value list_pack array_value list_contains list_has
    array_contains array_has list_position list_indexof array_position array_indexof list_has_any
    array_has_any && list_has_all array_has_all @> <@ array_slice list_slice array_length
    list_concat list_cat array_concat array_cat cardinality map map_contains map_keys map_values
    map_entries flatten union_tag union_extract enum_code json_type json_array_length json_extract
    json_extract_path json_extract_string json_extract_path_text json_exists json_keys json_contains
    ->> uuid_extract_version
"""

_CARRIERS = """
    greatest least constant_or_null struct_pack row struct_extract struct_extract_at array_extract
    list_extract list_element element_at map_extract map_extract_value list_value list_pack
    array_value list_contains list_has list_position list_indexof array_position list_has_any
    list_has_all array_slice list_slice len array_length cardinality map_contains map_keys
    map_values union_tag union_extract
"""

REVIEWED = (
    frozenset(f"{_TEXT} {_NUMBERS} {_TIMES} {_NESTED}".split()) | DIVISIONS | LAMBDA_FUNCTIONS
)

CARRIERS = frozenset(_CARRIERS.split()) | LAMBDA_FUNCTIONS
"""Functions that compare or return values of any type.

Only these are trusted with TIMESTAMP_NS: a function for microseconds truncates it in DuckDB 1.x,
and rounds it in 2.0.
"""

ZONE_FREE = CARRIERS | {
    "epoch",
    "epoch_us",
    "epoch_ns",
    "isfinite",
    "isinf",
    "timetz_byte_comparable",
}
"""Functions that treat TIMESTAMPTZ and TIMETZ as instants, whatever the client's TimeZone."""

ZONED = ("TIMESTAMP WITH TIME ZONE", "TIME WITH TIME ZONE")

UNSURE_ARGUMENTS = ("BIGNUM", "VARIANT", "GEOMETRY")
"""Types whose arithmetic is unknown here or differs: BIGNUM subtraction is wrong in 1.4."""


def is_exact_cast(source: DuckType, target: DuckType, try_cast: bool) -> bool:
    """Whether every version casts every value of `source` alike; TRY_CAST also the errors."""
    if source.same_as(target) or source.id == "NULL":
        return True
    if source.alias or target.alias:
        # JSON is a VARCHAR that promises to be valid; casts to and from anything else convert its
        # content.
        return {source.id, target.id} == {"VARCHAR"} and not try_cast
    match source.id, target.id:
        case ("LIST" | "ARRAY", "LIST") | ("ARRAY", "ARRAY") | ("MAP", "MAP"):
            if (
                source.child is None
                or target.child is None
                or (target.id == "ARRAY" and source.size != target.size)
            ):
                return False
            return is_exact_cast(source.child, target.child, try_cast)
        case ("STRUCT", "STRUCT"):
            # Casts by position and by name, which versions choose between, agree if the names do.
            return [name for name, _ in source.fields] == [
                name for name, _ in target.fields
            ] and all(
                is_exact_cast(old, new, try_cast)
                for (_, old), (_, new) in zip(source.fields, target.fields, strict=True)
            )
        case ("DECIMAL", "FLOAT" | "DOUBLE"):
            # The division by the scale is exact only if both operands are: otherwise 1.x and 2.0
            # round differently.
            return source.scale == 0 or source.width <= (15 if target.id == "DOUBLE" else 6)
        case _:
            if target.id in _ALWAYS.get(_family(source), ()) or _family(target) in _ALWAYS.get(
                _family(source), ()
            ):
                return True
            plain = _NOT_IN_TRY.get(_family(source), ())
            return not try_cast and (target.id in plain or _family(target) in plain)


def _family(kind: DuckType) -> str:
    return _FAMILIES.get(kind.id, kind.id)


_FAMILIES = {
    **dict.fromkeys(("TINYINT", "SMALLINT", "INTEGER", "BIGINT"), "integers"),
    **dict.fromkeys(("UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT"), "integers"),
    **dict.fromkeys(("HUGEINT", "UHUGEINT"), "wide integers"),
    **dict.fromkeys(("FLOAT", "DOUBLE"), "floats"),
}

_ALWAYS: dict[str, tuple[str, ...]] = {
    "BOOLEAN": ("integers", "wide integers", "floats", "DECIMAL", "VARCHAR"),
    "integers": ("BOOLEAN", "integers", "wide integers", "floats", "DECIMAL", "VARCHAR"),
    "wide integers": ("BOOLEAN", "integers", "wide integers", "floats", "DECIMAL", "VARCHAR"),
    "DECIMAL": ("BOOLEAN", "integers", "wide integers", "DECIMAL", "VARCHAR"),
    "floats": ("BOOLEAN", "floats", "VARCHAR"),
    # Not to DECIMAL: 1.x rounds numbers with an exponent away from zero.
    "VARCHAR": ("BOOLEAN", "integers", "floats", "UUID", "ENUM"),
    "DATE": ("VARCHAR", "TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS"),
    "TIME": ("VARCHAR",),
    "TIMESTAMP": ("VARCHAR", "DATE", "TIME"),
    "TIMESTAMP_S": ("VARCHAR", "TIMESTAMP"),
    "TIMESTAMP_MS": ("VARCHAR", "TIMESTAMP"),
    "TIMESTAMP_NS": ("VARCHAR",),
    "UUID": ("VARCHAR",),
    "ENUM": ("VARCHAR",),
    "INTERVAL": ("VARCHAR",),
    "BLOB": ("VARCHAR",),
}

_NOT_IN_TRY: dict[str, tuple[str, ...]] = {
    # Where a version raises and another has a value, a plain CAST still never loses a row.
    "floats": ("integers",),
    "VARCHAR": (
        "wide integers",
        "DATE",
        "TIME",
        "BLOB",
        "TIMESTAMP",
        "TIMESTAMP_S",
        "TIMESTAMP_MS",
    ),
    "TIMESTAMP": ("TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS"),
}
