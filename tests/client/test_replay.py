"""Every recorded statement of the real client that changes something, replayed on memory.

The requests are the recorded ones (`replay/README.md`); the replies are read as strictly as DuckDB
reads them. Afterwards the tables hold what the same SQL does to tables of DuckDB itself. Where the
recording server behaved otherwise than a server should, or the protocol loses something on the way,
the scenario says so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from tests.client.replay import reading
from tests.client.replay.expected import Expected, assert_same_contents, shown
from tests.client.replay.functions import add_functions
from tests.client.replay.recording import HERE, Recording, Step, load
from tests.client.replay.replayer import Outcome, Replayer
from tests.client.replay.tables import FailingTable, SlowTable, keyed_table

from sparkport.catalog import Catalog, Table
from sparkport.errors import (
    BadRequest,
    CatalogFault,
    ConstraintViolation,
    PermissionDenied,
    SparkportError,
    Unauthenticated,
)
from sparkport.memory import MemoryCatalog, MemoryTable
from sparkport.server import Server
from sparkport.testing import ClientSideError, DuckDBClient

Refusal = tuple[str, str | None]
"""The gRPC code, and DuckDB's exception for it, where it is typed."""

EXISTS: Refusal = ("ALREADY_EXISTS", None)
MISSING: Refusal = ("NOT_FOUND", None)
INVALID: Refusal = ("INVALID_ARGUMENT", None)
STATE: Refusal = ("FAILED_PRECONDITION", None)
CONSTRAINT: Refusal = ("FAILED_PRECONDITION", "ConstraintException")
FAULT: Refusal = ("UNKNOWN", "InvalidInputException")

MemoryTables = Callable[[str, pa.Table], Table]

ELSEWHERE = {scenario.name for scenario in reading.SCENARIOS} | {"types"}
"""Replayed by `test_replay_reading.py` and `test_replay_types.py`."""


@dataclass(frozen=True)
class Scenario:
    """Remarks about a recording. Statements are named by their SQL, repeated ones with `#2`."""

    name: str
    catalog: str = "cat"
    more_setup: Sequence[str] = ()
    between: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Statements of the setup that were run in between, before the statement named."""
    refused: Mapping[str, Refusal] = field(default_factory=dict)
    """Statements that the server refuses; it accepts all others."""
    accepted: Mapping[str, str] = field(default_factory=dict)
    """Statements that it accepts although the recording server did not, and why."""
    instead: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """What the requests say, where that differs from the SQL."""
    other_result: Mapping[str, str] = field(default_factory=dict)
    """Where the recorded result was the recording server's doing, and how."""
    sources: Mapping[str, str] = field(default_factory=dict)
    """SELECTs that give the rows of batches that were not kept."""
    table: MemoryTables = MemoryTable
    endless: frozenset[str] = frozenset()
    """Tables that cannot be read to their end."""
    functions: bool = False
    """Whether the schema `utils` has the functions of the recording server."""
    left_out: frozenset[str] = frozenset()
    """Statements about objects that the catalog does not have."""


def test_every_file_of_the_folder_is_replayed() -> None:
    assert {path.stem for path in HERE.glob("*.json")} == {
        scenario.name for scenario in SCENARIOS
    } | ELSEWHERE


def scenario_of(name: str) -> Scenario:
    (found,) = (scenario for scenario in SCENARIOS if scenario.name == name)
    return found


@pytest.mark.parametrize("name", sorted({path.stem for path in HERE.glob("*.json")} - ELSEWHERE))
def test_recorded_statements_do_to_the_memory_backend_what_their_sql_says(name: str) -> None:
    replay(scenario_of(name), memory_catalog)


def replay(scenario: Scenario, make_catalog: Callable[[Scenario, Expected], Catalog]) -> None:
    """Send the recording to a catalog with equal tables, and compare it with DuckDB."""
    recording = load(scenario.name)
    with closing(Expected(scenario.catalog)) as expected:
        _set_up(scenario, recording, expected)
        with (
            Server(make_catalog(scenario, expected), "grpc://127.0.0.1:0") as server,
            closing(Replayer(server.location, scenario.catalog, _omissions(scenario))) as replayer,
            DuckDBClient(server.location, scenario.catalog, timeout=60) as other,
        ):
            for label, step in _labelled(recording.steps):
                if label in scenario.left_out:
                    continue
                for sql in scenario.between.get(label, ()):
                    expected.run([sql])
                    _run_unrecorded(other, sql)
                outcome = replayer.run(step)
                _check(scenario, label, step, outcome, expected)
            other.detach()
            assert_same_contents(other, expected, scenario.endless)


