"""Tables that take care of themselves: how a load, a folder and queries fare with it."""

from __future__ import annotations

import random
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa

from benchmarks.cared_lakes import start_cared
from benchmarks.client import replace_table
from benchmarks.data import rows as made_rows
from benchmarks.lake import Running
from benchmarks.measure import Line, seconds
from benchmarks.writers import Writer, one_row
from sparkport.testing import DuckDBClient

__all__ = ["run"]

_CLIENTS = 4
_STATEMENTS = 4_000
"""Of the mixed load, all clients together."""
_WARM_UP = 200
_SELECT_EVERY = 20
_SHORTENED = {"care_seconds": 2.0, "care_keep_versions": 50, "care_most_versions": 200}
"""What differs from the defaults in the mixed load, so that care has to work during it."""
_SHORTENED_TEXT = "looked at every 2 s, at most 200 versions, at least 50, else defaults"
_INSERTS = 5_000
_MOST_MORE = 50 * 1024 * 1024
_WEAR = {"insert": 10_000, "update": 5_000, "delete": 2_000}
"""Statements of one row each, in random order, of one client."""
_POINT_ROUNDS = 15
_LONGEST = 600.0


def run(rows: int) -> Iterator[Line]:
    """All benchmarks of care. With few rows they are shorter."""
    share = min(1.0, rows / 20_000_000)
    statements = max(400, int(_STATEMENTS * share))
    print(f"care: {statements:,} mixed statements with care, and without …", file=sys.stderr)
    yield from _mixed_load(statements)
    inserts = max(500, int(_INSERTS * share))
    print(f"care: {inserts:,} single-row INSERTs …", file=sys.stderr)
    yield from _bytes_on_disk(inserts)
    counts = {kind: max(100, int(each * share)) for kind, each in _WEAR.items()}
    print(f"care: a table that {sum(counts.values()):,} statements have changed …", file=sys.stderr)
    yield from _worn(counts)
    unsorted = max(200_000, rows // 4)
    print(f"care: a table of {unsorted:,} unsorted rows …", file=sys.stderr)
    yield _sorted_points(unsorted)


# --------------------------------------------------------------------------------- the mixed load


def _mixed_load(statements: int) -> Iterator[Line]:
    """Each turn has two fresh lakes. They run one after the other: two at once would share cores.

    The one with care is first in one turn, and second in the next.
    """
    moments: dict[bool, list[list[float]]] = {True: [], False: []}
    for turn in range(2):
        for is_cared_for in (True, False) if turn == 0 else (False, True):
            settings = {**_SHORTENED, "care": is_cared_for}
            with start_cared(settings) as (server, _):
                _load(server, "warm", _WARM_UP)
                moments[is_cared_for].append(_load(server, "mixed", statements))
    halves = [(_rate(each, 0, 0.5), _rate(each, 0.5, 1)) for each in moments[True]]
    first, second = (statistics.mean(each[index] for each in halves) for index in (0, 1))
    mix = f"{_CLIENTS} clients, {statements:,} statements: 70 % INSERT, 20 % UPDATE, 10 % DELETE"
    yield _ratio(
        f"{mix} of 1 row, some SELECTs: rate of the second half : of the first, with care "
        f"({_SHORTENED_TEXT})",
        *(second, first, 0.9),
    )
    bare = [(_rate(each, 0, 0.5), _rate(each, 0.5, 1)) for each in moments[False]]
    first, second = (statistics.mean(each[index] for each in bare) for index in (0, 1))
    yield Line(
        "the same without care, for comparison",
        f"{second / first:.2f} ({second:.0f} : {first:.0f} a second)",
        "none",
        met=True,
    )
    cared, uncared = (
        statistics.mean(_rate_of_first_minute(each) for each in moments[is_cared_for])
        for is_cared_for in (True, False)
    )
    yield _ratio("the same load with care : without it, in its first minute", cared, uncared, 0.9)


def _ratio(what: str, ours: float, theirs: float, target: float) -> Line:
    ratio = ours / theirs
    measured = f"{ratio:.2f} ({ours:.0f} : {theirs:.0f} a second)"
    return Line(what, measured, f"≥ {target}", ratio >= target)


def _rate(moments: Sequence[float], start: float, end: float) -> float:
    """Statements a second in a part of the load. The first moment is its beginning."""
    last = len(moments) - 1
    first, final = int(last * start), int(last * end)
    return (final - first) / (moments[final] - moments[first])


def _rate_of_first_minute(moments: Sequence[float]) -> float:
    done = [each for each in moments if each <= moments[0] + 60]
    return (len(done) - 1) / (done[-1] - done[0])


def _load(server: Running, table: str, statements: int) -> list[float]:
    """Run the load; when it began, and when each statement ended, in this order."""
    each_has = statements // _CLIENTS
    # A client changes rows that it has for itself: those that it deletes, and those that it
    # updates.
    own = each_has // 5 + 100
    replace_table(server.location, table, one_row(0).schema)
    (batch,) = made_rows(_CLIENTS * own).combine_chunks().to_batches()
    with Writer(server, table) as writer:
        writer.run("insert", batch)
    ends: list[list[float]] = [[] for _ in range(_CLIENTS)]
    failures: list[Exception] = []
    ready = threading.Barrier(_CLIENTS + 1)

    def work(number: int) -> None:
        try:
            with (
                Writer(server, table) as writer,
                DuckDBClient(server.location, "bench", timeout=120) as reader,
            ):
                reader.scan("s", table, ["amount"])
                statement = _statements(writer, reader, table, number, own)
                ready.wait(_LONGEST)
                for done in range(each_has):
                    statement(done)
                    ends[number].append(time.perf_counter())
        except Exception as error:  # noqa: BLE001 - raised by the caller
            failures.append(error)
            ready.abort()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(_CLIENTS)]
    for thread in threads:
        thread.start()
    with suppress(threading.BrokenBarrierError):  # what broke it is raised below
        ready.wait(_LONGEST)
    began = time.perf_counter()
    for thread in threads:
        thread.join(_LONGEST)
    if failures:
        raise failures[0]
    return [began, *sorted(each for client in ends for each in client)]


