"""Small files are joined, and whatever others do meanwhile stays done."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.spark.compacting import (
    SETTINGS,
    compacted,
    everything,
    files,
    partitioned,
    strays,
    with_settings,
)
from tests.spark.compared_commits import comparable, metadata_of, told_by_spark
from tests.spark.independent_readers import rows_by
from tests.spark.lake_tables import drop, find, rows, sql_name
from tests.spark.places import Place, path_of

from sparkport.errors import BadRequest, Cancelled, PreconditionFailed
from sparkport.server import Server
from sparkport.spark import LakeCatalog, LakeSettings
from sparkport.spark.care.compaction import Compacted, compact, compaction_need
from sparkport.spark.care.row_order import expect_sort
from sparkport.spark.lake.sql_catalog import SqlCatalog
from sparkport.spark.lake.version_log import number_of
from sparkport.testing import DuckDBClient

_COLUMNS = pa.schema([("id", pa.int64()), ("word", pa.string())])


@pytest.fixture(scope="module")
def lake(place: Place) -> Iterator[LakeCatalog]:
    """A lake of its own, of which nobody else takes care."""
    settings = LakeSettings(statistics_rows=0, care=False)
    with LakeCatalog(source=place.source("compaction"), settings=settings) as lake:
        yield lake


@pytest.fixture(scope="module")
def server(lake: LakeCatalog) -> Iterator[Server]:
    with Server(lake, "grpc://127.0.0.1:0") as server:
        yield server


@pytest.fixture
def client(server: Server, lake: LakeCatalog, namespace: str) -> Iterator[DuckDBClient]:
    with DuckDBClient(server.location, lake.name, timeout=60) as client:
        yield client.attach()


@pytest.fixture(params=["plain", "java"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How commits are made."""
    monkeypatch.setattr(SqlCatalog, "takes_plain", request.param == "plain")
    return str(request.param)


def _row(number: int, word: str | None = None) -> pa.Table:
    return pa.table({"id": pa.array([number], pa.int64()), "word": [word or f"w{number}"]})


def _fill(client: DuckDBClient, namespace: str, count: int = 6) -> None:
    """Make table `t` of as many files as rows."""
    client.create_table(namespace, "t", _COLUMNS)
    for number in range(count):
        client.insert(namespace, "t", _row(number))


def _once(action: Callable[[], None]) -> Callable[[], None]:
    """Something that runs the action when it is called first."""
    left = [action]
    return lambda: left.pop()() if left else None


# ----------------------------------------------------------------------------------------- joining


@pytest.mark.usefixtures("way")
def test_small_files_become_one_and_rows_stay_what_they_are(lake, namespace, client):
    _fill(client, namespace)
    client.update(namespace, "t", {"word": "'new'"}, where="id = 2")
    client.delete(namespace, "t", where="id = 3")
    before, shown = everything(lake, namespace), rows(find(lake, namespace, "t"))
    version = number_of(lake._lake, find(lake, namespace, "t").state)

    found = compacted(lake, namespace)

    assert found is not None
    assert (found.files_before, found.files_after, found.rows) == (7, 1, 5)
    assert found.bytes_after == files(lake, namespace)[0].entry.size
    assert len(files(lake, namespace)) == 1
    assert files(lake, namespace)[0].part.vector is None
    assert everything(lake, namespace) == before
    assert rows(find(lake, namespace, "t")) == shown
    state = find(lake, namespace, "t").state
    assert number_of(lake._lake, state) == version
    assert compaction_need(state, SETTINGS) is None
    assert strays(lake, namespace) == set()
    # What follows is numbered on, and finds the rows.
    client.update(namespace, "t", {"word": "'newer'"}, where="id IN (2, 5)")
    assert number_of(lake._lake, find(lake, namespace, "t").state) == version + 1
    words = {row["id"]: (row["word"], row["rowid"]) for row in rows(find(lake, namespace, "t"))}
    assert words[2] == ("newer", 2)
    assert words[5] == ("newer", 5)


