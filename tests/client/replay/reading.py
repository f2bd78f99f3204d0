"""The recorded scenarios that change nothing: their catalogs, and DuckDB's results."""

from __future__ import annotations

import datetime
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from tests.client.replay.functions import add_functions, catalog_with_actions
from tests.client.replay.tables import SlowTable

from sparkport.builder.catalog import SchemaBuilder
from sparkport.catalog import Catalog, Context, PartitionedTable, RecordReader, ScanOptions, Table
from sparkport.catalog.references import FunctionCall
from sparkport.errors import BadRequest, CatalogFault
from sparkport.memory import MemoryCatalog, MemorySchema, MemorySettings, MemoryTable
from sparkport.testing import DuckDBClient

Refusal = tuple[str, str | None]
"""The gRPC code, and DuckDB's exception for it, where it is typed."""
Rows = Sequence[Sequence[Any]]


@dataclass(frozen=True)
class ReadingScenario:
    """Remarks about a recording. Statements are named by their SQL, repeated ones with `#2`."""

    name: str
    catalogs: Callable[[Path], list[Catalog]]
    """Makes the catalogs, of which the first is attached; the folder is for files."""
    prepare: Callable[[DuckDBClient], None] = lambda client: None
    shown: Mapping[str, str] = field(default_factory=dict)
    """SQL over `computed`, where DuckDB still changes a function's result."""
    refused: Mapping[str, Refusal] = field(default_factory=dict)
    """Statements that the server refuses; it answers all others."""
    accepted: frozenset[str] = frozenset()
    """Statements that it answers but the recording server refused: no further calls are recorded.
    """
    other_result: Mapping[str, Rows] = field(default_factory=dict)
    """The right result, where the recording server's was wrong."""
    sources: Mapping[str, str] = field(default_factory=dict)
    """SELECTs that give the rows of batches that were not kept."""


# ---------------------------------------------------------------------------------------- catalogs


def memory(
    tables: Mapping[str, pa.Table | Table], *, functions: bool = False, name: str = "cat"
) -> MemoryCatalog:
    """A catalog with these tables in its schema `s1`, and perhaps the functions in `utils`."""
    catalog = MemoryCatalog(name, settings=MemorySettings(statistics_rows=0))
    schema = catalog.add_schema("s1")
    for title, source in tables.items():
        schema.add_table(source if isinstance(source, Table) else MemoryTable(title, source))
    if functions:
        add_functions(catalog.add_schema("utils"))
    return catalog


def numbered(rows: int) -> pa.Table:
    """`SELECT i, 'n' || i, i * 0.5 FROM range(rows) r(i)`."""
    numbers = range(rows)
    return pa.table(
        {
            "id": pa.array(numbers, pa.int32()),
            "name": [f"n{number}" for number in numbers],
            "v": [number * 0.5 for number in numbers],
        }
    )


EMPLOYEES = pa.table(
    {
        "name": ["Emily", "Amy"],
        "age": pa.array([30, 32], pa.int32()),
        "start_date": pa.array(
            [datetime.datetime(2023, 10, 1), datetime.datetime(2024, 10, 2)], pa.timestamp("ms")
        ),
        "json_data": pa.array(["{}", "[1,2,3]"], pa.json_()),
        "id": pa.array(
            [
                uuid.UUID("b975e418-7a6d-4afd-b1a4-1f7174ce1805"),
                uuid.UUID("7ef19ab7-c7af-4f01-88c3-86fae862fd60"),
            ],
            pa.uuid(),
        ),
        "birthdate": [datetime.date(2023, 10, 1), datetime.date(2024, 10, 2)],
        "is_active": [True, False],
        "nickname": ["Ann", None],
        "salary": [1234.123, 5678.123],
        "balance": pa.array(
            [Decimal("12345.678790"), Decimal("67890.123456")], pa.decimal128(12, 6)
        ),
    }
)


def employees(folder: Path) -> list[Catalog]:
    catalog = memory({})
    catalog.add_schema("static_data").add_table(MemoryTable("employees", EMPLOYEES))
    return [catalog]


class Thirds(PartitionedTable):
    """Every third row in a stream of its own."""

    def __init__(self, name: str, rows: pa.Table) -> None:
        self._name = name
        self._rows = rows

    @property
    def name(self) -> str:
        return self._name

    @property
    def arrow_schema(self) -> pa.Schema:
        return self._rows.schema.append(pa.field("row", pa.int64(), metadata={b"is_rowid": b"1"}))

    def partitions(self, ctx: Context, options: ScanOptions) -> Sequence[bytes]:
        return [b"0", b"1", b"2"]

    def scan(self, ctx: Context, options: ScanOptions) -> RecordReader:
        wanted = (
            list(range(self._rows.num_rows))
            if options.partition is None
            else self._third(options.partition)
        )
        rows = self._rows.take(wanted).append_column("row", pa.array(wanted, pa.int64()))
        return rows.to_batches()

    def _third(self, partition: bytes) -> list[int]:
        return list(range(int(partition), self._rows.num_rows, 3))


