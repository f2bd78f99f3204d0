"""Random statements and compactions on tables of every kind, against a model of their rows."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator

import duckdb
import pyarrow as pa
import pytest
from tests.spark.compacting import compacted, everything, files, partitioned, strays, with_settings
from tests.spark.independent_readers import rows_by
from tests.spark.lake_tables import CTX, find, rows, sql_name
from tests.spark.places import Place

from sparkport.catalog import AddColumnOptions, ScanOptions
from sparkport.server import Server
from sparkport.spark import LakeCatalog, LakeSettings
from sparkport.spark.care.compaction import compact, compaction_need
from sparkport.testing import DuckDBClient

_STEPS = int(os.environ.get("SPARKPORT_COMPACTION_STEPS", "60"))
_COLUMNS = pa.schema([("id", pa.int64()), ("part", pa.string()), ("v", pa.int64())])


@pytest.fixture(scope="module")
def lake(place: Place) -> Iterator[LakeCatalog]:
    """A lake of its own, of which nobody else takes care."""
    settings = LakeSettings(statistics_rows=0, care=False)
    with LakeCatalog(source=place.source("compaction_model"), settings=settings) as lake:
        yield lake


@pytest.fixture(scope="module")
def server(lake: LakeCatalog) -> Iterator[Server]:
    with Server(lake, "grpc://127.0.0.1:0") as server:
        yield server


@pytest.fixture
def client(server: Server, lake: LakeCatalog, namespace: str) -> Iterator[DuckDBClient]:
    with DuckDBClient(server.location, lake.name, timeout=60) as client:
        yield client.attach()


class _Model:
    """A table and what it must show: for each id its values, and its row id once it was seen."""

    def __init__(
        self, lake: LakeCatalog, client: DuckDBClient, namespace: str, seed: int | str
    ) -> None:
        self.lake, self.client, self.namespace = lake, client, namespace
        self.random = random.Random(seed)
        self.rows: dict[int, tuple[str | None, int]] = {}
        self.row_ids: dict[int, int] = {}
        self.next = 0
        self.compactions = 0

    def insert(self) -> None:
        new = {}
        for _ in range(self.random.choice([1, 1, 2, 5])):
            new[self.next] = (self.random.choice(["a", "b", None]), self.random.randrange(100))
            self.next += 1
        table = pa.table(
            {
                "id": pa.array(new, pa.int64()),
                "part": pa.array([part for part, _ in new.values()], pa.string()),
                "v": pa.array([v for _, v in new.values()], pa.int64()),
            }
        )
        self.client.insert(self.namespace, "t", table)
        self.rows |= new

    def update(self) -> None:
        chosen = self._some()
        value = self.random.randrange(100)
        moves = self.random.random() < 0.3
        changes = {"v": f"v + {value}"} | ({"part": "'b'"} if moves else {})
        self.client.update(self.namespace, "t", changes, where=_among(chosen))
        for each in chosen:
            part, v = self.rows[each]
            self.rows[each] = ("b" if moves else part, v + value)

    def delete(self) -> None:
        chosen = self._some()
        self.client.delete(self.namespace, "t", where=_among(chosen))
        for each in chosen:
            del self.rows[each]
            self.row_ids.pop(each, None)

    def _some(self) -> list[int]:
        count = min(len(self.rows), self.random.choice([1, 1, 2, 6]))
        return self.random.sample(sorted(self.rows), count)

    def statement(self) -> None:
        chosen = [self.insert, self.insert]
        if self.rows:
            chosen += [self.update, self.update, self.delete]
        self.random.choice(chosen)()

    def compact(self) -> None:
        settings = with_settings(
            small_files=self.random.choice([2, 4]), sort=self.random.choice(["", "v DESC, id"])
        )
        state = find(self.lake, self.namespace, "t").state
        need = compaction_need(state, settings)
        if need is None:
            return
        left = self.random.choice([0, 0, 1, 3])

        def pause() -> None:
            nonlocal left
            while left:
                left -= 1
                self.statement()

        made = compact(self.lake._lake, need, settings, pause, lambda _: None)
        assert made is not None
        self.compactions += 1

    def check(self) -> None:
        found = rows(find(self.lake, self.namespace, "t"))
        assert {row["id"]: (row["part"], row["v"]) for row in found} == self.rows
        assert len(found) == len(self.rows)
        seen = {row["id"]: row["rowid"] for row in found}
        assert {each: seen[each] for each in self.row_ids} == self.row_ids, "row ids stay"
        self.row_ids = seen


def _among(ids: list[int]) -> str:
    return f"id IN ({', '.join(map(str, ids))})" if ids else "false"


@pytest.mark.parametrize("by", ["", "part", "bucket(2, id)"])
def test_random_statements_and_compactions_show_the_rows_of_the_model(lake, namespace, client, by):
    if by:
        partitioned(lake, namespace, "id BIGINT, part STRING, v BIGINT", by)
        client.detach()
        client.attach()
    else:
        client.create_table(namespace, "t", _COLUMNS)
    model = _Model(lake, client, namespace, by)
    for _ in range(_STEPS):
        if model.random.random() < 0.15:
            model.compact()
        else:
            model.statement()
        model.check()
    assert model.compactions > 1
    in_spark = {row[2]: (row[0], row[3], row[4]) for row in everything(lake, namespace)}
    assert in_spark == {each: (model.row_ids[each], *model.rows[each]) for each in model.rows}
    place = find(lake, namespace, "t").state.metadata_location
    expected = sorted(((each, *values) for each, values in model.rows.items()), key=repr)
    assert rows_by("pyiceberg", place) == expected
    assert strays(lake, namespace) == set()


# --------------------------------------------------------------------------------- columns of files


def test_columns_that_came_and_went_are_as_they_were(lake, namespace, client):
    client.create_table(namespace, "t", pa.schema([("id", pa.int32()), ("gone", pa.string())]))
    client.insert(namespace, "t", pa.table({"id": pa.array([1], pa.int32()), "gone": ["x"]}))
    late = pa.field("late", pa.int32(), metadata={"default": "7"})
    find(lake, namespace, "t").add_column(CTX, pa.schema([late]), AddColumnOptions())
    client.detach()
    client.attach()
    client.insert(
        namespace,
        "t",
        pa.table(
            {"id": pa.array([2], pa.int32()), "gone": ["y"], "late": pa.array([None], pa.int32())}
        ),
    )
    client.rename_column(namespace, "t", "id", "number")
    client.remove_column(namespace, "t", "gone")
    client.change_column_type(namespace, "t", "number", "BIGINT")
    client.add_column(namespace, "t", "last", "VARCHAR")
    client.insert(
        namespace,
        "t",
        pa.table(
            {
                "number": pa.array([3], pa.int64()),
                "late": pa.array([5], pa.int32()),
                "last": ["z"],
            }
        ),
    )
    before, in_spark = rows(find(lake, namespace, "t")), everything(lake, namespace)
    assert [row["late"] for row in before] == [7, None, 5]

    assert compacted(lake, namespace) is not None

    assert rows(find(lake, namespace, "t")) == before
    assert everything(lake, namespace) == in_spark
    assert len(files(lake, namespace)) == 1


_TYPES = """
SELECT id::INTEGER AS id, CASE WHEN id = 1 THEN NULL ELSE huge END::HUGEINT AS huge,
    uuid::UUID AS uuid, '12:34:56.789'::TIME AS time, '12:34:56+02'::TIMETZ AS timetz,
    TIMESTAMP_NS '2024-02-29 12:34:56.123456789' AS nanos, now()::TIMESTAMPTZ AS zoned,
    DATE '1999-12-31' AS day, 1.5::DECIMAL(20, 3) AS number, 200::UTINYINT AS tiny,
    18446744073709551615::UBIGINT AS large, 'x'::BLOB AS bytes, 'nan'::DOUBLE AS real,
    [1, NULL, id]::INTEGER[] AS list, {'a': id, 'b': ['x', NULL]} AS struct,
    MAP {'k': id} AS map, INTERVAL 3 DAYS AS span, NULL::INTEGER AS nothing, TRUE AS yes