def _statements(
    writer: Writer, reader: DuckDBClient, table: str, number: int, own: int
) -> Callable[[int], None]:
    """What a client runs: 7 INSERTs, 2 UPDATEs and a DELETE, again and again."""
    deleted, inserted = count(number * own), count((number + 1) * 1_000_000)
    first_updated = number * own + own // 2

    def statement(done: int) -> None:
        kind = done % 10
        if kind == 9:
            row_id = pa.array([next(deleted)], pa.int64())
            writer.run("delete", pa.RecordBatch.from_pydict({"rowid": row_id}))
        elif kind in (3, 6):
            row_id = pa.array([first_updated + done // 3 % (own // 2)], pa.int64())
            new = {"amount": pa.array([float(done)]), "rowid": row_id}
            writer.run("update", pa.RecordBatch.from_pydict(new))
        else:
            writer.run("insert", one_row(next(inserted)))
        if done % _SELECT_EVERY == _SELECT_EVERY // 2:
            reader.scan("s", table, ["amount"])
        elif done % _SELECT_EVERY == 0:
            reader.scan("s", table, where=f"id = {first_updated}")

    return statement


# -------------------------------------------------------------------------------- bytes on disk


def _bytes_on_disk(inserts: int) -> Iterator[Line]:
    with start_cared({}) as (server, warehouse):
        for table in ("single", "at_once"):
            replace_table(server.location, table, one_row(0).schema)
        batches = [one_row(number) for number in range(inserts)]
        with Writer(server, "single") as writer:
            took = [seconds(partial(writer.run, "insert", each)) for each in batches]
        right_after = _size(warehouse / "s", "single")
        with Writer(server, "at_once") as writer:
            (batch,) = pa.Table.from_batches(batches).combine_chunks().to_batches()
            writer.run("insert", batch)
        at_once = _size(warehouse / "s", "at_once")
        settled = _settled(warehouse / "s", "single")
    for when, size in (("right after the last", right_after), ("when care has ended", settled)):
        more = size - at_once
        yield Line(
            f"bytes on disk after {inserts:,} single-row INSERTs : of the same rows at once, "
            f"default settings, {when}",
            f"{size / at_once:.0f} × ({size / 1e6:.1f} : {at_once / 1e6:.2f} MB)",
            f"≤ {_MOST_MORE // 1024 // 1024} MB more",
            more <= _MOST_MORE,
        )
    tenth = len(took) // 10
    first, last = (statistics.median(each) for each in (took[:tenth], took[-tenth:]))
    yield _times("these INSERTs: median of the last tenth : of the first", last, first, 1.3)


def _size(schema: Path, table: str) -> int:
    """Bytes of all files of a table. Some may go away meanwhile."""
    total = 0
    for path in schema.glob(f"{table}*/**/*"):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except FileNotFoundError:
            continue
    return total


def _settled(schema: Path, table: str) -> int:
    """The size once it does not change any more: care looks every 5 s."""
    deadline = time.monotonic() + 120
    size, since = _size(schema, table), time.monotonic()
    while time.monotonic() < min(deadline, since + 25):
        time.sleep(1)
        now = _size(schema, table)
        if now != size:
            size, since = now, time.monotonic()
    return size


# ------------------------------------------------------------------------------- a worn table


def _worn(counts: Mapping[str, int]) -> Iterator[Line]:
    """A table right after many statements, and one to which its rows were written at once."""
    kinds = [kind for kind, count in counts.items() for _ in range(count)]
    chosen = random.Random(7)
    chosen.shuffle(kinds)
    columns = one_row(0).schema
    with (
        start_cared(_SHORTENED) as (server, warehouse),
        DuckDBClient(server.location, "bench", timeout=300) as client,
    ):
        for table in ("worn", "fresh"):
            replace_table(server.location, table, columns)
        live: list[int] = []
        took = []
        for number, kind in enumerate(kinds):
            if kind == "insert" or not live:
                rows = pa.Table.from_batches([one_row(number)])
                took.append(seconds(partial(client.insert, "s", "worn", rows)))
                live.append(number)
                continue
            place = chosen.randrange(len(live))
            where = f"id = {live[place]}"
            if kind == "update":
                client.update("s", "worn", {"amount": str(number)}, where=where)
            else:
                client.delete("s", "worn", where=where)
                live[place] = live[-1]
                live.pop()
        size = _size(warehouse / "s", "worn")
        rows = client.scan("s", "worn").select(columns.names).cast(columns)
        if sorted(rows["id"].to_pylist()) != sorted(live):
            raise RuntimeError("the table has other rows than were written")
        client.insert("s", "fresh", rows)
        fresh_size = _size(warehouse / "s", "fresh")
        sums = _medians(lambda table, _: client.scan("s", table, ["id"]))
        points = _medians(
            lambda table, turn: client.scan("s", table, where=f"id = {live[turn * 7 % len(live)]}")
        )
    load = ", ".join(f"{count:,} {kind.upper()}s" for kind, count in counts.items())
    tenth = len(took) // 10
    first, last = (statistics.median(each) for each in (took[:tenth], took[-tenth:]))
    what = f"{load} of 1 row, one client, with care ({_SHORTENED_TEXT}): "
    yield _times(f"{what}INSERT's median of the last tenth : of the first", last, first, 1.3)
    yield _times("then one column of all rows : of the same rows at once", *sums, 2)
    yield _times("then a point query : of the same rows at once", *points, 2)
    yield Line(
        "then bytes on disk : of the same rows at once",
        f"{size / 1e6:.1f} : {fresh_size / 1e6:.2f} MB",
        "none",
        met=True,
    )


def _medians(query: Callable[[str, int], Any]) -> tuple[float, float]:
    """What a query of the worn table takes, and of the fresh one, in turns."""
    took: dict[str, list[float]] = {"worn": [], "fresh": []}
    for turn in range(_POINT_ROUNDS + 2):
        for table, each in took.items():
            each.append(seconds(partial(query, table, turn)))
    return statistics.median(took["worn"][2:]), statistics.median(took["fresh"][2:])


def _times(what: str, ours: float, theirs: float, target: float) -> Line:
    measured = f"{ours / theirs:.2f} ({ours * 1000:.1f} : {theirs * 1000:.1f} ms)"
    return Line(what, measured, f"≤ {target}", ours / theirs <= target)


# -------------------------------------------------------------------------------- sorted rows


def _sorted_points(rows: int) -> Line:
    """A point query on a column whose values are everywhere, until care has sorted by it."""
    with (
        start_cared({"care_seconds": 1.0, "care_file_seconds": 0.0}, rows) as (server, _),
        DuckDBClient(server.location, "bench", timeout=300) as client,
    ):
        customers = client.scan("s", "big", ["customer"], where=f"id % {rows // 20} = 7")
        conditions = [f"customer = {each}" for each in customers["customer"].to_pylist()]

        def point() -> float:
            def query(condition: str) -> None:
                if client.scan("s", "big", where=condition).num_rows < 1:
                    raise RuntimeError(f"nothing was found where {condition}")

            chosen = (conditions * _POINT_ROUNDS)[: _POINT_ROUNDS + 2]
            return statistics.median([seconds(partial(query, each)) for each in chosen][2:])

        before = point()
        unsorted = _paths(client)
        client.table_function("s", "set_care", "big", named={"sort": "customer"})
        took = seconds(lambda: _until(lambda: not unsorted & _paths(client)))
        after, files = point(), len(_paths(client))
    return Line(
        f"point query on a column of {rows:,} rows in {len(unsorted)} files, before care has "
        f"sorted by it : after ({files} files, {took:.0f} s)",
        f"{before / after:.1f} × ({before * 1000:.1f} : {after * 1000:.1f} ms)",
        "≥ 1",
        before >= after,
    )


def _paths(client: DuckDBClient) -> set[str]:
    found = client.table_function("s", "files", "big", columns=["content", "path"]).to_pylist()
    return {each["path"] for each in found if each["content"] == "data"}


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _LONGEST
    while not condition():
        if time.monotonic() > deadline:
            raise RuntimeError("care has not sorted the table")
        time.sleep(0.5)
