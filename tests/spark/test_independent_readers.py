"""What Sparkport writes is read alike by PyIceberg, plain Spark and DuckDB's own extension."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from tests.spark.independent_readers import READERS, rows_by
from tests.spark.lake_tables import find, sql_name
from tests.spark.places import Place

from sparkport.server import Server
from sparkport.spark import LakeCatalog
from sparkport.testing import DuckDBClient

_UTC = datetime.timezone.utc
_ROWS = pa.table(
    {
        "id": pa.array(range(1000), pa.int64()),
        "kind": pa.array([f"k{number % 3}" for number in range(1000)]),
        "half": pa.array([None if number % 10 == 0 else number / 2 for number in range(1000)]),
        "price": pa.array([Decimal(number).scaleb(-2) for number in range(1000)]).cast(
            pa.decimal128(12, 2)
        ),
        "day": pa.array([datetime.date(2026, 1, 1 + number % 28) for number in range(1000)]),
        "at": pa.array(
            [datetime.datetime(2026, 1, 1, number % 24, tzinfo=_UTC) for number in range(1000)],
            pa.timestamp("us", "UTC"),
        ),
        "tags": pa.array([["x", None][: number % 3] for number in range(1000)]),
    }
)


@pytest.fixture(scope="module")
def client(lake: LakeCatalog) -> Iterator[DuckDBClient]:
    with (
        Server(lake, "grpc://127.0.0.1:0") as server,
        DuckDBClient(server.location, lake.name, timeout=60) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def written(lake: LakeCatalog, client: DuckDBClient) -> dict[str, tuple[str, list[Any]]]:
    """Tables that were changed in all ways: their metadata files, and the rows that they have."""
    namespace = "for_others"
    lake.spark.sql(f"CREATE NAMESPACE `{lake.spark_catalog}`.{namespace}")
    client.attach()
    client.create_table(namespace, "changed", _ROWS.schema)
    client.insert(namespace, "changed", _ROWS)
    for version, layout in ((3, "PARTITIONED BY (kind, days(at))"), (2, "PARTITIONED BY (kind)")):
        lake.spark.sql(
            f"CREATE TABLE {sql_name(lake, namespace, f'version_{version}')} USING iceberg "
            f"{layout} TBLPROPERTIES ('format-version' = '{version}') AS "
            f"SELECT * FROM {sql_name(lake, namespace, 'changed')} LIMIT 0"
        )
    client.detach()
    client.attach()
    for name in ("version_3", "version_2"):
        client.insert(namespace, name, _ROWS)
        client.insert(namespace, name, _ROWS.slice(0, 10))
    for name in ("changed", "version_3"):
        client.update(namespace, name, {"kind": "'new'", "half": "NULL"}, where="id % 7 = 1")
        client.delete(namespace, name, "id % 5 = 2")
        client.delete(namespace, name, "id = 3")
        client.insert(namespace, name, _ROWS.slice(3, 1))
    found = {}
    for name in ("changed", "version_3", "version_2"):
        rows = client.scan(namespace, name).select(_ROWS.schema.names).to_pylist()
        location = find(lake, namespace, name).state.metadata_location
        found[name] = (location, sorted((tuple(row.values()) for row in rows), key=repr))
    return found


@pytest.mark.parametrize("table", ["changed", "version_3", "version_2"])
@pytest.mark.parametrize("reader", READERS)
def test_others_read_what_was_written(
    written: dict[str, tuple[str, list[Any]]], place: Place, table: str, reader: str
) -> None:
    location, expected = written[table]
    assert len(expected) >= 800
    assert _comparable(rows_by(reader, location, place.options)) == _comparable(expected)


def _comparable(rows: list[Any]) -> list[str]:
    """Moments in one zone: zones of the same name are of different classes."""
    return sorted(
        repr(
            tuple(
                each.astimezone(_UTC) if isinstance(each, datetime.datetime) else each
                for each in row
            )
        )
        for row in rows
    )
