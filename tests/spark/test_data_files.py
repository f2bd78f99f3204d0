"""Data files that this process writes: their contents and size, and that all engines read them."""

from __future__ import annotations

import datetime
import json
import math
import resource
import threading
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform, TruncateTransform
from pyiceberg.types import (
    DecimalType,
    GeometryType,
    IcebergType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimeType,
    UnknownType,
    UUIDType,
)
from tests.spark.lake_tables import CTX, create, find, sql_name
from tests.spark.loading import load
from tests.spark.tables import NUMBERED, Table, numbered
from tests.types.encoded import bits, meant
from tests.types.matrix import LINES, Setting

from sparkport.catalog import ScanOptions
from sparkport.engine.encodings import convert_array
from sparkport.errors import ConstraintViolation, LimitExceeded, NotWritable, PreconditionFailed
from sparkport.spark import LakeCatalog
from sparkport.spark.iceberg.locations import local_path
from sparkport.spark.iceberg.table_state import TableState
from sparkport.spark.lake.changes import WrittenFile
from sparkport.spark.lake.iceberg_commit import begin, commit
from sparkport.spark.lake.staging import Staging, StagingArea
from sparkport.spark.write import data_files
from sparkport.spark.write.data_files import (
    DataFileWriter,
    can_write,
    declared,
    encoded,
    java_data_file,
)


@pytest.fixture
def area(tmp_path: Path) -> Iterator[StagingArea]:
    area = StagingArea(tmp_path / "staging")
    yield area
    area.close()


def _state(
    folder: Path, schema: Schema = NUMBERED, spec: PartitionSpec | None = None, **properties: str
) -> TableState:
    folder.mkdir(exist_ok=True)
    properties = {
        f"write.{name.replace('__', '.').replace('_', '-')}": text
        for name, text in properties.items()
    }
    return Table(folder, schema, properties=properties, specs=[spec or PartitionSpec()]).state()


def _write(
    state: TableState, staging: Staging, *batches: pa.Table, with_row_ids: bool = False
) -> list[WrittenFile]:
    writer = DataFileWriter(state, staging, with_row_ids=with_row_ids)
    for batch in batches:
        writer.write(batch)
    return writer.finish()


def _read(file: WrittenFile) -> pq.ParquetFile:
    return pq.ParquetFile(local_path(file.path))


# ------------------------------------------------------------------------------------------- files


def test_a_file_has_ids_and_statistics_and_nothing_of_arrow(
    tmp_path: Path, area: StagingArea
) -> None:
    staging = area.begin(_state(tmp_path / "t").identifier)
    (file,) = _write(_state(tmp_path / "t"), staging, numbered(10))
    content = _read(file)
    assert Path(local_path(file.path) or "").parent == tmp_path / "t" / "data"
    assert (file.rows, file.size) == (10, Path(local_path(file.path) or "").stat().st_size)
    assert (file.spec_id, file.partition) == (0, None)
    ids = [field.metadata[b"PARQUET:field_id"] for field in content.schema_arrow]
    assert ids == [b"1", b"2"]
    assert not content.metadata.metadata, (
        "no schema of Arrow, which readers would take for the truth"
    )
    column = content.metadata.row_group(0).column(0)
    assert column.compression == "ZSTD"
    assert (column.statistics.min, column.statistics.max) == (0, 9)
    assert content.read().to_pylist() == numbered(10).to_pylist()


def test_types_are_laid_out_as_the_specification_has_it(tmp_path: Path, area: StagingArea) -> None:
    kinds: list[IcebergType] = [
        DecimalType(9, 2),
        DecimalType(18, 2),
        DecimalType(38, 2),
        UUIDType(),
        TimeType(),
    ]
    kinds += [TimestampType(), ListType(21, LongType(), element_required=False)]
    kinds += [MapType(22, StringType(), 23, LongType(), value_required=False), UnknownType()]
    kinds += [StructType(NestedField(24, "a", LongType()))]
    schema = Schema(
        *(NestedField(number, f"c{number}", kind) for number, kind in enumerate(kinds, 1))
    )
    state = _state(tmp_path / "t", schema)
    rows = pa.table({"c1": pa.array([Decimal("1.25")], pa.decimal128(9, 2))})
    (file,) = _write(state, area.begin(state.identifier), rows)
    written = _read(file).schema
    assert [written.column(place).physical_type for place in range(3)] == [
        "INT32",
        "INT64",
        "FIXED_LEN_BYTE_ARRAY",
    ]
    logical = [str(written.column(place).logical_type) for place in range(3, 6)]
    assert logical[0] == "UUID"
    assert "isAdjustedToUTC=false, timeUnit=microseconds" in logical[1]
    assert "isAdjustedToUTC=false, timeUnit=microseconds" in logical[2]
    paths = [written.column(place).path for place in range(6, len(written))]
    assert paths == ["c7.list.element", "c8.key_value.key", "c8.key_value.value", "c10.a"]
    inner = _read(file).schema_arrow.field("c10").type.field(0)
    assert inner.metadata == {b"PARQUET:field_id": b"24"}


