"""Batches in the form that the client has bound: every column in its place."""

from __future__ import annotations

import pyarrow as pa
import pytest
from tests.server.catalogs import NUMBERS, numbers

from sparkport.errors import CatalogFault
from sparkport.service.bound_columns import MESSAGE_BYTES, Fit, slices
from sparkport.wire.flight_data import BatchReader, decode_flight_data

BATCH = numbers(5).to_batches()[0]


@pytest.mark.parametrize("wanted", [None, (), (0,), (2,), (0, 1, 2)])
def test_what_is_not_wanted_is_of_type_null_and_costs_no_bytes(wanted):
    fit = Fit(NUMBERS, wanted, "s.t")

    fitted = fit(BATCH)

    kept = range(3) if wanted is None else wanted
    assert fitted.schema == fit.arrow_schema
    assert fitted.num_rows == 5
    for index, field in enumerate(NUMBERS):
        assert fitted.schema.field(index).type == (field.type if index in kept else pa.null())
        assert index not in kept or fitted.column(index).equals(BATCH.column(index))
    assert fitted.nbytes == sum(BATCH.column(index).nbytes for index in kept)


def test_columns_are_not_copied():
    fitted = Fit(NUMBERS, None, "s.t")(BATCH.select(["value", "id", "name"]))

    assert fitted.column("id").buffers()[1].address == BATCH.column("id").buffers()[1].address


def test_a_scan_may_change_the_order_of_its_columns_from_batch_to_batch():
    fit = Fit(NUMBERS, (0, 2), "s.t")

    fitted = [
        fit(BATCH.select(names))
        for names in (["id", "value"], ["value", "id"], ["name", "value", "id"])
    ]

    assert all(batch.equals(fitted[0]) for batch in fitted)


def test_metadata_and_nullability_of_what_is_yielded_do_not_matter():
    schema = pa.schema([field.with_nullable(False).with_metadata({"a": "b"}) for field in NUMBERS])

    assert Fit(NUMBERS, None, "s.t")(BATCH.cast(schema)).schema == NUMBERS


@pytest.mark.parametrize(
    ("batch", "problem"),
    [
        (BATCH.select(["id"]), "no column 'name'"),
        (BATCH.set_column(1, "name", BATCH["name"].cast(pa.large_string())), "large_string"),
        (BATCH.set_column(1, "Name", BATCH["name"]), "no column 'name'"),
    ],
)
def test_a_batch_that_does_not_fit_is_the_tables_fault(batch, problem):
    with pytest.raises(CatalogFault, match=rf"s\.t.*{problem}"):
        Fit(NUMBERS, (0, 1), "s.t")(batch)


@pytest.mark.parametrize("rows", [0, 1, 63, 64, 65, 1_000_000])
def test_the_pieces_of_a_batch_are_the_batch(rows):
    batch = pa.record_batch(
        {
            "id": pa.array(range(rows), pa.int64()),
            "flag": pa.array([True, None] * (rows // 2) + [False] * (rows % 2), pa.bool_()),
        }
    )

    pieces = list(slices(batch))

    assert pa.Table.from_batches(pieces).combine_chunks().equals(pa.Table.from_batches([batch]))
    assert rows < 1_000_000 or len(pieces) > 1


def test_a_single_row_is_never_divided():
    batch = pa.record_batch({"text": pa.array(["x" * 50_000_000])})

    assert len(list(slices(batch))) == 1


def test_a_small_batch_is_framed_once_and_another_by_itself():
    fit = Fit(NUMBERS, (0, 2), "s.t")
    others = BATCH.slice(1)

    messages = [fit.small_message(each) for each in (BATCH, BATCH, others, BATCH)]

    assert messages[0] is messages[1]
    assert messages[0] == messages[3]
    reader = BatchReader(decode_flight_data(fit.schema_message))
    for message, batch in zip(messages, (BATCH, BATCH, others, BATCH), strict=True):
        assert message is not None
        read = reader.read(decode_flight_data(message))
        assert read is not None
        assert read.column(0) == batch.column(0)


def test_a_message_is_remembered_for_the_columns_that_were_wanted():
    few, all_ = (Fit(NUMBERS, wanted, "s.t") for wanted in ((0,), None))

    assert few.small_message(BATCH) != all_.small_message(BATCH)
    assert few.small_message(BATCH) == Fit(NUMBERS, (0,), "s.t").small_message(BATCH)


def test_a_large_batch_has_no_small_message():
    assert Fit(NUMBERS, None, "s.t").small_message(numbers(10_000).to_batches()[0]) is None


def test_columns_that_share_their_buffers_are_cut_as_others_are():
    shared = pa.array(range(MESSAGE_BYTES // 8))
    batch = pa.RecordBatch.from_arrays([shared] * 4, names=["a", "b", "c", "d"])

    assert batch.get_total_buffer_size() < 2 * MESSAGE_BYTES
    assert len(list(slices(batch))) == 4
