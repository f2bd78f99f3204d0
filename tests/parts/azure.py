"""A server on loopback that speaks Azure's Blob Storage, with a container of its own.

It is Azurite, by the name `azurite-blob` on the PATH or as SPARKPORT_AZURITE names it. It comes
from npm, and not with the other tools of the tests.
"""

from __future__ import annotations

import base64
import hmac
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from urllib.parse import urlencode

import pytest
from tests.parts.server_process import free_port, serving_process

__all__ = ["ACCOUNT", "HOST", "KEY", "AzureServer", "azure_server"]

ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""Azurite's own, which everybody knows."""
HOST = f"{ACCOUNT}.dfs.core.windows.net"


@dataclass(frozen=True, slots=True)
class AzureServer:
    """A server that runs, and how to talk to it."""

    endpoint: str
    """With the account, which has no host of its own."""
    container: str

    def location(self, path: str) -> str:
        return f"abfss://{self.container}@{HOST}/{path}"

    def options(self) -> dict[str, str]:
        """Iceberg's settings for the server."""
        return {
            f"adls.connection-string.{HOST}": self.endpoint,
            "adls.auth.shared-key.account.name": ACCOUNT,
            "adls.auth.shared-key.account.key": KEY,
        }

    def sas_options(self) -> dict[str, str]:
        """The same with a token for an hour, and without the key."""
        return {
            f"adls.connection-string.{HOST}": self.endpoint,
            f"adls.sas-token.{HOST}": _account_sas(),
        }

    def make_container(self, name: str) -> str:
        """Make another container, and return its name."""
        from pyarrow.fs import AzureFileSystem

        authority = self.endpoint.partition("://")[2].partition("/")[0]
        AzureFileSystem(
            ACCOUNT,
            account_key=KEY,
            **dict.fromkeys(("blob_storage_authority", "dfs_storage_authority"), authority),
            **dict.fromkeys(("blob_storage_scheme", "dfs_storage_scheme"), "http"),
        ).create_dir(name)
        return name


@contextmanager
def azure_server() -> Iterator[AzureServer]:
    """Start a server, with a container, for a `with` statement. Skips where there is no program."""
    program = os.environ.get("SPARKPORT_AZURITE") or shutil.which("azurite-blob")
    if program is None:
        pytest.skip("there is no azurite-blob on the PATH: `npm install -g azurite` brings it")
    with tempfile.TemporaryDirectory(prefix="sparkport-azure-") as folder:
        port = free_port()
        command = [program, "--silent", "--skipApiVersionCheck", "--disableTelemetry"]
        command += ["--blobHost", "127.0.0.1", "--blobPort", str(port), "--location", folder]
        with serving_process(command, port, Path(folder) / "log"):
            server = AzureServer(f"http://127.0.0.1:{port}/{ACCOUNT}", "lake")
            server.make_container(server.container)
            yield server


def _account_sas() -> str:
    """A token that allows everything in blobs and containers for an hour, signed with the key."""
    end = datetime.now(timezone.utc) + timedelta(hours=1)
    fields = {
        "sp": "rwdlacup",
        "ss": "b",
        "srt": "sco",
        "st": "",
        "se": end.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "sip": "",
        "spr": "https,http",
        "sv": "2020-12-06",
        "ses": "",
    }
    text = "".join(f"{each}\n" for each in (ACCOUNT, *fields.values()))
    signature = hmac.digest(base64.b64decode(KEY), text.encode(), "sha256")
    given = {name: value for name, value in fields.items() if value}
    return urlencode({**given, "sig": base64.b64encode(signature).decode()})
