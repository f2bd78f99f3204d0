"""The audit log: every change and every denial, and nothing that does not belong there."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight
import pytest
from tests.server.catalogs import ListedTable, numbers
from tests.server.raw_client import RawClient

import sparkport as sp
from sparkport.service.activity import Work
from sparkport.service.audit import AuditLog, entries_of
from sparkport.testing import DuckDBClient, ServerError

TOKENS = {"correct-horse": "ada", "battery-staple": "bob"}
COLUMNS = pa.schema([("a", pa.int64()), ("b", pa.string())])


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "audit.jsonl"


@pytest.fixture
def location(file: Path) -> Iterator[str]:
    catalog = sp.MemoryCatalog("m")
    schema = catalog.add_schema("s")
    schema.add_table(sp.MemoryTable("t", COLUMNS))
    schema.add_table(ListedTable("fixed", numbers()))
    grants = [
        sp.Grant(("ada",), "m", (sp.Privilege.READ, sp.Privilege.WRITE, sp.Privilege.ALTER)),
        sp.Grant(("bob",), "m.s", (sp.Privilege.READ,)),
    ]
    settings = sp.ServerSettings(
        authenticate=sp.TokenAuthenticator(TOKENS), policy=sp.Policy(grants), audit_file=file
    )
    with sp.Server(catalog, "grpc://127.0.0.1:0", settings) as server:
        yield server.location


def entries(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text("utf-8").splitlines()]


def test_changes_are_written_down_with_who_what_and_how_many(location: str, file: Path) -> None:
    with DuckDBClient(location, "m", token="correct-horse", timeout=20) as client:
        client.insert("s", "t", {"a": [1, 2, 3], "b": ["value-of-a-row"] * 3})
        client.update("s", "t", {"b": "'other-value'"}, "a > 1")
        client.delete("s", "t", "a = 3")
        client.create_schema("fresh")
        client.create_table("fresh", "made", pa.schema([("x", pa.int64())]))
        client.drop_table("fresh", "made")
        client.scan("s", "t")

    written = entries(file)

    assert [(each["what"], each["object"], each["rows"], each["outcome"]) for each in written] == [
        ("insert", "m.s.t", 3, "ok"),
        ("update", "m.s.t", 2, "ok"),
        ("delete", "m.s.t", 1, "ok"),
        ("create_schema", "m.fresh", None, "ok"),
        ("create_table", "m.fresh.made", None, "ok"),
        ("drop_table", "m.fresh.made", None, "ok"),
    ]
    assert {each["principal"] for each in written} == {"ada"}
    assert all(
        each["trace_id"] and each["session"] and each["time"].endswith("+00:00") for each in written
    )
    text = file.read_text("utf-8")
    for word in ("value-of-a-row", "other-value", "correct-horse", "Bearer"):
        assert word not in text
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_changes_that_failed_are_written_down_with_their_code(location: str, file: Path) -> None:
    with DuckDBClient(location, "m", token="correct-horse", timeout=20) as client:
        with pytest.raises(ServerError):
            client.create_table("s", "t", COLUMNS)
        with pytest.raises(ServerError):
            client.insert("s", "fixed", {"id": [1], "name": ["x"], "value": [0.5]})

    assert [(each["what"], each["object"], each["outcome"]) for each in entries(file)] == [
        ("create_table", "m.s.t", "ALREADY_EXISTS"),
        ("insert", "m.s.fixed", "FAILED_PRECONDITION"),
    ]


def test_denials_are_written_down_with_what_was_asked(location: str, file: Path) -> None:
    with DuckDBClient(location, "m", token="battery-staple", timeout=20) as client:
        assert client.scan("s", "t").num_rows == 0
        with pytest.raises(ServerError, match="permission"):
            client.insert("s", "t", {"a": [1], "b": ["x"]})
        with pytest.raises(ServerError):
            client.drop_table("s", "t")
    with RawClient(location) as stranger:
        stranger.action_failure(
            "list_schemas", {"catalog_name": "m"}, {"authorization": "Bearer wrong-token"}
        )

    insert, drop, login = entries(file)

    assert (insert["what"], insert["object"], insert["outcome"]) == (
        "insert",
        "m.s.t",
        "PERMISSION_DENIED",
    )
    assert (insert["principal"], drop["principal"], login["principal"]) == ("bob", "bob", None)
    assert (drop["what"], drop["outcome"]) == ("drop_table", "PERMISSION_DENIED")
    assert login["outcome"] == "UNAUTHENTICATED"
    assert "wrong-token" not in file.read_text("utf-8")


def test_the_contracts_way_to_write_is_written_down_too(location: str, file: Path) -> None:
    headers = [(b"authorization", b"Bearer correct-horse")]
    options = flight.FlightCallOptions(timeout=20, headers=headers)
    command = json.dumps({"operation": "insert", "schema_name": "s", "table_name": "t"}).encode()
    with flight.connect(location) as client:
        writer, reader = client.do_put(
            flight.FlightDescriptor.for_command(command), COLUMNS, options
        )
        writer.write_table(pa.table({"a": [1], "b": ["x"]}, COLUMNS))
        writer.done_writing()
        reader.read()
        writer.close()

    (entry,) = entries(file)

    assert (entry["what"], entry["object"], entry["rows"], entry["principal"]) == (
        "insert",
        "m.s.t",
        1,
        "ada",
    )


def changed(name: str = "s.t") -> Work:
    work = Work("DoExchange", trace_id="trace", operation="insert")
    work.progress.writes.append(("insert", name, 1))
    return work


def test_a_renamed_file_is_followed_by_a_new_one(file: Path) -> None:
    log = AuditLog(file)
    log.record(changed("first"))
    file.rename(file.with_suffix(".1"))
    log.record(changed("second"))
    file.unlink()
    log.record(changed("third"))
    log.close()
    log.record(changed("late"))

    assert [each["object"] for each in entries(file.with_suffix(".1"))] == ["first"]
    assert [each["object"] for each in entries(file)] == ["third", "late"]
    log.close()


def test_a_name_cannot_forge_a_line(file: Path) -> None:
    log = AuditLog(file)
    log.record(changed('x"}\n{"principal":"root"\u2028'))
    log.close()

    assert len(file.read_bytes().splitlines()) == 1
    assert entries(file)[0]["object"].startswith('x"}\n')


def test_a_log_that_cannot_be_written_is_counted_and_the_work_goes_on(
    file: Path, caplog: Any
) -> None:
    log = AuditLog(file)
    os.unlink(file)
    file.mkdir()

    log.record(changed())

    assert log.failures == 1
    assert "trace trace: the audit log cannot be written" in caplog.text
    log.close()


def test_a_log_that_cannot_be_opened_keeps_the_server_from_starting(tmp_path: Path) -> None:
    server = sp.Server(
        sp.MemoryCatalog("m"), "grpc://127.0.0.1:0", sp.ServerSettings(audit_file=tmp_path)
    )

    with pytest.raises(sp.BadRequest, match="audit log"):
        server.start()


def test_a_change_whose_answer_nobody_took_is_written_down_as_done() -> None:
    dropped = Work("DoAction", operation="drop_table")
    dropped.messages_out, dropped.code = 1, "CANCELLED"
    given_up = Work("DoExchange", operation="insert")

    assert [each["outcome"] for each in entries_of(dropped)] == ["ok"]
    assert [each["outcome"] for each in entries_of(given_up)] == ["CANCELLED"]


def test_a_change_by_sql_is_written_down_with_its_text_whatever_call_has_made_it() -> None:
    for rpc in ("DoExchange", "DoPut", "GetFlightInfo", "DoGet"):
        work = Work(rpc, operation="scalar_function")
        work.code = "OK"
        work.progress.query = "DELETE FROM t"
        work.progress.writes.append(("spark_run delete", "m.s.t", 2))

        written = list(entries_of(work))

        assert [each["rows"] for each in written if each["what"] == "spark_run delete"] == [2]
        assert [each["query"] for each in written if "query" in each] == ["DELETE FROM t"]
