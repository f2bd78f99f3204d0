"""Bodies of requests are untrusted: they decode, or raise BadRequest with a sentence."""

from __future__ import annotations

import contextlib
import itertools
import json
import random
import tracemalloc

import msgpack
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.wire.recordings import SCENARIOS, calls

from sparkport.errors import BadRequest
from sparkport.wire import catalogs, ddl, scan, statistics, transactions, write
from sparkport.wire.flight import decode_action
from sparkport.wire.packing import Fields, pack, read_fields, unpack_json, unpack_map, unpack_text


def test_values_stay_bytes_and_keys_become_text() -> None:
    body = msgpack.packb({"a": "é", "b": b"\xff", "n": None, "l": ["x"]}, use_bin_type=False)
    assert unpack_map(body) == {"a": "é".encode(), "b": b"\xff", "n": None, "l": [b"x"]}


def test_text_that_is_not_utf8_is_no_error_until_it_is_read_as_text() -> None:
    fields = read_fields(b"\x81\xa1a\xa2\xff\xfe", "x")
    assert fields.blob("a") == b"\xff\xfe"
    with pytest.raises(BadRequest, match=r"x: the field 'a' must be text in UTF-8"):
        fields.text("a")


def test_a_key_may_occur_twice() -> None:
    assert unpack_map(b"\x82\xa1a\x01\xa1a\x02") == {"a": 2}


def test_keys_may_be_binary() -> None:
    assert unpack_map(b"\x81\xc4\x01a\x01") == {"a": 1}


def test_bytes_after_the_map_are_ignored() -> None:
    assert unpack_map(pack({"a": 1}) + b"\xc1 garbage") == {"a": 1}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xc1",
        b"\x81",
        b"\x81\xa1a",
        pack({"a": "long enough to be cut"})[:-3],
        b"\xdf\xff\xff\xff\xff",  # a map of 2^32 - 1 pairs
        b"\x81\xa1a\xdd\xff\xff\xff\xff",  # an array of as many
        b"\x81\xa1a\xdb\xff\xff\xff\xff",  # a text of as many bytes
        b"\x91" * 10_000,
        b"\x81\xa1a" * 10_000,
        b"\x81\x90\x01",  # an array as a key
        b"\x81\x81\x01\x01\x01",  # a map as a key
        b"\x81\xd6\xff\x00\x00\x00\x00\x01",  # a timestamp as a key
        b"\x81\xa1a\xc7\x03\xff\x00\x00\x00",  # a malformed timestamp
        b"\x81\x01\x01",
        b"\x81\xc0\x01",
        b"\x81\xa2\xff\xfe\x01",
        pack([1, 2]),
        pack("text"),
        pack(None),
        pack(3.5),
    ],
    ids=lambda body: body[:12].hex() or "empty",
)
def test_anything_but_a_map_with_text_keys_is_refused_in_words(body: bytes) -> None:
    with pytest.raises(BadRequest, match=r"^endpoints: "):
        unpack_map(body, "endpoints")


def test_a_small_body_cannot_make_the_server_reserve_much_memory() -> None:
    header = b"\xdd" + (60_000).to_bytes(4, "big")
    body = b"\x81\xa1a" + header * 20 + b"\x00" * 60_000
    tracemalloc.start()
    try:
        with pytest.raises(BadRequest):
            unpack_map(body)
        assert tracemalloc.get_traced_memory()[1] < 50_000_000
    finally:
        tracemalloc.stop()
    with pytest.raises(BadRequest):
        unpack_map(b"\x81\xa1a\xdd" + (70_000).to_bytes(4, "big") + b"\x00" * 70_000)


