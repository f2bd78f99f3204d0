"""Views that a transaction makes, replaces or drops, and that nobody else sees before its end."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from sparkport.errors import AlreadyExists, CatalogFault, Conflict, SparkportError
from sparkport.spark.ddl.create_table import expect_place
from sparkport.spark.ddl.objects import drop_view
from sparkport.spark.iceberg.deletion import delete_files
from sparkport.spark.iceberg.identifiers import Identifier
from sparkport.spark.iceberg.locations import storage_at
from sparkport.spark.jvm.errors import translated
from sparkport.spark.lake import folders
from sparkport.spark.lake.directory import CatalogEntry, Kind
from sparkport.spark.lake.lake import Lake
from sparkport.spark.lake.outcomes import OutcomeUnknown
from sparkport.spark.lake.shared_catalog import Beaten, NewMetadata, Refused
from sparkport.spark.lake.unpublished import Unpublished

__all__ = ["DroppedView", "NewView", "ViewDefinition"]

_log = logging.getLogger(__name__)
_DIALECT = "spark"
_COLUMNS_OF_QUERY = "spark.query-column-names"
_ENGINE = ("create_engine_version", "engine_version")


@dataclass(frozen=True, slots=True, eq=False)
class ViewDefinition:
    """What a view is."""

    text: str
    """Its query."""
    namespace: tuple[str, ...]
    """Where unqualified names in the query are."""
    schema: Any
    """The org.apache.iceberg.Schema of its columns."""
    columns: Sequence[str]
    """The names that the query gives the columns."""
    properties: Mapping[str, str]


class _View(Unpublished):
    """What new, replaced and dropped views have in common."""

    is_view = True

    def __init__(self, lake: Lake, identifier: Identifier, entry: CatalogEntry | None) -> None:
        self.identifier = identifier
        self.catalog = lake.catalog
        self.is_new = entry is None
        self._lake = lake
        self._entry = entry

    def _expect_same(self) -> CatalogEntry | None:
        """The view that is there now. Raises: AlreadyExists, Conflict, NotFound."""
        self._lake.changed(self.identifier)
        known = expect_place(self._lake, self.identifier)
        if known is not None and (self.is_new or known.kind is not Kind.VIEW):
            raise AlreadyExists(f"{known.identifier} exists already")
        if known is None and not self.is_new:
            raise Conflict(
                f"view {self.identifier} was dropped by somebody else at the same time; nothing "
                "was changed: run it again"
            )
        return known

    def was_made_despite(self, error: BaseException) -> bool:
        if isinstance(error, Beaten):
            return False
        if isinstance(error, Refused):
            raise error.__cause__ or error
        if isinstance(error, SparkportError) and not isinstance(error, CatalogFault):
            raise error
        if self._is_there():
            return True
        raise OutcomeUnknown(
            f"the catalog did not say whether view {self.identifier} was changed: look before you "
            "try again"
        ) from error

    def _is_there(self) -> bool:
        """Whether the catalog certainly has what was proposed. Never raises."""
        return False

    def withdraw(self) -> None:
        """Nothing to do: views are published last."""


class NewView(_View):
    """A view that is new, or replaces another one."""

    def __init__(
        self,
        lake: Lake,
        identifier: Identifier,
        replaced: CatalogEntry | None,
        definition: ViewDefinition,
    ) -> None:
        super().__init__(lake, identifier, replaced)
        self.definition = definition
        self.staging = lake.staging.begin_new(identifier)
        self._location = ""
        self._folder = folders.new_folder(lake, identifier, self.staging.id)

    def proposed(self) -> NewMetadata:
        known = self._expect_same()
        with translated(f"view {self.identifier}"):
            base = None if known is None else self._loaded().operations().current()
            after = self._metadata(base)
        file = f"{_number(known):05}-{uuid.uuid4()}.metadata.json"
        self._location = location = f"{after.location()}/metadata/{file}"
        if known is None and self._folder is not None:
            self.staging.will_fill(self._folder)
        return _ViewMetadata(
            self._lake,
            "" if base is None else str(base.metadataFileLocation()),
            location,
            str(self._package.ViewMetadataParser.toJson(after)),
        )

    def _is_there(self) -> bool:
        with suppress(SparkportError):
            self._lake.changed(self.identifier)
            entry = self._lake.entry(self.identifier)
            return entry is not None and entry.location == self._location != ""
        return False

    @property
    def _package(self) -> Any:
        return self._lake.gateway.jvm.org.apache.iceberg.view

    def _loaded(self) -> Any:
        catalog = self._lake.gateway.iceberg_catalog
        assert catalog is not None
        return catalog.loadView(self._lake.gateway.iceberg_identifier(self.identifier))

    def _metadata(self, base: Any) -> Any:
        """The org.apache.iceberg.view.ViewMetadata, as Iceberg's own catalogs would make them."""
        gateway, given = self._lake.gateway, self.definition
        metadata = self._package.ViewMetadata
        builder = metadata.builder() if base is None else metadata.buildFrom(base)
        sql = self._package.ImmutableSQLViewRepresentation.builder()
        version = (
            self._package.ImmutableViewVersion.builder()
            .versionId(1 if base is None else _highest(base) + 1)
            .schemaId(given.schema.schemaId())
            .addRepresentations(sql.sql(given.text).dialect(_DIALECT).build())
            .defaultCatalog(gateway.catalog)
            .defaultNamespace(self._namespace())
            .timestampMillis(time.time_ns() // 1_000_000)
            .putAllSummary(gateway.jvm.org.apache.iceberg.EnvironmentContext.get())
            .build()
        )
        if base is None:
            assert self._folder is not None
            builder = builder.setLocation(self._folder)
        return (
            builder.setProperties(self._properties())
            .setCurrentVersion(version, given.schema)
            .build()
        )

    def _namespace(self) -> Any:
        gateway = self._lake.gateway
        names = gateway.strings(self.definition.namespace)
        return gateway.jvm.org.apache.iceberg.catalog.Namespace.of(names)

    def _properties(self) -> dict[str, str]:
        engine = f"Spark {self._lake.spark.version}"
        return {
            **dict.fromkeys(_ENGINE if self.is_new else _ENGINE[1:], engine),
            **self.definition.properties,
            _COLUMNS_OF_QUERY: ",".join(self.definition.columns),
        }

    def publish(self) -> bool:
        self._expect_same()
        given, gateway = self.definition, self._lake.gateway
        catalog = gateway.iceberg_catalog
        assert catalog is not None
        try:
            with translated(f"view {self.identifier}"):
                builder = (
                    catalog.buildView(gateway.iceberg_identifier(self.identifier))
                    .withSchema(given.schema)
                    .withQuery(_DIALECT, given.text)
                    .withDefaultCatalog(gateway.catalog)
                    .withDefaultNamespace(self._namespace())
                    .withProperties(self._properties())
                )
                (builder.create if self.is_new else builder.replace)()
        except SparkportError as error:
            return self.was_made_despite(error)
        return True

    def settle(self) -> None:
        self.staging.done()

    def leave(self) -> None:
        self.staging.leave()

    def discard(self) -> None:
        self.staging.discard()


class DroppedView(_View):
    """A view that goes with the transaction."""

    def proposed(self) -> NewMetadata:
        known = self._expect_same()
        assert known is not None
        self._entry = known
        return _NoMetadata(known.location)

    def publish(self) -> bool:
        known = self._expect_same()
        assert known is not None
        with translated(f"view {self.identifier}"):
            drop_view(self._lake, known)
        self._entry = None
        return True

    def settle(self) -> None:
        if self._entry is not None and not self._lake.settings.keep_files:
            self._lake.attempt(
                f"the files of view {self.identifier}", partial(self._remove_files, self._entry)
            )

    def _remove_files(self, entry: CatalogEntry) -> None:
        files = folders.view_files(self._lake, self.identifier, entry.location)
        folder = entry.location.rsplit("/", 2)[0]
        folders.remove_files(self._lake, self.identifier, files, folder)

    def leave(self) -> None:
        """Nothing to do: nothing was written."""

    def discard(self) -> None:
        """Nothing to do: nothing was written."""


@dataclass(frozen=True, slots=True, eq=False)
class _ViewMetadata(NewMetadata):
    """New metadata of a view."""

    kind: ClassVar[Kind] = Kind.VIEW
    lake: Lake
    replaced: str
    location: str
    text: str

    @property
    def before(self) -> str:
        return self.replaced

    def write(self) -> str:
        storage = storage_at(self.location, self.lake.file_properties)
        storage.write(self.location, self.text.encode())
        return self.location

    def remove(self, location: str) -> None:
        if delete_files([location], self.lake.file_properties):
            _log.warning("metadata that no view has were not removed")
        if not self.replaced:
            folder = location.rsplit("/", 2)[0]
            self.lake.attempt("the folder of a view", partial(folders.remove_empty_folders, folder))

    def remove_outdated(self) -> None:
        """Nothing to do: a view keeps its versions."""

    def publish(self) -> None:
        raise NotImplementedError("NewView.publish does it")


@dataclass(frozen=True, slots=True)
class _NoMetadata(NewMetadata):
    """What a view has that is dropped."""

    kind: ClassVar[Kind] = Kind.VIEW
    is_removal: ClassVar[bool] = True
    replaced: str

    @property
    def before(self) -> str:
        return self.replaced

    def write(self) -> str:
        return ""

    def remove(self, location: str) -> None:
        """Nothing to do: nothing was written."""

    def remove_outdated(self) -> None:
        """Nothing to do: they are removed with the view's other files."""

    def publish(self) -> None:
        raise NotImplementedError("DroppedView.publish does it")


def _number(entry: CatalogEntry | None) -> int:
    """The number in the name of the next metadata file."""
    digits = "" if entry is None else entry.location.rpartition("/")[2].partition("-")[0]
    return int(digits) + 1 if digits.isdecimal() else 0


def _highest(metadata: Any) -> int:
    return max(int(each.versionId()) for each in metadata.versions())
