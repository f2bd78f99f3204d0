"""BOOLEANs of DuckDB 1.5.0, sent losslessly: a column of NULLs has garbage (airport §13.3)."""

# mypy: disable-error-code="valid-type"

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pyarrow as pa
import pytest
from tests.functions.catalogs import NUMBERS, catalog

import sparkport as sp
from sparkport.memory import MemoryCatalog, MemoryTable
from sparkport.server import Server
from sparkport.testing import DuckDBClient, ServerError
from sparkport.testing.null_booleans import as_duckdb_1_5_0_sends

SOON = 30
NAME = ("s", "t")
ROWS = 5000
"""More than one of DuckDB's vectors."""
HOW_TO_GO_ON = "SET arrow_lossless_conversion = false, or name the column"
Connect = Callable[..., DuckDBClient]


@pytest.fixture
def connect() -> Iterator[Connect]:
    """Serves the given table, and connects the client of DuckDB 1.5.0 to it."""
    with ExitStack() as stack:

        def connect(
            served: MemoryCatalog | sp.CatalogBuilder, arrow_lossless: bool = True
        ) -> DuckDBClient:
            server = stack.enter_context(Server(served, "grpc://127.0.0.1:0"))
            client = DuckDBClient(
                server.location,
                served.name,
                timeout=SOON,
                arrow_lossless=arrow_lossless,
                garbled_null_booleans=True,
            )
            return stack.enter_context(client)

        yield connect


def shop(boolean: pa.DataType) -> MemoryCatalog:
    shop = MemoryCatalog("shop")
    rows = pa.table({"n": pa.array([1, 2, 3])}).append_column(
        "b", pa.array([True, False, None]).cast(boolean)
    )
    shop.add_schema("s").add_table(MemoryTable("t", rows))
    return shop


@pytest.mark.parametrize("returning", [False, True], ids=["", "returning"])
@pytest.mark.parametrize("boolean", [pa.bool_(), pa.bool8()], ids=str)
def test_an_insert_that_leaves_a_boolean_out_is_refused_whole(connect, boolean, returning):
    client = connect(shop(boolean))
    before = client.scan(*NAME)
    with pytest.raises(ServerError) as caught:
        client.insert(*NAME, {"n": list(range(ROWS))}, returning=returning)
    assert "column b" in caught.value.message
    assert HOW_TO_GO_ON in caught.value.message
    assert client.scan(*NAME).equals(before)


def test_what_it_says_helps(connect):
    served = shop(pa.bool8())
    assert connect(served).insert(*NAME, {"n": [4, 5], "b": [True, None]}).total == 2
    assert connect(served, arrow_lossless=False).insert(*NAME, {"n": [6, 7]}).total == 2
    assert connect(served).scan(*NAME).column("b").to_pylist() == [
        True,
        False,
        None,
        True,
        None,
        None,
        None,
    ]


def test_one_row_is_right_and_is_taken(connect):
    client = connect(shop(pa.bool_()))
    assert client.insert(*NAME, {"n": [4]}).total == 1
    assert client.scan(*NAME).column("b").to_pylist() == [True, False, None, None]


@pytest.mark.parametrize("boolean", [pa.bool_(), pa.bool8()], ids=str)
def test_an_update_that_sets_a_boolean_to_null_is_refused_whole(connect, boolean):
    client = connect(shop(boolean))
    with pytest.raises(ServerError, match=HOW_TO_GO_ON):
        client.update(*NAME, {"b": "NULL"})
    assert client.scan(*NAME).column("b").to_pylist() == [True, False, None]


def test_functions_do_not_get_the_garbage(connect):
    builder, schema = catalog()
    called = []

    @schema.scalar_function
    def is_set(flag: pa.bool_()) -> pa.bool_():
        called.append(flag)
        return flag

    @schema.table_function(returns=NUMBERS)
    def counted(rows: pa.Table):
        for batch in rows:
            called.append(batch)
            yield pa.record_batch({"n": [batch.num_rows]})

    client = connect(builder)
    nulls = pa.ExtensionArray.from_storage(pa.bool8(), pa.nulls(10, pa.int8()))
    with pytest.raises(ServerError, match=HOW_TO_GO_ON):
        client.call("s", "is_set", [nulls])
    with pytest.raises(ServerError, match=HOW_TO_GO_ON):
        client.in_out("s", "counted", rows=pa.table({"b": nulls}))
    assert called == []


def test_the_garbage_is_that_of_the_client():
    """The validity of the first row only, and bytes that are neither 0 nor 1 for the others."""
    nulls = pa.ExtensionArray.from_storage(pa.bool8(), pa.nulls(9, pa.int8()))
    some = pa.ExtensionArray.from_storage(pa.bool8(), pa.array([1, None, 0] * 3, pa.int8()))
    batch = pa.record_batch({"nulls": nulls, "some": some, "n": pa.nulls(9, pa.int8())})
    sent = as_duckdb_1_5_0_sends(batch)
    assert sent.schema.equals(batch.schema)
    assert sent.column("nulls").is_null().to_pylist() == [True] + [False] * 8
    assert not {0, 1} & set(sent.column("nulls").storage.to_pylist())
    assert sent.drop_columns(["nulls"]).equals(batch.drop_columns(["nulls"]))