def test_rows_that_were_somewhere_else_keep_their_ids(tmp_path: Path, area: StagingArea) -> None:
    state = _state(tmp_path / "t")
    given = numbered(3).append_column("_row_id", pa.array([7, 5, 6]))
    (file,) = _write(state, area.begin(state.identifier), given, with_row_ids=True)
    columns = _read(file).read()
    assert columns.column("_row_id").to_pylist() == [7, 5, 6]
    assert columns.column("_last_updated_sequence_number").to_pylist() == [None] * 3
    ids = [field.metadata[b"PARQUET:field_id"] for field in columns.schema]
    assert ids == [b"1", b"2", b"2147483540", b"2147483539"]


def test_columns_are_found_by_name_and_missing_ones_are_null(
    tmp_path: Path, area: StagingArea
) -> None:
    state = _state(tmp_path / "t")
    (file,) = _write(state, area.begin(state.identifier), pa.table({"name": ["x"], "other": [1]}))
    assert _read(file).read().to_pylist() == [{"id": None, "name": "x"}]


def test_null_where_there_must_be_none_is_refused(tmp_path: Path, area: StagingArea) -> None:
    state = _state(tmp_path / "t", Schema(NestedField(1, "id", LongType(), required=True)))
    writer = DataFileWriter(state, area.begin(state.identifier))
    with pytest.raises(ConstraintViolation, match=r"NOT NULL constraint failed: t\.id"):
        writer.write(pa.table({"id": pa.array([1, None], pa.int64())}))
    writer.abort()


def test_without_rows_there_is_no_file(tmp_path: Path, area: StagingArea) -> None:
    state = _state(tmp_path / "t")
    assert _write(state, area.begin(state.identifier), numbered(0)) == []
    assert not (tmp_path / "t" / "data").exists()
    assert not area.root.exists()


def test_the_table_chooses_codec_place_and_sizes(tmp_path: Path, area: StagingArea) -> None:
    state = _state(
        tmp_path / "t",
        parquet__compression_codec="gzip",
        parquet__compression_level="9",
        data__path=f"file://{tmp_path}/elsewhere/",
        target_file_size_bytes="20000",
        parquet__row_group_size_bytes="40000",
    )
    files = _write(
        state,
        area.begin(state.identifier),
        *(numbered(2000, first) for first in range(0, 40_000, 2000)),
    )
    assert len(files) > 3
    assert {Path(local_path(file.path) or "").parent for file in files} == {tmp_path / "elsewhere"}
    assert {_read(file).metadata.row_group(0).column(0).compression for file in files} == {"GZIP"}
    assert sum(file.rows for file in files) == 40_000
    assert pa.concat_tables(_read(file).read() for file in files).column("id").to_pylist() == list(
        range(40_000)
    )


@pytest.mark.parametrize(
    "properties",
    [
        {"format__default": "orc"},
        {"location_provider__impl": "org.example.Places"},
        {"parquet__compression_codec": "lzo"},
        {"parquet__bloom_filter_enabled__column__id": "true"},
        {"data__path": "nowhere://somewhere/t"},
    ],
    ids=str,
)
def test_what_only_spark_can_write_is_left_to_it(
    tmp_path: Path, area: StagingArea, properties: Any
) -> None:
    assert can_write(_state(tmp_path))
    state = _state(tmp_path, **properties)
    assert not can_write(state)
    with pytest.raises(NotWritable, match=r"table a\.t"):
        DataFileWriter(state, area.begin(state.identifier))


