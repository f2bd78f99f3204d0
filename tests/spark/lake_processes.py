"""Servers of lakes in processes of their own, which can be killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from sparkport.spark.jvm.session.source import LakeSource

__all__ = ["SECONDS", "SOURCE", "lake_process"]

SECONDS = 120
SOURCE = "SPARKPORT_TESTED_LAKE"
"""The variable with a lake's source. Its secrets are not for the command line."""
_DRIVER = Path(__file__).with_name("killed_lake.py")


@contextmanager
def lake_process(
    source: LakeSource, temporary: Path, *point: str
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server that serves a lake as `lake`, and where it listens.

    It dies at a point, if one is given (killed_lake.py), and else with the block. `temporary` is
    its folder for temporary files.
    """
    variables = {SOURCE: json.dumps(asdict(source)), "TMPDIR": str(temporary)}
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen(
            [sys.executable, _DRIVER, *point],
            stdout=subprocess.PIPE,
            stderr=said,
            text=True,
            env={**os.environ, **variables},
        )
        try:
            assert process.stdout is not None
            location = process.stdout.readline().strip()
            if not location:
                process.wait(SECONDS)
                said.seek(0)
                raise RuntimeError(f"the server of the lake did not start: {said.read()}")
            yield process, location
        finally:
            process.kill()
            process.communicate(timeout=SECONDS)
