"""Changes of rows that fail: the error is clear, and afterwards rows and files are the same."""

from __future__ import annotations

import datetime
import os
import re
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sparkport.catalog import Context
from sparkport.server import Server
from sparkport.spark import LakeCatalog, LakeSettings
from sparkport.testing import DuckDBClient, ServerError
from sparkport.testing.exchange import Changed, Statement

_METADATA = re.compile(r"(-m\d+\.avro|\.metadata\.json)(\.crc)?$")
_COLUMNS = pa.schema(
    [
        ("id", pa.int64()),
        ("tiny", pa.uint8()),
        ("number", pa.int32()),
        ("text", pa.string()),
        ("amount", pa.decimal128(4, 1)),
        ("moment", pa.timestamp("us")),
        ("second", pa.timestamp("s")),
        ("day", pa.date32()),
        ("key", pa.uuid()),
        ("real", pa.float64()),
        ("many", pa.list_(pa.int32())),
    ]
)


@pytest.fixture(scope="module")
def server(lake: LakeCatalog) -> Iterator[Server]:
    with Server(lake, "grpc://127.0.0.1:0") as server:
        yield server


@pytest.fixture(scope="module")
def client(server: Server, lake: LakeCatalog) -> Iterator[DuckDBClient]:
    with DuckDBClient(server.location, lake.name, timeout=60) as client:
        yield client.attach()


@pytest.fixture
def other(server: Server, lake: LakeCatalog) -> Iterator[DuckDBClient]:
    with DuckDBClient(server.location, lake.name, timeout=60) as client:
        yield client.attach()


@pytest.fixture(scope="module")
def schema(client: DuckDBClient) -> str:
    client.create_schema("bad_writes")
    return "bad_writes"


@pytest.fixture(scope="module")
def table(client: DuckDBClient, schema: str) -> str:
    """A table with two rows, of the ids 0 and 1."""
    client.create_table(schema, "t", _COLUMNS)
    assert client.insert(schema, "t", _rows()).total == 2
    assert client.scan(schema, "t", ["rowid"]).column(0).to_pylist() == [0, 1]
    return "t"


def _rows() -> pa.Table:
    values = {
        "id": [1, 2],
        "tiny": [0, 255],
        "number": [-(2**31), 2**31 - 1],
        "text": ["", "ü"],
        "amount": [Decimal("-999.9"), None],
        "moment": [datetime.datetime(1, 1, 1), datetime.datetime(9999, 12, 31)],
        "second": [datetime.datetime(1, 1, 1), None],
        "day": [datetime.date(1, 1, 1), datetime.date(9999, 12, 31)],
        "key": pa.ExtensionArray.from_storage(
            pa.uuid(), pa.array([bytes(16), b"\xff" * 16], pa.binary(16))
        ),
        "real": [float("nan"), float("-inf")],
        "many": [[], [1, None]],
    }
    arrays = [
        values[field.name] if field.name == "key" else pa.array(values[field.name], field.type)
        for field in _COLUMNS
    ]
    return pa.Table.from_arrays(arrays, schema=_COLUMNS)


class Ground:
    """Everything that must be the same afterwards."""

    def __init__(self, lake: LakeCatalog, client: DuckDBClient, schema: str) -> None:
        self.lake = lake
        self.client = client
        self.schema = schema

    @contextmanager
    def unchanged(self, table: str) -> Iterator[None]:
        before = self.contents(table)
        yield
        assert self.contents(table) == before

    @contextmanager
    def refused(
        self, table: str, code: str, message: str, kind: str | None = "InvalidInputException"
    ) -> Iterator[None]:
        """Expect an error of this kind, which reveals nothing that it should not, and no change."""
        with self.unchanged(table), pytest.raises(ServerError, match=message) as caught:
            yield
        error = caught.value
        assert (error.code, error.duckdb_exception) == (code, kind), error
        assert not any(
            word in error.message
            for word in ("Traceback", "org.apache", "java.", "/data/", "file:")
        ), error

    def contents(self, table: str, client: DuckDBClient | None = None) -> tuple[Any, ...]:
        """The rows, the version, and all files."""
        rows = sorted(map(repr, (client or self.client).scan(self.schema, table).to_pylist()))
        state = _state(self.lake, self.schema, table)
        return rows, state.metadata_location, self.files(state.metadata.location), self.staged()

    def files(self, folder: str) -> list[str]:
        return _files(Path(folder.removeprefix("file:")))

    def staged(self) -> list[str]:
        return [name for name in _files(self.lake._lake.staging.root) if not name.endswith("lock")]