@pytest.mark.parametrize(
    "kind",
    [
        GeometryType(),
        ListType(2, LongType(), element_required=True),
        MapType(2, LongType(), 3, LongType(), value_required=True),
        StructType(
            NestedField(
                2, "a", ListType(3, StructType(NestedField(4, "b", LongType(), required=True)))
            )
        ),
    ],
    ids=str,
)
def test_columns_that_arrow_cannot_write_as_iceberg_wants_them(
    tmp_path: Path, kind: IcebergType
) -> None:
    assert not can_write(_state(tmp_path, Schema(NestedField(1, "v", kind))))


# ------------------------------------------------------------------------------ threads and memory


def test_a_small_statement_needs_no_thread(tmp_path: Path, area: StagingArea) -> None:
    state = _state(tmp_path / "t")
    writer = DataFileWriter(state, area.begin(state.identifier))
    writer.write(numbered(1))
    assert not any(thread.name.startswith("sparkport-writer") for thread in threading.enumerate())
    assert len(writer.finish()) == 1


_NAMES = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "name"))


@pytest.mark.parametrize("spec", [None, _NAMES], ids=["one partition", "many partitions"])
def test_memory_stays_flat(tmp_path: Path, area: StagingArea, spec: PartitionSpec | None) -> None:
    """Row groups of 2 MB, and 25 MB of rows."""
    state = _state(tmp_path / "t", spec=spec, parquet__row_group_size_bytes=str(2 * 1024 * 1024))
    staging = area.begin(state.identifier)
    writer = DataFileWriter(state, staging)
    before, most = pa.total_allocated_bytes(), 0
    ids = pa.array(range(4096))
    for number in range(200):
        names = pc.cast(pc.multiply(pc.bit_wise_and(ids, 63), 1), pa.string())
        writer.write(
            pa.record_batch(
                [pc.add(ids, number * 4096), pc.binary_join_element_wise(names, "x" * 20, "")],
                names=["id", "name"],
            )
        )
        most = max(most, pa.total_allocated_bytes() - before)
    files = writer.finish()
    assert most < 16 * 1024 * 1024
    assert sum(file.rows for file in files) == 200 * 4096
    assert len(files) == (1 if spec is None else 64), "also of many partitions each has one file"
    assert not any(thread.name.startswith("sparkport-writer") for thread in threading.enumerate())
    staging.done()
    ids = pa.concat_arrays([_read(file).read().column("id").combine_chunks() for file in files])
    assert pc.count_distinct(ids).as_py() == 200 * 4096


def test_large_partitions_get_row_groups_at_once_and_small_ones_wait(
    tmp_path: Path, area: StagingArea
) -> None:
    spec = PartitionSpec(PartitionField(1, 1000, TruncateTransform(1_000_000), "id_trunc"))
    state = _state(tmp_path / "t", spec=spec, parquet__row_group_size_bytes=str(256 * 1024))
    staging = area.begin(state.identifier)
    writer = DataFileWriter(state, staging)
    for number in range(100):
        writer.write(numbered(1000, number * 1000))
        writer.write(numbered(1, (number + 1) * 1_000_000))
    files = {file.partition: file for file in writer.finish()}
    assert len(files) == 101
    assert _read(files[(0,)]).metadata.num_row_groups > 3
    assert list(staging.folder.iterdir())
    staging.done()
    assert _read(files[(0,)]).read().column("id").to_pylist() == list(range(100_000))


def test_more_partitions_than_files_may_be_open(
    tmp_path: Path, area: StagingArea, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data_files, "_MOST_OPEN", 2)
    state = _state(tmp_path / "t", spec=_NAMES, parquet__row_group_size_bytes="16000")
    writer = DataFileWriter(state, area.begin(state.identifier))
    for _ in range(5):
        for name in "abcd":
            writer.write(pa.table({"id": list(range(1000)), "name": [name] * 1000}))
    files = writer.finish()
    assert sum(file.rows for file in files) == 20_000
    assert {file.partition for file in files} == {("a",), ("b",), ("c",), ("d",)}
    for file in files:
        assert set(_read(file).read().column("name").to_pylist()) == set(file.partition or ())


# ------------------------------------------------------------------------------------------ errors


