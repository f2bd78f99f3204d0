"""A program that serves on loopback, run for as long as a `with` statement."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

__all__ = ["free_port", "serving_process"]

_START_SECONDS = 30
_END_SECONDS = 10


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


@contextmanager
def serving_process(
    command: Sequence[str], port: int, log: Path, environment: Mapping[str, str] | None = None
) -> Iterator[None]:
    """Run a command that listens on a port of 127.0.0.1, and end it.

    Raises: RuntimeError with what it has logged, if it does not listen within half a minute.
    """
    with (
        log.open("wb") as said,
        subprocess.Popen(command, env=environment, stdout=said, stderr=said) as process,
    ):
        try:
            _wait_until_it_listens(port, process, log)
            yield
        finally:
            process.terminate()
            try:
                process.wait(timeout=_END_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()


def _wait_until_it_listens(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            break
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.02)
    raise RuntimeError(f"the server did not start: {log.read_text('utf-8', 'replace')}")