def _state(lake: LakeCatalog, schema: str, table: str) -> Any:
    found = lake.schema(Context(), schema).table(Context(), table)  # type: ignore[union-attr]
    return found.state  # type: ignore[union-attr]


def _files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


@pytest.fixture
def ground(lake: LakeCatalog, client: DuckDBClient, schema: str) -> Ground:
    return Ground(lake, client, schema)


def _send(
    client: DuckDBClient, schema: str, table: str, operation: str, rows: pa.Table, returning: bool
) -> Changed:
    """Send rows that DuckDB itself would not let through."""
    session = client._session
    with session.statement():
        bound = client._modified(schema, table)
        return Statement(session, bound, operation, rows.schema, rows.to_batches, returning).run()


# ------------------------------------------------------------------------------------------ values


def _no_utf8() -> pa.Array:
    offsets = pa.py_buffer(b"".join(each.to_bytes(4, "little") for each in (0, 1, 3)))
    return pa.Array.from_buffers(pa.string(), 2, [None, offsets, pa.py_buffer(b"a\xff\xfe")])


def _no_member() -> pa.Array:
    indices = pa.array([0, 7], pa.uint8())
    return pa.DictionaryArray.from_arrays(indices, pa.array(["a", "b"]), safe=False)


_NO_VALUES: list[tuple[str, str, pa.Array, str]] = [
    ("overflow", "tiny", pa.array([1, 300], pa.int64()), "column tiny.*300"),
    ("negative", "tiny", pa.array([1, -1], pa.int32()), "column tiny.*-1"),
    ("too large", "number", pa.array([1, 2**31], pa.int64()), "column number.*2147483648"),
    ("another type", "number", pa.array([[1], [2]]), "column number"),
    ("no number", "number", pa.array(["1", "one"]), "column number"),
    ("not a number", "number", pa.array([1.0, float("nan")]), "column number"),
    ("infinite", "number", pa.array([1.0, float("inf")]), "column number"),
    ("not a decimal", "amount", pa.array([1.0, float("nan")]), "column amount"),
    ("many digits", "amount", pa.array([Decimal("12345.6"), None]), "column amount"),
    ("more places", "amount", pa.array([Decimal("1.25"), None]), "column amount"),
    ("no text", "text", _no_utf8(), "UTF8"),
    ("no member", "text", _no_member(), "[Ii]ndices|out of bounds"),
    ("no moment", "moment", pa.array([0, 2**62], pa.timestamp("s")), "column moment"),
    ("no second", "second", pa.array([0, 2**62], pa.timestamp("s")), "column second"),
    ("no day", "day", pa.array([0, 2**62], pa.timestamp("s")), "column day"),
    ("no uuid", "key", pa.array(["00000000-0000-0000-0000-000000000000", "nobody"]), "column key"),
]


@pytest.mark.parametrize("operation", ["insert", "insert returning", "update", "update returning"])
@pytest.mark.parametrize(
    ("column", "values", "message"),
    [case[1:] for case in _NO_VALUES],
    ids=[c[0] for c in _NO_VALUES],
)
def test_a_value_that_the_column_cannot_hold_is_refused(
    ground: Ground, table: str, operation: str, column: str, values: pa.Array, message: str
) -> None:
    kind, _, returning = operation.partition(" ")
    rows = _rows().set_column(_COLUMNS.get_field_index(column), column, values)
    if kind == "update":
        rows = rows.append_column("rowid", pa.array([0, 1]))
    with ground.refused(table, "INVALID_ARGUMENT", message):
        _send(ground.client, ground.schema, table, kind, rows, bool(returning))