@pytest.fixture
def small_disk() -> Iterator[None]:
    """Limit the size of files: the system then reports an error as for a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.usefixtures("small_disk")
@pytest.mark.parametrize("rows", [100_000, 1_000_000], ids=["at the end", "in the thread"])
def test_a_full_disk_is_told_and_nothing_stays(
    tmp_path: Path, area: StagingArea, rows: int
) -> None:
    state = _state(
        tmp_path / "t",
        parquet__compression_codec="uncompressed",
        parquet__row_group_size_bytes="4000000",
    )
    staging = area.begin(state.identifier)
    writer = DataFileWriter(state, staging)
    with pytest.raises(LimitExceeded, match=r"storage of table a\.t is full; nothing was changed"):  # noqa: PT012
        for first in range(0, rows, 50_000):
            writer.write(numbered(50_000, first))
        writer.finish()
    writer.abort()
    staging.discard()
    assert not list((tmp_path / "t" / "data").iterdir())
    assert {path.name for path in area.folder().iterdir()} == {"lock"}


def test_a_place_that_takes_no_files_is_told(tmp_path: Path, area: StagingArea) -> None:
    state = _state(tmp_path / "t")
    (tmp_path / "t" / "data").write_text("not a folder")
    writer = DataFileWriter(state, area.begin(state.identifier))
    writer.write(numbered(1))
    with pytest.raises(PreconditionFailed, match=r"storage of table a\.t does not take new files"):
        writer.finish()
    writer.abort()


def test_an_aborted_statement_leaves_no_file_and_no_thread(
    tmp_path: Path, area: StagingArea
) -> None:
    state = _state(tmp_path / "t", parquet__row_group_size_bytes="100000")
    staging = area.begin(state.identifier)
    writer = DataFileWriter(state, staging)
    for first in range(0, 100_000, 10_000):
        writer.write(numbered(10_000, first))
    writer.abort()
    writer.abort()
    staging.discard()
    assert not list((tmp_path / "t" / "data").iterdir())
    assert not any(thread.name.startswith("sparkport-writer") for thread in threading.enumerate())


# ------------------------------------------------------------------------------------------- Spark


def _insert(lake: LakeCatalog, table: Any, given: pa.Table) -> list[WrittenFile]:
    """Write rows of declared columns, and commit them."""
    inner = lake._lake
    draft = begin(inner, table.state.identifier)
    staging = inner.staging.begin(draft.identifier, draft.state)
    writer = DataFileWriter(draft.state, staging)
    for batch in given.to_batches():
        writer.write(encoded(draft.state, batch))
    files = writer.finish()
    append = draft.transaction.newAppend()
    for file in files:
        append.appendFile(java_data_file(inner, draft.transaction.table(), file))
    append.commit()
    assert commit(draft)
    staging.done()
    inner.changed(draft.identifier)
    return files


def _everything() -> pa.Table:
    """A column of each declared type, with all its edge cases."""
    arrays = [meant(line, Setting.LOSSLESS) for line in LINES]
    count = max(map(len, arrays))
    padded = [
        array.take(pa.array([*range(len(array)), *[None] * (count - len(array))]))
        for array in arrays
    ]
    fields = [
        line.sent_as(Setting.LOSSLESS).with_name(f"c{number}") for number, line in enumerate(LINES)
    ]
    return pa.table(
        padded,
        schema=pa.schema(
            [field.with_type(array.type) for field, array in zip(fields, padded, strict=True)]
        ),
    )


def test_every_engine_reads_every_type_as_if_spark_had_written_it(
    lake: LakeCatalog, namespace: str, tmp_path: Path
) -> None:
    table = create(lake, namespace, "ours", _everything().schema)
    given = pa.table(
        [
            convert_array(column.combine_chunks(), field.type, field.name, from_duckdb=False)
            for column, field in zip(
                _everything().columns, table.state.definition.columns, strict=True
            )
        ],
        schema=table.state.definition.columns,
    )
    (file,) = _insert(lake, table, given)
    load(lake, namespace, "theirs", given, tmp_path)

    ours, theirs = (find(lake, namespace, name) for name in ("ours", "theirs"))
    scanned = [pa.Table.from_batches(each.scan(CTX, ScanOptions())) for each in (ours, theirs)]
    for name in given.column_names:
        assert bits(scanned[0].column(name)) == bits(given.column(name)), name
        assert _with_one_nan(scanned[0].column(name)) == _with_one_nan(scanned[1].column(name)), (
            name
        )
    assert scanned[0].column("rowid").to_pylist() == list(range(given.num_rows))

    in_spark = [
        lake.spark.table(sql_name(lake, namespace, name)).toArrow() for name in ("ours", "theirs")
    ]
    assert in_spark[0].schema == in_spark[1].schema
    for name in in_spark[0].column_names:
        assert _with_one_nan(in_spark[0].column(name)) == _with_one_nan(in_spark[1].column(name)), (
            name
        )

    (spark_file,) = (
        row[0]
        for row in lake.spark.sql(
            f"SELECT file_path FROM {sql_name(lake, namespace, 'theirs')}.files"
        ).collect()
    )
    paths = [local_path(path) for path in (file.path, spark_file)]
    for query in (
        "DESCRIBE SELECT * FROM read_parquet(?)",
        "SELECT COLUMNS(*)::VARCHAR FROM read_parquet(?)",
    ):
        in_duckdb = [duckdb.execute(query, [path]).fetchall() for path in paths]
        assert str(in_duckdb[0]).replace("-nan", "nan") == str(in_duckdb[1])


def _told_by_java(lake: LakeCatalog, table: Any, file: Any) -> dict[str, Any]:
    """A Java file in Iceberg's JSON, with bounds by field id."""
    parser = lake._lake.gateway.jvm.org.apache.iceberg.ContentFileParser
    found: dict[str, Any] = json.loads(parser.toJson(file, table.specs().get(file.specId())))
    for name, value in found.items():
        if isinstance(value, dict) and "keys" in value:
            found[name] = dict(zip(value["keys"], value["values"], strict=True))
    return found


