"""The commit of a REST catalog: what changes, and what must not have changed meanwhile.

Strategy: a REST catalog applies changes to whatever metadata a table has then, if some of their ids
are as required. Together these ids say that the table is as it was checked: its main branch, its
columns, its partitions. No requirement is about properties, where constraints are kept. So a commit
that changes properties and none of these ids moves one of them: the highest id that was ever given
to a column. It adds a schema with one more column and removes that schema again, so nothing else is
left of it. No other engine is disturbed, unless it is adding a column at that moment.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Set
from typing import Any

__all__ = ["append_request", "commit_request"]

_MAIN = "main"
_IDS = {
    "current-schema-id": ("currentSchemaId", "current-schema-id"),
    "last-assigned-field-id": ("lastColumnId", "last-column-id"),
    "last-assigned-partition-id": ("lastAssignedPartitionId", "last-partition-id"),
    "default-spec-id": ("defaultSpecId", "default-spec-id"),
    "default-sort-order-id": ("defaultSortOrderId", "default-sort-order-id"),
}
"""Requirements on ids: the names of Java's methods, and in the metadata's JSON."""
_PROPERTIES = ("set-properties", "remove-properties")


def commit_request(iceberg: Any, base: Any, after: Any) -> Mapping[str, Any]:
    """The body of a request that commits `after` if the table is still as `base`.

    Both are org.apache.iceberg.TableMetadata, `iceberg` is that package.
    """
    parser = iceberg.MetadataUpdateParser
    updates = [json.loads(str(parser.toJson(each))) for each in after.changes()]
    ids, refs = _ids(base), _refs(base)
    touched = {_MAIN, *(each["ref-name"] for each in updates if "ref-name" in each)}
    is_covered = ids != _ids(after) or refs.get(_MAIN) != _refs(after).get(_MAIN)
    if not is_covered and any(each["action"] in _PROPERTIES for each in updates):
        updates += _moved_field_id(iceberg, base, ids["last-assigned-field-id"])
    return {
        "requirements": _requirements(str(base.uuid()), ids, refs, touched),
        "updates": updates,
    }


def append_request(
    base: Mapping[str, Any], snapshot: Mapping[str, Any], properties: Mapping[str, str]
) -> Mapping[str, Any]:
    """The body of a request that makes a new snapshot the table's, if it is still as `base`.

    Both are in Iceberg's JSON form. `properties` are set, too.
    """
    ids = {name: int(base[key]) for name, (_, key) in _IDS.items()}
    refs = {name: int(each["snapshot-id"]) for name, each in base.get("refs", {}).items()}
    main = {"type": "branch", **base.get("refs", {}).get(_MAIN, {})}
    main["snapshot-id"] = snapshot["snapshot-id"]
    return {
        "requirements": _requirements(str(base["table-uuid"]), ids, refs, {_MAIN}),
        "updates": [
            {"action": "add-snapshot", "snapshot": snapshot},
            {"action": "set-snapshot-ref", "ref-name": _MAIN, **main},
            *([{"action": "set-properties", "updates": properties}] if properties else []),
        ],
    }


def _requirements(
    uuid: str, ids: Mapping[str, int], refs: Mapping[str, int], touched: Set[str]
) -> list[Mapping[str, Any]]:
    return [
        {"type": "assert-table-uuid", "uuid": uuid},
        *({"type": f"assert-{name}", name: each} for name, each in ids.items()),
        *(
            {"type": "assert-ref-snapshot-id", "ref": name, "snapshot-id": refs.get(name)}
            for name in sorted(touched)
        ),
    ]


def _ids(metadata: Any) -> dict[str, int]:
    return {name: int(getattr(metadata, method)()) for name, (method, _) in _IDS.items()}


def _refs(metadata: Any) -> dict[str, int]:
    return {str(name): int(ref.snapshotId()) for name, ref in dict(metadata.refs()).items()}


def _moved_field_id(iceberg: Any, base: Any, last: int) -> list[dict[str, Any]]:
    schema = json.loads(str(iceberg.SchemaParser.toJson(base.schema())))
    column = {"id": last + 1, "name": f"sparkport-{last + 1}", "required": False, "type": "int"}
    schema["fields"] = [*schema["fields"], column]
    schema_id = max(int(each.schemaId()) for each in base.schemas()) + 1
    schema["schema-id"] = schema_id
    return [
        {"action": "add-schema", "schema": schema, "last-column-id": last + 1},
        {"action": "remove-schemas", "schema-ids": [schema_id]},
    ]
