"""Encodings inside nested types, and DuckDB's packed booleans (airport §13.1)."""

from __future__ import annotations

import uuid

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.wire.arrow_values import HUGEINT, TIME_TZ, array_of, converted

from sparkport.engine.encodings import convert_array
from sparkport.errors import BadRequest

ID = uuid.UUID("123e4567-e89b-12d3-a456-426614174000")
UNHURRIED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


LISTS = [
    pa.list_,
    pa.large_list,
    pa.list_view,
    pa.large_list_view,
    lambda field: pa.list_(field, 2),
]


@pytest.mark.parametrize(
    "source", LISTS, ids=["list", "large_list", "list_view", "large_list_view", "fixed"]
)
@pytest.mark.parametrize(
    "target", LISTS, ids=["list", "large_list", "list_view", "large_list_view", "fixed"]
)
@pytest.mark.parametrize("element", [pa.string(), pa.uuid()], ids=["text", "uuid"])
def test_lists_in_all_their_layouts(source, target, element) -> None:
    values = [[str(ID), None], None, [None, str(ID)], [str(ID), str(ID)]]
    array = pa.array(values, source(pa.field("l", pa.string())))
    ids = [
        None if row is None else [text and (ID if element == pa.uuid() else text) for text in row]
        for row in values
    ]
    assert converted(array, target(pa.field("element", element))) == ids


def test_a_list_that_is_too_short_for_a_fixed_size_is_refused() -> None:
    with pytest.raises(BadRequest, match="a list of another size was sent"):
        convert_array(pa.array([[1, 2], [3]]), pa.list_(pa.int64(), 2), "v")
    with pytest.raises(BadRequest, match="schema mismatch: column v has 3 elements, not 2"):
        convert_array(pa.array([[1, 2]], pa.list_(pa.int64(), 2)), pa.list_(pa.int64(), 3), "v")


def test_views_may_overlap_and_stand_in_any_order() -> None:
    view = pa.ListViewArray.from_arrays(
        pa.array([2, 0, 1, 0], pa.int32()),
        pa.array([2, 3, 0, 4], pa.int32()),
        pa.array([1, 2, 3, 4]),
    )
    expected = [[3, 4], [1, 2, 3], [], [1, 2, 3, 4]]
    assert view.to_pylist() == expected
    for target in (pa.list_(pa.int8()), pa.large_list(pa.int64()), pa.large_list_view(pa.int32())):
        assert converted(view, target) == expected


def test_fields_of_structs_are_matched_by_name() -> None:
    rows = [{"a": 1, "b": str(ID)}, None, {"a": None, "b": None}]
    target = pa.struct([pa.field("B", pa.uuid()), pa.field("a", pa.int8())])
    assert converted(pa.array(rows), target) == [{"B": ID, "a": 1}, None, {"B": None, "a": None}]


def test_what_stands_below_a_null_does_not_matter() -> None:
    array = pa.StructArray.from_arrays(
        [pa.array(["rubbish", str(ID)])], ["u"], mask=pa.array([True, False])
    )
    assert converted(array, pa.struct([("u", pa.uuid())])) == [None, {"u": ID}]


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ({"a": 1}, "schema mismatch: column v has a field b, which was not sent"),
        ({"a": 1, "b": 1, "c": 1}, "schema mismatch: column v has no field c"),
        (
            {"a": 1, "b": "x"},
            "schema mismatch: column v.b is int64, and string cannot be converted to it",
        ),
    ],
)
def test_structs_with_other_fields_are_refused(source, problem) -> None:
    with pytest.raises(BadRequest) as refusal:
        convert_array(pa.array([source]), pa.struct([("a", pa.int64()), ("b", pa.int64())]), "v")
    assert refusal.value.message == problem


def test_maps_convert_keys_and_values() -> None:
    entries = [[("a", str(ID))], None, [], [("b", None), ("c", str(ID))]]
    array = pa.array(entries, pa.map_(pa.string(), pa.string()))
    expected = [[("a", ID)], None, [], [("b", None), ("c", ID)]]
    assert converted(array, pa.map_(pa.large_string(), pa.uuid())) == expected


def test_unions_are_matched_by_the_names_of_their_members() -> None:
    array = pa.UnionArray.from_sparse(
        pa.array([0, 1, 1, 0], pa.int8()),
        [pa.array([1, None, None, None]), pa.array([None, "x", None, None])],
        ["num", "str"],
    )
    target = pa.sparse_union([pa.field("str", pa.large_string()), pa.field("num", pa.int16())])
    assert converted(array, target) == [1, "x", None, None]


def test_a_problem_deep_inside_is_named_with_its_path() -> None:
    array = pa.array(
        [[{"m": [("k", 300)]}]], pa.list_(pa.struct([("m", pa.map_(pa.string(), pa.int64()))]))
    )
    target = pa.list_(pa.struct([("m", pa.map_(pa.string(), pa.int8()))]))
    with pytest.raises(
        BadRequest, match=r"^column v\[\]\.m\.value is int8, which cannot hold the value 300$"
    ):
        convert_array(array, target, "v")


