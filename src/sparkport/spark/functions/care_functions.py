"""How tables are taken care of, as table functions: `set_care` says how, `care` tells of it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from sparkport.catalog import (
    Context,
    FunctionSignature,
    Parameter,
    ParameterKind,
    ScanOptions,
    TableFunction,
)
from sparkport.errors import BadRequest, Cancelled, SparkportError, Unsupported
from sparkport.spark.care.compaction import compaction_need
from sparkport.spark.care.exemptions import ONLY_SPARK, VERSIONS_STAY, exemption
from sparkport.spark.care.expiry import expiry_need
from sparkport.spark.care.file_counts import counted_files
from sparkport.spark.care.joined_manifests import manifests_need
from sparkport.spark.care.reports import CareLog
from sparkport.spark.care.row_order import expect_sort
from sparkport.spark.care.spark_compaction import spark_compaction_need
from sparkport.spark.functions.maintenance import MaintenanceFunction
from sparkport.spark.iceberg.table_state import TableState
from sparkport.spark.lake.care_settings import (
    CARE_PROPERTY,
    CareSettings,
    care_of,
    checked,
    own_settings,
)
from sparkport.spark.lake.directory import CatalogEntry, Kind
from sparkport.spark.lake.iceberg_commit import Draft, alter
from sparkport.spark.lake.lake import Lake
from sparkport.spark.lake.version_log import changes_of

__all__ = ["Care", "SetCare"]

_MOMENT = pa.timestamp("us", "UTC")
_MICROSECONDS = 1_000
_SETTINGS = (
    pa.field("enabled", pa.bool_()),
    pa.field("keep_days", pa.float64()),
    pa.field("keep_versions", pa.int64()),
    pa.field("most_versions", pa.int64()),
    pa.field("small_files", pa.int64()),
    pa.field("file_bytes", pa.int64()),
    pa.field("file_seconds", pa.float64()),
    pa.field("sort", pa.string()),
)
"""What a table can say for itself."""


class SetCare(MaintenanceFunction):
    """Says how a table is taken care of. What is not said stays."""

    columns = pa.schema(
        [("table_name", pa.string()), _SETTINGS[0], ("why_not", pa.string()), *_SETTINGS[1:]]
    )

    @property
    def name(self) -> str:
        return "set_care"

    @property
    def comment(self) -> str:
        return (
            "Says how a table is taken care of, and returns what holds then. What is not said "
            "stays; reset := true forgets what was said before, sort := '' only the order. That is "
            "no new version of the table."
        )

    @property
    def signature(self) -> FunctionSignature:
        named = ParameterKind.NAMED
        return FunctionSignature(
            (
                Parameter("table", pa.string()),
                *(Parameter(each.name, each.type, named) for each in _SETTINGS),
                Parameter("reset", pa.bool_(), named),
            )
        )

    def schema_for_parameters(self, ctx: Context, parameters: Sequence[Any]) -> pa.Schema:
        _said(parameters[1:])
        return super().schema_for_parameters(ctx, parameters)

    def _run(
        self, ctx: Context, state: TableState, arguments: Sequence[Any]
    ) -> Iterator[Mapping[str, Any]]:
        said, is_reset = _said(arguments), bool(arguments[len(_SETTINGS)])

        def edit(draft: Draft) -> bool:
            properties = draft.state.metadata.properties
            if said.get("sort"):
                expect_sort(draft.state, said["sort"])
            known = {} if is_reset else own_settings(properties)
            own = {name: value for name, value in {**known, **said}.items() if value != ""}
            present = properties.get(CARE_PROPERTY)
            # A table of another engine that has the property, even an empty one, is taken care of.
            has_any = bool(own) or (present is not None and not is_reset)
            wanted = json.dumps(own) if has_any else None
            if wanted is not None:
                _expect_consistent(self._lake, said, {**properties, CARE_PROPERTY: wanted})
            if wanted == present:
                return False
            update = draft.transaction.updateProperties()
            update.remove(CARE_PROPERTY) if wanted is None else update.set(CARE_PROPERTY, wanted)
            update.commit()
            return True

        if said or is_reset:
            alter(self._lake, state.identifier, edit)
        now = self._lake.current(state.identifier)
        settings = care_of(self._lake.settings, now.metadata.properties)
        yield {
            "table_name": now.identifier.name,
            **{each.name: getattr(settings, each.name) for each in _SETTINGS},
            **_whether(self._lake, now),
        }


def _said(arguments: Sequence[Any]) -> dict[str, Any]:
    """The settings that a call says; NULL says nothing. Raises: BadRequest for nonsense."""
    given = {
        field.name: value
        for field, value in zip(_SETTINGS, arguments, strict=False)
        if value is not None
    }
    said = checked({**given, "sort": given["sort"].strip()} if "sort" in given else given)
    least, most = said.get("keep_versions"), said.get("most_versions")
    if least is not None and most is not None and least > most:
        raise BadRequest(
            f"set_care: at least {least} versions (keep_versions) are more than at most {most} "
            "(most_versions)"
        )
    return said


def _expect_consistent(lake: Lake, said: Mapping[str, Any], properties: Mapping[str, str]) -> None:
    """Refuse a number of versions that another setting would make void. Raises: BadRequest."""
    own, settings = own_settings(properties), care_of(lake.settings, properties)
    if not {"keep_versions", "most_versions"} & said.keys():
        return
    if own.get("most_versions", settings.most_versions) != settings.most_versions:
        raise BadRequest(
            f"set_care: at most {own['most_versions']} versions cannot be kept where at least "
            f"{settings.keep_versions} are kept: say both keep_versions and most_versions"
        )


def _whether(lake: Lake, state: TableState) -> Mapping[str, Any]:
    """Whether care touches a table, and why not, or only in part."""
    why_not = exemption(lake.settings, state.metadata.properties, state.identifier.name)
    rest = VERSIONS_STAY if state.io is None else ""
    return {"enabled": not why_not, "why_not": why_not or rest}


# -------------------------------------------------------------------------------------------- care


class Care(TableFunction):
    """For each Iceberg table that the caller may read, how it is, and what care does for it."""

    columns = pa.schema(
        [
            ("table_name", pa.string()),
            ("enabled", pa.bool_()),
            ("why_not", pa.string()),
            ("keep_days", pa.float64()),
            ("keep_versions", pa.int64()),
            ("most_versions", pa.int64()),
            ("sort", pa.string()),
            ("versions", pa.int64()),
            ("oldest_version_at", _MOMENT),
            ("data_files", pa.int64()),
            ("small_files", pa.int64()),
            ("delete_files", pa.int64()),
            ("deleted_rows", pa.int64()),
            ("bytes", pa.int64()),
            ("metadata_bytes", pa.int64()),
            ("needs", pa.string()),
            ("last_step", pa.string()),
            ("last_at", _MOMENT),
            ("last_done", pa.string()),
            ("last_problem", pa.string()),
            ("running", pa.bool_()),
            ("progress", pa.float64()),
        ]
    )

    def __init__(self, lake: Lake, care_log: CareLog | None, namespace: tuple[str, ...]) -> None:
        """`care_log` tells what was done; None where no care is taken."""
        self._lake = lake
        self._care_log = care_log
        self._schema_name = ".".join(namespace)

    @property
    def name(self) -> str:
        return "care"

    @property
    def comment(self) -> str:
        return (
            "For each Iceberg table of this schema, how it is taken care of: what it has, what it "
            "needs, and what this server has done for it last."
        )

    @property
    def signature(self) -> FunctionSignature:
        return FunctionSignature(())

    def schema_for_parameters(self, ctx: Context, parameters: Sequence[Any]) -> pa.Schema:
        return self.columns

    def execute(
        self, ctx: Context, parameters: Sequence[Any], options: ScanOptions
    ) -> Iterator[pa.RecordBatch]:
        entries = self._entries(ctx)
        for start in range(0, len(entries), _BATCH_TABLES):
            batch = entries[start : start + _BATCH_TABLES]
            self._lake.prefetch(batch)
            rows = []
            for number, entry in enumerate(batch, start):
                ctx.check()
                ctx.report_progress(number / len(entries))
                rows.append(self._row(ctx, entry))
            yield pa.RecordBatch.from_pylist(rows, self.columns)
        if not entries:
            yield pa.RecordBatch.from_pylist([], self.columns)

    def _entries(self, ctx: Context) -> list[CatalogEntry]:
        """The Iceberg tables whose every row the caller may read."""
        namespace = self._lake.catalog.listing().namespaces.get(self._schema_name)
        entries = {} if namespace is None else namespace.entries
        return [
            entry
            for name, entry in sorted(entries.items())
            if entry.kind is Kind.ICEBERG and ctx.access.shows(self._schema_name, name)
        ]

    def _row(self, ctx: Context, entry: CatalogEntry) -> Mapping[str, Any]:
        row: dict[str, Any] = {
            "table_name": entry.identifier.name,
            "enabled": False,
            "why_not": "",
            **self._done(entry),
        }
        try:
            state = self._lake.state(entry.identifier, entry.location)
            row.update(self._settings(state))
            row.update(self._found(ctx, state))
        except Cancelled:
            raise
        except Unsupported:
            row.update(enabled=False, why_not=ONLY_SPARK)
        except SparkportError as error:  # the other tables are told of all the same
            row.update(why_not=error.message)
        return row

    def _settings(self, state: TableState) -> Mapping[str, Any]:
        settings = care_of(self._lake.settings, state.metadata.properties)
        shown = ("keep_days", "keep_versions", "most_versions", "sort")
        return {
            **_whether(self._lake, state),
            **{name: getattr(settings, name) for name in shown},
        }

    def _found(self, ctx: Context, state: TableState) -> Mapping[str, Any]:
        """What a table has and needs. Raises: CatalogFault, PreconditionFailed."""
        settings = care_of(self._lake.settings, state.metadata.properties)
        changes = changes_of(self._lake, state, ctx.check)
        found = {
            "versions": len(changes),
            "oldest_version_at": changes[0].milliseconds * _MICROSECONDS,
            "needs": self._needs(ctx, state, settings),
        }
        if state.io is None:
            return found
        counted = counted_files(state, settings, ctx.check)
        return {
            **found,
            "data_files": counted.data_files,
            "small_files": counted.small_files,
            "delete_files": counted.delete_files,
            "deleted_rows": counted.deleted_rows,
            "bytes": counted.size,
            "metadata_bytes": self._metadata_bytes(state),
        }

    def _metadata_bytes(self, state: TableState) -> int | None:
        text = self._lake.written_text(state.identifier, state.metadata_location)
        if text is not None:
            return len(text.encode())
        try:
            return None if state.io is None else len(state.io.new_input(state.metadata_location))
        except OSError:
            return None  # a catalog may have them elsewhere

    def _needs(self, ctx: Context, state: TableState, settings: CareSettings) -> str:
        joining = compaction_need(state, settings)
        now_ms = round(time.time() * 1000)
        forgetting = expiry_need(self._lake, state, settings, now_ms, check=ctx.check)
        needs = (
            None if joining is None else joining.why,
            spark_compaction_need(state, settings) if joining is None else None,
            manifests_need(state),
            None if forgetting is None else forgetting.why,
        )
        return "; ".join(filter(None, needs))

    def _done(self, entry: CatalogEntry) -> Mapping[str, Any]:
        log = self._care_log
        last = None if log is None else log.last(entry.identifier)
        runs = [] if log is None else log.runs()
        running = next(
            (run for run in runs[:1] if run.seconds is None and run.table == entry.identifier), None
        )
        return {
            "last_step": None if last is None else last.step,
            "last_at": None if last is None else round(last.began * 1_000_000),
            "last_done": None if last is None else last.done,
            "last_problem": None if last is None else last.problem,
            "running": running is not None,
            "progress": None if running is None else running.progress,
        }


_BATCH_TABLES = 100
