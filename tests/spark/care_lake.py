"""A lake that takes care of its tables, and is killed at a step: `python -m tests.spark.care_lake`.

The source of the lake and the settings of its care are in variables; the point of the kill is as
in killed_lake.py.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.spark import killed_lake
from tests.spark.hastened_care import hasten

import sparkport as sp
from sparkport.spark import LakeSettings
from sparkport.spark.jvm.session.source import LakeSource

__all__ = ["PLACES", "care_process"]

_SOURCE, _SETTINGS = "SPARKPORT_TESTED_LAKE", "SPARKPORT_TESTED_CARE"
_SECONDS = 120
_ROOT = Path(__file__).parents[2]

PLACES = {
    "joined": ("sparkport.spark.care.compaction", "_Copying.expect_all"),
    "put": ("sparkport.spark.care.replacement", "_Replacement._put"),
    "join_swap": ("sparkport.spark.care.replacement", "_Replacement._is_made_by"),
    "noted": ("sparkport.spark.care.expiry", "write_note"),
    "expiry_swap": ("sparkport.spark.care.expiry", "commit"),
    "remove": ("sparkport.spark.care.expired_files", "delete_java_files"),
}
"""The functions at the points of care, and the modules that call them."""


@contextmanager
def care_process(
    source: LakeSource, temporary: Path, settings: Mapping[str, Any], *point: str
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server that serves a lake as `lake` and takes care of it, and where it listens.

    It dies at a point of care, if one is given, and else with the block.
    """
    variables = {
        _SOURCE: json.dumps(asdict(source)),
        _SETTINGS: json.dumps(dict(settings)),
        "TMPDIR": str(temporary),
    }
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.spark.care_lake", *point],
            stdout=subprocess.PIPE,
            stderr=said,
            text=True,
            cwd=_ROOT,
            env={**os.environ, **variables},
        )
        try:
            assert process.stdout is not None
            location = process.stdout.readline().strip()
            if not location:
                process.wait(_SECONDS)
                said.seek(0)
                raise RuntimeError(f"the server of the lake did not start: {said.read()}")
            yield process, location
        finally:
            process.kill()
            process.communicate(timeout=_SECONDS)


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main() -> None:
    hasten()
    source = LakeSource(**json.loads(os.environ[_SOURCE]))
    settings = LakeSettings(**json.loads(os.environ[_SETTINGS]))
    catalog = sp.LakeCatalog(source=source, name="lake", settings=settings)
    if len(sys.argv) > 1:
        killed_lake.PLACES.update(PLACES)
        killed_lake.arm(sys.argv[1])
    server = sp.Server(catalog, "grpc://127.0.0.1:0")

    def begin() -> None:
        _say(server.location)
        catalog.start_care()

    server.run_until_signal(begin)
    catalog.close()


if __name__ == "__main__":
    main()