@pytest.mark.parametrize("reader", ["pyiceberg", "duckdb"])
def test_other_engines_read_the_same_rows(lake, namespace, client, reader):
    _fill(client, namespace)
    client.update(namespace, "t", {"word": "'new'"}, where="id = 2")

    def meanwhile() -> None:
        client.delete(namespace, "t", where="id = 4")

    assert compacted(lake, namespace, pause=_once(meanwhile)) is not None

    shown = [(row["id"], row["word"]) for row in rows(find(lake, namespace, "t"))]
    place = find(lake, namespace, "t").state.metadata_location
    assert rows_by(reader, place) == sorted(shown, key=repr)


def test_what_is_committed_is_what_java_would_commit(lake, namespace, client, monkeypatch):
    for table, is_plain in (("plain", True), ("javas", False)):
        client.create_table(namespace, table, _COLUMNS)
        for number in range(6):
            client.insert(namespace, table, _row(number))
        client.update(namespace, table, {"word": "'new'"}, where="id IN (1, 2)")
        need = compaction_need(find(lake, namespace, table).state, SETTINGS)
        assert need is not None
        client.delete(namespace, table, where="id IN (3, 4)")
        monkeypatch.setattr(SqlCatalog, "takes_plain", is_plain)
        assert compact(lake._lake, need, SETTINGS, lambda: None, lambda _: None) is not None
        monkeypatch.undo()
    found = [_told(comparable(metadata_of(lake, namespace, each))) for each in ("plain", "javas")]
    assert found[0] == found[1]
    live, _, _, operations = told_by_spark(lake, namespace, "plain")
    assert len(live) == 2  # the file, and the vector of what was deleted meanwhile
    assert operations[-1][0] == "replace"


def _told(metadata: dict[str, Any]) -> Any:
    """What is said of the last snapshot, without how its manifests are divided, and of row ids."""
    last = metadata["snapshots"][-1]
    summary = {key: each for key, each in last["summary"].items() if "manifests" not in key}
    return {**last, "summary": summary}, metadata["next-row-id"]


@pytest.mark.usefixtures("way")
def test_a_file_without_rows_goes(lake, namespace, client):
    _fill(client, namespace, 3)
    client.delete(namespace, "t")

    found = compacted(lake, namespace)

    assert found is not None
    assert (found.files_before, found.files_after, found.rows) == (3, 0, 0)
    assert files(lake, namespace) == []
    assert everything(lake, namespace) == []
    client.insert(namespace, "t", _row(9))
    assert [row["id"] for row in rows(find(lake, namespace, "t"))] == [9]


def test_progress_is_told(lake, namespace, client):
    _fill(client, namespace)
    told: list[float] = []
    need = compaction_need(find(lake, namespace, "t").state, SETTINGS)
    assert need is not None
    assert compact(lake._lake, need, SETTINGS, lambda: None, told.append) is not None
    assert told == sorted(told)
    assert told[-1] == 1.0


# --------------------------------------------------------------------------------- at the same time


@pytest.mark.usefixtures("way")
def test_what_others_change_meanwhile_stays_changed(lake, namespace, client):
    _fill(client, namespace)
    client.update(namespace, "t", {"word": "'old'"}, where="id = 1")

    def meanwhile() -> None:
        client.update(namespace, "t", {"word": "'new'"}, where="id IN (1, 2)")
        client.delete(namespace, "t", where="id = 3")
        client.insert(namespace, "t", _row(10))
        client.delete(namespace, "t", where="id = 2")

    assert compacted(lake, namespace, pause=_once(meanwhile)) is not None

    found = rows(find(lake, namespace, "t"))
    assert [(row["id"], row["word"]) for row in found] == [
        (0, "w0"),
        (1, "new"),
        (4, "w4"),
        (5, "w5"),
        (10, "w10"),
    ]
    assert [row["rowid"] for row in found[:4]] == [0, 1, 4, 5]
    seen = [(row[0], *row[2:]) for row in everything(lake, namespace)]
    assert seen == [(row["rowid"], row["id"], row["word"]) for row in found]
    assert strays(lake, namespace) == set()


