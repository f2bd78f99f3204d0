"""Make changes visible: to all at once, or to a transaction, or all those of a transaction.

The slow work is done without a lock, against the version that is current at that time. Under the
lock only what was committed since then is examined: whether it touched the same rows, and whether
it brought equal keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from sparkport.catalog import Constraints, Context, TransactionState
from sparkport.catalog.rowid import ROWID_NAME
from sparkport.engine.constraints.enforce import enforce_keys, keys_of
from sparkport.engine.databases import Check
from sparkport.errors import Conflict
from sparkport.memory.changes import Inserted, SegmentChange
from sparkport.memory.definition import Definition
from sparkport.memory.holdings import difference
from sparkport.memory.rows import find_missing, take_rows
from sparkport.memory.segments import Segment
from sparkport.memory.transactions import Pending, Transaction
from sparkport.memory.versions import LogEntry, Version

if TYPE_CHECKING:
    from sparkport.memory.ledger import Ledger
    from sparkport.memory.table import MemoryTable

__all__ = [
    "KeyCheck",
    "add_to_transaction",
    "commit_change",
    "commit_transaction",
    "install",
    "read_columns",
]


@dataclass(frozen=True, slots=True)
class KeyCheck:
    """The key values of changed rows, to be compared with those of other rows."""

    table: str
    definition: Definition
    constraints: Constraints
    """The keys that the change can violate."""
    changed: pa.Table
    has_row_ids: bool
    """Whether `changed` has the row ids.

    A row of the table with the same id is then not compared.
    """
    check: Check | None = None
    """Raises when the request has been cancelled."""

    def against(self, segments: Sequence[Segment]) -> None:
        """Compare with the rows of these segments. Raises: ConstraintViolation."""

        def existing(columns: Sequence[str]) -> pa.Table:
            return read_columns(self.definition, segments, columns)

        row_id = ROWID_NAME if self.has_row_ids else None
        enforce_keys(
            self.table, self.constraints, self.changed, existing, row_id=row_id, check=self.check
        )


def read_columns(
    definition: Definition, segments: Sequence[Segment], columns: Sequence[str]
) -> pa.Table:
    """Some columns of all rows, without copying. The row id may be among them."""
    arrow_schema = definition.arrow_schema
    positions = [arrow_schema.get_field_index(name) for name in columns]
    fields = pa.schema([arrow_schema.field(position) for position in positions])
    return pa.Table.from_batches(
        [
            pa.RecordBatch.from_arrays(
                [s.row_ids() if p == len(s.columns) else s.columns[p] for p in positions],
                schema=fields,
            )
            for s in segments
        ],
        schema=fields,
    )


def commit_change(
    table: MemoryTable, base: Version, change: SegmentChange, keys: KeyCheck | None
) -> Version:
    """Make visible a change that was made to `base`. Raises: Conflict; ConstraintViolation."""
    ahead = table.current
    _expect_no_conflict(table, base, ahead, change)
    if keys is not None:
        keys.against(ahead.segments)
    prepared = None if isinstance(change, Inserted) else change.applied(ahead.segments)
    with table.locked() as ledger:
        current = table.current
        if current is not ahead:
            _expect_no_conflict(table, base, current, change)
            if keys is not None:
                keys.against(_newer(current, ahead))
            prepared = None
        table.expect_present()
        if isinstance(change, Inserted):
            change = change.numbered(table.reserve(change.rows))
        segments = change.applied(current.segments) if prepared is None else prepared
        version = install(ledger, [(table, current.definition, segments, change.touched)])[0]
    return version


def _expect_no_conflict(
    table: MemoryTable,
    base: Version,
    current: Version,
    change: SegmentChange,
    owner: str | None = None,
) -> None:
    if current is base:
        return
    if current.definition is not base.definition:
        raise Conflict(f"table {table.title} was altered while the statement ran: run it again")
    touched = change.touched
    if touched is None:
        return
    for entry in base.log.later(owner):
        if entry.row_ids is not None and (both := _common(touched, entry.row_ids)) is not None:
            raise Conflict(
                f"row {both} of table {table.title} was changed by another statement meanwhile: "
                "run it again"
            )


def _common(ids: pa.Array, others: pa.Array) -> int | None:
    if ids[0].as_py() > others[-1].as_py() or ids[-1].as_py() < others[0].as_py():
        return None
    index = pc.index(pc.is_in(ids, value_set=others), True).as_py()
    return None if index < 0 else int(ids[index].as_py())


def _newer(current: Version, known: Version) -> list[Segment]:
    before = {id(segment) for segment in known.segments}
    return [segment for segment in current.segments if id(segment) not in before]


def add_to_transaction(
    ctx: Context,
    table: MemoryTable,
    transaction: Transaction,
    base: Version,
    change: SegmentChange,
    keys: KeyCheck | None,
) -> None:
    """Make a change visible to its transaction.

    Raises: Conflict; ConstraintViolation; LimitExceeded.
    """
    if keys is not None:
        keys.against(base.segments)
    with table.locked() as ledger:
        ledger.transactions.use_active(transaction.id)
        pending = transaction.pending.get(table)
        seen = base if pending is None else pending.view
        if seen is not base:
            if change.touched is not None:
                raise Conflict(
                    f"another statement of the same transaction changed table {table.title} "
                    "meanwhile: run it again"
                )
            if keys is not None:
                keys.against(_newer(seen, base))
        if isinstance(change, Inserted):
            change = change.numbered(table.reserve(change.rows))
        segments = change.applied(seen.segments)
        _, own = difference(seen.segments, segments)
        view = Version(
            seen.number,
            seen.timestamp,
            seen.sequence,
            seen.definition,
            segments,
            seen.log,
            nbytes=seen.nbytes,
            # No later version of the table shows them, unless the transaction is committed.
            retired=seen.retired - sum(segment.nbytes for segment in own),
        )
        ledger.transactions.writes(transaction, ctx.quotas)
        first = base if pending is None else pending.base
        changes = [] if pending is None else pending.changes
        transaction.pending[table] = Pending(first, [*changes, change], view)


def commit_transaction(ledger: Ledger, transaction: Transaction) -> dict[MemoryTable, Version]:
    """Make all changes of a transaction visible, or roll it back.

    Returns what the transaction saw of the tables that it changed. Its parent goes on with these
    versions, without the changes of others. Raises: Conflict; ConstraintViolation, after the
    rollback.
    """
    with ledger.lock:
        owner = transaction.parent
        try:
            results = [
                _rebased(table, pending, owner) for table, pending in transaction.pending.items()
            ]
        except BaseException:
            ledger.transactions.end(transaction, TransactionState.ABORTED)
            raise
        if results:
            install(ledger, results, owner)
        views = {table: pending.view for table, pending in transaction.pending.items()}
        ledger.transactions.end(transaction, TransactionState.COMMITTED)
        return views


_Result = tuple["MemoryTable", Definition, tuple[Segment, ...], "pa.Array | None"]


def _rebased(table: MemoryTable, pending: Pending, owner: str | None) -> _Result:
    """The table with the transaction's changes and with all that was committed meanwhile."""
    current, base = table.current, pending.base
    if table.dropped:
        raise Conflict(f"table {table.title} was dropped meanwhile: the transaction is rolled back")
    segments = pending.view.segments
    if current is not base:
        segments = current.segments
        for change in pending.changes:
            _expect_no_conflict(table, base, current, change, owner)
            segments = change.applied(segments)
        _check_rebased_keys(table, current, segments, pending.changes)
    touched = [change.touched for change in pending.changes if change.touched is not None]
    if len(touched) < 2:  # the ids of a single change ascend already
        return table, current.definition, segments, touched[0] if touched else None
    ids = pc.unique(pa.concat_arrays(touched))
    return table, current.definition, segments, ids.take(pc.sort_indices(ids))