@pytest.mark.parametrize(
    "target",
    [
        pa.int8(),
        pa.uuid(),
        HUGEINT,
        pa.list_(pa.uuid()),
        pa.struct([("a", TIME_TZ)]),
        pa.map_(pa.string(), pa.int8()),
    ],
    ids=str,
)
def test_null_becomes_any_type(target) -> None:
    assert converted(pa.nulls(3), target) == [None] * 3


# ------------------------------------------------------------ packed booleans (airport §13.1, T31)


def packed(values: list[bool | None], filler: int) -> pa.Array:
    """Build what DuckDB sends before 1.5.4: bits, in a buffer that claims a byte for each.

    Unused bits are ones, and the rest of the buffer is whatever the memory holds.
    """
    bits = pa.array(values, pa.bool_())
    used = (len(values) + 7) // 8
    data = bytearray(bits.buffers()[1].to_pybytes()[:used] if values else b"")
    if len(values) % 8:
        data[-1] |= 0xFF << len(values) % 8 & 0xFF
    octets = (bytes(data) + bytes([filler]) * len(values))[: len(values)]
    storage = pa.Array.from_buffers(
        pa.int8(), len(values), [bits.buffers()[0], pa.py_buffer(octets)]
    )
    return pa.ExtensionArray.from_storage(pa.bool8(), storage)


def whole(values: list[bool | None]) -> pa.Array:
    """Build what DuckDB sends since 1.5.4: booleans as their type says."""
    return pa.ExtensionArray.from_storage(pa.bool8(), pa.array(values, pa.bool_()).cast(pa.int8()))


BOOLEANS = st.lists(st.none() | st.booleans(), max_size=20)


@UNHURRIED
@given(rows=st.lists(BOOLEANS, max_size=6), filler=st.integers(2, 255), nulls=st.data())
def test_booleans_in_lists_are_read_bit_by_bit(rows, filler, nulls) -> None:
    flat = [value for row in rows for value in row]
    ends = [sum(len(row) for row in rows[:index]) for index in range(len(rows) + 1)]
    missing = [nulls.draw(st.booleans()) for _ in rows]
    array = pa.ListArray.from_arrays(
        pa.array(ends, pa.int32()), packed(flat, filler), mask=pa.array(missing, pa.bool_())
    )
    expected = [None if gone else row for row, gone in zip(rows, missing, strict=True)]
    for target in (pa.list_(pa.bool_()), pa.list_(pa.bool8()), pa.large_list_view(pa.bool_())):
        assert converted(array, target) == expected


