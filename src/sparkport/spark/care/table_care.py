"""The care of one table: the steps that it may need, in their order."""

from __future__ import annotations

import time
from collections.abc import Callable, Set
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from sparkport.catalog import Context
from sparkport.spark.care.compaction import Compacted, compact, compaction_need
from sparkport.spark.care.exemptions import exemption
from sparkport.spark.care.expired_files import Removed, remove_forgotten
from sparkport.spark.care.expiry import expire, expiry_need
from sparkport.spark.care.joined_manifests import join_manifests, manifests_need
from sparkport.spark.care.orphans import remove_orphans
from sparkport.spark.care.reports import CareLog, RunningStep
from sparkport.spark.care.servers import IDLE_SECONDS, Servers
from sparkport.spark.care.spark_compaction import compact_with_spark, spark_compaction_need
from sparkport.spark.iceberg.identifiers import Identifier
from sparkport.spark.iceberg.table_state import TableState
from sparkport.spark.lake.care_settings import CareSettings, care_of
from sparkport.spark.lake.folders import FOLDER_PROPERTY
from sparkport.spark.lake.iceberg_commit import Draft, alter
from sparkport.spark.lake.lake import Lake
from sparkport.spark.lake.version_notes import SHORT_LOG

__all__ = ["TableCare"]

_MOST_BINS = 100
"""How often files of a table are joined at most, if nothing is waited for."""
_MANY_TIMES = 32
"""So many times the files that are worth to be joined are as urgent as too many versions."""
_FOR_SPARK = 1024 * 1024 * 1024
"""Bytes to rewrite that are worth Spark's jobs, which may run on many machines."""
_LOG_OF_0_1 = "1000"
"""How many metadata files a table keeps that 0.1 made."""


