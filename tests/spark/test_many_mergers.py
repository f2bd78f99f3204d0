"""Eight clients that MERGE the same keys, by `spark_run` and by Flight SQL, through two servers."""

from __future__ import annotations

import random
import re
import threading
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field

import pyarrow as pa
import pytest
from adbc_driver_flightsql import dbapi
from adbc_driver_manager import Error
from tests.spark.test_many_writers import _server, _wait_until_seen

from sparkport.testing import DuckDBClient, ServerError

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(600)]

_SECONDS = 60
_MOST = 12
"""Statements of each client."""
_CLIENTS = 8
_KEYS = 40
_COLUMNS = pa.schema([("k", pa.int64()), ("v", pa.int64())])
_LIMITS = {
    f"adbc.flight.sql.rpc.timeout_seconds.{each}": "240" for each in ("fetch", "query", "update")
}
_TYPED = {"ABORTED", "FAILED_PRECONDITION", "Aborted", "FailedPrecondition"}


@dataclass
class _Merger:
    """Counts the rows of some keys up by one, or makes them, again and again."""

    number: int
    location: str
    merged: Counter[int] = field(default_factory=Counter)
    """How often a change of each key was acknowledged."""
    refused: list[str] = field(default_factory=list)
    unexpected: list[Exception] = field(default_factory=list)

    def run(self, until: float) -> None:
        try:
            with ExitStack() as stack:
                send = self._by_flight_sql(stack) if self.number % 4 > 1 else self._by_duckdb(stack)
                chosen = random.Random(self.number)
                for done in range(_MOST):
                    if done and time.monotonic() > until:
                        break
                    keys = chosen.sample(range(_KEYS), 6)
                    self._merge(send, keys)
        except Exception as error:
            self.unexpected.append(error)

    def _merge(self, send, keys: list[int]) -> None:
        rows = ", ".join(f"({key}L)" for key in keys)
        try:
            send(
                f"MERGE INTO s.t USING (SELECT * FROM VALUES {rows} AS x(k)) AS x ON t.k = x.k "
                "WHEN MATCHED THEN UPDATE SET v = t.v + 1 "
                "WHEN NOT MATCHED THEN INSERT (k, v) VALUES (x.k, 1)"
            )
            self.merged.update(keys)
        except ServerError as error:
            self.refused.append(error.code)
        except Error as error:
            self.refused += re.findall(r"\((\w+); \w+\)", str(error)) or [str(error)]

    def _by_duckdb(self, stack: ExitStack):
        client = stack.enter_context(DuckDBClient(self.location, "lake", timeout=240))
        client.attach()
        return lambda text: client.table_function("s", "spark_run", text)

    def _by_flight_sql(self, stack: ExitStack):
        connection = stack.enter_context(
            dbapi.connect(self.location, db_kwargs=_LIMITS, autocommit=True)
        )
        return stack.enter_context(connection.cursor()).execute


def test_every_acknowledged_merge_is_there_and_no_key_is_there_twice(place, tmp_path):
    with ExitStack() as stack:
        locations = [
            stack.enter_context(_server(place.source("merged"), tmp_path)) for _ in range(2)
        ]
        with DuckDBClient(locations[0], "lake", timeout=120) as client:
            client.attach()
            client.create_schema("s")
            client.create_table("s", "t", _COLUMNS, primary_key=["k"])
            _wait_until_seen(locations[1])
            mergers = [_Merger(number, locations[number % 2]) for number in range(_CLIENTS)]
            until = time.monotonic() + _SECONDS
            threads = [threading.Thread(target=each.run, args=(until,)) for each in mergers]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(_SECONDS + 300)
                assert not thread.is_alive(), "a client hangs"
            found = client.scan("s", "t", ["k", "v"])
    assert [error for each in mergers for error in each.unexpected] == []
    assert {code for each in mergers for code in each.refused} <= _TYPED
    rows = dict(zip(found["k"].to_pylist(), found["v"].to_pylist(), strict=True))
    assert len(rows) == found.num_rows, "a key is there twice"
    assert rows == dict(sum((each.merged for each in mergers), Counter()))
    assert sum(bool(each.merged) for each in mergers) > 1, "only one client got through"
