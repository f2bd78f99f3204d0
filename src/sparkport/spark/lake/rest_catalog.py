"""Iceberg's REST catalog, used without the JVM.

The server writes metadata and gives them out with a table, so their files are not read here. A
table that has not changed costs a short answer, where the server has entity tags.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from sparkport.engine.cache import Cache
from sparkport.errors import (
    AlreadyExists,
    CatalogFault,
    NotFound,
    SchemaNotEmpty,
    SparkportError,
)
from sparkport.spark.iceberg.identifiers import Identifier
from sparkport.spark.jvm.errors import translated
from sparkport.spark.jvm.gateway import Gateway
from sparkport.spark.lake.directory import CatalogEntry, Kind
from sparkport.spark.lake.polled_catalog import PolledCatalog
from sparkport.spark.lake.rest_client import Answer, RestClient, RestFault
from sparkport.spark.lake.settings import LakeSettings
from sparkport.spark.lake.shared_catalog import Beaten, NewMetadata, Refused
from sparkport.spark.lake.vended import VendedProperties

__all__ = ["RestCatalog"]

_log = logging.getLogger(__name__)

_TOGETHER = "POST /v1/{prefix}/transactions/commit"
_VIEWS = "GET /v1/{prefix}/namespaces/{namespace}/views"
_CREDENTIALS = "GET /v1/{prefix}/namespaces/{namespace}/tables/{table}/credentials"
_AT_ONCE = 8
"""How many tables are loaded at the same time when a catalog is listed first."""
_MOST_TEXT = 64 * 1024 * 1024
"""Characters of metadata that are kept until the lake has read them."""
_DEEPEST = 8
"""Deeper namespaces are not listed."""
_MAY_BE_OUTDATED = (400, 422)
"""Codes for changes that do not fit to the table, maybe because it is another one by now."""


class RestCatalog(PolledCatalog):
    """A REST catalog. It does not report changes, so it is read again every few seconds."""

    def __init__(self, gateway: Gateway, settings: LakeSettings) -> None:
        """Raises: BadRequest, Unsupported for wrong options of the gateway's catalog."""
        super().__init__(gateway.catalog, settings)
        self._gateway = gateway
        options = gateway.options
        self._client = RestClient(gateway.catalog, options)
        self._is_remembered = options.get("cache-enabled") != "false"
        self._tags: dict[Identifier, tuple[str, CatalogEntry]] = {}
        self._texts: Cache[tuple[Identifier, str], str] = Cache(_MOST_TEXT, 60.0)
        self._vended = VendedProperties(self._renewed)

    @property
    def warehouse(self) -> str | None:
        """Where the warehouse is, if the client knows; to the server it may be just a name."""
        found = self._gateway.warehouse
        return found if found is not None and "://" in found else None

    @property
    def chooses_folders(self) -> bool:
        return True

    @property
    def takes_plain(self) -> bool:
        return True

    @property
    def swaps_together(self) -> bool:
        return self._client.offers(_TOGETHER)

    def close(self) -> None:
        self._client.close()

    # ------------------------------------------------------------------------------------- reading

    def _namespaces(self) -> Iterator[tuple[str, ...]]:
        pending: list[tuple[str, ...]] = [()]
        while pending:
            outer = pending.pop(0)
            found = self._client.pages("namespaces", "namespaces", parent=outer)
            for parts in sorted(tuple(map(str, each)) for each in found):
                yield parts
                if len(parts) < _DEEPEST:
                    pending.append(parts)

    def _has(self, parts: tuple[str, ...]) -> bool:
        try:
            self._client.call("GET", "namespaces", parts)
        except RestFault as fault:
            if fault.status in (400, 404):  # servers of one level do not know what an inner one is
                return False
            raise
        return True

    def _properties(self, parts: tuple[str, ...]) -> Mapping[str, str]:
        body = self._client.call("GET", "namespaces", parts).body
        return {str(key): str(each) for key, each in (body.get("properties") or {}).items()}

    def _tables(self, parts: tuple[str, ...]) -> list[str]:
        return self._names(parts, "tables")

    def _views(self, parts: tuple[str, ...]) -> set[str]:
        return set(self._names(parts, "views")) if self._client.offers(_VIEWS) else set()

    def _names(self, parts: tuple[str, ...], kind: str) -> list[str]:
        found = self._client.pages("identifiers", "namespaces", parts, kind)
        return [str(each["name"]) for each in found]

    def _new_entries(self, identifiers: Sequence[Identifier]) -> list[CatalogEntry]:
        if len(identifiers) < 2:
            return super()._new_entries(identifiers)
        with ThreadPoolExecutor(_AT_ONCE, "sparkport-rest") as threads:
            return list(threads.map(self._new_entry, identifiers))

    def _is_away(self, error: SparkportError) -> bool:
        if isinstance(error, RestFault):
            return error.is_passing
        return isinstance(error, CatalogFault)  # there is no token

    def _entry(self, identifier: Identifier, known: CatalogEntry | None) -> CatalogEntry:
        return self._loaded(identifier)

    def _view(self, identifier: Identifier, known: CatalogEntry | None) -> CatalogEntry:
        with self._missing(f"view {identifier}"):
            body = self._client.call(
                "GET", "namespaces", identifier.namespace, "views", identifier.name
            ).body
        return self._noted(identifier, Kind.VIEW, body)

    def _loaded(self, identifier: Identifier, *, is_whole: bool = False) -> CatalogEntry:
        """A table as it is now; `is_whole` asks for all of it even if it has not changed.

        Raises: NotFound, RestFault.
        """
        etag, known = self._tags.get(identifier, (None, None))
        with self._missing(f"table {identifier}"):
            answer = self._client.call(
                *("GET", "namespaces", identifier.namespace, "tables", identifier.name),
                etag=None if is_whole else etag,
            )
        if answer.status == 304 and known is not None:
            return known
        return self._keep(identifier, answer)

    def _keep(self, identifier: Identifier, answer: Answer) -> CatalogEntry:
        body = answer.body
        entry = self._noted(identifier, Kind.ICEBERG, body)
        place = str(body["metadata"].get("location") or entry.location)
        config = {**self._client.settings, **(body.get("config") or {})}
        self._vended.learn(identifier, place, config, body.get("storage-credentials") or ())
        if answer.etag is None:
            self._tags.pop(identifier, None)
        else:
            self._tags[identifier] = (answer.etag, entry)
        return entry

    def _noted(self, identifier: Identifier, kind: Kind, body: Mapping[str, Any]) -> CatalogEntry:
        """The entry of a table or a view, after keeping its metadata."""
        location, text = str(body.get("metadata-location") or ""), json.dumps(body["metadata"])
        self._texts.add((identifier, location), text, len(text))
        return CatalogEntry(identifier, kind, location)

    def metadata_text(self, identifier: Identifier, location: str) -> str | None:
        text = self._texts.find((identifier, location), None)
        if text is None:
            # It may be current and have been forgotten, or be younger than what was seen last.
            try:
                entry = self._loaded(identifier)
            except NotFound:
                return None
            if entry.location == location:
                text = self._texts.find((identifier, location), None)
                if text is None and self._loaded(identifier, is_whole=True).location == location:
                    text = self._texts.find((identifier, location), None)
        return text

    def vended(self, identifier: Identifier) -> Mapping[str, str]:
        return self._vended.current(identifier)

    def _renewed(self, identifier: Identifier) -> None:
        """Have `_vended` learn what is valid for longer. Raises: NotFound, RestFault."""
        if not self._vended.knows(identifier) or not self._client.offers(_CREDENTIALS):
            self._loaded(identifier, is_whole=True)
            return
        with self._missing(f"table {identifier}"):
            path = ("namespaces", identifier.namespace, "tables", identifier.name, "credentials")
            body = self._client.call("GET", *path).body
        self._vended.relearn(identifier, body.get("storage-credentials") or ())

    # ------------------------------------------------------------------------------------- writing

    def create_namespace(self, parts: tuple[str, ...], properties: Mapping[str, str]) -> None:
        name = ".".join(parts)
        with self._taken(f"schema {name}"):
            body = {"namespace": list(parts), "properties": dict(properties)}
            self._client.call("POST", "namespaces", body=body)

    def drop_namespace(self, parts: tuple[str, ...]) -> None:
        try:
            self._client.call("DELETE", "namespaces", parts)
        except RestFault as fault:
            if fault.status == 409:
                raise SchemaNotEmpty(
                    f"schema {'.'.join(parts)} is not empty: drop its tables first"
                ) from fault
            if fault.status != 404:
                raise

    def create(self, identifier: Identifier, metadata: NewMetadata) -> None:
        with translated(f"table {identifier}"):
            metadata.publish()
        self._tell(identifier)

    def swap(self, identifier: Identifier, metadata: NewMetadata) -> None:
        with self._answered([(identifier, metadata)]):
            path = ("namespaces", identifier.namespace, "tables", identifier.name)
            answer = self._client.call("POST", *path, body=metadata.request())
        self._tell(identifier)
        try:
            self._noted(identifier, Kind.ICEBERG, answer.body)
        except (LookupError, TypeError, AttributeError, SparkportError):
            _log.warning("the REST catalog's answer to a commit is not understood", exc_info=True)

    def swap_all(self, changes: Sequence[tuple[Identifier, NewMetadata]]) -> None:
        if not self.swaps_together:
            super().swap_all(changes)
        with self._answered(changes):
            body = {
                "table-changes": [
                    {"identifier": _named(identifier), **metadata.request()}
                    for identifier, metadata in changes
                ]
            }
            self._client.call("POST", "transactions", "commit", body=body)
        self._tell(*(identifier for identifier, _ in changes))

    @contextmanager
    def _answered(self, changes: Sequence[tuple[Identifier, NewMetadata]]) -> Iterator[None]:
        """Say what a failed commit of these changes means."""
        try:
            yield
        except RestFault as fault:
            is_certain = fault.sent == 1
            if fault.status in (404, 409):
                raise Beaten(
                    self._outdated(changes) or changes[0][0], is_certain=is_certain
                ) from fault
            outdated = self._outdated(changes) if fault.status in _MAY_BE_OUTDATED else None
            if outdated is not None:
                raise Beaten(outdated, is_certain=is_certain) from fault
            if fault.is_refusal:
                raise Refused from fault
            raise
        except CatalogFault as fault:  # there is no token: nothing was sent
            raise Refused from fault

    def _outdated(self, changes: Sequence[tuple[Identifier, NewMetadata]]) -> Identifier | None:
        """The first table that is not as a change expects it."""
        for identifier, metadata in changes:
            try:
                if self._loaded(identifier).location != metadata.before:
                    return identifier
            except NotFound:
                return identifier
            except SparkportError:
                return None
        return None

    def drop(self, entry: CatalogEntry) -> bool:
        return self._dropped(entry, is_purged=False)

    def purge(self, entry: CatalogEntry, remove_files: Callable[[], None]) -> bool:
        """Let the server remove both: it may forbid others to remove files."""
        return self._dropped(entry, is_purged=True)

    def _dropped(self, entry: CatalogEntry, *, is_purged: bool) -> bool:
        identifier, is_view = entry.identifier, entry.kind is Kind.VIEW
        path = ("namespaces", identifier.namespace, _collection(entry), identifier.name)
        try:
            self._client.call(
                *("DELETE", *path),
                params={} if is_view else {"purgeRequested": str(is_purged).lower()},
            )
        except RestFault as fault:
            if fault.status != 404:
                raise
            return False
        finally:
            self._tell(identifier)
            self._vended.forget(identifier)
        return True

    def rename(self, entry: CatalogEntry, identifier: Identifier) -> None:
        body = {"source": _named(entry.identifier), "destination": _named(identifier)}
        with self._missing(f"table {entry.identifier}"), self._taken(f"table {identifier}"):
            self._client.call("POST", _collection(entry), "rename", body=body)
        self._tell(entry.identifier, identifier)

    def _tell(self, *identifiers: Identifier) -> None:
        """Forget what is known of these tables, and have the JVM do so."""
        for identifier in identifiers:
            self._tags.pop(identifier, None)
            if self._is_remembered:
                try:
                    self._gateway.forget(identifier)
                except SparkportError as error:
                    _log.warning("%s", error.message)

    @contextmanager
    def _missing(self, what: str) -> Iterator[None]:
        try:
            yield
        except RestFault as fault:
            if fault.status == 404:
                raise NotFound(f"{what} does not exist") from fault
            raise

    @contextmanager
    def _taken(self, what: str) -> Iterator[None]:
        try:
            yield
        except RestFault as fault:
            if fault.status == 409:
                raise AlreadyExists(f"{what} exists already") from fault
            raise


def _collection(entry: CatalogEntry) -> str:
    return "views" if entry.kind is Kind.VIEW else "tables"


def _named(identifier: Identifier) -> dict[str, Any]:
    return {"namespace": list(identifier.namespace), "name": identifier.name}
