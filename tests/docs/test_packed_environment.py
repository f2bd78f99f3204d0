"""Deploying on a cluster as its page says: workers have only the packed environment.

The page is docs/how-to/deploy-on-a-cluster.md.
"""

from __future__ import annotations

import re
import socket
import sys
import tarfile
import venv
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest
from tests.docs.blocks import ROOT
from tests.docs.packed_lake import ROWS
from tests.spark.cluster import Cluster, ServerProcess

from sparkport.testing import DuckDBClient

pytestmark = [
    pytest.mark.spark,
    # It takes a minute, and a cluster of its own: that of tests/spark/test_cluster.py shares this
    # environment.
    pytest.mark.long,
    pytest.mark.timeout(280),
]

_SPARED = {"..", "include", "tests", "__pycache__", ".h", ".pyx", ".pxd", ".pyi"}
"""What no executor needs, and would slow down packing: commands, headers, tests, caches."""


def packed(folder: Path) -> Path:
    """Pack this environment's packages as `venv`, `pip install` and `tar` would, offline."""
    venv.create(folder / "environment", symlinks=True, with_pip=False)
    packages = Path("lib", f"python{sys.version_info[0]}.{sys.version_info[1]}", "site-packages")
    archive = folder / "environment.tar.gz"  # not .tar, for which Spark forgets the permissions
    with tarfile.open(archive, "w:gz", compresslevel=1) as tar:
        tar.add(folder / "environment", ".")
        tar.add(ROOT / "src" / "sparkport", packages / "sparkport")
        for name in needed("sparkport") - {"sparkport", "pyspark"}:
            for file in distribution(name).files or ():
                path = Path(str(file.locate()))
                if path.is_file() and not _SPARED.intersection((*file.parts, path.suffix)):
                    tar.add(path, packages / Path(str(file)))
    return archive


def needed(name: str, known: frozenset[str] = frozenset()) -> frozenset[str]:
    """A distribution and all that it needs here, without extras."""
    if name in known:
        return known
    try:
        requirements = distribution(name).requires or ()
    except PackageNotFoundError:
        return known
    known |= {name}
    for requirement in requirements:
        found = re.match(r"[\w.-]+", requirement)
        if found is not None and "extra ==" not in requirement:
            known = needed(found[0], known)
    return known


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def test_executors_read_with_the_python_of_a_packed_environment(tmp_path, monkeypatch):
    archive = packed(tmp_path)
    for name in ("VIRTUAL_ENV", "PYTHONPATH", "PYSPARK_PYTHON"):
        monkeypatch.delenv(name, raising=False)
    port = free_port()
    with monkeypatch.context() as bare:
        bare.setenv("PATH", "/usr/bin:/bin")
        cluster = Cluster(tmp_path)
    with (
        cluster,
        ServerProcess(
            [f"{Path(__file__).with_name('packed_lake.py')}:lake"],
            {
                "PACKED_WAREHOUSE": str(tmp_path / "lake"),
                "PACKED_MASTER": cluster.url,
                "PACKED_ENVIRONMENT": str(archive),
                "PACKED_RELAY_PORT": str(port),
            },
            tmp_path / "log",
        ) as server,
        DuckDBClient(server.location, "lake", timeout=120) as client,
    ):
        found = client.attach().scan("s", "t", ["id", "item"], where="item LIKE '%7'")

        assert sorted(found["id"].to_pylist()) == [each for each in range(ROWS) if each % 10 == 7]
        assert list(tmp_path.glob("worker*/app-*/*/environment/bin/python"))
        with socket.create_connection(("127.0.0.1", port), 5):
            pass  # the place where the executors have sent the rows
