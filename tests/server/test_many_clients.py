"""Many clients at once, some of which cancel: no error, and nothing stays behind."""

from __future__ import annotations

import gc
import os
import random
import threading
from concurrent.futures import ThreadPoolExecutor

import grpc
import pyarrow as pa
import pytest
from tests.server.catalogs import Endless, ListedTable, ScriptedTable, catalog_of, numbers
from tests.server.raw_client import RawClient, failure_of, path, ticket_message
from tests.server.test_threads import eventually

from sparkport.server import ServerSettings

CLIENTS, SCANS, CANCELLING = 64, 40, 8


@pytest.mark.long
@pytest.mark.timeout(120)
def test_64_clients_with_40_scans_each_leave_nothing_behind(start):
    # A lake that other tests share has threads, too.
    others = {thread.name for thread in threading.enumerate()}
    endless = Endless(rows=200)
    tables = [
        ListedTable("t", numbers(20)),
        ScriptedTable("endless", endless.batch.schema, endless),
    ]
    server = start(catalog_of(*tables), ServerSettings(idle_thread_seconds=0.2))
    expected = numbers(20)
    with RawClient(server.location) as client:  # things that are made once are made now
        assert client.scan(path("s", "t")).table.equals(expected)
    assert eventually(lambda: not _server_threads() - others)
    gc.collect()
    before = (threading.active_count(), _open_files(), pa.total_allocated_bytes())

    def run(number: int) -> int:
        chance = random.Random(number)
        with RawClient(server.location) as client:
            if number < CANCELLING:
                return sum(_cancel_at_random(client, chance) for _ in range(SCANS))
            (endpoint,) = client.endpoints(path("s", "t"), [0, 1, 2])
            return sum(
                client.get(endpoint.ticket.ticket).table.equals(expected) for _ in range(SCANS)
            )

    with ThreadPoolExecutor(CLIENTS) as pool:
        done = list(pool.map(run, range(CLIENTS)))

    assert done == [SCANS] * CLIENTS
    with RawClient(server.location) as client:
        assert client.scan(path("s", "t")).table.equals(expected)
    assert eventually(lambda: not _server_threads() - others)
    assert eventually(lambda: threading.active_count() <= before[0])
    assert eventually(lambda: _open_files() <= before[1])
    assert eventually(lambda: gc.collect() >= 0 and pa.total_allocated_bytes() <= before[2])


def _cancel_at_random(client: RawClient, chance: random.Random) -> bool:
    """Whether a scan that would never end ended because it was cancelled."""
    (endpoint,) = client.endpoints(path("s", "endless"))
    call = client.open("DoGet", ticket_message(endpoint.ticket.ticket))
    try:
        for _ in range(chance.randrange(4)):
            next(call)
        call.cancel()
        list(call)
    except grpc.RpcError as error:
        return failure_of(error).code == "CANCELLED"
    return False


def _server_threads() -> set[str]:
    return {thread.name for thread in threading.enumerate() if thread.name.startswith("sparkport-")}


def _open_files() -> int:
    return len(os.listdir("/proc/self/fd"))
