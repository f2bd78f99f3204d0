"""Who may change what by `spark_run` and by Flight SQL: the matrix of callers, changes and routes.

What a caller may not do is refused with a reason before anything is written. What is hidden looks
like what is absent.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa
import pytest
from adbc_driver_flightsql import dbapi
from adbc_driver_manager import Error
from tests.spark.lake_tables import create, insert

import sparkport as sp
from sparkport.catalog import Constraints, Privilege
from sparkport.spark import LakeCatalog
from sparkport.testing import ClientSideError, DuckDBClient, ServerError

READ, WRITE, ALTER, LIST, SQL, RUN = (
    Privilege.READ,
    Privilege.WRITE,
    Privilege.ALTER,
    Privilege.LIST,
    Privilege.SPARK_SQL,
    Privilege.SPARK_RUN,
)
_ALL = {READ, WRITE, ALTER, LIST}
GRANTED: dict[str, dict[str, set[Privilege]]] = {
    "nobody": {},
    "lister": {"*": {LIST}, "run": {RUN}},
    "reader": {"*": {READ}, "run": {RUN, SQL}},
    "writer of t": {"t": {WRITE}, "keyed": {WRITE}, "run": {RUN}},
    "without s": {"t": {READ, WRITE, ALTER}, "made": {READ, WRITE, ALTER}, "run": {RUN}},
    "without spark_run": {"*": _ALL, "run": {SQL}},
    "without alter": {"*": {READ, WRITE}, "run": {RUN, SQL}},
    "filter on s": {"*": _ALL, "run": {RUN, SQL}},
    "mask on s": {"*": _ALL, "run": {RUN, SQL}},
    "filter on t": {"*": _ALL, "run": {RUN, SQL}},
    "all": {"*": _ALL, "run": {RUN, SQL}},
}
"""Privileges on tables of schema `a`; "run" stands for the functions of Spark."""
_SEEN_IN_PART = {"filter on s", "mask on s", "filter on t"}


def _grants(who: str) -> Iterator[sp.Grant]:
    for name, privileges in GRANTED[who].items():
        if name == "*":
            yield sp.Grant((who,), "near.a", tuple(privileges))
        elif name == "run":
            for each in privileges:
                yield sp.Grant((who,), f"near.a.{each.value}", (each,))
            for function in ("lake_begin", "lake_commit", "lake_rollback"):
                yield sp.Grant((who,), f"near.a.{function}", (READ,))
        else:
            yield sp.Grant((who,), f"near.a.{name}", tuple(privileges))


POLICY = sp.Policy(
    [grant for who in GRANTED for grant in _grants(who)],
    [
        sp.RowFilter("near.a.s", "id = 1", ("filter on s",)),
        sp.RowFilter("near.a.t", "id = 1", ("filter on t",)),
    ],
    [sp.Mask("near.a.s", "v", "'***'", ("mask on s",))],
)
_LIMITS = {
    f"adbc.flight.sql.rpc.timeout_seconds.{each}": "60" for each in ("fetch", "query", "update")
}


@dataclass(frozen=True)
class _Caller:
    duckdb: DuckDBClient
    connection: Any

    def call(self, *texts: str) -> None:
        columns = {"a": pa.array([texts[0] if len(texts) == 1 else list(texts)])}
        self.duckdb.call("a", "spark_run", columns, rows=1)

    def execute(self, text: str, values: tuple[Any, ...] | None = None) -> None:
        with self.connection.cursor() as cursor:
            cursor.execute(text, values)
            if cursor.description is not None:
                cursor.fetchall()


Send: TypeAlias = Callable[[_Caller, str], Any]


def _by_scalar(caller: _Caller, text: str) -> None:
    caller.duckdb.begin()
    try:
        caller.duckdb.call("a", "lake_begin", {}, rows=1)
        try:
            caller.call(text)
        except BaseException:
            caller.duckdb.call("a", "lake_rollback", {}, rows=1)
            raise
        caller.duckdb.call("a", "lake_commit", {}, rows=1)
    finally:
        caller.duckdb.rollback()


def _prepared(caller: _Caller, text: str) -> None:
    marks = text.replace("77", "?")
    if marks == text or "VIEW" in text:  # a view takes no markers
        caller.execute(text)
    else:
        caller.execute(marks, (77,) * text.count("77"))


ROUTES: dict[str, Send] = {
    "FROM": lambda caller, text: caller.duckdb.table_function("a", "spark_run", text),
    "SELECT": lambda caller, text: caller.call(text),
    "block": _by_scalar,
    "pipeline": lambda caller, text: caller.call("DELETE FROM a.t WHERE id = 77", text),
    "query": lambda caller, text: caller.execute(text),
    "prepared": _prepared,
}


def _often(first: str, second: str, *others: str) -> list[Any]:
    """Two values for the tests that matter, and others for the long ones."""
    rest = [each for each in others if each not in (first, second)]
    return [first, second, *(pytest.param(each, marks=pytest.mark.long) for each in rest)]


Needs: TypeAlias = dict[str, set[Privilege]]
CHANGES: dict[str, tuple[str, Needs]] = {
    "insert": ("INSERT INTO a.t SELECT id + 77, v FROM a.s", {"t": {WRITE}, "s": {READ}}),
    "insert values": ("INSERT INTO a.t VALUES (77, 'x'), (78, 'y')", {"t": {WRITE}}),
    "overwrite": (
        "INSERT OVERWRITE a.t SELECT id, v FROM a.s WHERE id < 77",
        {"t": {WRITE}, "s": {READ}},
    ),
    "update": ("UPDATE a.t SET v = 'x' WHERE id < 77", {"t": {READ, WRITE}}),
    "delete": ("DELETE FROM a.t WHERE id = 77", {"t": {READ, WRITE}}),
    "delete by subquery": (
        "DELETE FROM a.t WHERE id IN (SELECT id FROM a.s WHERE id = 77)",
        {"t": {READ, WRITE}, "s": {READ}},
    ),
    "merge": (
        "MERGE INTO a.t USING a.s ON t.id = s.id WHEN MATCHED AND s.id < 77 THEN "
        "UPDATE SET v = s.v WHEN NOT MATCHED THEN INSERT *",
        {"t": {READ, WRITE}, "s": {READ}},
    ),
    "create as": (
        "CREATE TABLE a.made AS SELECT * FROM a.s WHERE id < 77",
        {"made": {ALTER, WRITE}, "s": {READ}},
    ),
    "create or replace": (
        "CREATE OR REPLACE TABLE a.made AS SELECT * FROM a.s WHERE id < 77",
        {"made": {ALTER, WRITE}, "s": {READ}},
    ),
    "create or replace view": (
        "CREATE OR REPLACE VIEW a.seen AS SELECT id FROM a.s WHERE id < 77",
        {"seen": {ALTER}, "s": {READ}},
    ),
    "drop view": ("DROP VIEW a.seen", {"seen": {ALTER}}),
}


class _Lakes:
    """Lake `near`, which the callers know in part, and lake `faraway`, which none of them does."""

    def __init__(self, near: LakeCatalog, callers: dict[str, _Caller]) -> None:
        self.near = near
        self.callers = callers

    def prepare(self) -> None:
        """The tables as each change expects them."""
        name = f"{self.near.spark_catalog}.a"
        for statement in (
            f"DROP TABLE IF EXISTS {name}.made",
            f"CREATE OR REPLACE VIEW {name}.seen AS SELECT 1 AS one",
        ):
            self.near.spark.sql(statement)

    def state(self) -> dict[str, str]:
        """Where the metadata of each table and view are."""
        listing = self.near._lake.catalog.listing()
        return {
            f"{schema}.{name}": entry.location
            for schema, inside in listing.namespaces.items()
            for name, entry in inside.entries.items()
        }


@pytest.fixture(scope="module")
def lakes(tmp_path_factory: pytest.TempPathFactory, lake: LakeCatalog) -> Iterator[_Lakes]:
    with ExitStack() as stack:
        catalogs = [
            stack.enter_context(LakeCatalog(tmp_path_factory.mktemp(name), name=name))
            for name in ("near", "faraway")
        ]
        near, far = catalogs
        for catalog, schema, tables in (
            (near, "a", ("t", "s", "hidden")),
            (near, "b", ("t",)),
            (far, "a", ("t",)),
        ):
            inside = f"{catalog.spark_catalog}.{schema}"
            catalog.spark.sql(f"CREATE NAMESPACE {inside}")
            for table in tables:
                catalog.spark.sql(
                    f"CREATE TABLE {inside}.{table} (id BIGINT, v STRING) USING iceberg "
                    "TBLPROPERTIES ('format-version' = '3')"
                )
                catalog.spark.sql(f"INSERT INTO {inside}.{table} VALUES (1, 'a'), (2, 'secret')")
        rules = Constraints(
            primary_key=("id",), not_null=("v",), unique=(("v",),), checks=("(id > 0)",)
        )
        columns = pa.schema([("id", pa.int64()), ("v", pa.string())])
        create(near, "a", "keyed", columns, constraints=rules)
        insert(near, "a", "keyed", "(1, 'a'), (2, 'secret')")
        settings = sp.ServerSettings(authenticate=sp.Identity, policy=POLICY)
        server = stack.enter_context(sp.Server(catalogs, "grpc://127.0.0.1:0", settings))
        callers = {}
        for who in GRANTED:
            duckdb = stack.enter_context(
                DuckDBClient(server.location, "near", token=who, timeout=60)
            )
            options = {
                **_LIMITS,
                "adbc.flight.sql.authorization_header": f"Bearer {who}",
                "adbc.flight.sql.rpc.call_header.airport-catalog": "near",
            }
            connection = stack.enter_context(
                dbapi.connect(server.location, db_kwargs=options, autocommit=True)
            )
            callers[who] = _Caller(duckdb, connection)
        yield _Lakes(near, callers)


def _held(who: str, table: str) -> set[Privilege]:
    granted = GRANTED[who]
    return granted.get("*", set()) | granted.get(table, set())


def _may(who: str, needs: Needs) -> bool:
    may_run = RUN in GRANTED[who].get("run", set()) and who not in _SEEN_IN_PART
    return may_run and all(each <= _held(who, table) for table, each in needs.items())


def _outcome(send: Callable[[], Any]) -> tuple[str, str]:
    """The code and the message of a refusal; `taken` for what is not refused."""
    try:
        send()
    except ServerError as error:
        return error.code, error.message
    except ClientSideError as error:
        return "NOT_FOUND", str(error)
    except Error as error:
        (code,) = re.findall(r"\((\w+); [\w.]+\)", str(error))
        return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", code).upper(), str(error)
    return "taken", ""


@pytest.mark.timeout(280)
@pytest.mark.parametrize("route", _often("FROM", "query", *ROUTES))
def test_a_change_is_made_or_refused_as_granted(lakes: _Lakes, route: str) -> None:
    wrong: list[tuple[str, ...]] = []
    for who, caller in lakes.callers.items():
        for change, (text, needs) in CHANGES.items():
            needed = {**needs, "t": needs.get("t", set()) | {READ, WRITE}}
            may = _may(who, needed if route == "pipeline" else needs)
            if may and who != "all" and route not in ("FROM", "query"):
                continue  # what may be done is done for some of them
            lakes.prepare()
            before = lakes.state()
            code, words = _outcome(lambda: ROUTES[route](caller, text))  # noqa: B023
            if may != (code == "taken") or "secret" in words:
                wrong.append((who, change, code, words))
            if may:
                continue
            if code not in ("PERMISSION_DENIED", "NOT_FOUND"):
                wrong.append((who, change, code, words))
            if lakes.state() != before:
                wrong.append((who, change, "something was written"))
    assert not wrong, "\n".join(map(str, wrong))


# --------------------------------------------------------------------- what needs no spark_run


_ROWS = pa.table({"id": pa.array([1], pa.int64()), "v": ["x"]})


def _ingest(mode: str, name: str) -> Callable[[_Caller], Any]:
    def send(caller: _Caller) -> None:
        with caller.connection.cursor() as cursor:
            cursor.adbc_ingest(name, _ROWS, mode=mode, db_schema_name="a")

    return send


PLAIN: dict[str, tuple[Callable[[_Caller], Any], Needs, bool]] = {
    "insert": (
        lambda caller: caller.execute("INSERT INTO a.t VALUES (?, ?)", (1, "x")),
        {"t": {WRITE}},
        False,
    ),
    "read": (lambda caller: caller.execute("SELECT * FROM a.s"), {"s": {READ}}, False),
    "append": (_ingest("append", "t"), {"t": {WRITE}}, False),
    "create": (_ingest("create", "made"), {"made": {ALTER, WRITE}}, False),
    "replace": (_ingest("replace", "t"), {"t": {ALTER, WRITE}}, True),
    "create, append": (_ingest("create_append", "made"), {"made": {ALTER, WRITE}}, False),
}
"""What is sent, what it needs, and whether the caller must see all of `t`."""


@pytest.mark.parametrize("what", PLAIN)
def test_plain_statements_and_ingests_need_only_rights_on_their_table(
    lakes: _Lakes, what: str
) -> None:
    send, needs, is_whole = PLAIN[what]
    wrong: list[tuple[str, ...]] = []
    for who, caller in lakes.callers.items():
        may = all(each <= _held(who, table) for table, each in needs.items())
        may = may and not (is_whole and who == "filter on t")
        lakes.prepare()
        before = lakes.state()
        code, words = _outcome(lambda: send(caller))  # noqa: B023
        if may != (code == "taken") or "secret" in words:
            wrong.append((who, code, words))
        if not may and code not in ("PERMISSION_DENIED", "NOT_FOUND"):
            wrong.append((who, code, words))
        if not may and lakes.state() != before:
            wrong.append((who, "something was written"))
    assert not wrong, "\n".join(map(str, wrong))


# ------------------------------------------------------------------------- hidden and elsewhere


NAMINGS = {
    "insert into": "INSERT INTO {} SELECT id, v FROM a.t",
    "overwrite": "INSERT OVERWRITE {} SELECT id, v FROM a.t",
    "update": "UPDATE {} SET v = 'x'",
    "update nonsense": "UPDATE {} SET nonsense = 'x'",
    "delete": "DELETE FROM {}",
    "merge into": "MERGE INTO {} AS x USING a.t ON x.id = t.id WHEN MATCHED THEN DELETE",
    "replace": "REPLACE TABLE {} AS SELECT 1 AS one",
    "create or replace": "CREATE OR REPLACE TABLE {} AS SELECT 1 AS one",
    "create if missing": "CREATE TABLE IF NOT EXISTS {} AS SELECT 1 AS one",
    "create": "CREATE TABLE {} AS SELECT 1 AS one",
    "view": "CREATE VIEW {} AS SELECT 1 AS one",
    "drop view": "DROP VIEW {}",
    "drop view if there": "DROP VIEW IF EXISTS {}",
    "select": "INSERT INTO a.t SELECT id, v FROM {}",
    "select nonsense": "INSERT INTO a.t SELECT nonsense FROM {}",
    "in": "DELETE FROM a.t WHERE id IN (SELECT id FROM {})",
    "using": "MERGE INTO a.t USING {} AS x ON t.id = x.id WHEN MATCHED THEN DELETE",
    "version": "INSERT INTO a.t SELECT id, v FROM {} VERSION AS OF 1",
    "as": "CREATE TABLE a.made AS SELECT * FROM {}",
    "plain read": "SELECT * FROM {}",
    "plain insert": "INSERT INTO {} VALUES (?, ?)",
}
HIDDEN = {
    "table": ("a.hidden", "a.absent"),
    "schema": ("b.t", "c.t"),
    "catalog": ("faraway.a.t", "nowhere.a.t"),
    "in another case": ("a.HIDDEN", "a.ABSENT"),
}


@pytest.mark.parametrize("who", _often("without s", "writer of t", "writer of t", "nobody"))
@pytest.mark.parametrize("route", _often("FROM", "query", "SELECT"))
def test_what_is_hidden_looks_like_what_is_absent(lakes: _Lakes, who: str, route: str) -> None:
    caller, before, wrong = lakes.callers[who], lakes.state(), []
    for naming, text in NAMINGS.items():
        for kind, names in HIDDEN.items():
            found = []
            for name in names:
                code, words = _outcome(
                    lambda: ROUTES[route](caller, text.format(name))  # noqa: B023
                )
                found.append((code, words.replace(name, "…")))
            differs_by_catalog = kind == "catalog" and "faraway" in found[0][1] + found[1][1]
            if found[0] != found[1] and not differs_by_catalog:
                wrong.append((naming, kind, *found))
            if "taken" in (found[0][0], found[1][0]):
                wrong.append((naming, kind, "taken"))
    assert not wrong, "\n".join(map(str, wrong))
    assert lakes.state() == before


# ------------------------------------------------------------------------ what errors do not tell


@pytest.mark.parametrize("route", _often("block", "query", "FROM", "SELECT"))
@pytest.mark.parametrize(
    ("values", "words"),
    [
        ("(1L, 'new')", "Duplicate key violates primary key constraint (id) of table keyed"),
        ("(9L, 'secret')", "Duplicate key violates unique constraint (v) of table keyed"),
        ("(10L, CAST(NULL AS STRING))", "NOT NULL constraint failed: keyed.v"),
        ("(-7L, 'x')", "CHECK constraint failed on table keyed with expression CHECK((id > 0))"),
    ],
)
def test_who_may_not_read_a_table_is_told_no_values(
    lakes: _Lakes, route: str, values: str, words: str
) -> None:
    caller = lakes.callers["writer of t"]
    code, message = _outcome(
        lambda: ROUTES[route](
            caller, f"INSERT INTO a.keyed SELECT * FROM VALUES {values} AS x(id, v)"
        )
    )
    assert (code, words in message) == ("FAILED_PRECONDITION", True), message
    assert not {"secret", "-7", '"id: 1"'} & set(message.replace(",", " ").split()), message