def _tables_with_bounds() -> Iterator[pa.Table]:
    everything = _everything()
    for first in range(0, everything.num_columns, 15):
        yield everything.select(everything.column_names[first : first + 15])
    texts = [
        "x" * 16,
        "x" * 17,
        "\ud7ff" * 20,
        "\U0010ffff" * 20,
        "y\U0010ffff" + "\U0010ffff" * 20,
        "",
        None,
    ]
    octets = [b"x" * 16, b"x" * 17, b"\xff" * 16, b"\xff" * 20, b"\x01" + b"\xff" * 20, b"", None]
    for text, octet in zip(texts, octets, strict=True):
        yield pa.table(
            {"t": pa.array([text] * 2, pa.string()), "b": pa.array([octet] * 2, pa.binary())}
        )
    floats = {"f": [math.nan, math.nan], "g": [math.nan, -0.0]}
    yield pa.table({"t": ["x" * 5000, "a"], **floats, "n": pa.array([None] * 2, pa.int64())})


@pytest.mark.parametrize("with_row_ids", [False, True])
def test_what_is_kept_of_columns_is_what_iceberg_finds_in_the_file(
    lake: LakeCatalog, namespace: str, with_row_ids: bool
) -> None:
    for number, given in enumerate(_tables_with_bounds()):
        table = create(lake, namespace, f"t{number}", given.schema)
        draft = begin(lake._lake, table.state.identifier)
        staging = lake._lake.staging.begin(draft.identifier, draft.state)
        writer = DataFileWriter(draft.state, staging, with_row_ids=with_row_ids)
        for batch in given.to_batches():
            rows = encoded(draft.state, batch)
            writer.write(
                rows.append_column("_row_id", pa.array(range(7, 7 + len(rows))))
                if with_row_ids
                else rows
            )
        (file,) = writer.finish()
        assert file.described
        java = draft.transaction.table()
        ours = _told_by_java(lake, java, java_data_file(lake._lake, java, file))
        theirs = _told_by_java(
            lake, java, java_data_file(lake._lake, java, replace(file, described={}))
        )
        assert ours.pop("split-offsets") == [4], "only we tell where row groups begin"
        assert theirs.pop("nan-value-counts") == {}, "a file does not tell"
        assert ours == theirs, given.schema
        staging.discard()


def _with_one_nan(column: pa.ChunkedArray) -> list[Any]:
    """The values bit by bit, with a single NaN: Spark has only one."""
    if pa.types.is_floating(column.type):
        column = pc.if_else(pc.is_nan(column), pa.scalar(math.nan, column.type), column)
    return bits(column)


