"""Starts Spark's Python workers quickly: `spark.python.daemon.module` names this module.

Spark runs it once on every executor, and it forks a worker for each concurrent task. Every worker
has the modules that are imported here. It serves every Python function of the session, Sparkport's
and others', so a failure here must do no harm: without it tasks are only slower.
"""

from __future__ import annotations

import importlib
import os
import sys
from contextlib import suppress
from zipimport import zipimporter

__all__ = ["main"]

_NEEDED = (
    "pyarrow",
    "pyarrow.compute",
    "pyarrow.dataset",
    "pyarrow.parquet",
    "duckdb",
    "pyiceberg.schema",
    "sparkport.catalog",
    "sparkport.spark.iceberg.read",
    "sparkport.spark.jvm.relay.relations",
    "sparkport.spark.jvm.relay.tasks",
)


def main() -> None:
    """Run PySpark's own daemon, with more modules imported and faster starts of tasks."""
    for name in _NEEDED:
        # Any error is harmless: an executor without Sparkport, or with other versions of libraries,
        # still runs its tasks.
        with suppress(Exception):
            importlib.import_module(name)
    from pyspark import daemon

    with suppress(Exception):
        _remember_archives()
    daemon.manager()  # type: ignore[no-untyped-call]


def _remember_archives() -> None:
    """Have archives on `sys.path` read again only when they have changed.

    Every task calls `importlib.invalidate_caches`, which reads the directory of each archive: 0.1 s
    for pyspark.zip.
    """
    forget = zipimporter.invalidate_caches
    known: dict[str, tuple[int, int] | None] = {}

    def state(archive: str) -> tuple[int, int] | None:
        try:
            found = os.stat(archive)
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size

    def invalidate_caches(self: zipimporter) -> None:
        now = state(self.archive)
        if now is None or known.get(self.archive) != now:
            known[self.archive] = now
            forget(self)

    for finder in sys.path_importer_cache.values():
        if isinstance(finder, zipimporter):
            known[finder.archive] = state(finder.archive)
    zipimporter.invalidate_caches = invalidate_caches  # type: ignore[method-assign]


if __name__ == "__main__":
    main()
