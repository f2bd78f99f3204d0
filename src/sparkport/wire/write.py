"""The contracts' requests that change rows, and the outcome of both kinds (airport §15.2)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from sparkport.errors import BadRequest
from sparkport.wire.packing import Fields, pack, unpack_json

__all__ = [
    "DeleteCommand",
    "InsertCommand",
    "UpdateCommand",
    "decode_delete",
    "decode_put_command",
    "encode_dml_response",
    "encode_total_changed",
]


@dataclass(frozen=True, slots=True)
class InsertCommand:
    """DoPut: the batches that follow are new rows of a table."""

    schema: str
    table: str
    returning: bool = False
    catalog: str | None = None


@dataclass(frozen=True, slots=True)
class UpdateCommand:
    """DoPut: the batches that follow are new values of the rows `row_ids`, in the same order."""

    schema: str
    table: str
    row_ids: tuple[int, ...]
    returning: bool = False
    catalog: str | None = None

    def __post_init__(self) -> None:
        _check_row_ids(self.row_ids)


@dataclass(frozen=True, slots=True)
class DeleteCommand:
    """The action `delete`: remove the rows `row_ids`."""

    schema: str
    table: str
    row_ids: tuple[int, ...]
    returning: bool = False
    catalog: str | None = None

    def __post_init__(self) -> None:
        _check_row_ids(self.row_ids)


def _check_row_ids(row_ids: tuple[int, ...]) -> None:
    if not row_ids:
        raise BadRequest("row_ids cannot be empty for UPDATE/DELETE")


def decode_put_command(command: bytes) -> InsertCommand | UpdateCommand:
    """Decode the JSON in the CMD descriptor of DoPut. Raises: BadRequest."""
    values = unpack_json(command, "DoPut")
    operation = Fields(values, "DoPut").text("operation")
    if operation not in _PUT_COMMANDS:
        raise BadRequest(f"DoPut: the operation must be insert or update, not {operation[:40]!r}")
    return _PUT_COMMANDS[operation](Fields(values, operation))


def _read_insert(fields: Fields) -> InsertCommand:
    return InsertCommand(
        fields.name("schema_name"),
        fields.name("table_name"),
        fields.flag("returning"),
        fields.optional_text("catalog_name"),
    )


def _read_update(fields: Fields) -> UpdateCommand:
    return UpdateCommand(
        fields.name("schema_name"),
        fields.name("table_name"),
        fields.integers("row_ids"),
        fields.flag("returning"),
        fields.optional_text("catalog_name"),
    )


_PUT_COMMANDS: Mapping[str, Callable[[Fields], InsertCommand | UpdateCommand]] = {
    "insert": _read_insert,
    "update": _read_update,
}


def decode_delete(body: bytes) -> DeleteCommand:
    """Decode the JSON body of the action `delete`. Raises: BadRequest."""
    fields = Fields(unpack_json(body, "delete"), "delete")
    return DeleteCommand(
        fields.name("schema_name"),
        fields.name("table_name"),
        fields.integers("row_ids"),
        fields.flag("returning"),
        fields.optional_text("catalog_name"),
    )


def encode_dml_response(
    status: Literal["success", "error"],
    affected_rows: int,
    returning_data: bytes | None = None,
    error_message: str | None = None,
) -> bytes:
    """Encode the contracts' DMLResponse without its empty members.

    `returning_data` is an Arrow IPC stream.
    """
    response: Mapping[str, Any] = {
        "status": status,
        "affected_rows": affected_rows,
        **({"returning_data": returning_data} if returning_data else {}),
        **({"error_message": error_message} if error_message else {}),
    }
    return pack(response)


def encode_total_changed(count: int) -> bytes:
    """Encode the last message of an exchange: how many rows were changed (airport §7.1)."""
    return pack({"total_changed": count})