FROM (VALUES (0, 1, '00000000-0000-0000-0000-000000000001'),
    (1, 2, 'ffffffff-ffff-ffff-ffff-ffffffffffff'),
    (2, -170141183460469231731687303715884105728, NULL)) AS v(id, huge, uuid)
"""


def test_values_of_every_type_are_as_they_were(lake, namespace, client):
    with duckdb.connect() as database:
        database.execute("SET arrow_lossless_conversion = true; SET TimeZone = 'UTC'")
        values = database.sql(_TYPES).to_arrow_table()
    client.create_table_as(namespace, "t", values.slice(0, 1))
    for number in (1, 2):
        client.insert(namespace, "t", values.slice(number, 1))
    before = _shown(lake, namespace)
    in_spark = _stored(lake, namespace)

    for sort in ("", "huge DESC, uuid"):
        assert compacted(lake, namespace, settings=with_settings(sort=sort)) is not None
        assert _shown(lake, namespace) == before
        assert _stored(lake, namespace) == in_spark
        client.insert(namespace, "t", values.slice(0, 1))
        client.delete(namespace, "t", where="id = 0")
        client.insert(namespace, "t", values.slice(0, 1))
        before = _shown(lake, namespace)
        in_spark = _stored(lake, namespace)


def _shown(lake: LakeCatalog, namespace: str) -> list[str]:
    """The rows in the order of their ids, as text: NaN is not equal to itself."""
    batches = list(find(lake, namespace, "t").scan(CTX, ScanOptions()))
    shown = pa.Table.from_batches(batches)
    # Python's own times have no nanoseconds.
    number = shown.column_names.index("nanos")
    shown = shown.set_column(number, "nanos", shown["nanos"].cast(pa.int64()))
    return [repr(row) for row in sorted(shown.to_pylist(), key=lambda row: row["rowid"])]


def _stored(lake: LakeCatalog, namespace: str) -> list[str]:
    query = f"SELECT to_json(struct(*)), _row_id FROM {sql_name(lake, namespace, 't')}"
    return sorted(map(repr, lake.spark.sql(query).collect()))
