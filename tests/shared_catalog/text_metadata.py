"""Metadata without a JVM: for catalogs that keep locations, any file will do."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from sparkport.spark.lake.directory import Kind
from sparkport.spark.lake.shared_catalog import NewMetadata


@dataclass(frozen=True)
class TextMetadata(NewMetadata):
    """A file in a folder."""

    folder: Path
    replaced: str = ""

    @property
    def before(self) -> str:
        return self.replaced

    def write(self) -> str:
        path = self.folder / f"{uuid.uuid4()}.metadata.json"
        path.write_text("{}")
        return str(path)

    def remove(self, location: str) -> None:
        Path(location).unlink()

    def remove_outdated(self) -> None:
        """Nothing is."""

    def publish(self) -> None:
        raise NotImplementedError("there is no JVM")


class TextViewMetadata(TextMetadata):
    """A file for a view."""

    kind: ClassVar[Kind] = Kind.VIEW


class NoViewMetadata(TextViewMetadata):
    """What a view has that is dropped."""

    is_removal: ClassVar[bool] = True

    def write(self) -> str:
        return ""

    def remove(self, location: str) -> None:
        """Nothing was written."""
