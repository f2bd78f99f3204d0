"""The simulation sends what the real client was recorded to send: calls, headers, bytes.

`recorded.json` holds statements of the recorded traffic of the real client, line main, copied
without their replies.
"""

import base64
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import msgpack
import pyarrow as pa
import pytest
from tests.client.flight_double import FlightDouble, with_rowid
from tests.client.raw_flight import action_of, flight_data, raw_flight, result, schema_message

from sparkport.testing import DuckDBClient
from sparkport.testing.requests import pack

RECORDED = json.loads(Path(__file__).with_name("recorded.json").read_text())
TOKEN = "test-token"

T = pa.schema([("id", pa.int32()), ("name", pa.string()), ("v", pa.float64())])
ADDRESS = pa.struct([("a", pa.int32()), ("b", pa.string())])
PEOPLE = pa.schema([("id", pa.int32()), ("name", pa.string())])


def recorded(scenario: str, sql: str) -> list[dict[str, Any]]:
    found = [
        step["calls"] for step in RECORDED if (step["scenario"], step["sql"]) == (scenario, sql)
    ]
    calls: list[dict[str, Any]] = found[0]
    return calls


@pytest.mark.parametrize("step", RECORDED, ids=lambda step: step["sql"])
def test_recorded_bodies_pack_to_the_same_bytes(step):
    for call in step["calls"]:
        if "body" in call and call["action"] != "echo":
            body = base64.b64decode(call["body"])
            pairs = msgpack.unpackb(body, raw=True, object_pairs_hook=_Pairs)
            assert pack([(key, _plain(value)) for key, value in pairs]) == body


class _Pairs(list[tuple[str, Any]]):
    def __init__(self, pairs: list[tuple[bytes, Any]]) -> None:
        super().__init__((key.decode(), value) for key, value in pairs)


def _plain(value: Any) -> Any:
    if isinstance(value, _Pairs):
        return {key: _plain(element) for key, element in value}
    return [_plain(element) for element in value] if isinstance(value, list) else value


NAME = ("s1", "t")

