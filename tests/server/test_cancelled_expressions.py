"""Expressions that others wrote end with the call that they are computed for, over real gRPC."""

from __future__ import annotations

import grpc
import pyarrow as pa
import pytest
from tests.server.raw_client import RawClient, failure_of, path, ticket_message
from tests.server.test_threads import eventually

import sparkport as sp
from sparkport.engine.databases import _watch

LONG = "b" * 300
ROWS = pa.table({"id": pa.arange(0, 150_000), "s": pa.repeat("a" * 300, 150_000)})
"""With `LONG`, minutes of work in a single batch."""
RULES = {
    "row filter": sp.Policy(row_filters=[sp.RowFilter("lake", f"levenshtein(s, '{LONG}') = 0")]),
    "mask": sp.Policy(masks=[sp.Mask("lake", "s", f"levenshtein(s, '{LONG}')")]),
}


@pytest.mark.parametrize("policy", RULES.values(), ids=RULES)
def test_a_rule_ends_with_the_call(policy: sp.Policy) -> None:
    lake = sp.MemoryCatalog("lake")
    lake.add_schema("s").add_table(sp.MemoryTable("t", ROWS))
    settings = sp.ServerSettings(authenticate=lambda _: "ann", policy=policy)
    headers = {"authorization": "Bearer x"}
    with (
        sp.Server(lake, "grpc://127.0.0.1:0", settings) as server,
        RawClient(server.location) as client,
    ):
        (endpoint,) = client.endpoints(path("s", "t"), headers=headers)
        call = client.open("DoGet", ticket_message(endpoint.ticket.ticket), headers)
        next(call)  # the schema
        assert eventually(lambda: _watch._evaluations)

        call.cancel()

        with pytest.raises(grpc.RpcError) as caught:
            next(call)
        assert failure_of(caught.value).code == "CANCELLED"
        assert eventually(lambda: not _watch._evaluations)
