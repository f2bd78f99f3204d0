"""Warming up: it runs what first statements need, elsewhere, and leaves nothing behind."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sparkport.catalog import Context
from sparkport.errors import CatalogFault
from sparkport.spark import LakeCatalog, LakeSettings
from sparkport.spark.warming import Warming

_SECONDS = 240


@pytest.fixture
def cold(lake, place) -> Iterator[LakeCatalog]:
    """The shared lake, opened once more."""
    with LakeCatalog(source=place.source("lake"), spark_catalog=lake.spark_catalog) as catalog:
        yield catalog


@pytest.fixture(autouse=True)
def _temporary_folder_of_its_own(tmp_path, monkeypatch) -> None:
    """Servers of other tests warm up, too."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def _scratch_folders() -> set[Path]:
    return set(Path(tempfile.gettempdir()).glob("sparkport-warm-up-*"))


def _seen(lake: LakeCatalog, folder: Path) -> tuple[Any, ...]:
    """All that anybody could notice of the lake and its session.

    A running server touches its locks now and then.
    """
    paths = [path for path in folder.rglob("*") if path.is_file() and path.suffix != ".lock"]
    files = {(path, path.stat().st_mtime_ns) for path in paths if path.name != "lock"}
    return lake.version(Context()), files, dict(lake.spark.conf.getAll), _scratch_folders()


def test_every_step_runs_and_nothing_is_left(cold, namespace, warehouse, monkeypatch, caplog):
    monkeypatch.setattr("sparkport.spark.warming._ROUNDS", 1)
    before = _seen(cold, warehouse)
    caplog.set_level("DEBUG", "sparkport.spark.warming")

    cold.warm_up()

    assert cold._warming.wait(_SECONDS)
    assert [record.exc_info for record in caplog.records if record.exc_info] == []
    assert "the lake is warm" in caplog.text
    assert _seen(cold, warehouse) == before


def test_it_ends_at_once_when_the_lake_is_closed(lake, place):
    folders = _scratch_folders()
    catalog: Any = LakeCatalog(source=place.source("lake"), spark_catalog=lake.spark_catalog)
    catalog.warm_up()

    catalog.close()

    assert catalog._warming.wait(0)
    assert _scratch_folders() == folders


def test_a_catalog_that_is_away_does_not_end_the_rest(cold, monkeypatch, caplog):
    def away() -> None:
        raise CatalogFault("the catalog cannot be reached")

    caplog.set_level("DEBUG", "sparkport.spark.warming")
    monkeypatch.setattr(cold._lake.catalog, "listing", away)
    monkeypatch.setattr("sparkport.spark.warming._ROUNDS", 1)

    cold.warm_up()

    assert cold._warming.wait(_SECONDS)
    assert "cannot be warmed up" in caplog.text
    assert "the lake is warm" in caplog.text


def test_clients_come_first(cold, monkeypatch):
    """No step begins while clients ask."""
    asked, began = threading.Event(), threading.Event()

    def ask() -> None:
        cold.schema(Context(), "any")
        asked.set()

    monkeypatch.setattr(Warming, "_steps", lambda self: iter([ask, began.set]))
    monkeypatch.setattr("sparkport.spark.warming._QUIET_SECONDS", 3600.0)

    cold.warm_up()

    assert asked.wait(60)
    assert not began.wait(0.2)
    cold._warming.stop()
    assert not began.is_set()


def test_it_can_be_switched_off(lake, place):
    settings = LakeSettings(warm_up=False)
    with LakeCatalog(
        source=place.source("lake"), spark_catalog=lake.spark_catalog, settings=settings
    ) as catalog:
        catalog.warm_up()
        assert catalog._warming is None
