"""`sparkport serve --warehouse`, run as users run it."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.spark.processes import java_of

from sparkport.spark.jvm.session.jars import lake_jars
from sparkport.testing import DuckDBClient

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(280)]

_OF_GRPC = re.compile(r"[IWE]\d{4} [\d:.]+ +\d+ \w+\.cc:\d+\] ")
"""What gRPC's core itself writes to stderr, where the machine is slow or full."""


def test_a_lake_with_a_demo_is_served_and_found_again_under_another_name(tmp_path):
    lake_jars()  # the first one on a machine says that it fetches them
    folder = tmp_path / "empty"
    folder.mkdir()
    for name, flags in (
        ("lake", ["--demo", "--lake-statistics-rows", "0"]),
        ("other", ["--name", "other", "--no-lake-statistics"]),
    ):
        log = tmp_path / f"{name}.log"
        command = [
            str(Path(sys.executable).with_name("sparkport")),
            "serve",
            "--warehouse",
            "lake",
            *flags,
        ]
        with log.open("w") as stderr:
            process = subprocess.Popen(
                [*command, "--listen", "127.0.0.1:0"],
                cwd=folder,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
            )
        try:
            assert process.stdout is not None
            ready = process.stdout.readline()
            attach = re.search(
                rf"ATTACH '{name}' \(TYPE airport, LOCATION '(grpc://[\d.:]+)'\);\n", ready
            )
            assert attach is not None, ready + log.read_text()
            (java,) = java_of(process.pid)
            with DuckDBClient(attach[1], name, timeout=120) as client:
                assert client.scan("demo", "customers").num_rows == 1000
                bounds = client.statistics("demo", "customers", "id")
                assert (bounds is None) == (name == "other"), "settings of the lake reach it"
            process.send_signal(signal.SIGTERM)
            rest, _ = process.communicate(timeout=120)
        finally:
            process.kill()
            process.communicate(timeout=30)

        assert (process.returncode, rest) == (0, ""), log.read_text()
        said = [line for line in log.read_text().splitlines() if not _OF_GRPC.match(line)]
        assert [line for line in said if " INFO " not in line] == []
        assert not Path(f"/proc/{java}").exists()
        assert [path.name for path in folder.iterdir()] == ["lake"]
