"""Secrets of catalogs and stores: in no message, log, ticket or plan."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.parts.faults import fault_proxy
from tests.parts.overheard import overheard
from tests.parts.s3 import S3Server
from tests.remote.places import JdbcPlace
from tests.remote.served import COLUMNS, temporary_files_in

import sparkport as sp
from sparkport.spark import LakeCatalog, LakeSettings
from sparkport.spark.iceberg.locations import storage_at
from sparkport.spark.write.staged_rows import staged_rows
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


def test_sparks_event_log_has_no_secret(
    lake: LakeCatalog, place: JdbcPlace, s3: S3Server, tmp_path: Path
) -> None:
    """Nor have plans: rows that were staged in the store are read with keys of the server's."""
    source = place.source("logged")
    hidden = {"credential": "client:not-told-1", "header.Authorization": "Bearer not-told-2"}
    location = f"{source.warehouse}/staged.parquet"
    with (
        temporary_files_in(tmp_path),
        LakeCatalog(source=replace(source, options={**source.options, **hidden})) as served,
        _event_log(served, tmp_path) as log,
        sp.Server(served, "grpc://127.0.0.1:0") as server,
        DuckDBClient(server.location, served.name, timeout=120) as client,
    ):
        _everything(client)
        properties = served._lake.file_properties
        content = pa.BufferOutputStream()
        pq.write_table(pa.table({"a": [1, 2]}), content)
        storage_at(location, properties).write(location, content.getvalue().to_pybytes())
        rows = staged_rows(served.spark, [location], properties)
        assert [row.a for row in rows.collect()] == [1, 2]
        plans: Any = rows._jdf.queryExecution()
        shown = [plans.toString(), plans.logical().toJSON(), plans.executedPlan().toJSON()]
    shown.append(log.read_text("utf-8"))
    assert "SparkListenerSQLExecutionStart" in shown[-1]
    assert "staged rows" in shown[-1]
    secrets = (s3.secret_key, place.database("logged").password, *hidden.values())
    assert [each for each in secrets for text in shown if each in text] == []


@contextmanager
def _event_log(lake: LakeCatalog, folder: Path) -> Iterator[Path]:
    """Have Spark write the log that its history server reads."""
    context: Any = lake.spark.sparkContext
    jvm: Any = lake.spark._jvm
    conf = context._jsc.sc().getConf()
    conf.set("spark.eventLog.compress", "false").set("spark.eventLog.rolling.enabled", "false")
    listener = jvm.org.apache.spark.scheduler.EventLoggingListener(
        "logged", jvm.scala.Option.empty(), jvm.java.net.URI(f"file://{folder}"), conf
    )
    listener.start()
    context._jsc.sc().addSparkListener(listener)
    yield folder / "logged"
    context._jsc.sc().listenerBus().waitUntilEmpty()
    context._jsc.sc().removeSparkListener(listener)
    listener.stop()


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