@pytest.mark.usefixtures("way")
def test_a_statement_that_has_found_its_rows_before_finds_them_again(
    lake, namespace, client, monkeypatch
):
    _fill(client, namespace)
    groups = lake._lake.groups
    find_group = groups.of
    done: list[Compacted | None] = []

    def of(identifier: Any) -> Any:
        if not done:  # the statement is staged now, and about to be committed
            done.append(None)
            done.append(compacted(lake, namespace))
        return find_group(identifier)

    for change in (
        lambda: client.update(namespace, "t", {"word": "'new'"}, where="id IN (1, 2)"),
        lambda: client.delete(namespace, "t", where="id = 3"),
    ):
        done.clear()
        monkeypatch.setattr(groups, "of", of)
        change()
        monkeypatch.undo()
        assert done[1] is not None
        client.insert(namespace, "t", _row(7))
    found = [(row["id"], row["word"], row["rowid"]) for row in rows(find(lake, namespace, "t"))]
    assert found[:5] == [
        (0, "w0", 0),
        (1, "new", 1),
        (2, "new", 2),
        (4, "w4", 4),
        (5, "w5", 5),
    ]


def test_a_transaction_that_began_before_is_committed_after(lake, namespace, client, server):
    _fill(client, namespace)
    with DuckDBClient(server.location, lake.name, timeout=60) as writer:
        writer.attach()
        writer.begin()
        writer.call(namespace, "lake_begin", {}, rows=1)
        writer.update(namespace, "t", {"word": "'new'"}, where="id = 1")
        writer.delete(namespace, "t", where="id = 2")

        assert compacted(lake, namespace) is not None

        assert writer.scan(namespace, "t", ["id"]).num_rows == 5
        writer.insert(namespace, "t", _row(8))
        writer.call(namespace, "lake_commit", {}, rows=1)
        writer.commit()
    found = [(row["id"], row["word"], row["rowid"]) for row in rows(find(lake, namespace, "t"))]
    assert found[:5] == [(0, "w0", 0), (1, "new", 1), (3, "w3", 3), (4, "w4", 4), (5, "w5", 5)]
    assert found[5][0] == 8


def test_a_conflicting_update_is_still_a_conflict(lake, namespace, client, server):
    from sparkport.testing import ServerError

    _fill(client, namespace)
    with DuckDBClient(server.location, lake.name, timeout=60) as writer:
        writer.attach()
        writer.begin()
        writer.call(namespace, "lake_begin", {}, rows=1)
        writer.update(namespace, "t", {"word": "'mine'"}, where="id = 1")
        client.update(namespace, "t", {"word": "'theirs'"}, where="id = 1")
        assert compacted(lake, namespace) is not None
        with pytest.raises(ServerError, match="changed by somebody else"):
            writer.call(namespace, "lake_commit", {}, rows=1)
        writer.rollback()
    assert rows(find(lake, namespace, "t"))[1]["word"] == "theirs"


# --------------------------------------------------------------------------------------- giving up


def _given_up(lake: LakeCatalog, namespace: str, action: Callable[[], None]) -> None:
    assert compacted(lake, namespace, pause=_once(action)) is None