@pytest.mark.parametrize("name", ["rid_first", "rid_named", "rid_str", "rid_notnull"])
def test_update_returning_goes_on_where_the_recorded_client_gave_up(name: str) -> None:
    """The recording server answered with its own name for the row id, unknown to the client."""
    catalog = MemoryCatalog("cat")
    columns = pa.schema([("id", pa.int32()), ("name", pa.string()), ("v", pa.float64())])
    catalog.add_schema("s1").add_table(keyed_table(name, columns))
    with (
        Server(catalog, "grpc://127.0.0.1:0") as server,
        DuckDBClient(server.location, "cat", timeout=60) as client,
    ):
        client.insert("s1", name, {"id": [1, 2], "name": ["a", "b"], "v": [1.5, 2.5]})
        changed = client.update("s1", name, {"name": "'y'"}, where="id = 1", returning=True)
        assert changed.rows is not None
        assert changed.rows.to_pylist() == [{"id": 1, "name": "y", "v": 1.5}]
        deleted = client.delete("s1", name, where="id = 1", returning=True)
        assert deleted.rows is not None
        assert deleted.rows.to_pylist() == [{"id": 1, "name": "y", "v": 1.5}]
        assert client.scan("s1", name).to_pylist() == [{"id": 2, "name": "b", "v": 2.5}]


def test_a_table_without_row_id_refuses_to_be_updated() -> None:
    catalog = MemoryCatalog("cat")
    catalog.add_schema("s1").add_table(keyed_table("rid_none", pa.schema([("id", pa.int32())])))
    with (
        Server(catalog, "grpc://127.0.0.1:0") as server,
        DuckDBClient(server.location, "cat", timeout=60) as client,
    ):
        client.insert("s1", "rid_none", {"id": [1]})
        with pytest.raises(ClientSideError, match="BindRowIdColumns"):  # trap T39
            client.update("s1", "rid_none", {"id": 2})
        assert client.scan("s1", "rid_none").to_pylist() == [{"id": 1}]


def _labelled(steps: Sequence[Step]) -> list[tuple[str, Step]]:
    seen: Counter[str] = Counter()
    labelled = []
    for step in steps:
        seen[step.sql] += 1
        labelled.append(
            (step.sql if seen[step.sql] == 1 else f"{step.sql} #{seen[step.sql]}", step)
        )
    return labelled


def _set_up(scenario: Scenario, recording: Recording, expected: Expected) -> None:
    later = [sql for statements in scenario.between.values() for sql in statements]
    setup = recording.setup[::-1]
    for sql in later:
        setup.remove(sql)  # the last of them: equal statements may come earlier
    setup.reverse()
    expected.run([*setup, *scenario.more_setup])


def memory_catalog(scenario: Scenario, expected: Expected) -> MemoryCatalog:
    """Tables as the setup leaves them."""
    catalog = MemoryCatalog(scenario.catalog)
    schemas = {name: catalog.add_schema(name) for name in sorted(expected.schemas())}
    for (schema, name), rows in expected.tables().items():
        schemas[schema].add_table(scenario.table(name, rows))
    if scenario.functions:
        add_functions(schemas["utils"])
    return catalog


def _run_unrecorded(client: DuckDBClient, sql: str) -> None:
    if sql == "DELETE FROM t":
        client.delete("s1", "t")
    else:
        head = "INSERT INTO t SELECT"
        assert sql.startswith(head)
        columns = [column.name for column in client.table("s1", "t").columns]
        with duckdb.connect() as database:
            rows = database.sql("SELECT" + sql[len(head) :]).to_arrow_table()
        client.insert("s1", "t", rows.rename_columns(columns))


def _omissions(scenario: Scenario) -> Callable[[str, pa.Schema, Mapping[str, pa.Table]], pa.Table]:
    def made(sql: str, schema: pa.Schema, scanned: Mapping[str, pa.Table]) -> pa.Table:
        with duckdb.connect(config={"arrow_lossless_conversion": True}) as database:
            for name, rows in scanned.items():
                database.register(name, rows)
            table = database.sql(scenario.sources[sql]).to_arrow_table()
        return table.rename_columns(schema.names).cast(schema)

    return made


