"""What a statement that failed, or a server that died, must not leave behind."""

from __future__ import annotations

from pathlib import Path

from pyiceberg.table import StaticTable
from tests.spark.places import Place, path_of

from sparkport.spark.lake.liveness import FILES

__all__ = ["expect_no_trace", "expect_nothing_left", "staged_files", "unknown_files"]


def expect_nothing_left(place: Place, name: str, temporary: Path, table: str = "t") -> None:
    """Expect no journal, no staged file, and no data file that the table does not know."""
    assert staged_files(place, name, temporary) == []
    assert unknown_files(place, name, table) == set()


def expect_no_trace(place: Place, name: str, temporary: Path, table: str = "t") -> None:
    """As `expect_nothing_left`, and no branch, and no manifest that no snapshot leads to."""
    expect_nothing_left(place, name, temporary, table)
    found = _table(place, name, table)
    assert set(found.metadata.refs) <= {"main"}
    known = {
        path_of(each)
        for snapshot in found.snapshots()
        for each in (
            snapshot.manifest_list,
            *(manifest.manifest_path for manifest in snapshot.manifests(found.io)),
        )
    }
    assert set(path_of(found.location()).rglob("metadata/*.avro")) - known == set()


def staged_files(place: Place, name: str, temporary: Path) -> list[Path]:
    """What is staged in a lake, and on this machine in the folder for temporary files."""
    roots = [place.folder(name) / ".staging", *temporary.glob(".sparkport-staging-*")]
    found = [path for root in roots for path in root.rglob("*")]
    return [path for path in found if path.is_file() and path.name not in FILES]


def unknown_files(place: Place, name: str, table: str) -> set[Path]:
    """Data files in the folder of a table of which no snapshot of it knows."""
    found = _table(place, name, table)
    known = {
        path_of(entry.data_file.file_path)
        for snapshot in found.snapshots()
        for manifest in snapshot.manifests(found.io)
        for entry in manifest.fetch_manifest_entry(found.io)
    }
    known |= {path.with_name(f".{path.name}.crc") for path in known}  # Java's checksums
    return {path for path in path_of(found.location()).rglob("data/*") if path.is_file()} - known


def _table(place: Place, name: str, table: str) -> StaticTable:
    options = dict(place.source(name).options)
    return StaticTable.from_metadata(
        place.metadata(name, table),
        {**options, "s3.region": options.get("client.region", "")},
    )
