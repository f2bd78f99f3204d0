"""One client of a load: what it does, and what it knows to be in the tables because it was told so.

Strategy: every client changes only rows of its own, of which it keeps a copy, so that each of its
scans can be compared with what was acknowledged. Where a statement's end is not known, because the
client has let go of it or the server has gone, the rows may be there or not, but only all of them.
"""

from __future__ import annotations

import random
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import grpc
import pyarrow as pa
from tests.load.expected import Expected, Rows
from tests.load.figures import Figures
from tests.load.serving import READER, SCHEMA, WRITERS
from tests.server.mutations import aimed, flight_data
from tests.server.raw_client import RawClient, path, ticket_message

from sparkport.testing import ClientFailure, DuckDBClient, ServerError

ROWS = pa.schema(
    [("id", pa.int64()), ("owner", pa.int64()), ("n", pa.int64()), ("text", pa.string())]
)
COUNTERS = 8
SHARED = ("shared_0", "shared_1", "shared_2", "shared_3")
"""Tables in which many clients have rows."""
_MOST_ROWS = 150
_TIMEOUT = 120.0
_GONE = frozenset({"UNAVAILABLE", "CANCELLED", "DEADLINE_EXCEEDED", "UNKNOWN", "INTERNAL"})
"""How calls end whose server does."""


@dataclass
class Place:
    """Where a load takes place, for all its clients."""

    location: str
    catalog: str
    tokens: dict[str, str]
    big_rows: int
    lake: bool
    figures: Figures
    stop: threading.Event = field(default_factory=threading.Event)
    going: threading.Event = field(default_factory=threading.Event)
    """The server is being ended: calls may fail."""


