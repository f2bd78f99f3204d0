"""Beginning, ending and asking about transactions."""

from __future__ import annotations

from dataclasses import dataclass

from sparkport.catalog.transactions import TransactionState
from sparkport.errors import CatalogFault
from sparkport.wire.packing import Fields, pack, unpack_json, unpack_map

__all__ = [
    "CreateTransaction",
    "TransactionRequest",
    "decode_commit_transaction",
    "decode_create_transaction",
    "decode_get_transaction_status",
    "decode_rollback_transaction",
    "encode_transaction",
    "encode_transaction_status",
]


@dataclass(frozen=True, slots=True)
class CreateTransaction:
    """Begin a transaction in a catalog; None where the body does not say in which."""

    catalog: str | None = None


@dataclass(frozen=True, slots=True)
class TransactionRequest:
    """Commit, roll back or ask about a transaction, in a catalog if the body says in which."""

    transaction_id: str
    catalog: str | None = None


def decode_create_transaction(body: bytes) -> CreateTransaction:
    fields = _read(body, "create_transaction")
    return CreateTransaction(fields.optional_text("catalog_name", "catalog"))


def decode_get_transaction_status(body: bytes) -> TransactionRequest:
    return _decode_request(body, "get_transaction_status")


def decode_commit_transaction(body: bytes) -> TransactionRequest:
    return _decode_request(body, "commit_transaction")


def decode_rollback_transaction(body: bytes) -> TransactionRequest:
    return _decode_request(body, "rollback_transaction")


def _decode_request(body: bytes, action: str) -> TransactionRequest:
    fields = _read(body, action)
    return TransactionRequest(
        transaction_id=fields.name("transaction_id", "identifier"),
        catalog=fields.optional_text("catalog_name", "catalog"),
    )


def _read(body: bytes, action: str) -> Fields:
    """Decode a body that is empty, JSON or MessagePack (airport §15.2).

    No MessagePack map begins with `{`.
    """
    text = body.lstrip()
    if not text:
        return Fields({}, action)
    return Fields((unpack_json if text.startswith(b"{") else unpack_map)(body, action), action)


def encode_transaction(identifier: str | None) -> bytes:
    """Encode the answer of `create_transaction`; None where the catalog has no transactions.

    Raises: CatalogFault when a header cannot hold the id: DuckDB's process would abort (T3).
    """
    if identifier is None:
        return pack({"identifier": None})
    if not (identifier.isascii() and identifier.isprintable()):
        raise CatalogFault("the catalog gave a transaction an id that is not printable ASCII")
    return pack({"identifier": identifier, "transaction_id": identifier, "status": "success"})


def encode_transaction_status(transaction_id: str, state: TransactionState | None) -> bytes:
    """Encode the answer of the other three actions; None for a transaction that does not exist."""
    return pack(
        {
            "transaction_id": transaction_id,
            "exists": state is not None,
            "state": "" if state is None else state.value,
            "status": "success",
        }
    )
