"""The type table is complete, agrees with what clients send, and has all that follows from it."""

from __future__ import annotations

import pyarrow as pa
import pytest
from tests.types.matrix import LINES, Line, Setting

from sparkport.catalog.filters.literals import CONSTANTS
from sparkport.engine.leaf_encodings import LEAF_CONVERSIONS
from sparkport.engine.type_table import ROWS, TypeRow, form, row_of, storage_type
from sparkport.spark.iceberg.types.natural_types import named_type, natural_type
from sparkport.spark.iceberg.types.type_tags import storage_of, type_tag_of

PLAIN = [row for row in ROWS if row.arrow]
SENT = [line for line in LINES if (row := row_of(line.arrow)) and row.arrow and not line.metadata]
by_row = pytest.mark.parametrize("row", PLAIN, ids=lambda row: f"{row.name}: {row.form}")


@pytest.mark.parametrize("line", SENT, ids=lambda line: line.name)
def test_the_table_says_what_clients_send(line: Line) -> None:
    row = row_of(line.arrow)
    assert row is not None
    assert row.name == line.name.partition("(")[0].strip('"')
    first = line.arrow if row.name in ("DECIMAL", "TIMESTAMP WITH TIME ZONE") else row.arrow[0]
    assert line.encodings[Setting.DEFAULT] == (row.default or first)
    assert line.encodings[Setting.LOSSLESS] == (row.lossless or first)


@pytest.mark.parametrize("line", SENT, ids=lambda line: line.name)
def test_every_layout_is_taken_for_the_type_or_for_what_it_is_by_default(line: Line) -> None:
    row = row_of(line.arrow)
    assert row is not None
    shown = {_name(row.arrow[0]), _name(row.default or row.arrow[0])}
    assert {_name(kind) for kind in line.encodings.values()} <= shown


def _name(data_type: pa.DataType) -> str | None:
    row = row_of(data_type)
    return None if row is None else row.name


@by_row
def test_whatever_a_client_sends_can_be_converted_to_what_a_table_keeps(row: TypeRow) -> None:
    for sent in (row.default, row.lossless):
        for kept in row.arrow:
            if sent is not None and sent != kept:
                assert (form(sent), form(kept)) in LEAF_CONVERSIONS


@by_row
def test_every_type_is_found_by_each_of_its_arrow_types(row: TypeRow) -> None:
    assert all(row_of(kind) is row for kind in row.arrow)
    assert all(form(kind) == row.form for kind in row.arrow)


@by_row
def test_the_lake_keeps_every_type_and_has_a_tag_where_it_needs_one(row: TypeRow) -> None:
    for kind in row.arrow:
        type_tag = type_tag_of(kind)
        if not row.iceberg:
            assert type_tag == "interval"
        elif natural_type(named_type(row.iceberg)).equals(kind):
            assert type_tag is None
        else:
            assert type_tag is not None
            storage = storage_of(type_tag)
            assert storage is not None
            nothing = pa.nulls(3, storage_type(kind))
            kept = storage.encode(nothing)
            assert kept.type == natural_type(storage.type)
            assert storage.decode(kept).equals(nothing)


def test_constants_can_be_written_of_all_types_that_have_literals() -> None:
    names = {row.name for row in PLAIN}
    # The client sends JSON as VARCHAR, CHAR is another name, and NULL has no type of its own.
    assert names - CONSTANTS.keys() == {"JSON", "NULL"}
    assert CONSTANTS.keys() - names == {"CHAR"}