def endpoint_variants(folder: Path) -> list[Catalog]:
    plain = {name: numbered(9) for name in ("none_t", "noloc_t", "loc_t")}
    catalog = memory({"multi_t": Thirds("multi_t", numbered(9)), **plain})
    source = pa.table(
        {"id": pa.array(range(6), pa.int32()), "name": [f"p{number}" for number in range(6)]}
    )
    pq.write_table(source, folder / "x.parquet")
    (schema,) = catalog.schemas(Context())
    assert isinstance(schema, MemorySchema)
    reading = FunctionCall("read_parquet", (str(folder / "x.parquet"),))
    SchemaBuilder(schema).table("func_t", reading, arrow_schema=source.schema)
    return [catalog]


class FailingScan(Table):
    """Fails after its first rows."""

    def __init__(self, name: str, error: Exception) -> None:
        self._name = name
        self._error = error

    @property
    def name(self) -> str:
        return self._name

    @property
    def arrow_schema(self) -> pa.Schema:
        row = pa.field("row", pa.int64(), metadata={b"is_rowid": b"1"})
        return pa.schema([("id", pa.int32()), ("name", pa.string()), row])

    def scan(self, ctx: Context, options: ScanOptions) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pylist([{"id": 1, "name": "a", "row": 0}], self.arrow_schema)
        raise self._error


class InvalidInput(BadRequest):
    duckdb_exception = "InvalidInputException"


def errors_scan(folder: Path) -> list[Catalog]:
    failing = {
        "fail_scan": FailingScan(
            "fail_scan", CatalogFault("deliberate error in the middle of the stream")
        ),
        "fail_scan_invalid": FailingScan(
            "fail_scan_invalid", InvalidInput("scan: the server says invalid input")
        ),
    }
    catalog = memory(failing)
    catalog.add_schema("static_data").add_table(
        SlowTable("big_chunk", pa.schema([("id", pa.int32())]))
    )
    return [catalog]


def changed_thrice(client: DuckDBClient) -> None:
    client.insert("s1", "t", {"name": ["v1"]})
    client.insert("s1", "t", {"name": ["v2"]})
    client.add_column("s1", "t", "age", "INTEGER")


# --------------------------------------------------------------------------------------- scenarios

PEOPLE = pa.table({"name": ["a", "b", "c"], "n": pa.array([1, 2, 3], pa.int32())})
SLOW = pa.schema([("id", pa.int32()), ("name", pa.string())])
ECHO = "CALL airport_action('grpc://server:50801', 'echo'"
FLIGHT = "SELECT * FROM airport_take_flight('grpc://server:50801', "
ERROR = "CALL airport_action('grpc://server:50801', 'generate_error', '{}')"
NUMBERED = [[number, f"n{number}", number * 0.5] for number in range(9)]
MISSING: Refusal = ("NOT_FOUND", None)

