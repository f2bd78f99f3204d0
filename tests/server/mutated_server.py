"""The server that gets mutated requests, as a process of its own, which may crash alone.

Mutated requests may change `cat`, but not `steady`.
"""

from __future__ import annotations

import logging
import sys

import pyarrow as pa
from tests.server.catalogs import ListedTable, catalog_of, numbers

from sparkport.builder import CatalogBuilder
from sparkport.server import Server

COLUMNS = pa.schema(
    [
        ("id", pa.int64()),
        ("name", pa.string()),
        ("amount", pa.decimal128(10, 2)),
        ("tags", pa.list_(pa.string())),
        ("addr", pa.struct([("street", pa.string()), ("zip", pa.int32())])),
    ]
)


def main() -> None:
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
    builder = CatalogBuilder("cat")
    builder.schema("s1").table("t", COLUMNS)
    steady = catalog_of(ListedTable("t", numbers()), name="steady")
    server = Server([builder, steady], "grpc://127.0.0.1:0")
    server.run_until_signal(lambda: print(server.location, flush=True))  # noqa: T201


if __name__ == "__main__":
    main()
