"""`sparkport serve --warehouse`, run as users run it."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from sparkport.testing import DuckDBClient

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(280)]


def java_of(pid: int) -> list[int]:
    found = subprocess.run(["ps", "-o", "pid=,comm=", "--ppid", str(pid)], capture_output=True, text=True, check=False)
    return [int(line.split()[0]) for line in found.stdout.splitlines() if line.split()[1] == "java"]


def test_a_lake_with_a_demo_is_served_and_found_again_under_another_name(tmp_path):
    for name, flags in (("lake", ["--demo"]), ("other", ["--name", "other"])):
        process = subprocess.Popen(
            [
                Path(sys.executable).with_name("sparkport"),
                "serve",
                "--warehouse",
                "lake",
                "--listen",
                "127.0.0.1:0",
                *flags,
            ],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            assert process.stdout is not None
            ready = process.stdout.readline()
            attach = re.search(rf"ATTACH '{name}' \(TYPE airport, LOCATION '(grpc://[\d.:]+)'\);\n", ready)
            assert attach is not None, ready
            (java,) = java_of(process.pid)
            with DuckDBClient(attach[1], name) as client:
                assert client.scan("demo", "customers").num_rows == 1000
            process.send_signal(signal.SIGTERM)
            rest, log = process.communicate(timeout=60)
        finally:
            process.kill()
            process.communicate(timeout=30)

        assert (process.returncode, rest) == (0, "")
        assert [line for line in log.splitlines() if " INFO " not in line] == []
        assert not Path(f"/proc/{java}").exists()
        assert [path.name for path in tmp_path.iterdir()] == ["lake"]
