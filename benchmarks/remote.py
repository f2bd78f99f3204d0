"""A lake in PostgreSQL and S3, both on loopback, against others on the same store, and against what
the store and the catalog take by themselves.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyarrow.fs import S3FileSystem
from pyiceberg.table import StaticTable
from tests.parts.postgres import Database, postgres_server
from tests.parts.s3 import REGION, S3Server, s3_server

from benchmarks.bare_store import BareStore
from benchmarks.lake import Running, compared, full_scan_rates, start_lake
from benchmarks.lake_write import insert_of_one, update_of_few
from benchmarks.measure import Line, seconds
from benchmarks.rivals import start_rival
from sparkport.spark.jvm.session.source import LakeSource
from sparkport.testing import DuckDBClient

__all__ = ["run"]

_ROUNDS = 11
_WARM_UP = 4
_TABLE = "catalog_name = 'bench' AND table_namespace = 's' AND table_name = %s"


def run(rows: int) -> Iterator[Line]:
    """All benchmarks of a lake in PostgreSQL and S3."""
    with (
        s3_server() as store,
        postgres_server() as postgres,
        tempfile.TemporaryDirectory(prefix="sparkport-bench-") as folder,
    ):
        database = postgres.new_database()
        options = {**store.options(), **database.options}
        source = LakeSource("jdbc", f"s3://{store.bucket}/lake", database.uri, options)
        print(f"the lake on S3: writing {rows:,} rows …", file=sys.stderr)
        with start_lake(source, rows) as server:
            with start_rival("spark", source) as spark:
                place = _metadata_of(database, "big")
                rates = full_scan_rates(server, spark, source, place)
                yield compared("full scan of a table on S3, against PyIceberg", rates, 2, 0.5)
                yield compared("the same, against spark.table(t).toArrow()", rates, 1, 3.5)
            yield _point(server, store, database, source, rows)
            yield _one_row(server, store, database, source)
            with start_rival("spark", source) as spark:
                yield update_of_few(server, spark, Path(folder), rows)


def _metadata_of(database: Database, table: str) -> str:
    """Where the table's metadata are now."""
    query = f"SELECT metadata_location FROM iceberg_tables WHERE {_TABLE}"
    ((location,),) = database.run(query, (table,))
    return str(location)


def _point(
    server: Running, store: S3Server, database: Database, source: LakeSource, rows: int
) -> Line:
    wanted, bare = rows // 3, BareStore(store)
    table = _table(source, _metadata_of(database, "big"))
    needed = _needed(table, store, wanted)
    with DuckDBClient(server.location, "bench", timeout=60) as client:

        def ours() -> float:
            return seconds(lambda: client.scan("s", "big", where=f"id = {wanted}"))

        return _against_parts(
            "point query on a clustered column on S3, warm, against the store's own time for the "
            "columns of the row group",
            ours,
            lambda: sum(bare.get(*each) for each in needed),
        )


def _needed(table: StaticTable, store: S3Server, wanted: int) -> list[tuple[str, int, int]]:
    """The ranges that hold the columns of the row groups in which an id may be: location, start,
    length.
    """
    files = S3FileSystem(
        access_key=store.access_key,
        secret_key=store.secret_key,
        region=REGION,
        endpoint_override=store.endpoint,
    )
    found = []
    for task in table.scan(row_filter=f"id = {wanted}").plan_files():
        location = task.file.file_path
        footer = pq.read_metadata(location.partition("://")[2], filesystem=files)
        for index in range(footer.num_row_groups):
            group = footer.row_group(index)
            bounds = group.column(0).statistics
            if bounds.min <= wanted <= bounds.max:
                found += [(location, *_chunk(group.column(each))) for each in range(7)]
    return _joined(found)


def _chunk(column: Any) -> tuple[int, int]:
    offsets = column.dictionary_page_offset, column.data_page_offset
    start = min(each for each in offsets if each is not None)
    return start, column.total_compressed_size


def _joined(ranges: Sequence[tuple[str, int, int]]) -> list[tuple[str, int, int]]:
    """Neighbouring ranges as one, but for the first, which the filter reads."""
    joined = [ranges[0]]
    for location, start, length in ranges[1:]:
        last_location, last_start, last_length = joined[-1]
        if len(joined) > 1 and (last_location, last_start + last_length) == (location, start):
            joined[-1] = location, last_start, last_length + length
        else:
            joined.append((location, start, length))
    return joined


def _one_row(server: Running, store: S3Server, database: Database, source: LakeSource) -> Line:
    insert_of_one(server)
    bare = BareStore(store)
    sizes = [bare.size(each) for each in _written_last(source, _metadata_of(database, "one"))]
    with database.server.connected(database.name) as connection:
        connection.execute("CREATE TABLE swapped AS SELECT * FROM iceberg_tables")
        swap = f"UPDATE swapped SET metadata_location = %s WHERE {_TABLE}".encode()
        numbers = iter(range(1_000_000))

        def parts() -> float:
            number = next(numbers)
            places = [f"s3://{store.bucket}/bare/{number}-{each}" for each in range(len(sizes))]
            stored = sum(map(bare.put, places, sizes))
            return stored + seconds(lambda: connection.execute(swap, (str(number), "one")))

        return _against_parts(
            "INSERT of 1 row on S3, against the store's and the catalog's own times for its writes",
            lambda: insert_of_one(server),
            parts,
        )


def _written_last(source: LakeSource, place: str) -> list[str]:
    """The objects of the last commit: data file, manifest, manifest list, metadata."""
    table = _table(source, place)
    snapshot = table.current_snapshot()
    assert snapshot is not None
    (manifest,) = (
        each
        for each in snapshot.manifests(table.io)
        if each.added_snapshot_id == snapshot.snapshot_id
    )
    (entry,) = manifest.fetch_manifest_entry(table.io)
    return [entry.data_file.file_path, manifest.manifest_path, snapshot.manifest_list, place]


def _table(source: LakeSource, place: str) -> StaticTable:
    return StaticTable.from_metadata(place, {**source.options, "s3.region": REGION})


def _against_parts(what: str, ours: Callable[[], float], parts: Callable[[], float]) -> Line:
    took = [(ours(), parts()) for _ in range(_WARM_UP + _ROUNDS)][_WARM_UP:]
    ratio = statistics.median(mine / theirs for mine, theirs in took)
    mine, theirs = (statistics.median(each[index] for each in took) * 1000 for index in (0, 1))
    return Line(what, f"{ratio:.1f} ({mine:.1f} : {theirs:.1f} ms)", "≤ 3", ratio <= 3)
