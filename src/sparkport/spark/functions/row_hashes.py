"""Find the rows of two tables that differ, by 64-bit hashes of the rows."""

from __future__ import annotations

import pyarrow as pa

from sparkport.engine.databases import ROWS

__all__ = ["RowHashes"]


class RowHashes:
    """Hashes of rows on two sides, computed and compared by DuckDB.

    To be closed; for one thread.
    """

    def __init__(self, columns: int) -> None:
        self._columns = columns
        self._database = ROWS.cursor()
        for side in (0, 1):
            self._database.execute(f"CREATE TEMP TABLE side{side} (id BIGINT, hash UBIGINT)")

    def __enter__(self) -> RowHashes:
        return self

    def __exit__(self, *_: object) -> None:
        self._database.close()

    def add(self, side: int, rows: pa.RecordBatch) -> None:
        """Add rows to a side, 0 or 1; the last column is the row id."""
        names = [f"c{index}" for index in range(self._columns)]
        # DuckDB hashes only the elements of nested values: an empty list would be equal to NULL.
        values = [
            f"CAST({name} AS VARCHAR)"
            if pa.types.is_nested(rows.schema.field(index).type)
            else name
            for index, name in enumerate(names)
        ]
        self._database.register("rows", rows.rename_columns([*names, "id"]))
        self._database.execute(
            f"INSERT INTO side{side} SELECT id, hash({', '.join(values)}) FROM rows"
        )
        self._database.unregister("rows")

    def differing(self) -> pa.Array:
        """Ids of rows that are on both sides and differ, in no order.

        0.0 equals -0.0, and NaN equals NaN.
        """
        query = (
            "SELECT side0.id FROM side0"
            " JOIN side1 ON side0.id = side1.id AND side0.hash <> side1.hash"
        )
        return self._database.sql(query).to_arrow_table().column(0).combine_chunks()
