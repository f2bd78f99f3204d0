"""Who may change some tables changes nothing else, by `spark_run` and by Flight SQL.

Every statement of the grammars is tried, and hostile ones beside them. What is refused is refused
before anything is written: no table has new metadata, so that there was no branch either.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from adbc_driver_flightsql import dbapi
from adbc_driver_manager import Error
from tests.spark.spark_statements import FORMS, ICEBERG, STATEMENTS
from tests.spark.test_sealed_queries import dump

import sparkport as sp
from sparkport.catalog import Context, Privilege
from sparkport.spark import LakeCatalog
from sparkport.testing import DuckDBClient, ServerError

OPEN, VAULT = "open", "vault"
_CHANGES = (Privilege.READ, Privilege.WRITE, Privilege.SPARK_SQL, Privilege.SPARK_RUN)
POLICY = sp.Policy(
    [
        sp.Grant(("ada",), f"*.{OPEN}", _CHANGES),
        sp.Grant(("eve",), f"*.{OPEN}", (*_CHANGES, Privilege.ALTER)),
    ]
)
_LIMITS = {
    f"adbc.flight.sql.rpc.timeout_seconds.{each}": "60" for each in ("fetch", "query", "update")
}
Send: TypeAlias = Callable[..., object]
ROUTES = ("spark_run", "flight_sql")


@dataclass(frozen=True)
class _Sealed:
    catalog: LakeCatalog
    audit: Path
    routes: dict[tuple[str, str], Send]
    """By caller and route."""

    def outcome(self, who: str, route: str, text: str) -> tuple[str, str]:
        """The code and the message of a refusal; `taken` for what is not refused."""
        try:
            self.routes[who, route](text)
        except ServerError as error:
            return error.code, error.message
        except Error as error:
            (code,) = re.findall(r"\((\w+); \w+\)", str(error))
            return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", code).upper(), str(error)
        return "taken", ""

    def metadata(self) -> dict[str, str]:
        """The metadata file of each table, which any commit changes."""
        found = {}
        for name in (OPEN, VAULT):
            schema = self.catalog.schema(Context(), name)
            assert schema is not None
            for table in schema.tables(Context()):
                state = getattr(table, "state", None)
                if state is not None:
                    found[f"{name}.{table.name}"] = state.metadata_location
        return found


@pytest.fixture(scope="module")
def sealed(tmp_path_factory: pytest.TempPathFactory, lake: LakeCatalog) -> Iterator[_Sealed]:
    """A lake of its own, in the shared JVM."""
    audit = tmp_path_factory.mktemp("audit") / "audit.jsonl"
    settings = sp.ServerSettings(authenticate=sp.Identity, policy=POLICY, audit_file=audit)
    with ExitStack() as stack:
        catalog = stack.enter_context(
            LakeCatalog(tmp_path_factory.mktemp("sealed"), name="changed")
        )
        for schema, table in ((OPEN, "t"), (OPEN, "mine"), (VAULT, "gold")):
            name = f"{catalog.spark_catalog}.{schema}"
            catalog.spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {name}")
            catalog.spark.sql(
                f"CREATE TABLE {name}.{table} (id BIGINT, v STRING) USING iceberg "
                "TBLPROPERTIES ('format-version' = '3')"
            )
            catalog.spark.sql(f"INSERT INTO {name}.{table} VALUES (1, 'x'), (2, '987654321')")
        for schema, table in ((OPEN, "t"), (VAULT, "gold")):
            name = f"{catalog.spark_catalog}.{schema}"
            catalog.spark.sql(f"CREATE VIEW {name}.w AS SELECT id FROM {name}.{table}")
        catalog.spark.sql(
            f"CREATE VIEW {catalog.spark_catalog}.{OPEN}.revealing AS "
            f"SELECT * FROM {catalog.spark_catalog}.{VAULT}.gold"
        )
        server = stack.enter_context(sp.Server(catalog, "grpc://127.0.0.1:0", settings))
        routes: dict[tuple[str, str], Send] = {}
        for who in ("ada", "eve"):
            client = stack.enter_context(
                DuckDBClient(server.location, "changed", token=who, timeout=60)
            )
            options = {**_LIMITS, "adbc.flight.sql.authorization_header": f"Bearer {who}"}
            connection = stack.enter_context(
                dbapi.connect(server.location, db_kwargs=options, autocommit=True)
            )
            cursor = stack.enter_context(connection.cursor())
            routes[who, "spark_run"] = _by_function(client)
            execute: Any = cursor.execute
            routes[who, "flight_sql"] = execute
        yield _Sealed(catalog, audit, routes)


def _by_function(client: DuckDBClient) -> Send:
    return lambda text: client.table_function(OPEN, "spark_run", text)


# ---------------------------------------------------------------------- every statement there is


_COMMON = ("plain", "immediate")
_RARE = [pytest.param(form, marks=pytest.mark.long) for form in FORMS if form not in _COMMON]
_CHANGES_T = re.compile(
    r"(WITH c AS \(.*\) )?(INSERT INTO|INSERT OVERWRITE|DELETE FROM|UPDATE|MERGE INTO) open\.t\b"
)
_ARE_QUERIES = re.compile(r"FROM open\.t (RESET|SET|EXPLAIN SELECT 1)$")
"""Texts in which the word is an alias of the table."""
EXPECTED = {"INVALID_ARGUMENT", "PERMISSION_DENIED", "NOT_FOUND", "UNIMPLEMENTED"}


@pytest.mark.timeout(280)
@pytest.mark.parametrize("form", [*_COMMON, *_RARE])
@pytest.mark.parametrize("route", ROUTES)
def test_only_changes_of_permitted_tables_are_taken(
    sealed: _Sealed, route: str, form: str, tmp_path: Path
) -> None:
    before = _but_t(sealed)
    statements = [each for alternatives in (STATEMENTS | ICEBERG).values() for each in alternatives]
    texts = [FORMS[form](each).replace("/tmp/evil", str(tmp_path / "evil")) for each in statements]

    outcomes = {text: sealed.outcome("ada", route, text) for text in texts}

    taken = {text for text, (code, _) in outcomes.items() if code == "taken"}
    assert {each for each in taken if not _CHANGES_T.match(each)} <= {
        each for each in texts if route == "flight_sql" and _ARE_QUERIES.match(each)
    }
    assert bool(taken) == (form in ("plain", "after WITH")) or route == "flight_sql"
    expected = {"taken", *EXPECTED}
    assert {text: each for text, each in outcomes.items() if each[0] not in expected} == {}
    assert _but_t(sealed) == before
    assert not list(tmp_path.iterdir())


def _but_t(sealed: _Sealed) -> dict[str, Any]:
    """All that statements can change, apart from table `t`, which Ada may change."""
    name = sealed.catalog.spark_catalog
    found = dump(sealed.catalog)
    return {each: found[each] for each in found if not each.endswith((f"{name}.`open`.`t`", ".w"))}


# ----------------------------------------------------------------------------------- hostile ones


UNREADABLE = ("PERMISSION_DENIED", "no permission to read, or that is not there")
ABSENT = ("NOT_FOUND", "not found")
NO_FUNCTION = ("NOT_FOUND", "Cannot resolve routine")
NOT_TAKEN = ("INVALID_ARGUMENT", "INSERT INTO, INSERT OVERWRITE, UPDATE, DELETE, MERGE INTO")
THE_SERVERS = ("INVALID_ARGUMENT", "is the server's to set")
NO_CLAUSE = ("INVALID_ARGUMENT", "the server decides where and how its files are kept")
UNNAMED = (
    "INVALID_ARGUMENT",
    "name the table that is changed|this is an? (INSERT|CREATE) statement",
)
NO_OPTIONS = ("INVALID_ARGUMENT", "takes no options here")
NO_QUERY = ("INVALID_ARGUMENT", "which is no part of a query")
SYNTAX = ("INVALID_ARGUMENT", "Syntax error")

_PLACES = {
    **dict.fromkeys(
        (
            *("write.data.path", "write.metadata.path", "write.object-storage.path"),
            *("WRITE.DATA.PATH", "option.write.data.path", "write.folder-storage.path"),
            *("write.location-provider.impl", "io-impl", "path", "encryption.key-id"),
            *("sparkport.constraints", "Sparkport.principal", "spark.sql.ansi.enabled"),
            *("schema.name-mapping.default", "write.spark.accept-any-schema", "format-version"),
            *("gc.enabled", "write.merge.mode"),
        ),
        THE_SERVERS,
    ),
    "location": ("UNIMPLEMENTED", "reserved table property"),
    "provider": ("UNIMPLEMENTED", "reserved table property"),
    "is_managed_location": ("UNIMPLEMENTED", "reserved table property"),
    "owner": ("UNIMPLEMENTED", "reserved table property"),
    "write.format.default": ("INVALID_ARGUMENT", "Invalid file format"),
    "write.parquet.row-group-size-bytes": ("INVALID_ARGUMENT", "must be > 0"),
    "commit.retry.num-retries": ("INVALID_ARGUMENT", "commit.retry.num-retries"),
}
_ON_T = "mine USING t ON mine.id = t.id"
HOSTILE: dict[str, tuple[str, str]] = {
    # beyond the tables
    "INSERT INTO mine SELECT 1, reflect('java.lang.System', 'getenv', 'PATH')": NO_FUNCTION,
    "UPDATE mine SET v = java_method('java.lang.System', 'getenv', 'PATH')": NO_FUNCTION,
    f"MERGE INTO {_ON_T} WHEN MATCHED THEN UPDATE SET v = try_reflect('a', 'b')": NO_FUNCTION,
    "DELETE FROM mine WHERE v = reflect('java.lang.System', 'getenv', 'PATH')": NO_FUNCTION,
    "CREATE TABLE e AS SELECT reflect('java.lang.System', 'getenv', 'PATH') AS h": NO_FUNCTION,
    "CREATE VIEW e AS SELECT reflect('java.lang.System', 'getenv', 'PATH') AS h": NO_FUNCTION,
    "INSERT INTO mine SELECT 1, from_avro(x'00', 'file:///etc/passwd')": NO_FUNCTION,
    "INSERT INTO mine SELECT TRANSFORM(id, v) USING 'cat' AS (a BIGINT, b STRING) FROM t": NO_QUERY,
    "CREATE TABLE e AS SELECT TRANSFORM(id) USING 'cat' AS x FROM t": NO_QUERY,
    "CREATE VIEW e AS SELECT TRANSFORM(id) USING 'cat' AS x FROM t": NO_QUERY,
    "INSERT INTO mine SELECT * FROM parquet.`/etc/passwd`": UNREADABLE,
    "MERGE INTO mine USING text.`/etc/passwd` x ON false WHEN MATCHED THEN DELETE": UNREADABLE,
    "CREATE VIEW e AS SELECT * FROM text.`/etc/passwd`": UNREADABLE,
    "INSERT INTO parquet.`/tmp/evil` SELECT * FROM t": ABSENT,
    "DELETE FROM parquet.`/tmp/evil`": ABSENT,
    "CREATE TABLE parquet.`/tmp/evil` AS SELECT 1 AS a": ("PERMISSION_DENIED", "no alter"),
    "INSERT OVERWRITE DIRECTORY '/tmp/evil' USING parquet SELECT * FROM t": NOT_TAKEN,
    "INSERT OVERWRITE LOCAL DIRECTORY '/tmp/evil' SELECT * FROM t": NOT_TAKEN,
    "LOAD DATA LOCAL INPATH '/etc/passwd' INTO TABLE mine": NOT_TAKEN,
    "CREATE TABLE e LOCATION '/tmp/evil' AS SELECT 1 AS a": NO_CLAUSE,
    "CREATE OR REPLACE TABLE mine LOCATION '/tmp/evil' AS SELECT 1 AS a": NO_CLAUSE,
    "CREATE TABLE e USING iceberg OPTIONS ('path' = '/tmp/evil') AS SELECT 1 AS a": NO_CLAUSE,
    "CREATE TABLE e USING parquet AS SELECT 1 AS a": ("INVALID_ARGUMENT", "Iceberg tables only"),
    **{
        f"CREATE TABLE e TBLPROPERTIES ('{name}' = '-1') AS SELECT 1L AS id, 'x' AS v": refusal
        for name, refusal in _PLACES.items()
    },
    "CREATE TABLE e TBLPROPERTIES ('write.parquet.page-size-bytes' = 'x') AS SELECT 1 AS a": (
        "INVALID_ARGUMENT",
        "a number is needed",
    ),
    "CREATE VIEW e TBLPROPERTIES ('location' = '/tmp/evil') AS SELECT 1 AS a": THE_SERVERS,
    "CREATE VIEW e TBLPROPERTIES ('spark.query-column-names' = 'b') AS SELECT 1 AS a": THE_SERVERS,
    "INSERT INTO mine WITH ('write-format' = 'orc') SELECT * FROM t": NO_OPTIONS,
    "INSERT INTO mine SELECT * FROM t WITH (path = '/etc/passwd')": NO_OPTIONS,
    # settings, variables, commands
    "SET spark.sql.ansi.enabled = false": NOT_TAKEN,
    "RESET": NOT_TAKEN,
    "ADD JAR '/tmp/evil.jar'": NOT_TAKEN,
    "CREATE FUNCTION f AS 'Evil' USING JAR '/tmp/evil.jar'": NOT_TAKEN,
    "CREATE TEMPORARY FUNCTION f() RETURNS INT RETURN 1": NOT_TAKEN,
    "CREATE TEMPORARY VIEW e AS SELECT 1 AS a": NOT_TAKEN,
    "DECLARE x INT DEFAULT (SELECT count(*) FROM vault.gold)": NOT_TAKEN,
    "SET VAR x = (SELECT count(*) FROM vault.gold)": NOT_TAKEN,
    "CALL system.rollback_to_snapshot('open.mine', 1)": NOT_TAKEN,
    "CALL changed.system.expire_snapshots(table => 'vault.gold')": NOT_TAKEN,
    "EXPLAIN INSERT INTO mine SELECT * FROM vault.gold": NOT_TAKEN,
    "ANALYZE TABLE mine COMPUTE STATISTICS": NOT_TAKEN,
    "CACHE TABLE c AS SELECT * FROM vault.gold": NOT_TAKEN,
    "EXECUTE IMMEDIATE 'DELETE FROM mine'": NOT_TAKEN,
    "BEGIN DELETE FROM mine; END": NOT_TAKEN,
    "TRUNCATE TABLE mine": NOT_TAKEN,
    "DROP TABLE mine": NOT_TAKEN,
    "ALTER TABLE mine SET TBLPROPERTIES ('a' = 'b')": NOT_TAKEN,
    "CREATE TABLE e (id BIGINT) USING iceberg": NOT_TAKEN,
    "INSERT INTO mine SELECT 1, 'x'; DELETE FROM mine": SYNTAX,
    # names that hide
    "INSERT INTO IDENTIFIER('mine') SELECT * FROM t": UNNAMED,
    "UPDATE IDENTIFIER('mine') SET v = 'x'": UNNAMED,
    "DELETE FROM IDENTIFIER('mi' || 'ne')": UNNAMED,
    "MERGE INTO IDENTIFIER('mine') USING t ON false WHEN MATCHED THEN DELETE": UNNAMED,
    "CREATE TABLE IDENTIFIER('e') AS SELECT 1 AS a": UNNAMED,
    "INSERT INTO mine SELECT * FROM IDENTIFIER('vault.gold')": UNREADABLE,
    "INSERT INTO mine SELECT * FROM IDENTIFIER('vault' || '.gold')": UNREADABLE,
    "CREATE TABLE e AS SELECT * FROM IDENTIFIER('vault.gold')": UNREADABLE,
    "CREATE VIEW e AS SELECT * FROM IDENTIFIER('vault.gold')": UNREADABLE,
    "UPDATE mine SET IDENTIFIER('v' || '') = 'x'": SYNTAX,
    "INSERT INTO ${spark:x} SELECT 1, 'x'": SYNTAX,
    # tables that are hidden, by every way to read one
    "INSERT INTO mine SELECT * FROM vault.gold": UNREADABLE,
    "INSERT OVERWRITE mine SELECT * FROM vault.gold": UNREADABLE,
    "INSERT INTO mine TABLE vault.gold": UNREADABLE,
    "INSERT INTO mine VALUES (1, (SELECT max(v) FROM vault.gold))": UNREADABLE,
    "INSERT INTO mine REPLACE WHERE id IN (SELECT id FROM vault.gold) SELECT * FROM t": UNREADABLE,
    "WITH x AS (SELECT * FROM vault.gold) INSERT INTO mine SELECT * FROM x": UNREADABLE,
    "FROM vault.gold INSERT INTO mine SELECT *": UNREADABLE,
    "UPDATE mine SET v = (SELECT max(v) FROM vault.gold)": UNREADABLE,
    "UPDATE mine SET v = 'x' WHERE id IN (SELECT id FROM vault.gold)": UNREADABLE,
    "DELETE FROM mine WHERE EXISTS (SELECT 1 FROM vault.gold)": UNREADABLE,
    "MERGE INTO mine USING vault.gold g ON g.id = mine.id WHEN MATCHED THEN DELETE": UNREADABLE,
    "MERGE INTO mine USING t ON mine.id = (SELECT max(id) FROM vault.gold) "
    "WHEN MATCHED THEN DELETE": UNREADABLE,
    f"MERGE INTO {_ON_T} WHEN MATCHED AND EXISTS (SELECT 1 FROM vault.gold) "
    "THEN DELETE": UNREADABLE,
    f"MERGE INTO {_ON_T} WHEN MATCHED THEN UPDATE SET "
    "v = (SELECT max(v) FROM vault.gold)": UNREADABLE,
    f"MERGE INTO {_ON_T} WHEN NOT MATCHED THEN INSERT (id, v) "
    "VALUES (1, (SELECT max(v) FROM vault.gold))": UNREADABLE,
    f"MERGE INTO {_ON_T} WHEN NOT MATCHED BY SOURCE AND mine.id IN (SELECT id FROM vault.gold) "
    "THEN DELETE": UNREADABLE,
    "CREATE TABLE e AS SELECT * FROM vault.gold": UNREADABLE,
    "CREATE OR REPLACE TABLE mine AS SELECT * FROM vault.gold": UNREADABLE,
    "CREATE VIEW e AS SELECT * FROM vault.gold": UNREADABLE,
    "CREATE VIEW e AS SELECT * FROM vault.gold.snapshots": UNREADABLE,
    "INSERT INTO mine SELECT 1, 'x' FROM vault.gold VERSION AS OF 1": UNREADABLE,
    "INSERT INTO mine SELECT * FROM t TIMESTAMP AS OF (SELECT max(at) FROM vault.gold)": (
        "INVALID_ARGUMENT",
        "as a value, not as a subquery",
    ),
    "CREATE VIEW e AS SELECT * FROM t TIMESTAMP AS OF (SELECT max(at) FROM vault.gold)": (
        "INVALID_ARGUMENT",
        "as a value, not as a subquery",
    ),
    "INSERT INTO mine SELECT * FROM STREAM t": ("INVALID_ARGUMENT", "StreamingRelation"),
    "INSERT INTO mine SELECT * FROM spark_catalog.default.x": UNREADABLE,
    # a view that may be read, of a table that may not
    "INSERT INTO mine SELECT * FROM revealing": UNREADABLE,
    "INSERT INTO mine SELECT nonsense FROM revealing": UNREADABLE,
    "UPDATE mine SET v = (SELECT max(v) FROM revealing)": UNREADABLE,
    "DELETE FROM mine WHERE id IN (SELECT id FROM revealing)": UNREADABLE,
    "MERGE INTO mine USING revealing r ON r.id = mine.id WHEN MATCHED THEN DELETE": UNREADABLE,
    "CREATE TABLE e AS SELECT * FROM revealing": UNREADABLE,
    "CREATE OR REPLACE TABLE mine AS SELECT * FROM revealing": UNREADABLE,
    "CREATE VIEW e AS SELECT * FROM revealing": UNREADABLE,
    # targets that are none
    "INSERT INTO vault.gold SELECT * FROM t": ABSENT,
    "INSERT OVERWRITE vault.gold SELECT * FROM t": ABSENT,
    "UPDATE vault.gold SET v = 'x'": ABSENT,
    "DELETE FROM vault.gold": ABSENT,
    "MERGE INTO vault.gold g USING t ON g.id = t.id WHEN MATCHED THEN DELETE": ABSENT,
    "CREATE OR REPLACE TABLE vault.gold AS SELECT 1 AS id": ("PERMISSION_DENIED", "no alter"),
    "CREATE VIEW vault.e AS SELECT 1 AS id": ("PERMISSION_DENIED", "no alter"),
    "DROP VIEW vault.w": ABSENT,
    "DELETE FROM mine.snapshots": ABSENT,
    "INSERT INTO mine.branch_main SELECT * FROM t": ABSENT,
    "INSERT INTO open.mine.branch_main SELECT * FROM t": ("NOT_FOUND", "does not exist"),
    "INSERT INTO open.mine.branch_sparkport_x SELECT * FROM t": ("NOT_FOUND", "does not exist"),
    "MERGE INTO open.mine.tag_x USING t ON false WHEN MATCHED THEN DELETE": (
        "NOT_FOUND",
        "does not exist",
    ),
    "UPDATE mine VERSION AS OF 1 SET v = 'x'": SYNTAX,
    "INSERT INTO mine /*+ COALESCE(1) */ SELECT * FROM t": SYNTAX,
    "INSERT INTO spark_catalog.default.x SELECT * FROM t": ("INVALID_ARGUMENT", "this lake only"),
    "INSERT INTO w SELECT 1": ("FAILED_PRECONDITION", "is a view"),
    "CREATE OR REPLACE TABLE w AS SELECT 1 AS id": ("ALREADY_EXISTS", "cannot be replaced"),
    "CREATE OR REPLACE VIEW mine AS SELECT 1 AS id": ("ALREADY_EXISTS", "cannot be replaced"),
    "DROP VIEW mine": ("INVALID_ARGUMENT", "is a table"),
    # several at once
    "FROM t INSERT INTO mine SELECT * INSERT INTO mine SELECT *": ("INVALID_ARGUMENT", ""),
    "WITH x AS (TABLE t) FROM x INSERT INTO mine SELECT * INSERT INTO vault.gold SELECT *": (
        "INVALID_ARGUMENT",
        "",
    ),
    # columns that are Iceberg's
    "CREATE TABLE e AS SELECT 1 AS _pos": ("INVALID_ARGUMENT", "is Iceberg's own"),
    "CREATE TABLE e AS SELECT 1 AS _ROW_ID": ("INVALID_ARGUMENT", "is Iceberg's own"),
    "CREATE TABLE e AS SELECT 1 AS rowid": ("INVALID_ARGUMENT", "the row's identity"),
    "UPDATE mine SET _row_id = 7": ("NOT_FOUND", "no column _row_id"),
    # long and deep ones
    f"UPDATE mine SET v = {'+'.join(['1'] * 20_000)}": ("RESOURCE_EXHAUSTED", "too complex"),
    f"UPDATE mine SET v = {'(' * 3_000}1{')' * 3_000}": ("RESOURCE_EXHAUSTED", "too deeply"),
    f"UPDATE mine SET v = 'x' --{'x' * 2**20}": ("RESOURCE_EXHAUSTED", "1048576 characters"),
}


@pytest.mark.timeout(280)
@pytest.mark.parametrize("route", ROUTES)
def test_hostile_statements_are_refused_before_anything_is_written(
    sealed: _Sealed, route: str
) -> None:
    before, files = dump(sealed.catalog), sealed.metadata()
    wrong: list[tuple[str, ...]] = []
    for text, (code, words) in HOSTILE.items():
        found = sealed.outcome("eve", route, text)
        if found[0] != code or not re.search(words, found[1]) or "987654321" in found[1]:
            wrong.append((text[:100], *found))
        if (now := sealed.metadata()) != files:
            wrong.append((text[:100], "something was written"))
            files = now
    assert not wrong, "\n".join(map(str, wrong))
    assert dump(sealed.catalog) == before
    assert not Path("/tmp/evil").exists()


@pytest.mark.parametrize("route", ROUTES)
def test_a_text_is_a_text(sealed: _Sealed, route: str) -> None:
    """Nothing is substituted, no property is one of a snapshot, and no line of a log is forged."""
    name = f"e_{route}"
    forged = '\\n{"principal": "root", "operation": "forged"}\n{"principal": "root"}'
    for text in (
        f"CREATE TABLE {name} TBLPROPERTIES ('snapshot-property.sparkport.principal' = 'root') "
        "AS SELECT 1L AS id, '${env:PATH}' AS v",
        f"INSERT INTO {name} SELECT 2, '${{spark:spark.master}}' /* {forged} */",
        f'INSERT INTO {name} SELECT /*+ BROADCAST(vault.gold) */ 3, "{forged[:3]}"',
    ):
        assert sealed.outcome("eve", route, text) == ("taken", "")
    schema: Any = sealed.catalog.schema(Context(), OPEN)
    state = schema.table(Context(), name).state
    rows = sealed.catalog.spark.table(f"{sealed.catalog.spark_catalog}.{OPEN}.{name}").collect()
    assert [row.v for row in sorted(rows)][:2] == ["${env:PATH}", "${spark:spark.master}"]
    summaries = [each.summary for each in state.metadata.snapshots]
    assert [each["sparkport.principal"] for each in summaries] == ["eve"] * 3
    lines = [json.loads(line) for line in sealed.audit.read_text().splitlines()]
    assert {line["principal"] for line in lines} <= {"ada", "eve"}
