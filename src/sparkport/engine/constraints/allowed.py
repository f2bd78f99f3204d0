"""The functions that CHECK, DEFAULT, USING, masks and row filters may call: a closed list.

A function is listed if it always gives the same value for its arguments, reads nothing else, and
has a known bound for the size of its result. The groups say which bound. Functions that are not
listed are refused, whatever DuckDB brings; a new function is a word in its group. Beware of results
whose size is the *value* of an argument (range, format, list_resize), of work that is repeated for
each element (list_reduce), and of time that grows with the product of lengths.
"""

from __future__ import annotations

from collections.abc import Mapping

__all__ = [
    "ALLOWED",
    "ARITHMETIC",
    "CHANGING",
    "CHANGING_PER_ROW",
    "CHANGING_WORDS",
    "COUNTED",
    "FIXED",
    "GROWING",
    "INSERTING",
    "LAMBDAS",
    "LENGTHS",
    "LIKES",
    "MACROS",
    "PATHS",
    "PATTERNS",
    "PRODUCTS",
    "SUMMED",
]


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


ARITHMETIC = _words(
    """
    + - * / // % add subtract multiply divide mod fdiv abs @ sign ceil ceiling floor round trunc
    even round_even roundbankers sqrt cbrt exp ln log log2 log10 pow power ** ^ sin cos tan asin
    acos atan atan2 sinh cosh tanh asinh acosh atanh cot degrees radians pi isnan isinf isfinite
    signbit gcd greatest_common_divisor lcm least_common_multiple to_years to_quarters to_months
    to_weeks to_days to_hours to_minutes to_seconds to_milliseconds to_microseconds to_decades
    to_centuries to_millennia
    """
)
"""Functions of numbers and times that give a number or a time, in constant time."""

LENGTHS = _words(
    "length len strlen char_length character_length octet_length length_grapheme array_length"
)
"""Functions that give the length of their argument."""

FIXED = LENGTHS | _words(
    """
    contains prefix suffix starts_with ends_with ^@ instr position strpos ascii unicode ord chr
    bit_length bit_count md5 sha1 sha256 md5_number hash to_base fmod hamming mismatches jaccard
    year month day decade century millennium quarter week weekofyear weekday dayofweek isodow
    dayofmonth dayofyear isoyear yearweek era hour minute second millisecond microsecond nanosecond
    epoch epoch_ms epoch_us epoch_ns julian date_part datepart date_trunc datetrunc date_diff
    datediff date_sub datesub date_add dayname monthname last_day days_in_month time_bucket timezone
    timezone_hour timezone_minute normalized_interval timetz_byte_comparable make_date make_time
    make_timestamp make_timestamp_ms make_timestamp_ns make_timestamptz to_timestamp strptime
    try_strptime uuid_extract_version uuid_extract_timestamp list_contains list_has array_contains
    array_has list_position list_indexof array_position array_indexof list_has_any array_has_any &&
    list_has_all array_has_all @> <@ list_count list_sum list_avg list_bool_and list_bool_or
    list_unique array_unique cardinality map_contains typeof enum_code union_tag json_valid
    json_type json_array_length json_contains
    """
)
"""Functions that read all of their arguments, and give a value of a few bytes."""

SUMMED = _words(
    """
    || concat substr substring substring_grapheme left right left_grapheme right_grapheme trim ltrim
    rtrim reverse split_part overlay from_base64 from_hex unhex from_binary unbin url_decode encode
    decode & | ~ << >> xor greatest least nullif if constant_or_null struct_pack row struct_extract
    struct_extract_at struct_insert struct_update struct_concat list_value list_pack array_value
    list_extract list_element array_extract element_at list_slice array_slice list_concat list_cat
    array_concat array_cat list_append array_append array_push_back list_prepend array_prepend
    array_push_front array_pop_back array_pop_front list_reverse array_reverse list_distinct
    array_distinct list_sort array_sort list_reverse_sort array_reverse_sort list_min list_max
    list_first list_last list_any_value flatten list_where array_where map map_extract
    map_extract_value map_keys map_values map_entries map_from_entries map_concat union_extract
    union_value
    """
)
"""Functions whose result is no larger than all of their arguments together."""

GROWING: Mapping[str, int] = {
    **dict.fromkeys(_words("lower upper lcase ucase hex to_hex base64 to_base64 regexp_escape"), 2),
    **dict.fromkeys(_words("translate strip_accents nfc_normalize url_encode"), 4),
    **dict.fromkeys(_words("bin to_binary to_json json_quote json_object json_array"), 8),
    **dict.fromkeys(
        _words("strftime string_split split str_split string_to_array list_zip array_zip"), 16
    ),
}
"""Functions whose result is at most so many times larger than their arguments."""

INSERTING: Mapping[str, int] = {
    "replace": 2,
    "regexp_replace": 2,
    "array_to_string": 1,
    "concat_ws": 0,
}
"""Functions that insert the argument at this position into the others, any number of times."""

COUNTED: Mapping[str, int] = {"repeat": 1, "lpad": 1, "rpad": 1}
"""Functions for which the argument at this position says how large the result is."""

PATTERNS: Mapping[str, int] = {
    **dict.fromkeys(_words("regexp_matches regexp_full_match"), 0),
    **dict.fromkeys(_words("regexp_extract regexp_replace"), 1),
    **dict.fromkeys(
        _words("regexp_extract_all regexp_split_to_array string_split_regex str_split_regex"), 16
    ),
}
"""Functions whose second argument is a regular expression.

Their result is at most so many times larger than their first argument.
"""

LIKES = _words("~~ !~~ ~~* !~~* ~~~ like_escape not_like_escape ilike_escape not_ilike_escape")
"""Functions whose second argument is a pattern.

For each wildcard DuckDB may begin again at every place of the text.
"""

PATHS = _words(
    """
    json_extract json_extract_path json_extract_string json_extract_path_text ->> json_exists
    json_value json_keys
    """
)
"""Functions whose second argument is a path into JSON."""

PRODUCTS = _words(
    "levenshtein editdist3 damerau_levenshtein jaro_similarity jaro_winkler_similarity"
)
"""Functions that compare every letter of one argument with every letter of the other."""

LAMBDAS = frozenset(
    f"{kind}_{verb}" for kind in ("list", "array") for verb in ("transform", "apply", "filter")
)

MACROS: Mapping[str, int] = dict.fromkeys(
    _words("nullif split_part fmod array_to_string array_pop_back"), 2
)
"""Functions that DuckDB expands to an expression that repeats an argument so many times."""

CHANGING = _words("now today uuid gen_random_uuid uuidv4 uuidv7 random nextval") | _words(
    "current_date get_current_timestamp get_current_time transaction_timestamp"
)
"""Functions that give another value every time.

They are for stored values, such as those of a DEFAULT, not for expressions that are evaluated
again.
"""

CHANGING_PER_ROW = _words("uuid gen_random_uuid uuidv4 uuidv7 random nextval")
"""Those of them that give another value for each row of a statement; the others tell its time."""

CHANGING_WORDS = _words("current_date current_time current_timestamp localtime localtimestamp")
"""Words without brackets that give another value every time, if no column has that name."""

ALLOWED = frozenset().union(
    *(
        ARITHMETIC,
        FIXED,
        SUMMED,
        GROWING,
        INSERTING,
        COUNTED,
        PATTERNS,
        LIKES,
        PATHS,
        PRODUCTS,
        LAMBDAS,
    )
)
