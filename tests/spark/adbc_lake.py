"""A server of a lake, and ADBC's driver connected to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from adbc_driver_flightsql import dbapi
from adbc_driver_manager import AdbcStatusCode, Error
from tests.spark.lake_tables import create, insert

from sparkport.catalog import Constraints
from sparkport.server import Server
from sparkport.spark import LakeCatalog

__all__ = ["COLUMNS", "KEYED", "SECONDS", "connection", "cursor", "refused", "server", "table"]

SECONDS = {
    f"adbc.flight.sql.rpc.timeout_seconds.{each}": "100" for each in ("fetch", "query", "update")
}
LARGE_MESSAGES = {"adbc.flight.sql.client_option.with_max_msg_size": str(64 * 1024 * 1024)}
"""By default the driver sends no batch of more than 16 MiB."""
COLUMNS = pa.schema([("id", pa.int64()), ("name", pa.string())])
KEYED = Constraints(primary_key=("id",), not_null=("id",), checks=("(id < 1000)",))


@pytest.fixture(scope="module")
def server(lake: LakeCatalog) -> Iterator[Server]:
    with Server(lake, "grpc://127.0.0.1:0") as server:
        yield server


@pytest.fixture
def connection(server: Server) -> Iterator[Any]:
    options = SECONDS | LARGE_MESSAGES
    with dbapi.connect(server.location, db_kwargs=options, autocommit=True) as connection:
        yield connection


@pytest.fixture
def cursor(connection: Any) -> Iterator[Any]:
    with connection.cursor() as cursor:
        yield cursor


@pytest.fixture
def table(lake: LakeCatalog, namespace: str) -> str:
    """Table `t`, with a key, a check and two rows."""
    create(lake, namespace, "t", COLUMNS, constraints=KEYED)
    insert(lake, namespace, "t", "(1, 'ann'), (2, 'bob')")
    return f"{namespace}.t"


def refused(call: Callable[[], Any]) -> AdbcStatusCode:
    """How ADBC classifies the error that a call ends with."""
    with pytest.raises(Error) as raised:
        call()
    return raised.value.status_code
