"""Transactions, as DuckDB and as other clients ask for them."""

from __future__ import annotations

import json

import msgpack
import pytest

from sparkport.catalog.interfaces import CatalogVersion
from sparkport.catalog.transactions import TransactionState
from sparkport.errors import BadRequest, CatalogFault
from sparkport.wire import catalogs, transactions
from sparkport.wire.packing import pack

ENDINGS = [
    transactions.decode_get_transaction_status,
    transactions.decode_commit_transaction,
    transactions.decode_rollback_transaction,
]


@pytest.mark.parametrize("body", [b"", b"  ", b"{}", b" { } ", pack({})])
def test_create_transaction_may_say_nothing(body) -> None:
    assert transactions.decode_create_transaction(body) == transactions.CreateTransaction(None)


@pytest.mark.parametrize("encode", [pack, lambda value: json.dumps(value).encode()])
def test_create_transaction_may_name_a_catalog_in_either_encoding(encode) -> None:
    assert transactions.decode_create_transaction(
        encode({"catalog_name": "c"})
    ) == transactions.CreateTransaction("c")


@pytest.mark.parametrize("body", [b"{", b"[]", b"hello", pack([1]), pack({"catalog_name": 5})])
def test_create_transaction_refuses_garbage(body) -> None:
    with pytest.raises(BadRequest, match=r"^create_transaction: "):
        transactions.decode_create_transaction(body)


@pytest.mark.parametrize("decode", ENDINGS)
@pytest.mark.parametrize("encode", [pack, lambda value: json.dumps(value).encode()])
@pytest.mark.parametrize("key", ["transaction_id", "identifier"])
def test_a_transaction_is_named_in_either_encoding_and_spelling(decode, encode, key) -> None:
    assert decode(encode({key: "tx-1"})) == transactions.TransactionRequest("tx-1")
    assert decode(encode({key: "tx-1", "catalog_name": "c"})) == transactions.TransactionRequest(
        "tx-1", "c"
    )


@pytest.mark.parametrize("decode", ENDINGS)
@pytest.mark.parametrize(
    "body", [b"", b"{}", pack({}), pack({"transaction_id": ""}), pack({"transaction_id": 5})]
)
def test_a_transaction_must_be_named(decode, body) -> None:
    with pytest.raises(BadRequest, match=r"_transaction(_status)?: the field 'transaction_id'"):
        decode(body)


def test_the_answer_serves_both_kinds_of_client() -> None:
    assert msgpack.unpackb(transactions.encode_transaction("tx-1")) == {
        "identifier": "tx-1",
        "transaction_id": "tx-1",
        "status": "success",
    }


@pytest.mark.parametrize("identifier", ["é", "a\nb", "a\0b", "a\x7fb"])
def test_an_id_that_cannot_be_a_header_never_reaches_the_client(identifier) -> None:
    with pytest.raises(CatalogFault):
        transactions.encode_transaction(identifier)


@pytest.mark.parametrize("state", [*TransactionState, None])
def test_the_status_says_whether_there_is_such_a_transaction(state) -> None:
    answer = msgpack.unpackb(transactions.encode_transaction_status("tx-1", state))
    assert answer == {
        "transaction_id": "tx-1",
        "exists": state is not None,
        "state": state.value if state else "",
        "status": "success",
    }


def test_schemas_that_would_make_the_client_refuse_the_whole_catalog_are_the_catalogs_fault() -> (
    None
):
    contents = catalogs.encode_contents([])
    with pytest.raises(CatalogFault, match="without a name"):
        catalogs.SchemaEntry("", contents)
    twice = [catalogs.SchemaEntry("s", contents), catalogs.SchemaEntry("s", contents)]
    with pytest.raises(CatalogFault, match="2 schemas called s"):
        catalogs.encode_schema_list(twice, CatalogVersion(1))
