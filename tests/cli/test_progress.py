"""The moving line, where there is a terminal."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import time

PROGRAM = """
import logging, time
from sparkport.cli import progress
progress._FIRST = 0.0
logging.basicConfig(level=logging.INFO, format="%(message)s")
with progress.spinner("working"):
    time.sleep(0.85)
    logging.info("something happened")
    time.sleep(0.8)
print("done", flush=True)
"""


def test_on_a_terminal_there_is_a_line_that_is_gone_at_the_end():
    ours, theirs = pty.openpty()
    environment = {**os.environ, "PYTHONIOENCODING": "utf-8"}
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, stderr=theirs, env=environment
    )
    os.close(theirs)
    try:
        shown = read_all(ours)
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.communicate(timeout=30)
        os.close(ours)

    lines = shown.decode().split("\r\x1b[K")
    assert any(line.startswith("⠋ working … ") for line in lines)
    assert "something happened\r\n" in lines, "a line of the log begins where one should"
    assert lines[-1] == ""


def test_without_a_terminal_there_is_nothing():
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=30, check=True
    )

    assert done.stderr == "something happened\n"
    assert done.stdout == "done\n"


def read_all(terminal: int) -> bytes:
    shown, deadline = b"", time.monotonic() + 30
    while select.select([terminal], [], [], max(0, deadline - time.monotonic()))[0]:
        try:
            read = os.read(terminal, 4096)
        except OSError:  # the other end is closed
            break
        if not read:
            break
        shown += read
    return shown
