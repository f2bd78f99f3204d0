"""Two lakes on one session: each table of a query is checked by the catalog that serves it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

import sparkport as sp
from sparkport.catalog import Privilege
from sparkport.spark import LakeCatalog
from sparkport.testing import ClientSideError, DuckDBClient, ServerError

READ, SPARK = Privilege.READ, Privilege.SPARK_SQL
UNREADABLE = "spark_sql asks for a table that you have no permission to read, or that is not there"
GRANTS = [
    sp.Grant(("both",), "north", (READ, SPARK)),
    sp.Grant(("both",), "south", (READ,)),
    sp.Grant(("one",), "north", (READ, SPARK)),
    sp.Grant(("table",), "north", (READ, SPARK)),
    sp.Grant(("table",), "south.s.t", (READ,)),
    sp.Grant(("part", "masked"), "*", (READ, SPARK)),
    sp.Grant(("elsewhere",), "north.s.spark_sql", (SPARK,)),
    sp.Grant(("elsewhere",), "south", (READ,)),
]
POLICY = sp.Policy(
    GRANTS,
    [sp.RowFilter("south.s.t", "id = 1", ("part",))],
    [sp.Mask("south.s.t", "v", "'***'", ("masked",))],
)
TABLES = {
    "own": "t",
    "own, in full": "{north}.s.t",
    "other": "{south}.s.t",
    "other, quoted": "`{south}`.`s`.`t`",
    "other's hidden": "{south}.s.hidden",
    "other's absent": "{south}.s.hiddem",
    "other's view": "{south}.s.w",
    "other's metadata": "{south}.s.t.snapshots",
    "view on other": "across",
    "not served": "unserved.s.t",
    "no such catalog": "unsorved.s.t",
    "session catalog": "spark_catalog.default.t",
}
MAY_READ = {
    "both": {
        "own",
        "own, in full",
        "other",
        "other, quoted",
        "other's hidden",
        "other's view",
        "other's metadata",
        "view on other",
    },
    "one": {"own", "own, in full"},
    "table": {"own", "own, in full", "other", "other, quoted", "other's metadata", "view on other"},
    "part": {"own", "own, in full"},
    "masked": {"own", "own, in full"},
    "elsewhere": {"other", "other, quoted", "other's hidden", "other's view", "other's metadata"},
}


@pytest.fixture(scope="module")
def attach(
    tmp_path_factory: pytest.TempPathFactory, lake: LakeCatalog
) -> Iterator[Callable[..., DuckDBClient]]:
    with ExitStack() as stack:
        lakes = {
            name: stack.enter_context(LakeCatalog(tmp_path_factory.mktemp(name), name=name))
            for name in ("north", "south", "unserved")
        }
        for name, catalog in lakes.items():
            inside = f"{catalog.spark_catalog}.s"
            for statement in (
                f"CREATE NAMESPACE {inside}",
                f"CREATE TABLE {inside}.t (id BIGINT, v STRING) USING iceberg",
                f"INSERT INTO {inside}.t VALUES (1, '{name}'), (2, 'secret')",
                f"CREATE TABLE {inside}.hidden (id BIGINT) USING iceberg",
                f"CREATE VIEW {inside}.w AS SELECT id, v FROM {inside}.t",
            ):
                catalog.spark.sql(statement)
        lakes["north"].spark.sql("CREATE VIEW north.s.across AS SELECT id, v FROM south.s.t")
        assert lakes["north"].spark is lakes["south"].spark
        audit = tmp_path_factory.mktemp("audit") / "audit.jsonl"
        settings = sp.ServerSettings(authenticate=sp.Identity, policy=POLICY, audit_file=audit)
        server = stack.enter_context(
            sp.Server([lakes["north"], lakes["south"]], "grpc://127.0.0.1:0", settings)
        )

        def attach(who: str, catalog: str = "north") -> DuckDBClient:
            return stack.enter_context(
                DuckDBClient(server.location, catalog, token=who, timeout=60)
            )

        attach.audit = audit  # type: ignore[attr-defined]
        yield attach


def ask(client: DuckDBClient, text: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = client.table_function("s", "spark_sql", text).to_pylist()
    return found


@pytest.mark.parametrize("who", MAY_READ)
def test_the_permission_matrix_of_two_lakes(attach, who: str) -> None:
    client = attach(who)
    for case, name in TABLES.items():
        text = f"SELECT count(*) AS n FROM {name.format(north='north', south='south')}"
        if case in MAY_READ[who]:
            assert len(ask(client, text)) == 1, case
        else:
            with pytest.raises(ServerError) as caught:
                ask(client, text)
            assert (caught.value.code, UNREADABLE in str(caught.value)) == (
                "PERMISSION_DENIED",
                True,
            ), case
            assert "secret" not in str(caught.value)


OPERATIONS: dict[str, Callable[[DuckDBClient], Any]] = {
    "scan": lambda client: client.scan("s", "t"),
    "travel": lambda client: client.scan("s", "t", at=("VERSION", "1")),
    "hidden": lambda client: client.scan("s", "hidden"),
    "view": lambda client: client.scan("s", "w"),
    "history": lambda client: client.table_function("s", "history", "t"),
    "insert": lambda client: client.insert("s", "t", {"id": [3], "v": ["new"]}),
    "alter": lambda client: client.drop_table("s", "t"),
    "spark_sql": lambda client: ask(client, "SELECT count(*) AS n FROM t"),
}
READS = {"scan", "travel", "hidden", "view", "history"}
MAY = {
    ("both", "north"): READS | {"spark_sql"},
    ("both", "south"): READS,
    ("one", "north"): READS | {"spark_sql"},
    ("one", "south"): set(),
    ("table", "north"): READS | {"spark_sql"},
    ("table", "south"): {"scan", "travel"},
    ("part", "north"): READS | {"spark_sql"},
    ("part", "south"): {"scan", "travel", "hidden"},
    ("masked", "north"): READS | {"spark_sql"},
    ("masked", "south"): {"scan", "travel", "hidden"},
    ("elsewhere", "north"): set(),
    ("elsewhere", "south"): READS,
}
"""What each user may do. "elsewhere" has north's spark_sql, but no table of the lake."""