@pytest.mark.usefixtures("way")
def test_nothing_is_done_when_another_engine_was_faster(lake, namespace, client):
    _fill(client, namespace)
    name = sql_name(lake, namespace, "t")

    def meanwhile() -> None:
        lake.spark.sql(
            f"CALL `{lake.spark_catalog}`.system.rewrite_data_files(table => '{name}', "
            "options => map('min-input-files', '2'))"
        ).collect()
        lake._lake.changed()

    before = everything(lake, namespace)
    _given_up(lake, namespace, meanwhile)
    assert everything(lake, namespace) == before
    assert strays(lake, namespace) == set()


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("deletes_more", [False, True], ids=["as it was", "and changed again"])
def test_rows_that_a_rollback_brings_back_stay(lake, namespace, client, deletes_more):
    _fill(client, namespace)
    client.insert(namespace, "t", pa.concat_tables([_row(6), _row(7), _row(8)]))
    state = find(lake, namespace, "t").state
    client.delete(namespace, "t", where="id = 6")
    expected = []

    def meanwhile() -> None:
        lake.spark.sql(
            f"CALL `{lake.spark_catalog}`.system.rollback_to_snapshot("
            f"'{namespace}.t', {state.snapshot.snapshot_id})"
        ).collect()
        lake._lake.changed()
        if deletes_more:
            client.delete(namespace, "t", where="id = 8")
        expected.extend(everything(lake, namespace))

    _given_up(lake, namespace, meanwhile)
    assert 6 in [row[2] for row in expected]
    assert everything(lake, namespace) == expected
    assert strays(lake, namespace) == set()


def test_nothing_is_done_to_a_table_of_the_same_name(lake, namespace, client):
    _fill(client, namespace)

    def meanwhile() -> None:
        client.drop_table(namespace, "t")
        client.create_table(namespace, "t", _COLUMNS)
        client.insert(namespace, "t", _row(77))

    _given_up(lake, namespace, meanwhile)
    assert [row["id"] for row in rows(find(lake, namespace, "t"))] == [77]


def test_nothing_is_done_to_a_table_that_was_dropped_or_renamed(lake, namespace, client):
    _fill(client, namespace)
    _given_up(lake, namespace, lambda: client.rename_table(namespace, "t", "u"))
    assert len(rows(find(lake, namespace, "u"))) == 6
    assert strays(lake, namespace, "u") == set()
    client.rename_table(namespace, "u", "t")
    _given_up(lake, namespace, lambda: drop(lake, namespace, "t"))


def test_nothing_is_done_to_a_table_that_was_altered(lake, namespace, client):
    _fill(client, namespace)
    _given_up(lake, namespace, lambda: client.remove_column(namespace, "t", "word"))
    assert [row["id"] for row in rows(find(lake, namespace, "t"))] == list(range(6))
    assert strays(lake, namespace) == set()


def test_a_server_that_stops_leaves_no_file(lake, namespace, client):
    _fill(client, namespace)

    def stop_after(calls: int) -> Callable[[], None]:
        left = iter(range(calls))

        def pause() -> None:
            if next(left, None) is None:
                raise Cancelled("the server stops")

        return pause

    before = find(lake, namespace, "t").state.metadata_location
    for calls in (0, 1):
        with pytest.raises(Cancelled):
            compacted(lake, namespace, pause=stop_after(calls))
    assert find(lake, namespace, "t").state.metadata_location == before
    assert strays(lake, namespace) == set()


@pytest.mark.usefixtures("way")
def test_a_writer_who_is_always_faster_makes_it_wait_and_not_fail(
    lake, namespace, client, monkeypatch
):
    client.create_table(namespace, "t", _COLUMNS)
    for number in range(0, 6, 2):
        client.insert(namespace, "t", pa.concat_tables([_row(number), _row(number + 1)]))
    catalog = lake._lake.catalog
    swap = catalog.swap
    raced: list[None] = []

    def slow(identifier: Any, proposed: Any) -> Any:
        if len(raced) < 2:
            raced.append(None)
            monkeypatch.setattr(catalog, "swap", swap)
            name = sql_name(lake, namespace, "t")
            lake.spark.sql(f"DELETE FROM {name} WHERE id = {len(raced)}")
            lake._lake.changed()
            monkeypatch.setattr(catalog, "swap", slow)
        return swap(identifier, proposed)

    monkeypatch.setattr(catalog, "swap", slow)
    assert compacted(lake, namespace) is not None
    assert [row["rowid"] for row in rows(find(lake, namespace, "t"))] == [0, 3, 4, 5]
    assert len(raced) == 2
    assert strays(lake, namespace) == set()