@pytest.mark.parametrize("kind", ["insert", "update"])
def test_a_column_that_is_not_there_is_refused(ground: Ground, table: str, kind: str) -> None:
    rows = pa.table({"id": [1], "nobody": [1], "rowid": [0]})
    with ground.refused(table, "INVALID_ARGUMENT", "mismatch|no column|columns"):
        _send(
            ground.client,
            ground.schema,
            table,
            kind,
            rows if kind == "update" else rows.drop(["rowid"]),
            False,
        )


# ----------------------------------------------------------------------------------------- row ids


@pytest.mark.parametrize("returning", [False, True])
@pytest.mark.parametrize("row_id", [2, 1000, -1, -(2**63), 2**31, 2**62, 2**63 - 1])
def test_a_row_that_is_not_there_is_neither_updated_nor_deleted(
    ground: Ground, table: str, row_id: int, returning: bool
) -> None:
    rows = _rows().append_column("rowid", pa.array([1, row_id]))
    message = f"row id {row_id} does not exist"
    with ground.refused(table, "NOT_FOUND", message):
        ground.client.update_rows(ground.schema, table, rows, returning=returning)
    with ground.refused(table, "NOT_FOUND", message):
        ground.client.delete_rows(ground.schema, table, [0, row_id], returning=returning)


@pytest.mark.parametrize("returning", [False, True])
def test_row_ids_that_are_none_are_refused(ground: Ground, table: str, returning: bool) -> None:
    for ids, message in [
        (pa.array([0, None], pa.int64()), "NULL"),
        (pa.array([0, 2**64 - 1], pa.uint64()), "18446744073709551615"),
        (pa.array(["0", "1"]), "integer"),
        (pa.array([0.0, 1.0]), "integer"),
    ]:
        with ground.refused(table, "INVALID_ARGUMENT", message):
            rows = _rows().append_column("rowid", ids)
            _send(ground.client, ground.schema, table, "update", rows, returning)
        with ground.refused(table, "INVALID_ARGUMENT", message):
            _send(
                ground.client, ground.schema, table, "delete", pa.table({"rowid": ids}), returning
            )


@pytest.mark.parametrize("returning", [False, True])
def test_a_row_is_not_updated_twice_by_one_statement(
    ground: Ground, table: str, returning: bool
) -> None:
    once = _rows().append_column("rowid", pa.array([0, 1]))
    twice = [once, once.slice(1)]
    with ground.refused(table, "INVALID_ARGUMENT", r"row 1 of table .* twice"):
        _send(ground.client, ground.schema, table, "update", pa.concat_tables(twice), returning)
    with ground.refused(table, "INVALID_ARGUMENT", r"row 0 of table .* twice"):
        rows = once.take([0, 0]).combine_chunks()
        _send(ground.client, ground.schema, table, "update", rows, returning)


def test_a_row_that_is_deleted_twice_counts_once(client: DuckDBClient, schema: str) -> None:
    client.create_table_as(schema, "twice", pa.table({"id": [1, 2, 3]}))
    assert client.delete_rows(schema, "twice", [1, 1]).total == 1
    assert client.scan(schema, "twice").column("id").to_pylist() == [1, 3]
    with pytest.raises(ServerError, match="row id 1 does not exist"):
        client.delete_rows(schema, "twice", [1])


# ----------------------------------------------------------------------------- while it is running

Change = Callable[[DuckDBClient, str, Callable[[], None]], None]


def _insert(client: DuckDBClient, schema: str, meanwhile: Callable[[], None]) -> None:
    def batches() -> Iterator[pa.Table]:
        yield pa.table({"id": [3]})
        meanwhile()
        yield pa.table({"id": [4]})

    client.insert(schema, "moving", batches())