@pytest.mark.parametrize(("who", "lake_name"), MAY)
def test_what_is_granted_in_one_lake_is_not_granted_in_the_other(
    attach, who: str, lake_name: str
) -> None:
    done = set()
    for name, operation in OPERATIONS.items():
        with suppress(ServerError, ClientSideError):
            operation(attach(who, lake_name))
            done.add(name)

    assert done == MAY[who, lake_name]


def test_a_view_does_not_show_what_another_lake_keeps_back(attach) -> None:
    assert attach("both").scan("s", "across").num_rows == 2
    for who in ("part", "masked"):
        with pytest.raises(ServerError, match="more of a table than you may see") as caught:
            attach(who).scan("s", "across")
        assert caught.value.code == "PERMISSION_DENIED"


def test_whoever_sees_part_of_a_lake_does_not_ask_spark_there(attach) -> None:
    for who in ("part", "masked"):
        with pytest.raises(ServerError, match="only part of this catalog's tables"):
            ask(attach(who, "south"), "SELECT 1 AS one")


def test_without_rules_only_what_is_served_is_read(
    tmp_path: Path, attach, lake: LakeCatalog
) -> None:
    with (
        LakeCatalog(tmp_path, name="free") as free,
        sp.Server(free, "grpc://127.0.0.1:0") as server,
    ):
        free.spark.sql(f"CREATE NAMESPACE {free.spark_catalog}.s")
        with DuckDBClient(server.location, "free", timeout=60) as client:
            with pytest.raises(
                ServerError, match="Spark catalog unserved is not served here"
            ) as caught:
                ask(client, "SELECT * FROM unserved.s.t")
            assert caught.value.code == "PERMISSION_DENIED"
            with pytest.raises(ServerError, match="cannot be found") as caught:
                ask(client, "SELECT * FROM absent")
            assert caught.value.code == "NOT_FOUND"


def test_queries_are_in_the_audit_log_with_their_tables(attach) -> None:
    client = attach("both")
    asked = "SELECT a.id FROM across a JOIN t USING (id) WHERE a.v <> 'nobody'"
    ask(client, asked)
    refused = "SELECT * FROM unserved.s.t"
    with pytest.raises(ServerError):
        ask(client, refused)
    command = "INSERT INTO IDENTIFIER('south.s.t') VALUES (3, 'evil')"
    with pytest.raises(ServerError):
        ask(client, command)
    client.close()

    lines = [json.loads(line) for line in attach.audit.read_text("utf-8").splitlines()]
    found = {line["query"]: line for line in lines if "query" in line}
    assert sorted(found[asked]["tables"]) == ["north.s.t", "south.s.t"]
    assert (found[asked]["principal"], found[asked]["outcome"]) == ("both", "ok")
    assert found[refused]["outcome"] == "PERMISSION_DENIED"
    assert found[command]["outcome"] == "INVALID_ARGUMENT"
    assert [line.get("query") for line in lines].count(asked) == 1
