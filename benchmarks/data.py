"""The table that everything is measured with: 7 columns, 56 bytes a row."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["BATCH_ROWS", "rows"]

BATCH_ROWS = 131_072


def rows(count: int, batch_rows: int = BATCH_ROWS) -> pa.Table:
    """Integers, floats, dates, timestamps and text, in batches of equal size."""
    batches = []
    for start in range(0, count, batch_rows):
        id_ = pa.array(range(start, min(start + batch_rows, count)), pa.int64())
        batches.append(
            pa.record_batch(
                {
                    "id": id_,
                    "customer": pc.cast(pc.bit_wise_and(id_, 0xFFFFF), pa.int32()),
                    "amount": pc.divide(pc.cast(id_, pa.float64()), 7.0),
                    "price": pc.multiply(pc.cast(pc.bit_wise_and(id_, 0xFFFF), pa.float64()), 1.5),
                    "day": pc.cast(pc.cast(pc.bit_wise_and(id_, 0x3FFF), pa.int32()), pa.date32()),
                    "at": pc.cast(pc.multiply(id_, 1000), pa.timestamp("us")),
                    "code": pc.cast(pc.bit_wise_and(id_, 0xFFFF), pa.string()),
                }
            )
        )
    return pa.Table.from_batches(batches)