# --------------------------------------------------------------------------------- what is worth it


def _need(lake: LakeCatalog, namespace: str, **changes: Any) -> Any:
    return compaction_need(find(lake, namespace, "t").state, with_settings(**changes))


def test_few_small_files_are_left_alone(lake, namespace, client):
    client.create_table(namespace, "t", _COLUMNS)
    assert _need(lake, namespace) is None
    client.insert(namespace, "t", _row(1))
    assert _need(lake, namespace) is None
    for number in range(4):
        client.insert(namespace, "t", _row(number))
    assert _need(lake, namespace, small_files=6) is None
    need = _need(lake, namespace, small_files=5)
    assert need.why == "5 small files"
    assert len(need.files) == 5
    assert need.bytes == need.all_bytes == sum(each.entry.size for each in need.files)


def test_files_of_one_size_are_joined_with_smaller_ones_only(lake, namespace, client):
    big = pa.table({"id": range(20_000), "word": [f"{n * 7919 % 20_011}" for n in range(20_000)]})
    client.create_table_as(namespace, "t", big)
    client.insert(namespace, "t", _row(1))
    client.insert(namespace, "t", _row(2))
    large, small = (files(lake, namespace)[place].entry.size for place in (0, 1))
    # One large file is in another class than the small ones, and is not written again.
    found = _need(lake, namespace, file_bytes=large * 50, small_files=2)
    assert len(found.files) == 2
    assert sum(each.entry.size for each in found.files) < 4 * small
    # Files of half the wanted size are large enough.
    assert _need(lake, namespace, file_bytes=2 * small, small_files=2) is None


def test_a_commit_has_about_the_wanted_size(lake, namespace, client):
    _fill(client, namespace, 9)
    size = files(lake, namespace)[0].entry.size
    need = _need(lake, namespace, file_bytes=3 * size + 100, small_files=2)
    assert len(need.files) == 3
    assert need.all_bytes > 2 * need.bytes
    assert need.why == "9 small files"


def test_files_of_which_many_rows_are_deleted_are_written_anew(lake, namespace, client):
    many = pa.table({"id": range(10_000), "word": ["w"] * 10_000})
    client.create_table_as(namespace, "t", many)
    client.delete(namespace, "t", where="id < 900")
    assert _need(lake, namespace) is None
    client.delete(namespace, "t", where="id < 2500")
    assert _need(lake, namespace).why == "1 file of which many rows are deleted"

    found = compacted(lake, namespace)

    assert found is not None
    assert (found.files_before, found.files_after, found.rows) == (1, 1, 7500)
    assert _need(lake, namespace) is None
    assert [row["rowid"] for row in rows(find(lake, namespace, "t"))] == list(range(2500, 10_000))


def test_tables_that_only_spark_can_write_are_not_for_this_process(lake, namespace):
    name = sql_name(lake, namespace, "t")
    lake.spark.sql(f"CREATE TABLE {name} (id BIGINT) USING iceberg")
    for number in range(3):
        lake.spark.sql(f"INSERT INTO {name} VALUES ({number})")
    assert _need(lake, namespace, small_files=2) is None


# ------------------------------------------------------------------------------------- partitions


