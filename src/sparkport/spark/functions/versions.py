"""Versions of a table, as table functions: `rollback_to` returns to a version, `tag` names it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyiceberg.partitioning import PartitionField
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.transforms import VoidTransform

from sparkport.catalog import Context, FunctionSignature, Parameter, ParameterKind, TimePoint
from sparkport.catalog.scan import LATEST
from sparkport.errors import AlreadyExists, BadRequest, NotFound, PreconditionFailed, Unsupported
from sparkport.spark.functions.maintenance import MaintenanceFunction
from sparkport.spark.functions.table_argument import expect_point
from sparkport.spark.iceberg.definition import COMMENT_PROPERTY
from sparkport.spark.iceberg.table_state import TableState
from sparkport.spark.iceberg.types.declared import type_tags_in
from sparkport.spark.lake.history import (
    WORKING_BRANCH,
    ancestors_of,
    names_snapshot,
    state_at,
)
from sparkport.spark.lake.iceberg_commit import Draft, alter
from sparkport.spark.lake.version_log import changes_of, versions_of

__all__ = ["RollbackTo", "Tag"]

_MAIN = "main"
_LONGEST_NAME = 200


class RollbackTo(MaintenanceFunction):
    """Returns a table to a version: its rows, columns, defaults, constraints and comment."""

    columns = pa.schema(
        [
            ("version", pa.int64()),
            ("restored", pa.string()),
            ("snapshot_id", pa.int64()),
            ("schema_id", pa.int32()),
        ]
    )

    @property
    def name(self) -> str:
        return "rollback_to"

    @property
    def comment(self) -> str:
        return (
            "Makes a table what it was at a version, as AT (VERSION => …) shows it: rows, columns "
            "and constraints. That is a change like any other, so it can itself be taken back."
        )

    @property
    def signature(self) -> FunctionSignature:
        return FunctionSignature((Parameter("table", pa.string()), Parameter("version", None)))

    def schema_for_parameters(self, ctx: Context, parameters: Sequence[Any]) -> pa.Schema:
        expect_point(parameters[1], self.name)
        return super().schema_for_parameters(ctx, parameters)

    def _run(
        self, ctx: Context, state: TableState, arguments: Sequence[Any]
    ) -> Iterator[Mapping[str, Any]]:
        point = expect_point(arguments[0], self.name)
        lake, table = self._lake, state.identifier
        restored: list[str] = []

        def edit(draft: Draft) -> bool:
            restored[:] = _restore(draft, self._then(ctx, draft.state, point))
            return bool(restored)

        alter(lake, table, edit)
        after = lake.current(table)
        yield {
            "version": changes_of(lake, after, ctx.check)[-1].number,
            "restored": ", ".join(restored) or "nothing: it is what it was",
            "snapshot_id": None if after.snapshot is None else after.snapshot.snapshot_id,
            "schema_id": after.schema.schema_id,
        }

    def _then(self, ctx: Context, now: TableState, point: TimePoint) -> TableState:
        """The state of the table at that version.

        Raises: NotFound; BadRequest, PreconditionFailed for a state that the table itself never
        had.
        """
        then = state_at(self._lake, now, point, ctx.check)
        ref = now.metadata.refs.get(point.value.strip()) if point.unit == "version" else None
        if ref is not None and ref.snapshot_ref_type is SnapshotRefType.BRANCH:
            raise BadRequest(
                f"{point.value} is a branch of table {now.identifier}: rollback_to takes a version "
                "or a tag"
            )
        if then.snapshot is None or not names_snapshot(self._lake, now, point, ctx.check):
            return then
        # The change that made the snapshot current shows the columns and constraints of that time.
        number = versions_of(self._lake, now, ctx.check).get(then.snapshot.snapshot_id)
        if number is not None:
            return state_at(self._lake, now, TimePoint("version", str(number)), ctx.check)
        logged = [entry.snapshot_id for entry in now.metadata.snapshot_log]
        if then.snapshot.snapshot_id not in {
            *logged,
            *ancestors_of(now.metadata, now.metadata.current_snapshot_id),
        }:
            raise BadRequest(
                f"snapshot {then.snapshot.snapshot_id} of table {now.identifier} is of a branch: "
                "the table never was what it shows"
            )
        constraints = now.definition.constraints
        if constraints.checks or constraints.unique or constraints.primary_key:
            raise PreconditionFailed(
                f"nobody knows any more which constraints table {now.identifier} had at that time, "
                "and its rows may break the present ones: drop them first"
            )
        return then


def _restore(draft: Draft, then: TableState) -> list[str]:
    """Restore a state in a draft, and return the names of what is restored.

    Raises: Unsupported when the table's layout needs columns that would be removed.
    """
    now, restored = draft.state, []
    if then.schema.schema_id != now.schema.schema_id:
        _expect_layout(now, then)
        operations = draft.transaction.table().operations()
        builder = draft.lake.gateway.jvm.org.apache.iceberg.TableMetadata.buildFrom(draft.base)
        operations.commit(draft.base, builder.setCurrentSchema(then.schema.schema_id).build())
        restored.append("columns")
    if then.definition is not now.definition:
        own = set(then.schema.field_ids)
        type_tags = {
            each: type_tag for each, type_tag in draft.type_tags.items() if each not in own
        }
        type_tags |= {
            each: type_tag
            for each, type_tag in type_tags_in(then.metadata.properties).items()
            if each in own
        }
        draft.describe(then.definition.columns, then.definition.constraints, type_tags)
        _restore_comment(draft, then.definition.comment)
        restored += _aspects(now, then, restored)
    if _snapshot_id(then) != _snapshot_id(now):
        if then.snapshot is None:
            everything = (
                draft.lake.gateway.jvm.org.apache.iceberg.expressions.Expressions.alwaysTrue()
            )
            draft.transaction.newDelete().deleteFromRowFilter(everything).commit()
        else:
            draft.transaction.manageSnapshots().setCurrentSnapshot(
                then.snapshot.snapshot_id
            ).commit()
        restored.insert(0, "rows")
    return restored


def _snapshot_id(state: TableState) -> int | None:
    return None if state.snapshot is None else state.snapshot.snapshot_id


def _aspects(now: TableState, then: TableState, restored: Sequence[str]) -> list[str]:
    """What users see differently, besides the columns."""
    found = []
    if "columns" not in restored and not then.definition.columns.equals(
        now.definition.columns, check_metadata=True
    ):
        found.append("columns")
    if then.definition.constraints != now.definition.constraints:
        found.append("constraints")
    if then.definition.comment != now.definition.comment:
        found.append("comment")
    return found


def _restore_comment(draft: Draft, comment: str) -> None:
    if comment == draft.definition.comment:
        return
    update = draft.transaction.updateProperties()
    (update.set(COMMENT_PROPERTY, comment) if comment else update.remove(COMMENT_PROPERTY)).commit()


def _expect_layout(now: TableState, then: TableState) -> None:
    metadata = now.metadata
    if metadata.schema_by_id(then.schema.schema_id) is None:
        raise PreconditionFailed(
            f"the columns that table {now.identifier} had at that time are no longer kept"
        )
    orders = [
        order for order in metadata.sort_orders if order.order_id == metadata.default_sort_order_id
    ]
    sources = [
        *(("partitioned", each.source_id) for each in metadata.spec().fields if not _is_void(each)),
        *(("sorted", each.source_id) for order in orders for each in order.fields),
    ]
    for what, source in sources:
        if source not in then.schema.field_ids:
            column = metadata.schema().find_column_name(source)
            raise Unsupported(
                f"table {now.identifier} is {what} by {column}, a column that it did not have "
                "then: change that first"
            )


def _is_void(field: PartitionField) -> bool:
    return isinstance(field.transform, VoidTransform)


class Tag(MaintenanceFunction):
    """Gives a version a name, under which it is kept."""

    columns = pa.schema(
        [("tag", pa.string()), ("snapshot_id", pa.int64()), ("schema_id", pa.int32())]
    )

    @property
    def name(self) -> str:
        return "tag"

    @property
    def comment(self) -> str:
        return (
            "Names what a table holds now, or held at a version, for AT (VERSION => 'name'). A "
            "tag's rows are kept by "
            "expire_snapshots; they are shown with the columns that they were written with."
        )

    @property
    def signature(self) -> FunctionSignature:
        return FunctionSignature(
            (
                Parameter("table", pa.string()),
                Parameter("name", pa.string()),
                Parameter("version", pa.string(), ParameterKind.NAMED),
            )
        )

    def schema_for_parameters(self, ctx: Context, parameters: Sequence[Any]) -> pa.Schema:
        _expect_name(parameters[1])
        return super().schema_for_parameters(ctx, parameters)

    def _run(
        self, ctx: Context, state: TableState, arguments: Sequence[Any]
    ) -> Iterator[Mapping[str, Any]]:
        name = _expect_name(arguments[0])
        version = arguments[1]
        made: list[Mapping[str, Any]] = []

        def edit(draft: Draft) -> bool:
            present = draft.state
            _expect_free(present, name)
            point = None if version is None else expect_point(version, self.name)
            then = present if point is None else state_at(self._lake, present, point, ctx.check)
            if then.snapshot is None:
                raise PreconditionFailed(
                    f"table {present.identifier} had no rows then, and a tag must name some"
                )
            if present.metadata.snapshot_by_id(then.snapshot.snapshot_id) is None:
                raise NotFound(
                    f"the rows of that version of table {present.identifier} are no longer kept"
                )
            draft.transaction.manageSnapshots().createTag(name, then.snapshot.snapshot_id).commit()
            made[:] = [
                {
                    "tag": name,
                    "snapshot_id": then.snapshot.snapshot_id,
                    "schema_id": then.snapshot.schema_id,
                },
            ]
            return True

        alter(self._lake, state.identifier, edit)
        yield from made


def _expect_name(name: Any) -> str:
    """Raises: BadRequest for a name that AT could not find, or would take for something else."""
    if not isinstance(name, str) or not name or name != name.strip() or len(name) > _LONGEST_NAME:
        raise BadRequest(
            f"tag needs a name without spaces around it, of at most {_LONGEST_NAME} characters"
        )
    if any(not character.isprintable() for character in name):
        raise BadRequest("the name of a tag cannot have control characters in it")
    if re.fullmatch(r"[+-]?[0-9]+", name):
        raise BadRequest(
            f"a tag cannot be called {name}: AT (VERSION => …) would take it for a number"
        )
    if name in (_MAIN, LATEST) or name.startswith(WORKING_BRANCH):
        raise BadRequest(f"a tag cannot be called {name}: the name is reserved")
    return name


def _expect_free(state: TableState, name: str) -> None:
    known = state.metadata.refs.get(name)
    if known is not None:
        kind = "branch" if known.snapshot_ref_type is SnapshotRefType.BRANCH else "tag"
        raise AlreadyExists(
            f"table {state.identifier} has a {kind} {name} already: choose another name"
        )