def test_the_metrics_are_those_that_spark_writes(lake: LakeCatalog, namespace: str) -> None:
    for name in ("ours", "theirs"):
        create(
            lake,
            namespace,
            name,
            pa.schema(
                [
                    ("id", pa.int64()),
                    ("x", pa.float64()),
                    ("s", pa.string()),
                    ("d", pa.decimal128(9, 2)),
                ]
            ),
        )
    given = pa.table({
        "id": [3, None, -1],
        "x": [1.5, math.nan, -0.0],
        "s": ["a" * 50, None, "b"],
        "d": pa.array([Decimal("1.25"), None, Decimal("-3.00")], pa.decimal128(9, 2)),
    })  # fmt: skip
    _insert(lake, find(lake, namespace, "ours"), given)
    lake.spark.sql(
        f"INSERT INTO {sql_name(lake, namespace, 'theirs')} SELECT /*+ COALESCE(1) */ * FROM "
        "VALUES "
        f"(3, 1.5, '{'a' * 50}', 1.25), (NULL, double('NaN'), NULL, NULL), (-1, -0.0D, 'b', -3.00)"
    )
    columns = "record_count, value_counts, null_value_counts, lower_bounds, upper_bounds"
    found = [
        lake.spark.sql(f"SELECT {columns} FROM {sql_name(lake, namespace, name)}.files").collect()[
            0
        ]
        for name in ("ours", "theirs")
    ]
    assert found[0] == found[1]


