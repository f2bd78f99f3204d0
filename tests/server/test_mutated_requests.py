"""Any bytes from a client get a readable status of the right kind, and the server goes on."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import grpc
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.server.catalogs import numbers
from tests.server.mutated_server import COLUMNS
from tests.server.mutations import (
    KINDS,
    LEVELS,
    Mutation,
    Request,
    aimed,
    flight_data,
    join,
    requests,
)
from tests.server.raw_client import Failure, RawClient, failure_of, path

ROOT = Path(__file__).parents[2]

# Codes of §14.4 for wrong requests. Not INTERNAL or UNKNOWN, which blame the server.
CODES = {
    "INVALID_ARGUMENT",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "FAILED_PRECONDITION",
    "UNIMPLEMENTED",
    "RESOURCE_EXHAUSTED",
}

UNREADABLE = re.compile(
    r"Traceback|File \"|\.py\b|/work/|site-packages|\b0x[0-9a-fA-F]{6,}|object "
    r"at|[\x00-\x08\x0b-\x1f]"
)

EXAMPLES = {
    "DoAction": 700,
    "DoExchange": 400,
    "DoPut": 200,
    "DoGet": 100,
    "GetFlightInfo": 100,
    "GetSchema": 60,
    "ListFlights": 60,
    "ListActions": 20,
    "Handshake": 20,
}


@dataclass(frozen=True)
class Target:
    """A running server, and real requests for it."""

    client: RawClient
    requests: dict[str, list[Request]]
    log: Path

    def restore(self) -> None:
        """Restore the table that requests are about."""
        arrow_schema = COLUMNS.serialize().to_pybytes()
        schema = {"catalog_name": "cat", "schema": "s1", "on_conflict": "ignore"}
        table = {
            "catalog_name": "cat",
            "schema_name": "s1",
            "table_name": "t",
            "on_conflict": "ignore",
        }
        self.client.action("create_schema", schema)
        self.client.action("create_table", {**table, "arrow_schema": arrow_schema})

    def send(self, request: Request) -> Failure | None:
        try:
            self.client.call(request.method, request.sent, request.headers)
        except grpc.RpcError as error:
            return failure_of(error)
        # Only actions can drop something, and only if they succeed.
        if request.method == "DoAction":
            self.restore()
        return None

    def check(self) -> None:
        """It still serves, and it has met nothing that it did not foresee."""
        assert self.client.scan(path("steady", "s", "t")).table.equals(numbers())
        assert "Traceback" not in self.log.read_text()


@pytest.fixture(scope="module")
def target(tmp_path_factory) -> Iterator[Target]:
    log = tmp_path_factory.mktemp("mutated") / "server.log"
    with log.open("w") as stderr:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.server.mutated_server"],
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            cwd=ROOT,
        )
    try:
        assert process.stdout is not None
        with RawClient(process.stdout.readline().strip()) as client:
            target = Target(client, requests(client, COLUMNS), log)
            target.restore()
            yield target
        process.terminate()
        assert process.wait(30) == 0, "the server did not survive"
    finally:
        process.kill()
        process.communicate(timeout=30)


mutations = st.lists(
    st.builds(
        Mutation,
        st.sampled_from(sorted(KINDS)),
        st.floats(0, 1),
        st.floats(0, 1),
        st.binary(max_size=12),
    ),
    min_size=1,
    max_size=3,
)


@pytest.mark.parametrize("method", EXAMPLES)
def test_a_mutated_request_gets_a_readable_status_of_the_right_kind(target, method):
    @settings(
        max_examples=EXAMPLES[method],
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(
        chosen=st.integers(0, 10_000),
        other=st.integers(0, 10_000),
        index=st.integers(0, 30),
        level=st.sampled_from(LEVELS),
        mutations=mutations,
    )
    def property_holds(chosen, other, index, level, mutations):
        real = target.requests[method]
        request = level(real[chosen % len(real)], index, real[other % len(real)], mutations)
        failure = target.send(request)

        if failure is not None:
            assert failure.code in CODES, (request, failure)
            assert failure.message.strip(), request
            assert not UNREADABLE.search(failure.message), (request, failure)

    property_holds()
    target.check()


@pytest.mark.parametrize("method", EXAMPLES)
def test_a_real_request_of_another_server_gets_a_readable_status_too(target, method):
    for request in target.requests[method]:
        failure = target.send(request)
        assert failure is None or failure.code in CODES, (request, failure)
    target.check()


@pytest.mark.parametrize("length", [1, 7, 100, 100_000])
@pytest.mark.parametrize("byte", [b"\0", b"\x0a", b"\x1a", b"\x81", b"\x91", b"\xc1", b"\xff"])
def test_the_same_byte_many_times_gets_a_readable_status(target, byte, length):
    for method in EXAMPLES:
        for operation in ("insert", "update", "delete"):
            failure = target.send(
                Request(method, (byte * length,), {"airport-operation": operation})
            )
            assert failure is None or failure.code in CODES, (method, failure)
    target.check()


def test_a_batch_that_claims_to_be_huge_is_refused(target):
    """Columns of type null take no bytes, so a short message can claim any number of rows."""
    batch = pa.RecordBatch.from_arrays([pa.nulls(2**28)] * len(COLUMNS), COLUMNS.names)
    message = pa.ipc.read_message(batch.serialize())
    stream = [*flight_data(batch.schema, [])[:2], join([(2, message.metadata.to_pybytes())])]

    failure = target.send(aimed(stream, path("s1", "t"), "insert"))

    assert failure is not None
    assert failure.code == "RESOURCE_EXHAUSTED"
    target.check()
