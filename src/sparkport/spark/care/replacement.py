"""Replace data files of a table by others with the same rows, in one commit.

Strategy: the commit is made on top of the table as it is then. Whatever others have deleted or
updated since the files were read is deleted in the new files by the same commit. So nobody fails
because of it, and no change is lost. Writers wait for the table's lock, so it is held for a short
time: what can be prepared is prepared before, and plain tables need no JVM (plain_commit.py). For
other tables, Iceberg's Java takes long where there are many manifests. It begins without the lock,
which is taken for the swap only, unless others were faster twice.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

from pyiceberg.table.metadata import TableMetadata

from sparkport.errors import NotFound
from sparkport.spark.care.carried_deletes import CarriedDeletes, GaveUp
from sparkport.spark.iceberg.manifests import ManifestEntry
from sparkport.spark.iceberg.plan import DataFile
from sparkport.spark.iceberg.table_state import TableState
from sparkport.spark.jvm.errors import translated
from sparkport.spark.lake.changes import TableChange, WrittenFile, WrittenVector
from sparkport.spark.lake.iceberg_commit import Draft, begin, commit, forget
from sparkport.spark.lake.lake import Lake
from sparkport.spark.lake.outcomes import OutcomeUnknown
from sparkport.spark.lake.plain_commit import PlainCommit, begin_plain
from sparkport.spark.lake.staging import Staging
from sparkport.spark.lake.version_log import number_of
from sparkport.spark.lake.version_timeline import CARE, VERSION
from sparkport.spark.write.data_files import java_data_files
from sparkport.spark.write.java_files import java_content_files, partition_values
from sparkport.spark.write.vectors import described_deletes, java_delete_files, write_vectors

__all__ = ["replace_files"]

_log = logging.getLogger(__name__)

_ATTEMPTS = 5
_PATIENT = 2
"""How often it is tried without keeping other writers waiting."""
_LONGEST_PAUSE = 0.2


def replace_files(
    lake: Lake,
    state: TableState,
    files: Sequence[DataFile],
    written: Sequence[WrittenFile],
    staging: Staging,
) -> bool:
    """Replace files of a state by new ones with the same rows; whether that was done.

    `staging` has noted the new files, and is left to the caller. It is not done, and the log says
    why, when the table was dropped, renamed, replaced or altered meanwhile, when files are gone, or
    when others are faster again and again. Raises: OutcomeUnknown; PreconditionFailed when files
    are missing or damaged; what Iceberg's errors are translated to.
    """
    replacement = _Replacement(lake, state, files, written, staging)
    try:
        for number in range(_ATTEMPTS):
            if replacement.is_made(is_patient=number < _PATIENT):
                return True
            time.sleep(random.uniform(0, _LONGEST_PAUSE))  # noqa: S311 - so that two servers do not keep colliding
        raise GaveUp("others change it all the time")
    except (GaveUp, NotFound) as error:
        _log.info("table %s: its files are not joined this time: %s", state.identifier, error)
        return False


class _Replacement:
    """Files that replace others."""

    def __init__(
        self,
        lake: Lake,
        state: TableState,
        files: Sequence[DataFile],
        written: Sequence[WrittenFile],
        staging: Staging,
    ) -> None:
        self._lake = lake
        self._state = state
        self._staging = staging
        self._change = TableChange(state, tuple(written))
        self._carried = CarriedDeletes(state, files, written)
        self._removed = [_described(state.metadata, each.entry) for each in files]
        self._paths = frozenset(each.entry.path for each in files)
        self._java: _JavaFiles | None = None

    def is_made(self, *, is_patient: bool) -> bool:
        """Try to commit; False when another writer was faster, which is likely if `is_patient`.

        Raises: GaveUp, NotFound, OutcomeUnknown, and as `replace_files`.
        """
        lake, identifier = self._lake, self._state.identifier
        with translated(f"table {identifier}"):
            # What is done here, outside of the lock, need not be done inside.
            now = lake.current(identifier)
            self._expect_same(now)
            self._carried.catch_up(now)
            number_of(lake, now)
            if begin_plain(lake, self._change, self._paths) is not None:
                with lake.locked(identifier):
                    plain = begin_plain(lake, self._change, self._paths)
                    return plain is not None and self._is_made_by(plain, nullcontext())
            draft = begin(lake, identifier)
            if self._java is None:
                self._java = self._prepared(draft)
            if is_patient:
                return self._is_made_by(draft, lake.locked(identifier))
            with lake.locked(identifier):
                return self._is_made_by(begin(lake, identifier), nullcontext())

    def _prepared(self, draft: Draft) -> _JavaFiles:
        lake, table = self._lake, draft.table
        return _JavaFiles(
            self._set(java_content_files(lake, table, self._removed)),
            self._set(java_data_files(lake, table, self._change.files)),
        )

    def _is_made_by(
        self, draft: Draft | PlainCommit, while_swapped: AbstractContextManager[None]
    ) -> bool:
        lake, identifier = self._lake, self._state.identifier
        self._expect_same(draft.state)
        own = lake.staging.begin(identifier, draft.state)
        is_made: bool | None = False
        try:
            self._put(draft, own)
            for staging in (own, self._staging):
                staging.expect_journal()
            with while_swapped:
                is_made = draft.commit() if isinstance(draft, PlainCommit) else commit(draft)
        except OutcomeUnknown:
            is_made = None
            raise
        finally:
            if not is_made:
                lake.attempt("files of a commit that was not made", partial(_forget, draft))
            own.end(is_made)
        if is_made:
            lake.changed(identifier)
        return is_made

    def _put(self, draft: Draft | PlainCommit, staging: Staging) -> None:
        """Put the replacement into a commit, as one snapshot. Raises: GaveUp."""
        now = draft.state
        present = self._carried.catch_up(now)
        located = list(self._carried.located())
        vectors = write_vectors(now, located, staging, now.file_properties)
        gone = [
            described_deletes(now.metadata, entry) for each in present for entry in each.replaced
        ]
        summary = {CARE: "compaction"}
        if isinstance(draft, PlainCommit):
            draft.add(self._change, vectors, summary, self._removed, gone)
            return
        draft.written.extend({each.path for each in vectors})
        summary[VERSION] = str(number_of(self._lake, now))
        self._put_by_java(draft, vectors, gone, summary)

    def _put_by_java(
        self,
        draft: Draft,
        vectors: Sequence[WrittenVector],
        gone: Sequence[Mapping[str, Any]],
        summary: Mapping[str, str],
    ) -> None:
        table, snapshot = draft.transaction.table(), draft.state.snapshot
        assert self._java is not None
        assert snapshot is not None
        added, _ = java_delete_files(self._lake, table, vectors)
        update = draft.transaction.newRewrite()
        # Without this, Iceberg takes the present vectors for concurrent ones.
        update.validateFromSnapshot(snapshot.snapshot_id)
        update.rewriteFiles(
            self._java.replaced,
            self._set(java_content_files(self._lake, table, gone)),
            self._java.added,
            self._set(added),
        )
        for name, value in summary.items():
            update.set(name, value)
        update.commit()

    def _set(self, items: Iterable[Any]) -> Any:
        found = self._lake.gateway.jvm.java.util.HashSet()
        for each in items:
            found.add(each)
        return found

    def _expect_same(self, now: TableState) -> None:
        """Raises: GaveUp when the table is another one, or wants other files."""
        before, after = self._state.metadata, now.metadata
        if after.table_uuid != before.table_uuid:
            raise GaveUp("it was dropped and created anew")
        if (after.current_schema_id, after.default_spec_id, after.location) != (
            before.current_schema_id,
            before.default_spec_id,
            before.location,
        ):
            raise GaveUp("it was altered")
        if now.snapshot is None:
            raise GaveUp("it has no rows any more")


@dataclass(frozen=True, slots=True, eq=False)
class _JavaFiles:
    """Java's objects for a commit, which take a while to make."""

    replaced: Any
    """A java.util.Set of the old org.apache.iceberg.DataFile objects."""
    added: Any
    """A java.util.Set of the new ones."""


def _forget(draft: Draft | PlainCommit) -> None:
    if isinstance(draft, PlainCommit):
        draft.forget()
    else:
        forget(draft)


def _described(metadata: TableMetadata, entry: ManifestEntry) -> Mapping[str, Any]:
    """A data file of the table in Iceberg's JSON form, as far as it takes to find it."""
    fields = metadata.specs()[entry.spec_id].fields
    return {
        "spec-id": entry.spec_id,
        "content": "data",
        "file-path": entry.path,
        "file-format": entry.format,
        "partition": partition_values(metadata.schema(), fields, entry.partition),
        "file-size-in-bytes": entry.size,
        "record-count": entry.rows,
    }