def _update(client: DuckDBClient, schema: str, meanwhile: Callable[[], None]) -> None:
    def values(rows: pa.Table) -> list[int]:
        meanwhile()
        return [7] * rows.num_rows

    client.update(schema, "moving", {"id": values})


def _delete(client: DuckDBClient, schema: str, meanwhile: Callable[[], None]) -> None:
    def mask(rows: pa.Table) -> pa.Array:
        meanwhile()
        return pa.array([True] * rows.num_rows)

    client.delete(schema, "moving", mask)


_CHANGES = pytest.mark.parametrize(
    "change", [_insert, _update, _delete], ids=lambda change: change.__name__
)


@pytest.fixture
def moving(client: DuckDBClient, schema: str) -> Iterator[str]:
    client.create_table_as(schema, "moving", pa.table({"id": [1, 2]}))
    yield "moving"
    client.detach()
    client.attach().drop_table(schema, "moving", if_exists=True)


@_CHANGES
def test_a_table_that_is_dropped_meanwhile_does_not_come_back(
    ground: Ground, other: DuckDBClient, moving: str, change: Change
) -> None:
    folder = Path(
        _state(ground.lake, ground.schema, moving).metadata.location.removeprefix("file:")
    )
    staged = ground.staged()
    with pytest.raises(ServerError, match="does not exist") as caught:
        change(ground.client, ground.schema, lambda: other.drop_table(ground.schema, moving))
    assert caught.value.code == "NOT_FOUND"
    assert _files(folder) == []
    assert ground.staged() == staged


@_CHANGES
@pytest.mark.parametrize("altered", ["add", "retype", "rename"])
def test_a_table_that_is_altered_meanwhile_stays_as_it_is(
    ground: Ground, other: DuckDBClient, moving: str, change: Change, altered: str
) -> None:
    after: list[Any] = []

    def alter() -> None:
        if altered == "add":
            other.add_column(ground.schema, moving, "more", "INTEGER")
        elif altered == "retype":
            other.change_column_type(ground.schema, moving, "id", "VARCHAR")
        else:
            other.rename_column(ground.schema, moving, "id", "number")
        after.append(ground.contents(moving, other))

    with pytest.raises(ServerError, match="altered while the statement ran") as caught:
        change(ground.client, ground.schema, alter)
    assert (caught.value.code, caught.value.duckdb_exception) == ("ABORTED", None)
    assert after == [ground.contents(moving, other)]


@_CHANGES
def test_another_table_of_the_same_name_is_not_touched(
    ground: Ground, other: DuckDBClient, moving: str, change: Change
) -> None:
    after: list[Any] = []

    def recreate() -> None:
        other.drop_table(ground.schema, moving)
        other.create_table_as(ground.schema, moving, pa.table({"id": [1, 2]}))
        after.append(ground.contents(moving, other))

    old = _state(ground.lake, ground.schema, moving).metadata.location
    with pytest.raises(ServerError, match="dropped and created anew") as caught:
        change(ground.client, ground.schema, recreate)
    assert caught.value.code == "ABORTED"
    assert after == [ground.contents(moving, other)]
    assert (
        old == _state(ground.lake, ground.schema, moving).metadata.location
        or ground.files(old) == []
    )


# ----------------------------------------------------------------------------------------- storage