@pytest.mark.parametrize("how", ["as usual", "as told", "written anew"])
def test_rows_beside_long_texts_are_found_again(
    lake: LakeCatalog, namespace: str, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row group with a text above 4 KiB has no bounds; those of the others are not the file's."""
    columns = pa.schema([("id", pa.int64()), ("s", pa.string())])
    create(lake, namespace, "t", columns)
    name = sql_name(lake, namespace, "t")
    told = ", 'write.metadata.metrics.default' = 'full'" if how == "as told" else ""
    lake.spark.sql(
        f"ALTER TABLE {name} SET TBLPROPERTIES ('write.parquet.row-group-size-bytes' = "
        f"'1000'{told})"
    )
    texts = [["z" * 5000], ["a"] * 200]
    batches = [
        pa.RecordBatch.from_pydict({"id": range(len(each)), "s": each}, schema=columns)
        for each in texts
    ]
    (file,) = _insert(lake, find(lake, namespace, "t"), pa.Table.from_batches(batches))
    assert _read(file).num_row_groups == 2
    if how == "written anew":
        few = replace(lake._lake.settings, batch_rows=100)  # the rows of a row group
        monkeypatch.setattr(lake._lake, "settings", few)
        changed = pa.schema([("id", pa.string())])
        find(lake, namespace, "t").change_column_type(CTX, changed, "id + 1")
    (found,) = lake.spark.sql(f"SELECT count(*) FROM {name} WHERE s > 'm'").collect()
    assert found[0] == 1
    ((bounds,),) = lake.spark.sql(f"SELECT lower_bounds FROM {name}.files").collect()
    assert bounds
    assert 2 not in bounds


_COLUMNS = """i INT, l BIGINT, f FLOAT, d DOUBLE, s STRING, b BOOLEAN, bin BINARY, day DATE,
    ts TIMESTAMP, tn TIMESTAMP_NTZ, de DECIMAL(20,3)"""
_SPECS = {
    "numbers": "i, l, b, de",
    "floats": "f, d",
    "texts": "s, bin",
    "times": "day, ts, tn",
    "truncated": "truncate(10, i), truncate(7, l), truncate(3, s), truncate(2, bin), truncate(25, "
    "de)",
    "buckets": "bucket(5, i), bucket(6, l), bucket(7, s), bucket(8, bin), bucket(9, de), "
    "bucket(10, day), bucket(11, tn)",
    "years": "years(day), years(ts), years(tn)",
    "months": "months(day), months(ts), months(tn)",
    "days": "days(day), days(ts), days(tn)",
    "hours": "hours(ts), hours(tn)",
}


def _odd_rows() -> pa.Table:
    utc = datetime.timezone.utc
    moments = [
        datetime.datetime(1969, 12, 31, 23, 59, 59, 999_999),
        datetime.datetime(1970, 1, 1),
        datetime.datetime(1582, 10, 4, 1),
        datetime.datetime(1, 1, 1),
        datetime.datetime(9999, 12, 31, 23, 59, 59, 999_999),
        datetime.datetime(2024, 2, 29, 12, 30),
        None,
    ]
    count = len(moments)
    return pa.table(
        {
            "i": pa.array([-1, 0, 2**31 - 1, -(2**31) + 9, 15, -11, None], pa.int32()),
            "l": pa.array([-1, 0, 2**63 - 1, -(2**63) + 9, 15, -11, None], pa.int64()),
            "f": pa.array([-0.0, 0.0, math.nan, math.inf, -math.inf, 0.1, None], pa.float32()),
            "d": pa.array([-0.0, 0.0, math.nan, math.inf, -math.inf, 0.1, None], pa.float64()),
            "s": ["", "a/b c=d%", "äöü€", "😀😀😀😀", "null", " x ", None],
            "b": [True, False, True, False, True, False, None],
            "bin": [b"", b"\x00", b"\xff\xfe\xfd", b"abc", b"abd", b"=", None],
            "day": pa.array(
                [None if each is None else each.date() for each in moments], pa.date32()
            ),
            "ts": pa.array(
                [None if each is None else each.replace(tzinfo=utc) for each in moments],
                pa.timestamp("us", "UTC"),
            ),
            "tn": pa.array(moments, pa.timestamp("us")),
            "de": pa.array(
                [Decimal(n).scaleb(-3) for n in (-1, 0, 128, -129, 25, -25)] + [None],
                pa.decimal128(20, 3),
            ),
        }
    ).take(pa.array([*range(count), *range(count)]))


@pytest.mark.parametrize("spec", _SPECS)
def test_partitions_are_those_that_spark_makes(
    lake: LakeCatalog, namespace: str, tmp_path: Path, spec: str
) -> None:
    given = _odd_rows()
    pq.write_table(given, tmp_path / "given.parquet")
    for name in ("ours", "theirs"):
        lake.spark.sql(
            f"CREATE TABLE {sql_name(lake, namespace, name)} ({_COLUMNS}) USING iceberg "
            f"PARTITIONED BY ({_SPECS[spec]}) "
            "TBLPROPERTIES ('format-version'='3')"
        )
    files = _insert(lake, find(lake, namespace, "ours"), given)
    lake.spark.read.parquet(str(tmp_path / "given.parquet")).writeTo(
        sql_name(lake, namespace, "theirs")
    ).append()

    def told(query: str, name: str) -> list[str]:
        found = lake.spark.sql(f"SELECT {query.format(sql_name(lake, namespace, name))}").toArrow()
        return sorted(map(repr, found.to_pylist()))

    partitions = "partition, record_count FROM {}.files"
    assert told(partitions, "ours") == told(partitions, "theirs")
    assert len(files) == len(told(partitions, "ours"))
    assert told("* FROM {}", "ours") == told("* FROM {}", "theirs")
    scanned = [
        pa.Table.from_batches(find(lake, namespace, name).scan(CTX, ScanOptions()))
        for name in ("ours", "theirs")
    ]
    contents = [sorted(map(repr, each.drop(["rowid"]).to_pylist())) for each in scanned]
    assert contents[0] == contents[1] == sorted(map(repr, given.to_pylist()))


@pytest.mark.parametrize("spec", ["numbers", "truncated", "buckets", "days"])
def test_rows_are_found_again_by_their_partition(
    lake: LakeCatalog, namespace: str, spec: str
) -> None:
    lake.spark.sql(
        f"CREATE TABLE {sql_name(lake, namespace, 't')} ({_COLUMNS}) USING iceberg PARTITIONED BY "
        f"({_SPECS[spec]}) "
        "TBLPROPERTIES ('format-version'='3')"
    )
    _insert(lake, find(lake, namespace, "t"), _odd_rows())
    for condition in (
        "i = -11",
        "l = 15",
        "s = 'a/b c=d%'",
        "bin = X'00'",
        "de = -0.129",
        "day = DATE'2024-02-29'",
        "tn = TIMESTAMP_NTZ'1969-12-31 23:59:59.999999'",
    ):
        found = lake.spark.sql(
            f"SELECT count(*) FROM {sql_name(lake, namespace, 't')} WHERE {condition}"
        ).collect()
        assert found[0][0] == 2, condition


def test_years_that_python_does_not_have_are_partitions_too(
    lake: LakeCatalog, namespace: str
) -> None:
    lake.spark.sql(
        f"CREATE TABLE {sql_name(lake, namespace, 't')} (day DATE, tn TIMESTAMP_NTZ) USING iceberg "
        "PARTITIONED BY (day, tn, years(day), hours(tn)) TBLPROPERTIES ('format-version'='3')"
    )
    days, micros = [2**31 - 1, -(2**31), 2_932_897], [2**63 - 1, -(2**62), 253_402_300_800_000_000]
    given = pa.table(
        {
            "day": pa.array(days, pa.int32()).cast(pa.date32()),
            "tn": pa.array(micros).cast(pa.timestamp("us")),
        }
    )
    _insert(lake, find(lake, namespace, "t"), given)
    files = f"{sql_name(lake, namespace, 't')}.files"
    query = f"SELECT unix_date(partition.day), partition.day_year FROM {files}"
    found = {tuple(row) for row in lake.spark.sql(query).collect()}
    assert found == {
        (2**31 - 1, 5881580 - 1970),
        (-(2**31), -5877641 - 1970),
        (2_932_897, 10_000 - 1970),
    }
    scanned = pa.Table.from_batches(find(lake, namespace, "t").scan(CTX, ScanOptions()))
    assert sorted(scanned.column("tn").cast(pa.int64()).to_pylist()) == sorted(micros)


def test_a_partition_field_that_was_dropped_is_void(lake: LakeCatalog, namespace: str) -> None:
    name = sql_name(lake, namespace, "t")
    lake.spark.sql(
        f"CREATE TABLE {name} (id BIGINT, s STRING) USING iceberg PARTITIONED BY (s, bucket(4, "
        "id)) "
        "TBLPROPERTIES ('format-version'='1')"
    )
    lake.spark.sql(f"ALTER TABLE {name} DROP PARTITION FIELD s")
    table = find(lake, namespace, "t")
    assert can_write(table.state)
    files = _insert(lake, table, pa.table({"id": [1, 2, None], "s": ["a", "b", "c"]}))
    assert {file.spec_id for file in files} == {1}
    assert sorted(map(tuple, lake.spark.table(name).collect()), key=repr) == [
        (1, "a"),
        (2, "b"),
        (None, "c"),
    ]


def test_a_sorted_table_is_left_to_spark(lake: LakeCatalog, namespace: str) -> None:
    create(lake, namespace, "t")
    assert can_write(find(lake, namespace, "t").state)
    lake.spark.sql(f"ALTER TABLE {sql_name(lake, namespace, 't')} WRITE ORDERED BY id")
    assert not can_write(find(lake, namespace, "t").state)


# --------------------------------------------------------------------- rows that wait in memory


def test_few_rows_are_held_and_shown_as_they_were_declared(
    tmp_path: Path, area: StagingArea
) -> None:
    schema = Schema(
        NestedField(1, "id", LongType(), required=True),
        NestedField(2, "key", UUIDType()),
        NestedField(3, "nothing", UnknownType()),
        NestedField(4, "list", ListType(5, StringType(), element_required=False)),
    )
    state = _state(tmp_path / "t", schema)
    fields = state.definition.columns
    keys = pa.array([bytes(range(16)), None], pa.binary(16))
    rows = pa.RecordBatch.from_arrays(
        [
            pa.array([1, 2], pa.int64()),
            pa.ExtensionArray.from_storage(fields.field("key").type, keys)
            if isinstance(fields.field("key").type, pa.BaseExtensionType)
            else keys.cast(fields.field("key").type),
            pa.nulls(2, fields.field("nothing").type),
            pa.array([["a"], None], fields.field("list").type),
        ],
        schema=fields,
    )
    staging = area.begin(state.identifier, state)
    writer = DataFileWriter(state, staging)
    writer.write(encoded(state, rows))

    (held,), files = writer.held_or_files()

    assert not files
    assert not list((tmp_path / "t").rglob("*.parquet"))
    (batch,) = held.rows.to_batches()
    shown = declared(state, batch, fields.names)
    assert shown.to_pydict() == rows.to_pydict()
    assert shown.schema.types == rows.schema.types


@pytest.mark.parametrize(("rows", "size"), [(2049, 1), (3, 200_000)])
def test_many_rows_or_large_ones_are_not_held(
    tmp_path: Path, area: StagingArea, rows: int, size: int
) -> None:
    state = _state(tmp_path / "t")
    writer = DataFileWriter(state, area.begin(state.identifier, state))
    writer.write(pa.record_batch({"id": list(range(rows)), "name": ["x" * size] * rows}))

    held, files = writer.held_or_files()

    assert not held
    assert sum(file.rows for file in files) == rows