STATEMENTS: list[tuple[str, str, pa.Schema, Callable[[DuckDBClient], Any]]] = [
    ("select", "SELECT * FROM t", T.append(pa.field("st", ADDRESS)), lambda c: c.scan(*NAME)),
    ("select", "SELECT rowid, name FROM t", T, lambda c: c.scan(*NAME, ["rowid", "name"])),
    ("select", "SELECT v, id FROM t", T, lambda c: c.scan(*NAME, ["v", "id"])),
    ("select", "SELECT count(*) FROM t", T, lambda c: c.count(*NAME)),
    ("transactions", "SELECT * FROM t", PEOPLE, lambda c: c.scan(*NAME)),
    (
        "time_travel",
        "SELECT * FROM t AT (VERSION => 1)",
        PEOPLE.remove(0),
        lambda c: c.scan(*NAME, at=("VERSION", "1")),
    ),
    (
        "insert",
        "INSERT INTO t VALUES (1, 'one', 1.5)",
        T,
        lambda c: c.insert(*NAME, {"id": [1], "name": ["one"], "v": [1.5]}),
    ),
    ("update", "UPDATE t SET v = v * 2", T, lambda c: c.update(*NAME, {"v": "v * 2"})),
    ("delete", "DELETE FROM t", T, lambda c: c.delete(*NAME)),
    ("schema_ddl", "CREATE SCHEMA cat.a", T, lambda c: c.create_schema("a")),
    ("schema_ddl", "DROP SCHEMA cat.a", T, lambda c: c.drop_schema("a")),
    ("drop_table", "DROP TABLE t", T, lambda c: c.drop_table(*NAME)),
    (
        "alter_table",
        "ALTER TABLE t ADD COLUMN location STRING",
        T,
        lambda c: c.add_column(*NAME, "location", "VARCHAR"),
    ),
    (
        "alter_table",
        "ALTER TABLE t ADD COLUMN IF NOT EXISTS location STRING",
        T,
        lambda c: c.add_column(*NAME, "location", "VARCHAR", if_not_exists=True),
    ),
    (
        "alter_table",
        "ALTER TABLE t DROP COLUMN location",
        T,
        lambda c: c.remove_column(*NAME, "location"),
    ),
    (
        "alter_table",
        "ALTER TABLE t DROP COLUMN score CASCADE",
        T,
        lambda c: c.remove_column(*NAME, "score", cascade=True),
    ),
    (
        "alter_table",
        "ALTER TABLE t RENAME COLUMN name TO label",
        T,
        lambda c: c.rename_column(*NAME, "name", "label"),
    ),
    (
        "alter_table",
        "ALTER TABLE t ALTER COLUMN label SET DEFAULT 'Princeton'",
        T,
        lambda c: c.set_default(*NAME, "label", "'Princeton'"),
    ),
    (
        "alter_table",
        "ALTER TABLE t ALTER age TYPE BIGINT",
        T,
        lambda c: c.change_column_type(*NAME, "age", "BIGINT"),
    ),
    (
        "alter_table",
        "ALTER TABLE t ALTER id SET NOT NULL",
        T,
        lambda c: c.set_not_null(*NAME, "id"),
    ),
    (
        "alter_table",
        "ALTER TABLE t ALTER id DROP NOT NULL",
        T,
        lambda c: c.drop_not_null(*NAME, "id"),
    ),
    ("alter_table", "ALTER TABLE t RENAME TO t_new", T, lambda c: c.rename_table(*NAME, "t_new")),
    (
        "alter_struct_fields",
        "ALTER TABLE t ADD COLUMN addr.zip INTEGER",
        T,
        lambda c: c.add_field(*NAME, ["addr"], "INTEGER"),
    ),
    (
        "alter_struct_fields",
        "ALTER TABLE t RENAME COLUMN addr.street TO road",
        T,
        lambda c: c.rename_field(*NAME, ["addr", "street"], "road"),
    ),
    (
        "alter_struct_fields",
        "ALTER TABLE t DROP COLUMN addr.zip",
        T,
        lambda c: c.remove_field(*NAME, ["addr", "zip"]),
    ),
    (
        "airport_action",
        "CALL airport_action('grpc://server:50801', 'echo', 'a string parameter')",
        T,
        lambda c: c.action("echo", "a string parameter"),
    ),
]


@pytest.fixture
def server() -> Iterator[FlightDouble]:
    with FlightDouble(catalog="cat", schema="s1", joined_path=True) as double:
        yield double


@pytest.mark.parametrize(
    ("scenario", "sql", "schema", "act"), STATEMENTS, ids=[sql for _, sql, _, _ in STATEMENTS]
)
def test_a_statement_sends_what_the_real_client_sends(scenario, sql, schema, act, server):
    expected = recorded(scenario, sql)
    catalog = next(
        (
            call["headers"]["airport-catalog"]
            for call in expected
            if "airport-catalog" in call["headers"]
        ),
        "cat",
    )
    server.catalog = catalog
    server.tables = {("s1", "t"): with_rowid(schema).empty_table()}
    server.schemas = ["s1", "a"]
    if scenario != "transactions":
        server.spoil["create_transaction"] = lambda honest: [msgpack.packb({"identifier": None})]
    with DuckDBClient(server.location, catalog, token=TOKEN) as client:
        client.schemas()
        server.calls.clear()
        server.bodies.clear()
        act(client)

    assert [_method(name) for name, _ in server.calls] == [call["method"] for call in expected]
    for (_, sent), call in zip(server.calls, expected, strict=True):
        assert _comparable(sent) == _comparable(call["headers"])
    assert server.bodies == [
        (call["action"], base64.b64decode(call["body"]))
        for call in expected
        if call["method"] == "DoAction"
    ]