@contextmanager
def _no_file_larger_than(size: int, process: int = 0) -> Iterator[None]:
    """A real error of the system, for this process or another, as when the disk is full."""
    _, hard = before = resource.prlimit(process, resource.RLIMIT_FSIZE)
    resource.prlimit(process, resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.prlimit(process, resource.RLIMIT_FSIZE, before)


@pytest.fixture(scope="module")
def large(client: DuckDBClient, schema: str) -> str:
    client.create_table_as(schema, "large", _noise())
    return "large"


def _noise() -> pa.Table:
    """Rows that cannot be compressed."""
    return pa.table(
        {
            "id": pa.array(range(60_000)),
            "noise": pa.array([os.urandom(8).hex() for _ in range(60_000)]),
        }
    )


_STATEMENTS: dict[str, Callable[[DuckDBClient, str, str], Changed]] = {
    "insert": lambda client, schema, table: client.insert(schema, table, _noise()),
    "update": lambda client, schema, table: client.update(schema, table, {"noise": "noise || 'x'"}),
    "delete": lambda client, schema, table: client.delete(schema, table, "id % 2 = 0"),
    "update few": lambda client, schema, table: client.update(
        schema, table, {"noise": "'x'"}, "id = 7"
    ),
    "delete few": lambda client, schema, table: client.delete(schema, table, "id = 7"),
}


@pytest.mark.parametrize(
    ("statement", "room"),
    [
        ("insert", 0),
        ("insert", 400_000),
        ("update", 0),
        ("update", 400_000),
        ("delete", 0),
        ("update few", 0),
    ],
)
def test_a_full_disk_leaves_the_last_snapshot(
    ground: Ground, large: str, statement: str, room: int
) -> None:
    change = _STATEMENTS[statement]
    with (
        ground.refused(large, "RESOURCE_EXHAUSTED", "storage of table .* is full"),
        _no_file_larger_than(room),
    ):
        change(ground.client, ground.schema, large)


@pytest.mark.parametrize(
    ("writer", "room", "statement"),
    [
        *(("java", 512, each) for each in ("update few", "delete")),
        *(("server", 8192, each) for each in ("update few", "insert")),
        ("server", 2048, "delete few"),
    ],
)
def test_a_disk_that_is_full_for_the_commit_leaves_the_last_snapshot(
    ground: Ground, lake: LakeCatalog, large: str, statement: str, writer: str, room: int
) -> None:
    """By then the server or Iceberg in Java writes metadata. The server changes the catalog."""
    if writer == "java":  # which alone compresses them
        lake.spark.sql(
            f"ALTER TABLE `{lake.spark_catalog}`.`{ground.schema}`.`{large}` "
            "SET TBLPROPERTIES ('write.metadata.compression-codec' = 'gzip')"
        )
    java = int(lake.spark._jvm.java.lang.ProcessHandle.current().pid())  # type: ignore[union-attr]
    *before, files, staged = ground.contents(large)
    limit = _no_file_larger_than(room, java if writer == "java" else 0)
    with pytest.raises(ServerError) as caught, limit:
        _STATEMENTS[statement](ground.client, ground.schema, large)
    assert (
        caught.value.code == "RESOURCE_EXHAUSTED" or "the lake's catalog" in caught.value.message
    ), caught.value
    *after, more_files, still_staged = ground.contents(large)
    assert (after, still_staged) == (before, staged)
    # Iceberg does not remove a file that it could not write to its end.
    left = [file for file in more_files if file not in files]
    assert len(left) <= 2
    assert all(map(_METADATA.search, left)), left


@pytest.mark.parametrize(
    ("staging", "code"),
    [("/sys/sparkport", "PERMISSION_DENIED"), ("{file}/folder", "FAILED_PRECONDITION")],
)
def test_a_staging_folder_that_cannot_be_written_is_said_to_be_so(
    ground: Ground, warehouse: Path, tmp_path: Path, table: str, staging: str, code: str
) -> None:
    file = tmp_path / "file"
    file.touch()
    settings = LakeSettings(staging=staging.format(file=file))
    kind = "PermissionException" if code == "PERMISSION_DENIED" else "InvalidInputException"
    with (
        LakeCatalog(warehouse, settings=settings) as lake,
        Server(lake, "grpc://127.0.0.1:0") as server,
        DuckDBClient(server.location, lake.name, timeout=60) as client,
    ):
        client.attach()
        for change in (
            lambda: client.insert(ground.schema, table, _rows()),
            lambda: client.update(ground.schema, table, {"tiny": "7"}),
            lambda: client.delete(ground.schema, table),
        ):
            with ground.refused(table, code, "table .*t", kind):
                change()