DECODERS = [
    catalogs.decode_list_schemas,
    catalogs.decode_catalog_version,
    transactions.decode_create_transaction,
    transactions.decode_get_transaction_status,
    scan.decode_endpoints,
    scan.decode_flight_info,
    scan.decode_table_function_flight_info,
    statistics.decode_column_statistics,
    scan.decode_in_out_parameters,
    ddl.decode_create_schema,
    ddl.decode_drop_schema,
    ddl.decode_create_table,
    ddl.decode_drop_table,
    ddl.decode_add_column,
    ddl.decode_remove_column,
    ddl.decode_rename_column,
    ddl.decode_rename_table,
    ddl.decode_set_default,
    ddl.decode_set_not_null,
    ddl.decode_drop_not_null,
    ddl.decode_change_column_type,
    ddl.decode_add_field,
    ddl.decode_remove_field,
    ddl.decode_rename_field,
    ddl.decode_add_constraint,
    write.decode_put_command,
    write.decode_delete,
]

TEXTS = st.text('abcé\0"(,)_', max_size=8)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | TEXTS
    | st.binary(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
KEYS = st.sampled_from(
    [
        *(
            "catalog",
            "catalog_name",
            "schema",
            "schema_name",
            "name",
            "table",
            "table_name",
            "descriptor",
            "type",
        ),
        *(
            "flight_descriptor",
            "parameters",
            "arrow_schema",
            "column_schema",
            "on_conflict",
            "not_null_constraints",
        ),
        *(
            "unique_constraints",
            "check_constraints",
            "primary_key_columns",
            "unique_columns",
            "extra_constraints",
        ),
        *(
            "multi_key_primary_keys",
            "column_path",
            "tags",
            "comment",
            "time_point",
            "at_unit",
            "at_value",
            "row_ids",
        ),
        *(
            "json_filters",
            "column_ids",
            "ignore_not_found",
            "if_column_exists",
            "cascade",
            "expression",
            "operation",
        ),
        *(
            "removed_column",
            "old_name",
            "new_name",
            "new_table_name",
            "column_name",
            "constraint",
            "transaction_id",
        ),
        *(
            "table_function_parameters",
            "table_function_input_schema",
            "table_input_schema",
            "returning",
        ),
    ]
)
UNHURRIED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


@UNHURRIED
@given(body=st.binary(max_size=60))
def test_no_bytes_make_a_decoder_raise_anything_but_bad_request(body: bytes) -> None:
    for decode in DECODERS:
        with contextlib.suppress(BadRequest):
            decode(body)


@UNHURRIED
@given(fields=st.dictionaries(KEYS, VALUES, max_size=8))
def test_no_fields_make_a_decoder_raise_anything_but_bad_request(fields) -> None:
    bodies = (pack(fields), json.dumps(fields, default=lambda _: None).encode())
    for decode, body in itertools.product(DECODERS, bodies):
        with contextlib.suppress(BadRequest):
            decode(body)


def test_a_recorded_request_that_was_damaged_decodes_or_is_refused() -> None:
    """Arrow's and protobuf's readers are reached only by bodies that are nearly right."""
    names = {decode.__name__: decode for decode in DECODERS}
    bodies = {
        (f"decode_{call.action}", decode_action(call.messages[0].data).body)
        for scenario in SCENARIOS
        for call in calls(scenario)
        if f"decode_{call.action}" in names
    }
    chance = random.Random(20250723)
    refused = 0
    for name, body in sorted(bodies):
        for _ in range(200):
            damaged = bytearray(body)
            for _ in range(chance.randint(1, 3)):
                damaged[chance.randrange(len(damaged))] = chance.randrange(256)
            try:
                names[name](bytes(damaged[: chance.choice((None, chance.randrange(len(damaged))))]))
            except BadRequest:
                refused += 1
    assert refused > len(bodies)


def test_json_must_be_an_object() -> None:
    assert unpack_json(b' {"a": [1]} ') == {"a": [1]}
    for body in (
        b"",
        b"[1]",
        b"null",
        b"{",
        b"\xff",
        b"[" * 100_000,
        b'{"a": ' + b"9" * 5000 + b"}",
        "{}".encode("utf-16"),
    ):
        with pytest.raises(BadRequest, match=r"^delete: the body"):
            unpack_json(body, "delete")


def test_half_of_a_surrogate_pair_is_no_text() -> None:
    fields = Fields(unpack_json(rb'{"a": "\ud800"}'), "x")
    with pytest.raises(BadRequest, match="UTF-8"):
        fields.text("a")
    with pytest.raises(BadRequest, match="UTF-8"):
        fields.blob("a")


def test_text_and_bytes_are_told_apart_where_values_are_plain() -> None:
    assert unpack_text(pack({"a": ["x", b"x", 1]})) == {"a": ["x", b"x", 1]}
    with pytest.raises(BadRequest):
        unpack_text(b"\x81\xa1a\xa1\xff")


class TestFields:
    fields = Fields(
        {
            "t": b"text",
            "e": b"",
            "i": 5,
            "b": True,
            "n": None,
            "l": [b"a", "b"],
            "u": [0, 2**64 - 1],
            "m": {b"k": b"v"},
            "nul": b"a\0b",
        },
        "create_table",
    )

    def test_present_fields_are_read_as_what_they_are(self) -> None:
        fields = self.fields
        assert (fields.text("t"), fields.name("t"), fields.blob("t")) == ("text", "text", b"text")
        assert (fields.text("e"), fields.optional_blob("e")) == ("", None)
        assert fields.flag("b") is True
        assert fields.texts("l") == ("a", "b")
        assert fields.unsigned_integers("u") == (0, 2**64 - 1)
        assert fields.text_map("m") == {"k": "v"}
        assert fields.fields("m").text("k") == "v"

    def test_nil_is_the_same_as_missing(self) -> None:
        for key in ("n", "absent"):
            assert self.fields.optional_text(key) is None
            assert self.fields.optional_blob(key) is None
            assert self.fields.flag(key) is False
            assert self.fields.flag(key, default=True) is True
            assert self.fields.texts(key) == ()
            assert self.fields.text_map(key) == {}
            assert key not in self.fields
            for read in (self.fields.text, self.fields.name, self.fields.blob, self.fields.fields):
                with pytest.raises(
                    BadRequest, match=rf"^create_table: the field '{key}' is missing$"
                ):
                    read(key)

    def test_the_first_spelling_that_is_present_counts(self) -> None:
        assert self.fields.text("absent", "n", "t") == "text"
        with pytest.raises(BadRequest, match="'absent' is missing"):
            self.fields.text("absent", "n")

    @pytest.mark.parametrize(
        ("method", "key", "problem"),
        [
            ("text", "i", "must be text, not an integer"),
            ("text", "l", "must be text, not a list"),
            ("name", "e", "must not be empty"),
            ("name", "nul", "must not contain a NUL character"),
            ("blob", "b", "must be bytes, not a boolean"),
            ("flag", "i", "must be true or false, not an integer"),
            ("flag", "t", "must be true or false, not text"),
            ("texts", "t", "must be a list, not text"),
            ("texts", "u", "must be text, not an integer"),
            ("unsigned_integers", "l", "must hold integers, not text"),
            ("fields", "l", "must be a map, not a list"),
        ],
    )
    def test_a_field_of_another_type_is_named_with_the_problem(
        self, method: str, key: str, problem: str
    ) -> None:
        with pytest.raises(BadRequest, match=rf"^create_table: the field '{key}' {problem}$"):
            getattr(self.fields, method)(key)

    def test_integers_have_limits_and_are_not_booleans(self) -> None:
        for values, method in (
            ([-1], "unsigned_integers"),
            ([2**63], "integers"),
            ([True], "integers"),
            ([1.0], "integers"),
        ):
            with pytest.raises(BadRequest, match="'v'"):
                getattr(Fields({"v": values}, "x"), method)("v")
        assert Fields({"v": [-(2**63), 2**63 - 1]}, "x").integers("v") == (-(2**63), 2**63 - 1)