SCENARIOS = (
    ReadingScenario(
        "scalar_function",
        lambda folder: [memory({"t": pa.table({"name": ["a", "b", None]})}, functions=True)],
        shown={
            "SELECT sum(utils.test_add(i, 1)) FROM range(5000) r(i)": (
                "SELECT sum(result)::BIGINT FROM computed"
            ),
            "SELECT utils.test_no_op(5::bigint), utils.test_no_op(6::bigint)": (
                "FROM computed_0, computed_1"
            ),
            "SELECT name FROM t WHERE utils.test_uppercase(name) = 'A'": (
                "SELECT lower(result) FROM computed WHERE result = 'A'"
            ),
        },
        other_result={
            "SELECT utils.test_any_type(true)": [["true"]],  # a boolean, however it was sent
            "SELECT utils.test_time()": [[datetime.datetime(2026, 11, 15, 20, 12, 54)]],
        },
        sources={
            "SELECT sum(utils.test_add(i, 1)) FROM range(5000) r(i)": (
                "SELECT i, 1::BIGINT FROM range(5000) r(i)"
            )
        },
    ),
    ReadingScenario(
        "table_function",
        lambda folder: [memory({}, functions=True)],
        shown={
            "SELECT result_3, result_5 FROM utils.test_wide(4) WHERE result_6 > 5": (
                "SELECT result_3, result_5 FROM computed WHERE result_6 > 5"
            ),
            "SELECT count(*) FROM utils.test_long('x')": "SELECT count(*) FROM computed",
        },
    ),
    ReadingScenario(
        "table_in_out_function",
        lambda folder: [memory({"t": PEOPLE}, functions=True)],
        shown={
            "SELECT count(*) FROM utils.test_table_in_out_long((SELECT name FROM t))": (
                "SELECT count(*) FROM computed"
            ),
            "SELECT count(*), count(DISTINCT value) FROM utils.test_table_in_out_huge((SELECT "
            "name FROM t))": ("SELECT count(*), count(DISTINCT value) FROM computed"),
            "SELECT count(*) FROM utils.test_table_in_out_long((SELECT i FROM range(5000) r(i)))": (
                "SELECT count(*) FROM computed"
            ),
            "SELECT result_1, result_19 FROM utils.test_table_in_out_wide('x', (SELECT * FROM t)) "
            "WHERE result_2 = 2": ("SELECT result_1, result_19 FROM computed WHERE result_2 = 2"),
            "SELECT * FROM utils.test_table_in_out('Sloane', (SELECT name FROM t)) LIMIT 1": (
                "FROM computed LIMIT 1"
            ),
        },
        sources={
            "SELECT count(*) FROM utils.test_table_in_out_long((SELECT i FROM range(5000) r(i)))": (
                "FROM range(5000)"
            )
        },
    ),
    ReadingScenario(
        "table_in_out_2048",
        # The statement for another catalog goes to the attached catalog too: only the name is
        # needed.
        lambda folder: [memory({}, functions=True), memory({}, name="nosplit")],
        shown=dict.fromkeys(
            (
                f"SELECT count(*) FROM {catalog}.utils.test_table_in_out_wide('x', (SELECT i FROM "
                "range(3000) r(i)))"
                for catalog in ("nosplit", "cat")
            ),
            "SELECT count(*) FROM computed",
        ),
        # The client hung after its first batch; here the server answers that, and the end.
        other_result={
            "SELECT count(*) FROM nosplit.utils.test_table_in_out_wide('x', (SELECT i FROM "
            "range(3000) r(i)))": [[2048]]
        },
    ),
    ReadingScenario(
        "time_travel",
        lambda folder: [memory({"t": pa.table({"name": pa.array([], pa.string())})})],
        prepare=changed_thrice,
        refused={
            "SELECT * FROM t AT (VERSION => 'a-string-version')": ("INVALID_ARGUMENT", None),
            # The recording server ignored timestamps; in 2025 there was no such table.
            "SELECT * FROM t AT (TIMESTAMP => TIMESTAMP '2025-01-02 03:04:05.678901')": MISSING,
            "SELECT * FROM t AT (TIMESTAMP => TIMESTAMPTZ '2025-01-02 03:04:05+02')": MISSING,
            "SELECT * FROM t AT (TIMESTAMP => DATE '2025-01-02')": MISSING,
            "SELECT * FROM t AT (TIMESTAMP => '2025-01-02')": MISSING,
        },
    ),
    ReadingScenario("column_statistics", employees),
    ReadingScenario(
        "endpoint_variants",
        endpoint_variants,
        other_result={
            "SELECT * FROM none_t WHERE id < 5": NUMBERED[:5],
            "SELECT count(*) FROM none_t": [[9]],
            "SELECT * FROM noloc_t WHERE id < 5": NUMBERED[:5],
            "SELECT count(*) FROM noloc_t": [[9]],
        },
    ),
    ReadingScenario(
        "projection_replies",
        lambda folder: [memory({name: numbered(4) for name in ("nullp_t", "projt_t", "proj_t")})],
        other_result={
            "SELECT v FROM projt_t": [[row[2]] for row in NUMBERED[:4]],
            "SELECT v FROM proj_t": [[row[2]] for row in NUMBERED[:4]],
        },
    ),
    ReadingScenario(
        "take_flight",
        lambda folder: [
            memory({"t": pa.table({"id": pa.array([1, 2], pa.int32()), "name": ["a", "b"]})})
        ],
        shown={
            f"{FLIGHT}['cat/s1/table/t'])": "FROM flight",
            "SELECT name FROM airport_take_flight('grpc://server:50801', ['cat/s1/table/t']) "
            "WHERE id = 2": ("SELECT name FROM flight WHERE id = 2"),
        },
        refused={
            f"{FLIGHT}'cat/s1/table/t')": ("NOT_FOUND", "InvalidInputException"),
            f"{FLIGHT}['cat/s1/table/nosuch'])": ("NOT_FOUND", "InvalidInputException"),
        },
        accepted=frozenset({f"{FLIGHT}['cat', 's1', 't'])"}),  # a path that only this server knows
    ),
    ReadingScenario(
        "airport_action",
        lambda folder: [catalog_with_actions().build()],
        refused={
            "SELECT * FROM airport_action('grpc://server:50801', 'create_database', 'newdb') #2": (
                "ALREADY_EXISTS",
                None,
            ),
            "CALL airport_action('grpc://server:50801', 'nosuchaction')": ("UNIMPLEMENTED", None),
            ERROR.format("flight_unavailable"): ("UNAVAILABLE", None),
            ERROR.format("flight_server_error"): ("UNKNOWN", None),
            ERROR.format("flight_unauthenticated"): ("UNAUTHENTICATED", None),
        },
    ),
    ReadingScenario(
        "errors_scan",
        errors_scan,
        refused={
            "SELECT count(*) FROM fail_scan": ("UNKNOWN", "InvalidInputException"),
            "SELECT count(*) FROM fail_scan_invalid": ("INVALID_ARGUMENT", "InvalidInputException"),
            "SELECT * FROM static_data.big_chunk AT (VERSION => 7)": ("UNIMPLEMENTED", None),
        },
    ),
    ReadingScenario(
        "interrupt_scan",
        lambda folder: [memory({"slow": SlowTable("slow", SLOW)})],
        other_result={"SELECT sum(id) FROM slow": [[0]]},
    ),
)
