"""The audit log: who changed what, who asked Spark what, and who was refused.

Each entry is a line of JSON. It holds no tokens, and no values of rows but those that a caller
writes into a query.
"""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from sparkport.errors import BadRequest
from sparkport.service.activity import Work

__all__ = ["AuditLog", "entries_of"]

_log = logging.getLogger(__name__)

_DENIED = frozenset({"UNAUTHENTICATED", "PERMISSION_DENIED"})
_STATEMENTS = frozenset({"insert", "update", "delete"})
_CHANGES = frozenset(
    {
        *("create_schema", "drop_schema", "create_table", "drop_table", "rename_table"),
        *("add_column", "remove_column", "rename_column", "change_column_type", "set_default"),
        *(
            "set_not_null",
            "drop_not_null",
            "add_field",
            "remove_field",
            "rename_field",
            "add_constraint",
        ),
        *("delete", "commit_transaction", "rollback_transaction", "EndTransaction"),
    }
)
"""Actions that change something, or try to."""


class AuditLog:
    """Appends lines to a file that only its owner may read. Thread-safe.

    Log rotation may rename the file: the next line goes into a new file of the old name.
    """

    def __init__(self, path: str | Path) -> None:
        """Raises: BadRequest when the file cannot be written."""
        self.failures = 0
        self._path = Path(path)
        self._lock = threading.Lock()
        try:
            self._file = self._open()
        except OSError as error:
            raise BadRequest(f"the audit log {path} cannot be written: {error.strerror}") from error

    def record(self, work: Work) -> None:
        """Write down what a call has changed, or what was refused to it.

        A line that cannot be written is logged and counted.
        """
        for entry in entries_of(work):
            line = json.dumps(entry, ensure_ascii=True, separators=(",", ":")) + "\n"
            try:
                with self._lock:
                    self._reopen_if_renamed()
                    _write(self._file, line.encode())
            except OSError as error:
                self.failures += 1
                _log.error(
                    "trace %s: the audit log cannot be written: %s", work.trace_id, error.strerror
                )

    def close(self) -> None:
        with self._lock:
            if self._file >= 0:
                os.close(self._file)
            self._file = -1

    def _open(self) -> int:
        # Without a buffer: what was written is in the file even when the process is killed.
        return os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def _reopen_if_renamed(self) -> None:
        if (
            self._file >= 0
        ):  # a call may outlive the server, and what it has done belongs in the log
            with suppress(FileNotFoundError):
                if os.path.samestat(os.stat(self._path), os.fstat(self._file)):
                    return
        fresh = self._open()
        if self._file >= 0:
            os.close(self._file)
        self._file = fresh


def _write(file: int, line: bytes) -> None:
    while line:  # the system may take less than all of it
        line = line[os.write(file, line) :]


def entries_of(work: Work) -> Iterator[dict[str, Any]]:
    """Return the entries for a call that has ended; most calls need none."""
    common = {
        "time": datetime.now(timezone.utc).isoformat(timespec="milliseconds"),
        "principal": work.principal,
        "session": work.session or None,
        "trace_id": work.trace_id,
    }
    asked: dict[str, Any] = {"what": work.operation or work.rpc, "object": work.object or None}
    if work.progress.query:
        asked |= {"query": work.progress.query, "tables": list(work.progress.tables)}
    if work.code in _DENIED:
        # What was changed before the refusal follows.
        yield common | asked | {"rows": None, "outcome": work.code, "reason": work.message}
    elif work.progress.query and (work.rpc == "DoGet" or work.code != "OK"):
        # DoGet reads its rows; before that it is only planned, and may then be refused.
        yield (
            common
            | asked
            | {"rows": work.rows_out, "outcome": "ok" if work.code == "OK" else work.code}
        )
    for kind, name, rows in work.progress.writes:
        # The change is made, whatever became of the answer.
        made = {"what": kind, "object": name or work.object, "rows": rows, "outcome": "ok"}
        if work.progress.query and work.rpc != "DoGet":
            made["query"] = work.progress.query
        yield common | made
    if not work.progress.writes and work.code not in _DENIED and _changes_something(work):
        # An action answers when it is done. One that has answered is done, even if the client did
        # not take the answer.
        done = work.code == "OK" or (work.rpc == "DoAction" and work.messages_out > 0)
        yield common | asked | {"rows": None, "outcome": "ok" if done else work.code}


def _changes_something(work: Work) -> bool:
    if work.rpc == "DoAction":
        return work.operation in _CHANGES
    return work.rpc in ("DoExchange", "DoPut") and work.operation in _STATEMENTS
