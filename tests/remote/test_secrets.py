"""Secrets of catalogs and stores: in no message, log, ticket or plan."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import pyarrow as pa
import pytest
from tests.parts.faults import fault_proxy
from tests.parts.overheard import overheard
from tests.parts.s3 import S3Server
from tests.remote.places import JdbcPlace
from tests.remote.served import COLUMNS, temporary_files_in

import sparkport as sp
from sparkport.spark import LakeCatalog, LakeSettings
from sparkport.testing import ClientSideError, DuckDBClient, ServerError

pytestmark = [pytest.mark.spark, pytest.mark.timeout(280)]

_ROUTES = {
    "in_place": LakeSettings(in_place_bytes=1 << 40),
    "tasks": LakeSettings(in_place_bytes=-1, endpoint_bytes=1, endpoints=2),
    "direct": LakeSettings(in_place_bytes=-1, direct=True),
}
_SETTINGS = (
    "SET -v",
    "SET",
    "EXPLAIN EXTENDED SELECT * FROM t",
    "DESCRIBE TABLE EXTENDED t",
    "SHOW TBLPROPERTIES t",
    "SELECT '${spark.sql.catalog.lake.s3.secret-access-key}' AS x",
)


@pytest.fixture(scope="module", params=["jdbc"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize("route", _ROUTES)
def test_nobody_sees_a_secret(
    lake: LakeCatalog,
    place: JdbcPlace,
    s3: S3Server,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
    route: str,
) -> None:
    secrets = (s3.secret_key, place.database(route).password)
    audit = tmp_path / "audit.jsonl"
    with (
        caplog.at_level(logging.DEBUG),
        fault_proxy(s3.address) as trouble,
        temporary_files_in(tmp_path),
        LakeCatalog(
            source=place.source(route, trouble.endpoint()), name="lake", settings=_ROUTES[route]
        ) as served,
        sp.Server(served, "grpc://127.0.0.1:0", sp.ServerSettings(audit_file=audit)) as server,
        overheard(("127.0.0.1", urlsplit(server.location).port or 0)) as between,
        DuckDBClient(f"grpc://127.0.0.1:{between.port}", "lake", timeout=120) as client,
    ):
        said = _everything(client)
        plan = served.spark.table(f"`{served.spark_catalog}`.s.t").where("id > 1")
        said.append(plan._jdf.queryExecution().toString())
        trouble.fail_next(403, "AccessDenied", times=1 << 30)
        said += _everything(client)
        trouble.heal()
        heard = between.said()
    assert b"lake" in heard
    out = capfd.readouterr()
    shown = {
        "a message": "\n".join(said),
        "a log": caplog.text + "".join(str(each.__dict__) for each in caplog.records),
        "the output": out.out + out.err,
        "the audit log": audit.read_text("utf-8") if audit.exists() else "",
        "a ticket": heard.decode("latin-1"),
    }
    assert [where for where, text in shown.items() for each in secrets if each in text] == []


def _everything(client: DuckDBClient) -> list[str]:
    """Statements of all kinds, whatever comes of them; the errors' texts, and what was read."""
    rows = pa.table({"id": [1, 2, 3], "v": [4, 5, 6]}, schema=COLUMNS)
    statements: list[Callable[[], object]] = [
        client.attach,
        lambda: client.create_schema("s"),
        lambda: client.create_table("s", "t", COLUMNS),
        lambda: client.insert("s", "t", rows),
        lambda: client.update("s", "t", {"v": "v + 1"}, where="id = 2"),
        lambda: client.scan("s", "t", where="id > 1"),
        lambda: client.table_function("s", "files", "t"),
        *(lambda text=each: client.table_function("s", "spark_sql", text) for each in _SETTINGS),
    ]
    said = []
    for statement in statements:
        try:
            said.append(str(statement()))
        except (ServerError, ClientSideError) as error:
            said.append(str(error))
    with suppress(Exception):
        client.detach()
    return said
