"""Making the messages of a scan in another process: the argument of `FramedTable.scan_framed`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from sparkport.catalog.scan import Framer, Framing, MessagePart
from sparkport.service.bound_columns import Fit, slices
from sparkport.wire.flight_data import frame_encoded

__all__ = ["ScanFraming"]


class ScanFraming(Framing):
    """The framing of one scan of a table with a given bound Arrow schema.

    Published columns are never dictionaries (T33), so no message depends on another, and each may
    be made by a different process.
    """

    def __init__(self, bound: pa.Schema, wanted: Sequence[int] | None, title: str) -> None:
        """`wanted` are positions in `bound`; None means all. `title` names the table in errors."""
        self._bound = bound
        self._wanted = None if wanted is None else tuple(wanted)
        self._title = title
        self._arrow_schema = Fit(bound, self._wanted, title).arrow_schema

    @property
    def arrow_schema(self) -> pa.Schema:
        return self._arrow_schema

    def open(self) -> Framer:
        return _Framer(Fit(self._bound, self._wanted, self._title))

    def __reduce__(self) -> tuple[object, ...]:
        # As IPC, which keeps the extension types by their names.
        return _unpickled, (self._bound.serialize().to_pybytes(), self._wanted, self._title)


def _unpickled(bound: bytes, wanted: tuple[int, ...] | None, title: str) -> ScanFraming:
    return ScanFraming(pa.ipc.read_schema(pa.py_buffer(bound)), wanted, title)


class _Framer(Framer):
    def __init__(self, fit: Fit) -> None:
        self._fit = fit
        self._writer = fit.writer()

    def frames(self, batch: pa.RecordBatch) -> Iterator[list[MessagePart]]:
        if batch.num_rows:
            for piece in slices(self._fit(batch)):
                yield from self._writer.parts(piece)

    def frame_encoded(self, message: bytes | memoryview) -> list[MessagePart]:
        return frame_encoded(message)