def _check(
    scenario: Scenario, label: str, step: Step, outcome: Outcome, expected: Expected
) -> None:
    error = outcome.error
    refusal = scenario.refused.get(label)
    assert (None if error is None else (error.code, error.duckdb_exception)) == refusal, (
        f"{label}: {error}"
    )
    if step.refused_by_server and refusal is None:
        assert label in scenario.accepted, f"{label} was refused when it was recorded: {step.error}"
    failed = refusal is not None or (step.error is not None and label not in scenario.accepted)
    statements = scenario.instead.get(label, () if failed else (step.sql,))
    rows = expected.run(statements)
    if not failed and outcome.computed:
        computed = [list(row.values()) for row in outcome.computed[-1].to_pylist()]
        assert computed == step.rows, label
        return
    if failed or (outcome.changed is None and not outcome.scanned):
        return
    result = shown(step, outcome.scanned, outcome.changed, "s1")
    if statements == (step.sql,):
        assert _unordered(result) == _unordered(rows), label
    if label not in scenario.other_result:
        assert len(result) == step.row_count, label
        assert step.rows is not None
        assert not Counter(_unordered(step.rows)) - Counter(_unordered(result)), label


def _unordered(rows: Sequence[Sequence[Any]]) -> list[str]:
    return sorted(repr(tuple(row)) for row in rows)


# ---------------------------------------------------------------------------------------- failures


class InvalidInput(BadRequest):
    duckdb_exception = "InvalidInputException"


class Unavailable(SparkportError):
    code = "UNAVAILABLE"


FAILURES: dict[str, tuple[str | int, SparkportError]] = {
    "fail_start": ("start", CatalogFault("deliberate error before the stream")),
    "fail_first": (1, CatalogFault("deliberate error in the first batch")),
    "fail_mid": (2, CatalogFault("deliberate error in the middle of the stream")),
    "fail_end": ("end", CatalogFault("deliberate error at the end")),
    "fail_first_constraint": (
        1,
        ConstraintViolation('Duplicate key "id: 7" violates primary key constraint.'),
    ),
    "fail_first_invalid": (1, InvalidInput("the server says invalid input")),
    "fail_first_perm": (1, PermissionDenied("the server says permission denied")),
    "fail_first_unavail": (1, Unavailable("the server is unavailable")),
    "fail_first_unauth": (1, Unauthenticated("not authenticated")),
}


def failing_table(name: str, data: pa.Table) -> Table:
    return FailingTable(name, data, *FAILURES[name])


def _failing_statements(name: str, rows: str, where: str) -> list[str]:
    statements = (
        f"INSERT INTO {name} {rows}",
        f"UPDATE {name} SET name = 'x'{where}",
        f"DELETE FROM {name}{where}",
    )
    return [sql + returning for sql in statements for returning in ("", " RETURNING id")]


SMALL = ("VALUES (1, 'a')", " WHERE id = 1")
LARGE = ("SELECT i, 'n' || i FROM range(5000) r(i)", "")
FAILING = [
    *_failing_statements("fail_start", *SMALL),
    *_failing_statements("fail_first", *SMALL),
    *_failing_statements("fail_mid", *LARGE),
    *_failing_statements("fail_end", *LARGE),
]
NUMBERED = "SELECT i, 'n' || i FROM range({}) r(i)"

# --------------------------------------------------------------------------------------- scenarios

BOOM = (
    "INSERT INTO t SELECT CASE WHEN i = 5000 THEN error('boom') ELSE i END, 'n' || i "
    "FROM range(10000) r(i)"
)
HALF_CLOSED = [f"INSERT INTO t {NUMBERED.format(4096)}"]
C1 = (
    "CREATE TABLE c1 (id INTEGER PRIMARY KEY, code VARCHAR UNIQUE, qty INTEGER NOT NULL CHECK (qty "
    "> 0 AND qty < 1000), price DECIMAL(10,2) DEFAULT 9.99, note VARCHAR DEFAULT 'none', made "
    "TIMESTAMP DEFAULT current_timestamp, CHECK (price > qty))"
)
RID = "CREATE TABLE {}(id integer, name varchar, v double)"

