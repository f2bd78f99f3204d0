"""Moto on loopback: a simulation of AWS Glue and of S3, at one port.

It is no dependency of the tests, because its pins contradict ours: botocore wants python-dateutil
below 3. SPARKPORT_MOTO may name a `moto_server` of another environment. One that happens to be on
the PATH is not taken.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.parts.s3 import S3Server

__all__ = ["find_moto", "glue_server"]

_START_SECONDS = 60


def find_moto() -> str | None:
    """The program, if there is one."""
    return os.environ.get("SPARKPORT_MOTO") or None


@contextmanager
def glue_server(program: str) -> Iterator[S3Server]:
    """Start moto for a `with` statement. Glue is at the same endpoint as S3, with any keys."""
    with tempfile.TemporaryDirectory(prefix="sparkport-glue-") as folder:
        log = Path(folder) / "log"
        kept = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
        with (
            log.open("wb") as output,
            subprocess.Popen(
                [program, "-H", "127.0.0.1", "-p", "0"], env=kept, stdout=output, stderr=output
            ) as process,
        ):
            try:
                yield S3Server(_endpoint(process, log), "lake", "key", "secret-of-moto", log.parent)
            finally:
                process.kill()


def _endpoint(process: subprocess.Popen[bytes], log: Path) -> str:
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        found = re.search(r"http://127\.0\.0\.1:[1-9]\d*", log.read_text("utf-8", "replace"))
        if found is not None:
            return found[0]
        time.sleep(0.05)
    raise RuntimeError(f"moto did not start: {log.read_text('utf-8', 'replace')}")