def _check_rebased_keys(
    table: MemoryTable,
    current: Version,
    segments: Sequence[Segment],
    changes: Sequence[SegmentChange],
) -> None:
    constraints = current.definition.constraints
    keys = keys_of(constraints)
    if not keys:
        return
    parts = [change.touched for change in changes if change.touched is not None]
    parts += [
        s.row_ids() for change in changes if isinstance(change, Inserted) for s in change.segments
    ]
    ids = pc.unique(pa.concat_arrays(parts))
    if find_missing(segments, ids) is not None:  # a later change has removed some
        present = pa.chunked_array([s.row_ids() for s in segments], pa.int64())
        ids = ids.filter(pc.is_in(ids, value_set=present))
    columns = list(
        dict.fromkeys([*keys.primary_key, *(name for key in keys.unique for name in key)])
    )
    positions = [current.definition.columns.get_field_index(name) for name in columns]
    if not len(ids):
        return
    changed = pa.table([*take_rows(segments, ids, positions), ids], names=[*columns, ROWID_NAME])
    KeyCheck(table.name, current.definition, keys, changed, has_row_ids=True).against(segments)


def install(ledger: Ledger, results: Sequence[_Result], owner: str | None = None) -> list[Version]:
    """Make the given segments the current versions of their tables, all with one sequence number.

    Called under the lock. `owner` is the DuckDB transaction whose statement made the changes.
    """
    sequence = ledger.sequence + 1
    versions = []
    for table, definition, segments, touched in results:
        before = table.current
        # Clocks can go back; the timestamps of a history must not.
        timestamp = max(ledger.settings.now(), before.timestamp)
        held = table.history.holdings.replaced(before.segments, segments)
        version = Version(
            before.number + 1,
            timestamp,
            sequence,
            definition,
            held.segments,
            before.log if touched is None else LogEntry(touched, owner),
            nbytes=before.nbytes + held.grown,
            retired=before.retired + held.retired,
        )
        table.history.add(version)
        versions.append(version)
    ledger.sequence = sequence
    for table, _, _, _ in results:
        table.history.forget(ledger.open_pins)
    return versions