class Worker:
    """A client; used by one thread at a time."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.principal = READER if number % 8 == 7 else WRITERS[number % len(WRITERS)]
        self.shared = Expected()
        self.own = Expected()
        self.versions: dict[int, Rows] = {}
        """Of its own table, by their number."""
        self.increments = 0
        self.perhaps_increments = 0
        self._chance = random.Random(number)
        self._next = number * 10**9
        self._tables = 0
        self._place: Place
        self._client: DuckDBClient
        self._raw: RawClient

    @property
    def writes(self) -> bool:
        return self.principal != READER

    @property
    def shared_table(self) -> str:
        return SHARED[self.number % len(SHARED)]

    @property
    def own_table(self) -> str:
        return f"own_{self.number}"

    # -- running

    @contextmanager
    def connected(self, place: Place) -> Iterator[DuckDBClient]:
        """At work at a place."""
        self._place = place
        self._connect()
        try:
            yield self._client
        finally:
            self._client.close()
            self._raw.close()

    def _connect(self) -> None:
        token = self._place.tokens[self.principal]
        self._client = DuckDBClient(
            self._place.location,
            self._place.catalog,
            token=token if self.number % 2 else None,
            attach_token=None if self.number % 2 else token,
            session_id=str(uuid.uuid4()),
            timeout=_TIMEOUT,
        )
        self._raw = RawClient(self._place.location)
        self._headers = {"authorization": f"Bearer {token}"}

    def prepare(self) -> None:
        """Its own table; not where there is one from before."""
        if self.writes and not self.versions:
            self._client.create_table(SCHEMA, self.own_table, ROWS, unique=["id"])
            self.versions[self._version()] = {}

    def work(self, place: Place) -> None:
        """Do one thing after the other until it is told to stop."""
        with self.connected(place):
            operations = _OPERATIONS if self.writes else _READS
            lake_only = _OF_LAKES if place.lake and self.writes else ()
            known = [*operations, *lake_only]
            while not place.stop.is_set():
                name, _, operation = self._chance.choices(
                    known, [weight for _, weight, _ in known]
                )[0]
                began = time.monotonic()
                try:
                    operation(self)
                    place.figures.done(name, time.monotonic() - began)
                except ServerError as error:
                    if not self._allowed(name, error.code):
                        place.figures.unexpected(f"client {self.number}, {name}: {error}")
                        return
                except grpc.RpcError as error:
                    code = error.code().name
                    if not self._allowed(name, code):
                        place.figures.unexpected(
                            f"client {self.number}, {name}: {code} {error.details()}"
                        )
                        return
                except (ClientFailure, AssertionError, Exception) as error:
                    if not place.going.is_set():
                        place.figures.unexpected(
                            f"client {self.number}, {name}: {type(error).__name__}: {error}"
                        )
                    return
                if place.going.is_set():
                    return

    def verify(self) -> None:
        """Compare all that is known with what is there. Raises: AssertionError."""
        if self.writes:
            self.check_rows()
            before = dict(self.own.rows)
            self.check_own()
            if self.own.rows != before:  # by a statement whose end nobody has heard of
                self.versions[self._version()] = dict(self.own.rows)
            self.time_travel()

    def _allowed(self, name: str, code: str) -> bool:
        if self._place.going.is_set() and code in _GONE:
            return True
        if name == "increment" and code == "ABORTED":  # two clients write the same row
            self.perhaps_increments -= 1
            self._place.figures.expected(name, code)
            return True
        return False

    # -- reading

    def scan_all(self) -> None:
        found = self._client.scan(SCHEMA, "big", ["id"])
        count = self._place.big_rows
        assert (found.num_rows, total(found["id"])) == (count, count * (count - 1) // 2)

    def scan_filtered(self) -> None:
        low = self._chance.randrange(self._place.big_rows - 1000)
        found = self._client.scan(
            SCHEMA, "big", ["id", "text"], where=f"id >= {low} AND id < {low + 1000}"
        )
        assert found.num_rows == 1000
        assert total(found["id"]) == sum(range(low, low + 1000))

    def limit(self) -> None:
        assert self._client.scan(SCHEMA, "big", limit=5).num_rows >= 5

    def count(self) -> None:
        assert self._client.count(SCHEMA, "big") == self._place.big_rows

    def check_rows(self) -> None:
        found = self._client.scan(
            SCHEMA, self.shared_table, ["id", "n"], where=f"owner = {self.number}"
        )
        problem = self.shared.compare(_rows(found))
        assert problem is None, f"{self.shared_table}: {problem}"

    def check_own(self) -> None:
        problem = self.own.compare(_rows(self._client.scan(SCHEMA, self.own_table, ["id", "n"])))
        assert problem is None, f"{self.own_table}: {problem}"

    def time_travel(self) -> None:
        version = self._chance.choice(list(self.versions))
        found = _rows(
            self._client.scan(SCHEMA, self.own_table, ["id", "n"], at=("VERSION", str(version)))
        )
        assert found == self.versions[version], f"version {version}"

    def cancel_scan(self) -> None:
        endpoint = self._chance.choice(
            self._raw.endpoints(self._path("big"), headers=self._headers)
        )
        call = self._raw.open("DoGet", ticket_message(endpoint.ticket.ticket), self._headers)
        for _ in range(self._chance.randrange(3)):
            next(call, None)
        time.sleep(self._chance.random() * 0.02)
        _cancel(call)

    def reconnect(self) -> None:
        self._client.close()
        self._raw.close()
        self._connect()
        self._client.attach()

    def be_refused(self) -> None:
        """A write of one who may only read."""
        with self._refused("PERMISSION_DENIED", "be refused"):
            self._client.insert(SCHEMA, self.shared_table, self._new_rows(1)[1])

    # -- changing rows

    def insert(self) -> None:
        if len(self.shared.rows) > _MOST_ROWS:
            return self.delete()
        new, sent = self._new_rows(self._chance.randint(1, 20))
        with self._changing(self.shared, {**self.shared.rows, **new}):
            returning = self._chance.random() < 0.3
            changed = self._client.insert(SCHEMA, self.shared_table, sent, returning=returning)
            assert changed.total == len(new)
            assert changed.rows is None or _rows(changed.rows) == new
        return None

    def update(self) -> None:
        chosen = self._some(self.shared.rows)
        if chosen:
            after = {key: n + 1 if key in chosen else n for key, n in self.shared.rows.items()}
            with self._changing(self.shared, after):
                where = f"id IN ({', '.join(map(str, chosen))})"
                assert self._client.update(
                    SCHEMA, self.shared_table, {"n": "n + 1"}, where=where
                ).total == len(chosen)

    def delete(self) -> None:
        chosen = self._some(self.shared.rows, 60)
        if chosen:
            with self._changing(
                self.shared, {k: n for k, n in self.shared.rows.items() if k not in chosen}
            ):
                where = f"id IN ({', '.join(map(str, chosen))})"
                assert self._client.delete(SCHEMA, self.shared_table, where).total == len(chosen)

    def change_own(self) -> None:
        """Each change is a version."""
        if len(self.own.rows) > _MOST_ROWS:
            chosen = self._some(self.own.rows, 100)
            after = {key: n for key, n in self.own.rows.items() if key not in chosen}
            with self._changing(self.own, after):
                self._client.delete(
                    SCHEMA, self.own_table, f"id IN ({', '.join(map(str, chosen))})"
                )
        else:
            new, sent = self._new_rows(self._chance.randint(1, 50))
            with self._changing(self.own, {**self.own.rows, **new}):
                assert self._client.insert(SCHEMA, self.own_table, sent).total == len(new)
        self.versions[self._version()] = dict(self.own.rows)
        while len(self.versions) > 20:
            del self.versions[min(self.versions)]

    def break_constraint(self) -> None:
        with self._refused("FAILED_PRECONDITION", "break a constraint"):
            twice = self._new_rows(2)[1]
            self._client.insert(SCHEMA, self.own_table, pa.concat_tables([twice, twice]))

    def increment(self) -> None:
        """A row that all clients change. The new value is the client's, made of what it has read:
        none may be lost.
        """
        self.perhaps_increments += 1
        counter = self._chance.randrange(COUNTERS)
        assert (
            self._client.update(SCHEMA, "counters", {"n": "n + 1"}, where=f"id = {counter}").total
            == 1
        )
        self.perhaps_increments -= 1
        self.increments += 1

    def cancel_write(self) -> None:
        """Everything is sent but that it is all: so it must not be made."""
        _, sent = self._new_rows(50)
        done = threading.Event()

        def messages() -> Iterator[bytes]:
            yield from request.messages
            done.wait(_TIMEOUT)

        request = aimed(
            flight_data(ROWS, sent.to_pylist()), self._path(self.shared_table), "insert"
        )
        call = self._raw.open(
            "DoExchange", messages(), {**self._headers, **request.headers}, timeout=_TIMEOUT
        )
        next(call)
        time.sleep(self._chance.random() * 0.05)
        _cancel(call)
        done.set()

    def cancel_commit(self) -> None:
        """Everything is sent, and then the client lets go."""
        new, sent = self._new_rows(20)
        request = aimed(
            flight_data(ROWS, sent.to_pylist()), self._path(self.shared_table), "insert"
        )
        self.shared.perhaps.append((time.monotonic(), new))
        call = self._raw.open(
            "DoExchange", request.messages, {**self._headers, **request.headers}, timeout=_TIMEOUT
        )
        time.sleep(self._chance.random() * 0.2)
        _cancel(call)
        moment, _ = self.shared.perhaps.pop()
        self.shared.perhaps.append((moment, new))

    def tables(self) -> None:
        """CREATE, INSERT, ALTER, SELECT, DROP."""
        self._tables += 1
        name = f"scratch_{self.number}_{self._tables}"
        client = self._client
        _, sent = self._new_rows(10)
        client.create_table_as(SCHEMA, name, sent)
        client.add_column(SCHEMA, name, "more", "VARCHAR")
        renamed = f"{name}_renamed"
        client.rename_table(SCHEMA, name, renamed)
        found = client.scan(SCHEMA, renamed)
        assert (found.num_rows, found.schema.names) == (10, [*ROWS.names, "more"])
        client.drop_table(SCHEMA, renamed)

    def spark_sql(self) -> None:
        query = f"SELECT count(*) AS n, sum(id) AS s FROM {SCHEMA}.big"
        (row,) = self._client.table_function(SCHEMA, "spark_sql", query).to_pylist()
        count = self._place.big_rows
        assert (row["n"], row["s"]) == (count, count * (count - 1) // 2)

    # -- helpers

    def _path(self, table: str) -> Any:
        return path(self._place.catalog, SCHEMA, table)

    def _version(self) -> int:
        """How many changes the own table has seen."""
        return max(self.versions, default=-1) + 1

    def _new_rows(self, count: int) -> tuple[Rows, pa.Table]:
        ids = range(self._next, self._next + count)
        self._next += count
        columns = {
            "id": ids,
            "owner": [self.number] * count,
            "n": [0] * count,
            "text": ["some text"] * count,
        }
        return dict.fromkeys(ids, 0), pa.table(
            {name: list(each) for name, each in columns.items()}, ROWS
        )

    def _some(self, rows: Rows, most: int = 10) -> list[int]:
        return self._chance.sample(sorted(rows), min(len(rows), self._chance.randint(1, most)))

    @contextmanager
    def _changing(self, expected: Expected, after: Rows) -> Iterator[None]:
        """A statement: what is known after it, and if its end is not heard of."""
        expected.after = after
        yield
        expected.rows, expected.after = after, None

    @contextmanager
    def _refused(self, code: str, name: str) -> Iterator[None]:
        try:
            yield
        except ServerError as error:
            if error.code != code:
                raise
            self._place.figures.expected(name, code)
        else:
            raise AssertionError(f"it was not refused with {code}")


def total(column: Any) -> int:
    import pyarrow.compute as pc

    return int(pc.sum(column).as_py())


def _rows(table: pa.Table) -> Rows:
    rows = dict(zip(table["id"].to_pylist(), table["n"].to_pylist(), strict=True))
    assert len(rows) == table.num_rows, "a row is there twice"
    return rows


def _cancel(call: Any) -> None:
    call.cancel()
    with suppress(grpc.RpcError):
        for _ in call:
            pass


_Operation: TypeAlias = tuple[str, int, Callable[[Worker], object]]
_SCANS: tuple[_Operation, ...] = (
    ("scan all", 3, Worker.scan_all),
    ("scan filtered", 10, Worker.scan_filtered),
    ("scan with LIMIT", 5, Worker.limit),
    ("count", 3, Worker.count),
    ("cancel a scan", 4, Worker.cancel_scan),
    ("reconnect", 1, Worker.reconnect),
)
_READS: tuple[_Operation, ...] = (*_SCANS, ("be refused", 1, Worker.be_refused))
_OPERATIONS: tuple[_Operation, ...] = (
    *_SCANS,
    ("check rows", 6, Worker.check_rows),
    ("check own table", 2, Worker.check_own),
    ("time travel", 3, Worker.time_travel),
    ("insert", 8, Worker.insert),
    ("update", 5, Worker.update),
    ("delete", 2, Worker.delete),
    ("change own table", 5, Worker.change_own),
    ("break a constraint", 1, Worker.break_constraint),
    ("increment", 2, Worker.increment),
    ("cancel a write", 2, Worker.cancel_write),
    ("cancel a commit", 1, Worker.cancel_commit),
    ("DDL", 1, Worker.tables),
)
_OF_LAKES: tuple[_Operation, ...] = (("spark_sql", 1, Worker.spark_sql),)
