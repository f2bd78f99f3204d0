"""A catalog's own actions and flights: `airport_action`, `airport_take_flight` (airport §11)."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgpack
import pyarrow as pa
import pyarrow.flight as flight
import pyarrow.parquet as pq
import pytest
from tests.server.raw_client import RawClient, action_message, path

import sparkport as sp
from sparkport.catalog import CustomAction, FileReference, FlightCatalog, FlightName
from sparkport.testing import DuckDBClient, ServerError

LOCAL = "grpc://127.0.0.1:0"
OPTIONS = flight.FlightCallOptions(timeout=15)
SOON = 30.0
NUMBER = pa.schema([("n", pa.int64())])
ROWS = pa.table({"id": pa.array([1, 2], pa.int64()), "name": pa.array(["a", "b"])})


class Served:
    """A server with a client of each kind."""

    def __init__(self, catalogs: Any, attach: str = "c") -> None:
        self.server = sp.Server(catalogs, LOCAL).start()
        self.duckdb = DuckDBClient(self.server.location, attach, timeout=15)
        self.arrow = flight.connect(self.server.location)
        self.raw = RawClient(self.server.location)

    def stop(self) -> None:
        for client in (self.duckdb, self.arrow, self.raw):
            client.close()
        self.server.stop(0)

    def act(self, name: str, body: bytes = b"") -> list[bytes]:
        """The results of an action as another client sees them."""
        return [
            each.body.to_pybytes()
            for each in self.arrow.do_action(flight.Action(name, body), OPTIONS)
        ]

    def fly(self, descriptor: flight.FlightDescriptor, headers: Any = ()) -> pa.Table:
        """Read as another client does: GetFlightInfo, then DoGet of each endpoint."""
        options = flight.FlightCallOptions(timeout=15, headers=list(headers))
        info = self.arrow.get_flight_info(descriptor, options)
        assert info.descriptor == descriptor
        parts = [
            self.arrow.do_get(endpoint.ticket, options).read_all() for endpoint in info.endpoints
        ]
        return pa.concat_tables(parts)


@pytest.fixture
def serve() -> Iterator[Callable[..., Served]]:
    served: list[Served] = []

    def serve(*arguments: Any) -> Served:
        served.append(Served(*arguments))
        return served[-1]

    yield serve
    for each in served:
        each.stop()


def acting(function: Callable[..., Any], name: str = "act") -> sp.CatalogBuilder:
    builder = sp.CatalogBuilder("c")
    builder.schema("s").table("t", ROWS)
    builder.action(function, name=name)
    return builder


# ----------------------------------------------------------------------------------------- actions


def test_an_action_gets_the_parameter_and_answers_with_text_or_bytes(serve):
    def act(ctx, parameter):
        """Return what it was told."""
        return "told: " + parameter.decode()

    builder = acting(act)
    builder.action(lambda ctx, parameter: parameter[::-1], name="reversed")
    served = serve(builder)

    assert served.duckdb.action("act", "ä") == ["told: ä".encode()]
    assert served.duckdb.action("act") == [b"told: "]
    assert served.duckdb.action("reversed", b"\0\xff") == [b"\xff\0"]
    assert served.act("act", b"x") == [b"told: x"]


@pytest.mark.parametrize(
    ("result", "rows"),
    [
        (None, []),
        ([], []),
        ("", [b""]),
        (b"", [b""]),
        (["a", b"b"], [b"a", b"b"]),
        (("a", "b"), [b"a", b"b"]),
    ],
    ids=repr,
)
def test_every_value_is_one_row(serve, result, rows):
    served = serve(acting(lambda ctx, parameter: result))

    assert served.duckdb.action("act") == rows


def test_a_generator_is_many_rows_sent_as_they_are_made(serve):
    taken = threading.Semaphore(0)

    def act(ctx, parameter):
        yield "first"
        assert taken.acquire(timeout=SOON)
        yield from (str(number) for number in range(999))

    served = serve(acting(act))
    results = served.arrow.do_action(flight.Action("act", b""), OPTIONS)

    assert next(results).body.to_pybytes() == b"first"
    taken.release()
    assert [each.body.to_pybytes() for each in results] == [
        str(number).encode() for number in range(999)
    ]


def test_the_decorator_takes_the_name_of_the_function_and_leaves_it_as_it_is(serve):
    builder = sp.CatalogBuilder("c")

    @builder.action
    def ping(ctx: sp.Context, parameter: bytes) -> str:
        """Answers."""
        return f"pong from {ctx.catalog_name}"

    @builder.action(name="other")
    def _other(ctx: sp.Context, parameter: bytes) -> str:
        return "other"

    served = serve(builder)

    assert ping(sp.Context(catalog_name="x"), b"") == "pong from x"
    assert served.duckdb.action("ping") == [b"pong from c"]
    assert served.duckdb.action("other") == [b"other"]
    listed = {each.type: each.description for each in served.arrow.list_actions(OPTIONS)}
    assert (listed["ping"], listed["other"]) == ("Answers.", "")
    assert "endpoints" in listed


def test_an_error_of_ours_reaches_the_user_as_it_is_and_at_once(serve):
    def act(ctx, parameter):
        raise sp.BadRequest("act: say when")

    served = serve(acting(act))

    with pytest.raises(ServerError) as caught:
        served.duckdb.action("act")
    assert (caught.value.code, caught.value.message) == ("INVALID_ARGUMENT", "act: say when")
    assert (caught.value.duckdb_exception, caught.value.stalls) == (None, False)


def test_an_error_halfway_comes_after_the_rows_before_it(serve):
    def act(ctx, parameter):
        yield "first"
        raise sp.NotFound("act: no more")

    results = serve(acting(act)).arrow.do_action(flight.Action("act", b""), OPTIONS)

    assert next(results).body.to_pybytes() == b"first"
    with pytest.raises(KeyError, match="act: no more"):
        next(results)


@pytest.mark.parametrize("halfway", [False, True])
def test_any_other_error_is_only_a_trace_id(serve, caplog, halfway):
    def act(ctx, parameter):
        if halfway:
            yield "first"
        raise ValueError("secret password")

    served = serve(acting(act))
    with caplog.at_level(logging.ERROR), pytest.raises(ServerError, match="trace id") as caught:
        served.duckdb.action("act")

    assert "secret" not in caught.value.shown
    assert (caught.value.code, caught.value.stalls) == ("UNKNOWN", False)
    assert "secret password" in caplog.text
    assert served.duckdb.count("s", "t") == 2


@pytest.mark.parametrize(
    ("result", "says"),
    [([1], "int"), ([None], "NoneType"), (["a", pa.scalar("b")], "StringScalar"), (5, "int")],
    ids=str,
)
def test_anything_but_text_and_bytes_is_a_fault_that_names_the_action(serve, result, says):
    served = serve(acting(lambda ctx, parameter: result))

    with pytest.raises(ServerError) as caught:
        served.duckdb.action("act")

    assert "act" in caught.value.message
    assert says in caught.value.message
    assert (caught.value.code, caught.value.stalls) == ("UNKNOWN", False)


def test_a_class_of_ones_own_is_told_by_name_what_is_wrong_too(serve):
    catalog = sp.MemoryCatalog("c")
    catalog.add_action(CustomAction("act", lambda ctx, parameter: 5))  # type: ignore[arg-type, return-value]

    with pytest.raises(ServerError, match="the action act gave int") as caught:
        serve(catalog).duckdb.action("act")

    assert caught.value.code == "UNKNOWN"


def test_an_action_whose_caller_goes_away_is_closed(serve):
    closed = threading.Event()

    def act(ctx, parameter):
        try:
            while True:
                yield "more"
        finally:
            closed.set()

    served = serve(acting(act))
    call = served.raw.open("DoAction", action_message("act", b""))
    next(call)
    call.cancel()

    assert closed.wait(SOON)
    assert served.duckdb.count("s", "t") == 2


def test_an_action_of_the_protocol_cannot_be_replaced(serve):
    builder = acting(lambda ctx, parameter: "stolen", "list_schemas")
    for name in ("endpoints", "create_transaction", "GetTables", "column_statistics"):
        builder.action(lambda ctx, parameter: "stolen", name=name)
    served = serve(builder)

    assert served.duckdb.scan("s", "t").num_rows == 2
    assert served.act("list_schemas", msgpack.packb({"catalog_name": "c"})) != [b"stolen"]
    listed = [each.type for each in served.arrow.list_actions(OPTIONS)]
    assert len(listed) == len(set(listed))


def test_an_action_that_nobody_has_is_refused(serve):
    served = serve(acting(lambda ctx, parameter: "x"))

    with pytest.raises(ServerError, match="nosuch") as caught:
        served.duckdb.action("nosuch")

    assert (caught.value.code, caught.value.stalls) == ("UNIMPLEMENTED", False)


def test_the_name_of_an_action_is_taken_once():
    builder = acting(lambda ctx, parameter: "x")

    with pytest.raises(sp.AlreadyExists, match="act"):
        builder.action(lambda ctx, parameter: "y", name="act")


def test_every_catalog_has_its_own_actions(serve):
    builders = [sp.CatalogBuilder(name) for name in ("first", "second")]
    for builder in builders:
        builder.action(lambda ctx, parameter: f"both, {ctx.catalog_name}", name="both")
        builder.action(
            lambda ctx, parameter: f"own, {ctx.catalog_name}", name=f"only_{builder.name}"
        )
    served = serve(builders, "second")

    # `airport_action` names no catalog (airport §11): all are searched, and the first counts.
    assert served.duckdb.action("both") == [b"both, first"]
    assert served.duckdb.action("only_second") == [b"own, second"]
    assert served.raw.action("both", b"", {"airport-catalog": "second"}) == [b"both, second"]
    assert (
        served.raw.action_failure("only_first", b"", {"airport-catalog": "second"}).code
        == "UNIMPLEMENTED"
    )
    listed = [each.type for each in served.arrow.list_actions(OPTIONS)]
    assert [listed.count(name) for name in ("both", "only_first", "only_second")] == [1] * 3


# ----------------------------------------------------------------------------------------- flights


@pytest.fixture
def flying(serve) -> Served:
    builder = sp.CatalogBuilder("c")
    builder.schema("s").table("t", ROWS)
    builder.flight(["reports", "2024", "a b/c"], ROWS)
    builder.flight("SELECT answer", pa.table({"answer": [42]}))
    builder.flight(b"\0\xff", pa.table({"bytes": [1]}))
    builder.flight(
        ["one"], lambda ctx, options: ROWS.to_batches(max_chunksize=1), arrow_schema=ROWS.schema
    )
    return serve(builder)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (["reports", "2024", "a b/c"], ROWS.to_pylist()),
        ("SELECT answer", [{"answer": 42}]),
        (b"\0\xff", [{"bytes": 1}]),
        (["one"], ROWS.to_pylist()),
    ],
    ids=repr,
)
def test_a_flight_is_taken_by_its_path_or_command(flying, name, expected):
    of_path = isinstance(name, list)
    make = flight.FlightDescriptor.for_path if of_path else flight.FlightDescriptor.for_command
    descriptor = make(*name) if of_path else make(name)

    def visible(rows: pa.Table) -> list[dict[str, Any]]:
        return rows.drop_columns(
            [each for each in rows.column_names if each == "rowid"]
        ).to_pylist()

    assert visible(flying.duckdb.take_flight(name)) == expected
    assert visible(flying.fly(descriptor)) == expected
    assert set(expected[0]) <= set(flying.arrow.get_schema(descriptor, OPTIONS).schema.names)


def test_tables_can_still_be_taken_by_their_path(flying):
    assert flying.duckdb.take_flight(["s", "t"]).num_rows == 2
    assert flying.duckdb.take_flight(["c", "s", "t"]).num_rows == 2
    assert flying.fly(path("c", "s", "t")).num_rows == 2


@pytest.mark.parametrize(
    "descriptor",
    [
        path("nosuch"),
        path("reports", "2024"),
        path("Reports", "2024", "a b/c"),
        flight.FlightDescriptor.for_command("x"),
    ],
    ids=str,
)
def test_a_flight_that_nobody_has_is_not_found(flying, descriptor):
    with pytest.raises(ServerError) as caught:
        flying.duckdb.take_flight(descriptor)
    assert caught.value.code == "NOT_FOUND"
    with pytest.raises(KeyError):
        flying.arrow.get_flight_info(descriptor, OPTIONS)


def test_the_list_of_catalogs_is_still_there(serve):
    builder = sp.CatalogBuilder("c")
    builder.flight(["other"], ROWS)
    builder.flight(["__databases"], pa.table({"stolen": [1]}))
    served = serve([builder, sp.CatalogBuilder("d")])

    assert served.duckdb.take_flight(["__databases"]).column("name").to_pylist() == ["c", "d"]
    assert served.fly(path("__databases")).column("name").to_pylist() == ["c", "d"]


def test_a_flight_may_be_read_by_duckdb_itself(serve, tmp_path):
    pq.write_table(ROWS, tmp_path / "rows.parquet")
    builder = sp.CatalogBuilder("c")
    reference = FileReference("parquet", str(tmp_path / "rows.parquet"))
    builder.flight("files", reference, arrow_schema=ROWS.schema)
    served = serve(builder)

    assert served.duckdb.take_flight("files").equals(ROWS)
    assert served.fly(flight.FlightDescriptor.for_command("files")).equals(ROWS)


def test_of_several_catalogs_the_first_that_knows_a_flight_has_it(serve):
    builders = [sp.CatalogBuilder(name) for name in ("first", "second")]
    for number, builder in enumerate(builders):
        builder.flight(
            ["both"], lambda *_, n=number: pa.table({"n": [n]}).to_batches(), arrow_schema=NUMBER
        )
        builder.flight(
            [f"only_{builder.name}"],
            lambda *_: pa.table({"n": [9]}).to_batches(),
            arrow_schema=NUMBER,
        )
    served = serve(builders, "first")

    assert served.duckdb.take_flight(["both"]).to_pylist() == [{"n": 0}]
    assert served.duckdb.take_flight(["only_second"]).to_pylist() == [{"n": 9}]
    assert served.fly(path("both"), [(b"airport-catalog", b"second")]).to_pylist() == [{"n": 1}]


@pytest.mark.parametrize(
    ("name", "error"),
    [(["a"], sp.AlreadyExists), ("a", sp.AlreadyExists), ([], sp.BadRequest), ("", sp.BadRequest)],
    ids=repr,
)
def test_names_of_flights_are_given_once_and_not_empty(name, error):
    builder = sp.CatalogBuilder("c")
    builder.flight(["a"], ROWS)
    builder.flight("a", ROWS)

    with pytest.raises(error):
        builder.flight(name, ROWS)


class Vanishing(FlightCatalog):
    """Knows a flight until it is told otherwise."""

    name = "c"
    known = True

    def schemas(self, ctx: sp.Context) -> Sequence[sp.Schema]:
        return ()

    def flight(self, ctx: sp.Context, name: FlightName) -> sp.Table | None:
        return sp.MemoryTable("t", ROWS) if self.known and name == ("there",) else None


def test_a_flight_that_is_gone_when_it_is_read_is_not_found(serve):
    catalog = Vanishing()
    served = serve(catalog)
    (endpoint,) = served.arrow.get_flight_info(path("there"), OPTIONS).endpoints
    catalog.known = False

    failure = served.raw.failure("DoGet", endpoint.ticket.serialize())

    assert (failure.code, failure.message) == ("NOT_FOUND", "this flight is not there any more")
