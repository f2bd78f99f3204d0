"""Dictionaries of incoming streams: the memory they hold is bounded, with rows and without."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pyarrow as pa
import pytest

from sparkport.errors import LimitExceeded
from sparkport.wire import dictionaries
from sparkport.wire.flight_data import (
    BatchReader,
    BatchWriter,
    FlightData,
    decode_flight_data,
    encode_schema,
)

KIND = pa.dictionary(pa.int32(), pa.string())
SCHEMA = pa.schema([("a", KIND), ("b", pa.list_(KIND))])
LIMIT = 1_000_000


@pytest.fixture(autouse=True)
def limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dictionaries, "MOST_BYTES", LIMIT)


@pytest.fixture
def reader() -> BatchReader:
    return BatchReader(decode_flight_data(encode_schema(SCHEMA)))


def _batch(start: int = 0, size: int = 100, values: int = 100) -> pa.RecordBatch:
    texts = pa.array([f"{start + number:0{size}}" for number in range(values)])
    array = pa.DictionaryArray.from_arrays(pa.array([0, values - 1], pa.int32()), texts)
    lists = pa.ListArray.from_arrays(pa.array([0, 1, 2], pa.int32()), array)
    return pa.RecordBatch.from_arrays([array, lists], schema=SCHEMA)


def _messages(batch: pa.RecordBatch) -> list[FlightData]:
    """Two dictionaries, and the rows."""
    messages = [decode_flight_data(message) for message in BatchWriter(SCHEMA).messages(batch)]
    assert len(messages) == 3
    return messages


def _deltas(count: int) -> Iterator[FlightData]:
    """Yield batches whose dictionaries extend the previous ones."""
    sink = pa.BufferOutputStream()
    schema = pa.schema([("a", KIND)])
    options = pa.ipc.IpcWriteOptions(emit_dictionary_deltas=True)
    with pa.ipc.new_stream(sink, schema, options=options) as writer:
        texts: list[str] = []
        for number in range(count):
            texts += [f"{number:0100}-{each}" for each in range(100)]
            array = pa.DictionaryArray.from_arrays(
                pa.array([len(texts) - 1], pa.int32()), pa.array(texts)
            )
            writer.write_batch(pa.RecordBatch.from_arrays([array], schema=schema))
    for message in pa.ipc.MessageReader.open_stream(sink.getvalue()):
        yield FlightData(None, memoryview(message.metadata), b"", memoryview(message.body or b""))


@pytest.mark.parametrize("values", [100, 1], ids=["large", "tiny"])
def test_dictionaries_without_rows_are_refused_before_they_fill_the_memory(reader, values):
    first, second, _ = _messages(_batch(values=values))

    def send_for_ever() -> None:
        for sent in itertools.count(1):
            message = first if sent % 2 else second
            assert reader.read(message) is None
            assert sent * (len(message.body) + 1000) <= reader.dictionaries.held_bytes <= LIMIT

    with pytest.raises(
        LimitExceeded, match="the dictionaries of this stream would take more than 1 MB"
    ):
        send_for_ever()


def test_dictionaries_that_are_replaced_with_every_batch_go_on_for_ever(reader):
    for number in range(200):
        _, _, batch = map(reader.read, _messages(_batch(number * 1000)))
        assert batch.column("a").to_pylist() == _batch(number * 1000).column("a").to_pylist()
        assert reader.dictionaries.held_bytes < 50_000


def test_dictionaries_that_only_grow_are_refused_at_the_same_size():
    messages = _deltas(200)
    reader = BatchReader(next(messages))
    read = 0

    def send_all() -> None:
        nonlocal read
        for message in messages:
            batch = reader.read(message)
            if batch is not None:
                read += 1
                assert batch.column(0).dictionary.nbytes <= reader.dictionaries.held_bytes <= LIMIT

    with pytest.raises(LimitExceeded, match="the dictionaries of this stream"):
        send_all()
    assert 50 < read < 200