SCENARIOS = (
    Scenario(
        "schema_ddl",
        accepted={
            "CREATE SCHEMA cat.a #2": (
                "the same on the wire as IF NOT EXISTS, which must work (airport §4.10)"
            ),
            "CREATE SCHEMA IF NOT EXISTS cat.a": "as SQL says; the recording server could not know",
        },
        refused={
            "DROP SCHEMA cat.a": STATE,  # the recording server dropped it with its table
            "DROP SCHEMA IF EXISTS cat.a CASCADE": STATE,  # CASCADE is not sent (airport §4.11)
            "DROP SCHEMA cat.nosuch": MISSING,
        },
        instead={"CREATE SCHEMA cat.a #2": ()},
    ),
    Scenario(
        "create_table",
        refused={
            "CREATE TABLE c3 (id INTEGER)": EXISTS,
            "CREATE TABLE c9 (rowid INTEGER, v VARCHAR)": INVALID,  # the name is the row's identity
            "INSERT INTO c1 (id, code, qty) VALUES (1, 'b', 5)": CONSTRAINT,
            # The recording server had and published neither, so the client did not check them.
            "INSERT INTO c1 (id, code, qty) VALUES (2, 'c', -5)": CONSTRAINT,
            "INSERT INTO c1 (id, code, qty) VALUES (3, 'c', NULL)": CONSTRAINT,
        },
        instead={  # defaults and generated columns are not sent (trap T35)
            C1: [
                C1.replace(" DEFAULT 9.99", "")
                .replace(" DEFAULT 'none'", "")
                .replace(" DEFAULT current_timestamp", "")
            ],
            "CREATE TABLE s1.c11 (id INTEGER DEFAULT 7, v VARCHAR)": [
                "CREATE TABLE s1.c11 (id INTEGER, v VARCHAR)"
            ],
        },
    ),
    Scenario(
        "create_table_as",
        refused={"CREATE TABLE t1 AS SELECT 99 AS id": EXISTS},
        sources={"CREATE TABLE t3 AS SELECT i AS id FROM range(5000) r(i)": "FROM range(5000)"},
    ),
    Scenario("drop_table"),
    Scenario(
        "alter_table",
        refused={
            "ALTER TABLE t ADD COLUMN location STRING #2": EXISTS,
            "ALTER TABLE t DROP COLUMN location #2": MISSING,
            "ALTER TABLE t RENAME COLUMN nosuch TO x": MISSING,
        },
        instead={
            # The default of a new column is not sent (trap T35).
            "ALTER TABLE t ADD COLUMN score INTEGER DEFAULT 42": [
                "ALTER TABLE t ADD COLUMN score INTEGER"
            ],
            # Evaluated by the client, on the day of the recording.
            "INSERT INTO t (id) VALUES (3)": [
                "INSERT INTO t (id, label) VALUES (3, 'xABC2026-11-15')"
            ],
        },
        other_result={"SELECT * FROM t_new ORDER BY id": "it took no notice of USING age * 2 + 1"},
    ),
    Scenario(
        "alter_struct_fields",
        refused={  # the name of the new field is not sent (trap T34)
            "ALTER TABLE t ADD COLUMN addr.zip INTEGER": STATE,
            "ALTER TABLE t ADD COLUMN IF NOT EXISTS addr.zip INTEGER": STATE,
            "ALTER TABLE t ADD COLUMN addr.geo.alt DOUBLE": STATE,
            "ALTER TABLE t DROP COLUMN addr.zip": MISSING,
        },
        other_result={"SELECT * FROM t": "it dropped the values when fields changed"},
    ),
    Scenario(
        "insert",
        sources={
            "INSERT INTO t SELECT i, 'n' || i, i * 0.5 FROM range(10000) r(i)": (
                "SELECT i, 'n' || i, i * 0.5 FROM range(10000) r(i)"
            )
        },
    ),
    Scenario(
        "insert_returning",
        sources={
            "INSERT INTO t SELECT i, 'n' || i, i * 0.5 FROM range(5000) r(i) RETURNING id": (
                "SELECT i, 'n' || i, i * 0.5 FROM range(5000) r(i)"
            )
        },
    ),
    Scenario(
        "insert_parallel",
        sources={"INSERT INTO t SELECT i FROM memory.main.src": "FROM range(300000)"},
    ),
    Scenario("update", sources={"UPDATE big SET v = id": "SELECT id, rowid FROM big"}),
    Scenario(
        "delete",
        between={
            "DELETE FROM t WHERE id < 3000": [
                "INSERT INTO t SELECT i, 'n' || i, i * 0.5 FROM range(5000) r(i)"
            ],
            "TRUNCATE t": ["INSERT INTO t SELECT i, 'n' || i, i * 0.5 FROM range(5000) r(i)"],
        },
        sources={"TRUNCATE t": "SELECT rowid FROM t"},
    ),
    Scenario("merge_into", instead={"COPY t FROM 'x.csv'": ["INSERT INTO t VALUES (7, 'csv')"]}),
    Scenario(
        "rowid_variants",
        table=lambda name, rows: keyed_table(name, rows.schema),
        instead={  # DuckDB's own row ids are numbers
            "SELECT rowid, name FROM rid_str WHERE v > 2": (),
            "SELECT name FROM rid_str WHERE rowid = 'r1'": (),
        },
    ),
    Scenario(
        "rowid_variants_returning",
        more_setup=[RID.format(name) for name in ("rid_named", "rid_str", "rid_notnull")],
        table=lambda name, rows: keyed_table(name, rows.schema),
    ),
    Scenario(
        "transactions",
        catalog="tx",
        functions=True,
        more_setup=["CREATE SCHEMA utils"],
        instead={  # DuckDB itself does not know them
            "SELECT * FROM t AT (VERSION => 1)": (),
            "SELECT utils.test_add(1::bigint, 2::bigint)": (),
            "SELECT * FROM utils.test_echo('x')": (),
            "SELECT * FROM utils.test_table_in_out('x', (SELECT name FROM t))": (),
        },
    ),
    Scenario(
        "errors_dml",
        table=failing_table,
        # The recording server had kept the rows of the two INSERTs that it let fail at the end.
        more_setup=[f"INSERT INTO fail_end {LARGE[0]}"] * 2,
        refused={
            **dict.fromkeys(FAILING, FAULT),
            "INSERT INTO fail_first_constraint VALUES (1, 'a')": CONSTRAINT,
            "INSERT INTO fail_first_invalid VALUES (1, 'a')": (
                "INVALID_ARGUMENT",
                "InvalidInputException",
            ),
            "INSERT INTO fail_first_perm VALUES (1, 'a')": (
                "PERMISSION_DENIED",
                "PermissionException",
            ),
            "INSERT INTO fail_first_unavail VALUES (1, 'a')": (
                "UNAVAILABLE",
                "InvalidInputException",
            ),
            "INSERT INTO fail_first_unauth VALUES (1, 'a')": (
                "UNAUTHENTICATED",
                "PermissionException",
            ),
        },
        sources={
            sql: source
            for name in ("fail_mid", "fail_end")
            for sql, source in zip(
                _failing_statements(name, *LARGE),
                [
                    NUMBERED.format(5000),
                    NUMBERED.format(5000),
                    f"SELECT 'x', rowid FROM {name}",
                    f"SELECT 'x', id, rowid FROM {name}",
                    f"SELECT rowid FROM {name}",
                    f"SELECT rowid FROM {name}",
                ],
                strict=True,
            )
        },
    ),
    Scenario(
        "errors_client_side",
        table=lambda name, rows: (
            SlowTable(name, rows.schema) if name == "slow" else MemoryTable(name, rows)
        ),
        between={
            "UPDATE t SET name = CASE WHEN id = 5000 THEN error('boom') ELSE 'upd' END": [
                "DELETE FROM t",
                f"INSERT INTO t {NUMBERED.format(10000)}",
            ]
        },
        # The client half-closes as if all had been sent (trap T22): the rows that it sent stay.
        instead={
            BOOM: HALF_CLOSED,
            f"{BOOM} #2": HALF_CLOSED,
            f"{BOOM} RETURNING id": HALF_CLOSED,
            "UPDATE t SET name = CASE WHEN id = 5000 THEN error('boom') ELSE 'upd' END": [
                "UPDATE t SET name = 'upd' WHERE id < 4096"
            ],
            "DELETE FROM t WHERE CASE WHEN id = 5000 THEN error('boom') ELSE true END": [
                "DELETE FROM t WHERE id < 4096"
            ],
            "INSERT INTO u SELECT id, name FROM slow": [
                "INSERT INTO u SELECT i, 'v' || i FROM range(15) r(i), range(10)"
            ],
        },
        sources={
            BOOM: NUMBERED.format(4096),
            f"{BOOM} RETURNING id": NUMBERED.format(4096),
            "UPDATE t SET name = CASE WHEN id = 5000 THEN error('boom') ELSE 'upd' END": (
                "SELECT 'upd', rowid FROM t LIMIT 4096"
            ),
            "DELETE FROM t WHERE CASE WHEN id = 5000 THEN error('boom') ELSE true END": (
                "SELECT rowid FROM t LIMIT 4096"
            ),
            "INSERT INTO u SELECT id, name FROM slow": (
                "SELECT i, 'v' || i FROM range(15) r(i), range(10) ORDER BY i"
            ),
        },
        endless=frozenset({"slow"}),
    ),
)