@pytest.mark.parametrize("by", ["word", "bucket(3, id)"])
def test_files_are_joined_within_their_partition(lake, namespace, client, by):
    partitioned(lake, namespace, "id BIGINT, word STRING", by)
    client.detach()
    client.attach()
    for number in range(12):
        client.insert(namespace, "t", _row(number, f"w{number % 2}"))
    before = everything(lake, namespace)

    def meanwhile() -> None:
        client.delete(namespace, "t", where="id = 4")
        client.update(namespace, "t", {"word": "'w1'"}, where="id = 6")

    assert compacted(lake, namespace, pause=_once(meanwhile)) is not None

    after = everything(lake, namespace)
    assert [row[2] for row in after] == [number for number in range(12) if number != 4]
    assert [row for row in after if row[2] != 6] == [row for row in before if row[2] not in (4, 6)]
    assert rows_by("pyiceberg", find(lake, namespace, "t").state.metadata_location) == sorted(
        (row[2:] for row in after), key=repr
    )
    paths = [each.entry.partition for each in files(lake, namespace)]
    assert len(paths) <= 4, "one file a partition, and that of the update"


def test_files_of_an_older_spec_are_divided_anew(lake, namespace, client):
    _fill(client, namespace)
    name = sql_name(lake, namespace, "t")
    lake.spark.sql(f"ALTER TABLE {name} ADD PARTITION FIELD bucket(2, id)")
    lake._lake.changed()
    before = everything(lake, namespace)
    found = compacted(lake, namespace)
    assert found is not None
    assert (found.files_before, found.files_after) == (6, 2)
    assert everything(lake, namespace) == before
    assert {each.entry.spec_id for each in files(lake, namespace)} == {1}


# ------------------------------------------------------------------------------------------- order


def test_rows_are_written_in_an_order(lake, namespace, client):
    client.create_table(namespace, "t", _COLUMNS)
    for number, word in ((3, "b"), (1, "a"), (None, "b"), (2, "b"), (5, None)):
        row = {"id": pa.array([number], pa.int64()), "word": pa.array([word], pa.string())}
        client.insert(namespace, "t", pa.table(row))
    before = everything(lake, namespace)

    assert compacted(lake, namespace, settings=with_settings(sort='"Word" DESC, ID')) is not None

    (file,) = files(lake, namespace)
    stored = pq.read_table(path_of(file.part.path))
    assert stored["word"].to_pylist() == ["b", "b", "b", "a", None]
    assert stored["id"].to_pylist() == [2, 3, None, 1, 5]
    assert everything(lake, namespace) == before


def test_rows_that_are_deleted_while_they_are_sorted_stay_deleted(lake, namespace, client):
    _fill(client, namespace)

    def meanwhile() -> None:
        client.delete(namespace, "t", where="id IN (1, 4)")

    settings = with_settings(sort="id DESC")
    assert compacted(lake, namespace, settings=settings, pause=_once(meanwhile)) is not None
    assert [row["rowid"] for row in rows(find(lake, namespace, "t"))] == [0, 2, 3, 5]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nothing", "has no column nothing"),
        ("id,", "sort names columns"),
        ("id DOWN", "sort names columns"),
        ("id, ID", "named twice"),
        ("list", "without an order"),
        ('"word', "sort names columns"),
    ],
)
def test_an_order_that_cannot_be_is_refused(lake, namespace, client, text, message):
    columns = [*_COLUMNS, pa.field("list", pa.list_(pa.int32()))]
    client.create_table(namespace, "t", pa.schema(columns))
    with pytest.raises(BadRequest, match=message):
        expect_sort(find(lake, namespace, "t").state, text)


@pytest.mark.parametrize("text", ["", "id", " `word` desc , ID asc nulls last ", '"id"'])
def test_an_order_that_can_be_is_taken(lake, namespace, client, text):
    client.create_table(namespace, "t", _COLUMNS)
    expect_sort(find(lake, namespace, "t").state, text)


def test_a_lost_column_of_the_order_is_named(lake, namespace, client):
    _fill(client, namespace)
    with pytest.raises(PreconditionFailed, match="has no column gone"):
        compacted(lake, namespace, settings=with_settings(sort="gone"))