@UNHURRIED
@given(rows=st.lists(BOOLEANS, max_size=6))
def test_booleans_of_whole_bytes_in_lists_are_read_as_such_or_refused(rows) -> None:
    ends = [sum(len(row) for row in rows[:index]) for index in range(len(rows) + 1)]
    array = pa.ListArray.from_arrays(
        pa.array(ends, pa.int32()), whole([value for row in rows for value in row])
    )
    flat = [value for row in rows for value in row]
    # The only case in which bits would look alike, and mean something else.
    if (
        len(flat) % 8 == 0
        and True in flat[1 : len(flat) // 8]
        and True not in flat[len(flat) // 8 :]
    ):
        with pytest.raises(BadRequest, match="cannot be told apart"):
            convert_array(array, pa.list_(pa.bool_()), "v")
    else:
        assert convert_array(array, pa.list_(pa.bool_()), "v").to_pylist() == rows


@pytest.mark.parametrize(
    "values",
    [[True, False, True], [False] * 16, [True] * 16, [None, True] * 8, [False] * 15 + [True]],
)
def test_common_booleans_are_read_in_either_encoding(values) -> None:
    for encoded in (whole(values), packed(values, 0xAA)):
        array = pa.StructArray.from_arrays([encoded], ["b"])
        assert (
            convert_array(array, pa.struct([("b", pa.bool_())]), "v").field("b").to_pylist()
            == values
        )


def test_booleans_that_could_be_of_either_encoding_are_refused() -> None:
    array = pa.StructArray.from_arrays([whole([True, True, *[False] * 14])], ["b"])
    with pytest.raises(BadRequest, match="SET arrow_lossless_conversion = false"):
        convert_array(array, pa.struct([("b", pa.bool_())]), "v")


@UNHURRIED
@given(values=BOOLEANS, filler=st.integers(2, 255), nulls=st.data())
def test_booleans_in_structs_arrays_and_maps_are_read_bit_by_bit(values, filler, nulls) -> None:
    missing = [nulls.draw(st.booleans()) for _ in values]
    struct = pa.StructArray.from_arrays(
        [packed(values, filler)], ["b"], mask=pa.array(missing, pa.bool_())
    )
    expected = [None if gone else {"b": value} for value, gone in zip(values, missing, strict=True)]
    assert converted(struct, pa.struct([("b", pa.bool_())])) == expected
    assert converted(struct, pa.struct([("b", pa.bool8())])) == expected

    pairs = values[: len(values) // 2 * 2]
    fixed = pa.FixedSizeListArray.from_arrays(packed(pairs, filler), 2)
    halves = [pairs[index : index + 2] for index in range(0, len(pairs), 2)]
    assert converted(fixed, pa.list_(pa.bool_(), 2)) == halves

    keys = pa.array([str(index) for index in range(len(values))])
    table = pa.MapArray.from_arrays(
        pa.array([0, len(values)], pa.int32()), keys, packed(values, filler)
    )
    entries = [(str(index), value) for index, value in enumerate(values)]
    assert converted(table, pa.map_(pa.string(), pa.bool_())) == [entries]


def test_the_recorded_defect_is_repaired() -> None:
    array = pa.ListArray.from_arrays(
        pa.array([0, 4], pa.int32()), packed([True, False, True, True], 0xFF)
    )
    assert array.to_pylist() == [[True] * 4]
    assert converted(array, pa.list_(pa.bool_())) == [[True, False, True, True]]


def bytes_of(octets: bytes, nulls: bytes | None = None) -> pa.Array:
    buffers = [None if nulls is None else pa.py_buffer(nulls), pa.py_buffer(octets)]
    return pa.ExtensionArray.from_storage(
        pa.bool8(), pa.Array.from_buffers(pa.int8(), len(octets), buffers)
    )


GARBAGE = bytes_of(b"\x00\x5a\x01\xba", nulls=b"\xfe")
"""A column of NULLs as DuckDB 1.5.0 sends it: only its first row is NULL (airport §13.3)."""
ENDS = pa.array([0, 4], pa.int32())
KEYS = pa.array(list("abcd"))


@pytest.mark.parametrize(
    "array",
    [
        pytest.param(GARBAGE, id="column"),
        pytest.param(pa.StructArray.from_arrays([GARBAGE], ["b"]), id="struct"),
        pytest.param(pa.ListArray.from_arrays(ENDS, GARBAGE), id="list"),
        pytest.param(pa.FixedSizeListArray.from_arrays(GARBAGE, 2), id="array"),
        pytest.param(pa.MapArray.from_arrays(ENDS, KEYS, GARBAGE), id="map"),
        pytest.param(
            pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), bytes_of(b"\x5b")), id="one"
        ),
    ],
)
@pytest.mark.parametrize("boolean", [pa.bool_(), pa.bool8()], ids=str)
def test_bytes_that_are_neither_booleans_nor_bits_are_refused(array, boolean) -> None:
    with pytest.raises(
        BadRequest, match=r"neither true.*SET arrow_lossless_conversion = false, or name the"
    ):
        convert_array(array, _of_booleans(array.type, boolean), "v")


def _of_booleans(kind: pa.DataType, boolean: pa.DataType) -> pa.DataType:
    if kind == pa.bool8():
        return boolean
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, boolean)
    if pa.types.is_struct(kind):
        return pa.struct([("b", boolean)])
    return (
        pa.list_(boolean, kind.list_size)
        if pa.types.is_fixed_size_list(kind)
        else pa.list_(boolean)
    )


@pytest.mark.parametrize("boolean", [pa.bool_(), pa.bool8()], ids=str)
def test_bytes_where_null_is_marked_are_not_looked_at(boolean) -> None:
    octets = bytes_of(b"\x5a\x01\x00\xba", nulls=b"\x06")
    assert converted(octets, boolean) == [None, True, False, None]
    assert converted(pa.ListArray.from_arrays(ENDS, octets), pa.list_(boolean)) == [
        [None, True, False, None]
    ]
    assert converted(bytes_of(b"\x5a\xba", nulls=b"\x00"), boolean) == [None, None]


def test_other_clients_send_nested_booleans_as_declared() -> None:
    array = array_of([[True, False], [None, True]], pa.list_(pa.bool8()))
    assert converted(array, pa.list_(pa.bool_()), from_duckdb=False) == [
        [True, False],
        [None, True],
    ]


def test_a_union_inside_of_a_struct_that_is_null_is_converted():
    """`StructArray.flatten` ends the whole process on it (pyarrow 26)."""
    union = pa.UnionArray.from_sparse(
        pa.array([0, 1, 0], pa.int8()),
        [pa.array([1, 2, 3], pa.int32()), pa.array(["a", "b", "c"])],
        ["n", "t"],
    )
    structs = pa.StructArray.from_arrays([union], ["u"], mask=pa.array([False, True, False]))
    wide = pa.sparse_union([pa.field("n", pa.int64()), pa.field("t", pa.string())])

    converted = convert_array(structs, pa.struct([pa.field("u", wide)]), "column")

    converted.validate(full=True)
    assert converted.to_pylist() == [{"u": 1}, None, {"u": 3}]
