"""A server on loopback that speaks Google Cloud Storage, with a bucket of its own.

It is gcp-storage-emulator, which keeps everything in its memory and asks for no credentials.
"""

from __future__ import annotations

import json
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.parts.server_process import free_port, serving_process

__all__ = ["GcsServer", "gcs_server"]


@dataclass(frozen=True, slots=True)
class GcsServer:
    """A server that runs, and how to talk to it."""

    endpoint: str
    bucket: str

    def options(self) -> dict[str, str]:
        """Iceberg's settings for the server."""
        return {
            "gcs.service.host": self.endpoint,
            "gcs.no-auth": "true",
            "gcs.project-id": "company",
        }

    def make_bucket(self, name: str) -> str:
        """Make another bucket, and return its name."""
        request = urllib.request.Request(
            f"{self.endpoint}/storage/v1/b?project=company",
            json.dumps({"name": name}).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=20):
            return name


@contextmanager
def gcs_server() -> Iterator[GcsServer]:
    """Start a server, with a bucket, for a `with` statement."""
    with tempfile.TemporaryDirectory(prefix="sparkport-gcs-") as folder:
        port = free_port()
        command = [sys.executable, "-m", "gcp_storage_emulator", "start", "--in-memory"]
        command += ["--host", "127.0.0.1", "--port", str(port)]
        with serving_process(command, port, Path(folder) / "log"):
            server = GcsServer(f"http://127.0.0.1:{port}", "lake")
            server.make_bucket(server.bucket)
            yield server