def _method(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_"))


VOLATILE = ("airport-client-session-id", "airport-trace-id", "airport-transaction-id", "authority")


def _comparable(headers: dict[str, Any]) -> dict[str, list[str]]:
    """Values by name; identifiers and addresses count only as being there."""
    listed = {
        name: value if isinstance(value, list) else [value] for name, value in headers.items()
    }
    return {
        name: ["…"] if name in VOLATILE else values
        for name, values in listed.items()
        if name != "user-agent"
    }


def test_create_or_replace_schema_lists_drops_and_creates(server):
    expected = recorded("schema_ddl", "CREATE OR REPLACE SCHEMA cat.b")
    server.schemas.append("b")
    with DuckDBClient(server.location, "cat", token=TOKEN) as client:
        client.replace_schema("b")

    assert server.bodies == [(call["action"], base64.b64decode(call["body"])) for call in expected]


def test_create_table_has_all_keys(server):
    expected = recorded("attach_token_option", "CREATE TABLE cat.s9.t(id integer)")
    server.schemas.append("s9")
    with DuckDBClient(server.location, "cat") as client:
        client.create_table("s9", "t", {"id": "INTEGER"})

    assert server.bodies[-1] == ("create_table", base64.b64decode(expected[-1]["body"]))


def test_update_returning_asks_for_columns_as_the_real_client_does(server):
    expected = recorded("update", "UPDATE t SET name = 'ret' WHERE id = 1 RETURNING *")
    server.tables = {("s1", "t"): with_rowid(T.append(pa.field("addr", ADDRESS))).empty_table()}
    with DuckDBClient(server.location, "cat") as client:
        client.update("s1", "t", {"name": "'ret'"}, where="id = 1", returning=True)

    sent, due = (
        msgpack.unpackb(body, raw=True)[b"parameters"]
        for body in (server.bodies[-1][1], base64.b64decode(expected[-2]["body"]))
    )
    assert sent[b"column_ids"] == due[b"column_ids"] == [0, 3, 2, 0, 2**64 - 1]


def test_every_column_with_statistics_is_asked_for(server):
    expected = recorded("column_statistics", "SELECT * FROM static_data.employees")
    asked = [
        _unpacked(call["body"]) for call in expected if call.get("action") == "column_statistics"
    ]
    schema = pa.schema([("name", pa.string())], metadata={"can_produce_statistics": "1"})
    server.tables = {("s1", "t"): pa.table({"name": ["x"], "row": [0]}, schema=with_rowid(schema))}
    with DuckDBClient(server.location, "cat", token=TOKEN) as client:
        client.scan("s1", "t")

    action, body = next(sent for sent in server.bodies if sent[0] == "column_statistics")
    sent = msgpack.unpackb(body, raw=True)
    assert list(sent) == list(asked[0])
    assert (sent[b"column_name"], sent[b"type"]) in [
        (call[b"column_name"], call[b"type"]) for call in asked
    ]
    headers = next(
        headers
        for _, headers in server.calls
        if headers.get("airport-action-name") == [action, action]
    )
    due = next(call for call in expected if call.get("action") == "column_statistics")["headers"]
    assert {*headers} - {"user-agent", "airport-transaction-id"} == {*due}


def _unpacked(body: str) -> dict[bytes, Any]:
    fields: dict[bytes, Any] = msgpack.unpackb(base64.b64decode(body), raw=True)
    return fields


def test_the_messages_of_an_insert_are_those_of_the_real_client_byte_for_byte():
    expected = recorded("insert", "INSERT INTO t VALUES (1, 'one', 1.5)")[-1]["messages"]
    double = FlightDouble(catalog="cat", schema="s1", joined_path=True)
    double.tables = {("s1", "t"): with_rowid(T).empty_table()}
    answers = {
        "list_schemas": double.list_schemas()[0],
        "create_transaction": msgpack.packb({"identifier": None}),
        "catalog_version": msgpack.packb({"catalog_version": 1, "is_fixed": True}),
    }
    double.shutdown()
    received: list[bytes] = []

    def do_action(request: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
        yield result(answers[action_of(request)])

    def do_exchange(requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        received.extend([next(requests), next(requests)])
        yield schema_message(T)
        received.extend(requests)
        yield flight_data(app_metadata=msgpack.packb({"total_changed": 1}))

    with (
        raw_flight(DoAction=do_action, DoExchange=do_exchange) as location,
        DuckDBClient(location, "cat") as client,
    ):
        client.insert("s1", "t", {"id": [1], "name": ["one"], "v": [1.5]})

    assert [base64.b64encode(message).decode() for message in received[:2]] == expected[:2]
    assert [len(message) for message in received] == [
        len(base64.b64decode(message)) for message in expected
    ]
