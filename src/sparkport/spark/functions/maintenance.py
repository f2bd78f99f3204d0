"""Maintenance of a table's files, as table functions: `optimize` and `expire_snapshots`.

Spark does the work, by Iceberg's own procedures. Rows do not change and keep their ids. Scans that
have begun go on, because the files that they read stay until their snapshots expire.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

import pyarrow as pa

from sparkport.catalog import (
    Context,
    FunctionSignature,
    Parameter,
    ParameterKind,
    Privilege,
    ScanOptions,
)
from sparkport.errors import BadRequest, PreconditionFailed
from sparkport.spark.care.joined_manifests import MANIFEST_BYTES, manifest_sizes
from sparkport.spark.care.procedures import call_procedure, replaced_by_bytes
from sparkport.spark.functions.table_argument import FunctionOfTable
from sparkport.spark.iceberg.identifiers import Identifier
from sparkport.spark.iceberg.table_state import TableState
from sparkport.spark.jvm.errors import translated

__all__ = ["MaintenanceFunction", "ExpireSnapshots", "Optimize"]


class MaintenanceFunction(FunctionOfTable):
    """A function that changes its table, and reports what it did in a few rows.

    Only `execute` changes anything.
    """

    time_limit = None
    interruptible = False
    needs = Privilege.ALTER

    def execute(
        self, ctx: Context, parameters: Sequence[Any], options: ScanOptions
    ) -> Iterator[pa.RecordBatch]:
        state = self._state(ctx, parameters)
        rows = list(self._run(ctx, state, (*parameters[1:], *self._left_out(parameters))))
        ctx.report_write(self.name, f"{state.identifier.catalog}.{state.identifier}")
        yield pa.RecordBatch.from_pylist(rows, self.columns)

    def _left_out(self, parameters: Sequence[Any]) -> list[None]:
        """A NULL for each named parameter that the caller has not passed."""
        return [None] * (len(self.signature.parameters) - len(parameters))

    @abstractmethod
    def _run(
        self, ctx: Context, state: TableState, arguments: Sequence[Any]
    ) -> Iterable[Mapping[str, Any]]:
        """Do the work, and return the rows of the report. `arguments` are those after the table."""


# ---------------------------------------------------------------------------------------- optimize


class Optimize(MaintenanceFunction):
    """Replace many small files by few large ones, without the rows that were deleted."""

    columns = pa.schema(
        [
            ("action", pa.string()),
            ("files_before", pa.int64()),
            ("files_after", pa.int64()),
            ("bytes_before", pa.int64()),
            ("bytes_after", pa.int64()),
        ]
    )

    @property
    def name(self) -> str:
        return "optimize"

    @property
    def comment(self) -> str:
        return (
            "Writes a table's small files, and those with many deleted rows, anew as few large "
            "ones; all of them with rewrite_all := true, or in an order with sort := 'a, b DESC'. "
            "target_file_size is in bytes."
        )

    @property
    def signature(self) -> FunctionSignature:
        named = ParameterKind.NAMED
        return FunctionSignature(
            (
                Parameter("table", pa.string()),
                Parameter("target_file_size", pa.int64(), named),
                Parameter("sort", pa.string(), named),
                Parameter("rewrite_all", pa.bool_(), named),
            )
        )

    def _run(
        self, ctx: Context, state: TableState, arguments: Sequence[Any]
    ) -> Iterator[Mapping[str, Any]]:
        target_file_size, sort, rewrite_all = arguments
        if target_file_size is not None and target_file_size <= 0:
            raise BadRequest("optimize: target_file_size is a number of bytes, such as 134217728")
        if sort is not None and not sort.strip():
            raise BadRequest("optimize: sort names columns, such as 'a, b DESC'")
        if state.snapshot is None:
            yield from (
                _done(action, 0, 0, 0, 0) for action in ("data files", "delete files", "manifests")
            )
            return
        lake, table = self._lake, state.identifier
        # Two small files are worth joining; Iceberg would wait for five.
        settings = {
            "min-input-files": "2",
            "rewrite-all": str(bool(rewrite_all or sort is not None)).lower(),
        }
        if target_file_size is not None:
            settings["target-file-size-bytes"] = str(target_file_size)
        yield self._data_files(ctx, state, settings, sort)
        ctx.report_progress(0.8)
        yield self._delete_files(ctx, lake.current(table))
        ctx.report_progress(0.9)
        yield self._manifests(ctx, lake.current(table))

    def _data_files(
        self, ctx: Context, state: TableState, settings: Mapping[str, str], sort: str | None
    ) -> Mapping[str, Any]:
        values: dict[str, Any] = {"sort": sort} if sort is not None else {}
        options = ", ".join(f"'{name}', '{value}'" for name, value in settings.items())
        order = "strategy => 'sort', sort_order => :sort, " if sort is not None else ""
        call = f"rewrite_data_files(table => :table, {order}options => map({options}))"
        found = call_procedure(self._lake, ctx, state.identifier, call, values)
        added = (
            replaced_by_bytes(state, self._lake.current(state.identifier))
            if found.added_data_files_count
            else 0
        )
        return _done(
            "data files",
            found.rewritten_data_files_count,
            found.added_data_files_count,
            found.rewritten_bytes_count,
            added,
        )

    def _delete_files(self, ctx: Context, state: TableState) -> Mapping[str, Any]:
        if state.snapshot is None or _total(state, "total-delete-files") == 0:
            return _done("delete files", 0, 0, 0, 0)
        found = call_procedure(
            self._lake, ctx, state.identifier, "rewrite_position_delete_files(table => :table)"
        )
        return _done(
            "delete files",
            found.rewritten_delete_files_count,
            found.added_delete_files_count,
            found.rewritten_bytes_count,
            found.added_bytes_count,
        )

    def _manifests(self, ctx: Context, state: TableState) -> Mapping[str, Any]:
        before = manifest_sizes(state)
        if before is not None and len(before) < max(
            _FEW_MANIFESTS, 2 * math.ceil(sum(before) / MANIFEST_BYTES)
        ):
            return _done("manifests", 0, 0, 0, 0)  # nothing can be gained
        found = call_procedure(
            self._lake, ctx, state.identifier, "rewrite_manifests(table => :table)"
        )
        after = manifest_sizes(self._lake.current(state.identifier))
        return _done(
            "manifests",
            found.rewritten_manifests_count,
            found.added_manifests_count,
            None if before is None else sum(before),
            None if after is None else sum(after),
        )


_FEW_MANIFESTS = 4


def _done(
    action: str,
    files_before: int,
    files_after: int,
    bytes_before: int | None,
    bytes_after: int | None,
) -> Mapping[str, Any]:
    return {
        "action": action,
        "files_before": files_before,
        "files_after": files_after,
        "bytes_before": bytes_before,
        "bytes_after": bytes_after,
    }


def _total(state: TableState, name: str) -> int | None:
    summary = None if state.snapshot is None else state.snapshot.summary
    try:
        return None if summary is None else int(summary.additional_properties[name])
    except (KeyError, ValueError):
        return None


# -------------------------------------------------------------------------------- expire_snapshots


class ExpireSnapshots(MaintenanceFunction):
    """Remove old snapshots, and the files that only they need."""

    columns = pa.schema(
        [
            ("expired_snapshots", pa.int64()),
            ("snapshots_in_use", pa.int64()),
            ("data_files", pa.int64()),
            ("delete_files", pa.int64()),
            ("manifests", pa.int64()),
            ("manifest_lists", pa.int64()),
            ("statistics_files", pa.int64()),
        ]
    )

    @property
    def name(self) -> str:
        return "expire_snapshots"

    @property
    def comment(self) -> str:
        return (
            "Forgets the snapshots of a table that are older than older_than (5 days, unless the "
            "table says otherwise), but not the last retain_last (1), nor those of tags and "
            "branches, nor those that this server's transactions read; removes the files that "
            "nobody needs any more, and tells how many."
        )

    @property
    def signature(self) -> FunctionSignature:
        return FunctionSignature(
            (
                Parameter("table", pa.string()),
                Parameter("older_than", pa.timestamp("us", "UTC"), ParameterKind.NAMED),
                Parameter("retain_last", pa.int32(), ParameterKind.NAMED),
            )
        )

    def _run(
        self, ctx: Context, state: TableState, arguments: Sequence[Any]
    ) -> Iterator[Mapping[str, Any]]:
        older_than, retain_last = arguments
        if older_than is not None and not isinstance(older_than, datetime):
            raise BadRequest(
                "expire_snapshots: older_than is a moment, such as now() - INTERVAL 7 DAYS"
            )
        if retain_last is not None and retain_last < 1:
            raise BadRequest(
                "expire_snapshots: retain_last must be at least 1: the present rows are always kept"
            )
        table = state.identifier
        if state.metadata.properties.get("gc.enabled", "true").lower() == "false":
            raise PreconditionFailed(
                f"table {table} shares its files with others, as its property gc.enabled says: "
                "nothing of it is removed"
            )
        with translated(f"table {table}"):
            found = self._outdated(state, older_than, retain_last)
            in_use = found & self._lake.transactions.snapshots_read(table)
            wanted = sorted(found - in_use)
            self._expect_only(table, wanted, in_use)
        if not wanted:
            yield {
                name: len(in_use) if name == "snapshots_in_use" else 0
                for name in self.columns.names
            }
            return
        ids = ", ".join(f"{each}L" for each in wanted)
        # Nothing is older than this time, so only the named snapshots expire.
        older = "TIMESTAMP '1970-01-01 00:00:00Z'"
        named = f"older_than => {older}, snapshot_ids => array({ids})"
        call = f"expire_snapshots(table => :table, {named})"
        removed = call_procedure(self._lake, ctx, table, call)
        yield {
            "expired_snapshots": len(wanted),
            "snapshots_in_use": len(in_use),
            "data_files": removed.deleted_data_files_count,
            "delete_files": removed.deleted_position_delete_files_count
            + removed.deleted_equality_delete_files_count,
            "manifests": removed.deleted_manifest_files_count,
            "manifest_lists": removed.deleted_manifest_lists_count,
            "statistics_files": removed.deleted_statistics_files_count,
        }

    def _outdated(
        self, state: TableState, older_than: datetime | None, retain_last: int | None
    ) -> set[int]:
        """The snapshots that Iceberg would expire; those of tags and branches stay."""
        expiry = self._expiry(state.identifier)
        if older_than is not None:
            moment = (
                older_than
                if older_than.tzinfo is not None
                else older_than.replace(tzinfo=timezone.utc)
            )
            expiry.expireOlderThan(math.floor(moment.timestamp() * 1000))
        if retain_last is not None:
            expiry.retainLast(retain_last)
        return {int(snapshot.snapshotId()) for snapshot in expiry.apply()}

    def _expect_only(self, table: Identifier, wanted: Sequence[int], in_use: set[int]) -> None:
        """Raises: PreconditionFailed if a branch's settings would expire other snapshots."""
        expiry = self._expiry(table)
        expiry.expireOlderThan(0)
        for each in wanted:
            expiry.expireSnapshotId(each)
        if in_use & {int(snapshot.snapshotId()) for snapshot in expiry.apply()}:
            raise PreconditionFailed(
                f"a branch of table {table} keeps snapshots for a limited time only, and one that "
                "has outlived it is still read by a transaction: try again later"
            )

    def _expiry(self, table: Identifier) -> Any:
        """An org.apache.iceberg.ExpireSnapshots of the table as it is now.

        It is never committed.
        """
        handle = self._lake.gateway.iceberg(table)
        if handle is None:
            raise PreconditionFailed(f"table {table} is not an Iceberg table any more")
        return handle.table.expireSnapshots()