@dataclass(slots=True)
class TableCare:
    """Takes care of a table, step by step. Failures are reported, and not raised."""

    lake: Lake
    log: CareLog
    servers: Servers
    identifier: Identifier
    pause: Callable[[], None]
    """Called often while nothing is locked; raises Cancelled to end it."""
    ctx: Context
    """For what Spark does: cancels it."""
    at_once: bool = False
    """Whether little work is worth it, too, and nothing is waited for."""
    with_orphans: bool = False
    """Whether to look for files that nothing leads to."""
    tell_backlog: Callable[[float], None] = lambda _: None
    """Told how much there is to do: 1 is as much as is usual before anything is done."""
    problems: int = field(default=0, init=False)
    """How many steps have failed."""
    waiting: int = field(default=0, init=False)
    """How many notes of files wait until nobody can read these any more."""

    def run(self) -> bool:
        """Do what is needed; whether anything was. Raises: Cancelled."""
        before = self.log.totals()["care_steps"]
        steps: list[Callable[[TableState, CareSettings], None]] = [
            self._shorten_log,
            self._join_files,
            self._join_files_with_spark,
            self._join_manifests,
            self._forget_versions,
            self._remove_files,
        ]
        if self.with_orphans:
            steps.append(self._remove_orphans)
        for step in steps:
            self.pause()
            state = self.lake.current(self.identifier)
            properties = state.metadata.properties
            if exemption(self.lake.settings, properties, self.identifier.name):
                break
            settings = care_of(self.lake.settings, properties)
            self.tell_backlog(_backlog(state, settings))
            step(state, settings)
        return self.log.totals()["care_steps"] != before

    def _step(self, name: str, why: str, work: Callable[[RunningStep], None]) -> bool:
        """Run a step; whether it did not fail. Raises: Cancelled."""
        is_done = False
        with self.log.step(self.identifier, name, why) as running:
            work(running)
            is_done = True
        self.problems += not is_done
        return is_done

    def _patience(self) -> dict[str, float]:
        return {"planning_seconds": 0.0} if self.at_once else {}

    def _in_use(self, state: TableState) -> Callable[[], Set[int] | None]:
        return partial(self.servers.in_use_elsewhere, str(state.metadata.table_uuid))

    # ----------------------------------------------------------------------------------- the steps

    def _shorten_log(self, state: TableState, settings: CareSettings) -> None:
        """Have a table that 0.1 made keep few metadata files. What they tell is noted first."""
        properties = state.metadata.properties
        given = properties.get("write.metadata.previous-versions-max", _LOG_OF_0_1)
        if (
            FOLDER_PROPERTY not in properties
            or given != _LOG_OF_0_1
            or "write.metadata.delete-after-commit.enabled" in properties
        ):
            return

        def edit(draft: Draft) -> bool:
            update = draft.transaction.updateProperties()
            for name, value in SHORT_LOG.items():
                update.set(name, value)
            update.commit()
            return True

        def work(running: RunningStep) -> None:
            with self.lake.locked(self.identifier):
                alter(self.lake, self.identifier, edit)
            running.tell("old metadata files are removed from now on")

        self._step("record versions", "all metadata files were kept", work)

    def _join_files(self, state: TableState, settings: CareSettings) -> None:
        """Join small files, and leave out deleted rows, in this process."""
        # Where others write all the time, there would always be more: versions must go, too.
        for _ in range(_MOST_BINS if self.at_once else 1):
            self.pause()
            state = self.lake.current(self.identifier)
            need = compaction_need(state, settings)
            if need is None or (need.all_bytes > _FOR_SPARK and not settings.sort):
                return

            def work(running: RunningStep, need: Any = need) -> None:
                _tell(running, compact(self.lake, need, settings, self.pause, running.report))

            before = self.log.last(self.identifier)
            if not self._step("join files", need.why, work):
                return
            if self.log.last(self.identifier) is before:
                return  # the table has changed meanwhile: it has its turn again later

    def _join_files_with_spark(self, state: TableState, settings: CareSettings) -> None:
        """Have Spark join files that this process cannot write, or very many."""
        need = compaction_need(state, settings)
        if need is not None and need.all_bytes > _FOR_SPARK and not settings.sort:
            why: str | None = need.why
        else:
            why = spark_compaction_need(state, settings)
        if why is None:
            return

        def work(running: RunningStep) -> None:
            done = compact_with_spark(self.lake, self.identifier, settings, self.ctx)
            _tell(running, done if done.files_before else None)

        self._step("join files", why, work)

    def _join_manifests(self, state: TableState, settings: CareSettings) -> None:
        why = manifests_need(state)
        if why is None:
            return

        def work(running: RunningStep) -> None:
            before, after = join_manifests(self.lake, self.identifier, self.ctx)
            if before:
                running.tell(f"{before:,} manifests became {after:,}")

        self._step("join manifests", why, work)

    def _forget_versions(self, state: TableState, settings: CareSettings) -> None:
        in_use = self._in_use(state)
        need = expiry_need(
            self.lake,
            state,
            settings,
            time.time_ns() // 1_000_000,
            in_use(),
            check=self.pause,
            at_once=self.at_once,
            idle_seconds=IDLE_SECONDS,
            **self._patience(),
        )
        if need is None:
            return

        def work(running: RunningStep) -> None:
            done = expire(self.lake, need, self.pause, in_use, idle_seconds=IDLE_SECONDS)
            if done is not None:
                running.tell(
                    f"{done.snapshots:,} snapshots of {done.versions:,} versions are forgotten",
                    versions_forgotten=done.versions,
                )

        self._step("forget versions", need.why, work)

    def _remove_files(self, state: TableState, settings: CareSettings) -> None:
        in_use = self._in_use(state)

        def work(running: RunningStep) -> None:
            removed = remove_forgotten(
                self.lake, self.identifier, settings, self.pause, in_use, **self._patience()
            )
            self.waiting = removed.waiting
            _tell_removed(running, removed)

        self._step("remove files", "versions were forgotten", work)

    def _remove_orphans(self, state: TableState, settings: CareSettings) -> None:
        def work(running: RunningStep) -> None:
            _tell_removed(running, remove_orphans(self.lake, self.identifier, settings, self.pause))

        self._step("remove files", "no version leads to them", work)


def _backlog(state: TableState, settings: CareSettings) -> float:
    """How much there is to do, as far as the present metadata tell at a glance."""
    summary = None if state.snapshot is None else state.snapshot.summary
    files = "" if summary is None else summary.additional_properties.get("total-data-files", "")
    return max(
        len(state.metadata.snapshots) / settings.most_versions,
        (int(files) if files.isdecimal() else 0) / (_MANY_TIMES * settings.small_files),
    )


def _tell(running: RunningStep, done: Compacted | None) -> None:
    if done is not None:
        running.tell(
            f"{done.files_before:,} files became {done.files_after:,}",
            files_removed=done.files_before - done.files_after,
            bytes_saved=done.bytes_before - done.bytes_after,
        )


def _tell_removed(running: RunningStep, removed: Removed | None) -> None:
    if removed is not None and (removed.files or removed.manifests):
        running.tell(
            f"{removed.files:,} files and {removed.manifests:,} manifests are removed",
            files_removed=removed.files + removed.manifests,
            bytes_saved=removed.bytes,
        )
