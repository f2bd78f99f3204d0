"""Statistics as a client gets them: where it can use them, of the rows it will read, and true."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from typing import Any

import msgpack
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.flight as flight
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import sparkport as sp
from sparkport.catalog import ColumnStatistics, StatisticsTable
from sparkport.errors import NotFound, Unsupported
from sparkport.memory import MemorySchema, MemorySettings
from sparkport.service.calls import Call
from sparkport.service.registry import CatalogRegistry
from sparkport.service.service import Service
from sparkport.testing import DuckDBClient, ReportedStatistics, ServerError

LOCAL = "grpc://127.0.0.1:0"
MARKER = b"can_produce_statistics"
ASKED = MemorySettings(statistics_rows=0)


class Served:
    """A memory catalog behind a server, with the table `s.t` of ten rows, and its clients."""

    def __init__(self) -> None:
        self.catalog = sp.MemoryCatalog("c", settings=ASKED)
        self.schema = self.catalog.add_schema("s")
        self.rows = pa.table({"id": range(10), "name": [f"n{number}" for number in range(10)]})
        self.schema.add_table(sp.MemoryTable("t", self.rows))
        self._server = sp.Server(self.catalog, LOCAL).start()
        self._clients: list[DuckDBClient] = []

    def client(self) -> DuckDBClient:
        self._clients.append(DuckDBClient(self._server.location, "c", timeout=20).attach())
        return self._clients[-1]

    def add(self, name: str, rows: pa.Table | pa.Schema, **options: Any) -> None:
        self.schema.add_table(sp.MemoryTable(name, rows, **options))

    def close(self) -> None:
        for client in self._clients:
            client.close()
        self._server.stop()


@pytest.fixture(scope="module")
def shared() -> Iterator[Served]:
    served = Served()
    yield served
    served.close()


@pytest.fixture
def served() -> Iterator[Served]:
    served = Served()
    yield served
    served.close()


def reported(client: DuckDBClient, column: str, table: str = "t") -> ReportedStatistics:
    found = client.statistics("s", table, column)
    assert found is not None
    return found


def bounds(client: DuckDBClient, column: str, table: str = "t") -> tuple[Any, Any]:
    found = reported(client, column, table)
    return found.minimum.as_py(), found.maximum.as_py()


def marked(client: DuckDBClient, table: str) -> bool:
    return MARKER in (client.table("s", table).arrow_schema.metadata or {})


def test_a_client_learns_exactly_what_is_in_a_column(served: Served) -> None:
    client = served.client()
    assert bounds(client, "id") == (0, 9)
    name = reported(client, "name")
    assert (name.minimum.as_py(), name.maximum.as_py()) == ("n0", "n9")
    assert (name.has_null, name.has_not_null, name.distinct_count) == (False, True, 10)
    assert (name.contains_unicode, name.max_string_length) == (False, 2)
    assert client.statistics("s", "t", "rowid") is None
    assert client.scan("s", "t").num_rows == 10


@pytest.mark.parametrize(
    "field",
    [
        pa.field("v", pa.binary()),
        pa.field("v", pa.binary(4)),
        pa.field("v", pa.null()),
        pa.field("v", pa.duration("us")),
        pa.field("v", pa.month_day_nano_interval()),
        pa.field("v", pa.sparse_union([pa.field("a", pa.int64())])),
        pa.field("v", pa.opaque(pa.binary(), "bit", "DuckDB")),
        pa.field("v", pa.opaque(pa.binary(), "bignum", "DuckDB")),
        pa.field("v", pa.binary(), metadata={"ARROW:extension:name": "geoarrow.wkb"}),
    ],
    ids=str,
)
def test_a_table_with_a_type_that_has_none_offers_no_statistics(
    served: Served, field: pa.Field
) -> None:
    served.add("odd", pa.schema([("id", pa.int64()), field]))
    client = served.client()
    assert not marked(client, "odd")
    assert marked(client, "t")
    assert client.scan("s", "odd", ["id"]).num_rows == 0


def test_a_table_can_be_told_to_offer_none(served: Served) -> None:
    served.add("silent", served.rows, settings=MemorySettings(statistics=False))
    client = served.client()
    assert not marked(client, "silent")
    assert client.statistics("s", "silent", "id") is None


def test_tables_are_asked_about_from_a_number_of_rows_on(served: Served) -> None:
    served.add("grown", served.rows, settings=MemorySettings(statistics_rows=11))
    small = served.client()
    assert not marked(small, "grown")
    small.insert("s", "grown", pa.table({"id": [10], "name": ["n10"]}))

    large = served.client()
    assert marked(large, "grown")
    assert bounds(large, "id", "grown") == (0, 10)
    assert small.statistics("s", "grown", "id") is None
    assert small.scan("s", "grown", where="id >= 10").num_rows == 1, "what it has attached is good"

    small.delete("s", "grown", "id = 10")
    assert bounds(large, "id", "grown") == (None, None), "it asks, since it has not heard of that"
    assert large.scan("s", "grown", where="id >= 9").num_rows == 1


# -------------------------------------------------------------------------- which rows it is about


def test_writes_of_everyone_show_in_the_next_statement(served: Served) -> None:
    mine, others = served.client(), served.client()
    others.insert("s", "t", pa.table({"id": [200], "name": ["é" * 40]}))
    assert bounds(mine, "id") == (0, 200)
    assert reported(mine, "name").contains_unicode
    mine.delete("s", "t", "id < 5")
    assert bounds(others, "id") == (5, 200)
    mine.update("s", "t", {"id": "NULL"}, "id = 200")
    found = reported(others, "id")
    assert (found.minimum.as_py(), found.maximum.as_py(), found.has_null) == (5, 9, True)
    mine.delete("s", "t")
    assert not reported(others, "id").has_not_null


def test_a_transaction_sees_its_own_writes_and_no_others(served: Served) -> None:
    mine, others = served.client(), served.client()
    mine.begin()
    assert bounds(mine, "id") == (0, 9)
    others.insert("s", "t", pa.table({"id": [500], "name": ["x"]}))
    assert bounds(mine, "id") == (0, 9)
    mine.insert("s", "t", pa.table({"id": [200], "name": ["y"]}))
    assert bounds(mine, "id") == (0, 200)
    assert mine.scan("s", "t", where="id > 100").num_rows == 1
    mine.commit()
    assert bounds(mine, "id") == (0, 500)


def test_the_past_has_no_statistics(served: Served) -> None:
    client = served.client()
    client.delete("s", "t")
    assert not reported(client, "id").has_not_null
    assert client.scan("s", "t", where="id > 5", at=("VERSION", "0")).num_rows == 4
    assert client.count("s", "t") == 0


def test_a_description_of_the_past_has_no_marker() -> None:
    catalog = sp.MemoryCatalog("c", settings=ASKED)
    catalog.add_schema("s").add_table(sp.MemoryTable("t", pa.table({"id": [1]})))
    service = Service(CatalogRegistry([("c", catalog)]))
    descriptor = flight.FlightDescriptor.for_path("s", "t").serialize()
    for point, expected in (
        ({"at_unit": "VERSION", "at_value": "0"}, False),
        ({"at_unit": "", "at_value": ""}, True),
    ):
        answer = act(service, "flight_info", descriptor=descriptor, **point)
        info = flight.FlightInfo.deserialize(answer)
        assert (MARKER in (info.schema.metadata or {})) is expected


def test_an_altered_column_has_other_statistics(served: Served) -> None:
    client = served.client()
    client.change_column_type("s", "t", "id", pa.string())
    assert bounds(client, "id") == ("0", "9")
    client.add_column("s", "t", "span", "INTERVAL")
    assert not marked(client, "t")
    assert client.statistics("s", "t", "id") is None
    client.remove_column("s", "t", "span")
    assert bounds(client, "id") == ("0", "9")


def test_every_change_of_rows_is_a_change_of_the_catalog(served: Served) -> None:
    client = served.client()
    numbers = [served.catalog.version(sp.Context()).number]
    for change in (
        lambda: client.insert("s", "t", pa.table({"id": [1], "name": ["a"]})),
        lambda: client.update("s", "t", {"name": "'b'"}, "id = 1"),
        lambda: client.delete("s", "t", "id = 1"),
    ):
        change()
        numbers.append(served.catalog.version(sp.Context()).number)
    assert numbers == sorted(set(numbers))
    client.scan("s", "t")
    assert served.catalog.version(sp.Context()).number == numbers[-1]


# -------------------------------------------------------------------------------------- any values

TYPES: dict[str, tuple[pa.DataType, Any]] = {
    "BIGINT": (pa.int64(), st.integers(-(2**63), 2**63 - 1) | st.integers(-5, 5)),
    "UTINYINT": (pa.uint8(), st.integers(0, 255)),
    "DOUBLE": (pa.float64(), st.floats()),
    "FLOAT": (pa.float32(), st.floats(width=32)),
    "VARCHAR": (
        pa.string(),
        st.text(max_size=12) | st.sampled_from(["", "\0", "\U0010ffff" * 70, "x" * 100]),
    ),
    "DECIMAL(9,2)": (pa.decimal128(9, 2), st.decimals(-(10**6), 10**6, places=2)),
    "BOOLEAN": (pa.bool_(), st.booleans()),
    "DATE": (pa.date32(), st.dates()),
    "TIMESTAMP": (pa.timestamp("us"), st.datetimes()),
    "TIME": (pa.time64("us"), st.times()),
}
_names = iter(range(1_000_000))


@pytest.mark.parametrize("kind", TYPES)
@given(data=st.data())
@settings(
    max_examples=10,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_a_condition_that_the_bounds_exclude_matches_nothing(
    kind: str, data: st.DataObject, shared: Served
) -> None:
    """The bounds must not exclude rows that DuckDB itself finds, on any table."""
    data_type, values = TYPES[kind]
    column = data.draw(st.lists(st.none() | values, max_size=12))
    constant = data.draw(
        values
        if not [each for each in column if each is not None]
        else values | st.sampled_from(column)
    )
    name = f"any{next(_names)}"
    shared.add(name, pa.table({"v": pa.array(column, data_type)}))
    client = shared.client()
    found = reported(client, "v", name)
    rows = client.scan("s", name).column("v")
    assert found.has_null == (rows.null_count > 0)
    assert found.has_not_null == (rows.null_count < len(rows))
    if constant is None:
        return
    text = _literal(constant, kind)
    for operator, excluded in _excluded(found, pa.scalar(constant, data_type)).items():
        if excluded:
            assert client.scan("s", name, where=f"v {operator} {text}").num_rows == 0, (
                operator,
                text,
            )


def _literal(value: Any, kind: str) -> str:
    if kind == "VARCHAR" and "\0" in value:
        return "(" + " || ".join(["''", *(f"chr({ord(letter)})" for letter in value)]) + ")"
    return "'" + str(value).replace("'", "''") + f"'::{kind}"


def _excluded(found: ReportedStatistics, constant: pa.Scalar) -> dict[str, bool]:
    below = found.minimum.is_valid and _less(constant, found.minimum)
    above = found.maximum.is_valid and _less(found.maximum, constant)
    nothing = not found.has_not_null
    return {
        "=": below or above or nothing,
        "<": below or nothing,
        "<=": below or nothing,
        ">": above or nothing,
        ">=": above or nothing,
    }


def _less(left: pa.Scalar, right: pa.Scalar) -> bool:
    one, other = left.as_py(), right.as_py()
    if isinstance(one, float) and (math.isnan(one) or math.isnan(other)):
        return not math.isnan(one)  # it is the greatest
    return bool(pc.less(left, right).as_py())


# ------------------------------------------------------------------------------------ other tables


class Talking(StatisticsTable):
    """Gives the statistics of its columns that it was made with."""

    name = "talking"
    arrow_schema = pa.schema(
        [("n", pa.int64()), ("x", pa.float64()), ("t", pa.string()), ("l", pa.list_(pa.int64()))]
    )

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.asked: list[tuple[str | None, str]] = []

    def scan(self, ctx: sp.Context, options: sp.ScanOptions) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pylist(
            [{"n": 5, "x": 1.5, "t": "é", "l": [1]}], self.arrow_schema
        )

    def column_statistics(self, ctx: sp.Context, column: str) -> ColumnStatistics | None:
        self.asked.append((ctx.transaction_id, column))
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


class PlainCatalog(sp.Catalog):
    """A catalog of one schema with one table, without transactions and versions."""

    name = "c"

    def __init__(self, table: sp.Table) -> None:
        self._schema = MemorySchema("s")
        self._schema.add_table(table)

    def schemas(self, ctx: sp.Context) -> list[sp.Schema]:
        return [self._schema]


def act(service: Service, name: str, **body: Any) -> bytes:
    (result,) = service.do_action(Call(), flight.Action(name, msgpack.packb(body)).serialize())
    answer: bytes = flight.Result.deserialize(result).body.to_pybytes()
    return answer


def told(
    catalog: sp.Catalog | Service, column: str, table: str = "talking", kind: str = "BIGINT"
) -> dict[str, Any]:
    service = (
        catalog if isinstance(catalog, Service) else Service(CatalogRegistry([("c", catalog)]))
    )
    descriptor = flight.FlightDescriptor.for_path("s", table).serialize()
    answer = act(
        service, "column_statistics", flight_descriptor=descriptor, column_name=column, type=kind
    )
    (row,) = pa.ipc.open_stream(answer).read_all().to_pylist()
    return dict(row)


UNKNOWN = {"min": None, "max": None, "has_not_null": True, "has_null": True, "distinct_count": 0}


def test_what_a_table_says_is_passed_on() -> None:
    known = ColumnStatistics(1, 9, has_null=False, distinct_count=3)
    table = Talking(known)
    assert told(PlainCatalog(table), "n") == {
        **UNKNOWN,
        "min": 1,
        "max": 9,
        "has_null": False,
        "distinct_count": 3,
    }
    assert table.asked == [(None, "n")]


@pytest.mark.parametrize(
    "answer",
    [
        None,
        ColumnStatistics(),
        ColumnStatistics("a", "b"),
        ColumnStatistics(9, 1, has_null=False),
        ColumnStatistics(1, 2, has_null="no"),  # type: ignore[arg-type]
        (1, 2),
        ValueError("broken"),
    ],
    ids=str,
)
def test_what_is_not_known_or_makes_no_sense_becomes_the_widest(answer: Any) -> None:
    assert told(PlainCatalog(Talking(answer)), "n") == UNKNOWN


def test_the_widest_for_other_types() -> None:
    nan = ColumnStatistics(float("nan"), float("nan"), has_null=False)
    assert told(PlainCatalog(Talking(nan)), "x", kind="DOUBLE") == UNKNOWN
    text = told(PlainCatalog(Talking(None)), "t", kind="VARCHAR")
    assert (text["min"], text["max"][:2], text["contains_unicode"]) == ("", "\U0010ffff" * 2, True)
    assert "max_string_length" not in text
    assert told(PlainCatalog(Talking(ColumnStatistics(1, 2))), "l", kind="BIGINT[]") == UNKNOWN


def test_nonsense_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    service = Service(CatalogRegistry([("c", PlainCatalog(Talking(ColumnStatistics("a", "b"))))]))
    with caplog.at_level(logging.WARNING, "sparkport.service.statistics"):
        for _ in range(3):
            told(service, "n")
    (record,) = [each for each in caplog.records if each.name == "sparkport.service.statistics"]
    assert "table s.talking: the statistics of column n are not used" in record.getMessage()
    assert "bounds of another type" in str(record.exc_info)


def test_an_error_for_the_user_reaches_him() -> None:
    with pytest.raises(NotFound, match="the file is gone"):
        told(PlainCatalog(Talking(NotFound("the file is gone"))), "n")


def test_columns_that_nobody_can_be_told_about() -> None:
    catalog = sp.MemoryCatalog("c", settings=ASKED)
    rows = pa.table({"id": [1], "b": [b"x"]})
    catalog.add_schema("s").add_table(sp.MemoryTable("t", rows))
    for column in ("nothing", "rowid"):
        with pytest.raises(NotFound, match="has no column"):
            told(catalog, column, "t")
    with pytest.raises(Unsupported, match="BLOB"):
        told(catalog, "b", "t", "BLOB")


def test_a_table_that_has_none_gets_the_widest_answer() -> None:
    assert told(PlainCatalog(sp.MemoryTable("t", pa.table({"id": [1]}))), "id", "t") == UNKNOWN


def test_without_a_transaction_nothing_is_said_of_what_may_change() -> None:
    catalog = sp.MemoryCatalog("c", settings=ASKED)
    table = Talking(ColumnStatistics(1, 9))
    catalog.add_schema("s").add_table(table)
    assert told(catalog, "n") == UNKNOWN
    assert table.asked == []
    with (
        sp.Server(catalog, LOCAL) as server,
        DuckDBClient(server.location, "c", timeout=20) as client,
    ):
        assert bounds(client, "n", "talking") == (1, 9)
    assert [column for _, column in table.asked] == ["n"]
    assert table.asked[0][0] is not None


def test_a_client_that_knows_old_columns_is_told_so(served: Served) -> None:
    mine, others = served.client(), served.client()
    others.table("s", "t")
    mine.remove_column("s", "t", "name")
    with pytest.raises(ServerError, match="altered"):
        others.statistics("s", "t", "name")
