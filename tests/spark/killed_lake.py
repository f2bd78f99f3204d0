"""A lake that is killed at a point of a statement: `python killed_lake.py [POINT]`.

lake_processes.py starts it; the source of the lake is in a variable.

A point is `before:` or `after:` a function, or `during:` it, a few milliseconds after its start.
The process is killed as by `kill -9`, the first time that it reaches the point after a table `s.t`
exists, or the n-th time with `before:swap:n`.
"""

from __future__ import annotations

import importlib
import itertools
import json
import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any

import sparkport as sp
from sparkport.spark.jvm.session.source import LakeSource

PLACES = {
    "stage": ("sparkport.spark.write.statements", "stage"),
    "batch": ("sparkport.engine.statements", "Statement.apply"),
    "journal": ("sparkport.spark.lake.staging", "Staging.will_write"),
    "encode": ("sparkport.spark.write.statements", "encoded"),
    "file": ("sparkport.spark.iceberg.parquet_output", "ParquetOutput.write"),
    "files": ("sparkport.spark.write.background_writer", "BackgroundWriter.finish"),
    "locate": ("sparkport.spark.write.rows", "locate"),
    "draft": ("sparkport.spark.write.commit", "_begun"),
    "vectors": ("sparkport.spark.write.commit", "write_vectors"),
    "rows": ("sparkport.spark.write.commit", "_put"),
    "swap": ("sparkport.spark.write.commit", "_swapped"),
    "done": ("sparkport.spark.lake.staging", "Staging.done"),
    "branch": ("sparkport.spark.write.spark_changes", "_make_branch"),
    "spark": ("sparkport.spark.functions.run_statements", "run_named"),
    "filled": ("sparkport.spark.functions.table_creations", "run_named"),
    "found": ("sparkport.spark.write.spark_changes", "_found_on"),
    "checked": ("sparkport.spark.write.spark_changes", "_checked"),
    "piece": ("sparkport.spark.functions.pipelines", "_done"),
    "draft_of_all": ("sparkport.spark.write.publish", "_draft"),
    "together": ("sparkport.spark.write.publish", "_swapped_together"),
    "end": ("sparkport.spark.catalog", "LakeCatalog.commit_transaction"),
}
"""The functions at the points, and the modules that call them."""


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def arm(point: str) -> None:
    """Let the process die at a point."""
    when, place, *number = point.split(":")
    calls = itertools.count(1)
    module_name, path = PLACES[place]
    owner: Any = importlib.import_module(module_name)
    *outer, name = path.split(".")
    for each in outer:
        owner = getattr(owner, each)
    function: Callable[..., Any] = getattr(owner, name)

    def fatal(*args: Any, **kwargs: Any) -> Any:
        if next(calls) < int(number[0] if number else 1):
            return function(*args, **kwargs)
        if when == "before":
            _die()
        if when == "during":
            threading.Timer(0.01, _die).start()
        result = function(*args, **kwargs)
        if when == "during":
            threading.Event().wait(5)
        _die()
        return result

    setattr(owner, name, fatal)


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main() -> None:
    source = LakeSource(**json.loads(os.environ["SPARKPORT_TESTED_LAKE"]))
    catalog = sp.LakeCatalog(source=source, name="lake")
    if len(sys.argv) > 1:
        arm(sys.argv[1])
    server = sp.Server(catalog, "grpc://127.0.0.1:0")
    server.run_until_signal(lambda: _say(server.location))
    catalog.close()


if __name__ == "__main__":
    main()
