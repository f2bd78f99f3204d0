"""Every recorded type of DuckDB, under every setting: created, filled and read as recorded.

`replay/types.json` holds, for each setting and type, the field that the real client sent, and what
it read back: the type of the column and the value as text.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from tests.client.replay.recording import HERE

from sparkport.memory import MemoryCatalog
from sparkport.server import Server
from sparkport.testing import ClientSideError, DuckDBClient, ServerError
from sparkport.testing.local import LocalDuckDB

RECORDED: dict[str, list[dict[str, Any]]] = json.loads((HERE / "types.json").read_text("utf-8"))
CASES = [
    pytest.param(setting, number, case, id=f"{case['duckdb_type']}, {setting}")
    for setting, cases in RECORDED.items()
    for number, case in enumerate(cases)
    if "create_error" not in case
]

SETTINGS = [case for case in CASES if str(case.values[0]).startswith("SET ")]


def _skip_what_duckdb_1_cannot_do(case: dict[str, Any]) -> None:
    if not duckdb.__version__.startswith("1."):
        return
    if "Expected 3 buffers" in case.get("insert_error", ""):
        pytest.skip("DuckDB 1 stumbles over its own buffers")
    if case["duckdb_type"] == '"NULL"':
        pytest.skip(
            "DuckDB 1 makes an INTEGER of a column that is only NULL when it is asked for its "
            "schema"
        )


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    catalog = MemoryCatalog("cat")
    catalog.add_schema("s1")
    with Server(catalog, "grpc://127.0.0.1:0") as server:
        yield server


@pytest.fixture(scope="module")
def clients(server: Server) -> Iterator[dict[str, DuckDBClient]]:
    """A client for each setting."""
    made = {}
    for setting in RECORDED:
        client = DuckDBClient(
            server.location, "cat", arrow_lossless=setting != "lossless_false", timeout=60
        )
        if setting.startswith("SET "):
            client._session.local = _local(setting)
        made[setting] = client
    yield made
    for client in made.values():
        client.close()


def _local(setting: str) -> LocalDuckDB:
    local = LocalDuckDB(lossless=True)
    local._database.execute(setting)
    return local


@pytest.mark.parametrize(("setting", "number", "case"), CASES)
def test_values_of_a_type_come_back(setting, number, case, clients):
    _skip_what_duckdb_1_cannot_do(case)
    client = clients[setting]
    kind = case["duckdb_type"]
    name = f"{list(RECORDED).index(setting)}_{number}"
    if "dictionary" in case["sent"] and kind.endswith("[]"):
        with pytest.raises(
            ServerError, match="it would show the indices instead of the values"
        ) as refused:
            client.create_table("s1", name, {"v": kind})
        assert refused.value.code == "UNIMPLEMENTED"
        return
    # Collations are not sent.
    created = client.create_table("s1", name, {"v": kind.partition(" COLLATE ")[0]})
    assert created.columns[0].type == case["column_type_afterwards"]
    if "Conversion Error" in case.get("insert_error", ""):
        with pytest.raises(ClientSideError, match="Conversion Error"):
            client.insert("s1", name, _rows(case["value_sql"]))
    else:
        client.insert("s1", name, _rows(case["value_sql"]))
    rows = client.scan("s1", name).cast(pa.schema([created.columns[0].field]))
    # There is no record of a BIT that DuckDB 1 could not send.
    assert _texts(rows) == (
        ["0101101", None]
        if "Expected 3 buffers" in case.get("insert_error", "")
        else case["read_back"]
    )


@pytest.mark.parametrize(("setting", "number", "case"), SETTINGS)
def test_a_setting_changes_what_is_sent_as_recorded(setting, number, case, clients):
    _skip_what_duckdb_1_cannot_do(case)
    field = clients[setting]._session.local.arrow_schema({"v": case["duckdb_type"]}).field("v")
    kind = field.type.storage_type if isinstance(field.type, pa.BaseExtensionType) else field.type

    # DuckDB 1 announced `binary` for a BIT, and then sent the buffers that DuckDB 2 announces.
    assert str(kind) == (
        "binary_view" if "Expected 3 buffers" in case.get("insert_error", "") else case["sent"]
    )


def _rows(value: str) -> pa.Table:
    with duckdb.connect(config={"arrow_lossless_conversion": True}) as database:
        return database.sql(f"SELECT {value} AS v UNION ALL SELECT NULL").to_arrow_table()


def _texts(rows: pa.Table) -> list[str | None]:
    with duckdb.connect() as database:
        database.execute("SET TimeZone = 'UTC'")
        database.register("rows", rows)
        return [text for (text,) in database.execute("SELECT v::VARCHAR FROM rows").fetchall()]
